"""The Paths page's address: a text, a target, which paths are listed, and what is taken away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from app.urlstate.query import choice, format_query, number, parse_query

Ranking = Literal["abs", "pos", "neg"]

PATHS_PATH = "/paths"

#: Paths that the Paths page lists, at first and at most.
FIRST_K = 20
MAX_K = 200

#: A head, `1.0`, or a path, `token@4-0.2-1.3`: where it starts and the heads that it passes.
_HEAD = re.compile(r"\d{1,4}\.\d{1,4}", re.ASCII)
_WITHOUT = re.compile(r"\d{1,4}\.\d{1,4}|(token|position|bias)(@\d{1,6})?(-\d{1,4}\.\d{1,4}){0,200}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class PathsState:
    """Everything that the Paths page shows."""

    checkpoint: str | None = None
    text: str | None = None
    """None: the first example."""
    position: int | None = None
    """The token after which the target stands; None: the last."""
    target: int | None = None
    """A token's id; None: the model's first choice."""
    versus: int | None = None
    """The token whose logit is subtracted."""
    by: Ranking = "abs"
    """Which paths come first: the largest in size, the most for the target, the most against it."""
    through: str | None = None
    """The head that every listed path passes, `1.0`; None: all paths count."""
    k: int = FIRST_K
    without: str | None = None
    """The head or path that is taken away, as `_WITHOUT` has it."""


def parse_paths(search: str | None) -> PathsState:
    """The state that `format_paths` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    k, without, through = number(query.get("k")), query.get("without", ""), query.get("through", "")
    return PathsState(
        checkpoint=query.get("checkpoint") or None,
        text=query.get("text"),
        position=number(query.get("position")),
        target=number(query.get("target")),
        versus=number(query.get("versus")),
        by=choice(query, "by", get_args(Ranking), "abs"),
        through=through if _HEAD.fullmatch(through) else None,
        k=FIRST_K if k is None else min(max(k, 1), MAX_K),
        without=without if _WITHOUT.fullmatch(without) else None,
    )


def format_paths(state: PathsState) -> str:
    """The address of a state; defaults are left out."""
    pairs = {
        "checkpoint": state.checkpoint,
        "text": state.text,
        "position": None if state.position is None else str(state.position),
        "target": None if state.target is None else str(state.target),
        "versus": None if state.versus is None else str(state.versus),
        "by": state.by if state.by != "abs" else None,
        "through": state.through,
        "k": str(state.k) if state.k != FIRST_K else None,
        "without": state.without,
    }
    return PATHS_PATH + format_query({key: value for key, value in pairs.items() if value is not None})
