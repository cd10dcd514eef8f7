"""The attention patterns of all heads on one prompt, the head whose behaviour there is clearest, and the lengths of
values.

For layer l and head h, `pattern[l, h, query, key]` is φ(scores): how much of key's value vector the head moves to
query. A head can attend strongly to a key whose value vector is small, and then moves little: `value_weighted` is
pattern · ‖v‖, with ‖v‖ the Euclidean norm of the value vector `[d_head]` at the key, and `value_norms` has its mean
over classes of tokens (*nonlinearity*, Figure 10: where v is near 0, the pattern acts as a gate on the rest; Theorem
4.1 needs a fixed vector with W_V v = 0).

Shapes as in `aotlens.conventions` (queries are rows; the papers' pattern is this one or its transpose). Scores are in
nats, as the model applies them (scaled, before φ).

    patterns = attention_patterns(model, model.to_tokens("The cat sat on the mat"))
    patterns.pattern[1, 3]        # layer 1, head 3: [query, key]

Time: one forward pass on the hooked path. Memory: 8 bytes × layers × heads × pos².

`clearest_head` scores a head for a motif by its mean attention to the motif's keys, over the queries that have such
keys in this text. Of motifs that compare tokens, the query itself and the token before do not count: in a text that
alternates ("red and blue and green and"), a previous-token head would be taken for induction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64, Shaped
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head, describe, require_choice
from aotlens.heads.inputs import Inputs, Missing
from aotlens.heads.motifs import MOTIFS, Motif
from aotlens.heads.reader import HeadReader, Model
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.results import Result, table

if TYPE_CHECKING:
    import pandas as pd


#: What a map of a head may show: the pattern, pattern · ‖v‖, or the scores before φ.
QUANTITIES = ("attention", "weighted", "scores")


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionPatterns(Result):
    """Patterns, scores and value norms of every head on one prompt, on the CPU in float32."""

    tokens: Int[np.ndarray, " token"]
    """Token ids; none for a model of images or vectors."""
    str_tokens: tuple[str, ...]
    """One string a token, `()` for a model without a tokenizer; of images and vectors what each position is: `[CLS]`,
    `0, 2` (a patch's row and column), `5` (a vector's number)."""
    pattern: Float[np.ndarray, "layer head query key"]
    """φ(scores); 0 where hidden. Rows sum to 1 for softmax only."""
    scores: Float[np.ndarray, "layer head query key"] | None
    """Nats; −∞ where hidden. None for a fixed pattern, which has no queries and keys."""
    value_norms: Float[np.ndarray, "layer head key"]
    """‖v‖ at each key."""
    visible: Bool[np.ndarray, "mask query key"]
    """The keys that a query may see: one mask for all heads, or one per head."""

    @property
    def headline(self) -> str:
        noun = ("token" if len(self.tokens) else "position") + ("s" if self.n_pos != 1 else "")
        return f"{self.n_layers} layers × {self.n_heads} heads on {self.n_pos} {noun}"

    @property
    def n_layers(self) -> int:
        return self.pattern.shape[0]

    @property
    def n_heads(self) -> int:
        return self.pattern.shape[1]

    @property
    def n_pos(self) -> int:
        return self.pattern.shape[-1]

    @property
    def n_bytes(self) -> int:
        """The memory of the arrays, in bytes."""
        arrays = (self.pattern, self.scores, self.value_norms, self.visible, self.tokens)
        return sum(array.nbytes for array in arrays if array is not None)

    def value_weighted(self) -> Float[np.ndarray, "layer head query key"]:
        """Return pattern · ‖v‖: the norm of what each key alone would add to the head's z at a query (d_head units)."""
        return self.pattern * self.value_norms[:, :, None, :]

    def quantity(self, name: str) -> Float[np.ndarray, "layer head query key"]:
        """Return `"attention"` (`pattern`), `"weighted"` (`value_weighted()`) or `"scores"`.

        Raises `ValueError` for another name, and for the scores of a fixed pattern.
        """
        require_choice("quantity", name, QUANTITIES)
        if name == "scores" and self.scores is None:
            raise ValueError("A fixed pattern has no queries, no keys and so no scores. Choose another quantity.")
        quantity = {"attention": self.pattern, "scores": self.scores}.get(name)
        return self.value_weighted() if quantity is None else quantity

    def seen(self, *, without_first: bool = False) -> Bool[np.ndarray, "mask query key"]:
        """Return `visible`; `without_first` leaves out position 0 as a key."""
        return self.visible & (np.arange(self.n_pos) > 0) if without_first else self.visible

    def of_head(
        self, head: HeadLike, quantity: str = "attention", *, without_first: bool = False
    ) -> Float32[np.ndarray, "query key"]:
        """Return one head's `quantity`, NaN where a query does not see the key.

        Raises `ValueError` if the head does not exist, and as `quantity`.
        """
        layer, number = as_head(head, self)
        seen = self.seen(without_first=without_first)
        return np.where(
            seen[number if len(seen) > 1 else 0], self.quantity(quantity)[layer, number], np.float32(np.nan)
        )


def attention_patterns(
    model: AttentionOnlyTransformer, tokens: Shaped[Tensor, ...] | str | list[str]
) -> AttentionPatterns:
    """Compute the patterns of one prompt: a text, or token ids `[pos]` or `[1, pos]`; or of one image or sequence of
    vectors.

    An image is `[channel, height, width]` (or a batch of one), floats as the model reads them, or uint8 pixels for a
    model with an image processor; vectors are `[pos, d_in]`. Raises `ValueError` for a batch, for what the model does
    not read, and for a prompt longer than the model's context.
    """
    return patterns_and_logits(model, tokens)[0]


def patterns_and_logits(
    model: AttentionOnlyTransformer, tokens: Shaped[Tensor, ...] | str | list[str]
) -> tuple[AttentionPatterns, Float[Tensor, "*pos outputs"]]:
    """Compute `attention_patterns` and, in one forward pass, the model's output at each position (or once): on its
    device.

    `predictions_of_logits` and `token_losses` of `aotlens.evaluate` read them, without another pass.
    """
    require_ours(model, "attention_patterns")
    tokens = model.to_prompt(tokens, "attention_patterns")[0]
    cfg = model.cfg
    names = {hook_names.attn(layer, name) for layer in range(cfg.n_layers) for name in _HOOKS}
    with torch.inference_mode():
        logits, cache = model.run_with_cache(
            tokens[None].to(model.device), names_filter=lambda name: name in names, return_cache_object=False
        )
        n_pos = cache[hook_names.attn(0, hook_names.V)].shape[1]
        widest = max(range(cfg.n_layers), key=lambda layer: cfg.window(layer) or cfg.n_ctx)
        visible = model.visible_keys(n_pos, None, model.device, widest)

        def stack(name: str) -> Tensor:
            return torch.stack([cache[hook_names.attn(layer, name)][0] for layer in range(cfg.n_layers)])

        seen = np.ones((1, n_pos, n_pos), dtype=bool) if visible is None else visible[0].cpu().numpy()
        ids = tokens.cpu() if cfg.read_in == "tokens" else torch.empty(0, dtype=torch.long)
        patterns = AttentionPatterns(
            tokens=ids.numpy().astype(np.int64),
            str_tokens=input_names(model, ids, n_pos),
            pattern=_float32(stack(hook_names.PATTERN)),
            scores=_float32(stack(hook_names.SCORES)) if cfg.has_query_key else None,
            value_norms=_float32(stack(hook_names.V).float().norm(dim=-1).transpose(1, 2)),
            visible=seen,
        )
        return patterns, logits[0]


def input_names(model: AttentionOnlyTransformer, ids: Tensor, n_pos: int) -> tuple[str, ...]:
    """Name the input at each position."""
    cfg = model.cfg
    if cfg.read_in == "tokens":
        return () if model.tokenizer is None else tuple(model.tokenizer.str_tokens(ids.tolist()))
    numbers = range(n_pos - cfg.n_before)
    columns = (cfg.image_size or 0) // (cfg.patch_size or 1)
    names = [f"{i // columns}, {i % columns}" if cfg.read_in == "patches" else str(i) for i in numbers]
    return (*("[CLS]", "[distillation]")[: cfg.n_before], *names)


_HOOKS = (hook_names.PATTERN, hook_names.SCORES, hook_names.V)


def _float32(values: Tensor) -> np.ndarray:
    return values.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()


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
    return next((candidate for candidate in candidates if candidate is not None), None)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueNorms(Result):
    """Mean norms by layer, head and class of tokens."""

    names: tuple[str, ...]
    """The names of the classes."""
    counts: Int64[np.ndarray, " kind"]
    """Tokens of each class."""
    norms: Float64[np.ndarray, "layer head kind"]
    """Mean ‖v‖; NaN for a class without tokens."""

    @property
    def headline(self) -> str:
        return ", ".join(f"{name} {mean:.3g}" for name, mean in zip(self.names, self.norms.mean((0, 1)), strict=True))

    def by_layer(self) -> Float64[np.ndarray, "layer kind"]:
        """Return the mean over heads: what Figure 10 draws."""
        return self.norms.mean(1)

    def relative(self, name: str, to: str) -> Float64[np.ndarray, "layer head"]:
        """Return the norm of one class ÷ that of another. Raises `ValueError` for an unknown class."""
        one, other = (self.norms[..., self.names.index(require_choice("class", c, self.names))] for c in (name, to))
        return one / other

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head: layer, head, and a column per class."""
        return table(("layer", "head"), {name: self.norms[..., i] for i, name in enumerate(self.names)})


def value_norms(
    model: Model,
    batches: Iterable[tuple[Int[Tensor, ...], Int[Tensor, ...]]],
    names: Sequence[str],
) -> ValueNorms:
    """Measure the mean norms of value vectors, over batches of (tokens, class of each token: its index in `names`, −1
    for none).

    Sequences of a batch have one length, without padding. Heads that share keys and values (grouped keys, of a bridge)
    have the norms of those that they share. Cost: a forward pass. Raises `ValueError` for no batches,
    classes of another shape or out of range, and a model that doesn't read tokens.
    """
    reader = HeadReader.of(model, "value norms")
    n_layers, n_heads = reader.n_layers, reader.n_heads
    totals = torch.zeros(n_layers, n_heads, len(names), dtype=torch.float64)
    counts = torch.zeros(len(names), dtype=torch.long)
    for tokens, kinds in batches:
        if kinds.shape != tokens.shape or kinds.min() < -1 or kinds.max() >= len(names):
            raise ValueError(
                f"expected a class from −1 to {len(names) - 1} for each of {list(tokens.shape)} tokens, got "
                f"{list(kinds.shape)} from {int(kinds.min())} to {int(kinds.max())}."
            )
        member = torch.stack([kinds == kind for kind in range(len(names))]).flatten(1).double().cpu()  # [kind, token]
        counts += member.sum(1).long()

        def add(layer: int, v: Tensor, member: Tensor = member) -> None:
            norms = v.detach().float().cpu().double().norm(dim=-1).flatten(0, 1)  # [token, head]
            shared = norms.repeat_interleave(n_heads // norms.shape[1], 1)  # grouped keys: each serves heads in turn
            totals[layer] += (member @ shared).T

        reader.listen(tokens, lambda layer: hook_names.attn(layer, hook_names.V), add)
    if not counts.any():
        raise ValueError("expected at least one token of a class, got none.")
    norms = torch.where(counts > 0, totals / counts.clamp(min=1), torch.nan)
    return ValueNorms(names=tuple(names), counts=counts.numpy(), norms=norms.numpy())
