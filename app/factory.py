"""create_app(settings) -> App. There is no global app: each call makes one of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from app.core import Core
from app.core.boundary import answer_always
from app.core.compression import compress
from app.core.links import Links
from app.core.security import secure
from app.core.sessions import keep_sessions
from app.core.settings import Settings
from app.pages import PAGES, grouped
from app.shell import checking, find, ids, navigation, own_texts, python, sharing, static
from app.shell.app import App
from app.shell.browser import Browser, Link
from app.shell.frame import frame
from app.shell.health import tell_health
from app.shell.page import Page
from app.shell.sign_in import require_token


def create_app(settings: Settings, core: Core | None = None, *, pages: Sequence[Page] = PAGES) -> App:
    """Return the whole app: layout, callbacks, security. `core` may be given, to share loaded models.

    Raises ValueError where a callback names what is in no layout, or two pages share a name; and for an app that others
    can reach without a token, where nobody has said so.
    """
    if settings.shared and settings.token is None and not settings.no_token:
        raise ValueError(
            "Others can reach this app: expected a token in its settings (app.core.access.new_token() makes one), or "
            "no_token=True, got neither."
        )
    core = replace(core or Core.start(settings), links=Links(page.address for page in pages))
    app = App(core, pages)
    app.ahead.watch(app.server)
    groups = {group: [(page.title, page.path) for page in held] for group, held in grouped(pages).items()}
    app.layout = frame(groups)
    navigation.register(app)
    python.register(app)
    for page in pages:
        page.register(app, core, app.services[page.name])
        app.asked.declare(page.sends)
        app.asked.address(page.address)
        for entry in page.browser:
            if isinstance(entry, Browser):
                app.wiring.register(app, page.name, entry)
        app.wiring.link(page.name, [entry for entry in page.browser if isinstance(entry, Link)])
        app.wiring.write_address(page.name, page.address, page.writes)
    sharing.finish(app)
    layouts = [(page, page.content(core, app.services[page.name], page.address.parse(None))) for page in pages]
    components = checking.check(app, layouts)
    early = static.early()
    styles, scripts = static.styles(pages), static.scripts(pages, app.wiring.script())
    static.serve(app.server, [*early, *styles, *scripts])
    app.set_index(
        early=static.tags(early), styles=static.tags(styles), scripts=static.tags(scripts),
        first=partial(navigation.first_picture, app, groups),
    )  # fmt: skip
    tell_health(app.server, core)
    own_texts.serve(app.server, core)
    find.serve(app.server, core, layouts)
    keep_sessions(app.server)
    compress(app.server, core.memory)
    secure(app.server, settings, app.csp_hashes())
    require_token(app.server, settings)  # after `secure`, which refuses foreign hosts first
    app.asked.declare({ids.THEME: frozenset(("light", "dark"))})
    app.asked.declare({name: {"name": "book.txt"} for name in components if name.endswith(ids.uploaded(""))})
    app.asked.refuse_unlike(app, components)
    answer_always(app.server)
    return app
