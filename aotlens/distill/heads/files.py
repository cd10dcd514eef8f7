"""A distillation on disk: one safetensors file with JSON in its header and a hash of both. Never pickle."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aotlens.distill.heads.attending import Attending
from aotlens.distill.heads.result import Distillation, FFNWeights
from aotlens.distill.heads.settings import Settings
from aotlens.files import contents_hash, read_tensors, write_tensors
from aotlens.heads import MotifScores

SCHEMA_VERSION = 3  # 1 named no motifs, 2 had `variation` for `constancy` and no chance
_ARRAYS = (
    "squared_error", "baseline", "class_counts", "block_error", "block_baseline", "position_error", "neighbour_error",
    "neighbour_k", "wide_error", "curve_tokens", "curve_seconds", "curve", "stopped_at", "only_seed",
)  # fmt: skip
_OPTIONAL = ("neighbour_error", "neighbour_k", "wide_error", "only_seed")
_WEIGHTS = ("W_in", "b_in", "W_out", "b_out")
_PLAIN = ("model_name", "train_tokens", "distinct_tokens", "held_out_tokens")


def save_distillation(path: str | Path, distillation: Distillation) -> None:
    """Write `path`, replacing a distillation there at once or not at all.

    Raises `ValueError` for a path that holds something else, and `OSError` with the path for a full disk.
    """
    path = Path(path)
    if path.exists():
        load_distillation(path)  # never somebody else's file
    tensors: dict[str, Tensor] = {"mean_z": distillation.mean_z}
    for name in _ARRAYS:
        array = getattr(distillation, name)
        if array is not None:
            tensors[name] = torch.from_numpy(np.ascontiguousarray(array))
    for width, weights in distillation.weights.items():
        tensors |= {f"weights.{width}.{name}": getattr(weights, name) for name in _WEIGHTS}
    scores = distillation.attending.scores
    for name, array in (
        ("attention", scores.values), ("queries", scores.n_queries), ("constancy", distillation.attending.constancy),
        ("chance", scores.chance), ("uniform", scores.uniform),
    ):  # fmt: skip
        if array is not None:
            tensors[name] = torch.from_numpy(np.ascontiguousarray(array))
    about = {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(distillation, name) for name in _PLAIN},
        "heads": [list(head) for head in distillation.heads],
        "held_out_documents": list(distillation.held_out_documents),
        "blocks_are_documents": distillation.blocks_are_documents,
        "settings": dataclasses.asdict(distillation.settings),
        "motifs": list(scores.motifs),
        "reasons": dict(scores.reasons),
    }
    write_tensors(path, tensors, {"distillation": about, "sha256": contents_hash(tensors, about)})


def load_distillation(path: str | Path) -> Distillation:
    """Raises `ValueError` for a file that is missing, damaged, of a later version, or no distillation."""
    path = Path(path)
    tensors, metadata = read_tensors(path, "a distillation")
    about = metadata.get("distillation")
    if not isinstance(about, dict):
        raise ValueError(f"{path}: expected a distillation, found another safetensors file.")
    if about.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"{path}: expected schema version {SCHEMA_VERSION}, found {about.get('schema_version')!r}; it was written "
            "by another version of aotlens; distil again."
        )
    if metadata.get("sha256") != contents_hash(tensors, about):
        raise ValueError(f"{path}: damaged: its contents are not what was saved. Copy or make it again.")
    try:
        return _build(tensors, about)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected a distillation, found one without {error}.") from error


def _build(tensors: dict[str, Tensor], about: dict[str, Any]) -> Distillation:
    settings = Settings(**{**about["settings"], "hidden": tuple(about["settings"]["hidden"])})
    heads = tuple((int(layer), int(head)) for layer, head in about["heads"])
    arrays: dict[str, Any] = {
        name: tensors[name].numpy() if name in tensors or name not in _OPTIONAL else None for name in _ARRAYS
    }
    return Distillation(
        **{name: about[name] for name in _PLAIN},
        **arrays,
        heads=heads,
        settings=settings,
        held_out_documents=tuple(about["held_out_documents"]),
        blocks_are_documents=about.get("blocks_are_documents", False),
        attending=Attending(
            heads=heads,
            scores=MotifScores(
                motifs=tuple(about["motifs"]),
                values=tensors["attention"].numpy(),
                n_queries=tensors["queries"].numpy(),
                reasons=about["reasons"],
                chance=None if "chance" not in tensors else tensors["chance"].numpy(),
                uniform=None if "uniform" not in tensors else tensors["uniform"].numpy(),
            ),
            constancy=tensors["constancy"].numpy(),
        ),
        weights={
            width: FFNWeights(**{name: tensors[f"weights.{width}.{name}"] for name in _WEIGHTS})
            for width in settings.hidden
            if f"weights.{width}.W_in" in tensors
        },
        mean_z=tensors["mean_z"],
    )
