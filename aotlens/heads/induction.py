"""The induction circuit of a model, found from its atlas and put to the test: heads that continue what came before.

An induction head attends from the second occurrence of a token to what followed the first, and writes that (Elhage et
al. 2021; Olsson et al. 2022). It can, since its keys read an earlier head that attends to the token before: at the
place that followed the first occurrence, the key then says "the token before me was this one". Five claims follow, each
with a number of its own (`InductionCircuit.checks`):

    1  on random tokens that come twice, the heads are labelled induction (`aotlens.heads.label_rule`)
    2  their keys read an earlier head most beyond flipped signs (`aotlens.circuits.nulls`), and that head attends
       to the token before
    3  the weights match: of W_E W_QK (W_E W_OV of the earlier head)ᵀ, a token's row is highest at that same token
    4  they write what they attend to: tokens → logits is highest at the same token
    5  without either part, what the model gains from the repetition is gone

Claims 1, 2 and 4 are the atlas's; 3 is read from the weights, and 5 from runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits import diagonal_rank, qk_circuit
from aotlens.conventions import IGNORED, Head, HeadLike, as_head, require_shape, require_whole
from aotlens.data import repeated_random_tokens
from aotlens.data.windows import start_id
from aotlens.evaluate import repeat_losses
from aotlens.heads.ablation import Ablation, EachHead, ablate, ablate_each
from aotlens.heads.atlas import Atlas
from aotlens.heads.motifs import MOTIFS
from aotlens.heads.patterns import AttentionPatterns
from aotlens.heads.reader import HeadReader, TokenSequences
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.loss import are_alike, rounding_of
from aotlens.results import Result
from aotlens.statistics import interval_text

if TYPE_CHECKING:
    import pandas as pd

#: The thresholds of claims 2 to 5: standard deviations above flipped signs, shares of tokens, share of the gain.
LEAST_Z, LEAST_MATCHING, LEAST_COPYING, LEAST_LOST = 3.0, 0.5, 0.1, 0.5


class Check(NamedTuple):
    """A claim of an induction circuit and what was measured of it."""

    claim: str
    measured: str
    holds: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class InductionCircuit(Result):
    """Induction heads, the heads that their keys read, and what is gone without them."""

    model: str
    heads: tuple[Head, ...]
    """All behind the first layer that the atlas labels induction."""
    induction: Float64[np.ndarray, " head"]
    """The induction score."""
    previous: tuple[Head, ...]
    """The earlier head, for each, that its keys read most beyond flipped signs."""
    z: Float64[np.ndarray, " head"]
    """The number of standard deviations by which they read it so."""
    previous_token: Float64[np.ndarray, " head"]
    """The attention of that head to the token before, on the atlas's text."""
    matching: Float64[np.ndarray, " head"]
    """Share of tokens whose row of the QK circuit, keys through that head, is highest at the same token."""
    directly: Float64[np.ndarray, " head"]
    """Share of tokens whose row of the head's own QK circuit, keys the tokens themselves, is highest at the same token:
    what the circuit would be without the earlier head."""
    copying: Float64[np.ndarray, " head"]
    """Share of tokens that raise their own logit most through the head."""
    first_half: float
    """Loss on random tokens, nats."""
    each: EachHead
    """The loss on the same tokens when they repeat, and without each head of the model alone."""
    without_heads: Ablation
    """The loss on the repeated tokens without all of `heads`."""
    without_previous: Ablation
    """The loss on the repeated tokens without all of `previous`."""
    threshold: float = MOTIFS["induction"].threshold
    """The induction score that claim 1 asks for."""
    own_sequences: bool = False
    """Whether scores and losses are on sequences that the caller gave, and not on random tokens."""
    gains: bool = True
    """Whether `gain` is more than the rounding of logits in the model's type."""

    @property
    def clearest(self) -> int:
        """The place among `heads` of the one with the highest induction score."""
        return int(self.induction.argmax())

    @property
    def gain(self) -> float:
        """The model's gain from the repetition: loss on the first half less that on the second, nats."""
        return self.first_half - self.without_heads.clean_mean

    def lost(self, without: Ablation) -> float:
        """Return the share of `gain` that is gone without some heads; NaN if there is no gain but rounding."""
        return without.change / self.gain if self.gains else np.nan

    @property
    def checks(self) -> tuple[Check, ...]:
        """The five claims in order, and whether each holds of every head."""
        threshold = self.threshold
        where = "the given sequences" if self.own_sequences else "random tokens that come twice"
        parts = (self.without_heads, self.without_previous)
        low = min(without.interval()[0] for without in parts)
        lost = [self.lost(without) for without in parts]
        share = f"{lost[0]:.0%} and {lost[1]:.0%} of {self.gain:.2f} nats" if self.gains else "no gain but rounding"
        earlier = ", ".join(sorted({_name(head) for head in self.previous}))
        return (
            Check(
                f"On {where} they attend to what followed the first occurrence.",
                f"{_range(self.induction)} (at least {threshold})", bool((self.induction >= threshold).all()),
            ),
            Check(
                f"Their keys read {earlier} most, which attends to the token before.",
                f"z = {_range(self.z, '.0f')} (at least {LEAST_Z:.0f}); attention to the token before "
                f"{_range(self.previous_token)} (at least {MOTIFS['previous_token'].threshold})",
                bool((self.z >= LEAST_Z).all() and (self.previous_token >= MOTIFS["previous_token"].threshold).all()),
            ),
            Check(
                "In the weights, a query looks for keys whose token before is its own.",
                f"{_range(self.matching, '.1%')} of tokens (at least {LEAST_MATCHING:.0%}; without the earlier head "
                f"{_range(self.directly, '.1%')})", bool((self.matching >= LEAST_MATCHING).all()),
            ),
            Check(
                "They write the token that they attend to.",
                f"{_range(self.copying, '.1%')} of tokens raise their own logit most (at least {LEAST_COPYING:.0%})",
                bool((self.copying >= LEAST_COPYING).all()),
            ),
            Check(
                "Without them, or without what their keys read, the gain from the repetition is gone.",
                f"{share} (at least {LEAST_LOST:.0%})", self.gains and low > 0 and min(lost) >= LEAST_LOST,
            ),
        )  # fmt: skip

    @property
    def verdict(self) -> str:
        """The findings, in a sentence with its numbers."""
        heads, earlier = ", ".join(map(_name, self.heads)), ", ".join(sorted({_name(head) for head in self.previous}))
        failed = [place for place, check in enumerate(self.checks, start=1) if not check.holds]
        is_it = "is an induction circuit" if not failed else f"is no induction circuit by claim {_listed(failed)}"
        interval, clean = interval_text(self.without_heads.interval(), ".2f", ""), self.without_heads.clean_mean
        on = "tokens of the given sequences" if self.own_sequences else "random tokens"
        return (
            f"{earlier} → {heads} of {self.model} {is_it}: on {on} that repeat the loss is {clean:.2f} "
            f"nats, after {self.first_half:.2f} at first; without {heads} it rises by "
            f"{self.without_heads.change:.2f}{interval}, without {earlier} by {self.without_previous.change:.2f}."
        )

    @property
    def headline(self) -> str:
        return self.verdict

    def to_frame(self) -> pd.DataFrame:
        """Return one row an induction head: layer, head, induction, previous, z, previous_token, matching, directly,
        copying, and what is lost without it alone."""
        import pandas as pd

        layers, heads = np.array(self.heads).T
        columns = {"layer": layers, "head": heads, "induction": self.induction}
        columns |= {"previous": list(map(_name, self.previous)), "z": self.z, "previous_token": self.previous_token}
        columns |= {"matching": self.matching, "directly": self.directly, "copying": self.copying}
        alone = self.each.changes[[self.each.heads.index(head) for head in self.heads]]
        columns |= {"lost_alone": alone / (self.gain if self.gains else np.nan)}
        return pd.DataFrame(columns)


def induction_pairs(atlas: Atlas) -> tuple[tuple[Head, Head, float], ...]:
    """List the induction heads of an atlas, each with the earlier head that its keys read most, and by how many
    standard deviations beyond flipped signs: claims 1 and 2 of `induction_circuit`, which puts all five to the test.

    Raises `ValueError` for an atlas without composition, and if it labels no head behind the first layer induction.
    """
    if "k" not in atlas.composition_z:
        raise ValueError(f"expected an atlas with circuits, got {atlas.missing.get('circuits', 'one without')}.")
    labels = atlas.labels
    heads = [head for head in atlas.heads if head[0] and labels.names[head[0]][head[1]] == "induction"]
    if not heads:
        scores = atlas.motifs if atlas.own_sequences else atlas.random
        threshold = MOTIFS["induction"].threshold if atlas.threshold is None else atlas.threshold
        known = "induction" in scores.motifs and "induction" not in scores.reasons
        highest = (
            f"the highest score is {np.nanmax(scores['induction'][1:], initial=0):.2f}" if known else "none is known"
        )
        raise ValueError(
            f"no head of {atlas.model} behind the first layer is labelled induction, with an induction score of "
            f"{threshold} or more that is above chance and due to the query's token; {highest}."
        )
    pairs = []
    for layer, number in heads:
        above = np.nan_to_num(atlas.composition_z["k"][:layer, :, layer, number], nan=-np.inf)
        place = np.unravel_index(int(above.argmax()), above.shape)
        pairs.append(((layer, number), (int(place[0]), int(place[1])), float(above[place])))
    return tuple(pairs)


@torch.no_grad()
def induction_circuit(
    model: AttentionOnlyTransformer,
    atlas: Atlas,
    tokens: TokenSequences | None = None,
    *,
    targets: Tensor | None = None,
    threshold: float | None = None,
    how: str = "position_mean",
    n_sequences: int = 16,
    half_length: int = 50,
    seed: int = 0,
) -> InductionCircuit:
    """Find the induction heads of `model` in its `atlas`, and measure the five claims above.

    The heads are those that the atlas labels induction, with `threshold` in place of its own if it is given. Losses are
    on `n_sequences` of the start token and twice the same `half_length` random tokens (fewer where the context is
    shorter), the second half's from its second token on; or on sequences of the caller's own, ids `tokens`
    `[sequence, pos]`: on `targets` `[sequence, pos]`, as in `ablate` (−100 is ignored), and without them on the next
    tokens that followed an earlier occurrence of the query's token, next to all other next tokens as the first half.
    Heads are replaced as by `how` of `ablate`. Time: a product of vocabulary × vocabulary a head, and one run of
    `ablate_each`.

    Raises `ValueError` for an atlas of another shape or without circuits, if no head behind the first layer is labelled
    induction, for `targets` without `tokens`, and for sequences of which nothing can be known or everything.
    """
    require_whole("n_sequences", n_sequences, 1)
    require_ours(model, "induction_circuit")
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    if atlas.entropy.shape != shape:
        raise ValueError(f"expected an atlas of {shape[0]} × {shape[1]} heads, got one of {atlas.entropy.shape}.")
    copying = atlas.copying
    if copying is None or model.sees_later_keys:
        why = atlas.missing.get("circuits", "the model sees later tokens")
        raise ValueError(f"expected an atlas with circuits of a model that writes next tokens, got {why}.")
    if threshold is not None:
        atlas = replace(atlas, threshold=threshold)
    heads, previous, z = zip(*induction_pairs(atlas), strict=True)
    labels = atlas.labels
    if tokens is None:
        if targets is not None:
            raise ValueError("targets: expected tokens with them, the sequences whose labels they are; got none.")
        length = min(half_length, (model.cfg.shortest_window - 1) // 2)
        assert model.cfg.d_vocab is not None
        ids = repeated_random_tokens(
            model.cfg.d_vocab, n_sequences, length, seed, eot_id=start_id(model.tokenizer) or 0
        )
        again = torch.full_like(ids, IGNORED)
        again[:, length + 1 : -1] = ids[:, length + 2 :]
        first_half = repeat_losses(model, half_length=length, n_sequences=n_sequences, seed=seed).first_half
    else:
        ids = HeadReader.of(model, "induction_circuit").require_ids(tokens, at_least=3)
        again = known_next_tokens(ids) if targets is None else targets.cpu()
        first_half = _loss_elsewhere(model, ids, again)
    ids, again = ids.to(model.device), again.to(model.device)
    without = [ablate(model, ids, some, how, targets=again, seed=seed) for some in (heads, sorted(set(previous)))]
    return InductionCircuit(
        model=atlas.model,
        heads=tuple(heads),
        induction=np.array([labels.source(head)["induction"][head] for head in heads]),
        previous=tuple(previous),
        z=np.array(z),
        previous_token=np.array([atlas.motifs["previous_token"][head] for head in previous]),
        matching=np.array([_diagonal(model, *pair) for pair in zip(heads, previous, strict=True)]),
        directly=np.array([_diagonal(model, head, None) for head in heads]),
        copying=np.array([copying[head] for head in heads]),
        first_half=first_half,
        each=ablate_each(model, ids, how, targets=again, seed=seed),
        without_heads=without[0],
        without_previous=without[1],
        threshold=MOTIFS["induction"].threshold if atlas.threshold is None else atlas.threshold,
        own_sequences=tokens is not None,
        gains=_differ(model, ids, again, first_half, without[0].clean_mean),
    )


def known_next_tokens(ids: Int64[Tensor, "batch pos"]) -> Int64[Tensor, "batch pos"]:
    """Return as targets the next tokens that followed an earlier occurrence of the query's token; −100 elsewhere."""
    same = (ids[:, :, None] == ids[:, None, :]).tril(-1)  # [batch, query, earlier]
    followed = same[:, :-1, :-1] & same[:, 1:, 1:]
    targets = torch.full_like(ids, IGNORED)
    targets[:, :-1] = torch.where(followed.any(-1), ids[:, 1:], IGNORED)
    return targets


def _loss_elsewhere(
    model: AttentionOnlyTransformer, ids: Int64[Tensor, "batch pos"], again: Int64[Tensor, "batch pos"]
) -> float:
    """Return the mean loss of the next tokens that are no targets, in nats."""
    require_shape("targets", again, ids.shape)
    rest = again[:, :-1] == IGNORED
    if not rest.any() or bool((again == IGNORED).all()):
        raise ValueError("targets: expected some next tokens to be targets and some not, so that they can be compared.")
    losses = torch.cat([model.loss_per_token(part.to(model.device)).cpu().double() for part in ids.split(8)])
    return float(losses[rest].mean())


def _differ(
    model: AttentionOnlyTransformer,
    ids: Int64[Tensor, "batch pos"],
    again: Int64[Tensor, "batch pos"],
    first_half: float,
    second_half: float,
) -> bool:
    """Return whether two losses, the second one that of `again`, differ by more than the rounding of logits."""
    rounding = []
    for part, targets in zip(ids.split(8), again.split(8), strict=True):

        def loss(logits: Tensor, targets: Tensor = targets) -> Tensor:
            nats = torch.nn.functional.cross_entropy(
                logits.double().transpose(1, 2), targets, ignore_index=IGNORED, reduction="none"
            )
            return nats.sum(1) / (targets != IGNORED).sum(1).clamp(min=1)

        rounding.append(rounding_of(loss, model(part), model.dtype))
    return not are_alike(np.array([[first_half, second_half]]), np.concatenate(rounding), model.dtype)


def _diagonal(model: AttentionOnlyTransformer, head: Head, through: Head | None) -> float:
    """Return the share of tokens that are the best source of their own row."""
    circuit = qk_circuit(model, head, "tokens", "tokens" if through is None else _name(through))
    return float((diagonal_rank(circuit) == 0).double().mean())


def _name(head: Head) -> str:
    return f"{head[0]}.{head[1]}"


def _range(values: Float64[np.ndarray, " head"], form: str = ".2f") -> str:
    low, high = format(values.min(), form), format(values.max(), form)
    return low if low == high else f"{low} to {high}"


def _listed(places: list[int]) -> str:
    return " and ".join(map(str, places))


def strongest_repeat(patterns: AttentionPatterns, head: HeadLike) -> tuple[int, int, float]:
    """Find where on a prompt a head does induction most: the query, the key behind an earlier occurrence of its token,
    and the attention between them. Raises `ValueError` for a text in which no token comes twice."""
    layer, number = as_head(head)
    tokens = np.asarray(patterns.tokens)
    same = np.tril(tokens[:, None] == tokens[None], -1)  # [query, earlier]
    behind = np.zeros_like(same)
    behind[:, 1:] = same[:, :-1]
    behind &= np.tri(len(tokens), k=-1, dtype=bool)
    behind[:, :2] = False
    if not behind.any():
        raise ValueError("no token of this text comes twice, with another one between.")
    attention = np.where(behind, np.asarray(patterns.pattern[layer, number]), -1.0)
    query, key = np.unravel_index(int(attention.argmax()), attention.shape)
    return int(query), int(key), float(attention[query, key])
