"""Initial weights, a function of the configuration and its seed alone.

Matrices start at standard deviation 1/√(input width) (W_O and W_out divided by √(2·n_layers) more, as GPT-2
does, so that the stream does not grow with depth). Positions start at the scale of what they are added to:
the embedding's for positions added to the stream, 1 for positions added to normalised queries and keys.
Positions of 0.02 there left a previous-token head at 0.15 where 1.0 gave one of 0.75. [CLS] stands among what is read
in, and starts at its scale. Vectors and pixels are taken to have mean square 1, which images have whose mean is taken
away and whose deviation is divided out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from aotlens.models.ours import OwnModel

if TYPE_CHECKING:
    from aotlens.models.config import ModelConfig


@torch.no_grad()
def initialise(model: OwnModel) -> None:
    """Fill every parameter and random pattern of `model`; on the meta device there is nothing to fill."""
    generator = torch.Generator().manual_seed(model.cfg.seed)
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            return
        _fill(model, name, parameter, generator)
    if model.cfg.fixed_pattern in ("random", "learned"):
        for block in model.blocks:
            block.attn.fixed_pattern.copy_(_random_pattern(model, generator))


def _fill(model: OwnModel, name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    cfg = model.cfg
    last = name.rsplit(".", 1)[-1]
    if last == "fixed_pattern":
        return
    if last == "w":
        parameter.fill_(1.0 - cfg.norm_gain_offset)
    elif last.lstrip("_").startswith("b"):
        parameter.zero_()
    else:
        read_in = _read_in_scale(cfg)
        if last == "W_pos":
            at_scale = 1.0 if cfg.positions == "qk" and cfg.norm else read_in
            std = at_scale if cfg.position_init_std is None else cfg.position_init_std
        elif last in ("W_E", "cls", "distillation"):
            std = read_in
        else:
            width = parameter.shape[0] if parameter.ndim == 2 else parameter.shape[1]
            if last == "W_O":
                width = parameter.shape[0] * parameter.shape[1]
            std = width**-0.5 if cfg.init_std is None else cfg.init_std
            if last in ("W_O", "W_out"):
                std /= math.sqrt(2 * cfg.n_layers)
        parameter.copy_(_standard_normal(parameter.shape, generator) * std)


def _read_in_scale(cfg: ModelConfig) -> float:
    """Root mean square of what is read into the stream: rows of W_E, or x W of an x whose mean square is 1."""
    if cfg.read_in == "tokens":
        return cfg.d_model**-0.5 if cfg.init_std is None else cfg.init_std
    width = cfg.d_in if cfg.read_in == "vectors" else cfg.n_channels * (cfg.patch_size or 1) ** 2
    return 1.0 if width is None or cfg.init_std is None else cfg.init_std * math.sqrt(width)


def _standard_normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw whatever torch's default type and device are, so that a seed means the same weights everywhere."""
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def _random_pattern(model: OwnModel, generator: torch.Generator) -> Tensor:
    """Draw positive rows that sum to 1 over the keys each query may see: a softmax of standard normal scores."""
    cfg = model.cfg
    scores = _standard_normal((cfg.n_heads, cfg.n_ctx, cfg.n_ctx), generator)
    visible = model.visible_keys(cfg.n_ctx, None, torch.device("cpu"))
    if visible is not None:
        scores = scores.masked_fill(~visible[0], float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0)  # a query that its mask leaves without keys has a row of zeros
