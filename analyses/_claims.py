"""What the analyses share: a claim beside what was measured, and whether it holds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass


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


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every analysis has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="seconds instead of minutes: less text, fewer sizes")
    return options


def report(claims: Sequence[Claim]) -> int:
    """Print claim, expected, measured and tolerance as a Markdown table; 1 if a claim does not hold, else 0."""
    print("claim | expected | measured | tolerance | holds")
    print("--- | --- | --- | --- | ---")
    for c in claims:
        print(f"{c.claim} | {c.expected:.6g} | {c.measured:.6g} | {c.tolerance:.2g} | {'yes' if c.holds else 'NO'}")
    failed = sum(not c.holds for c in claims)
    if failed:
        print(f"{failed} of {len(claims)} claims do not hold.", file=sys.stderr)
    return 1 if failed else 0
