"""What the Distillation page shows, as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from app.core.errors import RequestError
from app.core.files import File, csv_file
from app.pages.distillation import figures
from app.pages.distillation.service import Distillations, Shown

if TYPE_CHECKING:
    from app.core.inference import PromptResult


def heads_csv(page: Distillations, shown: Shown) -> File:
    """One row a head: the table."""
    frame = pd.DataFrame(figures.table_rows(page, shown)).drop(columns=["id", "name"])
    return _csv(shown, f"heads-{shown.width}-units", frame)


def widths_csv(page: Distillations, shown: Shown) -> File:
    """One row a head, width and seed, with baselines."""
    frames = [page.record(key).distillation.to_frame().assign(result=key) for key in shown.results]
    return _csv(shown, "errors", pd.concat(frames, ignore_index=True))


def costs_csv(page: Distillations, shown: Shown) -> File:
    """One row an order, kind and number of heads replaced."""
    found = {key: page.record(key).costs for key in shown.results}
    frames = [one.curve_frame().assign(result=key, width=one.width) for key, one in found.items() if one is not None]
    if not frames:
        raise RequestError("Nothing was replaced, so there is nothing to save.")
    return _csv(shown, "substitution", pd.concat(frames, ignore_index=True))


def classes_csv(page: Distillations, shown: Shown) -> File:
    """One row a kind of token, of the chosen head."""
    return _csv(shown, f"head-{shown.layer}.{shown.head}-classes", figures.classes_frame(page, shown), of=shown.of)


def curve_csv(page: Distillations, shown: Shown) -> File:
    """One row an evaluation, a column a seed, of the chosen head."""
    found = page.record(shown.of).distillation
    if not shown.width:
        raise RequestError("The linear map is a closed form: it has no learning curve.")
    place, column = found.place((shown.layer, shown.head)), found.settings.trained.index(shown.width)
    seeds = {f"seed_{found.settings.seed + k}": found.curve[:, place, column, k] for k in range(found.n_seeds)}
    frame = pd.DataFrame({"tokens": found.curve_tokens, **seeds})
    return _csv(shown, f"head-{shown.layer}.{shown.head}-curve-{shown.width}-units", frame, of=shown.of)


def text_csv(page: Distillations, shown: Shown, text: str) -> File:
    """One row a token: where the FFN fails."""
    errors, width, result = page.on_text(shown, text)
    if errors is None:
        raise RequestError("This result has kept no FFN, so there are no errors on a text to save.")
    frame = pd.DataFrame({**_tokens(result), "error": errors.relative, "movement": errors.movement})
    return _csv(shown, f"head-{shown.layer}.{shown.head}-text-{width}-units", frame, of=shown.of)


def _tokens(result: PromptResult) -> dict[str, object]:
    patterns = result.patterns
    return {"position": range(patterns.n_pos), "token_id": patterns.tokens.tolist(), "token": patterns.str_tokens}


def _csv(shown: Shown, what: str, frame: pd.DataFrame, of: str | None = None) -> File:
    return csv_file(f"{of or '-'.join(shown.results)}-{what}.csv", frame)
