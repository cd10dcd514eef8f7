"""The kinds of parameters: what a value may be, and how it is written and parsed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from aotlens.conventions import as_head, head_name
from aotlens.views.calls import Call, call, stamp_of


@dataclass(frozen=True)
class Parameter:
    """A value that a user chooses. `parse` reads it from Python, an address or a command line."""

    label: str
    first: Any = None
    """The default value."""
    _: KW_ONLY
    blank: str = ""
    """The meaning of an empty value, if it may be empty."""
    cleared_by: Sequence[str] = ()
    """Parameters or choices of a checkpoint that change the meaning of a value: when one changes, none is selected."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Words of older addresses, and the words that have replaced them."""

    def parse(self, name: str, value: Any) -> Any:
        """Return the value with its type. Raises ValueError, with the parameter's name, for an invalid one."""
        return value

    def written(self, value: Any) -> str:
        """Write the value as text, which `parse` reads."""
        return "" if value is None else str(value)


@dataclass(frozen=True)
class ChoiceParameter(Parameter):
    """One of a few named options."""

    _: KW_ONLY
    options: Mapping[str, str]
    """The words for each value."""

    def parse(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.options:
            raise ValueError(f"{name}: expected one of {', '.join(self.options)}, got {value!r}.")
        return value


@dataclass(frozen=True)
class TextParameter(Parameter):
    """A text."""

    _: KW_ONLY
    most: int = 600
    """The largest number of characters."""
    lines: int = 1
    """The number of lines of its box."""

    def parse(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or not (value or self.blank):
            raise ValueError(f"{name}: expected a text, got {value!r:.40}.")
        if len(value) > self.most:
            raise ValueError(f"{name}: expected at most {self.most} characters, got {len(value)}; shorten it.")
        return value


@dataclass(frozen=True)
class NumberParameter(Parameter):
    """A number within bounds. If `first` is None, it may be left out."""

    _: KW_ONLY
    least: float | int
    most: float | int
    step: float | int = 1
    log: bool = False
    """Whether a slider has its powers of ten, of which `step` is then the distance."""

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return self.step >= 1

    def within(self, value: Any) -> Any:
        """Return the nearest value within the bounds; the default for anything but a number."""
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else self.first
        if number is None:
            return None
        number = min(max(number, self.least), self.most)
        return int(number) if self.whole else float(number)

    def parse(self, name: str, value: Any) -> Any:
        if value in (None, "") and self.first is None:
            return None
        number = _number(value) if isinstance(value, str) else value
        if number != number or self.within(number) != number or isinstance(number, bool):
            kind = "a whole number" if self.whole else "a number"
            raise ValueError(f"{name}: expected {kind} from {self.least:g} to {self.most:g}, got {value!r}.")
        return int(number) if self.whole else number

    def written(self, value: Any) -> str:
        return "" if value is None else f"{value}" if self.whole else repr(float(value)).removesuffix(".0")


@dataclass(frozen=True)
class NumbersParameter(Parameter):
    """Several real numbers with commas between, as 0.4,1; None by default."""

    _: KW_ONLY
    most: int
    """The largest number of them."""

    def parse(self, name: str, value: Any) -> tuple[float, ...] | None:
        if value in (None, ""):
            return None
        numbers = tuple(read_numbers(value, name) if isinstance(value, str) else value)
        if len(numbers) > self.most:
            raise ValueError(f"{name}: expected at most {self.most} numbers, as 0.4,1, got {len(numbers)}.")
        return numbers

    def written(self, value: Any) -> str:
        return ",".join(repr(float(number)).removesuffix(".0") for number in value or ())


@dataclass(frozen=True)
class FlagParameter(Parameter):
    """Yes or no."""

    first: Any = False
    _: KW_ONLY
    word: str
    """The word that stands for yes in an address."""

    def parse(self, name: str, value: Any) -> bool:
        if value not in (True, False, None, "", self.word):
            raise ValueError(f"{name}: expected {self.word} or nothing, got {value!r}.")
        return bool(value)

    def written(self, value: Any) -> str:
        return self.word if value else ""


@dataclass(frozen=True)
class HeadParameter(Parameter):
    """A head, as 1.3; with `several` as many distinct heads at most, sorted; with `of` another pair of numbers."""

    _: KW_ONLY
    several: int = 0
    of: str = "head"
    listed: bool = False
    """Whether a page lists the model's heads to select from."""

    def parse(self, name: str, value: Any) -> Any:
        if self.several:
            parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value or ()
            heads = tuple(sorted({as_head(part) for part in parts if part not in ("", None)}))
            if len(heads) > self.several:
                raise ValueError(f"{name}: expected at most {self.several} heads, got {len(heads)}.")
            return heads
        if value in (None, ""):
            if self.first is not None:
                raise ValueError(f"{name}: expected a layer and a head, as 1.3, got {value!r}.")
            return None
        if self.of == "head":
            return as_head(value)
        parts = value.split(".") if isinstance(value, str) else list(value)
        if len(parts) != 2 or not all(str(part).isdecimal() for part in parts):
            raise ValueError(f"{name}: expected two whole numbers, as 1.3, got {value!r}.")
        return int(parts[0]), int(parts[1])

    def written(self, value: Any) -> str:
        if self.several:
            return ",".join(map(head_name, value or ()))
        return "" if value is None else head_name(value)


@dataclass(frozen=True)
class OptionParameter(Parameter):
    """One of the options that exist next to the other values (`Limit.options`), None for the first of them; with
    `several` as many distinct ones at most, none for the default of the view (`Limit.rest`)."""

    _: KW_ONLY
    several: int = 0
    searched: bool = False
    """Whether there are so many that a user types to find one."""

    def parse(self, name: str, value: Any) -> Any:
        if not self.several:
            if not isinstance(value, str | None):
                raise ValueError(f"{name}: expected a text, got {value!r:.40}.")
            return value or None
        names = value.split(",") if isinstance(value, str) else value or ()
        if not isinstance(names, list | tuple) or not all(isinstance(part, str) for part in names):
            raise ValueError(f"{name}: expected names with commas between, got {value!r:.40}.")
        names = tuple(dict.fromkeys(filter(None, names)))
        if len(names) > self.several:
            raise ValueError(f"{name}: expected at most {self.several} names, got {len(names)}.")
        return names

    def written(self, value: Any) -> str:
        return ",".join(value or ()) if self.several else super().written(value)


@dataclass(frozen=True)
class RowParameter(Parameter):
    """One of many rows, by number or name, or with `several` that many at most; empty for the default of the view."""

    _: KW_ONLY
    several: int = 0
    searched: bool = False
    """Whether there are so many that a user searches among their names."""

    def parse(self, name: str, value: Any) -> Any:
        parts = value.split("-") if isinstance(value, str) and self.several else value
        parts = parts if isinstance(parts, list | tuple) else [parts]
        rows = tuple(int(part) if str(part).isdecimal() else part for part in parts if part not in (None, ""))
        if not all(isinstance(row, int | str) for row in rows) or len(rows) > max(self.several, 1):
            raise ValueError(f"{name}: expected a number or a name, got {value!r:.60}.")
        return rows if self.several else next(iter(rows), None)

    def written(self, value: Any) -> str:
        return "-".join(map(str, value)) if self.several else super().written(value)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A text to read."""

    name: str = ""
    """The name by which a user chooses it."""
    text: Call
    """The call that opens it."""
    about: str
    """The part of it that is read, in words."""
    held_out: bool = False
    """Whether only documents are read that were held out from the model's training."""


@dataclass(frozen=True)
class CorpusParameter(Parameter):
    """A text to read: a `Reading`, or what `aotlens.data.open_corpus` opens; None for the default of the view."""

    _: KW_ONLY
    usual: bool = False
    """Whether a page reads its first text by default, if it can one that was held out from the model's training."""

    def parse(self, name: str, value: Any) -> Reading | None:
        if value in (None, "") or isinstance(value, Reading):
            return value or None
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected a text, as stdlib or file:PATH, got {value!r:.40}.")
        text = call("aotlens.data.open_corpus", value)
        kind, _, path = value.partition(":")
        if kind in ("file", "dir") and Path(path).expanduser().exists():  # which may be another one tomorrow
            from aotlens.data import open_corpus

            text = text.stamped(stamp_of(*open_corpus(value).written()))
        return Reading(name=value, text=text, about=value)

    def written(self, value: Any) -> str:
        return "" if value is None else str(value.name)


@dataclass(frozen=True, kw_only=True)
class LabelledImages:
    """Images with their classes."""

    name: str
    """The name by which a user chooses them."""
    spec: str
    """The name by which `aotlens.data.images.open_images` opens them."""
    stamp: int = 0
    """The mark of images that somebody else keeps open."""
    classes: tuple[str, ...] = ()
    """The names of their classes, if they are known."""
    counts: tuple[int, ...] = ()
    """The number of test images of each class, if it is known."""
    has_model_classes: bool = False
    """Whether their classes are the model's."""
    numbered: bool = False
    """Whether they only number their classes, which are then taken for the model's, in its order."""


@dataclass(frozen=True)
class ImagesParameter(Parameter):
    """Images with their classes, by name: `LabelledImages`; None for the default of the view."""

    def parse(self, name: str, value: Any) -> LabelledImages | None:
        if value in (None, "") or isinstance(value, LabelledImages):
            return value or None
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected the name of images, as digits or npz:PATH, got {value!r:.40}.")
        return LabelledImages(name=value, spec=value)

    def written(self, value: Any) -> str:
        return "" if value is None else str(value.name)


@dataclass(frozen=True)
class OwnImagesParameter(Parameter):
    """Images that a user has uploaded or drawn, by the keys under which the app keeps them."""

    first: Any = ()
    _: KW_ONLY
    most: int
    """The largest number of them."""

    def parse(self, name: str, value: Any) -> tuple[str, ...]:
        keys = value.split(",") if isinstance(value, str) else value
        if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
            raise ValueError(f"{name}: expected the keys of images, got {value!r:.40}.")
        return tuple(filter(None, keys))[: self.most]

    def written(self, value: Any) -> str:
        return ",".join(value or ())


def read_numbers(text: str, name: str) -> list[float]:
    """Read finite numbers with commas between. Raises `ValueError`, with the name, for anything else."""
    numbers = []
    for part in text.split(","):
        number = _number(part.replace("−", "-"))
        if not isinstance(number, float | int) or not math.isfinite(number):
            raise ValueError(f"{name}: expected a number such as 0.001 or 1e-3, got “{part.strip()[:40]}”.")
        numbers.append(float(number))
    return numbers


def _number(text: str) -> Any:
    """The number that a text is; the text itself if it is not a number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
