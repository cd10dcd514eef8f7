"""The common parts of the analyses: a claim beside what was measured, whether it holds, and the table of claims.

A `Claim` is one number beside another, a `Finding` one number a seed within bounds, a `Verdict` a statement in words
beside what was found. Each says by its numbers whether it holds, and can be stored as JSON (`stored`, `restored`).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from aotlens.plots.results import DISPLAY


@dataclass(frozen=True)
class Claim:
    """A statement of a paper as a number: it holds where |measured − expected| ≤ tolerance.

    The fields have the order of the columns of `claims_table`.
    """

    claim: str
    expected: float | int
    measured: float | int
    tolerance: float | int
    seed: int | None = None
    """The seed of what is drawn at random; None where nothing is."""

    @property
    def holds(self) -> bool:
        return abs(self.measured - self.expected) <= self.tolerance

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Return expected, measured and tolerance in words, and what the last column of its table is and says."""
        seed = "none" if self.seed is None else str(self.seed)
        return _number(self.expected), _number(self.measured), _tolerance(self.tolerance), "seed", seed


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement of the paper as a number, measured once a seed: it holds where every one is within `bounds`."""

    claim: str
    expected: str
    """The paper's statement about the number, in words."""
    bounds: tuple[float, float]
    """The least and the greatest number that count as what the paper says."""
    measured: tuple[float, ...]
    """One number a seed (or a prompt, or a model, as the claim says)."""

    @property
    def spread(self) -> tuple[float, float, float, int]:
        """Return mean, least, greatest and how many numbers there are."""
        values = np.array(self.measured, dtype=np.float64)
        return float(values.mean()), float(values.min()), float(values.max()), len(values)

    @property
    def holds(self) -> bool:
        if not self.measured:
            return False
        low, high = self.bounds
        mean, least, greatest, _ = self.spread
        return bool(low <= least and greatest <= high and not math.isnan(mean))

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Give the paper's words, the mean (and least and greatest of several), the bounds, and how many there are."""
        *numbers, n = self.spread
        mean, least, greatest = (f"{value:.3g}" for value in numbers)
        summary = mean if n == 1 else f"{mean} ({least} to {greatest})"
        low, high = (f"{bound:.3g}" for bound in self.bounds)
        if low == high:
            low, high = (f"{bound:.6g}" for bound in self.bounds)  # 1 to 1.001
        tolerance = f"{low} to {high}"
        if math.isinf(self.bounds[0]) or math.isinf(self.bounds[1]):
            tolerance = f"≤ {high}" if math.isinf(self.bounds[0]) else f"≥ {low}"
        elif self.bounds[0] == self.bounds[1]:
            tolerance = f"exactly {low}"
        return self.expected, summary, tolerance, "n", str(n)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A statement of a paper beside what was found, where a number alone would not say it.

    With `bounds`, `measured` decides: a `because` says why it is outside. Without them, a `because` decides.
    """

    claim: str
    paper: str
    ours: str
    because: str = ""
    """The reason why it differs, where it does."""
    measured: tuple[float, ...] = ()
    bounds: tuple[float, float] | None = None
    """The bounds of what is counted as reproduced."""

    def __post_init__(self) -> None:
        if self.bounds is not None and not self.measured:
            raise ValueError(f"{self.claim}: expected numbers to compare with its bounds, got none.")
        if not self.holds and not self.because:
            raise ValueError(f"{self.claim}: {self.measured} is outside {self.bounds}; say why, in `because`.")

    @property
    def holds(self) -> bool:
        if self.bounds is None:
            return not self.because
        return all(self.bounds[0] <= value <= self.bounds[1] for value in self.measured)

    @property
    def verdict(self) -> str:
        return "reproduced" if self.holds else f"differs: {self.because}"


class Checked(Protocol):
    """The entries of `claims_table`: a `Claim`, or a `Finding` over seeds."""

    @property
    def claim(self) -> str: ...
    @property
    def holds(self) -> bool: ...
    @property
    def cells(self) -> tuple[str, str, str, str, str]: ...


def zero(claim: str, largest: Any, tolerance: float, seed: int | None = 0) -> Claim:
    """Return a difference that ought to vanish."""
    return Claim(claim, 0, float(largest), tolerance, seed)


Stated = Claim | Finding | Verdict
_KINDS: dict[str, type[Stated]] = {"claim": Claim, "finding": Finding, "verdict": Verdict}


def stored(stated: Stated) -> dict[str, Any]:
    """Return a claim as JSON has it: its fields, without those at their defaults; infinite and missing numbers are
    null."""
    fields = {name: getattr(stated, name) for name in type(stated).__dataclass_fields__}
    stated_fields = {name: value for name, value in fields.items() if value not in ((), None, "")}
    (kind,) = (name for name, of_kind in _KINDS.items() if type(stated) is of_kind)
    return {"kind": kind, **{name: _plain_json(value) for name, value in stated_fields.items()}}


def restored(content: Mapping[str, Any]) -> Stated:
    """Return the claim that `stored` wrote. Raises `ValueError` for another kind."""
    fields = dict(content)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"expected a claim of kind {', '.join(_KINDS)}, got {kind!r}.")
    if fields.get("bounds") is not None:
        low, high = fields["bounds"]
        fields["bounds"] = (-math.inf if low is None else low, math.inf if high is None else high)
    if isinstance(fields.get("measured"), list):
        fields["measured"] = tuple(math.nan if value is None else value for value in fields["measured"])
    return _KINDS[kind](**fields)


def _plain_json(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain_json(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def claims_table(claims: Sequence[Checked]) -> str:
    """List claim, expected, measured, tolerance, whether it holds, and the seed or their number, as Markdown."""
    header = ("claim", "expected", "measured", "tolerance", "holds", claims[0].cells[3])
    rows = []
    for checked in claims:
        expected, measured, tolerance, _, last = checked.cells
        rows.append((checked.claim, expected, measured, tolerance, "yes" if checked.holds else "**NO**", last))
    return markdown(header, rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table. Numbers are written with three digits."""
    lines = [" | ".join(header), " | ".join(["---"] * len(header))]
    return "\n".join([*lines, *(" | ".join(plain(cell).replace("|", "\\|") for cell in row) for row in rows)])


def plain(value: Any) -> str:
    """Return a number with three digits, a list with commas, anything else as it prints."""
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    if isinstance(value, list | tuple | range):
        return ", ".join(map(plain, value))
    return str(value)


def _number(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _tolerance(value: float | int) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2g}"


def verdicts_table(verdicts: Sequence[Verdict]) -> str:
    """Write claim, the paper's figure, ours, and the verdict, as Markdown."""
    header = ("claim", "paper", "ours", "verdict")
    return markdown(header, [(row.claim, row.paper, row.ours, row.verdict) for row in verdicts])


def spread(values: Any) -> str:
    """Return the mean of values with the least and the largest, `0.327 (0.321 to 0.334)`."""
    array = np.asarray(values, dtype=np.float64)
    return f"{array.mean():.4g} ({array.min():.4g} to {array.max():.4g})"


class Options(argparse.ArgumentParser):
    """Options of an analysis, of which `--store` is refused with `--quick`."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        arguments = super().parse_args(args, namespace)
        if arguments.store and arguments.quick:
            self.error("--store keeps what the whole analysis finds, for the pages; leave --quick out.")
        return arguments


def parser(description: str | None, *, html: bool = False, docs: bool = False) -> Options:
    """Return the options that every analysis has, and those for its figures and its section of a page."""
    options = Options(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="seconds instead of minutes: less text, fewer sizes")
    options.add_argument("--store", action="store_true", help="keep the outcome in analyses/outcomes, for the pages")
    if html:
        options.add_argument("--html", type=Path, metavar="DIR", help="write the figures here, as HTML")
    if docs:
        options.add_argument("--docs", type=Path, metavar="PAGE", help="write the tables into this page's section")
    return options


def write_figures(folder: Path | None, figures: Mapping[str, Any]) -> None:
    """Write figures as HTML into a folder, if there is one."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            figure.write_html(folder / f"{name}.html", include_plotlyjs="directory", config=DISPLAY)


def report(claims: Sequence[Checked]) -> int:
    """Print the table of claims; 1 if a claim does not hold, else 0."""
    print(claims_table(claims))
    failed = sum(not c.holds for c in claims)
    if failed:
        print(f"{failed} of {len(claims)} claims do not hold.", file=sys.stderr)
    return 1 if failed else 0
