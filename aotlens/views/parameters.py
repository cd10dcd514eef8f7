"""Parameters of a family of views, declared once: addresses, controls, command options and sweep settings read them.

    @dataclass(frozen=True, kw_only=True)
    class LensParameters(OfCheckpoint):
        text: str = text("It was", label="Text", lines=2)
        head: Head = head("Head")
        layer: int = whole(0, most=99, label="Layer")

        def limits(self):
            return {"layer": Limit(most=int(self.model["n_layers"]) - 1)}

A field made by one of the functions below is a parameter of one of the `kinds`; every other field is a fact that the
caller knows. Heads are limited to those of the model without being named in `limits`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from aotlens.conventions import HasHeads, as_heads
from aotlens.views.calls import Call, make
from aotlens.views.kinds import (
    ChoiceParameter,
    CorpusParameter,
    FlagParameter,
    HeadParameter,
    ImagesParameter,
    NumberParameter,
    NumbersParameter,
    OptionParameter,
    OwnImagesParameter,
    Parameter,
    RowParameter,
    TextParameter,
)

if TYPE_CHECKING:
    from pathlib import Path

    from aotlens.checkpoints import CheckpointInfo
    from aotlens.models import ModelConfig


# ── declarations ────────────────────────────────────────────────────────────────────────────────────────────────


def choice(options: Mapping[str, str], *, label: str, first: str | None = None, **rest: Any) -> Any:
    """Declare one of a few options, by default the first."""
    return _field(ChoiceParameter, label, next(iter(options)) if first is None else first, options=options, **rest)


def text(first: str = "", *, label: str, **rest: Any) -> Any:
    """Declare a text; with `blank` it may be empty."""
    return _field(TextParameter, label, first, **rest)


def real(first: float | None, least: float, most: float, *, step: float, label: str, **rest: Any) -> Any:
    """Declare a number; `log` if its powers of ten are evenly spaced."""
    return _field(NumberParameter, label, first, least=least, most=most, step=step, **rest)


def whole(first: int | None, *, least: int = 0, most: int, step: int = 1, label: str, **rest: Any) -> Any:
    """Declare a whole number. If `first` is None, no number means what `blank` says, or the largest one. A control
    moves by `step`."""
    return _field(NumberParameter, label, first, least=least, most=most, step=step, **rest)


def reals(*, most: int, label: str, **rest: Any) -> Any:
    """Declare several numbers."""
    return _field(NumbersParameter, label, None, most=most, **rest)


def flag(label: str, *, word: str, **rest: Any) -> Any:
    """Declare yes or no, by default no."""
    return _field(FlagParameter, label, False, word=word, **rest)


def head(label: str, *, blank: str = "", several: int = 0, **rest: Any) -> Any:
    """Declare a head, by default the first; with `blank` none by default; with `several` a set of heads."""
    first: Any = () if several else None if blank else (0, 0)
    return _field(HeadParameter, label, first, several=several, blank=blank, **rest)


def pair(label: str, **rest: Any) -> Any:
    """Declare a place by row and column, as 3.1, by default none."""
    return _field(HeadParameter, label, None, of="pair", **rest)


def option(label: str, *, several: int = 0, **rest: Any) -> Any:
    """Declare one of the options that exist next to the other values, or with `several` that many at most; `searched`
    if a user types to find one."""
    return _field(OptionParameter, label, () if several else None, several=several, **rest)


def row(label: str, *, several: int = 0, **rest: Any) -> Any:
    """Declare one or several of many rows, by default none."""
    return _field(RowParameter, label, () if several else None, several=several, **rest)


def corpus(label: str, **rest: Any) -> Any:
    """Declare a text to read, by default none, or if it is `usual` on a page the first one; the value is a
    `kinds.Reading`."""
    return _field(CorpusParameter, label, None, **rest)


def images(label: str, **rest: Any) -> Any:
    """Declare images with their classes, by default none; the value is a `kinds.LabelledImages`."""
    return _field(ImagesParameter, label, None, **rest)


def own_images(label: str, *, most: int, **rest: Any) -> Any:
    """Declare images that a user uploads or draws on a page, at most so many."""
    return _field(OwnImagesParameter, label, (), most=most, page_only=True, **rest)


def _field(
    kind: type[Parameter], label: str, first: Any, *, key: str = "", page_only: bool = False, **rest: Any
) -> Any:
    """A field of a dataclass. `key` is its name in an address if that is another; a `page_only` parameter is no option
    of commands and no setting of sweeps. The rest are fields of the kind."""
    parameter = kind(label, first, **rest)
    return dataclasses.field(default=first, metadata={"parameter": parameter, "key": key, "page_only": page_only})


def declared(of: type[Any], *, page_only: bool = True) -> dict[str, Parameter]:
    """Return the parameters of a dataclass by name, with or without those of pages only."""
    fields = [field for field in dataclasses.fields(of) if "parameter" in field.metadata]
    return {field.name: field.metadata["parameter"] for field in fields if page_only or not field.metadata["page_only"]}


def key_of(of: type[Any], name: str) -> str | None:
    """Return a parameter's name in an address if that is another."""
    return next(field.metadata.get("key") for field in dataclasses.fields(of) if field.name == name) or None


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Limit:
    """What the other values leave to a parameter; None: no further limit."""

    most: float | int | None = None
    options: Mapping[Any, str] | None = None
    """Values and their words."""
    shape: HasHeads | None = None
    """The model whose heads are meant."""
    off: bool = False
    """Whether only the default is possible now."""
    rest: Any = None
    """The value of a number, or of several options, that is left out."""
    hidden: bool = False
    """Whether its control is not even shown."""
    words: str = ""
    """What is expected, in words; by default by the limit."""

    def nearest(self, parameter: Parameter, value: Any) -> Any:
        """Return the value, or the nearest one within the limit."""
        if self.options is not None and getattr(parameter, "several", None):
            return tuple(row for row in value if row in self.options)
        if self.most is not None and isinstance(parameter, NumbersParameter):
            return value and tuple(min(max(number, -self.most), self.most) for number in value)
        if value == parameter.first and (self.options is None or value is None):
            return value
        if self.off:
            return parameter.first
        if self.options is not None:
            return value if value in self.options else self._nearest_number(value, parameter.first)
        if self.shape is not None:
            heads = value if isinstance(parameter, HeadParameter) and parameter.several else (value,)
            known = [head for head in heads if head[0] < self.shape.n_layers and head[1] < self.shape.n_heads]
            return tuple(known) if heads is value else next(iter(known), parameter.first)
        if self.most is not None and isinstance(parameter, RowParameter):
            rows = value if isinstance(value, tuple) else (value,)
            known = [row for row in rows if isinstance(row, str) or row <= self.most]
            return tuple(known) if rows is value else next(iter(known), parameter.first)
        if self.most is None or value <= self.most:
            return value
        return None if parameter.first is None and not parameter.blank else type(value)(self.most)

    def _nearest_number(self, value: Any, otherwise: Any) -> Any:
        """The option that is the nearest number to a number in text."""
        if not isinstance(value, str) or not value.isdecimal():
            return otherwise
        numbers = [option for option in self.options or () if isinstance(option, str) and option.isdecimal()]
        return min(numbers, key=lambda number: abs(int(number) - int(value)), default=otherwise)

    @property
    def expected(self) -> str:
        """The values within the limit, in words."""
        if self.words:
            return self.words
        if self.off:
            return "nothing: the other values leave no choice"
        if self.options is not None:
            return f"one of {', '.join(map(str, self.options))}"
        if self.shape is not None:
            return f"a head of {self.shape.n_layers} layers of {self.shape.n_heads} heads, the first of which is 0.0"
        return f"at most {self.most:g}"


@dataclass(frozen=True, kw_only=True)
class OfNone:
    """Parameters of a family that takes no checkpoint."""

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        """Return the parameters for these checkpoints. Raises ValueError for checkpoints that do not fit together."""
        return cls(**values)

    def limits(self) -> Mapping[str, Limit]:
        """The limits of parameters that depend on other values."""
        return {}

    def heads_of(self, name: str) -> HasHeads | None:
        """Return the model whose heads a parameter names; None for no model."""
        return None

    def all_limits(self) -> dict[str, Limit]:
        """Return `limits`, and of every head that it exists."""
        heads = {name: self.heads_of(name) for name, parameter in declared(type(self)).items() if _is_head(parameter)}
        return {name: Limit(shape=model) for name, model in heads.items() if model is not None} | dict(self.limits())

    def fitted(self) -> tuple[Self, dict[str, str]]:
        """Return the parameters within their limits, and what was expected of each one that was not."""
        params = self
        expected: dict[str, str] = {}
        known = declared(type(self))
        for _ in range(2):  # a limit may depend on a value that has changed
            for name, limit in params.all_limits().items():
                value = getattr(params, name)
                nearest = limit.nearest(known[name], value)
                if nearest != value:
                    params, expected = replace(params, **{name: nearest}), {**expected, name: limit.expected}
        return params, expected

    def require_limits(self, *names: str) -> Self:
        """Return the parameters. Raises ValueError for a value beyond its limit, of these names or of any."""
        known = declared(type(self))
        for name, limit in self.all_limits().items():
            value = getattr(self, name)
            if (names and name not in names) or limit.nearest(known[name], value) == value:
                continue
            if limit.shape is not None and _is_head(known[name]):
                as_heads(
                    [value] if isinstance(value[0], int) else value, limit.shape
                )  # whose message lists the model's heads
            raise ValueError(f"{name}: expected {limit.expected}, got {known[name].written(value)!r}.")
        return self


def _is_head(parameter: Parameter) -> bool:
    return isinstance(parameter, HeadParameter) and parameter.of == "head"


@dataclass(frozen=True, kw_only=True)
class OfResult(OfNone):
    """Parameters of a family whose subject is stored results, by name; of a checkpoint, if there is one, a further
    result can be made."""

    info: CheckpointInfo | None = None
    """The checkpoint's card."""
    files: tuple[Path, ...] = ()
    """Files of results next to those in the folders of aotlens. They come from whoever starts an app, never from a
    browser."""

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        return cls(info=infos[0] if infos else None, **values)

    @property
    def checkpoint(self) -> str:
        """The name of the checkpoint; empty if there is none."""
        return "" if self.info is None else self.info.name

    def heads_of(self, name: str) -> HasHeads | None:
        return None if self.info is None else sizes_of(self.info.model)


@dataclass(frozen=True, kw_only=True)
class OfCheckpoint(OfNone):
    """Parameters of a family that takes one checkpoint."""

    checkpoint: str
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The model's configuration."""
    info: CheckpointInfo | None = None
    """The checkpoint's card, if it is known."""

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        return cls(checkpoint=infos[0].name, model=infos[0].model, info=infos[0], **values)

    @cached_property
    def config(self) -> ModelConfig:
        """The model's configuration, checked."""
        from aotlens.models import ModelConfig

        return ModelConfig.from_dict(dict(self.model))

    @property
    def n_heads(self) -> int:
        """The number of heads of all layers."""
        return int(self.model["n_layers"]) * int(self.model["n_heads"])

    @property
    def d_head(self) -> int:
        """The width of a head."""
        return int(self.model.get("d_head") or int(self.model["d_model"]) // int(self.model["n_heads"]))

    def heads_of(self, name: str) -> HasHeads | None:
        return sizes_of(self.model)

    def repeats(self, n_sequences: int, half_length: int, seed: int) -> tuple[Call, int]:
        """Return the call of sequences in which random tokens come twice, and how many before they repeat: so many, or
        as many as the context holds."""
        half = min(half_length, (int(self.model["n_ctx"]) - 1) // 2)
        sizes, start = (int(self.model["d_vocab"]), n_sequences, half), self.info and first_token(self.info)
        return make("aotlens.data.repeated_random_tokens", *sizes, seed, eot_id=start).named("tokens"), half


@dataclass(frozen=True, kw_only=True)
class OfPrompt(OfCheckpoint):
    """Parameters of a family that takes one checkpoint and reads one text with it: the field `text`."""

    n_tokens: int | None = None
    """The number of tokens of the text, where somebody has counted them, as the app does."""


@dataclass(frozen=True, kw_only=True)
class OfCheckpoints(OfNone):
    """Parameters of a family that takes several checkpoints, one of which is inspected."""

    infos: tuple[CheckpointInfo, ...]
    inspected: CheckpointInfo

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, inspected: CheckpointInfo | None = None, **values: Any) -> Self:
        return cls(infos=infos, inspected=inspected or infos[0], **values)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the checkpoints."""
        return tuple(info.name for info in self.infos)

    @property
    def checkpoint(self) -> str:
        """The name of the inspected checkpoint."""
        return self.inspected.name

    def heads_of(self, name: str) -> HasHeads | None:
        return sizes_of(self.inspected.model)


def first_token(info: CheckpointInfo) -> int | None:
    """Return the token that texts of random tokens begin with, as `aotlens.data.windows.probe_start` has it: 0 where
    there is no tokenizer."""
    return 0 if info.tokenizer_sha256 is None and info.start_token is None else info.start_token


def sizes_of(model: Mapping[str, Any]) -> HasHeads | None:
    """Return the numbers of layers and heads of a configuration; None without them."""
    if "n_layers" not in model or "n_heads" not in model:
        return None
    return SimpleNamespace(n_layers=int(model["n_layers"]), n_heads=int(model["n_heads"]))
