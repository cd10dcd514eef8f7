"""Motif scores against loops over every query, and heads whose motif is built in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.heads import MOTIFS, motif_scores
from aotlens.models import AttentionOnlyTransformer, ModelConfig


def _model(**changes: object) -> AttentionOnlyTransformer:
    cfg = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 24, "d_vocab": 9} | changes
    pattern = cfg.pop("pattern", None)
    return AttentionOnlyTransformer(ModelConfig(**cfg), pattern=pattern).double()


def _naive(pattern: Tensor, tokens: Tensor) -> dict[str, list[float]]:
    """Every motif's attention, a list over queries, for one head's pattern `[batch, query, key]`."""
    found: dict[str, list[float]] = {motif: [] for motif in MOTIFS}
    for b, row in enumerate(tokens.tolist()):
        for i in range(2, len(row)):
            found["previous_token"].append(pattern[b, i, i - 1].item())
            found["current_token"].append(pattern[b, i, i].item())
            found["first_token"].append(pattern[b, i, 0].item())
            targets = [j + 1 for j in range(1, i) if row[j] == row[i]]
            if targets:
                found["induction"].append(sum(pattern[b, i, t].item() for t in targets))
    return found


@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_scores_equal_a_loop_over_queries(attention: str) -> None:
    model = _model(attention=attention)
    tokens = torch.randint(1, 9, (5, 20), generator=torch.Generator().manual_seed(1))
    _, cache = model.run_with_cache(tokens)
    scores = motif_scores(model, tokens, batch_size=2)
    for layer in range(2):
        for head in range(3):
            naive = _naive(cache["pattern", layer][:, head], tokens)
            for motif in MOTIFS:
                assert scores[motif][layer, head] == pytest.approx(np.mean(naive[motif]), abs=1e-12), motif


def test_heads_that_are_motifs_score_one() -> None:
    n = 21
    previous, current, first = torch.zeros(n, n), torch.eye(n), torch.zeros(n, n)
    previous[torch.arange(1, n), torch.arange(n - 1)] = 1.0
    first[:, 0] = 1.0
    induction = torch.zeros(n, n)  # on eot + twice ten tokens: position i ≥ 11 repeats i − 10, so look at i − 9
    induction[torch.arange(11, n), torch.arange(2, n - 9)] = 1.0
    pattern = torch.stack([previous, current, first, induction])[None]
    model = _model(n_layers=1, n_heads=4, n_ctx=n, d_vocab=5000, phi="fixed", fixed_pattern="given", pattern=pattern)
    scores = motif_scores(model, n_sequences=3, half_length=10)
    expected = np.zeros((4, 4))
    for index, motif in enumerate(MOTIFS):
        expected[index, index] = 1.0
        np.testing.assert_allclose(scores[motif][0], expected[index], atol=0.02, err_msg=motif)
    frame = scores.to_frame()
    assert list(frame.columns) == ["layer", "head", *MOTIFS] and len(frame) == 4


def test_without_a_repeated_token_induction_is_undefined() -> None:
    scores = motif_scores(_model(), torch.tensor([[0, 1, 2, 3, 4]]))
    assert np.isnan(scores.induction).all() and np.isfinite(scores.previous_token).all()


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="at least 3 tokens, got 2"):
        motif_scores(_model(), torch.tensor([[0, 1]]))
    with pytest.raises(KeyError, match="expected one of previous_token"):
        motif_scores(_model())["copying"]
    vectors = _model(d_vocab=None, read_in="vectors", read_out="vectors")
    with pytest.raises(ValueError, match="reads vectors"):
        motif_scores(vectors)
