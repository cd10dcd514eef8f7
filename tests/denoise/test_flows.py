"""The asymmetry of heads against Jacobians by autograd, and where it must be 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.denoise import head_asymmetry
from aotlens.denoise.subspaces import centred_frame, random_basis
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.small_models import SMALL, maker

TOKENS = torch.randint(11, (2, 8), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changes", [{}, {"attention": "mssa", "bias": True, "positions": "qk"}, {"norm": None}])
def test_it_is_that_of_autograds_jacobian(changes: dict) -> None:
    """∂f/∂s of one head as a function of the centred, normalised query, everything else as the model ran it."""
    model = maker({**SMALL, "n_layers": 2, "d_head": 3})(torch.float64, **changes)
    result = head_asymmetry(model, TOKENS, every=3, n_draws=4)
    assert result.n_queries == 4
    _, cache = model.run_with_cache(TOKENS)
    cfg, centring = model.cfg, torch.eye(12).double() - (1 / 12 if model.cfg.norm else 0)
    expected = np.zeros((2, 3))
    for layer, head in np.ndindex(2, 3):
        attn = model.blocks[layer].attn
        gain = model.blocks[layer].ln1.w.detach() if cfg.norm else torch.ones(12).double()
        for window in range(2):
            for position in (3, 6):
                k = cache[f"blocks.{layer}.attn.hook_k"][window, : position + 1, head]
                v = cache[f"blocks.{layer}.attn.hook_v"][window, : position + 1, head]
                q = cache[f"blocks.{layer}.attn.hook_q"][window, position, head]

                def moved(step, q=q, k=k, v=v, attn=attn, gain=gain, head=head):
                    asked = q + (step @ centring * gain) @ attn.W_Q[head]
                    pattern = (k @ asked * cfg.score_scale).softmax(-1)
                    return pattern @ v @ attn.W_O[head] @ centring

                J = torch.autograd.functional.jacobian(moved, torch.zeros(12).double()).mT
                expected[layer, head] += float((J - J.mT).norm() / (J + J.mT).norm()) / 4
    np.testing.assert_allclose(result.asymmetry.numpy(), expected, rtol=1e-6)


def test_tied_heads_without_positions_are_gradient_flows_and_their_turned_outputs_are_not() -> None:
    cfg = ModelConfig(
        n_layers=2, d_model=40, n_heads=2, d_head=4, n_ctx=8, d_vocab=11, attention="mssa", tied_output=True,
        positions=None, norm=None,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).double().eval()
    result = head_asymmetry(model, TOKENS, every=2, n_draws=9)
    assert float(result.asymmetry.max()) < 1e-6
    assert float(result.null.min()) > 0.5 and 0.85 < float(result.null.mean()) < 1.15
    assert (result.p_below == 0.1).all() and result.headline.endswith("4 of 4 heads below every rotation")
    frame = result.to_frame()
    assert frame.asymmetry.is_monotonic_increasing and len(frame) == 4


def test_unrelated_maps_are_within_their_null() -> None:
    """Heads drawn at random are no more symmetric than with their outputs turned."""
    p_values = []
    for seed in range(8):
        torch.manual_seed(seed)
        cfg = ModelConfig(n_layers=1, d_model=20, n_heads=3, d_head=4, n_ctx=8, d_vocab=11)
        p_values += head_asymmetry(AttentionOnlyTransformer(cfg).eval(), TOKENS, every=2, n_draws=19).p_below.flatten()
    assert abs(np.mean(p_values) - 0.525) < 4 * 0.289 / 24**0.5


def test_a_head_whose_pattern_rests_on_one_key_has_no_asymmetry() -> None:
    """Its Jacobian is zero: NaN, as `energies.asymmetry` has it, and no head that is nearest to a gradient flow."""
    model = maker({**SMALL, "n_layers": 2, "d_head": 3})(torch.float64)
    with torch.no_grad():
        for attn, saturated in ((model.blocks[0].attn, [0]), (model.blocks[1].attn, [0, 1, 2])):
            attn.W_Q[saturated] *= 1e9
    result = head_asymmetry(model, TOKENS, every=3, n_draws=4)
    known = torch.tensor([[False, True, True], [False, False, False]])
    assert torch.equal(~result.asymmetry.isnan(), known) and torch.equal(~result.p_below.isnan(), known)
    assert result.n_queries == 4
    assert result.headline.startswith("least in head 0.") and " of 2 heads below" in result.headline
    assert result.to_frame().asymmetry.isna().tolist() == [False] * 2 + [True] * 4
    with torch.no_grad():
        model.blocks[0].attn.W_Q *= 1e9
    assert head_asymmetry(model, TOKENS, every=3, n_draws=1).headline == "the Jacobians of all heads are zero"


def test_the_null_turns_the_dimensions_behind_the_norm_alone() -> None:
    """J R, the rotation of the centred dimensions only: loops over the same rotations, and ‖J‖ is kept."""
    model = maker({**SMALL, "n_layers": 1, "n_heads": 1, "d_head": 3})(torch.float64)
    result = head_asymmetry(model, TOKENS[:1], every=7, n_draws=3, seed=2)
    _, cache = model.run_with_cache(TOKENS[:1])
    k, v = (cache[f"blocks.0.attn.hook_{name}"][0, :, 0] for name in "kv")
    pattern = cache["blocks.0.attn.hook_pattern"][0, 0, 7]
    C = (k.mT * pattern) @ v - torch.outer(pattern @ k, pattern @ v)
    centring = torch.eye(12).double() - 1 / 12
    J = centring @ (model.blocks[0].ln1.w[:, None] * model.W_Q[0, 0]) @ C @ model.W_O[0, 0] @ centring
    generator, frame = torch.Generator().manual_seed(2), centred_frame(12, 11)
    for draw in range(3):
        turned = J.detach() @ frame @ random_basis(11, 11, generator) @ frame.mT
        torch.testing.assert_close(turned.norm(), J.norm().detach())
        expected = (turned - turned.mT).norm() / (turned + turned.mT).norm()
        torch.testing.assert_close(result.null[draw, 0, 0], expected, rtol=1e-9, atol=0)


def test_what_has_no_such_jacobian_is_refused() -> None:
    with pytest.raises(ValueError, match="softmax attention's"):
        head_asymmetry(maker()(phi="linear"), TOKENS)
    with pytest.raises(ValueError, match="longer than every=16"):
        head_asymmetry(maker()(), TOKENS)
