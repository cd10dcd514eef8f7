"""The positional encodings of a model's tokens. `POSITIONS` is the one table; an entry is all that a kind needs.

    learned   x + W_pos                                         added to the residual stream
    qk        (norm(x) + W_pos) W_Q, W_K                        added to the inputs of queries and keys (shortformer)
    rotary    q R_i, k R_j                                      queries and keys are rotated (Su et al. 2021)
    alibi     q kᵀ · scale − m_h (i − j)                        scores are biased by distance (Press et al. 2022)
    None      nothing

**Rotation.** R_p turns pair f of a head's coordinates by the angle θ_f p: a row (u, v) becomes
(u cos − v sin, u sin + v cos). As R_i R_jᵀ = R_{i−j}, a score depends on positions by their distance alone
(`aotlens.conventions`). Pair f is coordinates (f, f + dim/2) with `pairs="half"` and (2f, 2f + 1) with
`"interleaved"`; coordinates from `dim` on are not rotated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from aotlens.conventions import require_choice

SCALINGS = ("linear", "dynamic", "llama3")


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Frequencies θ_f = base^(−2f/dim) of `positions="rotary"`, and how they are stretched for longer contexts."""

    __no_type_check__ = True  # everything is checked in __post_init__, with messages for people

    base: float = 10_000.0
    """The longest wavelength is about 2π · base positions."""
    dim: int | None = None
    """The number of rotated coordinates of a head, an even number; `None` is all of d_head."""
    pairs: Literal["half", "interleaved"] = "half"
    """The two coordinates that are turned together: f and f + dim/2 (Llama, GPT-NeoX), or 2f and 2f + 1 (GPT-J)."""
    scaling: Literal["linear", "dynamic", "llama3"] | None = None
    """`"linear"` divides frequencies by `factor`; `"dynamic"` raises the base once a sequence is longer than
    `original_n_ctx` (so that θ depends on the length); `"llama3"` divides low frequencies only."""
    factor: float | None = None
    """The factor by which the context is stretched."""
    original_n_ctx: int | None = None
    """The context before it was stretched (dynamic, llama3)."""
    low_freq_factor: float | None = None
    """Frequencies with fewer turns than this in the original context are divided by `factor` (llama3)."""
    high_freq_factor: float | None = None
    """Frequencies with more turns than this in the original context stay as they are (llama3)."""

    def __post_init__(self) -> None:
        if not _is_number(self.base) or self.base <= 1:
            raise ValueError(f"rotary base={self.base!r}: expected a finite number above 1.")
        if self.dim is not None and (not _is_whole(self.dim) or self.dim < 2 or self.dim % 2):
            raise ValueError(f"rotary dim={self.dim!r}: expected an even whole number of at least 2, or None.")
        require_choice("rotary pairs", self.pairs, ("half", "interleaved"))
        require_choice("rotary scaling", self.scaling, (*SCALINGS, None))
        needed = {
            None: (),
            "linear": ("factor",),
            "dynamic": ("factor", "original_n_ctx"),
            "llama3": ("factor", "original_n_ctx", "low_freq_factor", "high_freq_factor"),
        }[self.scaling]
        for name in ("factor", "original_n_ctx", "low_freq_factor", "high_freq_factor"):
            value = getattr(self, name)
            if name not in needed:
                if value is not None:
                    raise ValueError(f"rotary {name}={value!r} has no meaning with scaling={self.scaling!r}.")
            elif name == "original_n_ctx":
                if not _is_whole(value) or value < 1:
                    raise ValueError(f"rotary {name}={value!r}: expected a whole number of at least 1.")
            elif not _is_number(value) or value <= 0 or (name == "factor" and value < 1):
                least = "of at least 1" if name == "factor" else "above 0"
                raise ValueError(f"rotary {name}={value!r}: expected a number {least}.")
        if self.scaling == "llama3" and self.high_freq_factor <= self.low_freq_factor:  # type: ignore[operator]
            raise ValueError(
                f"rotary high_freq_factor={self.high_freq_factor} must be above low_freq_factor={self.low_freq_factor}."
            )

    @classmethod
    def of(cls, value: Any) -> Rotary:
        """Return the settings that a dictionary of fields describes. Raises `ValueError` for other keys."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict) or not set(value) <= set(cls.__dataclass_fields__):
            known = ", ".join(cls.__dataclass_fields__)
            raise ValueError(f"rotary={value!r}: expected a table with some of the keys {known}.")
        return cls(**value)


@runtime_checkable
class PositionSettings(Protocol):
    """The fields of a `ModelConfig` that positions read."""

    @property
    def positions(self) -> str | None: ...
    @property
    def rotary(self) -> Rotary | None: ...
    @property
    def rotary_local(self) -> Rotary | None: ...
    @property
    def alibi_slopes(self) -> tuple[float, ...] | None: ...
    @property
    def phi(self) -> str: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def d_head(self) -> int: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def has_query_key(self) -> bool: ...
    @property
    def sees_later_keys(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class PositionKind:
    """One kind of positions, and what the rest of the library has to know of it."""

    meaning: str
    """The place where positions enter, as a clause after the model: "this model …"."""
    table: bool = False
    """Whether the model has W_pos `[n_ctx, d_model]`, so that a circuit's side may be "positions"."""
    in_stream: bool = False
    """Whether they are in the residual stream, so that heads move them and norms divide them."""
    rotates: bool = False
    """Whether queries and keys are rotated: a QK circuit of tokens is then one matrix for each distance."""
    biases: bool = False
    """Whether scores are biased by distance, apart from queries and keys."""
    parameters: tuple[str, ...] = ()
    """Fields of `ModelConfig` that belong to it; with another kind they stay None."""
    check: Callable[[PositionSettings], None] = lambda cfg: None
    """Raises `ValueError` for parameters that do not fit."""


def _check_rotary(cfg: PositionSettings) -> None:
    for name in ("rotary", "rotary_local"):
        if name == "rotary" or cfg.rotary_local is not None:
            rotary = Rotary.of(getattr(cfg, name) or {})
            object.__setattr__(cfg, name, rotary)
            _check_fits(cfg, rotary)


def _check_fits(cfg: PositionSettings, rotary: Rotary) -> None:
    if not cfg.has_query_key:
        raise ValueError(f"positions='rotary' rotate queries and keys, and phi={cfg.phi!r} has neither.")
    if rotary.dim is None and cfg.d_head % 2:
        raise ValueError(
            f"d_head={cfg.d_head}: rotary positions turn pairs of coordinates; give rotary dim, an even one."
        )
    if rotary.dim is not None and rotary.dim > cfg.d_head:
        raise ValueError(f"rotary dim={rotary.dim}: a head has only d_head={cfg.d_head} coordinates.")
    if rotary.scaling == "dynamic" and (rotary.dim or cfg.d_head) < 4:
        raise ValueError("rotary scaling='dynamic' needs at least 4 rotated coordinates.")


def _check_alibi(cfg: PositionSettings) -> None:
    if not cfg.has_query_key:
        raise ValueError(f"positions='alibi' bias scores, and phi={cfg.phi!r} has none.")
    if cfg.sees_later_keys:
        raise ValueError("positions='alibi' count back from a query; expected a causal model.")
    if cfg.alibi_slopes is None:
        return
    slopes = tuple(cfg.alibi_slopes) if isinstance(cfg.alibi_slopes, list | tuple) else (cfg.alibi_slopes,)
    if len(slopes) != cfg.n_heads or not all(_is_number(slope) and slope >= 0 for slope in slopes):
        raise ValueError(f"alibi_slopes={slopes!r}: expected {cfg.n_heads} numbers of at least 0, one a head, or None.")
    object.__setattr__(cfg, "alibi_slopes", slopes)


POSITIONS: dict[str | None, PositionKind] = {
    "learned": PositionKind(meaning="adds a vector for each position to the stream", table=True, in_stream=True),
    "qk": PositionKind(meaning="adds positions to queries and keys only (positions='qk')", table=True),
    "rotary": PositionKind(
        meaning="rotates queries and keys by their position (positions='rotary'), which adds nothing to the stream",
        rotates=True,
        parameters=("rotary", "rotary_local"),
        check=_check_rotary,
    ),
    "alibi": PositionKind(
        meaning="subtracts a slope times the distance from scores (positions='alibi') and adds nothing to the stream",
        biases=True,
        parameters=("alibi_slopes",),
        check=_check_alibi,
    ),
    None: PositionKind(meaning="has positions=None"),
}


@dataclass(frozen=True, eq=False)
class Rotation:
    """The cosines and sines `[*positions, pair]` of angles θ_f p."""

    cos: Tensor
    sin: Tensor
    interleaved: bool

    def __call__(self, x: Tensor) -> Tensor:
        """x R_p, for `x [*positions, d_head]` whose leading dimensions broadcast with the angles'."""
        n = self.cos.shape[-1]
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        rotated, others = x[..., : 2 * n], x[..., 2 * n :]
        if self.interleaved:
            u, v = rotated[..., ::2], rotated[..., 1::2]
            turned = torch.stack([u * cos - v * sin, u * sin + v * cos], -1).flatten(-2)
        else:
            u, v = rotated[..., :n], rotated[..., n:]
            turned = torch.cat([u * cos - v * sin, u * sin + v * cos], -1)
        return torch.cat([turned, others.expand(*turned.shape[:-1], -1)], -1) if others.shape[-1] else turned


def frequencies(cfg: PositionSettings, n_pos: int | Tensor | None = None) -> Tensor:
    """Return θ_f `[pair]`, in radians a position, float64 on the CPU; with dynamic scaling, those of a sequence of
    `n_pos` positions (None: of the whole context), or of several, of lengths `[batch]`: `[batch, pair]`."""
    rotary = cfg.rotary
    if rotary is None:
        raise ValueError(f"frequencies: expected positions='rotary', got positions={cfg.positions!r}.")
    dim = cfg.d_head if rotary.dim is None else rotary.dim
    factor, original = rotary.factor or 1.0, rotary.original_n_ctx or cfg.n_ctx
    base = torch.tensor(float(rotary.base), dtype=torch.float64, device="cpu")
    if rotary.scaling == "dynamic":
        length = torch.as_tensor(cfg.n_ctx if n_pos is None else n_pos).to(base).clamp(min=original)
        base = base * (factor * length / original - (factor - 1)) ** (dim / (dim - 2))
    theta = base[..., None] ** -(torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim)
    if rotary.scaling == "linear":
        return theta / factor
    if rotary.scaling == "llama3":
        low, high = rotary.low_freq_factor or 0.0, rotary.high_freq_factor or 0.0
        share = ((original * theta / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        return share * theta + (1 - share) * theta / factor
    return theta


def rotation(cfg: PositionSettings, positions: Tensor, n_pos: int | Tensor | None = None) -> Rotation:
    """Return R_p for `positions`, whole numbers of any shape (distances too: R_δ), of sequences of `n_pos`
    positions; with lengths `[batch]`, `positions` are `[batch or 1, …]`."""
    theta = frequencies(cfg, n_pos).to(torch.float32 if positions.device.type == "mps" else torch.float64)
    if theta.ndim == 2:
        theta = theta.view(len(theta), *[1] * (positions.ndim - 1), -1)
    angles = positions[..., None] * theta.to(positions.device)
    assert cfg.rotary is not None
    return Rotation(angles.cos(), angles.sin(), cfg.rotary.pairs == "interleaved")


def alibi_slopes(cfg: PositionSettings) -> tuple[float, ...]:
    """Return m_h of each head, in nats a position: the configuration's, or Press et al.'s 2^(−8 (h + 1) / n_heads),
    which for another number of heads than a power of two takes every other slope of the next power for the heads that
    are left.
    """
    if cfg.alibi_slopes is not None:
        return cfg.alibi_slopes
    power = 2 ** math.floor(math.log2(cfg.n_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    more = [2 ** (-8 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return tuple(slopes + more[: cfg.n_heads - power])


def alibi_bias(cfg: PositionSettings, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Return −m_h (i − j) `[batch or 1, head, query, key]` of positions numbered `[batch or 1, pos]`."""
    slopes = torch.tensor(alibi_slopes(cfg), dtype=dtype, device=keys.device)
    distance = (queries[:, None, :, None] - keys[:, None, None, :]).to(dtype)
    return -slopes[:, None, None] * distance


@dataclass(frozen=True, eq=False)
class PositionTerms:
    """The action of positions in the attention layers of one run; nothing where they are in the stream or nowhere."""

    added: Tensor | None = None
    """`[batch or 1, pos, d_model]`, added to the inputs of queries and keys (`"qk"`)."""
    rotation: Rotation | None = None
    """The rotation of queries and keys `[batch or 1, pos, head, d_head]` (`"rotary"`)."""
    bias: Tensor | None = None
    """`[batch or 1, head, query, key]`, added to scores (`"alibi"`)."""

    @classmethod
    def of(cls, cfg: PositionSettings, ids: Tensor, dtype: torch.dtype) -> PositionTerms:
        """Compute the terms of rotary and ALiBi positions numbered `ids [batch or 1, pos]`. With dynamic scaling each
        row has the frequencies of its own length, as without padding."""
        kind = POSITIONS[cfg.positions]
        if kind.rotates:
            dynamic = cfg.rotary is not None and cfg.rotary.scaling == "dynamic"
            return cls(rotation=rotation(cfg, ids[..., None], ids.amax(-1) + 1 if dynamic else ids.shape[-1]))
        if kind.biases:
            return cls(bias=alibi_bias(cfg, ids, ids, dtype))
        return cls()

    def at(self, position: int) -> Rotation:
        """Return R_p of one position of the first row."""
        assert self.rotation is not None
        turn = self.rotation
        return Rotation(turn.cos[0, position], turn.sin[0, position], turn.interleaved)

    def rotated(self, x: Tensor, start: int = 0) -> Tensor:
        """Return queries or keys `[row, pos, head, d_head]` from position `start` on, turned by their positions."""
        if self.rotation is None:
            return x
        turn = self.rotation
        return Rotation(turn.cos[:, start:], turn.sin[:, start:], turn.interleaved)(x)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
