"""Networks that recall hidden tokens: the data, what all five can learn, and the search for the least heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from analyses._tiny import MODELS, heads_needed, recall, recall_data, train_recall

SMALL = {"d_vocab": 40, "n_pos": 5, "d": 12, "learning_rate": 0.01, "batch_size": 8}


def test_sequences_have_one_mask_and_no_token_twice(seed: int) -> None:
    x, at, hidden = recall_data(seed, 300, d_vocab=40, n_pos=5, d=12)
    mask = x[0, at[0]]
    assert ((x == mask).all(-1).sum(1) == 1).all() and (x[torch.arange(300), at] == mask).all()
    for row in x:
        assert len(row.unique(dim=0)) == 5
    assert set(at.tolist()) == set(range(5)) and hidden.min() >= 0 and hidden.max() < 40
    # The hidden token is none of those still shown: each row of the vocabulary is known from where it is shown.
    vectors = {tuple(v) for row, w, m in zip(x.tolist(), hidden.tolist(), at.tolist(), strict=True)
               for v in row[:m] + row[m + 1 :]}  # fmt: skip
    assert len(vectors) == 40


@pytest.mark.long
@pytest.mark.parametrize("kind", MODELS)
def test_each_kind_memorises_a_few_sequences(kind: str) -> None:
    found = train_recall(kind, 24, 16, (0, 1), epochs=120, **SMALL)
    assert found.epoch_loss.shape == (2, 120)
    assert (found.loss < 0.5 * found.epoch_loss[:, 0]).all() and (found.accuracy > 0.8).all()


@pytest.mark.long
def test_numbers_are_read_as_numbers() -> None:
    found = train_recall("F", 24, 8, (0,), epochs=300, readout="number", **SMALL)
    assert found.epoch_loss[0, 0] > 0.3 and found.loss[0] < 0.05


def test_training_ends_below_a_loss() -> None:
    found = train_recall("S", 24, 8, (0,), epochs=300, stop_below=0.3, **SMALL)
    assert found.loss[0] < 0.3 and found.epoch_loss.shape[1] < 300


def test_seeds_together_are_as_alone() -> None:
    both = train_recall("F+R", 6, 10, (0, 5), epochs=3, **SMALL)
    alone = train_recall("F+R", 6, 10, (5,), epochs=3, **SMALL)
    np.testing.assert_allclose(both.epoch_loss[1], alone.epoch_loss[0], rtol=1e-5)


@pytest.mark.parametrize("least", [2, 5, 16, 99])
def test_the_least_heads_are_found_by_bisection(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def pretend(kind: str, n_heads: int, n: int, seeds: tuple[int, ...], **options: object) -> recall.Recall:
        tried.append(n_heads)
        loss = np.array([0.01 if n_heads >= least else 1.0])
        return recall.Recall(kind=kind, readout="classes", n_heads=n_heads, n_sequences=n, seeds=seeds,
                             epoch_loss=loss[:, None], loss=loss, accuracy=loss)  # fmt: skip

    monkeypatch.setattr(recall, "train_recall", pretend)
    grid = [1, 2, 4, 8, 16, 32]
    needed = heads_needed(64, grid, 0)
    assert needed == min((n for n in grid if n >= least), default=None)
    assert len(tried) <= 3 and len(set(tried)) == len(tried)
