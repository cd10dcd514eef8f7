"""What the In-context regression page shows, as files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from app.core.errors import RequestError
from app.core.files import File, csv_file
from app.core.switches import How
from app.pages.regression import words
from app.pages.regression.ids import ids
from app.pages.regression.service import Asked, Regressions


def make_file(service: Regressions, panel: str, shown: Any, how: How, prompt: Any, head: Any) -> File:
    """The table of a panel."""
    if not shown:
        raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
    asked = Asked.from_dict(shown)
    if panel == ids.ERRORS:
        frame = pd.concat([each.to_frame().assign(name=each.name) for each in service.errors(asked)])
        return _csv(asked, "errors", frame)
    if panel == ids.LAYERS:
        return _csv(asked, f"layers-{asked.checkpoint}", layers_frame(service, asked))
    if panel == ids.WITHOUT:
        return _csv(asked, f"without-heads-{how}-{asked.checkpoint}", service.without(asked, how).to_frame())
    if panel == ids.MOTIFS:
        return _csv(asked, f"motifs-{asked.checkpoint}", service.motifs(asked).chance_frame())
    if panel == ids.SUPPORT:
        return _csv(asked, f"support-{asked.checkpoint}", service.support(asked).to_frame())
    number, (layer, head_number) = int(prompt or 0), head
    return _csv(
        asked, f"map-{asked.checkpoint}-prompt{number}-head{layer}.{head_number}",
        map_frame(service, asked, number, (layer, head_number)),
    )  # fmt: skip


def layers_frame(service: Regressions, asked: Asked) -> pd.DataFrame:
    """One row a layer (0: before the first): the nearest algorithm, and the error after each number of examples."""
    readings = service.readings(asked)
    errors = pd.DataFrame(readings.probe_errors).add_prefix("error_after_")
    return pd.concat([readings.to_frame(), errors], axis=1)


def map_frame(service: Regressions, asked: Asked, number: int, head: tuple[int, int]) -> pd.DataFrame:
    """One row a query and a key that it sees: attention, attention · ‖v‖ and the score in nats."""
    result = service.prompt(asked, number)
    patterns, (layer, head_number) = result.patterns, head
    queries, keys = np.nonzero(patterns.visible[min(head_number, len(patterns.visible) - 1)])
    names = np.array(patterns.str_tokens)
    columns = {"query": names[queries], "key": names[keys]}
    columns["attention"] = patterns.pattern[layer, head_number][queries, keys]
    columns["weighted"] = patterns.value_weighted()[layer, head_number][queries, keys]
    if patterns.scores is not None:
        columns["score"] = patterns.scores[layer, head_number][queries, keys]
    return pd.DataFrame(columns)


def _csv(asked: Asked, what: str, frame: pd.DataFrame) -> File:
    return csv_file(f"{words.name(asked, what)}.csv", frame)
