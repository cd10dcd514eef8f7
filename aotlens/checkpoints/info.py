"""What config.json says about a checkpoint: `CheckpointInfo`, its schema, and reading it without torch."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.header import read_header
from aotlens.checkpoints.layout import CARD, CONFIG, METRICS, TOKENIZER, WEIGHTS, locate
from aotlens.checkpoints.units import OBJECTIVE_WORDS, ObjectiveWords, objective_of

#: Raised when a reader of the old schema would misread the new one.
SCHEMA_VERSION = 1

#: What `corpus` may say; `validation` lists the names of the documents held out.
CORPUS_KEYS = ("name", "source", "sha256", "license", "validation")

#: Keys that checkpoints of older versions lack; each is its field's default there.
ADDED_LATER = ("start_token", "image_processor")

#: Fields of CheckpointInfo that describe the reading of a folder, and are not in its config.json.
_NOT_STORED = ("path", "card", "problem", "note", "n_weights", "lacks")


@dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """What is known of a checkpoint besides its weights.

    The training loop fills in the first group and `save_checkpoint` the second; the third is set when a
    folder is read. Raises CheckpointError for values of the wrong type and for unknown corpus keys.
    """

    name: str
    """What it's called. When a folder is read this is the folder's name, by which `load` finds it."""
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
    """What it was trained on, in words."""
    tokens_seen: int = 0
    """Training tokens, or what else its objective counts (`words.counted`)."""
    seconds: float = 0.0
    """Training time."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Final figures, measured on the stored weights: validation_loss and bigram_loss in nats, ..."""

    model: dict[str, Any] = field(default_factory=dict)
    """ModelConfig.to_dict()."""
    weights_dtype: str = ""
    """How the weights are stored: float32, bfloat16 or float16. They are loaded as float32."""
    weights_sha256: str = ""
    """Of model.safetensors."""
    tokenizer_sha256: str | None = None
    """Of tokenizer.json; None for a model without a tokenizer."""
    start_token: int | None = None
    """Id of the token that every text begins with; None where there is none."""
    image_processor: dict[str, Any] | None = None
    """ImageProcessor.to_dict() of a model of images: its pixels' mean and deviation, its classes; None without one."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and the packages that wrote it."""
    schema_version: int = SCHEMA_VERSION

    path: Path | None = None
    """The folder that this was read from."""
    card: str = ""
    """The text of card.md."""
    n_weights: int | None = None
    """Numbers in model.safetensors, token counts excluded."""
    note: str | None = None
    """Something to tell the user, such as another checkpoint of the same name that this one hides."""
    problem: str | None = None
    """Why it can't be loaded, for a broken one in a listing."""
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
        """What it was trained for, as recipes name it: next_token, masked, classes."""
        return objective_of(self.recipe, self.model, self.metrics)

    @property
    def words(self) -> ObjectiveWords:
        """How to speak of what it was trained for: tokens or images, and which figure is its loss."""
        return OBJECTIVE_WORDS[self.objective]

    @property
    def losses(self) -> tuple[float | None, float | None]:
        """The loss on held-out data and its baseline's, in `words.unit`; None where it was not measured."""
        return self.metrics.get(self.words.loss), self.metrics.get(self.words.baseline)

    def held_out(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of a corpus's documents that were kept from training; none of a corpus that was not its text."""
        held_out = set(self.corpus.get("validation") or ())
        return tuple(name for name in names if name in held_out)

    def to_config(self) -> dict[str, Any]:
        """The content of config.json."""
        return {name: getattr(self, name) for name in _TYPES}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CheckpointInfo:
        """The inverse of `to_config`. Raises CheckpointError for another schema, unknown or missing keys."""
        version = config.get("schema_version")
        if type(version) is int and version > SCHEMA_VERSION:
            raise CheckpointError(
                f"expected schema_version {SCHEMA_VERSION} or older, found {version}. A newer aotlens "
                "wrote it: upgrade aotlens to read it."
            )
        unknown, missing = sorted(set(config) - set(_TYPES)), sorted(set(_TYPES) - set(config) - set(ADDED_LATER))
        if unknown:
            raise CheckpointError(
                f"unknown keys {', '.join(map(repr, unknown))}; expected {', '.join(_TYPES)}. Remove them, "
                "or upgrade aotlens if a newer one wrote them."
            )
        if missing:
            raise CheckpointError(f"missing keys {', '.join(map(repr, missing))}; is this an aotlens checkpoint?")
        if version != SCHEMA_VERSION:
            raise CheckpointError(f"expected schema_version {SCHEMA_VERSION}, found {version!r}.")
        _check_types(config)
        lacks = tuple(key for key in ADDED_LATER if key not in config)
        try:
            return cls(**config | {"seconds": float(config["seconds"]), "lacks": lacks})
        except OverflowError:  # JSON's whole numbers have no largest one
            raise CheckpointError("seconds: expected a number of seconds, found one beyond all floats.") from None

    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, oldest first; [] if there are none. Raises CheckpointError."""
        if self.path is None:
            return []
        path = locate(self.path, METRICS)
        if not path.is_file():
            return []
        lines = _read_text(path).split("\n")
        return [_object(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1) if line.strip()]


def _stored_types() -> dict[str, tuple[type, ...]]:
    """What config.json may hold, by field: the type of its annotation; a whole number may stand for a float."""
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
            raise CheckpointError(f"{name}: expected {expected}, found {value!r}.")
    versions = values["versions"]
    if not all(isinstance(version, str) for version in versions.values()):
        raise CheckpointError(f"versions: expected text by package, found {versions!r}.")


def read_info(folder: Path) -> CheckpointInfo:
    """What `folder` says about itself, with its card; the weights' header is read, the weights are not.

    Raises CheckpointError for a damaged config.json, and for files that are missing or cut short.
    """
    path = locate(folder, CONFIG)
    config = _object(_read_text(path), str(path))
    try:
        info = CheckpointInfo.from_config(config)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    header = read_header(locate(folder, WEIGHTS))
    if info.tokenizer_sha256 is not None and not locate(folder, TOKENIZER).is_file():
        raise CheckpointError(
            f"{folder / TOKENIZER}: expected the tokenizer that {CONFIG} names, found no such file. "
            "Copy the checkpoint again from where it came from."
        )
    card = locate(folder, CARD)
    name = folder.resolve().name
    notes = [f"saved under the name {info.name!r}"] if info.name not in (name, "") else []
    if "start_token" in info.lacks and info.tokenizer_sha256 is not None:
        notes.append("its config.json, of an older aotlens, does not say which token texts begin with")
    return dataclasses.replace(
        info,
        name=name,
        path=folder,
        card=_read_text(card) if card.is_file() else "",
        n_weights=sum(math.prod(entry.shape) for key, entry in header.tensors.items() if key != "unigram_counts"),
        note="; ".join(notes) or None,
    )


def to_json(value: Any, **options: Any) -> str:
    """JSON of `value`; NumPy and torch scalars become numbers. Raises CheckpointError for what JSON lacks."""

    def number(item: Any) -> Any:
        if getattr(item, "ndim", None) == 0 and hasattr(item, "item"):
            return item.item()
        raise TypeError(f"{type(item).__name__} {item!r}")

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=number, **options)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"expected text, finite numbers, lists and dictionaries only, found: {error}") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{path}: expected a checkpoint's {path.name}, found no such file.") from None
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{path}: expected UTF-8 text, found {error.object[error.start]:#04x} at byte {error.start}."
        ) from None


def _object(text: str, where: str) -> dict[str, Any]:
    """A JSON object. Refuses NaN, which is not JSON, and a key given twice, of which one would be lost."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) != len(items):
            raise ValueError("a key is given twice")
        return dict(items)

    try:
        value = json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: expected JSON, found: {error}.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: expected a JSON object, found {type(value).__name__}.")
    return value
