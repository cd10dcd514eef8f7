"""Distillations with where they come from and what replacing heads costs: on disk, and those that are bundled.

A record is two files: NAME.safetensors, as `save_distillation` writes it, and NAME.json beside it, which says of which
checkpoint, on what text and by which command, and holds the costs of substitution. The second may be missing.

    aotlens.distill.bundled_distillations()["novels-12l-mssa"].distillation.mean_error(16)
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aotlens.checkpoints import CheckpointInfo, user_folder
from aotlens.distill.heads import Distillation, FFNWeights, SubstitutionCosts, load_distillation, save_distillation
from aotlens.files import contents_hash, replacing_file
from aotlens.results import Result
from aotlens.untrusted import read_regular, strict_json

SCHEMA_VERSION = 2  # 1 had no hash
_SUFFIX = ".safetensors"
_COST_ARRAYS = ("alone", "error", "by_error", "reverse", "random", "by_cost")
_ORIGIN = ("checkpoint", "weights_sha256", "corpus", "command")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Record(Result):
    """A distillation and its origin; what is not known is empty."""

    distillation: Distillation
    checkpoint: str
    """Whose heads."""
    weights_sha256: str = ""
    """Of that checkpoint's weights: another of the same name is not the one."""
    corpus: str = ""
    """What text, in words."""
    command: str = ""
    """What made it."""
    costs: SubstitutionCosts | None = None

    @property
    def headline(self) -> str:
        return self.distillation.headline

    def belongs_to(self, info: CheckpointInfo) -> bool:
        """Whether it is of this checkpoint: by its weights, or where they are not known by its name."""
        if self.weights_sha256:
            return self.weights_sha256 == info.weights_sha256
        return self.checkpoint == info.name


def lighten(distillation: Distillation, width: int) -> Distillation:
    """The same with the FFNs of one width and, of each head, the seed that did best on validation text, in float16.

    Every error and curve stays. Raises `ValueError` for a width that was not distilled, and for weights that float16
    does not hold.
    """
    weights = distillation.ffns(width)
    best = np.array([distillation.best_seed(head, width) for head in distillation.heads], dtype=np.int64)
    rows = torch.arange(len(best))
    kept = {}
    for name in ("W_in", "b_in", "W_out", "b_out"):
        seed = torch.zeros(len(best), dtype=torch.int64)
        if width and distillation.only_seed is None:
            seed = torch.from_numpy(best)
        kept[name] = getattr(weights, name)[rows, seed][:, None].to(torch.float16)
        if not torch.isfinite(kept[name]).all():
            raise ValueError(f"width {width}: {name} has numbers beyond float16; save the distillation as it is.")
    return dataclasses.replace(distillation, weights={width: FFNWeights(**kept)}, only_seed=best)


def save_record(path: str | Path, record: Record) -> None:
    """Write `path` (NAME.safetensors) and NAME.json beside it. Raises `ValueError` as `save_distillation`."""
    path = Path(path)
    if path.suffix != _SUFFIX:
        raise ValueError(f"{path}: expected a name that ends in {_SUFFIX}.")
    about: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **{name: getattr(record, name) for name in _ORIGIN}}
    about["costs"] = None if record.costs is None else _costs_to_json(record.costs)
    about["sha256"] = contents_hash({}, about)
    save_distillation(path, record.distillation)
    with replacing_file(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(about, allow_nan=False, indent=1) + "\n", encoding="utf-8")


def load_record(path: str | Path) -> Record:
    """What stands at `path`. Raises `ValueError` for files that are missing, damaged or something else."""
    path = Path(path)
    distillation = load_distillation(path)
    beside = path.with_suffix(".json")
    if not beside.exists():
        return Record(distillation=distillation, checkpoint=distillation.model_name)
    try:
        about = strict_json(read_regular(beside, kind="record"))
        if about["schema_version"] not in (1, SCHEMA_VERSION):
            raise ValueError(f"schema version {about['schema_version']!r}, not {SCHEMA_VERSION}")
        said = about.pop("sha256", None)
        if (said is not None or about["schema_version"] != 1) and said != contents_hash({}, about):
            raise ValueError("damaged: its contents are not what was saved")
        origin = {name: str(about[name]) for name in _ORIGIN}
        costs = None if about["costs"] is None else _costs_from_json(about["costs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{beside}: expected what belongs to {path.name}, found {error}; make it again.") from error
    if costs is not None and costs.heads != distillation.heads:
        raise ValueError(f"{beside}: its costs are of other heads than {path.name}; make it again.")
    return Record(distillation=distillation, costs=costs, **origin)


def distillations_folder() -> Path:
    """The user's own: `$AOTLENS_HOME/distillations`, by default in `~/.cache/aotlens`."""
    return user_folder("distillations")


def bundled_distillations_folder() -> Path:
    """Those that come with aotlens."""
    return Path(__file__).parent / "bundled"


def bundled_distillations() -> dict[str, Record]:
    """Of bundled checkpoints, by their names: all errors and curves, and the FFNs of 16 hidden units of one seed."""
    return {path.stem: load_record(path) for path in sorted(bundled_distillations_folder().glob(f"*{_SUFFIX}"))}


def _costs_to_json(costs: SubstitutionCosts) -> dict[str, Any]:
    fields = {field.name: getattr(costs, field.name) for field in dataclasses.fields(costs)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()}


def _costs_from_json(found: dict[str, Any]) -> SubstitutionCosts:
    arrays: dict[str, Any] = {name: np.array(found[name], dtype=np.float64) for name in _COST_ARRAYS}
    sizes, heads = tuple(found["sizes"]), tuple((int(layer), int(head)) for layer, head in found["heads"])
    arrays["random"] = arrays["random"].reshape(-1, len(sizes))
    if not all(math.isfinite(value) for array in arrays.values() for value in array.flat):
        raise ValueError("costs that are not finite")
    if not len(arrays["alone"]) == len(arrays["error"]) == len(heads) or arrays["by_error"].shape != (3, len(sizes)):
        raise ValueError("costs of another number of heads or sizes")
    plain = {name: found[name] for name in ("width", "measure", "clean_loss", "n_tokens")}
    return SubstitutionCosts(heads=heads, sizes=sizes, **plain, **arrays)
