"""Semantic consistency: planted heads, loops over pairs, and what chance and intervals do under their null."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from aotlens import circuits, heads
from aotlens.heads import image_maps, semantic_consistency
from aotlens.heads.image_maps import _Pairs, pair_overlaps, region
from aotlens.models import AttentionOnlyTransformer, hook_names
from tests.image_models import PATCHES, make, plant, random_images
from tests.messages import refused
from tests.small_models import maker

GRID = {"n_layers": 1, "n_heads": 3, "n_ctx": 17, "image_size": 8}  # 4 × 4 patches: four quadrants of four


def quadrant(number: int) -> Tensor:
    """A quarter on each patch of a quadrant, `[16]`."""
    rows, columns = divmod(number, 2)
    picture = torch.zeros(4, 4)
    picture[2 * rows : 2 * rows + 2, 2 * columns : 2 * columns + 2] = 0.25
    return picture.flatten()


def planted(labels: Tensor) -> AttentionOnlyTransformer:
    """Head 0 looks at the quadrant of the class, head 1 always at the last one, head 2 as its weights have it."""

    def pattern_of(first: int, n_images: int, pattern: Tensor) -> Tensor:
        pattern = pattern.clone()
        for image in range(n_images):
            pattern[image, 0, 0, 1:] = quadrant(int(labels[(first + image) % len(labels)]))
            pattern[image, 1, 0, 1:] = quadrant(3)
        pattern[:, :2, 0, 0] = 0.0
        return pattern

    return plant(maker({**PATCHES, **GRID})(), pattern_of)


def pictures(n_images: int) -> Tensor:
    return torch.randn(n_images, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def test_a_head_that_follows_the_class_has_one_and_one_that_never_moves_has_zero() -> None:
    labels = torch.arange(24) % 4
    made = semantic_consistency(planted(labels), pictures(24), labels, batch_size=7, n_permutations=200)
    assert (made.within[0, 0], made.between[0, 0]) == (1.0, 0.0) and made.difference[0, 0] == 1.0
    assert (made.within[0, 1], made.between[0, 1]) == (1.0, 1.0) and made.difference[0, 1] == 0.0
    assert made.with_mean[0, 1] == 1.0 and made.with_mean[0, 0] < 0.5
    assert made.p_values[0, 0] == 1 / 201 and made.p_values[0, 1] == 1.0
    assert made.intervals[0, 0].tolist() == [1.0, 1.0] and made.ranking()[0] == (0, 0)
    assert np.allclose(made.adjusted_p, scipy.stats.false_discovery_control(made.p_values.ravel()).reshape(1, 3))
    assert made.query == "[CLS]" and made.region[0, 0] == 2 / 16, "two patches hold a half of four quarters"


def test_a_quarter_more_mass_takes_a_patch_more() -> None:
    assert [int(region(quadrant(1), mass).sum()) for mass in (0.2, 0.25, 0.3, 0.5, 0.51, 0.99)] == [1, 1, 2, 2, 3, 4]
    assert not region(torch.zeros(5), 0.5).any()
    values = torch.tensor([0.1, 0.3, 0.0, 0.2, 0.4])
    assert region(values, 0.65).nonzero().flatten().tolist() == [1, 4]


def test_overlaps_and_the_mean_map_against_loops_over_pairs() -> None:
    model, images, labels = maker({**PATCHES, **GRID})(), pictures(9), torch.tensor([0, 2, 2, 0, 1, 1, 1, 0, 2])
    made = semantic_consistency(model, images, labels, mass=0.6, query="mean", n_permutations=200)
    maps = image_maps(model, images).attention("mean").reshape(9, 3, 16).astype(np.float64)
    for head in range(3):
        regions, positions = [], []
        for image in range(9):
            others = np.delete(maps[:, head], image, axis=0).mean(0)
            for values, kept in ((maps[image, head], regions), (others, positions)):
                largest = sorted(range(16), key=lambda patch, values=values: -values[patch])
                total = 0.0
                chosen = set()
                while total < 0.6 * values.sum():
                    chosen.add(largest[len(chosen)])
                    total = values[list(chosen)].sum()
                kept.append(chosen)
        within, between = [], []
        for i, j in itertools.combinations(range(9), 2):
            (within if labels[i] == labels[j] else between).append(
                len(regions[i] & regions[j]) / len(regions[i] | regions[j])
            )
        assert made.within[0, head] == pytest.approx(np.mean(within), abs=1e-6)
        assert made.between[0, head] == pytest.approx(np.mean(between), abs=1e-6)
        with_mean = [len(a & b) / len(a | b) for a, b in zip(regions, positions, strict=True)]
        assert made.with_mean[0, head] == pytest.approx(np.mean(with_mean), abs=1e-6)
    assert len(made.to_frame()) == 3


def test_equal_patches_stay_equal_in_the_mean_map_of_the_other_images() -> None:
    """For image 0 the others give .4 to two patches, one of them as 3 · .2 − .2, which is no .4 in single precision."""

    def pattern_of(first: int, n_images: int, pattern: Tensor) -> Tensor:
        maps = torch.zeros(4, 17)
        maps[1:3, 1], maps[:3, 2] = 0.2, 0.2
        return maps[first : first + n_images, None, None].expand_as(pattern).clone()

    model = plant(maker({**PATCHES, **GRID})(), pattern_of)
    made = semantic_consistency(model, pictures(4), torch.tensor([0, 1, 0, 1]), n_permutations=200)
    assert (made.with_mean == 0).all(), "each image has the other of the two patches than the rest"


def _regions(generator: torch.Generator, labels: Tensor, pull: float) -> Tensor:
    """Regions of smooth maps around a place of each image, drawn towards the class's own corner by `pull`."""
    corner = torch.stack([labels % 2, labels // 2], 1) * 6.0
    place = (1 - pull) * 6 * torch.rand(len(labels), 2, generator=generator) + pull * corner
    rows, columns = torch.meshgrid(torch.arange(7.0), torch.arange(7.0), indexing="ij")
    at = torch.stack([rows, columns], -1).view(1, 49, 2)
    return region((-(at - place[:, None]).square().sum(-1) / 2).softmax(-1), 0.5)


def test_chance_is_chance_where_regions_know_no_class() -> None:
    """Of 150 such heads about 5% have p ≤ .05; a class of its own size each, and images as dependent as real ones."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 4 + [1] * 8 + [2] * 12 + [3] * 6)
    ps = []
    for seed in range(150):
        overlaps = pair_overlaps(_regions(generator, labels, 0.0))
        ps.append(_Pairs.draw(labels, 200, 2, seed).measure(overlaps)[2])
    rejected = int((np.array(ps) <= 0.05).sum())
    assert scipy.stats.binomtest(rejected, 150, 0.05).pvalue > 0.01, f"{rejected} of 150"
    assert scipy.stats.kstest(ps, "uniform").pvalue > 0.01


def test_intervals_hold_the_difference_where_there_is_one() -> None:
    generator = torch.Generator().manual_seed(1)
    many = torch.arange(1200) % 4
    truth = _difference(pair_overlaps(_regions(generator, many, 0.4)), many)
    labels = torch.arange(40) % 4
    held = 0
    for seed in range(120):
        overlaps = pair_overlaps(_regions(generator, labels, 0.4))
        low, high = _Pairs.draw(labels, 1, 300, seed).measure(overlaps)[3]
        held += low <= truth <= high
    assert 0.88 <= held / 120 <= 0.995, f"{held} of 120"


def _difference(overlaps: Tensor, labels: Tensor) -> float:
    same = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
    different = labels[:, None] != labels
    return float(overlaps[same].mean() - overlaps[different].mean())


def test_what_cannot_be_compared_is_refused() -> None:
    model, images, labels = make(), torch.zeros(4, 3, 6, 6), torch.tensor([0, 0, 1, 1])
    for wrong in (torch.tensor([0, 0, 0, 1]), labels[:3]):
        with refused("labels", "4 images", "two classes"):
            semantic_consistency(model, images, wrong)
    with pytest.raises(ValueError, match=r"mass=1.0: expected"):
        semantic_consistency(model, images, labels, mass=1.0)
    with pytest.raises(ValueError, match="n_permutations=100: expected a whole number from 200"):
        semantic_consistency(model, images, labels, n_permutations=100)
    with refused("semantic consistency", "negative"):
        semantic_consistency(make(phi="linear"), torch.randn(4, 3, 6, 6), labels)


@pytest.mark.parametrize("how", ["zero", "mean", "position_mean", "uniform", "fixed_pattern", "resample"])
def test_heads_are_left_out_of_the_loss_on_classes(how: str) -> None:
    model, images, labels = make(), random_images(5), torch.tensor([0, 3, 1, 1, 2])
    made = heads.ablate(model, images, "1.1", how, targets=labels, batch_size=2)
    clean = torch.nn.functional.cross_entropy(model(images), labels, reduction="none").detach()
    np.testing.assert_allclose(made.clean, clean.numpy(), rtol=1e-5)
    each = heads.ablate_each(model, images, how, targets=labels)
    place = each.heads.index((1, 1))
    np.testing.assert_allclose(each.changes[place], made.change, atol=1e-5)
    if how == "zero":

        def put(z: torch.Tensor, hook: object) -> torch.Tensor:
            z = z.clone()
            z[:, :, 1] = 0
            return z

        logits = model.run_with_hooks(images, fwd_hooks=[(hook_names.attn(1, hook_names.Z), put)])
        expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none").detach()
        np.testing.assert_allclose(made.ablated, expected.numpy(), rtol=1e-5)


def test_circuits_between_patches_add_up_to_the_scores() -> None:
    """Prompt and biases of one image, as on text; patch positions alone are a term of it where nothing is normed."""
    model, image = make(torch.float64), random_images(1, torch.float64)
    _, cache = model.run_with_cache(image)
    for layer, head in ((0, 1), (2, 0)):
        sides = [
            circuits.qk_circuit(model, (layer, head), left, right, frozen=cache).AB
            for left in ("prompt", "bias")
            for right in ("prompt", "bias")
        ]
        whole = sum(side.expand(10, 10) for side in sides)
        torch.testing.assert_close(whole, cache[hook_names.attn(layer, hook_names.SCORES)][0, head])
    positions = circuits.qk_circuit(model, "0.1", "positions", "positions", frozen=cache)
    assert positions.AB.shape == (10, 10)
    bare = make(torch.float64, norm=None, positions="learned")
    own = circuits.qk_circuit(bare, "0.1", "positions", "positions").AB
    W_pos = bare.W_pos.detach()
    expected = (W_pos @ bare.W_Q[0, 1]) @ (W_pos @ bare.W_K[0, 1]).T * bare.cfg.score_scale
    torch.testing.assert_close(own, expected.detach())
    with refused("W_E", "patches", "tokens"):
        circuits.qk_circuit(model, "0.1")


def test_subspaces_need_no_input_and_tables_of_text_are_refused_by_name() -> None:
    model = make(attention="mssa")
    made = heads.subspaces(model, n_random=20)
    assert made.matrix == "U" and made.overlap.shape == (3, 2, 3, 2)
    for name, call in {
        "an atlas": lambda: heads.atlas(model, torch.zeros(2, 10, dtype=torch.long), cache=None),
        "pattern consistency": lambda: heads.pattern_consistency(model, torch.zeros(2, 10, dtype=torch.long)),
    }.items():
        with pytest.raises(ValueError, match=f"{name}: expected a model of tokens; this one reads patches"):
            call()
