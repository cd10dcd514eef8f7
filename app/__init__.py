"""The Dash app. It computes nothing itself: pages use components and services, services use `aotlens`.

__main__.py    `python -m app --checkpoints DIR --port N`
factory.py     create_app(settings) -> Dash; no global app
screenshot.py  `python -m app.screenshot OUT` makes the README's picture
settings.py    every limit in one place
security.py    trusted hosts, Content-Security-Policy, headers
ids/           every component id
urlstate/      addresses: parse and format
pages/         a folder a view: its layout, its callbacks, what the browser does, files
components/    pure functions -> Dash components
services/      catalog, inference, cache, export; no Dash imports
assets/        css, and what happens in the browser: hover, lock, keys, address
"""
