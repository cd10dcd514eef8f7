"""The head whose behaviour on one text is clearest, and why, in a sentence.

A head's score for a motif is its mean attention to the motif's keys, over the queries that have such keys in this
text. Of motifs that compare tokens, the query itself and the token before do not count: where a text alternates ("red
and blue and green and"), the token before is what followed the earlier "and", and a previous-token head would be
taken for induction. What depends on the tokens (induction, duplicate tokens) tells more than what depends on
positions alone, so the motifs have an order; a head counts if its score reaches the motif's threshold and lies well
above uniform attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from aotlens.conventions import Head, describe
from aotlens.heads.inputs import Inputs, Missing
from aotlens.heads.motifs import MOTIFS, Motif
from aotlens.heads.patterns import AttentionPatterns

#: The first of these that a head shows decides. First-token heads are left out, since most heads rest there.
_ORDER = ("induction", "duplicate_token", "previous_token", "next_token", "current_token")
#: The least excess of a score over that of uniform attention, and the least number of queries.
_LEAST_EXCESS, _LEAST_QUERIES = 0.2, 2


@dataclass(frozen=True, kw_only=True)
class ClearestHead:
    """A head, the motif that it shows on the text, and its score there."""

    head: Head
    motif: str
    score: float
    n_queries: int
    """The queries that the score is a mean over."""
    token: str | None
    """The repeated token from which the head attends most to the motif's keys, where the motif compares tokens."""

    @property
    def sentence(self) -> str:
        """`1.0 attends to what followed an earlier occurrence of the query's token, such as " Pend": induction, 0.55 of
        its attention on this text, on average over 16 repeated tokens.`"""
        motif = MOTIFS[self.motif]
        does = motif.sentence.removeprefix("It ").removesuffix(".")
        if self.token is not None:
            does += f", such as {describe(self.token)}"
        where = f", on average over {self.n_queries} repeated tokens" if self.token is not None else ""
        name = ".".join(map(str, self.head))
        return f"{name} {does}: {motif.title}, {self.score:.2f} of its attention on this text{where}."


def clearest_head(patterns: AttentionPatterns) -> ClearestHead | None:
    """Find the head with the highest score for the first motif that a head shows on this text; None where none does."""
    candidates = (_best(patterns, MOTIFS[name]) for name in _ORDER)
    return next((each for each in candidates if each is not None), None)


def _best(patterns: AttentionPatterns, motif: Motif) -> ClearestHead | None:
    tokens = torch.from_numpy(np.asarray(patterns.tokens)).long()[None]
    try:
        targets = motif.targets(Inputs(tokens=tokens, later_keys=bool(np.triu(patterns.visible[0], 1).any())))
    except Missing:
        return None
    if targets is None:
        return None
    keys = targets.keys[0].numpy() & patterns.visible.all(0)
    keys[:, 0] = False
    if motif.classes is not None:
        keys &= ~(np.eye(len(keys), dtype=bool) | np.eye(len(keys), k=-1, dtype=bool))
    queries = targets.queries[0].numpy() & keys.any(-1)
    n_queries = int(queries.sum())
    if n_queries < _LEAST_QUERIES:
        return None
    keys = keys[queries]
    attention = np.einsum("lhqk,qk->lhq", patterns.pattern[:, :, queries], keys)
    uniform = float((keys.sum(-1) / patterns.visible[0][queries].sum(-1)).mean())
    scores = attention.mean(-1)
    head = tuple(int(place) for place in np.unravel_index(scores.argmax(), scores.shape))
    score = float(scores[head])
    if score < max(motif.threshold, uniform + _LEAST_EXCESS):
        return None
    query = int(np.flatnonzero(queries)[attention[head].argmax()])
    token = patterns.str_tokens[query] if motif.classes is not None and patterns.str_tokens else None
    return ClearestHead(head=(head[0], head[1]), motif=motif.name, score=score, n_queries=n_queries, token=token)
