"""Python for the Distillation page's views."""

from __future__ import annotations

from app.core import Core
from app.core.examples import FIRST
from app.pages.distillation.address import DistillationState
from app.pages.distillation.ids import PANELS, ids
from app.pages.distillation.service import Distillations, Shown
from app.shell.python import loading, python_of

#: Where a result lies, by its source; a file of one's own is wherever it is.
_FOLDERS = {"bundled": "bundled_distillations_folder()", "made here": "distillations_folder()", "file": "Path()"}


@python_of(*PANELS)
def python(core: Core, service: Distillations, state: DistillationState, panel: str) -> list[str] | None:
    """The lines that give a panel's numbers."""
    shown, _ = service.describe(state)
    if shown is None:
        return None
    head, width = (shown.layer, shown.head), shown.width
    if panel in (ids.ONE, ids.CURVE, ids.ON_TEXT):
        start = [*_records(service, shown, (shown.of,)), f"found = records[{shown.of!r}].distillation"]
        if panel == ids.CURVE:
            column = service.record(shown.of).distillation.settings.trained.index(width) if width else 0
            return [*start, f"result = found.curve[:, found.place({head}), {column}]  # [measurement, seed]"]
        if panel == ids.ONE:
            return [
                *start,
                "frame = found.class_frame()",
                f"result = frame.query('layer == {head[0]} and head == {head[1]} and hidden == {width}')",
            ]
        text = FIRST if state.text is None else state.text
        kept = service.on_text(shown, text)[1]
        return [
            *start,
            *loading(service.record(shown.of).checkpoint)[2:],
            f"tokens = model.to_tokens({text!r})[0]",
            f"result = aotlens.distill.text_errors(model, found, tokens, {head}, width={kept}).relative",
        ]
    each = {
        ids.GRID: f"record.distillation.mean_error({width})",
        ids.ALL: f"record.distillation.mean_error({width})",
        ids.WIDTHS: "record.distillation.to_frame()",
        ids.CLOUD: f"(record.distillation.attending.to({shown.across!r}), record.distillation.attending.constancy)",
        ids.COSTS: "record.costs and record.costs.curve_frame()",
    }[panel]
    start = _records(service, shown, shown.results)
    return [*start, f"result = {{name: {each} for name, record in records.items()}}"]


def _records(service: Distillations, shown: Shown, names: tuple[str, ...]) -> list[str]:
    """The lines that load results, as `records`."""
    entries = {entry.key: entry for entry in service.list()}
    places = {name: f"{_FOLDERS[entries[name].source]} / {entries[name].path.name!r}" for name in names}
    return [
        "from pathlib import Path  # of a result that the app was given as a file",
        "",
        "import aotlens",
        "from aotlens.distill.records import bundled_distillations_folder, distillations_folder",
        "",
        "paths = {",
        *(f"    {name!r}: {place}," for name, place in places.items()),
        "}",
        "records = {name: aotlens.distill.load_record(path) for name, path in paths.items()}",
    ]
