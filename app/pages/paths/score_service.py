"""Which score the Paths page explains, and what it shows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from app.core import Core
from app.core.expansions import Expanded
from app.core.scores import ScoreQuestion, as_against, whole_numbers

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
    """What is asked, and a sentence on a key that the query does not see.

    By default the query is the last token; the key the one that the head attends to most there, without the first token
    and the query itself; the head, of the layers above the first, the one that attends to such a key most.
    """
    expanded = core.expansions.of(checkpoint, text, length=length)
    n_pos, said = expanded.expansion.n_pos, ""
    whole_numbers("a score", *(part for part in (query, key, *(head or ())) if part is not None))
    query = n_pos - 1 if query is None or not 0 <= query < n_pos else query
    attention = _to_others(expanded, query)
    n_layers, n_heads = attention.shape[:2]
    if head is None or None in head or not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads):
        first = min(1, n_layers - 1)
        above, number = divmod(int(attention[first:].max(-1).argmax()), n_heads)
        head = (first + above, number)
    layer, number = int(head[0]), int(head[1])
    if key is not None and (not 0 <= key < n_pos or (key > query and not expanded.loaded.model.sees_later_keys)):
        key, said = None, f"Query {query} does not see key {key}; another one was taken."
    if key is None:
        key = int(attention[layer, number].argmax())
    question = ScoreQuestion(
        checkpoint=expanded.checkpoint,
        text=text,
        head=(layer, number),
        query=query,
        key=key,
        against=as_against(against),
    )
    return question, said


def _to_others(expanded: Expanded, query: int) -> np.ndarray:
    """Attention of one query, `[layer, head, key]`, without the first token and its own where there is another."""
    attention: np.ndarray = expanded.expansion.frozen.patterns[:, :, query].double().cpu().numpy().copy()
    if query > 1 or (attention.shape[-1] > 2 and expanded.loaded.model.sees_later_keys):
        attention[..., [0, query]] = -np.inf
    return attention


def positions(core: Core, question: ScoreQuestion, side: str) -> np.ndarray:
    """What the paths of one side that start at each token bring, times the whole other side, `[pos]`."""
    values: np.ndarray = core.scores.explain(question).score.by_source_position(side).sum(0).double().cpu().numpy()
    return values


def sums(core: Core, question: ScoreQuestion, by: str) -> tuple[tuple[str, ...], np.ndarray]:
    """All pairs in groups: the groups' names, the same on both sides, and `[query group, key group]`."""
    found: Any = getattr(core.scores.explain(question).score, SUMS[by])()
    if by == "orders":
        values: np.ndarray = found.double().cpu().numpy()
        return tuple(f"{n} head{'' if n == 1 else 's'}" for n in range(len(values))), values
    named: PairSums = found
    return named.names, named.values.double().cpu().numpy()
