"""Hook names of the family that are asked for by name, as TransformerLens has them.

`blocks.{l}.attn.hook_pattern` and so on: one place, so that a listener's name and the model's cannot
drift apart.
"""

from __future__ import annotations

EMBED = "hook_embed"  # [batch, pos, d_model]
POS_EMBED = "hook_pos_embed"  # [batch, pos, d_model], positions added to the stream
FINAL_SCALE = "ln_final.hook_scale"  # [batch, pos, 1]

Q, K, V, Z = "hook_q", "hook_k", "hook_v", "hook_z"  # [batch, pos, head, d_head]
SCORES, PATTERN = "hook_attn_scores", "hook_pattern"  # [batch, head, query, key]
RESULT = "hook_result"  # [batch, pos, head, d_model]


def block(layer: int, name: str) -> str:
    """`blocks.{layer}.{name}`, e.g. `block(0, "hook_resid_pre")`."""
    return f"blocks.{layer}.{name}"


def attn(layer: int, name: str) -> str:
    """`blocks.{layer}.attn.{name}`, e.g. `attn(0, PATTERN)`."""
    return f"blocks.{layer}.attn.{name}"


def resid_pre(layer: int) -> str:
    return block(layer, "hook_resid_pre")


def resid_mid(layer: int) -> str:
    """Between attention and the MLP; only models with MLPs have it."""
    return block(layer, "hook_resid_mid")


def resid_post(layer: int) -> str:
    return block(layer, "hook_resid_post")


def mlp_out(layer: int) -> str:
    return block(layer, "hook_mlp_out")


def norm_scale(layer: int) -> str:
    return block(layer, "ln1.hook_scale")
