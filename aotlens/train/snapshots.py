"""The steps at which a run keeps a snapshot of its weights: given ones, evenly in log step, or as its loss falls."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from aotlens.conventions import MOST_DRAWS

#: Share of the smoothed loss that a new loss takes.
_SMOOTHING = 0.1


def check_snapshots(rule: Sequence[int] | str | None, n_steps: int) -> None:
    """Raise `ValueError` for what is no rule of snapshots of a run of so many steps."""
    if rule is None:
        return
    if isinstance(rule, str):
        _parse(rule)
        return
    whole = all(isinstance(step, int) and not isinstance(step, bool) for step in rule)
    if not whole or not rule or list(rule) != sorted({*rule}) or rule[0] < 0 or rule[-1] > n_steps:
        raise ValueError(
            f"snapshots={list(rule)}: expected steps of the run in rising order, from 0 to {n_steps:,}, or a rule as "
            "'log:60' or 'loss:60'."
        )


def planned_steps(rule: Sequence[int] | str | None, n_steps: int) -> frozenset[int]:
    """Return the steps of which a run keeps the weights whatever its loss does."""
    if rule is None or not isinstance(rule, str):
        return frozenset(rule or ())
    kind, number = _parse(rule)
    return frozenset(log_steps(number if kind == "log" else number // 2, n_steps))


def log_steps(number: int, n_steps: int) -> list[int]:
    """Return 0 and `number − 1` steps up to the last, each the same factor from the one before it, as near as whole
    steps allow; all steps of a run that has no more."""
    if number > n_steps:
        return list(range(n_steps + 1))
    steps = [0, 1]
    for left in range(number - 2, 0, -1):
        factor = (n_steps / steps[-1]) ** (1 / left)
        steps.append(max(steps[-1] + 1, round(steps[-1] * factor)))
    return steps[:number]


def loss_has_fallen(rule: Sequence[int] | str | None, fall: dict[str, float], loss: float) -> bool:
    """Return whether the smoothed loss has fallen, since this was last true, by a share of the first loss: 1 ÷ half the
    snapshots of a rule `loss:N`, so that no more than N are kept in all. `fall`, kept with the run, is changed."""
    if not isinstance(rule, str) or _parse(rule)[0] != "loss":
        return False
    if not fall:
        fall |= {"unit": loss / (_parse(rule)[1] - _parse(rule)[1] // 2), "smoothed": loss, "level": loss}
    fall["smoothed"] += _SMOOTHING * (loss - fall["smoothed"])
    falls = math.floor((fall["level"] - fall["smoothed"]) / fall["unit"]) if fall["unit"] > 0 else 0
    if falls < 1:
        return False
    fall["level"] -= falls * fall["unit"]
    return True


def _parse(rule: str) -> tuple[str, int]:
    match = re.fullmatch(r"(log|loss):([0-9]{1,7})", rule, re.ASCII)
    if match is None or not 4 <= int(match[2]) <= MOST_DRAWS:
        raise ValueError(
            f"snapshots={rule!r}: expected 'log:60', 60 snapshots evenly in log step, or 'loss:60', half of them so "
            "and the others as the loss falls (4 or more), or a list of steps."
        )
    return match[1], int(match[2])
