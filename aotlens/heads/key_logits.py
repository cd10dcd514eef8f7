"""The measures of declared scores in logits and probabilities: anti-induction, copy suppression, name movers, function
vectors.

With frozen patterns and norms, a head of layer l at query i adds to the logit of token t, through key j,

    c(i, j, t) = A(i, j) · v_j W_O Ũ_t ÷ s_i        logits;  v_j = x_j W_V + b_V,  s_i the final norm's scale

where Ũ is the unembedding with the final norm's gain and centring folded in, less its mean over the vocabulary, so that
a change of all logits alike is none. This is the direct path alone, without what later layers make of it.

    anti-induction     −(1/n) Σ_i Σ_{j ∈ T(i)} c(i, j, t_j)      on random tokens that repeat; T: `induction`'s keys
    copy suppression   −(1/n) Σ_i Σ_{j: t_j = u_i} c(i, j, t_j)  on a text
    name mover         mean_p Σ_{k ∈ K} c(n, k, a) − c(n, k, w)  on pairs of prompts; below 0 a negative name mover

Olsson et al. (2022, appendix) call heads that attend as induction heads do and lower what they attend to anti-copying
prefix-search heads; McDougall et al. (2310.04625) take them for a case of copy suppression, in which a head lowers a
token of the context that is predicted in front of it. u_i is that token: the one of the context (position 1 to i, no
special one) that the stream in front of the head's layer predicts most, by the logit lens. Queries count where it is
among the `MOST_LIKELY` likeliest of the vocabulary. McDougall et al. instead ablate all else of one head, keeping at
each query the 5% of its context's tokens that are predicted most, and score the KL divergence that is left (§3.3).

A name mover (Wang et al. 2211.00593, §3.1) attends from the end n of a prompt to the positions K of the answer a and
raises it over the wrong answer w. With all keys in place of K the mean is λ of their Eq. (1), after which they look at
the attention. Here only what goes through the answer's own keys counts. Their copy score, how often a name is among the
five largest logits of its row of the OV circuit, is of weights, and not in it.

Chance is the same sum with the logit of another token of the sequence in place of t_j (of another pair's answers in
place of a and w), the mean over all of them: what the same attention and values do to tokens that they are not about. A
strong output makes up for little attention, so that a head has one of these scores only if it attends to the keys above
what as many others get, and for anti-induction by the same-answer control, too. Cost: one forward pass, and that
control's.

A function vector (Todd et al. 2310.15213) carries a task from one prompt to another. The pairs are prompts of one task:
a clean one whose examples show it, and a corrupted one whose examples have the answers of others (shuffled). For head
h, with z̄_hp its mean output before W_O at the last position of the clean prompts of all pairs but p, so that a head
which copies its own prompt's answer does not carry it there,

    function vector    mean_p P(a_p | corrupted p, z_h := z̄_hp at its last position) − P(a_p | corrupted p)

a probability: the average indirect effect of the paper, of one task. Chance is the same with the mean over the other
corrupted prompts in place of z̄_hp. Where pairs have one answer in common, a head that copies it scores as one that
carries the task. Cost: as many passes over the corrupted prompts as the model has heads, twice; a layer's heads in one
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from aotlens.heads.attention_to import attention_to
from aotlens.heads.inputs import Inputs, MeasuredScore, Missing, ScoreInputs
from aotlens.heads.label_rule import attends
from aotlens.heads.motifs import MOTIFS
from aotlens.heads.scores import random_repeats
from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names

#: The rank in the vocabulary to which a token counts as predicted.
MOST_LIKELY = 10
#: From ids `[pos]`, a layer and the stream `[pos, d_model]` in front of it, the keys `[query, key]` of each query.
KeysOf: TypeAlias = Callable[[Tensor, int, Tensor], Tensor]


def anti_induction(inputs: ScoreInputs) -> MeasuredScore:
    """Measure by how many logits a query lowers what followed earlier occurrences of its token, on random tokens."""
    inputs.model_with_circuits()
    tokens = random_repeats(inputs.reader, seed=inputs.seed).tokens

    def keys(ids: Tensor, layer: int, stream: Tensor) -> Bool[Tensor, "query key"]:
        targets = MOTIFS["induction"].targets(Inputs.of(inputs.reader, ids))
        assert targets is not None
        return (targets.keys & targets.queries[..., None])[0]

    by_answer = attention_to(inputs.reader.model, tokens, "induction").above_chance("induction")
    measured = lowered(inputs, tokens, keys)
    assert measured.attends is not None
    return measured._replace(attends=measured.attends & by_answer)


def copy_suppression(inputs: ScoreInputs) -> MeasuredScore:
    """Measure by how many logits a query lowers the token of its context that is predicted in front of the layer."""
    model, tokens = inputs.model_with_circuits(), inputs.text()
    if model.sees_later_keys:
        raise Missing("the model sees later tokens, so that none is a prediction of the next one")
    special = torch.tensor(inputs.special_ids(), dtype=torch.long)

    def keys(ids: Tensor, layer: int, stream: Tensor) -> Bool[Tensor, "query key"]:
        usable = ~torch.isin(ids, special)
        usable[0] = False
        return _predicted(model, stream, ids.to(stream.device), usable.to(stream.device))

    return lowered(inputs, tokens, keys, inputs.clusters)


def _predicted(
    model: AttentionOnlyTransformer,
    stream: Float[Tensor, "query d_model"],
    ids: Int64[Tensor, " key"],
    usable: Bool[Tensor, " key"],
) -> Bool[Tensor, "query key"]:
    """The keys of the token of the context that the stream predicts most, of queries where it is a likely one."""
    norm = folded_norm(model, None)
    logits = (norm.read(stream, norm.scale(stream)) + norm.bias.to(stream)) @ model.W_U.detach() + model.b_U.detach()
    visible = usable & torch.ones(len(ids), len(ids), dtype=torch.bool, device=ids.device).tril()
    best, place = logits[:, ids].masked_fill(~visible, -torch.inf).max(1)
    likely = (logits > best[:, None]).sum(1) < MOST_LIKELY
    likely[:2] = False  # as for motifs: the first queries see next to nothing
    return visible & (ids == ids[place][:, None]) & likely[:, None]


def centred_unembedding(model: AttentionOnlyTransformer) -> Float[Tensor, "token d_model"]:
    """Return Ũ: what a row of the stream adds to each logit, but for the final norm's scale, less the mean logit."""
    unembedding = folded_norm(model, None).into(model.W_U.detach())
    return (unembedding - unembedding.mean(1, keepdim=True)).T


def final_scale(
    model: AttentionOnlyTransformer, activations: Mapping[str, Tensor], n_pos: int
) -> Float[Tensor, " pos"]:
    """Return the final norm's scale at each position, from the activations of a run; ones without a norm."""
    norm = folded_norm(model, None)
    return torch.ones(n_pos) if norm.eps is None else activations[norm.scale_hook].squeeze(-1).cpu()


def lowered(
    inputs: ScoreInputs,
    tokens: Int64[Tensor, "batch pos"],
    keys_of: KeysOf,
    clusters: Int64[np.ndarray, " batch"] | None = None,
) -> MeasuredScore:
    """Measure −(1/n) Σ c(i, j, t_j) over the keys that `keys_of` gives and the n queries that have one, beside the same
    of the sequence's other tokens; 0 for a layer of which no query has a key. Raises `Missing` where none has one."""
    model = inputs.model_with_circuits()
    norm, unembedding = folded_norm(model, None), centred_unembedding(model)
    layers = range(inputs.shape[0])
    streams, values, patterns = (
        [hook_names.resid_pre(layer) for layer in layers],
        [hook_names.attn(layer, hook_names.V) for layer in layers],
        [hook_names.attn(layer, hook_names.PATTERN) for layer in layers],
    )
    wanted = [*streams, *values, *patterns, *([] if norm.eps is None else [norm.scale_hook])]
    sums = torch.zeros(3, len(tokens), *inputs.shape, dtype=torch.float64)  # own, other, attention above chance
    counts = torch.zeros(len(tokens), inputs.shape[0], dtype=torch.long)
    for place, ids in enumerate(tokens):
        run = inputs.activations(ids, wanted)
        own = unembedding[ids.to(unembedding.device)]  # [key, d_model]
        logits_of = torch.stack([own, own[1:].mean(0, keepdim=True).expand_as(own)])
        scale = final_scale(model, run, len(ids))
        for layer in layers:
            keys = keys_of(ids, layer, run[streams[layer]]).to(own.device)
            read = torch.einsum("rkm,hdm->rkhd", logits_of, inputs.reader.W_O(layer))
            moved = (inputs.by_head(run[values[layer]]) * read).sum(-1)  # [own or other, key, head]
            added = torch.einsum("hqk,qk,rkh->rhq", run[patterns[layer]], keys.to(moved), moved)
            sums[:2, place, layer] = -(added.cpu().double() / scale).sum(-1)
            sums[2, place, layer] = attention_above_others(run[patterns[layer]], keys).sum(-1)
            counts[place, layer] = int(keys.any(-1).sum())
    if not counts.any():
        raise Missing("no query of these sequences has such a key; take longer or other text")
    n = counts.sum(0)
    means = sums.sum(1) / n.clamp(min=1)[:, None]
    # Layers may have different queries: sums as if each had as many as the layer with most have the same means.
    most = counts[:, n.argmax()].double().numpy()
    excess = (sums[0] - sums[1]) * (n.max() / n.clamp(min=1))[:, None]
    attention = (sums[2] * (n.max() / n.clamp(min=1))[:, None]).numpy()
    return MeasuredScore(
        values=means[0].numpy(), chance=means[1].numpy(), n=int(n.min()), excess=excess.numpy(), counts=most,
        clusters=clusters, attends=attends(attention, most, clusters),
    )  # fmt: skip


def attention_above_others(
    pattern: Float[Tensor, "head query key"], keys: Bool[Tensor, "query key"]
) -> Float[Tensor, "head query"]:
    """Return each query's attention to its `keys`, less what as many of the other keys that it sees get, key 0 aside;
    0 for queries without keys, or without others."""
    others = torch.ones_like(keys).tril() & ~keys
    others[:, 0] = False
    counted = keys & others.any(-1, keepdim=True)
    weights = counted.double() - others * (counted.sum(-1, keepdim=True) / others.sum(-1, keepdim=True).clamp(min=1))
    return (pattern.double() * weights).sum(-1).cpu()


@torch.no_grad()
def name_mover(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the direct contribution to the logit difference, at the end, through the answer's own keys, in logits."""
    model = inputs.model_with_circuits()
    if inputs.pairs is None:
        raise Missing("it needs pairs of prompts, and none were given")
    pairs = list(inputs.pairs)
    answers = {(pair.answer, pair.wrong) for pair in pairs}
    if len(answers) < 2:
        raise Missing("it needs pairs with different answers, since its chance is of the others' answers")
    if absent := [n for n, pair in enumerate(pairs, start=1) if not bool((pair.clean == pair.answer).any())]:
        raise Missing(
            f"the clean prompt of pair {absent[0]} does not hold its answer, so that no head can attend to it"
        )
    norm, unembedding = folded_norm(model, None), centred_unembedding(model)
    layers = range(inputs.shape[0])
    read = [hook_names.attn(layer, hook_names.V) for layer in layers]
    patterns = [hook_names.attn(layer, hook_names.PATTERN) for layer in layers]
    wanted = [*read, *patterns, *([] if norm.eps is None else [norm.scale_hook])]
    differences = torch.stack([unembedding[pair.answer] - unembedding[pair.wrong] for pair in pairs])  # [pair, d_model]
    above = torch.zeros(len(pairs), *inputs.shape, dtype=torch.float64)
    direct = torch.zeros(len(pairs), *inputs.shape, len(pairs), dtype=torch.float64)
    for place, pair in enumerate(pairs):
        run = inputs.activations(pair.clean, wanted)
        scale = float(final_scale(model, run, len(pair.clean))[-1])
        keys = torch.zeros(len(pair.clean), len(pair.clean), dtype=torch.bool)
        keys[-1] = pair.clean == pair.answer
        keys = keys.to(unembedding.device)
        for layer in layers:
            values = inputs.by_head(run[read[layer]])  # [key, head, d_head]
            moved = torch.einsum("hk,khd->hd", run[patterns[layer]][:, -1] * keys[-1], values.to(run[patterns[layer]]))
            written = torch.einsum("hd,hdm->hm", moved.to(inputs.reader.dtype), inputs.reader.W_O(layer))
            direct[place, layer] = (written @ differences.T).double().cpu() / scale
            above[place, layer] = attention_above_others(run[patterns[layer]], keys)[:, -1]
    same = torch.tensor([[(p.answer, p.wrong) == (q.answer, q.wrong) for q in pairs] for p in pairs])
    others = (~same).double() / (~same).sum(1, keepdim=True).clamp(min=1)  # [pair, other]
    own = torch.einsum("plhp->plh", direct)
    by_chance = torch.einsum("plhq,pq->plh", direct, others)
    return MeasuredScore(
        values=own.mean(0).numpy(), chance=by_chance.mean(0).numpy(), n=len(pairs), excess=(own - by_chance).numpy(),
        attends=attends(above.numpy(), np.ones(len(pairs))),
    )  # fmt: skip


@torch.no_grad()
def function_vector(inputs: ScoreInputs) -> MeasuredScore:
    """Measure by how much a head's mean output on clean prompts raises the answer's probability on corrupted ones."""
    reader = inputs.reader
    if getattr(reader.model.cfg, "read_out", "tokens") != "tokens" or not reader.causal:
        raise Missing("the model does not predict the token that follows a prompt")
    if inputs.pairs is None:
        raise Missing("it needs pairs of prompts, and none were given")
    pairs = list(inputs.pairs)
    if len(pairs) < 2:
        raise Missing("it needs two pairs of prompts or more, since what is put into one is the mean of the others")
    n_layers, n_heads = inputs.shape
    names = [reader.z_name(layer) for layer in range(n_layers)]
    shape = (len(pairs), 2, n_layers, n_heads, reader.d_head)
    outputs = torch.zeros(shape, device=reader.device, dtype=reader.dtype)
    for row, pair in enumerate(pairs):
        for place, prompt in enumerate((pair.clean, pair.corrupted)):
            run = inputs.activations(prompt, names)
            outputs[row, place] = torch.stack([run[name][-1] for name in names])
    stand_ins = (outputs.sum(0) - outputs) / (len(pairs) - 1)
    effects = torch.zeros(len(pairs), 2, n_layers, n_heads, dtype=torch.float64)
    rows, heads = torch.arange(2 * n_heads), torch.arange(n_heads).repeat(2)
    for place, (pair, others) in enumerate(zip(pairs, stand_ins, strict=True)):
        before = float(_answer(reader.run(pair.corrupted[None], [], "logits"), pair.answer))
        for layer, name in enumerate(names):

            def put(z: Tensor, hook: object, means: Tensor = others[:, layer]) -> Tensor:
                z = z.clone()
                z[rows, -1, heads] = means.flatten(0, 1).to(z)
                return z

            logits = reader.run(pair.corrupted.expand(2 * n_heads, -1), [(name, put)], "logits")
            effects[place, :, layer] = (_answer(logits, pair.answer) - before).unflatten(0, (2, n_heads))
    values, chance = effects.mean(0).numpy()
    return MeasuredScore(
        values=values, chance=chance, n=len(pairs), excess=(effects[:, 0] - effects[:, 1]).numpy()
    )  # fmt: skip


def _answer(logits: Float[Tensor, "batch pos token"], answer: int) -> Float[Tensor, " batch"]:
    """Return the probability of the answer after the last position, on the CPU."""
    return logits[:, -1].double().cpu().softmax(-1)[:, answer]
