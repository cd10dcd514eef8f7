"""Which score the Paths page explains, and what it shows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from app.core import Core
from app.core.expansions import Expanded
from app.core.scores import ScoreQuestion

if TYPE_CHECKING:
    from aotlens.paths.score import PairSums

#: Pairs of paths that are listed.
N_PAIRS = 20
#: Names of the sums of pairs: the panel's address, and the method of the library.
SUMS = {"heads": "by_head_pair", "sources": "by_source_pair", "orders": "by_pair_of_orders"}


def question_of(
    core: Core,
    checkpoint: str | None,
    text: str,
    head: Any,
    query: int | None,
    key: int | None,
    against: Any,
    *,
    length: int | None = None,
) -> tuple[ScoreQuestion, str]:
    """What is asked, with the last token as the query, and what it attends to most where no key is chosen that it sees;
    and a sentence on a key that it does not. Without a head, that of the layers above the first that attends most to
    another token than the first and the query itself."""
    expanded = core.expansions.of(checkpoint, text, length=length)
    n_pos, said = expanded.expansion.n_pos, ""
    query = n_pos - 1 if query is None or not 0 <= query < n_pos else query
    patterns = expanded.expansion.frozen.patterns
    n_layers, n_heads = patterns.shape[:2]
    if head is None or not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads):
        head = _first_head(expanded, query)
    layer, number = int(head[0]), int(head[1])
    row = patterns[layer, number, query]
    if key is not None and (not 0 <= key < n_pos or (key > query and not expanded.loaded.model.sees_later_keys)):
        key, said = None, f"Query {query} does not see key {key}; this is the key that it attends to most. "
    if key is None:
        key = int(row.argmax())
    question = ScoreQuestion(
        checkpoint=expanded.checkpoint, text=text, head=(layer, number), query=query, key=key, against=against
    )
    return question, said


def _first_head(expanded: Expanded, query: int) -> tuple[int, int]:
    patterns = expanded.expansion.frozen.patterns
    n_layers, n_heads = patterns.shape[:2]
    row = patterns[min(1, n_layers - 1) :, :, query].clone()
    row[..., 0] = row[..., query] = 0
    place = int(row.amax(-1).argmax())
    return min(1, n_layers - 1) + place // n_heads, place % n_heads


def positions(core: Core, question: ScoreQuestion, side: str) -> np.ndarray:
    """What the paths of one side that start at each token bring, times the whole other side, `[pos]`."""
    return np.asarray(core.scores.explain(question).score.by_source_position(side).sum(0).double())


def sums(core: Core, question: ScoreQuestion, by: str) -> tuple[tuple[str, ...], np.ndarray]:
    """All pairs in groups: the groups' names, the same on both sides, and `[query group, key group]`."""
    found: Any = getattr(core.scores.explain(question).score, SUMS[by])()
    if by == "orders":
        values = np.asarray(found.double())
        return tuple(f"{n} head{'' if n == 1 else 's'}" for n in range(len(values))), values
    named: PairSums = found
    return named.names, np.asarray(named.values.double())
