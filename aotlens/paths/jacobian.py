"""The effect on a logit of a direction written into the stream: the exact Jacobian of a frozen model, split by path.

With patterns and norm scales frozen on a prompt (and MLPs held) the logit at one position is an affine function of the
stream x before a layer, and its gradient is the sum over all paths from there,

    ∂ logit / ∂ x[p]  =  Σ over subsets of later heads, in order, of  P V W_O ⋯ P V W_O / s · R    (order k: k heads)

read backwards, one product a head for all paths at once. Split by the *first* head that reads what is written (none:
the read-out itself) the parts add up to it. Beside it stands the gradient of the model itself, in which patterns,
scales and MLPs move: where the two differ, a step changes where heads look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import require_shape, require_whole
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.frozen import freeze, head_gradients, root_gradient, stream_gradients
from aotlens.paths.target import Target, direction
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitJacobian(Result):
    """∂ logit ÷ ∂ stream before a layer, at every position, in logits for a step of length 1."""

    layer: int
    at: int
    """The position whose logit it is."""
    target: int | tuple[int, int]
    """An output, or (token, versus): the first's logit minus the second's."""
    direct: Float64[np.ndarray, "pos d_model"]
    """Read by no head: by the read-out itself."""
    by_head: Float64[np.ndarray, "layer head pos d_model"]
    """The gradient by the first head that reads it, of the layers from `layer` on: over all paths from there."""
    by_order: Float64[np.ndarray, "order pos d_model"]
    """The gradient by the number of heads on the way, 0 first."""
    moving: Float64[np.ndarray, "pos d_model"]
    """The gradient of the model itself, whose patterns, scales and MLPs move."""
    str_tokens: tuple[str, ...] | None

    @property
    def frozen(self) -> Float64[np.ndarray, "pos d_model"]:
        """The gradient over all paths, patterns and scales frozen."""
        return self.direct + self.by_head.sum((0, 1))

    def effect(self, step: Float64[np.ndarray, " d_model"]) -> pd.DataFrame:
        """Compute the effect on the logit of a vector that is added to the stream, to first order: one row a position,
        with position, frozen, and moving. With patterns and scales frozen it is exact for any length.

        Raises `ValueError` for a vector of another width.
        """
        vector = require_shape("step", np.asarray(step, dtype=np.float64), self.moving.shape[1:])
        return data_frame(
            {"position": range(len(self.moving)), "frozen": self.frozen @ vector, "moving": self.moving @ vector}
        )

    @property
    def headline(self) -> str:
        size = np.linalg.norm(self.frozen, axis=1)
        place = int(size.argmax())
        away = np.linalg.norm(self.moving - self.frozen) / max(float(np.linalg.norm(self.moving)), 1e-30)
        return (
            f"before layer {self.layer} the logit at position {self.at} is most sensitive to position {place} "
            f"({size[place]:.3g} logits a unit); the model's own gradient, in which patterns move, is {away:.0%} of "
            "its length away"
        )

    def sentences(self) -> str:
        """Return the headline, and the length of the gradient by the number of heads on the way."""
        orders = ", ".join(f"{float(np.linalg.norm(gradient)):.3g}" for gradient in self.by_order)
        return f"{super().sentences()} By the number of heads on the way, 0 first, the gradients have lengths {orders}."

    def to_frame(self) -> pd.DataFrame:
        """Return one row a position: position, token (where there are words), frozen and moving (lengths of the
        gradients, logits a unit), cosine (between them), direct (the length of that part), and the head whose part is
        largest."""
        length, own = np.linalg.norm(self.frozen, axis=1), np.linalg.norm(self.moving, axis=1)
        parts = np.linalg.norm(self.by_head, axis=-1).reshape(-1, len(length))
        first = self.layer * self.by_head.shape[1]
        names = [f"{n // self.by_head.shape[1]}.{n % self.by_head.shape[1]}" for n in range(first, first + len(parts))]
        frame = data_frame({"position": range(len(length))})
        if self.str_tokens is not None:
            frame["token"] = list(self.str_tokens)
        largest = parts.argmax(0) if names else ()
        with np.errstate(invalid="ignore", divide="ignore"):
            cosine = (self.frozen * self.moving).sum(1) / (length * own)
        return frame.assign(
            frozen=length, moving=own, cosine=cosine, direct=np.linalg.norm(self.direct, axis=1),
            head=[names[part] if parts[part, position] else None for position, part in enumerate(largest)] or None,
        )  # fmt: skip


def logit_jacobian(
    model: AttentionOnlyTransformer,
    tokens: Tensor | str | list[str],
    target: Target = None,
    *,
    layer: int = 0,
    at: int = -1,
) -> LogitJacobian:
    """Return the gradient of one logit at position `at`, or of a difference (token, versus), with respect to the stream
    before `layer` at every position of a prompt; n_layers is the stream that is read out. None: the model's own first
    choice.

    One forward pass, a backward one for all paths and one for each number of heads, and the model's own. Raises
    `ValueError` for a missing layer or position, and as `expand` does.
    """
    require_ours(model, "logit_jacobian", without=NOT_LINEAR)
    cfg = model.cfg
    require_whole("layer", layer, 0, cfg.n_layers)
    frozen = freeze(model, tokens)
    n_out_pos = frozen.read.shape[0]
    require_whole("at", at, -n_out_pos, n_out_pos - 1)
    at %= n_out_pos
    to = direction(frozen, int(frozen.logits[at].argmax()) if target is None else target)
    with torch.no_grad():
        g = root_gradient(frozen, at, to.column)
        direct, by_head = g, g.new_zeros(cfg.n_layers - layer, cfg.n_heads, *g.shape)
        # Parts by how many heads are still to come: what a layer's heads read has one more.
        orders = torch.zeros(cfg.n_layers - layer + 1, *g.shape).to(g)
        orders[0] = g
        for number in reversed(range(layer, cfg.n_layers)):
            through = stream_gradients(frozen, number, head_gradients(frozen, number, g))
            by_head[number - layer] = through
            g = g + through.sum(0)
            heads = stream_gradients(frozen, number, head_gradients(frozen, number, orders[:-1]))
            orders[1:] += heads.sum(-3)
    inputs = model.to_prompt(tokens, "logit_jacobian")
    words = None if model.tokenizer is None or cfg.read_in != "tokens" else tuple(model.to_str_tokens(inputs[0]))
    gradients = (direct, by_head, orders, _moving(model, inputs, layer, at, to.target))
    arrays = [gradient.detach().cpu().double().numpy() for gradient in gradients]
    return LogitJacobian(
        layer=layer, at=at, target=to.target, direct=arrays[0], by_head=arrays[1], by_order=arrays[2],
        moving=arrays[3], str_tokens=words,
    )  # fmt: skip


def _moving(
    model: AttentionOnlyTransformer, inputs: Tensor, layer: int, position: int, target: int | tuple[int, int]
) -> Float[Tensor, "pos d_model"]:
    """The gradient of the model itself."""
    n_layers, leaves = model.cfg.n_layers, []

    def cut(x: Tensor, hook: object) -> Tensor:
        leaves.append(x.detach().requires_grad_())
        return leaves[0]

    name = hook_names.resid_pre(layer) if layer < n_layers else hook_names.resid_post(n_layers - 1)
    with torch.enable_grad():
        logits = model.run_with_hooks(inputs, fwd_hooks=[(name, cut)])
        row = logits[0] if logits.ndim == 2 else logits[0, position]
        value = row[target] if isinstance(target, int) else row[target[0]] - row[target[1]]
        (gradient,) = torch.autograd.grad(value, leaves)
    return gradient[0]
