"""The audit of trained layers: against loops in numpy, where the theorem is exact, and where nothing is to be found."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens.denoise import audit, sample_mixture
from aotlens.heads import subspaces
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.small_models import SMALL, maker

TOKENS = torch.randint(11, (4, 8), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changes", [{}, {"attention": "mssa", "bias": True}, {"norm": None}, {"d_mlp": 6}])
def test_ratios_are_those_of_loops(changes: dict) -> None:
    model = maker({**SMALL, "d_head": 3})(torch.float64, **changes)
    result = audit(model, TOKENS, n_draws=2)
    _, cache = model.run_with_cache(TOKENS)
    bases = subspaces(model, n_random=1).bases
    assert result.n_tokens == 28 and result.sizes.sum(-1).tolist() == [[84, 84], [28, 28], [28, 28]]
    for layer in range(2):
        before = cache[f"blocks.{layer}.hook_resid_pre"][:, 1:].reshape(28, 12).numpy()
        after = before + cache[f"blocks.{layer}.hook_attn_out"][:, 1:].reshape(28, 12).numpy()
        if model.cfg.norm:
            before, after = (stream - stream.mean(1, keepdims=True) for stream in (before, after))
        held = [np.linalg.norm(before @ basis, axis=1) for basis in bases[layer]]
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"].numpy()  # [window, head, query, key]
        largest = [max(pattern[w, h, q, 1:]) for h in range(3) for w in range(4) for q in range(1, 8)]
        groups = {"subspace": np.argmax(held, 0), "pattern": np.argmax(np.reshape(largest, (3, 28)), 0)}
        for head in range(3):
            projection = bases[layer, head] @ bases[layer, head].T
            for name in result.groupings:
                members = np.ones(28, dtype=bool) if name == "all tokens" else groups[name] == head
                index = result.groupings.index(name)
                for moment, stream in enumerate((before, after)):
                    inside = stream[members] @ projection
                    expected = np.linalg.norm(inside) / np.linalg.norm(stream[members] - inside)
                    np.testing.assert_allclose(result.snr[moment, index, layer, head], expected, rtol=1e-9)
        ratios = (result.snr[1, 1, layer] / result.snr[0, 1, layer]).numpy()
        assert float(result.ratios[1, layer]) == pytest.approx(math.exp(np.nanmean(np.log(ratios))))


def unrolled(noise: float, **changes: object) -> tuple[AttentionOnlyTransformer, torch.Tensor]:
    """*aot*'s own operator as a model of two layers whose tokens are a mixture's, and windows of them."""
    mixture = sample_mixture(3, 32, 90, 96, noise, seed=2)
    cfg = ModelConfig(
        **{
            "n_layers": 2, "d_model": 96, "n_heads": 3, "d_head": 32, "n_ctx": 32, "d_vocab": 270,
            "attention": "mssa", "tied_output": True, "step_size": 0.5, "attn_scale": 1.0, "norm": None,
            "phi": "thresholded_softmax", "threshold": 0.6, "positions": None, "causal": False,
            **changes,
        }
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).double().eval()
    with torch.no_grad():
        model.embed.W_E.copy_(mixture.tokens)
        for block in model.blocks:
            block.attn.U.copy_(mixture.bases)
    order = torch.randperm(270, generator=torch.Generator().manual_seed(3))
    return model, order.view(9, 30)


def test_layers_of_the_theorem_have_its_rate_and_rotations_do_not() -> None:
    model, tokens = unrolled(0.02)
    result = audit(model, tokens, n_draws=20)
    assert result.predicted_rate == pytest.approx(1.3)
    for grouping in (1, 2):
        torch.testing.assert_close(
            result.ratios[grouping], torch.full((2,), 1.3, dtype=torch.float64), rtol=1e-9, atol=0
        )
        assert float(result.null_ratios[:, grouping].max()) < 1.3
    frame = result.to_frame()
    assert (frame[frame.grouping != "all tokens"].p_above == 1 / 21).all()
    assert float(result.snr[0, 1].min()) > 10  # tokens are given to the subspaces that they were drawn from
    # The heads' tokens lie in 32 directions, which half of them show; random groups do not.
    pca = result.pca_frame()
    assert (pca.snr > 2 * pca.null_snr).all() and len(pca) == 4
    assert audit(*unrolled(0.02, phi="softmax", threshold=None), n_draws=1).predicted_rate is None


def test_a_model_that_writes_at_random_is_within_its_null() -> None:
    """Over models whose outputs know nothing of their subspaces, p-values are spread as they should be."""
    p_values = []
    for seed in range(20):
        torch.manual_seed(seed)
        cfg = ModelConfig(n_layers=1, d_model=24, n_heads=2, d_head=4, n_ctx=12, d_vocab=50, attention="mssa")
        model = AttentionOnlyTransformer(cfg).eval()
        with torch.no_grad():
            model.embed.W_E.normal_()
            model.blocks[0].attn.U.normal_(std=0.2)
            model.blocks[0].attn.W_O.normal_(std=0.5)
        result = audit(model, torch.randint(50, (6, 12)), n_draws=19, seed=seed)
        frame = result.to_frame()
        p_values.append(frame.p_above.to_numpy())
    p_values = np.array(p_values)  # [model, grouping]
    assert np.all(np.abs(p_values.mean(0) - 0.525) < 0.26)  # four standard errors of a uniform's mean over 20
    assert ((p_values <= 0.2).mean(0) <= 0.55).all()


def test_rotations_leave_angles_and_sizes_alone_and_are_drawn_by_seed() -> None:
    model = maker({**SMALL, "d_head": 3})()
    first, again = (audit(model, TOKENS, n_draws=3, seed=5) for _ in range(2))
    assert torch.equal(first.null_snr, again.null_snr)
    other = audit(model, TOKENS, n_draws=3, seed=6)
    assert not torch.equal(first.null_snr, other.null_snr) and torch.equal(first.snr, other.snr)
    assert first.relative_depth.tolist() == [0.5, 1.0]
    seen: list[tuple[int, int]] = []
    audit(model, TOKENS, n_draws=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_one_sequence_is_cut_into_windows() -> None:
    model = maker({**SMALL, "d_head": 3})()  # a context of 8
    sequence = torch.randint(11, (27,), generator=torch.Generator().manual_seed(2))
    expected = audit(model, sequence[:24].view(3, 8), n_draws=1)
    for whole in (sequence, sequence[None]):
        torch.testing.assert_close(audit(model, whole, n_draws=1).snr, expected.snr, rtol=0, atol=0, equal_nan=True)
    expected, short = audit(model, sequence[:10].view(2, 5), n_draws=1), audit(model, sequence[:11], n_draws=1)
    torch.testing.assert_close(short.snr, expected.snr, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("tokens", "n_draws", "message"),
    [(TOKENS[:1, :5], 1, "one text of at least 6"), (TOKENS[:, :2], 1, "at least 3 tokens"), (TOKENS, 0, "n_draws=0")],
)
def test_what_cannot_be_audited_is_refused(tokens: torch.Tensor, n_draws: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit(maker()(), tokens, n_draws=n_draws)


def test_a_fixed_pattern_is_refused() -> None:
    model = maker()(phi="fixed", fixed_pattern="random", causal=False)
    with pytest.raises(ValueError, match="chooses no tokens"):
        audit(model, TOKENS)
