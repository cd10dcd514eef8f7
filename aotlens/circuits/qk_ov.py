"""A head's QK circuit, what it looks for, and its OV circuit, what it writes (Elhage et al. 2021; *structures* §5).

    QK [destination, source] = s · left W_Q (right W_K)ᵀ    nats: the score of a destination for a source, before φ
    OV [source, out]         = left W_V W_O right           logits: what attending to a source adds to each output

`left` and `right` are whatever the head can read or reach: tokens, positions, biases, directions of the residual
stream, the positions of a prompt, an earlier head's output, a later head's input. s is the model's scale of scores.
See `aotlens.circuits.sides` for norms, scales and biases, and `aotlens.conventions` for the papers' transposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, overload

import torch

from aotlens.circuits.circuit import Circuit, Side
from aotlens.circuits.distance import CAPPED, DYNAMIC, MEAN, checked_distance, rotation_at, turned
from aotlens.circuits.family import CircuitFamily, at_distance, checked_distances
from aotlens.circuits.sides import Frozen, Reading, ReadSpec, SideSpec, as_side, output_norm_reasons, read_side
from aotlens.conventions import Head, HeadLike, as_head
from aotlens.models import AttentionOnlyTransformer, folded_norm, folded_output_norm, require_ours, widened


@overload
def qk_circuit(
    model: AttentionOnlyTransformer, head: HeadLike, left: SideSpec = "tokens", right: SideSpec = "tokens", *,
    frozen: Frozen = None, biases: bool = False, distance: int | None = None,
) -> Circuit: ...  # fmt: skip


@overload
def qk_circuit(
    model: AttentionOnlyTransformer, head: HeadLike, left: SideSpec = "tokens", right: SideSpec = "tokens", *,
    frozen: Frozen = None, biases: bool = False, distance: Sequence[int],
) -> CircuitFamily: ...  # fmt: skip


@torch.no_grad()
def qk_circuit(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    left: SideSpec = "tokens",
    right: SideSpec = "tokens",
    *,
    frozen: Frozen = None,
    biases: bool = False,
    distance: int | Sequence[int] | None = None,
) -> Circuit | CircuitFamily:
    """Return s · left W_Q (right W_K)ᵀ of `head`, (1, 0) or "1.0", as a factored `[destination, source]` matrix in
    nats.

    `left` (destinations) and `right` (sources) each are one of

        "tokens"      a row a token of the vocabulary
        "positions"   a row a position of the context, learned or in queries and keys only; learned ones behind a norm
                      need `frozen` to be on one scale with tokens, and are then the prompt's positions
        "bias"        one row: b_Q or b_K, and the norm's bias through W_Q or W_K
        "residual"    a row a direction of the (centred) residual stream
        "prompt"      a row a position of a prompt; needs `frozen`, its cache, and takes the scales from it
        (l, h), "l.h" a row a token, as the earlier head l.h writes it: what this head looks for in what l.h moved
        ("positions", "l.h")  a row a learned position, as the earlier head writes it; divided as "positions" are by the
                      earlier norm's scale, and by 1 at the later norm

    A score is bilinear, so the circuits of all pairs of sides add up to it: with the cache of a prompt,
    prompt×prompt + prompt×bias + bias×prompt + bias×bias (and the same with positions where they are added to queries
    and keys only) is `hook_attn_scores`, before masking. `biases=True` adds the bias row to every row of both sides, so
    that tokens×tokens is the whole score of one token for another.

    `.exact` says whether an entry is a term of the model's own scores on any input; `.relative` why not: a scale that
    depends on the input, or an MLP of an earlier layer, which has read what is in the stream and added what no circuit
    of heads shows. "prompt" has both as they were on the prompt and is exact. An MSSA head's circuit is symmetric
    positive semidefinite where both sides are the same.

    Where scores depend on the distance δ from source to destination, `distance` chooses it. With rotary positions the
    circuit is then s · left W_Q R_δ (right W_K)ᵀ; without `distance` it is the mean over the distances of a whole
    context, and says so in `.relative`, except that prompt×prompt has the distances of the prompt (biases belong
    inside: `biases=True`). With ALiBi −slope · δ is part of the circuit with `distance`, and is left out
    without. Several distances, as `range(64)`, give a `CircuitFamily`, whose `top` is exact over all of them.

    A model in half precision is widened to float32 before anything is multiplied; so it is in `ov_circuit`.

    Memory: d_head numbers a row. Raises `ValueError` for a head or side that the model does not have, for a model
    with `phi="fixed"`, for "prompt" without `frozen`, and for a `distance` that the model's scores do not depend on.
    """
    require_ours(model, "qk_circuit", without=("norm_after", "clip_qkv"))
    head = as_head(head, model.cfg)
    cfg = model.cfg.at_layer(head[0])
    several = checked_distances(cfg, distance) if isinstance(distance, Sequence) else None
    single = checked_distance(cfg, several[0] if several else distance)
    left, right = as_side(model, left), as_side(model, right)
    queries = read_side(model, head, "Q", left, frozen)
    keys = read_side(model, head, "K", right, frozen)
    same = cfg.attention == "mssa" and left == right and cfg.score_scale > 0
    beside = [DYNAMIC] if cfg.rotary is not None and cfg.rotary.scaling == "dynamic" else []
    beside += [] if cfg.score_cap is None else [CAPPED.format(cfg.score_cap)]
    content = Circuit(
        _with_bias(model, head, "Q", queries, biases) * cfg.score_scale,
        _with_bias(model, head, "K", keys, biases).T,
        kind="qk",
        heads=[head],
        left=queries.side,
        right=keys.side,
        reasons=(*queries.reasons, *keys.reasons, *beside),
        tokenizer=model.tokenizer,
        psd_because="MSSA has one matrix for queries and keys, and both sides are the same." if same else "",
    )
    if several is not None:
        return CircuitFamily(content, cfg, several)
    return _placed(model, content, single, on_prompt=(left, right) == ("prompt", "prompt"))


def _placed(model: AttentionOnlyTransformer, content: Circuit, distance: int | None, *, on_prompt: bool) -> Circuit:
    """The circuit at a distance, on the prompt's own distances, or averaged over those of a whole context."""
    layer = content.heads[0][0]
    cfg = model.cfg.at_layer(layer)
    if not cfg.position_kind.rotates:
        return content if distance is None else at_distance(content, cfg, distance)
    if distance is None and on_prompt:
        order = model.order(content.ldim, layer)
        A, B = (order.rotated(rows[None, :, None])[0, :, 0] for rows in (content.A, content.B.T))
        return content.with_factors(A, B.T)
    if distance is not None:
        return content if distance == 0 else at_distance(content, cfg, distance)
    return content.with_factors(turned(content.A, rotation_at(cfg, None)), content.B, [MEAN])


@torch.no_grad()
def ov_circuit(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    left: SideSpec = "tokens",
    right: SideSpec = "logits",
    *,
    frozen: Frozen = None,
) -> Circuit:
    """Return left W_V W_O right of `head` as a factored `[source, out]` matrix, in logits.

    `left` (sources) is as in `qk_circuit`: tokens, positions, bias, residual, prompt, or an earlier head (its output
    moved once more, the virtual head of the two). `right` is

        "logits"      through the final norm's gain and the unembedding; the final norm's scale is 1
        (l, h), "l.h" the same, after the later head l.h has moved it once more
        "residual"    what is written to the residual stream, as it is: `[source, d_model]`

    b_O belongs to no head, and a norm's bias or b_V is the "bias" side: its one row times the pattern's row sums is
    what a head writes whatever it attends to. `.exact`, `.relative` as in `qk_circuit`: with a final norm, logits are
    relative, since its scale depends on the input, and in a model with MLPs, since those read what the head writes.

    Memory: d_head numbers a row and a column. Raises `ValueError` for a head or side that the model does not have, for
    positions that enter only queries and keys, and for a model that writes no logits.
    """
    require_ours(model, "ov_circuit", without=("norm_after", "clip_qkv"))
    head = as_head(head, model.cfg)
    left, right = as_side(model, left), cast(str | Head, as_side(model, right, ("logits", "residual")))
    values = read_side(model, head, "V", left, frozen)
    out, side, reasons = _output(model, head, right)
    return Circuit(
        values.rows,
        out,
        kind="ov",
        heads=[head],
        left=values.side,
        right=side,
        reasons=(*values.reasons, *reasons),
        tokenizer=model.tokenizer,
        psd_because=_tied_because(model, head[0], left, right),
    )


def _with_bias(
    model: AttentionOnlyTransformer, head: Head, matrix: str, reading: Reading, biases: bool
) -> torch.Tensor:
    if not biases or reading.side.name == "bias":
        return reading.rows
    assert matrix in ("Q", "K")
    return reading.rows + read_side(model, head, "Q" if matrix == "Q" else "K", "bias", None).rows


def _output(model: AttentionOnlyTransformer, head: Head, right: str | Head) -> tuple[torch.Tensor, Side, list[str]]:
    """The right factor `[d_head, out]`, what its columns are, and what is relative about it."""
    weight = folded_output_norm(model, head[0]).after(widened(model.of_head("W_O", head)))
    reasons = output_norm_reasons(model, head)
    if right == "residual":
        return weight, Side(name="residual", index="direction"), reasons
    if model.cfg.read_out == "vectors":
        raise ValueError(f"right={right!r}: this model writes vectors, not logits; use right='residual'.")
    index: Literal["class", "token"] = "class" if model.cfg.read_out == "classes" else "token"
    if model.cfg.has_final_norm:
        reasons.append("logits: the final norm divides by the stream's scale; here by 1.")
    if model.cfg.logit_cap is not None:
        reasons.append(f"logits: before their soft cap, c · tanh(logit / c) with c = {model.cfg.logit_cap:g}.")
    if index == "class" and model.cfg.pooling == "mean":
        reasons.append(
            "logits: classes are read from the mean over positions; here a position counts as if it were alone."
        )
    if not model.cfg.attn_only:
        reasons.append(
            f"logits: the MLPs from layer {head[0]} on read what the head writes; what they add is left out."
        )
    logits = folded_norm(model, None).into(widened(model.W_U))
    if isinstance(right, str):
        return weight @ logits, Side(name="logits", index=index), reasons
    if right[0] <= head[0]:
        raise ValueError(
            f"right={right}: expected a head of a layer after {head[0]}, since only those read what this one writes; "
            f"got layer {right[0]}."
        )
    values, out = (widened(model.of_head(name, right)) for name in ("W_V", "W_O"))
    out = folded_output_norm(model, right[0]).after(out)
    reasons += output_norm_reasons(model, right)
    moved = weight @ folded_norm(model, right[0]).into(values) @ out
    return moved @ logits, Side(name="head", index=index, through=right), reasons


def _tied_because(model: AttentionOnlyTransformer, layer: int, left: ReadSpec, right: str | Head) -> str:
    """Return why the circuit is similar to a positive semidefinite matrix whatever the weights, or nothing."""
    cfg = model.cfg
    if not cfg.tied_output or cfg.step_size <= 0:
        return ""
    if (left, right) == ("residual", "residual"):
        if not cfg.norm:
            return "a tied output makes W_V W_O = η U Uᵀ."
        # D P has the eigenvalues of √D P √D for a diagonal D ≥ 0.
        # Named by layer: a sum over layers with different D is not such a product.
        because = f"a tied output makes W_V W_O = η U Uᵀ, and no gain of layer {layer} is negative."
        return because if bool((folded_norm(model, layer).gain >= 0).all()) else ""
    if (left, right) == ("tokens", "logits") and cfg.tied_embeddings and not cfg.norm:
        return "a tied output and a tied unembedding without a norm make the circuit η W_E U Uᵀ W_Eᵀ."
    return ""
