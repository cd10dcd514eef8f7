"""What the sides of a circuit may be, and what their entries are measured in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.pages.circuits.address import Kind

if TYPE_CHECKING:
    from aotlens.circuits import Circuit
    from aotlens.models import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Option:
    """A side that may be chosen: `value` as in an address, `label` for people."""

    value: str
    label: str


def left_options(cfg: ModelConfig, layer: int, kind: Kind) -> list[Option]:
    """What the rows may be (and, for QK, the columns)."""
    options = []
    if cfg.read_in == "tokens":
        options.append(Option(value="tokens", label="tokens"))
    if cfg.positions == "learned" or (cfg.positions == "qk" and kind == "qk"):
        undivided = cfg.positions == "learned" and cfg.norm
        options.append(Option(value="positions", label="positions (undivided)" if undivided else "positions"))
    options.append(Option(value="bias", label="bias"))
    options.append(Option(value="residual", label="residual stream"))
    if cfg.read_in == "tokens":
        options += [
            Option(value=f"{earlier}.{head}", label=f"tokens through {earlier}.{head}")
            for earlier in range(layer)
            for head in range(cfg.n_heads)
        ]
    return options


def right_options(cfg: ModelConfig, layer: int, kind: Kind) -> list[Option]:
    """What the columns may be."""
    if kind == "qk":
        return left_options(cfg, layer, kind)
    options = []
    if cfg.read_out in ("tokens", "classes"):
        options.append(Option(value="logits", label="logits"))
        options += [
            Option(value=f"{later}.{head}", label=f"logits through {later}.{head}")
            for later in range(layer + 1, cfg.n_layers)
            for head in range(cfg.n_heads)
        ]
    options.append(Option(value="residual", label="residual stream"))
    return options


def unit_of(circuit: Circuit) -> str:
    """What an entry is measured in, as it stands beside a number."""
    return {"residual stream": "residual-stream units"}.get(circuit.unit, circuit.unit)
