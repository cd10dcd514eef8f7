"""Name movers and negative name movers on pairs of prompts (Wang et al. 2211.00593, §3.1).

A name mover attends from the end of a prompt to the answer's name and copies it; a negative name mover attends there
and lowers it. For head h and pair p, whose clean prompt holds the answer a at positions K and ends at position n, with
the wrong answer w,

    attention_p   Σ_{k ∈ K} A(n, k)
    through_p     Σ_{k ∈ K} A(n, k) v_k W_O (Ũ_a − Ũ_w) ÷ s_n    logits, the final norm's scale frozen
    name mover    mean_p through_p                               above 0 a name mover, below 0 a negative one

Ũ is the unembedding with the final norm's gain and centring folded in. With all keys in place of K the mean is λ of
their Eq. (1), from which they find both kinds of heads; they then look at the attention. Here only what goes through
the answer's own keys counts: a head that raises the answer while it attends elsewhere does not move it. Nor does one of
uniform attention with a strong output: attention_p has to be above what as many other keys get, over pairs. Their copy
score, how often a name is among the five largest logits of its row of the OV circuit, is of weights, and not in it.
Chance is the same with the answers of the other pairs in place of a and w, the mean over them: the head's attention is
as it was, and what it writes is about another name. Cost: one forward pass over the clean prompts.
"""

from __future__ import annotations

import numpy as np
import torch

from aotlens.heads.inputs import Missing
from aotlens.heads.key_logits import attention_above_others, centred_unembedding, final_scale
from aotlens.heads.label_rule import attends
from aotlens.heads.score_inputs import MeasuredScore, ScoreInputs
from aotlens.models import folded_norm, hook_names


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
