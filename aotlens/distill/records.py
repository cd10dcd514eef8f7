"""Distillations with where they come from and what replacing heads costs: on disk, and those that are bundled.

A record says of which checkpoint it is, on what text and by which command, and holds the costs of substitution.

    aotlens.distill.bundled_distillations()["novels-12l-mssa"].distillation.mean_error(16)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from aotlens.checkpoints import user_folder
from aotlens.conventions import Progress
from aotlens.distill.heads import (
    Distillation,
    FFNWeights,
    SubstitutionCosts,
    distill_heads,
    held_out_windows,
    substitution_costs,
)
from aotlens.results import OfCheckpoint, load, stored
from aotlens.results.stored_files import stored_folder, stored_names

if TYPE_CHECKING:
    from aotlens.data import Corpus
    from aotlens.heads.reader import Model

_SUFFIX = ".safetensors"
#: Characters that a distillation's name does not have.
_OTHER = r"[^\w.\-]+"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Record(OfCheckpoint):
    """A distillation and its origin; what is not known is empty."""

    distillation: Distillation
    costs: SubstitutionCosts | None = None
    schema_version: ClassVar[int] = 4

    @property
    def headline(self) -> str:
        return self.distillation.headline

    def distillation_of(self, model: Any) -> Distillation:
        """Return the distillation. Raises `ValueError` if the model's card says that it has other weights."""
        card = getattr(model, "card", None)
        if card is not None and not self.belongs_to(card):
            raise ValueError(
                f"The checkpoint {self.checkpoint} here has other weights than the one that was distilled: its heads "
                "cannot be compared with these FFNs. Distil it."
            )
        return self.distillation


def record_distillation(
    model: Model,
    corpus: Corpus,
    hidden: int | Sequence[int] = 16,
    *,
    name: str = "",
    model_name: str = "",
    replace: int = 0,
    text: str = "",
    command: str = "",
    held_out: Collection[str] | float | None = None,
    sequence_length: int | None = None,
    train_tokens: int = 400_000,
    progress: Progress | None = None,
    **settings: Any,
) -> Record:
    """Distil heads (`distill_heads`, which takes the `settings`) and return the result with its origin: the model's
    card (without one, `model_name`), `text` (the corpus in words) and `command`.

    With `replace`, on so many held-out tokens heads are also replaced by their widest FFNs (`substitution_costs`). With
    `name`, the record is kept in `distillations_folder()`, where `named_record(name)` finds it. Fewer than 65,536
    training tokens are judged by as many. `progress(done, all)` counts tokens, then passes over the held-out ones.
    """
    if re.search(_OTHER, name):
        raise ValueError(f"name={name!r}: expected letters, digits, dots and dashes.")
    sides: dict[str, Any] = {"held_out": held_out, "sequence_length": sequence_length}
    fewer = {
        "held_out_tokens": min(65_536, train_tokens), "validation_tokens": min(8192, train_tokens // 4),
        "neighbours": min(16_384, train_tokens),
    }  # fmt: skip
    distillation = distill_heads(
        model, corpus, hidden, progress=progress, train_tokens=train_tokens, **sides, **{**fewer, **settings}
    )
    costs = None
    if replace:
        windows = held_out_windows(model, corpus, replace, **sides)
        costs = substitution_costs(model, distillation, windows, width=distillation.hidden[-1], progress=progress)
    card = getattr(model, "card", None)
    origin = {} if card is None else {"weights_sha256": card.weights_sha256}
    record = Record(
        distillation=distillation, corpus=text,
        checkpoint=(model_name or distillation.model_name) if card is None else card.name,
        command=command, costs=costs, **origin,
    )  # fmt: skip
    if name:
        record.save(distillations_folder() / f"{name}{_SUFFIX}")
    return record


def compress(distillation: Distillation, width: int) -> Distillation:
    """Return the distillation with the FFNs of one width and, of each head, the seed that did best on validation text,
    in float16.

    Every error and curve stays. Raises `ValueError` for a width that was not distilled, and for weights that float16
    does not hold.
    """
    weights = distillation.ffns(width)
    best = np.array([distillation.best_seed(head, width) for head in distillation.heads], dtype=np.int64)
    rows = torch.arange(len(best))
    tensors = {}
    for name in ("W_in", "b_in", "W_out", "b_out"):
        seed = torch.zeros(len(best), dtype=torch.int64)
        if width and distillation.only_seed is None:
            seed = torch.from_numpy(best)
        tensors[name] = getattr(weights, name)[rows, seed][:, None].to(torch.float16)
        if not torch.isfinite(tensors[name]).all():
            raise ValueError(f"width {width}: {name} has numbers beyond float16; save the distillation as it is.")
    return dataclasses.replace(distillation, weights={width: FFNWeights(**tensors)}, only_seed=best)


def load_record(path: str | Path) -> Record:
    """Load the record at `path`, or a distillation alone, of whose origin its model's name is known.

    Raises `ValueError` for files that are missing, damaged or something else.
    """
    result = load(path, what="a distillation")
    if isinstance(result, Distillation):
        return Record(distillation=result, checkpoint=result.model_name, version="")
    if not isinstance(result, Record):
        raise ValueError(f"{path}: expected a distillation, found a result of type {type(result).__name__}.")
    return result


def distillations_folder() -> Path:
    """Return the folder of the user's own distillations: `$AOTLENS_HOME/distillations`, by default in
    `~/.cache/aotlens`."""
    return user_folder("distillations")


def bundled_distillations() -> dict[str, Record]:
    """Load the distillations of bundled checkpoints, by their names: all errors and curves, and the FFNs of 16 hidden
    units of one seed."""
    return {name: stored("distillation", name) for name in stored_names("distillation")}


def record_paths(given: Iterable[Path] = ()) -> dict[str, Path]:
    """Return the files of distillations by their names: those that are given, then the user's own, then the bundled
    ones. Of two of one name the second is called NAME-2; what is no letter, digit, dot or dash is an underscore."""
    paths: dict[str, Path] = {}
    folders = (distillations_folder(), stored_folder("distillation"))
    for path in (*given, *(path for folder in folders for path in sorted(folder.glob(f"*{_SUFFIX}")))):
        stem, number = re.sub(_OTHER, "_", path.name.removesuffix(_SUFFIX)), 2
        name = stem
        while name in paths:
            name, number = f"{stem}-{number}", number + 1
        paths[name] = path
    return paths


def named_record(name: str) -> Record:
    """Return the record of that name among `record_paths()`. Raises `ValueError` for a name that is not there, which
    lists those that are, and for a file that cannot be read."""
    known = record_paths()
    if name not in known:
        raise ValueError(f"No distillation is called {name!r}. There are: {', '.join(known) or 'none yet'}.")
    return load_record(known[name])
