"""The attention-only transformer: config, attention operators, hooks, presets."""

from __future__ import annotations

from aotlens.models.config import ModelConfig
from aotlens.models.count import count_parameters
from aotlens.models.device import resolve_device
from aotlens.models.transformer import AttentionOnlyTransformer

__all__ = ["AttentionOnlyTransformer", "ModelConfig", "count_parameters", "resolve_device"]
