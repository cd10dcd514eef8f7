"""Inactive heads: those that write little compared with their layer, whether or not they rest on the first token.

After Sandoval-Segura et al. (2504.03889), who compare a dozen scores, for head h of layer l and positions i ≥ 1:

    output norm         mean_i ‖z_i W_O‖ ÷ its mean over the heads of the layer      their Avg Head Output Norm (LN)
    written norm        mean_i ‖z_i W_O‖
    first value norm    ‖v_0‖ ÷ mean_i ‖v_i‖                                         z = pattern · v,  v = x W_V + b_V
    first token         mean_i A(i, 0)                                               their Avg Weight of First Token

They differ from the source on purpose: its output norm is ‖z_i‖, which changes where W_V, W_O become W_V G, G⁻¹ W_O
though the head does not, and its first value norm is ‖v_0‖ ÷ the mean of the layer's heads, which says nothing of the
other tokens. It averages over a prompt and calls a head inactive on it below a quantile over heads and prompts: the 5%
lowest output norms are below .31 to .51 in Llama 3, OLMo 2 and Qwen 2.5. `INACTIVE` is stricter.

The norm of what a head writes decides: it is small for a head that rests on a first token with a short value vector,
and for one that spreads its attention over short or opposite ones, which a first-token score misses; and a head whose
first token has a long value vector is active, however much it rests there. Both ratios are 1 by chance: heads of a
layer that write alike; a first token that is read as any other. Cost: one forward pass a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from aotlens.conventions import head_name
from aotlens.heads.attention_to import attention_to
from aotlens.heads.motifs import MOTIFS
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.heads.score_inputs import MeasuredScore, ScoreInputs
from aotlens.models import hook_names
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: The output norm up to which a head is inactive.
INACTIVE = 0.25


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
    """The heads that write little compared with their layer, and those that a first-token score alone misses."""

    output_norm: Float64[np.ndarray, "layer head"]
    """Mean norm of what a head writes ÷ its layer's mean."""
    written_norm: Float64[np.ndarray, "layer head"]
    """That norm itself: in a layer with one large head the others are inactive by comparison alone."""
    first_token: Float64[np.ndarray, "layer head"]
    """Mean attention to position 0."""
    first_value_norm: Float64[np.ndarray, "layer head"]
    threshold: float | int
    """The output norm up to which a head is inactive."""
    first_threshold: float | int
    """The attention to position 0 from which a first-token score would call it so."""

    @property
    def inactive(self) -> Bool[np.ndarray, "layer head"]:
        """Mark the heads whose output norm is at most the threshold."""
        return self.output_norm <= self.threshold

    @property
    def missed(self) -> Bool[np.ndarray, "layer head"]:
        """Mark inactive heads that a first-token score does not call so."""
        return self.inactive & (self.first_token < self.first_threshold)

    @property
    def resting_but_active(self) -> Bool[np.ndarray, "layer head"]:
        """Mark heads that a first-token score calls inactive, and that are not."""
        return ~self.inactive & (self.first_token >= self.first_threshold)

    @property
    def headline(self) -> str:
        missed, active = (
            ", ".join(head_name((int(layer), int(head))) for layer, head in np.argwhere(marked)) or "none"
            for marked in (self.missed, self.resting_but_active)
        )
        return (
            f"{int(self.inactive.sum())} of {self.inactive.size} heads write little compared with their layer; a "
            f"first-token score misses {missed} and takes {active} for such heads"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per head: layer, head, output_norm, written_norm, first_token, first_value_norm, inactive,
        missed, resting_but_active."""
        import pandas as pd

        layers, heads = np.indices(self.output_norm.shape)
        norms = ("output_norm", "written_norm", "first_token", "first_value_norm")
        names = (*norms, "inactive", "missed", "resting_but_active")
        columns = {name: getattr(self, name).ravel() for name in names}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})


def inactive_heads(model: Model, tokens: TokenSequences, *, threshold: float = INACTIVE) -> InactiveHeads:
    """Find the heads whose output norm on a text is at most `threshold`, beside what a first-token score says of them:
    that those are inactive whose attention to position 0 reaches the threshold of the motif `first_token`.

    `tokens` are as in `attention_to`. Raises `ValueError` for a threshold that is no number from 0 on, for sequences of
    fewer than 3 tokens, and as `HeadReader.require_ids`.
    """
    if not threshold >= 0:
        raise ValueError(f"threshold: expected an output norm ÷ that of the layer, from 0 on, got {threshold}.")
    reader = HeadReader.of(model, "inactive heads")
    ids = reader.require_ids(tokens, at_least=3)
    inputs = ScoreInputs(reader=reader, tokens=ids)
    return InactiveHeads(
        output_norm=output_norm(inputs).values,
        written_norm=written_norm(inputs).values,
        first_token=attention_to(model, ids, "first_token", intervals=False)["first_token"],
        first_value_norm=first_value_norm(inputs).values,
        threshold=threshold,
        first_threshold=MOTIFS["first_token"].threshold,
    )
