"""Hook names of the family that are asked for by name, as TransformerLens has them.

`blocks.{l}.attn.hook_pattern` and so on: one place, so that a listener's name and the model's cannot
drift apart.
"""

from __future__ import annotations

import re

EMBED = "hook_embed"  # [batch, pos, d_model]
POS_EMBED = "hook_pos_embed"  # [batch, pos, d_model], positions added to the stream
FINAL_SCALE = "ln_final.hook_scale"  # [batch, pos, 1]

Q, K, V, Z = "hook_q", "hook_k", "hook_v", "hook_z"  # [batch, pos, head, d_head]
SCORES, PATTERN = "hook_attn_scores", "hook_pattern"  # [batch, head, query, key]
ROT_Q, ROT_K = "hook_rot_q", "hook_rot_k"  # [batch, pos, head, d_head], rotated by their positions
RESULT = "hook_result"  # [batch, pos, head, d_model]
PER_HEAD = (Q, K, V, Z, ROT_Q, ROT_K, RESULT)  # whose positions are the third dimension from the right
_PARTS = dict.fromkeys((*PER_HEAD, SCORES, PATTERN), "attn") | dict.fromkeys(
    ("hook_pre", "hook_pre_linear", "hook_post"), "mlp"
)


def activation(name: str, layer: int | None = None, part: str | None = None) -> str:
    """Return the hook point that a short name means, as TransformerLens's `get_act_name` has it (but for its synonyms).

    `("pattern", 0)` and `"pattern0"` are `blocks.0.attn.hook_pattern`; `("scale", 0, "ln1")` and `"scale0ln1"`
    `blocks.0.ln1.hook_scale`; `"scale"` `ln_final.hook_scale`; `"embed"` `hook_embed`. A full name stays as it is.
    """
    if layer is None and part is None:
        if "." in name or name.startswith("hook_"):
            return name
        joined = re.match(r"([a-z]+)(\d+)([a-z]?.*)", name)
        if joined:
            name, layer, part = joined[1], int(joined[2]), joined[3]
    hook = f"hook_{name}"
    part = _PARTS.get(hook, part)
    if layer is None and name in ("scale", "normalized"):
        part = "ln_final"
    where = [] if layer is None else ["blocks", str(layer)]
    return ".".join([*where, *([part] if part else []), hook])


def block(layer: int, name: str) -> str:
    """Return `blocks.{layer}.{name}`, e.g. `block(0, "hook_resid_pre")`."""
    return f"blocks.{layer}.{name}"


def attn(layer: int, name: str) -> str:
    """Return `blocks.{layer}.attn.{name}`, e.g. `attn(0, PATTERN)`."""
    return f"blocks.{layer}.attn.{name}"


def resid_pre(layer: int) -> str:
    return block(layer, "hook_resid_pre")


def resid_mid(layer: int) -> str:
    """Name the hook between attention and the MLP; only models with MLPs have it."""
    return block(layer, "hook_resid_mid")


def resid_post(layer: int) -> str:
    return block(layer, "hook_resid_post")


def mlp_out(layer: int) -> str:
    return block(layer, "hook_mlp_out")


def norm_scale(layer: int) -> str:
    return block(layer, "ln1.hook_scale")
