"""What the analyses share: a claim beside what was measured, whether it holds, and the table of claims."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper as a number: it holds where |measured − expected| ≤ tolerance."""

    claim: str
    expected: float | int
    measured: float | int
    tolerance: float | int
    seed: int | None = None
    """Of what is drawn at random; None where nothing is."""

    @property
    def holds(self) -> bool:
        return abs(self.measured - self.expected) <= self.tolerance

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Expected, measured and tolerance in words, and what the last column of its table is and says."""
        seed = "none" if self.seed is None else str(self.seed)
        return _number(self.expected), _number(self.measured), f"{self.tolerance:.2g}", "seed", seed


class Checked(Protocol):
    """What `claims_table` lists: a `Claim`, or a finding over seeds."""

    @property
    def claim(self) -> str: ...
    @property
    def holds(self) -> bool: ...
    @property
    def cells(self) -> tuple[str, str, str, str, str]: ...


def claims_table(claims: Sequence[Checked]) -> str:
    """Claim, expected, measured, tolerance, whether it holds, and the seed or the number of seeds, as Markdown."""
    header = ("claim", "expected", "measured", "tolerance", "holds", claims[0].cells[3])
    rows = []
    for checked in claims:
        expected, measured, tolerance, _, last = checked.cells
        rows.append((checked.claim, expected, measured, tolerance, "yes" if checked.holds else "**NO**", last))
    return markdown(header, rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table. Numbers are written with three digits."""
    lines = [" | ".join(header), " | ".join(["---"] * len(header))]
    return "\n".join([*lines, *(" | ".join(plain(cell).replace("|", "\\|") for cell in row) for row in rows)])


def plain(value: Any) -> str:
    """A number with three digits, a list with commas, anything else as it prints."""
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    if isinstance(value, list | tuple | range):
        return ", ".join(map(plain, value))
    return str(value)


def _number(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A statement of a paper beside what was found, where a number alone would not say it."""

    claim: str
    paper: str
    ours: str
    because: str = ""
    """Why it differs; empty where it is reproduced."""

    @property
    def verdict(self) -> str:
        return f"differs: {self.because}" if self.because else "reproduced"


def verdicts_table(verdicts: Sequence[Verdict]) -> str:
    """Claim, the paper's figure, ours, and the verdict, as Markdown."""
    header = ("claim", "paper", "ours", "verdict")
    return markdown(header, [(row.claim, row.paper, row.ours, row.verdict) for row in verdicts])


def spread(values: Any) -> str:
    """The mean of values with the least and the largest, `0.327 (0.321 to 0.334)`."""
    array = np.asarray(values, dtype=np.float64)
    return f"{array.mean():.4g} ({array.min():.4g} to {array.max():.4g})"


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every analysis has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="seconds instead of minutes: less text, fewer sizes")
    return options


def report(claims: Sequence[Claim]) -> int:
    """Print the table of claims; 1 if a claim does not hold, else 0."""
    print(claims_table(claims))
    failed = sum(not c.holds for c in claims)
    if failed:
        print(f"{failed} of {len(claims)} claims do not hold.", file=sys.stderr)
    return 1 if failed else 0
