"""The path expansion of a model on one prompt (*structures* §5, Proposition 22; Elhage et al. 2021), for any depth.

With patterns and norm scales frozen, the logits are a sum over paths: a source term and a sequence of heads in
increasing layers (`aotlens.paths.frozen` has the maps). *structures* writes it for one layer,

    T(x) = (I ⊗ W_U W_E) x + Σ_h (A^h ⊗ W_U W_O^h W_V^h W_E) x,

and stops there, since L layers of H heads have (H+1)^L sequences. Nothing here forms them all unless asked to.

An MLP is not linear with patterns frozen. Its output on the prompt is a source of its own, `mlp_0` for layer 0, held as
it is; what it has read from tokens and heads is hidden inside it, and the order of a path counts the heads after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotlens.conventions import HeadLike
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.expanded import Expanded
from aotlens.paths.frozen import freeze
from aotlens.paths.score.expansion import ScoreExpansion, score_of
from aotlens.paths.score.side import Against
from aotlens.paths.score.trace import Trace, trace_of


@torch.no_grad()
def expand(
    model: AttentionOnlyTransformer, tokens: Tensor | str | list[str], *, split_sources: bool = False
) -> PathExpansion:
    """Freeze `model` on one prompt and expand its logits into paths.

    `tokens` is ids `[pos]` or `[1, pos]`, or a text. With `split_sources` a path also has the position where its source
    stands. One forward pass on the hooked path; no hook stays on the model.

    Raises `ValueError` for a batch, and for what the model itself refuses.
    """
    require_ours(model, "paths", without=NOT_LINEAR)
    inputs = model.to_prompt(tokens, "paths")
    frozen = freeze(model, inputs)
    ids: tuple[int, ...] = ()
    if model.cfg.read_in == "tokens":
        ids = tuple(inputs[0].tolist())
    names = () if model.tokenizer is None or not ids else tuple(model.tokenizer.str_tokens(list(ids)))
    return PathExpansion(
        frozen=frozen, split_sources=split_sources, tokens=ids, str_tokens=names, model=model, inputs=inputs
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PathExpansion(Expanded):
    """All paths of a model on one prompt, to its logits and to its attention scores.

    Every contribution to a logit is in logits, of `target`: an output, or (token, versus), the first's minus the
    second's; to a score, in nats. A head is (1, 0) or "1.0".
    """

    @torch.no_grad()
    def score(
        self, head: HeadLike | None = None, query: int = -1, key: int | None = None, against: Against = "default"
    ) -> ScoreExpansion:
        """Return the attention score of one cell as a sum over pairs of paths, to the query and to the key.

        A softmax ignores what all keys of a query share, so by default its score is taken `against="mean"`, the mean
        over visible keys weighted by softmax(scores) (for the thresholded softmax by the softmax before the threshold).
        For any other φ the raw score is the default, and "mean" weighs visible keys equally. `against` may also be
        another key, None for the raw score, or "auto": as the default, but where the key has a quarter of the attention
        itself, the first token, or another key whose score is a nat away (`reason` says so). One forward pass more for
        each layer that is asked for.

        By default the key is the one that the head attends to most, without the first token and the query itself; and
        the head, of the layers above the first, the one that attends to such a key most.

        Raises `ValueError` for phi="fixed", which has no scores, for a key hidden from the query, and for a missing
        head or position.
        """
        return score_of(self, head, query, key, against)

    @torch.no_grad()
    def trace(
        self,
        head: HeadLike | None = None,
        query: int = -1,
        key: int | None = None,
        against: Against = "default",
        *,
        max_edges: int = 4,
        min_share: float = 0.02,
        max_nodes: int = 40,
    ) -> Trace:
        """Return the cells behind one cell, layer by layer, and what each is made of; see `aotlens.paths.score.trace`.

        Of each node, on its query side and on its key side, the `max_edges` largest terms with at least `min_share` of
        their side are edges of their own, and those that are cells are followed, up to `max_nodes`. Raises `ValueError`
        as `score` does, and for limits out of range.
        """
        limits: dict[str, Any] = {"max_edges": max_edges, "min_share": min_share, "max_nodes": max_nodes}
        return trace_of(self, head, query, key, against, **limits)
