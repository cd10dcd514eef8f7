"""Heads whose output carries a task from one prompt to another: function vectors (Todd et al. 2310.15213).

The pairs are prompts of one task: a clean one whose examples show it, and a corrupted one whose examples have the
answers of others (shuffled), so that the answer cannot be known from them. For head h, with z̄_hp its mean output before
W_O at the last position of the clean prompts of all pairs but p, so that a head which copies its own prompt's answer
does not carry it there,

    function vector    mean_p P(a_p | corrupted p, z_h := z̄_hp at its last position) − P(a_p | corrupted p)

a probability: the average indirect effect of the paper, of one task. Chance is the same with the mean over the other
corrupted prompts in place of z̄_hp: what it does to be given a mean, whatever the examples say. Where pairs have one
answer in common, a head that copies it scores as one that carries the task. Cost: as many passes over
the corrupted prompts as the model has heads, twice, by hooks; a layer's heads in one batch.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.heads.inputs import Missing
from aotlens.heads.score_inputs import MeasuredScore, ScoreInputs


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

            def put(z: Tensor, hook: object, given: Tensor = others[:, layer]) -> Tensor:
                z = z.clone()
                z[rows, -1, heads] = given.flatten(0, 1).to(z)
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
