"""Counting parameters the way the papers' tables do.

aot's tables do not count the same things: Table 4 counts matrices and the token embedding, which the read-out
shares; Table 5 counts everything, and with it a token table that its models inherit from GPT-2 and never use.
Counts come from shapes, so a model of any size is counted without allocating it.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch

from aotlens.conventions import require_choice
from aotlens.models.config import ModelConfig
from aotlens.models.ours import require_ours
from aotlens.models.transformer import AttentionOnlyTransformer

Convention = Literal["all", "table_4", "table_5"]
GPT2_D_VOCAB = 50_257
_NOT_MATRICES = ("w", "cls", "distillation", "W_pos")


def count_parameters(model: AttentionOnlyTransformer | ModelConfig, convention: Convention = "all") -> int:
    """Return the number of parameters of a model, or of the model that a configuration describes.

    - `"all"`: every trained number (frozen patterns are none). aot Tables 1 and 2.
    - `"table_4"`: matrices and the token embedding; no positions, norms or biases.
    - `"table_5"`: everything, and the 50,257 × d_model token table of the GPT-2 class those models were built
      with: they read vectors and never use it, so it is counted here and never allocated.

    A configuration is built on the meta device: no memory, some milliseconds a layer.
    """
    require_choice("convention", convention, get_args(Convention))
    if isinstance(model, ModelConfig):
        model = build_on_meta(model)
    require_ours(model, "count_parameters", weights=False)
    named = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if convention == "table_4":
        return sum(count for name, count in named.items() if _is_matrix(name))
    unused = GPT2_D_VOCAB * model.cfg.d_model if convention == "table_5" else 0
    return sum(named.values()) + unused


def build_on_meta(cfg: ModelConfig) -> AttentionOnlyTransformer:
    """Return the model with shapes and no numbers: it allocates nothing."""
    with torch.device("meta"):
        pattern = torch.empty(1) if cfg.fixed_pattern == "given" else None
        return AttentionOnlyTransformer(cfg, pattern=pattern)


def _is_matrix(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return not last.lstrip("_").startswith("b") and last not in _NOT_MATRICES
