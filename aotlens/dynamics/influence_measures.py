"""Measures of a model that have a derivative with respect to its weights, by name.

    loss                    mean loss of the next token on 16 held-out windows of the run's text, nats
    repeated_loss           that of random tokens that come twice, the second time
    repeated_text_loss      that of held-out text that comes twice, the second time
    MOTIF L.H               mean attention of a head to a motif's keys on repeated random tokens (`motif_scores`)
    copying L.H             Σ Re λ ÷ Σ |λ| of the OV circuit's eigenvalues (`aotlens.circuits.spectrum`)
    ov_norm L.H             ‖W_V W_O‖ of a head, Frobenius
    qk_norm L.H             ‖W_Q W_Kᵀ‖
    k_composition L.H L.H   ‖W_O W_K‖ composition of an earlier head and a later one's keys (also q_, v_)

A larger loss is worse; for all others, higher is better. Custom measures with the word "loss" in their names are
losses.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from aotlens.conventions import Head, as_head, head_name
from aotlens.data import repeated_random_tokens, validation_windows
from aotlens.data.sampler import repeated_targets
from aotlens.data.windows import start_id
from aotlens.dynamics.recipe_run import RecipeRun
from aotlens.heads.inputs import Inputs
from aotlens.heads.motifs import MOTIFS
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.models.folding import folded_norm

#: A differentiable number of a model.
Measure: TypeAlias = Callable[[AttentionOnlyTransformer], Tensor]

_N_SEQUENCES, _HALF_LENGTH = 16, 50  # of random tokens, as `motif_scores`
_N_WINDOWS, _LENGTH = 16, 256  # of held-out text


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedMeasure:
    """A measure that its name says: `spec`."""

    spec: str
    function: Measure

    def __call__(self, model: AttentionOnlyTransformer) -> Tensor:
        return self.function(model)


def as_measures(measures: Mapping[str, Measure] | Sequence[str], run: RecipeRun) -> dict[str, Measure]:
    """Return measures by name. Raises `ValueError` for none and for a name that is unknown or names no head of the
    model."""
    if isinstance(measures, str):
        measures = [measures]
    functions: dict[str, Measure] = {}
    if isinstance(measures, Mapping):
        functions = dict(measures)
    else:
        for spec in measures:
            measure = _measure(spec, run)
            functions[measure.spec] = measure
    if not functions:
        raise ValueError(f"measures: expected at least one, such as {', '.join(_known()[:3])}; got none.")
    return functions


def is_loss(name: str) -> bool:
    """Return whether a smaller value of the measure is a better one: where "loss" is a word of its name."""
    return "loss" in re.split(r"[\W_]+", name.lower())


def _measure(spec: str, run: RecipeRun) -> NamedMeasure:
    cfg = run.recipe.model_config(run.objective.data.tokenizer.d_vocab)
    name, *heads = spec.split()
    n_heads = 0 if name in _LOSSES else 2 if name in _COMPOSED else 1
    known = name in _LOSSES or name in _OF_WEIGHTS or name in _COMPOSED or name in _motifs()
    if not known or len(heads) != n_heads:
        raise ValueError(f"measure {spec!r}: expected one of {'; '.join(_known())} (L.H: layer.head).")
    pair = tuple(as_head(head, cfg) for head in heads)
    spec = " ".join([name, *map(head_name, pair)])
    if name in _LOSSES:
        return NamedMeasure(spec=spec, function=_LOSSES[name](run))
    if name in _OF_WEIGHTS:
        of_weights, (own,) = _OF_WEIGHTS[name], pair
        return NamedMeasure(spec=spec, function=lambda model: of_weights(model, own))
    if name in _COMPOSED:
        earlier, later = pair
        if earlier[0] >= later[0]:
            raise ValueError(f"measure {spec!r}: expected an earlier layer's head, then a later one's.")
        weight = _COMPOSED[name]
        if weight != "W_V" and (cfg.positions == "rotary" or cfg.qk_norm is not None):
            raise ValueError(f"measure {spec!r}: not of queries and keys that are rotated or have a norm of their own.")
        return NamedMeasure(spec=spec, function=lambda model: _composition(model, weight, earlier, later))
    return NamedMeasure(spec=spec, function=_motif_score(name, pair[0], run))


def _loss(run: RecipeRun) -> Measure:
    n_ctx = run.recipe.model_config(run.objective.data.tokenizer.d_vocab).n_ctx
    windows = validation_windows(run.objective.data.validation, min(_LENGTH, n_ctx), max_windows=_N_WINDOWS)
    return lambda model: _losses(model, windows).mean()


def _losses(model: AttentionOnlyTransformer, tokens: Tensor) -> Tensor:
    """Return the loss of each next token, without the label smoothing that training may have."""
    losses: Tensor = model(tokens, return_type="loss", loss_per_token=True)
    return losses


def _repeated_loss(run: RecipeRun) -> Measure:
    return _second_loss(_random_tokens(run, distances=False))


def _repeated_text_loss(run: RecipeRun) -> Measure:
    first = validation_windows(run.objective.data.validation, _half_length(run) + 1, max_windows=4 * _N_WINDOWS)
    return _second_loss(torch.cat([first, first[:, 1:]], dim=1))


def _second_loss(tokens: Tensor) -> Measure:
    """The loss of what stands there the second time, but for its first token, which nothing foretells."""
    known = repeated_targets(tokens, (tokens.shape[1] - 1) // 2)[:, :-1] >= 0
    return lambda model: _losses(model, tokens)[known].mean()


def _motif_score(name: str, head: Head, run: RecipeRun) -> Measure:
    tokens = _random_tokens(run, distances=True)
    targets = MOTIFS[name].targets(Inputs(tokens=tokens))
    assert targets is not None
    layer, number = head
    keys, n_queries = targets.keys & targets.queries[..., None], int(targets.queries.sum())

    def measure(model: AttentionOnlyTransformer) -> Tensor:
        patterns: list[Tensor] = []
        point = hook_names.attn(layer, hook_names.PATTERN)
        model.run_with_hooks(
            tokens,
            return_type=None,
            fwd_hooks=[(point, lambda pattern, hook: patterns.append(pattern))],
        )
        return (patterns[0][:, number] * keys).sum() / n_queries

    return measure


def _half_length(run: RecipeRun) -> int:
    """Tokens before they repeat."""
    n_ctx = run.recipe.model_config(run.objective.data.tokenizer.d_vocab).n_ctx
    return min(_HALF_LENGTH, (n_ctx - 1) // 2)


def _random_tokens(run: RecipeRun, *, distances: bool) -> Tensor:
    tokenizer = run.objective.data.tokenizer
    start = start_id(tokenizer) or 0
    return repeated_random_tokens(
        tokenizer.d_vocab, _N_SEQUENCES, _half_length(run), 0, eot_id=start, distances=distances
    )


def _copying(model: AttentionOnlyTransformer, head: Head) -> Tensor:
    before, after = folded_norm(model, head[0]), folded_norm(model, None)  # whose gains have no gradient
    if before.eps is not None:
        norm: Any = model.blocks[head[0]].ln1
        before = dataclasses.replace(before, gain=norm.gain)
    if after.eps is not None:
        norm = model.ln_final
        after = dataclasses.replace(after, gain=norm.gain)
    read = before.read(model.W_E, before.scale(model.W_E)) @ model.W_V[head]
    small = model.W_O[head] @ after.into(model.W_U) @ read
    eigenvalues = torch.linalg.eigvals(small)
    return eigenvalues.real.sum() / eigenvalues.abs().sum()


def _norm(left: Tensor, right: Tensor) -> Tensor:
    """‖A B‖, Frobenius, by the smaller products: tr(AᵀA BBᵀ)."""
    return ((left.mT @ left) * (right @ right.mT).mT).sum().sqrt()


def _ov_norm(model: AttentionOnlyTransformer, head: Head) -> Tensor:
    return _norm(model.W_V[head], model.W_O[head])


def _qk_norm(model: AttentionOnlyTransformer, head: Head) -> Tensor:
    return _norm(model.W_Q[head], model.W_K[head].mT)


def _composition(model: AttentionOnlyTransformer, weight: str, earlier: Head, later: Head) -> Tensor:
    left_in, left_out = model.W_V[earlier], model.W_O[earlier]
    if weight == "W_V":
        right_in, right_out = model.W_V[later], model.W_O[later]
    else:
        other = "W_K" if weight == "W_Q" else "W_Q"
        right_in, right_out = getattr(model, weight)[later], getattr(model, other)[later].mT
    product = _norm(left_in @ (left_out @ right_in), right_out)
    return product / (_norm(left_in, left_out) * _norm(right_in, right_out))


_LOSSES: dict[str, Callable[[RecipeRun], Measure]] = {
    "loss": _loss,
    "repeated_loss": _repeated_loss,
    "repeated_text_loss": _repeated_text_loss,
}
_OF_WEIGHTS: dict[str, Callable[[AttentionOnlyTransformer, Head], Tensor]] = {
    "copying": _copying,
    "ov_norm": _ov_norm,
    "qk_norm": _qk_norm,
}
_COMPOSED = {"q_composition": "W_Q", "k_composition": "W_K", "v_composition": "W_V"}


def _motifs() -> tuple[str, ...]:
    """List the motifs with keys that random tokens have."""
    return tuple(
        name
        for name, motif in MOTIFS.items()
        if (motif.mask or motif.classes) and not motif.on_text and motif.reads == ("tokens",)
    )


def _known() -> list[str]:
    of_one_head = [f"{name} L.H" for name in (*_OF_WEIGHTS, *_motifs())]
    return [*_LOSSES, *of_one_head, *(f"{name} L.H L.H" for name in _COMPOSED)]
