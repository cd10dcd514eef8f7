"""create_app(settings) -> Dash. There is no global app: each call makes one of its own."""

from __future__ import annotations

from dash import Dash, html

from app.components.shell import shell
from app.pages import PAGES, router
from app.security import secure
from app.services import Services
from app.settings import Settings

#: Dash's page, with a language, and the theme known before anything is drawn (assets/early/theme.js).
_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>
        {%metas%}
        <title>{%title%}</title>
        {%favicon%}
        <script src="/assets/early/theme.js"></script>
        {%css%}
    </head>
    <body>
        {%app_entry%}
        <footer>{%config%}{%scripts%}{%renderer%}</footer>
    </body>
</html>
"""


def create_app(settings: Settings, services: Services | None = None) -> Dash:
    """The whole app: layout, callbacks, security. `services` may be given, to share loaded models."""
    services = services or Services.start(settings)
    app = Dash(
        __name__,
        title="aotlens",
        update_title=None,
        index_string=_INDEX,
        assets_path_ignore=["early"],
        serve_locally=True,
        add_log_handler=False,
        use_pages=False,
        health_endpoint="health",
    )
    app.layout = shell([(page.name, page.path) for page in PAGES])
    # Ids on a page that isn't shown exist all the same: with this, a mistyped id in a callback is an error.
    app.validation_layout = html.Div([app.layout, *(page.layout(services, None) for page in PAGES)])
    router.register(app, services)
    for page in PAGES:
        page.register(app, services)
    secure(app, settings)
    return app
