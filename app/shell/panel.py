"""The one frame of every view: title, explanation behind a "?", maximise, export, notice, content; and tabs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.shell import ids

#: The property of elements without counted clicks: Dash would walk the page for each click inside one that has an id.
QUIET: Mapping[str, Any] = {"disable_n_clicks": True}

_EXPORTS = {
    "png": "Picture (PNG)",
    "svg": "Picture (SVG)",
    "csv": "Table (CSV)",
    "json": "Data (JSON)",
    "html": "Page (HTML)",
    "npz": "Arrays of all heads (NPZ)",
    "safetensors": "Attention model in float64 (safetensors)",
    "ffn": "FFN in float64 (safetensors)",
    "zip": "Attention model as a checkpoint, float32 (ZIP)",
    "python": "Python for this view",
}


def panel(
    id: str,
    title: str,
    explanation: Any,
    content: Any,
    *,
    controls: Any = None,
    exports: Sequence[str] = (),
    class_name: str = "",
    follows: str | None = None,
    always: bool = False,
) -> html.Section:
    """Return a view. `exports` are kinds of files; the page's callbacks answer `ids.export(id, kind)`.

    The `explanation`, a text or what `about` gives, is behind a "?" beside the title; nothing for none. With `follows`,
    a store of the page, the panel is asked for when it is in view (`sharing.when_seen`), or `always`.
    """
    waits = {} if follows is None else {"data-follows": follows, "aria-busy": "true"}
    waits |= {"data-always": ""} if always else {}
    return html.Section(
        [
            html.Div(
                [
                    html.H2(title, id=ids.title(id), className="panel-title"),
                    *_about(id, title, explanation),
                    html.Div(
                        [*_listed(controls), *_export_menu(id, title, exports), _maximise(id, title)],
                        className="panel-controls",
                    ),
                ],
                className="panel-header",
            ),
            html.Div(id=ids.notice(id), className="panel-notice", role="status"),
            html.Div(content, className="panel-content"),
            *([] if follows is None else [dcc.Store(id=ids.seen(id))]),
        ],
        id=id,
        className="panel",
        **{"aria-labelledby": ids.title(id), "data-kind": class_name or id, **waits, **QUIET},
    )


def about(text: str, *, formula: str = "", source: str = "") -> list[Any]:
    """Lay out what a panel shows, in sentences; the formula of its numbers; and the paper and place that it is from."""
    parts = [html.P(text)]
    if formula:
        parts.append(html.P(formula, className="about-formula"))
    if source:
        parts.append(html.P(source, className="about-source"))
    return parts


def tabs(id: str, opened: str, sections: Mapping[str, tuple[str, Any]], *, label: str) -> dmc.Tabs:
    """Draw panels of which one is open: `sections` are (label, content) by the values of a field of the page's address.

    The page writes that field from the tabs' value, `values(tab=id)`. A closed panel that `follows` a store asks for
    nothing; a script opens another one with `aotlens.openTab`.
    """
    heads = [dmc.TabsTab(text, value=name) for name, (text, _) in sections.items()]
    bodies = [dmc.TabsPanel(content, value=name) for name, (_, content) in sections.items()]
    return dmc.Tabs([dmc.TabsList(heads, **{"aria-label": label}), *bodies], id=id, value=opened, className="tabs")


def icon_button(id: str, icon: str, label: str, **rest: Any) -> dmc.ActionIcon:
    """Return a button with an icon of static/shell.css, named for screen readers and on hover."""
    return dmc.ActionIcon(
        html.Span(className=f"icon icon-{icon}"),
        id=id,
        variant="subtle",
        color="gray",
        attributes={"root": {"title": label}},
        **{"aria-label": label},
        **rest,
    )


def _about(id: str, title: str, explanation: Any) -> list[Any]:
    if not explanation:
        return []
    # The mark is drawn by shell.css: visible text would have to be part of the name.
    mark = html.Summary(className="about-mark", title="About this panel", **{"aria-label": f"About: {title}"})
    return [
        html.Details([mark, html.Div(explanation, id=ids.explanation(id), className="about-text")], className="about")
    ]


def _maximise(id: str, title: str) -> dmc.ActionIcon:
    return icon_button(ids.maximise(id), "maximise", f"Maximise: {title} (Escape to return)", className="maximise")


def _export_menu(id: str, title: str, kinds: Sequence[str]) -> list[Any]:
    if not kinds:
        return []
    items = [dmc.MenuItem(_EXPORTS[kind], id=ids.export(id, kind), n_clicks=0) for kind in kinds]
    # Mantine says whether the menu is open on a box of its own around the target, so that box has to be the button.
    button = {"component": "button", "type": "button", "className": "menu-target", "w": 28}
    name = {"aria-label": f"Export: {title}", "title": f"Export: {title}"}
    icon = html.Span(id=f"{id}-export", className="icon icon-download")
    target = dmc.MenuTarget(icon, boxWrapperProps={**button, **name})
    # Callbacks find its entries in the page's layout; in the document they are once it is open, since Dash asks every
    # component there at each step of a callback.
    return [dmc.Menu([target, dmc.MenuDropdown(items)], position="bottom-end", keepMounted=False, shadow="md")]


def _listed(controls: Any) -> list[Any]:
    if controls is None:
        return []
    return list(controls) if isinstance(controls, list | tuple) else [controls]
