"""The first choices of a page: the checkpoint, and the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import dash_mantine_components as dmc
from dash import html

from aotlens.checkpoints import CheckpointInfo
from app.core.catalog import NO_CHECKPOINT, Catalog
from app.core.errors import RequestError

#: The remark on a checkpoint that another page shows.
_UNFIT: dict[str | None, str] = {"images": " (reads images)", "regression": " (regresses in context)"}


def checkpoint_choice(
    id: str,
    catalog: Catalog,
    value: str | None,
    *,
    reads_text: bool = False,
    note: Callable[[CheckpointInfo], str] = lambda info: "",
) -> dmc.Select:
    """Return every checkpoint; those that can't be opened, or (`reads_text`) don't read text, can't be chosen. If none
    can, advice is below it.

    `note` says more about one that can.
    """

    def entry(info: CheckpointInfo) -> dict[str, str | bool]:
        fit = catalog.reads_text(info) if reads_text else info.problem is None
        unfit = _UNFIT.get(catalog.page_of(info), " (can't be shown here)")
        why_not = " (can't be opened)" if info.problem is not None else unfit
        return {"value": info.name, "label": info.name + (note(info) if fit else why_not), "disabled": not fit}

    listed = catalog.list()
    if value is not None and "@" in value and value not in {info.name for info in listed}:
        with suppress(RequestError):  # the page says what is wrong with it
            listed = [catalog.info(value), *listed]
    data = [entry(info) for info in listed]
    return dmc.Select(
        id=id,
        label="Checkpoint",
        data=data,
        value=value,
        description=NO_CHECKPOINT if all(option["disabled"] for option in data) else None,
        inputWrapperOrder=["label", "input", "description", "error"],
        allowDeselect=False,
        className="prompt-checkpoint",
    )


def text_form(
    checkpoint: dmc.Select,
    examples: Mapping[str, str],
    value: str,
    *,
    text: str,
    example: str,
    run: str,
    count: str,
    rows: int = 3,
) -> html.Div:
    """Return a checkpoint and a text, which `app.shell.sharing.submit_text` runs. `examples` are texts by what they
    show."""
    return html.Div(
        [
            checkpoint,
            dmc.Select(
                id=example, label="Take an example", placeholder="Choose one",
                data=[{"value": text, "label": name} for name, text in examples.items()],
                className="prompt-example",
            ),
            dmc.Textarea(
                id=text, label="Your text", value=value, autosize=True, minRows=rows, maxRows=8, spellCheck=False,
                className="prompt-text",
            ),
            html.Div(
                [
                    dmc.Button("Run", id=run, n_clicks=0, rightSection=dmc.Kbd("Ctrl ⏎", size="xs")),
                    html.Span(id=count, className="count"),
                ],
                className="prompt-run",
            ),
        ],
        className="prompt",
    )  # fmt: skip
