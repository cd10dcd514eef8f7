"""The papers' items: every figure, table, theorem and equation that can be run, and what answers it here.

`papers/NAME.toml` has one paper: its title, the page with the details, and its items in the paper's order. An item has
`id` (as the paper numbers it), `says` (in our words), and what there is of

- `functions`: dotted names that implement it: of the library, which the API reference has, or of `analyses`;
- `claims`: "OUTCOME: beginning", the claims of a stored outcome (`_outcomes.py`) that begin so; its verdict is theirs;
- `because`: why a claim does not hold, needed where one does not; `lacks`: what of the statement no claim here bears
  out, with which it is reproduced in part at most; `slip`: where the print is wrong; `note`;
- `tests`: test files that hold it, where no analysis has a claim on it; `not_run`: why nothing does;
- `docs`: its page, where it is not the paper's.

Which claim answers which item stands here and not in the analyses, so that one list shows what is missing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from analyses._claims import Stated
from analyses._outcomes import FOLDER, Outcome, load, names

PAPERS_FOLDER = Path(__file__).parent / "papers"
#: The papers in the order of the design.
PAPERS = ("structures", "nonlinearity", "aot", "in-context-denoising")
#: A number with a decimal point, as a reason prints what was measured.
_DECIMAL = r"(?<![\w.])\d+\.\d+(?![\w.])"


@dataclass(frozen=True, kw_only=True)
class Item:
    """A figure, table, theorem or equation of a paper."""

    id: str
    says: str
    functions: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    because: str = ""
    lacks: str = ""
    slip: str = ""
    note: str = ""
    tests: tuple[str, ...] = ()
    not_run: str = ""
    docs: str = ""

    def __post_init__(self) -> None:
        if not (self.claims or self.tests or self.not_run):
            raise ValueError(f"{self.id}: expected claims, tests, or not_run with the reason.")


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper, its items, and the page with the details."""

    name: str
    title: str
    docs: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Evidence:
    """An item with the claims that answer it."""

    item: Item
    answers: tuple[tuple[Outcome, Stated], ...]

    @cached_property
    def failed(self) -> int:
        """Count its claims that do not hold."""
        return sum(not claim.holds for _, claim in self.answers)

    @property
    def verdict(self) -> str:
        """Return `reproduced`, `reproduced in part`, `differs`; without claims `kept by tests` or `not run`."""
        if not self.answers:
            return "not run" if self.item.not_run else "kept by tests"
        if not self.failed:
            return "reproduced in part" if self.item.lacks else "reproduced"
        return "differs" if self.failed == len(self.answers) else "reproduced in part"

    @property
    def because(self) -> str:
        """Say why it differs, or was not run; empty where it is reproduced."""
        if self.item.not_run:
            return self.item.not_run
        reasons = [getattr(claim, "because", "") for _, claim in self.answers if not claim.holds]
        why = self.item.because or "; ".join(_folded(filter(None, reasons)))
        return "; ".join(filter(None, (why if self.failed else "", self.item.lacks)))


def _folded(reasons: Iterable[str]) -> Iterator[str]:
    """Yield each reason once; of reasons that differ in numbers alone one, with the least and greatest of each."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for reason in reasons:
        alike.setdefault(tuple(re.split(_DECIMAL, reason)), []).append(re.findall(_DECIMAL, reason))
    for words, rows in alike.items():
        numbers = [(min(column, key=float), max(column, key=float)) for column in zip(*rows, strict=True)]
        ranges = [least if least == greatest else f"{least} to {greatest}" for least, greatest in numbers]
        yield "".join(word + number for word, number in zip(words, [*ranges, ""], strict=True))


def load_paper(name: str) -> Paper:
    """Return a paper's items. Raises `ValueError` for a field that no item has, or an item without an answer."""
    content = tomllib.loads((PAPERS_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    items = []
    for fields in content["item"]:
        unknown = fields.keys() - Item.__dataclass_fields__.keys()
        if unknown:
            raise ValueError(f"{name}, {fields.get('id')}: unknown {', '.join(sorted(unknown))}.")
        items.append(Item(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}))
    return Paper(name=name, title=content["title"], docs=content["docs"], items=tuple(items))


def outcomes(folder: Path = FOLDER) -> dict[str, Outcome]:
    """Return all stored outcomes by name."""
    return {name: load(name, folder) for name in names(folder)}


def evidence(paper: Paper, stored: Mapping[str, Outcome]) -> list[Evidence]:
    """Return every item with its claims. Raises `ValueError` for a reference that no stored claim begins with."""
    answered = []
    for item in paper.items:
        answers = []
        for reference in item.claims:
            name, _, beginning = reference.partition(":")
            outcome = stored.get(name)
            matching = [] if outcome is None else [c for c in outcome.claims if c.claim.startswith(beginning.strip())]
            if outcome is None or not matching:
                raise ValueError(f"{paper.name}, {item.id}: no stored claim is {reference!r}.")
            answers += [(outcome, claim) for claim in matching]
        answered.append(Evidence(item, tuple(answers)))
    return answered
