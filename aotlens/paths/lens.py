"""Lenses: what the stream at each layer, and what each head writes, would say if it were read out there.

    stream     softmax(ln_final(x_l) W_U + b_U)                          the logit lens (nostalgebraist 2020)
    head       out_h[i] / s_final[i] · C w_final W_U                     what a head itself adds to each logit

The first reads the stream before layer l as if no layer came after it, with the final norm's own scale of it; the last
row is the model's prediction. The second is exact: summed over heads, with what enters the stream and the biases, it is
the model's logits (`direct_logit_attribution` has the same of one output). A token that a stream "says" need not be one
that the model uses: later layers read other directions too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.frozen import freeze, head_results
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

#: Numbers of one array of positions and outputs, at most: 16 MB.
_MOST_NUMBERS = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitLens(Result):
    """The outputs that the stream gives before each layer, and after the last, at each position of one prompt."""

    tokens: Int64[np.ndarray, "layers pos k"]
    """The likeliest outputs, likeliest first; row l is the stream before layer l, the last row the model's own."""
    probabilities: Float64[np.ndarray, "layers pos k"]
    kl: Float64[np.ndarray, "layers pos"]
    """Σ p ln(p ÷ q), p of the model and q of the lens; nats. 0 in the last row."""
    loss: Float64[np.ndarray, "layers pos"]
    """−ln of the next token of the prompt, nats; NaN at the last position, and of a model that sees later tokens."""
    rank: Int64[np.ndarray, "layers pos"]
    """The number of outputs that the lens puts above the model's own first choice; 0 in the last row."""
    str_tokens: tuple[str, ...] | None
    """The prompt in words; None without a tokenizer."""
    words: Mapping[int, str]
    """The outputs that occur, in words; empty without a tokenizer."""

    @property
    def settled(self) -> Int64[np.ndarray, " pos"]:
        """The first row, at each position, from which on the lens's first choice is the model's."""
        other = self.rank > 0
        return np.where(other.any(0), len(other) - other[::-1].argmax(0), 0)

    def says(self, layer: int, position: int, place: int = 0) -> str:
        """Return an output in words."""
        token = int(self.tokens[layer, position, place])
        return self.words.get(token, str(token))

    @property
    def headline(self) -> str:
        kl = ", ".join(f"{value:.2f}" for value in self.kl.mean(1))
        return (
            f"KL from the model's prediction by layer, mean over {self.kl.shape[1]} positions: {kl} nats; after it, "
            f"{self.says(-1, -1)!r}, which the stream says from layer {int(self.settled[-1])} of {len(self.kl) - 1} on"
        )

    def sentences(self) -> str:
        """Return the divergence and, where there is one, the loss of each layer, and from where the answer stands."""
        kl, n_layers, settled = self.kl.mean(1), len(self.kl) - 1, int(self.settled[-1])
        loss = ""
        if not np.isnan(self.loss).all():
            losses = ", ".join(f"{value:.2f}" for value in np.nanmean(self.loss, 1))
            loss = f" Loss on the text’s next tokens: {losses} nats."
        return (
            f"KL divergence from the model’s prediction, mean over {self.kl.shape[1]} positions, before layers 0 to "
            f"{n_layers - 1} and after the last: {', '.join(f'{value:.2f}' for value in kl)} nats.{loss} After the "
            f"text the model says ‹{self.says(-1, -1)}›; the stream says so from "
            f"{f'before layer {settled}' if settled < n_layers else 'after the last layer'} on."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per layer and position: layer, position, token, says, probability (of its first choice), kl,
        loss, rank."""
        layers, positions = (each.ravel() for each in np.indices(self.kl.shape))
        frame = data_frame({"layer": layers, "position": positions})
        if self.str_tokens is not None:
            frame["token"] = [self.str_tokens[position] for position in positions]
        return frame.assign(
            says=[self.says(int(layer), int(position)) for layer, position in zip(layers, positions, strict=True)],
            probability=self.probabilities[..., 0].ravel(), kl=self.kl.ravel(), loss=self.loss.ravel(),
            rank=self.rank.ravel(),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadLens(Result):
    """The outputs that each head adds most to, and takes most from, at one position of a prompt."""

    position: int
    promoted: Int64[np.ndarray, "layer head k"]
    """Outputs by what the head adds to their logits above its mean over outputs, largest first."""
    added: Float64[np.ndarray, "layer head k"]
    """The size of that addition, in logits."""
    suppressed: Int64[np.ndarray, "layer head k"]
    """Outputs by what the head adds to their logits above its mean over outputs, most negative first."""
    taken: Float64[np.ndarray, "layer head k"]
    words: Mapping[int, str]

    def says(self, tokens: Int64[np.ndarray, " k"]) -> str:
        """Write some outputs in words."""
        return "  ".join(repr(self.words.get(int(token), str(token))) for token in tokens)

    @property
    def headline(self) -> str:
        layer, head = np.unravel_index(int(self.added[..., 0].argmax()), self.added.shape[:2])
        token = int(self.promoted[layer, head, 0])
        return (
            f"at position {self.position} {layer}.{head} adds most to one output: "
            f"{self.added[layer, head, 0]:+.2f} logits to {self.words.get(token, str(token))!r}, above its mean over "
            "outputs"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head: layer, head, promotes and added (its first output, logits), suppresses and taken."""
        layers, heads = (each.ravel() for each in np.indices(self.added.shape[:2]))
        n = len(layers)
        return data_frame(
            {
                "layer": layers, "head": heads,
                "promotes": [self.says(row) for row in self.promoted.reshape(n, -1)],
                "added": self.added[..., 0].ravel(),
                "suppresses": [self.says(row) for row in self.suppressed.reshape(n, -1)],
                "taken": self.taken[..., 0].ravel(),
            }
        )  # fmt: skip


@torch.no_grad()
def logit_lens(model: AttentionOnlyTransformer, tokens: Tensor | str | list[str], *, k: int | None = None) -> LogitLens:
    """Read out the stream before each layer of one prompt, a text or ids: the `k` likeliest outputs (5), how far they
    are from the model's prediction, and the loss on the prompt's next token.

    One forward pass, and a read-out for each layer. Raises `ValueError` for a batch, for `k` outside 1 to the number of
    outputs, and for a model that does not read out tokens at each position.
    """
    require_ours(model, "logit_lens")
    cfg = model.cfg
    if cfg.read_out != "tokens":
        raise ValueError(f"logit_lens: expected a model that reads out tokens, got read_out={cfg.read_out!r}.")
    k = _count(k, model.W_U.shape[1])
    ids = model.to_prompt(tokens, "logit_lens")
    names = [hook_names.resid_pre(layer) for layer in range(cfg.n_layers)]
    names.append(hook_names.resid_post(cfg.n_layers - 1))
    _, cache = model.run_with_cache(
        ids, return_type=None, names_filter=lambda name: name in names, return_cache_object=False
    )
    tied = model.embed.W_E if cfg.tied_embeddings else None

    def read(name: str, positions: slice) -> Tensor:
        return model.unembed(model.ln_final(cache[name][:, positions]), tied=tied)[0].float().log_softmax(-1)

    next_ids = torch.cat([ids[0, 1:], ids[0, :1]])
    rows: list[list[tuple[Tensor, ...]]] = [[] for _ in names]
    step = max(_MOST_NUMBERS // model.W_U.shape[1], 1)
    for start in range(0, ids.shape[1], step):  # read out at all positions at once, 10 arrays of outputs take gigabytes
        span = slice(start, start + step)
        own = read(names[-1], span)
        choice = own.argmax(-1, keepdim=True)
        for parts, name in zip(rows, names, strict=True):
            log_p = read(name, span)
            top = log_p.topk(k, -1)
            next_loss = -log_p.gather(1, next_ids[span, None])[:, 0]
            kl = (own.exp() * (own - log_p)).sum(-1).clamp(min=0)
            rank = (log_p > log_p.gather(1, choice)).sum(-1)
            parts.append((top.indices, top.values.exp(), kl, next_loss, rank))
    arrays = [
        torch.stack([torch.cat(each) for each in layers]).cpu().numpy()
        for layers in zip(*(zip(*parts, strict=True) for parts in rows), strict=True)
    ]
    arrays[3][:, slice(None) if model.sees_later_keys else -1] = np.nan
    return LogitLens(
        tokens=arrays[0], probabilities=arrays[1].astype(np.float64), kl=arrays[2].astype(np.float64),
        loss=arrays[3].astype(np.float64), rank=arrays[4], words=_words(model, arrays[0]),
        str_tokens=None if model.tokenizer is None else tuple(model.to_str_tokens(ids[0])),
    )  # fmt: skip


@torch.no_grad()
def head_lens(
    model: AttentionOnlyTransformer, tokens: Tensor | str | list[str], position: int = -1, *, k: int | None = None
) -> HeadLens:
    """Return the `k` outputs (5, or as many as there are) whose logits each head adds most to, and takes most from, at
    one position of a prompt, above its mean over outputs, which softmax does not see.

    One forward pass and one read-out of every head. Raises `ValueError` for a position that the prompt has not, for `k`
    outside 1 to the number of outputs, and as `expand` does.
    """
    require_ours(model, "head_lens", without=NOT_LINEAR)
    frozen = freeze(model, tokens)
    n_out_pos, n_out = frozen.read.shape[0], frozen.R.shape[1]
    k = _count(k, n_out)
    require_whole("position", position, -n_out_pos, n_out_pos - 1)
    row = frozen.read[position]  # of the stream, what the read-out there takes
    written = torch.einsum("p,lhpd->lhd", row, head_results(frozen))
    logits = written @ frozen.R
    logits = logits - logits.mean(-1, keepdim=True)
    high, low = logits.topk(k, -1), logits.topk(k, -1, largest=False)
    promoted, added, suppressed, taken = (
        each.cpu().numpy() for each in (high.indices, high.values.double(), low.indices, low.values.double())
    )
    return HeadLens(
        position=position % n_out_pos, promoted=promoted, added=added, suppressed=suppressed, taken=taken,
        words=_words(model, np.concatenate([promoted, suppressed], -1)),
    )  # fmt: skip


def _count(k: int | None, n_out: int) -> int:
    if k is None:
        return min(5, n_out)
    require_whole("k", k, 1, n_out)
    return k


def _words(model: AttentionOnlyTransformer, tokens: Int64[np.ndarray, "*any"]) -> dict[int, str]:
    if model.tokenizer is None or model.cfg.read_out != "tokens":
        return {}
    ids = np.unique(tokens).tolist()
    return dict(zip(ids, model.to_str_tokens(ids), strict=True))
