"""The attention-only transformer: config, attention operators, hooks, presets."""

from __future__ import annotations

from aotlens.models.cache import ActivationCache
from aotlens.models.config import ModelConfig
from aotlens.models.count import count_parameters
from aotlens.models.device import resolve_device
from aotlens.models.folding import FoldedNorm, folded_norm, folded_output_norm
from aotlens.models.generation import fill, generate
from aotlens.models.hook_points import HookPoint
from aotlens.models.ours import require_ours
from aotlens.models.phi import PHIS, Phi
from aotlens.models.transformer import AttentionOnlyTransformer
from aotlens.models.weights import widened
