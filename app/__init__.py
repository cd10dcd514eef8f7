"""The Dash app. It computes nothing itself: pages ask `aotlens`, through services of their own.

__main__.py    `python -m app --checkpoints DIR --port N`
factory.py     create_app(settings) -> a Dash app; no global app
server.py      waitress within the app's limits, and its end
screenshot.py  `python -m app.screenshot OUT` makes the README's picture
core/          checkpoints, inference, corpora, jobs, files, settings, addresses: knows no page, and no Dash
shell/         frame, navigation, panels, tables, tokens, callbacks: what every page uses
pages/         a folder a page: all that it is
"""
