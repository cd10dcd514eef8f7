"""One head of a compiled model: its pattern, gate and mask are the model's own, and heads add up to the layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.distill.compile import attention_masks, compile_ffn, describe_heads, head_at_input, head_gate
from aotlens.distill.compile.examples import interpolate, random_network, with_activation
from aotlens.distill.compile.layers import CONSTRUCTIONS
from tests.messages import refused


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("auxiliary", ["unit", "random"])
def test_a_heads_numbers_are_the_models(construction, auxiliary: str):
    network = random_network(1, width=3, depth=2, seed=1)
    compiled = compile_ffn(
        network, bound=2, tolerance=0.05, construction=construction, auxiliary=auxiliary, n_tokens=4
    ).with_etas([0.4, 0.4])
    wrote = [torch.zeros(compiled.model.cfg.d_model - 1, dtype=torch.float64).numpy() for _ in range(2)]
    for role in describe_heads(compiled).roles:
        result = head_at_input(compiled, (role.layer, role.head), [0.7])
        np.testing.assert_allclose(result.pattern.sum(1), 1.0, atol=1e-12)
        assert np.all(result.pattern[~result.visible] == 0)
        assert len(result.to_frame()) == result.visible.sum()
        wrote[role.layer] += result.wrote
        if role.eta is None:
            continue
        t = float(result.read[0])
        assert result.pattern[1, 1] == pytest.approx(1 / (1 + np.exp(-t / role.eta)), abs=1e-9)
        np.testing.assert_allclose(result.wrote, t * result.pattern[1, 1] * role.writes.numpy()[0], atol=1e-9)
        gate = head_gate(compiled, (role.layer, role.head), [0.7])
        np.testing.assert_allclose(gate.result, gate.read / (1 + np.exp(-gate.read / role.eta)), atol=1e-9)
        assert gate.at == pytest.approx(t) and (gate.gap is not None) == (role.job == "unit")
    # What a layer's heads write, and the stream before it, are the stream after it.
    _, cache = compiled.model.run_with_cache(
        compiled.embed(torch.tensor([[[0.7], [-2.0], [0.0], [2.0]]], dtype=torch.float64))
    )
    for layer in range(2):
        before, after = (cache[f"blocks.{layer}.hook_resid_{end}"][0, 1, :-1].numpy() for end in ("pre", "post"))
        np.testing.assert_allclose(before + wrote[layer], after, atol=1e-9)


def test_a_gate_is_silu_and_every_kind_of_mask_is_there_once():
    compiled = compile_ffn(interpolate([-1, 0, 1], [0, 1, 0]), bound=2, tolerance=0.05)
    gate = head_gate(compiled)
    t = torch.from_numpy(gate.t)
    silu = gate.eta * torch.nn.functional.silu(t / gate.eta)
    np.testing.assert_allclose(gate.t * gate.weight, silu, atol=1e-12)
    assert (torch.relu(t) - silu).max() <= gate.gap == pytest.approx(0.2785 * gate.eta, rel=1e-3)
    assert list(gate.to_frame().columns) == ["x", "t", "result"] and np.abs(gate.x).max() == 2
    masks = attention_masks(compiled)
    np.testing.assert_array_equal(masks.masks[0], np.eye(9, dtype=bool))
    assert masks.masks[1][1:, 0].all() and not masks.masks[1][1, 2] and not masks.masks[1][0, 1]
    assert masks.n_heads == (1, 3) and len(masks.to_frame()) == masks.masks.sum()
    smooth = compile_ffn(with_activation(compiled.ffn, "silu"), bound=2, tolerance=1e-9)
    assert head_gate(smooth).gap is None and describe_heads(smooth).kinks == ("",) * 4


@pytest.mark.unchecked
def test_wrong_heads_and_inputs_are_refused():
    compiled = compile_ffn(interpolate([-1, 0, 1], [0, 1, 0]), bound=2, tolerance=0.05, n_tokens=1)
    assert head_at_input(compiled).str_tokens == ("aux.", "x=0.5")  # the rest of the sequence is left out
    for head, x, why in (
        ((0, 9), None, "0.9"), ((0, 1), (3.0,), "in [-2, 2]"), ((0, 1), (0.1, 0.2), "expected 1 numbers"),
        ((0, 1), (float("nan"),), "nan"),
    ):  # fmt: skip
        with refused(why):
            head_at_input(compiled, head, x)
    with refused("'random'"):
        compile_ffn(compiled.ffn, bound=2, tolerance=0.05, auxiliary="none")
