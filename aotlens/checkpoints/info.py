"""The metadata in a checkpoint's config.json: `CheckpointInfo`, its schema, and reading it without torch."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from aotlens.checkpoints.header import Header, read_header, read_text
from aotlens.checkpoints.layout import CARD, CONFIG, METRICS, OUR_KEYS, TOKENIZER, WEIGHTS, CheckpointError, locate
from aotlens.checkpoints.units import OBJECTIVE_WORDS, ObjectiveWords, objective_of
from aotlens.untrusted import check_name, check_plain, excerpt, strict_json

#: Raised when a reader of the old schema would misread the new one.
SCHEMA_VERSION = 1

#: The keys that `corpus` may have; `validation` lists the names of the documents held out.
CORPUS_KEYS = ("name", "source", "sha256", "license", "validation")

#: Keys that checkpoints of older versions lack; each is its field's default there.
ADDED_LATER = ("start_token", "image_processor")

#: Fields of CheckpointInfo that describe the reading of a folder, and are not in its config.json.
_NOT_STORED = ("path", "card", "problem", "note", "n_weights", "has_counts", "lacks")


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """The metadata of a checkpoint: all that is known of it besides its weights.

    The training loop fills in the first group and `save_checkpoint` the second; the third is set when a
    folder is read. Raises CheckpointError for values of the wrong type and for unknown corpus keys.
    """

    name: str
    """The checkpoint's name. When a folder is read this is the folder's name, by which `load` finds it."""
    description: str = ""
    """A sentence or two: what this model is for and what it shows."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """Every setting of the training run, as JSON."""
    command: str = ""
    """The command that trains it again."""
    corpus: dict[str, Any] = field(default_factory=dict)
    """name, source (where a user gets it), sha256, license, validation (names held out); {} if synthetic."""
    seed: int | None = None
    """Seed of the run."""
    device: str = ""
    """The device on which it was trained, in words."""
    tokens_seen: int = 0
    """Training tokens, or what else its objective counts (`words.counted`)."""
    seconds: float = 0.0
    """Training time."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Final figures, measured on the stored weights: validation_loss and bigram_loss in nats, ..."""

    model: dict[str, Any] = field(default_factory=dict)
    """The model's configuration, `ModelConfig.to_dict()`."""
    weights_dtype: str = ""
    """The data type of the stored weights: float32, bfloat16 or float16. They are loaded as float32."""
    weights_sha256: str = ""
    """The hash of model.safetensors."""
    tokenizer_sha256: str | None = None
    """The hash of tokenizer.json; None for a model without a tokenizer."""
    start_token: int | None = None
    """Id of the token that every text begins with; None where there is none."""
    image_processor: dict[str, Any] | None = None
    """ImageProcessor.to_dict() of a model of images: its pixels' mean and deviation, its classes; None without one."""
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of Python and of the packages that wrote it."""
    schema_version: int = SCHEMA_VERSION

    path: Path | None = None
    """The folder that this was read from."""
    card: str = ""
    """The text of card.md."""
    n_weights: int | None = None
    """Numbers in model.safetensors, token counts excluded."""
    has_counts: bool | None = None
    """Whether model.safetensors has the counts of the training tokens; None if it was not read."""
    note: str | None = None
    """Something to tell the user, such as another checkpoint of the same name that this one hides."""
    problem: str | None = None
    """The reason why it can't be loaded, for a broken one in a listing."""
    lacks: tuple[str, ...] = ()
    """Keys that its config.json, of an older version, does not have."""

    def __post_init__(self) -> None:
        _check_types({name: getattr(self, name) for name in _TYPES})
        unknown = sorted(set(self.corpus) - set(CORPUS_KEYS))
        if unknown:
            raise CheckpointError(
                f"corpus: unknown keys {', '.join(map(repr, unknown))}; expected some of {', '.join(CORPUS_KEYS)}."
            )
        if not math.isfinite(self.seconds) or self.seconds < 0 or self.tokens_seen < 0:
            raise CheckpointError(
                f"expected seconds and tokens_seen of at least 0, found {self.seconds} and {self.tokens_seen}."
            )

    @property
    def objective(self) -> str:
        """The objective it was trained for, as recipes name it: next_token, masked, classes."""
        return objective_of(self.recipe, self.model, self.metrics)

    @property
    def words(self) -> ObjectiveWords:
        """The vocabulary of the objective it was trained for: tokens or images, and which figure is its loss."""
        return OBJECTIVE_WORDS[self.objective]

    @property
    def losses(self) -> tuple[float | None, float | None]:
        """The loss on held-out data and its baseline's, in `words.unit`; None where it was not measured."""
        return self.metrics.get(self.words.loss), self.metrics.get(self.words.baseline)

    def held_out(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return a corpus's documents that were kept from training; none of a corpus that was not its text."""
        held_out = set(self.corpus.get("validation") or ())
        return tuple(name for name in names if name in held_out)

    def to_config(self) -> dict[str, Any]:
        """Return the content of config.json."""
        return {name: getattr(self, name) for name in _TYPES}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CheckpointInfo:
        """Return the info that `to_config` wrote. Raises CheckpointError for another schema, unknown or
        missing keys."""
        version = config.get("schema_version")
        if type(version) is int and version > SCHEMA_VERSION:
            raise CheckpointError(
                f"expected schema_version {SCHEMA_VERSION} or older, found {version}. A newer aotlens "
                "wrote it: upgrade aotlens to read it."
            )
        try:
            check_plain(config, "")
        except ValueError as error:
            raise CheckpointError(str(error)) from None
        unknown, missing = sorted(set(config) - set(_TYPES)), sorted(set(_TYPES) - set(config) - set(ADDED_LATER))
        if unknown:
            raise CheckpointError(
                f"unknown keys {excerpt(unknown, 200).strip('[]')}; expected {', '.join(_TYPES)}. Remove them, "
                "or upgrade aotlens if a newer one wrote them."
            )
        if missing:
            raise CheckpointError(f"missing keys {', '.join(map(repr, missing))}; is this an aotlens checkpoint?")
        if version != SCHEMA_VERSION:
            raise CheckpointError(f"expected schema_version {SCHEMA_VERSION}, found {version!r}.")
        _check_types(config)
        lacks = tuple(key for key in ADDED_LATER if key not in config)
        return cls(**config | {"seconds": float(config["seconds"]), "lacks": lacks})

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, oldest first; [] if there are none. Raises CheckpointError."""
        if self.path is None:
            return []
        path = locate(self.path, METRICS)
        if not os.path.lexists(path):
            return []
        lines = read_text(self.path, METRICS).split("\n")
        return [_figures(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1) if line.strip()]


def _figures(line: str, where: str) -> dict[str, Any]:
    """A line of metrics.jsonl: figures by name. Raises CheckpointError."""
    figures = _object(line, where)
    try:
        check_plain(figures, "")
    except ValueError as error:
        raise CheckpointError(f"{where}: {error}") from None
    for name, value in figures.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise CheckpointError(f"{where}: {name}: expected a number or null, found {excerpt(value)}.")
    return figures


def _stored_types() -> dict[str, tuple[type, ...]]:
    """Return config.json's types by field: the annotation's; a whole number may stand for a float."""
    hints = get_type_hints(CheckpointInfo)
    kinds = {name: get_args(hint) if isinstance(hint, UnionType) else (hint,) for name, hint in hints.items()}
    types = {name: tuple(get_origin(kind) or kind for kind in parts) for name, parts in kinds.items()}
    stored = dict.fromkeys(("schema_version", *types))
    return {name: (int, float) if float in types[name] else types[name] for name in stored if name not in _NOT_STORED}


_TYPES: Final = _stored_types()


def _check_types(values: dict[str, Any]) -> None:
    for name, types in _TYPES.items():
        if name not in values:  # an older version's
            continue
        value = values[name]
        if not isinstance(value, types) or isinstance(value, bool):
            expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
            raise CheckpointError(f"{name}: expected {expected}, found {excerpt(value)}.")
    versions = values["versions"]
    if not all(isinstance(version, str) for version in versions.values()):
        raise CheckpointError(f"versions: expected text by package, found {excerpt(versions)}.")
    for name, value in values["metrics"].items():
        measured = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        if str(name).endswith(("_loss", "_accuracy")) and not (measured or hasattr(value, "item")):
            raise CheckpointError(f"metrics: {name}: expected a number or null, found {excerpt(value)}.")
    if not isinstance(objective := values["recipe"].get("objective", ""), str):
        raise CheckpointError(f"recipe: objective: expected a name, found {excerpt(objective)}.")
    held_out = values["corpus"].get("validation")
    if held_out is not None and not isinstance(held_out, list | tuple):
        raise CheckpointError(f"corpus: validation: expected a list of names, found {excerpt(held_out)}.")
    _check_names(values["name"], *(held_out or ()), *values["versions"].values())


def _check_names(*names: Any) -> None:
    """Check that names are text on one line. Raises CheckpointError."""
    for name in names:
        if not isinstance(name, str):
            raise CheckpointError(f"expected a name, found {excerpt(name)}.")
        try:
            check_name(name, "a name")
        except ValueError as error:
            raise CheckpointError(str(error)) from None


def read_info(folder: Path) -> CheckpointInfo:
    """Read the metadata of `folder`, with its card; the weights' header is read, the weights are not.

    Raises CheckpointError for a damaged config.json, and for files that are missing or cut short.
    """
    stored = read_config(folder)
    return described(folder, stored, read_header(locate(folder, WEIGHTS), folder))


def read_config(folder: Path) -> CheckpointInfo:
    """Read the metadata in config.json. Raises CheckpointError."""
    path = locate(folder, CONFIG)
    config = _object(read_text(folder, CONFIG), str(path))
    if config and not OUR_KEYS & config.keys():
        raise CheckpointError(
            f"{folder}: expected a checkpoint of aotlens, found a folder of another tool (no schema_version in its "
            f"{CONFIG}). Bring it in with `aotlens checkpoints import {shlex.quote(str(folder))}`."
        )
    try:
        return CheckpointInfo.from_config(config)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def described(folder: Path, info: CheckpointInfo, header: Header) -> CheckpointInfo:
    """Return `info`, of config.json alone, with the folder's name, its card, and the number of weights."""
    if info.tokenizer_sha256 is not None and not os.path.lexists(locate(folder, TOKENIZER)):
        raise CheckpointError(
            f"{folder / TOKENIZER}: expected the tokenizer that {CONFIG} names, found no such file. "
            "Copy the checkpoint again from where it came from."
        )
    name = folder.resolve().name
    try:
        check_name(name, f"{folder}: its name")
    except ValueError as error:
        raise CheckpointError(f"{error} Rename the folder.") from None
    n_weights = sum(math.prod(entry.shape) for key, entry in header.tensors.items() if key != "unigram_counts")
    _check_model(locate(folder, CONFIG), info.model, len(header.tensors), n_weights)
    notes = [f"saved under the name {info.name!r}"] if info.name not in (name, "") else []
    if "start_token" in info.lacks and info.tokenizer_sha256 is not None:
        notes.append("its config.json, of an older aotlens, does not say which token texts begin with")
    return dataclasses.replace(
        info,
        name=name,
        path=folder,
        card=read_text(folder, CARD) if os.path.lexists(locate(folder, CARD)) else "",
        n_weights=n_weights,
        has_counts="unigram_counts" in header.tensors,
        note="; ".join(notes) or None,
    )


#: Fields of a model's configuration that are more than one value.
_NESTED = {"attn_mask": list, "alibi_slopes": list, "windows": list, "rotary": dict, "rotary_local": dict}


def _check_model(path: Path, model: dict[str, Any], n_tensors: int, n_weights: int) -> None:
    """Check that sizes are whole numbers that the weights have room for; `ModelConfig` checks the rest."""
    for key, value in model.items():
        is_size = key.startswith(("n_", "d_")) or key in ("image_size", "patch_size")
        if is_size and value is not None and (type(value) is not int or value < 1):
            raise CheckpointError(f"{path}: model: {key}={excerpt(value)}: expected a whole number of at least 1.")
        if not is_size and isinstance(value, dict | list) and type(value) is not _NESTED.get(key):
            raise CheckpointError(f"{path}: model: {key}={excerpt(value)}: expected a number, a word or null.")
    for key, most in (("n_layers", n_tensors), ("n_heads", n_weights)):
        if (model.get(key) or 0) > most:
            raise CheckpointError(
                f"{path}: model: {key}={model[key]}: expected no more than the weights hold, {most}. "
                "Copy the checkpoint again from where it came from."
            )


def to_json(value: Any, **options: Any) -> str:
    """Return `value` as JSON; NumPy and torch scalars become numbers. Raises CheckpointError for what JSON lacks."""

    def number(item: Any) -> Any:
        if getattr(item, "ndim", None) == 0 and hasattr(item, "item"):
            return item.item()
        raise TypeError(f"{type(item).__name__} {item!r}")

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=number, **options)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"expected text, finite numbers, lists and dictionaries only, found: {error}") from error


def _object(text: str, where: str) -> dict[str, Any]:
    """A JSON object. Raises CheckpointError."""
    try:
        value = strict_json(text)
    except ValueError as error:
        raise CheckpointError(f"{where}: expected JSON, found: {error}.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: expected a JSON object, found {type(value).__name__}.")
    return value
