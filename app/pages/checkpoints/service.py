"""The Checkpoints page's account of each checkpoint: its row, its training curve, its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.checkpoints import CheckpointInfo
from aotlens.checkpoints.header import read_header
from aotlens.checkpoints.layout import WEIGHTS, locate
from aotlens.plots import Theme, training_curve
from app.core import Core

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Notes on losses that are not a next token's, by the recipe's objective.
NOTES = {
    "masked": "A masked language model: nats per hidden token, which it predicts from both sides, beside a unigram "
    "model's on the same tokens. Not to be compared with losses of next tokens.",
    "classes": "A model of images: nats per image on held-out images, beside that of the classes' shares alone. Not to "
    "be compared with losses of text.",
    "regression": "A model of in-context regression: squared error ÷ that of the zero predictor, over all numbers of "
    "examples, beside that of least squares.",
}


class Checkpoints:
    """The catalog's checkpoints, one by one."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def rows(self) -> list[dict[str, Any]]:
        """Return one for each checkpoint."""
        return [row_of(info) for info in self._core.catalog.list()]

    def curve(self, name: str | None, theme: Theme) -> go.Figure | None:
        """Return its training curve; None for one that is broken or logged nothing."""
        info = self._core.catalog.info(name)
        history = [] if info.problem is not None else self._core.catalog.read(info, "metrics", info.history)
        if not history:
            return None
        measured = {kind: info.metrics.get(f"{kind}_loss") for kind in ("bigram", "unigram", "class_share")}
        references = {kind.replace("_", " "): level for kind, level in measured.items() if level}
        figure = training_curve(history, references=references, theme=theme)
        return figure.update_layout(meta={"name": info.name})

    def tensors(self, info: CheckpointInfo) -> list[dict[str, Any]]:
        """Name, shape, dtype and size of every tensor of the checkpoint's file, without reading the weights."""
        if info.problem is not None or info.path is None:
            return []
        folder = info.path
        header = self._core.catalog.read(info, "header", lambda: read_header(locate(folder, WEIGHTS), folder))
        rows = []
        for name, entry in header.tensors.items():
            size = 1
            for length in entry.shape:
                size *= length
            shape = " × ".join(map(str, entry.shape)) or "scalar"
            rows.append({"name": name, "shape": shape, "dtype": entry.dtype, "numbers": size})
        return sorted(rows, key=lambda row: row["name"])


def row_of(info: CheckpointInfo) -> dict[str, Any]:
    """Return the table's row of a checkpoint; a broken one has its name and its problem."""
    model = info.model
    loss, baseline = info.losses
    kind = model.get("attention")
    phi = model.get("phi", "softmax")
    return {
        "name": info.name,
        "kind": f"{kind}, {phi}" if kind and phi != "softmax" else kind,
        "layers": model.get("n_layers"),
        "heads": model.get("n_heads"),
        "d_model": model.get("d_model"),
        "parameters": info.n_weights,
        "tokens": info.tokens_seen or None,
        "loss": loss,
        "baseline": baseline,
        "loss_note": NOTES.get(info.objective),
        "status": "broken" if info.problem else "ready",
        "problem": info.problem,
    }
