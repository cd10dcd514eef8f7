"""The kinds of fields that an address has: how each value is read, written, and held against what is there."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from app.core import address_checks as checks
from app.core.address_checks import Check, Unfit
from app.core.address_values import MAX_DIGITS, dotted, number, read_pair, read_whole

if TYPE_CHECKING:
    from app.core import Core

#: Digits up to which a number out of bounds is read.
_LONGEST_NUMBER = 400


@dataclass(frozen=True, kw_only=True)
class Field:
    """The way in which one value stands in an address. `dataclasses.field(metadata=…)` holds it."""

    read: Callable[[str], Any]
    """The reading of the address's text; raises Unfit."""
    write: Callable[[Any], str] = str
    key: str | None = None
    """Its name in the address where that isn't the field's."""
    blank: bool = False
    """Whether nothing, `text=`, is a value of its own."""
    browser: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The browser's way to join a list (`join`), name what is true (`word`) or shorten numbers (`digits`)."""
    check: Check | None = None
    meant: Callable[[Core, Any], Any] | None = None
    """The meaning of a value of the address, where it is a name of something that is kept."""
    json: type | None = str
    """The type that JSON has for it, where that is no number: a list, a text, true or false."""

    def written(self, value: Any) -> str | None:
        """Write the value as it stands in the address; None for nothing."""
        text = None if value is None else self.write(value)
        return None if text == "" and not self.blank else text

    def of_json(self, value: Any) -> Any:
        """Return the value that JSON says. Raises Unfit for one that an address could not say."""
        if not self.says(value, strict=True):
            raise Unfit(f"what the address could say, got {value!r}")
        text = value if isinstance(value, str) else self.write(_tuples(value))
        return self.read(text) if text or self.blank else _tuples(value)

    def says(self, value: Any, *, strict: bool = False) -> bool:
        """Return whether an address could say this value, as JSON has it: of the field's type, and within its bounds.

        An object is something else of that name, and so is what is of another kind where the field is no number: `head`
        beside `layer`, or the heads that are compared at the left; `strict`, that is not said either. A number may be
        its text, as choices have it.
        """
        if isinstance(value, dict) or (self.json is not None and not isinstance(value, self.json)):
            return not strict
        try:
            if isinstance(value, str) and self.json is None:
                return self.read(value) is not None
            given = _tuples(value)
            text = self.write(given)
            return given in ("", (), False) if text == "" and not self.blank else _same(self.read(text), given)
        except (Unfit, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            return False


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _same(read: Any, given: Any) -> bool:
    """Sets stand in an address in an order of their own; True is no number."""
    if isinstance(read, tuple) and isinstance(given, tuple):
        return len(read) == len(given) and all(map(_same, sorted(read), sorted(given)))
    return isinstance(read, bool) == isinstance(given, bool) and bool(read == given)


def _field(default: Any, **rest: Any) -> Any:
    return dataclasses.field(default=default, metadata={"address": Field(**rest)})


def text(
    default: str | None = None,
    *,
    most: int | None = None,
    pattern: re.Pattern[str] | None = None,
    expected: str = "",
    blank: bool = False,
    key: str | None = None,
    renamed: Mapping[str, str] = MappingProxyType({}),
    **rest: Any,
) -> Any:
    """Declare any text; of at most so many characters, or of a form (`expected` says which).

    Words of older links that were `renamed` (old: new) are read as the new ones.
    """

    def read(value: str) -> str:
        value = re.sub(r"\w+", lambda word: renamed.get(word[0], word[0]), value)
        if pattern is not None and not pattern.fullmatch(value):
            raise Unfit(expected)
        if most is not None and len(value) > most:
            raise Unfit(f"a text of at most {most} characters", value[:most])
        return value

    return _field(default, read=read, blank=blank, key=key, **rest)


def whole(
    default: int | None = None,
    *,
    least: int = 0,
    most: int | None = None,
    words: Sequence[str] = (),
    key: str | None = None,
    check: Check | None = None,
) -> Any:
    """Return a whole number within bounds, or one of `words`; with `most`, of a number out of bounds the nearest."""
    largest = 10**MAX_DIGITS - 1 if most is None else most
    also = "".join(f" or {word!r}" for word in words)

    def read(value: str) -> int | str:
        if value in words:
            return value
        digits = value if most is None else value.removeprefix("-")
        number = read_whole(digits, MAX_DIGITS if most is None else _LONGEST_NUMBER)
        if number is None:
            raise Unfit(f"a whole number from {least:,} to {largest:,}{also}")
        number = number if digits == value else -number
        if not least <= number <= largest:
            raise Unfit(f"a whole number from {least:,} to {largest:,}{also}", min(max(number, least), largest))
        return number

    return _field(default, read=read, key=key, check=check, json=None)


def real(
    default: float | None = None, *, least: float = -math.inf, most: float = math.inf, key: str | None = None
) -> Any:
    """Return a finite number, `0.001` or `1e-3`; within bounds, where they are given."""

    def read(value: str) -> float:
        number = _read_real(value)
        if not least <= number <= most:
            raise Unfit(f"a number from {_write_real(least)} to {_write_real(most)}", min(max(number, least), most))
        return number

    return _field(default, read=read, write=_write_real, key=key, json=None)


def choice(choices: Sequence[str], default: str | None = None, *, key: str | None = None) -> Any:
    """Return one of `choices`."""

    def read(value: str) -> str:
        if value not in choices:
            raise Unfit(f"one of {', '.join(choices)}")
        return value

    return _field(default, read=read, key=key)


def flag(word: str, *, key: str | None = None) -> Any:
    """Declare False, or, where the address says `word`, True."""

    def read(value: str) -> bool:
        if value != word:
            raise Unfit(f"{word!r} or nothing")
        return True

    browser = {"word": word}
    return _field(False, read=read, write=lambda value: word if value else "", key=key, browser=browser, json=bool)


def pair(*, key: str | None = None, check: Check | None = None, expected: str = "two whole numbers, as 1.3") -> Any:
    """Declare two whole numbers: `1.3`."""

    def read(value: str) -> tuple[int, int]:
        numbers = read_pair(value)
        if numbers is None:
            raise Unfit(expected)
        return numbers

    return _field(None, read=read, write=dotted, key=key, check=check, browser={"join": "."}, json=list)


def pairs(*, most: int, key: str | None = None, check: Check | None = None, expected: str) -> Any:
    """Declare distinct pairs of whole numbers in their order, at most so many: `1.0,1.3`."""

    def read(value: str) -> tuple[tuple[int, int], ...]:
        parsed = [read_pair(part) for part in value.split(",")]
        distinct = tuple(sorted({each for each in parsed if each is not None}))
        if None in parsed:
            raise Unfit(expected)
        if len(distinct) > most:
            raise Unfit(f"at most {most} of them", distinct[:most])
        return distinct

    def write(value: Sequence[tuple[int, int]]) -> str:
        return ",".join(map(dotted, value))

    return _field((), read=read, write=write, key=key, check=check, browser={"join": ",", "inner": "."}, json=list)


def wholes(*, most: int, key: str | None = None, check: Check | None = None) -> Any:
    """Declare distinct whole numbers, at most so many: `12-262`."""

    def read(value: str) -> tuple[int, ...]:
        numbers = [read_whole(part) for part in value.split("-")]
        distinct = tuple(dict.fromkeys(number for number in numbers if number is not None))
        if None in numbers:
            raise Unfit("whole numbers, as 12-262")
        if len(distinct) > most:
            raise Unfit(f"at most {most} whole numbers", distinct[:most])
        return distinct

    def write(value: Sequence[int]) -> str:
        return "-".join(map(str, value))

    return _field((), read=read, write=write, key=key, check=check, browser={"join": "-"}, json=list)


def reals(
    default: tuple[float, ...] | None = None, *, most: int, key: str | None = None, check: Check | None = None
) -> Any:
    """Declare finite numbers, at most so many: `0.4,1`."""

    def read(value: str) -> tuple[float, ...]:
        parts = value.split(",")
        if len(parts) > most:
            raise Unfit(f"at most {most} numbers, as 0.4,1")
        return tuple(map(_read_real, parts))

    def write(value: tuple[float, ...]) -> str:
        return ",".join(map(_write_real, value))

    browser = {"join": ",", "digits": 6}
    return _field(default, read=read, write=write, key=key, browser=browser, check=check, json=list)


def texts(*, most: int, longest: int, key: str | None = None, check: Check | None = None) -> Any:
    """Declare distinct names, at most so many: `novels-12l-mssa,novels-2l-gpt`."""

    def read(value: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name[:longest] for name in value.split(",") if name))
        if len(names) > most:
            raise Unfit(f"at most {most} names", names[:most])
        return names

    return _field((), read=read, write=",".join, key=key, check=check, browser={"join": ","}, json=list)


def checkpoint(*, key: str | None = None) -> Any:
    """Return a checkpoint's name."""
    return text(check=checks.checkpoint, key=key)


def head(*of: str, key: str | None = None) -> Any:
    """Declare layer and head, `1.3`, of the state's checkpoint: that of the first of the fields `of` that says one."""
    return pair(check=checks.head(*of), expected="a layer and a head, as 1.3", key=key)


def prompt(default: str | None = None) -> Any:
    """Return a text to run. The address says it, or the key under which a long one is kept (`Corpora.addressed`)."""
    return text(
        default, blank=True, check=checks.prompt, meant=lambda core, value: core.corpora.prompt(value),
        browser={"prompt": True},
    )  # fmt: skip


def heads(*of: str, key: str | None = None) -> Any:
    """Return a set of heads, `1.0,1.3`, of the checkpoint that the first of the fields `of` that says one says."""
    return pairs(most=1024, key=key, check=checks.heads(*of), expected="layers and heads, as 1.0,1.3")


def token() -> Any:
    """Return the id of a token of the state's checkpoint."""
    return whole(check=checks.token)


def position(first: str) -> Any:
    """Return the position of a token in the state's text, or in `first` where it has none, as its checkpoint
    reads it."""
    return whole(check=checks.position(first))


def cell(first: str) -> Any:
    """Return an entry of a head's map: the positions of query and key, `18.4`, in the same text."""
    return pair(check=checks.cell(first), expected="the positions of a query and a key, as 18.4")


def against() -> Any:
    """Declare a score's contrast: another key's position, the mean over keys, or nothing; None: what is sensible."""
    return whole(words=("mean", "plain"))


def corpus() -> Any:
    """Return a text to read: a name that the server knows, or the key of a text of somebody's own; None: its first."""
    return text(check=checks.corpus)


def motif(default: str) -> Any:
    """Return the name of a motif (`aotlens.heads.MOTIFS`); links made before one was renamed open it."""

    return text(default, most=60, renamed={"broadcast": "uniform_attention"}, check=checks.motif)


def _read_real(value: str) -> float:
    result = number(value)
    if result is None:
        raise Unfit("a finite number, as 0.001 or 1e-3")
    return result


def _write_real(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
