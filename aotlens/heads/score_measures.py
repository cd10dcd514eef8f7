"""The measures of declared scores that read a text, or the weights alone (`aotlens.heads.key_logits` has those of
logits).

**Inactive heads.** After Sandoval-Segura et al. (2504.03889), for head h of layer l and positions i ≥ 1:

    output norm         mean_i ‖z_i W_O‖ ÷ its mean over the heads of the layer      their Avg Head Output Norm (LN)
    written norm        mean_i ‖z_i W_O‖
    first value norm    ‖v_0‖ ÷ mean_i ‖v_i‖                                         z = pattern · v,  v = x W_V + b_V
    first token         mean_i A(i, 0)                                               their Avg Weight of First Token

They differ from the source on purpose: its output norm is ‖z_i‖, which changes where W_V, W_O become W_V G, G⁻¹ W_O
though the head does not, and its first value norm is ‖v_0‖ ÷ the mean of the layer's heads. It calls a head inactive on
a prompt below a quantile over heads and prompts: the 5% lowest output norms are below .31 to .51 in Llama 3, OLMo 2 and
Qwen 2.5. `INACTIVE` is stricter. The norm of what a head writes decides: a first-token score misses a head that spreads
its attention over short or opposite values, and takes one whose first token has a long value vector for inactive. Both
ratios are 1 by chance: heads of a layer that write alike; a first token that is read as any other.

**Shares of attention.**

    delimiter          mean over queries of Σ_{j ∈ D, j ≥ 1} A(i, j)     D: tokens of punctuation alone, as brackets and
                       quotes are, and blank ones with a line break; by chance |D| ÷ visible keys
    fuzzy induction    the same with the keys that follow a token similar to the query's, on random tokens that repeat
                       as the token most similar to them; by chance the head's mean pattern over other sequences

The token most similar to t is the one whose embedding has the largest cosine with t's, the mean embedding taken off,
special tokens aside; two tokens are similar if one is the most similar to the other. Queries whose own token stood
earlier do not count, so that an induction head has nothing to find. Attention is measured by `attention_to`.

**Positional share.** With S_s(i, k) the scores of sequence s, in nats before the softmax, each row less its mean over
the keys that the query sees, and key 0 left out, since the start token always stands there,

    positional share = mean_{s ≠ s'} Σ_ik S_s S_s' ÷ mean_s Σ_ik S_s²        content share = 1 − positional share

an analysis of variance with (query, key) as the factor (Elhage et al. 2021 take scores apart into positions and
tokens). It is 1 for scores that are the same on every text, and 0 by chance: the estimate is unbiased, and may lie a
little below. A head whose scores are all alike has 0. Memory: a pattern of every head in float64.

**OV circuits over the vocabulary.** Of M = W_E W_V W_O W_U with norms folded in (`aotlens.circuits.ov_circuit`), row t
says what attending to token t adds to each logit.

    copy suppression, OV   share of tokens t with M[t, t] among the `LOWEST` lowest logits of row t; by chance
                           `LOWEST` ÷ vocabulary (McDougall et al. 2310.04625)
    successor              share of members t of ordinal sequences whose successor is the largest logit of row t; by
                           chance 1 ÷ vocabulary (Gould et al. 2312.09230, Figure 2)

Both papers take the first MLP's output for the embedding; here it is the embedding itself, since an attention-only
model has no MLP, and in a model with MLPs this is of the direct path alone. Tigges et al. (2024) take the largest logit
of the sequence's own words, and so find a head that knows weekdays but does not raise them over other words. Chance is
of logits in any other order: tokens permuted. Successors are those of numbers, weekdays, months and letters, if both
words are one token, with or without a space before them.

Cost of each score: one forward pass at most.
"""

from __future__ import annotations

import calendar
import dataclasses
import string
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.circuits import diagonal_rank, ov_circuit
from aotlens.circuits.factored import FactoredMatrix
from aotlens.conventions import head_name, require_between
from aotlens.heads.attention_to import MotifScores, attention_to
from aotlens.heads.inputs import Inputs, MeasuredScore, Missing, ScoreInputs
from aotlens.heads.motifs import MOTIFS, Motif, of_strings
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.heads.scores import random_repeats
from aotlens.heads.source_code import delimiters
from aotlens.models import hook_names
from aotlens.results import Result, table

if TYPE_CHECKING:
    import pandas as pd


#: The output norm up to which a head is inactive.
INACTIVE = 0.25
RESTING = "resting but active"


def output_norm(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the mean norm of what each head writes ÷ that of its layer's heads, the first position aside."""
    norms = _written(inputs)
    of_layer = norms.mean(0).mean(1, keepdim=True)
    values = torch.where(of_layer > 0, norms / of_layer, 1.0)  # in a layer that writes nothing all are alike
    return MeasuredScore(
        values=values.mean(0).numpy(), chance=np.ones(inputs.shape), n=inputs.text()[:, 1:].numel(),
        excess=values.numpy() - 1, clusters=inputs.clusters,
    )  # fmt: skip


def written_norm(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the mean norm of what each head writes itself, next to its layer's mean."""
    norms = _written(inputs)
    of_layer = norms.mean(0).mean(1, keepdim=True).expand(inputs.shape)
    return MeasuredScore(
        values=norms.mean(0).numpy(), chance=of_layer.numpy(), n=inputs.text()[:, 1:].numel(),
        excess=(norms - of_layer).numpy(), clusters=inputs.clusters,
    )  # fmt: skip


def _written(inputs: ScoreInputs) -> Float64[Tensor, "sequence layer head"]:
    """The mean norm of what each head writes on each sequence, the first position aside."""
    tokens, place = inputs.text(), 0
    norms = torch.zeros(len(tokens), *inputs.shape, dtype=torch.float64)

    def add(layer: int, z: Tensor) -> None:
        gram = inputs.reader.W_O(layer).double() @ inputs.reader.W_O(layer).double().mT  # [head, d_head, d_head]
        later = z.detach()[:, 1:].to(gram)
        squares = torch.einsum("bkhd,hde,bkhe->bkh", later, gram, later)
        norms[place : place + len(z), layer] = squares.clamp(min=0).sqrt().mean(1).cpu()

    for batch in inputs.batches(tokens):
        inputs.reader.listen(batch, inputs.reader.z_name, add)
        place += len(batch)
    return norms


def first_value_norm(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the norm of the first position's value vector ÷ the mean norm of the others'."""
    first, others = (torch.zeros(inputs.shape, dtype=torch.float64) for _ in range(2))
    tokens = inputs.text()

    def add(layer: int, v: Tensor) -> None:
        norms = inputs.by_head(v.detach().float().cpu().double().norm(dim=-1).flatten(0, 1)).unflatten(0, v.shape[:2])
        first[layer] += norms[:, 0].sum(0)
        others[layer] += norms[:, 1:].mean(1).sum(0)

    for batch in inputs.batches(tokens):
        inputs.reader.listen(batch, lambda layer: hook_names.attn(layer, hook_names.V), add)
    values = torch.where(others > 0, first / others, 1.0).numpy()
    return MeasuredScore(values=values, chance=np.ones(inputs.shape), n=len(tokens))


@dataclass(frozen=True, kw_only=True, eq=False)
class InactiveHeads(Result):
    """Two scores of every head, the norm of what it writes and its attention to the first token, and the verdict."""

    output_norm: Float64[np.ndarray, "layer head"]
    """Mean norm of what a head writes ÷ its layer's mean: in a layer with one large head the others are inactive by
    comparison alone (`written_norm` of `head_scores` is the norm itself)."""
    first_token: Float64[np.ndarray, "layer head"]
    """Mean attention to position 0."""
    threshold: float | int
    """The output norm up to which a head is inactive."""
    first_threshold: float | int
    """The attention to position 0 from which a first-token score would call it so."""

    @property
    def inactive(self) -> Bool[np.ndarray, "layer head"]:
        """Mark the heads whose output norm is at most the threshold."""
        return self.output_norm <= self.threshold

    @property
    def verdict(self) -> np.ndarray:
        """`[layer, head]`: "inactive" or "active", or, if a first-token score says otherwise, "missed" (an inactive
        head below its threshold) or "resting but active"."""
        agrees = self.inactive == (self.first_token >= self.first_threshold)
        return np.select([self.inactive & agrees, agrees, self.inactive], ["inactive", "active", "missed"], RESTING)

    @property
    def headline(self) -> str:
        missed, active = (
            ", ".join(map(head_name, np.argwhere(self.verdict == name).tolist())) or "none"
            for name in ("missed", RESTING)
        )
        return (
            f"{int(self.inactive.sum())} of {self.inactive.size} heads write little compared with their layer; a "
            f"first-token score misses {missed} and takes {active} for such heads"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head: layer, head, output_norm, first_token, verdict."""
        columns = {name: getattr(self, name) for name in ("output_norm", "first_token", "verdict")}
        return table(("layer", "head"), columns)


def inactive_heads(model: Model, tokens: TokenSequences, *, threshold: float = INACTIVE) -> InactiveHeads:
    """Find the heads whose output norm on a text is at most `threshold`, and compare them with those whose attention to
    position 0 reaches the threshold of the motif `first_token`.

    `tokens` are as in `attention_to`. Raises `ValueError` for a negative threshold, for sequences of fewer than 3
    tokens, and as `HeadReader.require_ids`.
    """
    require_between("threshold", threshold, 0)
    reader = HeadReader.of(model, "inactive heads")
    ids = reader.require_ids(tokens, at_least=3)
    return InactiveHeads(
        output_norm=output_norm(ScoreInputs(reader=reader, tokens=ids)).values,
        first_token=attention_to(model, ids, "first_token", intervals=False)["first_token"],
        threshold=threshold,
        first_threshold=MOTIFS["first_token"].threshold,
    )


#: Tokens whose cosines with the whole vocabulary are computed at once.
_TOGETHER = 256


def delimiter(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of attention that goes to delimiters, beside their share of the visible keys."""
    motif = Motif(
        name="delimiter", badge="del", sentence="It attends to delimiters.", mask=of_strings(delimiters), asks=False
    )
    scores = attention_to(inputs.reader.model, inputs.text(), motif, clusters=inputs.clusters)
    return _share(scores, scores.uniform)


@torch.no_grad()
def fuzzy_induction(inputs: ScoreInputs) -> MeasuredScore:
    """Measure attention to what followed a similar token, on random tokens that repeat as similar ones."""
    embedding = inputs.model_with_circuits().W_E.detach()
    drawn = random_repeats(inputs.reader, seed=inputs.seed)
    special = {*inputs.special_ids(), *([] if drawn.start is None else [drawn.start])}
    tokens = drawn.tokens
    again = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).any(-1)
    tokens = torch.where(again, most_similar(embedding, tokens, special), tokens)
    partner = most_similar(embedding, tokens, special)
    alike = (tokens[:, :, None] == partner[:, None, :]) | (partner[:, :, None] == tokens[:, None, :])
    stood = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)[..., 1:].any(-1)
    keys = torch.zeros_like(alike)
    keys[..., 2:] = alike[..., 1:-1] & ~stood[..., None]
    read = dataclasses.replace(Inputs.of(inputs.reader, tokens), marked=keys)
    motif = Motif(
        name="fuzzy_induction", badge="fuz", sentence="It attends to what followed a similar token.",
        mask=lambda rows: rows.targets(rows.need(rows.marked, "pairs")), asks=True,
    )  # fmt: skip
    scores = attention_to(inputs.reader.model, read, motif, others=True)
    return _share(scores, scores.chance)


def _share(scores: MotifScores, chance: Float64[np.ndarray, "motif layer head"] | None) -> MeasuredScore:
    """The score of the one motif of `scores`. Raises `Missing` if it could not be measured."""
    (name,) = scores.motifs
    if reason := scores.reasons.get(name):
        raise Missing(reason)
    assert chance is not None
    n, attends = int(scores.n_queries[0]), scores.above_chance(name)
    return MeasuredScore(values=scores[name], chance=chance[0], n=n, attends=attends)


def most_similar(
    embedding: Float[Tensor, "d_vocab d_model"], tokens: Int64[Tensor, "*batch pos"], special: set[int]
) -> Int64[Tensor, "*batch pos"]:
    """Return the token most similar to each of `tokens`, neither itself nor one of `special`: the largest cosine of
    embeddings less their mean."""
    rows = torch.nn.functional.normalize(embedding.float() - embedding.float().mean(0), dim=1)
    ids, places = tokens.unique(return_inverse=True)
    nearest = []
    for some in ids.to(rows.device).split(_TOGETHER):
        cosines = rows[some] @ rows.T
        cosines[torch.arange(len(some)), some] = -torch.inf
        cosines[:, sorted(special)] = -torch.inf
        nearest.append(cosines.argmax(1).cpu())
    return torch.cat(nearest)[places]


@torch.no_grad()
def positional_share(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of the variance of a head's scores that positions alone explain, key 0 left out."""
    tokens = inputs.text()
    n, n_pos = tokens.shape
    if n < 2:
        raise Missing("it needs at least two sequences: it compares the scores of one with those of another")
    keys = inputs.reader.visible_keys(n_pos).to(inputs.reader.device).clone()
    keys[..., 0] = False
    keys &= keys.sum(-1, keepdim=True) >= 2
    if not keys.any():
        raise Missing("it needs sequences of at least three tokens")
    sums = torch.zeros(*inputs.shape, n_pos, n_pos, dtype=torch.float64)
    squares = torch.zeros(inputs.shape, dtype=torch.float64)
    layers: set[int] = set()

    def add(layer: int, scores: Tensor) -> None:
        layers.add(layer)
        counted = scores.detach().float().masked_fill(~keys, 0.0)
        rest = (counted - counted.sum(-1, keepdim=True) / keys.sum(-1, keepdim=True).clamp(min=1)).cpu().double()
        rest = rest.masked_fill(~keys.cpu(), 0.0)
        sums[layer] += rest.sum(0)
        squares[layer] += rest.square().sum((0, 2, 3))

    for batch in inputs.batches(tokens):
        inputs.reader.listen(batch, lambda layer: hook_names.attn(layer, hook_names.SCORES), add)
    if len(layers) < inputs.shape[0]:
        raise Missing("this model shows no attention scores")
    between = (sums.square().sum((2, 3)) - squares) / (n * (n - 1))
    values = torch.where(squares > 0, between / (squares / n).clamp(min=1e-300), 0.0).numpy()
    return MeasuredScore(values=values, chance=np.zeros(inputs.shape), n=n)


#: The number of lowest logits of a row, among which McDougall et al. (2023) look for its own token.
LOWEST = 10
#: The least number of words whose successor is one token, too.
LEAST_SUCCESSORS = 10
#: Ordinal sequences, and whether the first word follows the last one.
ORDINALS: dict[str, tuple[tuple[str, ...], bool]] = {
    "numbers": (tuple(map(str, range(101))), False),
    "weekdays": (tuple(calendar.day_name), True),
    "months": (tuple(calendar.month_name)[1:], True),
    "large letters": (tuple(string.ascii_uppercase), False),
    "small letters": (tuple(string.ascii_lowercase), False),
}


@torch.no_grad()
def suppressed_share(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of tokens whose own logit is among the lowest of their row of the OV circuit."""
    model = inputs.model_with_circuits()
    n_tokens = inputs.reader.d_vocab
    chance, hits = min(1.0, LOWEST / n_tokens), np.zeros((n_tokens, *inputs.shape))
    for head in np.ndindex(*inputs.shape):
        circuit = ov_circuit(model, head)
        hits[:, *head] = (diagonal_rank(FactoredMatrix(-circuit.A, circuit.B)) < LOWEST).double().cpu().numpy()
    return MeasuredScore(values=hits.mean(0), chance=np.full(inputs.shape, chance), n=n_tokens, excess=hits - chance)


@torch.no_grad()
def successor(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of ordinal words whose successor is the largest logit of their row of the OV circuit."""
    model = inputs.model_with_circuits()
    pairs = torch.tensor(successor_pairs(model), dtype=torch.long).reshape(-1, 2)
    if len(pairs) < LEAST_SUCCESSORS:
        raise Missing(
            f"it needs {LEAST_SUCCESSORS} words of ordinal sequences ({', '.join(ORDINALS)}) that are one token each, "
            f"as their successors are, and the tokenizer has {len(pairs)}"
        )
    chance, hits = 1 / inputs.reader.d_vocab, np.zeros((len(pairs), *inputs.shape))
    for head in np.ndindex(*inputs.shape):
        circuit = ov_circuit(model, head)
        largest = (circuit.A[pairs[:, 0].to(circuit.A.device)] @ circuit.B).argmax(1).cpu()
        hits[:, *head] = (largest == pairs[:, 1]).double().numpy()
    return MeasuredScore(
        values=hits.mean(0), chance=np.full(inputs.shape, chance), n=len(pairs), excess=hits - chance
    )  # fmt: skip


def successor_pairs(model: Any, names: Iterable[str] = ORDINALS) -> list[tuple[int, int]]:
    """List the ids of the words of some ordinal sequences that are one token, each with that of its successor."""
    if model.tokenizer is None:
        return []

    def id_of(text: str) -> int | None:
        try:
            return int(model.to_single_token(text))
        except ValueError:
            return None

    pairs = []
    for words, cyclic in (ORDINALS[name] for name in names):
        for space in ("", " "):
            ids = [id_of(space + word) for word in words]
            following = [*ids[1:], ids[0] if cyclic else None]
            pairs += [(a, b) for a, b in zip(ids, following, strict=True) if a is not None and b is not None]
    return pairs
