"""Results as files: CSV and JSON for one head, for predictions and for losses, NPZ for all heads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from app.core import head_maps as views
from app.core.address_values import dotted
from app.core.errors import RequestError
from app.core.files import File, csv_file, json_file, safe_name
from app.core.head_maps import View
from app.core.inference import PromptResult

if TYPE_CHECKING:
    from aotlens.evaluate import NextTokenPredictions


def head_csv(result: PromptResult, layer: int, head: int, view: View, hide_first: bool) -> File:
    """One row for each query and key that is shown."""
    shown = views.head_values(result, layer, head, view, hide_first)
    names = result.patterns.str_tokens
    places = np.argwhere(~np.isnan(shown)).tolist()
    records = (
        {
            "query": query,
            "query_token": names[query],
            "key": key,
            "key_token": names[key],
            view: float(shown[query, key]),
        }
        for query, key in places
    )
    return csv_file(f"{_name(result)}-head-{layer}.{head}-{view}.csv", records)


def head_json(result: PromptResult, layer: int, head: int, view: View, hide_first: bool) -> File:
    """The map as nested lists `[query][key]`, null where nothing is shown."""
    shown = views.head_values(result, layer, head, view, hide_first)
    rows = [[None if np.isnan(value) else float(value) for value in row] for row in shown]
    content = {**_prompt(result), "layer": layer, "head": head, "quantity": view, "values": rows}
    return json_file(f"{_name(result)}-head-{layer}.{head}-{view}.json", content)


def all_heads_npz(result: PromptResult, max_bytes: int) -> File:
    """Every array of the result; read it with `numpy.load`."""
    patterns = result.patterns
    if patterns.n_bytes > max_bytes:
        raise RequestError(
            f"All heads on this text are {patterns.n_bytes / 2**20:.0f} MB, and files of at most "
            f"{max_bytes / 2**20:.0f} MB are made here. Take a shorter text, or call aotlens.heads.attention_patterns."
        )
    arrays: dict[str, Any] = {
        "tokens": patterns.tokens,
        "str_tokens": np.array(patterns.str_tokens),
        "pattern": patterns.pattern,
        "value_norms": patterns.value_norms,
        "visible": patterns.visible,
    }
    if patterns.scores is not None:
        arrays["scores"] = patterns.scores
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return File(
        name=safe_name(f"{_name(result)}-patterns.npz"), content=buffer.getvalue(), mime="application/octet-stream"
    )


def predictions_csv(result: PromptResult, predictions: NextTokenPredictions) -> File:
    """The table as it is shown."""
    return csv_file(f"{_stem(result, predictions)}.csv", predictions.to_frame())


def predictions_json(result: PromptResult, predictions: NextTokenPredictions) -> File:
    """The table, and the token that did come."""
    actual = predictions.actual
    content = {
        **_prompt(result),
        "position": predictions.position,
        "entropy_nats": predictions.entropy,
        "predictions": predictions.to_frame().to_dict(orient="records"),
        "actual": None
        if actual is None
        else {
            "token_id": actual.token_id,
            "token": actual.str_token,
            "probability": actual.probability,
            "rank": actual.rank,
        },
    }
    return json_file(f"{_stem(result, predictions)}.json", content)


def _stem(result: PromptResult, predictions: NextTokenPredictions) -> str:
    where = "at" if predictions.at_position else "next-after"
    return f"{_name(result)}-{where}-{predictions.position}"


def losses_csv(result: PromptResult, whole: np.ndarray, losses: np.ndarray | None) -> File:
    """One row a token: its loss in nats and, with heads switched off, the loss without them."""
    return csv_file(f"{_name(result)}-losses.csv", _losses(result, whole, losses))


def losses_json(result: PromptResult, whole: np.ndarray, losses: np.ndarray | None) -> File:
    """The same, and what ran."""
    rows = _losses(result, whole, losses)
    return json_file(f"{_name(result)}-losses.json", {**_prompt(result), "losses": rows})


def _losses(result: PromptResult, whole: np.ndarray, losses: np.ndarray | None) -> list[dict[str, Any]]:
    columns = {"loss": whole} | ({} if losses is None else {"loss_without": losses})
    return [
        {"position": position, "token": token}
        | {name: float(values[position]) if np.isfinite(values[position]) else None for name, values in columns.items()}
        for position, token in enumerate(result.patterns.str_tokens)
    ]


def _name(result: PromptResult) -> str:
    """The checkpoint, and what it ran without."""
    off = "-".join(map(dotted, result.off))
    return f"{result.checkpoint}-without-{off}-{result.how}" if off else result.checkpoint


def _prompt(result: PromptResult) -> dict[str, Any]:
    patterns = result.patterns
    off = {"off": list(map(dotted, result.off)), "how": result.how, "corpus": result.corpus} if result.off else {}
    return {
        "checkpoint": result.checkpoint,
        **off,
        "tokens": patterns.tokens.tolist(),
        "str_tokens": list(patterns.str_tokens),
    }
