"""The audit of trained layers: against loops in numpy, where the theorem is exact, and where nothing is to be found."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens.denoise import audit, sample_mixture
from aotlens.denoise.subspaces import Principal, centred_frame, random_basis, within_halves
from aotlens.heads import subspaces
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.image_models import MEAN_POOLED, PATCHES, random_images
from tests.messages import refused
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


def test_nulls_are_those_of_loops() -> None:
    """Writes rotated with subspaces kept, and subspaces rotated with the assignment redone, by the same rotations."""
    model = maker({**SMALL, "d_head": 3})(torch.float64)
    result = audit(model, TOKENS, n_draws=3, seed=4)
    generator = torch.Generator().manual_seed(4)
    frame = centred_frame(12, 11).numpy()
    rotations = [frame @ random_basis(11, 11, generator).numpy() @ frame.T for _ in range(3)]
    _, cache = model.run_with_cache(TOKENS)
    bases = subspaces(model, n_random=1).bases
    for layer in range(2):
        before = cache[f"blocks.{layer}.hook_resid_pre"][:, 1:].reshape(28, 12).numpy()
        write = cache[f"blocks.{layer}.hook_attn_out"][:, 1:].reshape(28, 12).numpy()
        before, write = (rows - rows.mean(1, keepdims=True) for rows in (before, write))
        own = np.argmax([np.linalg.norm(before @ basis, axis=1) for basis in bases[layer]], 0)
        for draw, rotation in enumerate(rotations):
            turned = [rotation @ basis for basis in bases[layer]]
            redone = np.argmax([np.linalg.norm(before @ basis, axis=1) for basis in turned], 0)
            assert (redone != own).any()
            for head in range(3):
                cases = (
                    (result.null_snr[draw, 1], bases[layer][head], before + write @ rotation, own),
                    (result.rotated_snr[draw, 0, 1], turned[head], before, redone),
                    (result.rotated_snr[draw, 1, 1], turned[head], before + write, redone),
                )
                for measured, basis, stream, labels in cases:
                    rows = stream[labels == head]
                    inside = rows @ basis @ basis.T
                    with np.errstate(invalid="ignore"):
                        expected = np.linalg.norm(inside) / np.linalg.norm(rows - inside)
                    np.testing.assert_allclose(measured[layer, head], expected, rtol=1e-9)


def test_principal_directions_are_fitted_on_one_half_and_measured_on_the_other() -> None:
    """Tokens of one half are longest in one plane, those of the other lie in another, which no fit has seen."""
    generator = torch.Generator().manual_seed(0)
    half = torch.arange(40) % 2 == 0
    stream = torch.zeros(40, 6, dtype=torch.float64)
    stream[1:33:2, :2] = torch.randn(16, 2, generator=generator, dtype=torch.float64)
    stream[33::2, 2:] = 0.01 * torch.eye(4).double()
    stream[half] = torch.tensor([0.5, 0, 1, 1, 0, 0], dtype=torch.float64)
    directions = Principal.fit(stream, torch.ones(40, 1).double(), half, [2])
    assert float(directions.snr(stream[None])[0, 0]) == pytest.approx(0.5 / 2**0.5)
    # Three different tokens again and again, with the rounding of float32: they choose no three directions of six.
    few = torch.randn(3, 6, generator=generator)[torch.arange(40) % 3]
    few = (few + 1e-7 * torch.randn(40, 6, generator=generator)).double()
    fits = [Principal.fit(few, torch.ones(40, 1).double(), half, [rank]).snr(few[None]) for rank in (2, 3)]
    assert fits[0].isfinite().all() and fits[1].isnan().all()
    order = within_halves(half, generator)
    assert torch.equal(half[order], half) and sorted(order.tolist()) == list(range(40))


@pytest.mark.long
def test_writes_that_know_nothing_of_the_subspaces_are_within_their_null() -> None:
    """Heads read where the stream is long, as trained ones do, and write in directions drawn at random: p ≤ 0.05 in 5%.

    Beside rotated subspaces, whose SNR starts lower, most of the same layers fall below every draw.
    """
    p_values, below_rotated_subspaces = [], []
    for seed in range(40):
        torch.manual_seed(seed)
        cfg = ModelConfig(
            n_layers=1, d_model=24, n_heads=2, d_head=4, n_ctx=12, d_vocab=50, attention="mssa", positions=None
        )
        model = AttentionOnlyTransformer(cfg).double().eval()
        with torch.no_grad():
            model.embed.W_E.copy_(torch.randn(50, 24) * torch.arange(1, 25) ** -0.5)
            model.blocks[0].attn.U.zero_()[:, :10].normal_()
            model.blocks[0].attn.W_O.normal_(std=0.2)
        result = audit(model, torch.randint(50, (6, 12)), n_draws=19, seed=seed)
        p_values.append(result.to_frame()[["p_above", "p_below"]].to_numpy())
        below_rotated_subspaces.append((result.ratios < result.rotated_ratios.amin(0))[:, 0].numpy())
    p_values = np.array(p_values)  # [model, grouping, tail]
    assert (np.abs(p_values.mean(0) - 0.525) < 4 * 0.289 / 40**0.5).all()
    assert ((p_values <= 0.05).sum(0) <= 7).all()  # of 40 at 5%, more than 7 has a probability of 0.001
    assert (np.mean(below_rotated_subspaces, 0) > 0.4).all()


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
        assert float(result.null_ratios[:, grouping].max()) < 1.3 > float(result.rotated_ratios[:, grouping].max())
    frame = result.to_frame()
    told = frame[frame.grouping != "all tokens"]
    assert (told.p_above == 1 / 21).all() and (told.p_below == 1).all() and (told.p_snr == 1 / 21).all()
    assert result.rises[1:].all() and not result.falls.any()
    assert float(result.snr[0, 1].min()) > 10  # tokens are given to the subspaces that they were drawn from
    # The heads' tokens lie in 32 directions, which half of them show; random groups do not.
    pca = result.pca_frame()
    assert (pca.snr > 2 * pca.random_snr).all() and len(pca) == 4
    assert audit(*unrolled(0.02, phi="softmax", threshold=None), n_draws=1).predicted_rate is None


def test_rotations_leave_angles_and_sizes_alone_and_are_drawn_by_seed() -> None:
    model = maker({**SMALL, "d_head": 3})()
    first, again = (audit(model, TOKENS, n_draws=3, seed=5) for _ in range(2))
    other = audit(model, TOKENS, n_draws=3, seed=6)
    for name in ("null_snr", "rotated_snr", "pca_null_snr", "random_group_snr"):
        drawn = [getattr(result, name) for result in (first, again, other)]
        torch.testing.assert_close(drawn[0], drawn[1], rtol=0, atol=0, equal_nan=True)
        assert not torch.equal(drawn[0].nan_to_num(), drawn[2].nan_to_num()) or not drawn[0].isfinite().any()
    assert torch.equal(first.snr, other.snr)
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


@pytest.mark.parametrize("changes", [{}, MEAN_POOLED], ids=["cls", "mean"])
def test_the_tokens_of_an_image_are_its_patches(changes: dict) -> None:
    """Loops over patches; [CLS] is no token, and without one the first patch counts."""
    model, images = maker(PATCHES, dtype=torch.float64)(**changes), random_images(4, torch.float64)
    result = audit(model, images, n_draws=2)
    _, cache = model.run_with_cache(images)
    first = int(model.cfg.class_token)
    bases = subspaces(model, n_random=1).bases
    assert result.n_tokens == 36
    for layer in range(3):
        before = cache[f"blocks.{layer}.hook_resid_pre"][:, first:].reshape(36, 12).numpy()
        after = before + cache[f"blocks.{layer}.hook_attn_out"][:, first:].reshape(36, 12).numpy()
        before, after = (stream - stream.mean(1, keepdims=True) for stream in (before, after))
        held = np.argmax([np.linalg.norm(before @ basis, axis=1) for basis in bases[layer]], 0)
        for head, basis in enumerate(bases[layer]):
            for moment, stream in enumerate((before, after)):
                inside = stream[held == head] @ basis @ basis.T
                expected = np.linalg.norm(inside) / np.linalg.norm(stream[held == head] - inside)
                np.testing.assert_allclose(result.snr[moment, 1, layer, head], expected, rtol=1e-9)
    with refused("images", "at least 2", "got 1"):
        audit(model, images[:1])
