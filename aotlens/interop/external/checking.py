"""Whether an opened model is the one that its file held: its logits beside those of the source, in float32.

Tensors that fit in shape can make another model: with norms on the other side of the layers, positions that begin at
another row, or without a norm before the read-out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
else:  # who makes or reads a bridge imports it: that takes as long as PyTorch
    TransformerBridge = Any

#: (tokens `[batch, pos]`, or images, or vectors; the source's logits of them, in the shape of ours).
Check: TypeAlias = tuple[Any, Any]
#: Largest difference that counts as rounding, as a share of the largest logit in size.
TOLERANCE = 1e-4
#: The name for a model that nothing was compared with, and what to do.
UNCHECKED = "UNCHECKED: {}. Give a few of the source's logits, check=(tokens, logits) or --check FILE.npz."


@dataclass(frozen=True)
class Comparison:
    """The largest difference of two models' logits on the same inputs."""

    difference: float | None
    """None where there was nothing to compare with."""
    largest: float
    """The largest logit in size, which the difference is to be seen beside."""
    sentence: str
    """Says both, or begins with UNCHECKED and says why."""
    place: tuple[int, ...] = ()
    """The place of the difference: sequence, position, output."""

    def require_agreement(self, where: object) -> None:
        """Raise `ValueError` for a difference of more than 1e-4 of the largest logit: how large, where, and why."""
        if self.difference is not None and not self.difference <= TOLERANCE * self.largest:
            raise ValueError(
                f"{where}: its tensors fit, and it is another model. {self.sentence} The difference is at "
                f"{list(self.place)} (sequence, position, output); rounding is at most {TOLERANCE:g} of the largest "
                "logit. Commonly wrong: norms that follow the layers (ours precede them), positions that begin at a "
                'later row ("pos_embed.W_pos[2:]" in the map, as of OPT), the final norm (theirs left out, or ours '
                "that they lack), causal, act_fn, norm_eps, attn_scale, and which projection is which."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A model of somebody else's, and what became of its file."""

    model: AttentionOnlyTransformer | TransformerBridge
    format: str
    path: Path
    """The file of the weights, or the folder that `transformers` read."""
    config: dict[str, Any]
    """The settings of the source, in its own words."""
    dropped: tuple[str, ...] = ()
    """Tensors of the source that the model does not have: masks, a read-out that is tied."""
    absent: tuple[str, ...] = ()
    """Tensors of the model that the source lacks: biases read as zero, gains as 1."""
    comparison: Comparison | None = None
    """Its logits compared with those of `check`, or of `transformers` for a format of Hugging Face's; else None."""


def unchecked(reason: str) -> Comparison:
    """Return the comparison that says that nothing was compared, and why."""
    return Comparison(None, 0.0, UNCHECKED.format(reason.rstrip(".")))


@torch.no_grad()
def compared(model: Any, inputs: Tensor, logits: Tensor, code: str, what: str) -> Comparison:
    """Compare the logits of `model` with `logits`, which `code` computed on `what`. Raises `ValueError` for another
    shape."""
    ours, theirs = model(inputs.to(next(model.parameters()).device)).float().cpu(), logits.float().cpu()
    if ours.shape != theirs.shape:
        raise ValueError(f"{code}: expected logits {list(ours.shape)} on {what}, got {list(theirs.shape)}.")
    differences = (ours - theirs).abs()
    place = tuple(int(index) for index in torch.unravel_index(differences.argmax(), differences.shape))
    difference, largest = float(differences.max()), float(theirs.abs().max())
    sentence = (
        f"The largest difference to the logits of {code} is {difference:.1e}, on {what}, where the largest logit is "
        f"{largest:.3g}."
    )
    return Comparison(difference, largest, sentence, place)


def compared_with(model: Any, check: Check) -> Comparison:
    """Compare the logits of `model` with those that were given.

    Raises `ValueError` for what is no such pair: other shapes, logits that are not finite or all alike, fewer than two
    positions (attention to a position's own token is the same with any weights), inputs that the model cannot read.
    """
    if not isinstance(check, tuple | list) or len(check) != 2:
        raise ValueError(f"check: expected (tokens, logits), got a {type(check).__name__}.")
    inputs, logits = (torch.as_tensor(part).detach() for part in check)
    n_dims = 2 if getattr(model.cfg, "read_in", "tokens") == "tokens" else 4 if model.cfg.read_in == "patches" else 3
    if inputs.ndim == n_dims - 1:
        inputs, logits = inputs[None], logits[None]
    if inputs.ndim != n_dims or not inputs.numel() or (n_dims < 4 and inputs.shape[1] < 2):
        raise ValueError(
            f"check: expected tokens [batch, pos] (of a model of images, images) of at least two positions, got "
            f"{list(inputs.shape)}."
        )
    if not logits.is_floating_point() or not logits.isfinite().all() or float(logits.max() - logits.min()) == 0:
        raise ValueError("check: expected logits, finite numbers that differ among each other.")
    inputs = inputs.float() if inputs.is_floating_point() else inputs.long()
    return compared(model, inputs, logits, "the source", f"the inputs {list(inputs.shape)} given")
