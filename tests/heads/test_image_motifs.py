"""Motifs on images: patterns written by hand, loops over patches, what stands out, and what images do not have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.heads import MOTIFS, attention_to, motif_scores, motifs_of
from aotlens.heads.patch_grid import PatchGrid
from aotlens.heads.source_code import standing_out
from tests.image_models import MEAN_POOLED, make, plant, random_images
from tests.messages import refused

STEPS = {"patch_above": (-1, 0), "patch_below": (1, 0), "patch_left": (0, -1), "patch_right": (0, 1)}
WRITTEN = (*STEPS, "current_token", "first_token", "border", "foreground")


def bright(n_images: int = 4) -> Tensor:
    """Noise with two patches that stand out, others in each image: `[image, 3, 6, 6]`."""
    images = 0.05 * random_images(n_images)
    for image in range(n_images):
        for patch in (image, (3 * image + 5) % 9):
            row, column = 2 * (patch // 3), 2 * (patch % 3)
            images[image, :, row : row + 2, column : column + 2] += 3.0
    return images


def keys_of(name: str, row: int, column: int, image: int) -> list[int]:
    """The positions where a motif would have a patch look, [CLS] being 0."""
    if name in STEPS:
        down, right = STEPS[name]
        inside = 0 <= row + down < 3 and 0 <= column + right < 3
        return [1 + 3 * (row + down) + column + right] if inside else []
    if name == "border":
        return [1 + patch for patch in range(9) if patch != 4]
    if name == "foreground":
        return sorted({1 + image, 1 + (3 * image + 5) % 9})
    return [0] if name == "first_token" else [1 + 3 * row + column]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_pattern_written_by_hand_has_its_label(name: str) -> None:
    def pattern_of(first: int, n_images: int, pattern: Tensor) -> Tensor:
        pattern = torch.zeros_like(pattern)
        for image in range(n_images):
            for row, column in np.ndindex(3, 3):
                keys = keys_of(name, row, column, (first + image) % 4) or [0]
                pattern[image, 0, 1 + 3 * row + column, keys] = 1 / len(keys)
            whole = keys_of(name, 0, 0, (first + image) % 4)
            pattern[image, 0, 0, whole if name in ("border", "foreground") else [0]] = (
                1 / len(whole) if name in ("border", "foreground") else 1.0
            )
        return pattern

    model = plant(make(n_layers=1), pattern_of)
    scores = attention_to(model, bright(), others=True, intervals=True, batch_size=2)
    assert set(scores.motifs) == set(motifs_of("images")) and not scores.reasons
    assert scores[name][0, 0] == pytest.approx(1, abs=1e-6)
    if name != "border":  # which uniform attention reaches nearly as well
        assert scores.labels()[0][0] == name


@pytest.mark.parametrize("changes", [{}, MEAN_POOLED], ids=["cls", "mean"])
def test_scores_and_chance_against_loops_over_patches(changes: dict[str, object]) -> None:
    model, images = make(**changes), bright()
    scores = attention_to(model, images, others=True, batch_size=3)
    _, cache = model.run_with_cache(images)
    before = int(model.cfg.class_token)
    assert scores.reasons == ({} if before else {"first_token": "this model has no [CLS]"})
    assert scores.chance is not None and scores.uniform is not None
    for name in WRITTEN:
        place = scores.motifs.index(name)
        if name in scores.reasons:
            assert np.isnan(scores[name]).all()
            continue
        for layer in range(3):
            pattern = cache["pattern", layer].detach()[:, 1].double().numpy()
            own, others = [], []
            for image in range(4):
                mean = np.delete(pattern, image, axis=0).mean(0)
                patches = [(before + 3 * r + c, keys_of(name, r, c, image)) for r, c in np.ndindex(3, 3)]
                if before and name in ("border", "foreground"):
                    patches.append((0, keys_of(name, 0, 0, image)))
                for query, keys in patches:
                    if keys:
                        at = [key - 1 + before for key in keys]
                        own.append(pattern[image, query, at].sum())
                        others.append(mean[query, at].sum() if name == "foreground" else len(at) / (9 + before))
            assert scores[name][layer, 1] == pytest.approx(np.mean(own), abs=1e-6), name
            assert scores.chance[place, layer, 1] == pytest.approx(np.mean(others), abs=1e-6), name


def test_what_stands_out_is_beyond_the_threshold_that_parts_the_patches_best() -> None:
    grid = PatchGrid(rows=3, columns=3, n_before=0, image=(3, 6, 6))
    images = random_images(20)
    found = standing_out(images, grid)
    for image, chosen in zip(images.double(), found, strict=True):
        edge = torch.cat([image[:, 0], image[:, -1], image[:, 1:-1, 0], image[:, 1:-1, -1]], 1)
        away = (image - edge.sort(-1).values[:, 9, None, None]).abs().mean(0)  # the lower median of 20
        far = [float(away[2 * r : 2 * r + 2, 2 * c : 2 * c + 2].mean()) for r, c in np.ndindex(3, 3)]
        best = max(
            sorted(far)[:-1],
            key=lambda cut: (
                sum(f <= cut for f in far)
                * sum(f > cut for f in far)
                * (np.mean([f for f in far if f <= cut]) - np.mean([f for f in far if f > cut])) ** 2
            ),
        )
        assert chosen.tolist() == [f > best for f in far]
    assert not standing_out(torch.ones(1, 3, 6, 6), grid).any()


def test_what_images_do_not_have_says_so() -> None:
    model, images = make(), bright()
    scores = attention_to(model, images, ["induction", "fixed_offset", "patch_above"])
    assert scores.reasons["induction"] == "it is about tokens, and this model reads images"
    assert np.isnan(scores["fixed_offset"]).all() and np.isfinite(scores["patch_above"]).all()
    with refused("motif scores", "patches"):
        motif_scores(model)
    assert not set(motifs_of("tokens")) & {*STEPS, "border", "foreground"} and set(MOTIFS) >= set(motifs_of("images"))


def test_a_single_patch_stands_out_of_nothing() -> None:
    grid = PatchGrid(rows=1, columns=1, n_before=1, image=(1, 4, 4))
    assert standing_out(torch.rand(2, 1, 4, 4), grid).tolist() == [[False], [False]]
