"""Rotary and ALiBi positions, RMS norms, grouped keys and gated MLPs: a model of a few lines of numpy, `transformers`'
frequencies, and shifted position numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.models.positions import alibi_slopes, frequencies, rotation
from tests.messages import refused
from tests.small_models import SMALL, MakeModel

SIZES = {**SMALL, "n_heads": 6, "d_head": 6, "n_ctx": 16}
ROTARY = {"base": 50.0, "dim": 4, "pairs": "interleaved"}
MODELS: dict[str, dict[str, Any]] = {
    "rotary": {"positions": "rotary", "rotary": {"base": 70.0}, "norm": "rms"},
    "interleaved, a share": {"positions": "rotary", "rotary": ROTARY, "bias": True, "norm_gain_offset": 1.0},
    "MSSA": {"positions": "rotary", "attention": "mssa", "norm": "rms", "bias": True},
    "groups": {"positions": "rotary", "rotary": ROTARY, "n_kv_heads": 2, "qkv_bias": True, "norm": "rms"},
    "alibi": {"positions": "alibi", "bias": True, "qkv_bias": False},
    "slopes": {"positions": "alibi", "alibi_slopes": (0.1, 0.2, 0.0, 1.0, 2.0, 0.5), "n_kv_heads": 3, "norm": None},
    "gated": {"d_mlp": 9, "gated_mlp": True, "act_fn": "silu", "bias": True, "positions": None, "norm": "rms"},
    "parallel": {"d_mlp": 9, "parallel": True, "bias": True, "positions": "rotary"},
}


def plainly(model: AttentionOnlyTransformer, ids: np.ndarray) -> np.ndarray:
    """Logits `[pos, d_vocab]`, written out position by position."""
    cfg = model.cfg
    w = {name: value.detach().double().numpy() for name, value in model.named_parameters()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        if cfg.norm is None:
            return x
        if cfg.norm == "layernorm":
            x = x - x.mean(-1, keepdims=True)
        gain = w[f"{name}.w"] + cfg.norm_gain_offset
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + cfg.norm_eps) * gain + w.get(f"{name}.b", 0)

    def turned(x: np.ndarray, position: int) -> np.ndarray:
        """Pairs of coordinates as complex numbers, times e^{iθp}."""
        if cfg.rotary is None:
            return x
        n = (cfg.rotary.dim or cfg.d_head) // 2
        places = [(2 * f, 2 * f + 1) if cfg.rotary.pairs == "interleaved" else (f, f + n) for f in range(n)]
        x = x.copy()
        for f, (a, b) in enumerate(places):
            number = (x[a] + 1j * x[b]) * np.exp(1j * position * cfg.rotary.base ** (-f / n))
            x[a], x[b] = number.real, number.imag
        return x

    def mlp(x: np.ndarray, layer: int) -> np.ndarray:
        act = torch.nn.functional.silu if cfg.act_fn == "silu" else torch.nn.functional.gelu
        activated = lambda values: act(torch.from_numpy(values)).numpy()  # noqa: E731
        get = {name: w.get(f"blocks.{layer}.mlp.{name}", 0) for name in ("W_in", "b_in", "W_gate", "b_gate", "b_out")}
        read = x @ get["W_in"] + get["b_in"]
        post = activated(x @ get["W_gate"] + get["b_gate"]) * read if cfg.gated_mlp else activated(read)
        return post @ w[f"blocks.{layer}.mlp.W_out"] + get["b_out"]

    x = w["embed.W_E"][ids]
    for layer in range(cfg.n_layers):
        read, added = norm(x, f"blocks.{layer}.ln1"), np.zeros_like(x) + w.get(f"blocks.{layer}.attn.b_O", 0)
        for head in range(cfg.n_heads):
            group = head * (cfg.n_kv_heads or cfg.n_heads) // cfg.n_heads

            def made(name: str) -> np.ndarray:
                if cfg.attention == "mssa":
                    W, b, of = w[f"blocks.{layer}.attn.U"], w.get(f"blocks.{layer}.attn.b"), head  # noqa: B023
                else:
                    stored = f"_{name}" if cfg.n_kv_heads and name != "Q" else name
                    prefix, of = f"blocks.{layer}.attn.", head if stored == name else group  # noqa: B023
                    mark = "_" if stored != name else ""
                    W, b = w[f"{prefix}{mark}W_{name}"], w.get(f"{prefix}{mark}b_{name}")
                return read @ W[of] + (0 if b is None else b[of])  # noqa: B023

            q, k, v = made("Q"), made("K"), made("V")
            for i in range(len(x)):
                scores = np.array([turned(q[i], i) @ turned(k[j], j) for j in range(i + 1)]) / np.sqrt(cfg.d_head)
                if cfg.positions == "alibi":
                    scores -= alibi_slopes(cfg)[head] * (i - np.arange(i + 1))
                pattern = np.exp(scores - scores.max())
                added[i] += (pattern / pattern.sum()) @ v[: i + 1] @ w[f"blocks.{layer}.attn.W_O"][head]
        if cfg.d_mlp and cfg.parallel:
            added += mlp(norm(x, f"blocks.{layer}.ln2"), layer)
        x = x + added
        if cfg.d_mlp and not cfg.parallel:
            x = x + mlp(norm(x, f"blocks.{layer}.ln2"), layer)
    return norm(x, "ln_final") @ w["unembed.W_U"] + w.get("unembed.b_U", 0)


@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS)
def test_logits_are_those_of_the_formulas_with_hooks_and_without(make: MakeModel, fields: dict[str, Any]) -> None:
    model = make(torch.float64, **{**SIZES, **fields})
    ids = torch.randint(11, (1, 9), generator=torch.Generator().manual_seed(3))
    expected = torch.from_numpy(plainly(model, ids[0].numpy()))
    torch.testing.assert_close(model(ids)[0], expected, rtol=1e-9, atol=1e-9)
    hooked, cache = model.run_with_cache(ids)
    torch.testing.assert_close(hooked[0], expected, rtol=1e-9, atol=1e-9)
    pattern = cache["pattern", 1]
    torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
    assert ModelConfig.from_dict(model.cfg.to_dict()) == model.cfg


@pytest.mark.parametrize("fields", [MODELS["groups"], MODELS["alibi"]], ids=["rotary", "alibi"])
def test_a_padded_row_is_the_row_alone(make: MakeModel, fields: dict[str, Any]) -> None:
    """Positions count from the first real one, so padding on the left shifts them all and changes nothing."""
    model = make(torch.float64, **{**SIZES, **fields})
    ids = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(4))
    padded = torch.nn.functional.pad(ids, (3, 0))
    mask = torch.nn.functional.pad(torch.ones_like(ids), (3, 0)).bool()
    torch.testing.assert_close(model(padded, attention_mask=mask)[:, 3:], model(ids))


def test_rows_of_dynamic_frequencies_have_those_of_their_own_lengths(make: MakeModel) -> None:
    rotary = {"scaling": "dynamic", "factor": 4.0, "original_n_ctx": 3, "base": 50.0}
    model = make(torch.float64, **{**SIZES, "positions": "rotary", "rotary": rotary})
    ids = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(4))
    starts, ends = (0, 4, 0), (9, 9, 6)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        mask[row, start:end] = True
    logits = model(ids, attention_mask=mask)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        torch.testing.assert_close(logits[row, start:end], model(ids[row : row + 1, start:end])[0])


def test_heads_of_a_group_share_keys_and_values_and_each_may_be_patched_alone(make: MakeModel) -> None:
    model = make(**{**SIZES, **MODELS["groups"]})
    assert torch.equal(model.W_K[:, 0], model.W_K[:, 2]) and not torch.equal(model.W_K[:, 2], model.W_K[:, 3])
    assert dict(model.named_parameters())["blocks.0.attn._W_K"].shape == (2, 12, 6)
    ids = torch.randint(11, (1, 6))

    def first(k: torch.Tensor, hook: Any) -> torch.Tensor:
        k[:, :, 0] = 0.0
        return k

    _, clean = model.run_with_cache(ids)
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_k", first)]):
        _, patched = model.run_with_cache(ids)
    change = (clean["attn_scores", 0] - patched["attn_scores", 0]).nan_to_num().abs().amax((0, 2, 3))
    assert change[0] > 0 and not change[1:].any()


@pytest.mark.parametrize(
    ("kind", "fields", "n_pos"),
    [
        ("linear", {"factor": 4.0}, 40),
        ("dynamic", {"factor": 2.5, "original_n_ctx": 16}, 12),
        ("dynamic", {"factor": 2.5, "original_n_ctx": 16}, 40),
        ("llama3", {"factor": 8.0, "original_n_ctx": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, 40),
    ],
)
def test_scaled_frequencies_are_those_of_transformers(kind: str, fields: dict[str, Any], n_pos: int) -> None:
    rotary = {"base": 500.0, "dim": 12, "scaling": kind, **fields}
    cfg = ModelConfig(**{**SIZES, "d_head": 14, "positions": "rotary", "rotary": rotary})
    theirs = LlamaConfig(
        hidden_size=14, num_attention_heads=1, head_dim=14, max_position_embeddings=fields.get("original_n_ctx", 64),
        rope_parameters={
            "rope_type": kind, "rope_theta": 500.0, "factor": fields["factor"], "partial_rotary_factor": 12 / 14,
            "original_max_position_embeddings": fields.get("original_n_ctx"),
            "low_freq_factor": fields.get("low_freq_factor"), "high_freq_factor": fields.get("high_freq_factor"),
        },
    )  # fmt: skip
    expected, _ = ROPE_INIT_FUNCTIONS[kind](theirs, torch.device("cpu"), seq_len=n_pos)
    torch.testing.assert_close(frequencies(cfg, n_pos).float(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("pairs", ["half", "interleaved"])
def test_a_score_depends_on_the_distance_alone(pairs: str) -> None:
    cfg = ModelConfig(**{**SIZES, "positions": "rotary", "rotary": {"base": 9.0, "dim": 4, "pairs": pairs}})
    q, k = torch.randn(2, 6, dtype=torch.float64)
    score = lambda i, j: rotation(cfg, torch.tensor(i))(q) @ rotation(cfg, torch.tensor(j))(k)  # noqa: E731
    torch.testing.assert_close(score(9, 4), score(1009, 1004))
    torch.testing.assert_close(score(9, 4), rotation(cfg, torch.tensor(5))(q) @ k)
    assert not torch.isclose(score(9, 4), score(4, 9))


def test_slopes_are_those_of_the_paper() -> None:
    slopes = alibi_slopes(ModelConfig(**{**SIZES, "n_heads": 6, "positions": "alibi"}))
    assert slopes == pytest.approx([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_kv_heads": 0}, "n_kv_heads=0: expected a whole number of at least 1"),
        ({"n_kv_heads": 4}, "n_kv_heads=4 does not divide n_heads=6"),
        ({"n_kv_heads": 2, "attention": "mssa"}, "n_kv_heads=2 needs attention='mhsa'"),
        ({"positions": "rotary", "rotary": {"base": -1}}, "rotary base=-1: expected a finite number above 1"),
        ({"positions": "rotary", "rotary": {"dim": 3}}, "rotary dim=3: expected an even whole number"),
        ({"positions": "rotary", "rotary": {"dim": 8}}, "a head has only d_head=6 coordinates"),
        ({"positions": "rotary", "rotary": {"theta": 8}}, "some of the keys base, dim, pairs"),
        ({"positions": "rotary", "rotary": {"factor": 2.0}}, "factor=2.0 has no meaning with scaling=None"),
        ({"positions": "rotary", "rotary": {"scaling": "yarn"}}, "rotary scaling='yarn': expected one of 'linear'"),
        ({"positions": "rotary", "rotary": {"scaling": "linear"}}, "rotary factor=None: expected a number"),
        ({"positions": "rotary", "d_head": 5}, "d_head=5: rotary positions turn pairs of coordinates"),
        ({"positions": "rotary", "phi": "fixed", "fixed_pattern": "random"}, "phi='fixed' has neither"),
        ({"rotary": {}}, "rotary={} needs positions='rotary', got 'learned'"),
        ({"positions": "alibi", "causal": False}, "positions='alibi' count back from a query"),
        ({"positions": "alibi", "alibi_slopes": (1.0,)}, "expected 6 numbers of at least 0"),
        ({"positions": "alibi", "alibi_slopes": 3}, "expected 6 numbers of at least 0"),
        ({"gated_mlp": True}, "gated_mlp=True needs d_mlp"),
        ({"norm": None, "norm_gain_offset": 1.0}, "norm_gain_offset=1.0 needs a norm"),
        ({"qkv_bias": 2}, "qkv_bias=2: expected True, False or None"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with refused(message):
        ModelConfig(**{**SIZES, **fields})
