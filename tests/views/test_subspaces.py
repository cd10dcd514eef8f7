"""Subspace denoising: figures against the mixture's own arithmetic, sentences, files, and audits of trained models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import find_checkpoint
from aotlens.data import open_corpus
from aotlens.denoise import (
    audit,
    audit_tokens,
    memberships_at,
    sample_mixture,
    snr,
    stored_audit,
    token_points,
    unroll,
)
from aotlens.distill import held_out_windows
from aotlens.views import View
from aotlens.views.subspaces import (
    AUDIT,
    CLOUD,
    CONDITIONS,
    FAMILY,
    MEMBERSHIP,
    PRINCIPAL,
    SNR,
    SubspacesParameters,
    by_layer,
)
from tests.app.conftest import TEXT, save_tiny
from tests.messages import refused, says
from tests.stored_results import store_in

SMALL = FAMILY.parse(clusters=3, rank=6, tokens=5, d_model=20, noise=0.1, layers=4, seed=2, layer=3, head=2)


def drawn(view: View, params: SubspacesParameters) -> Any:
    return view.figure(params, view.result(params))


@pytest.mark.parametrize(("phi", "threshold"), [("thresholded_softmax", 0.6), ("softmax", None)])
def test_what_is_drawn_is_the_mixtures_own(phi: Any, threshold: float | None):
    params = replace(SMALL, phi=phi)
    mixture = sample_mixture(3, 6, 5, 20, 0.1, seed=2)
    tokens = unroll(mixture.tokens, mixture.bases, 0.5, phi, threshold, 4)
    ratios = torch.stack([snr(layer, mixture.bases, mixture.labels) for layer in tokens]).numpy()

    figure = drawn(SNR, params)
    for cluster in range(3):
        np.testing.assert_allclose(figure.data[cluster].y, ratios[:, cluster], rtol=1e-12)
    theory = [trace for trace in figure.data if trace.name == "theory"]
    assert len(theory) == (threshold is not None)
    for trace in theory:
        np.testing.assert_allclose(trace.y, ratios[0].mean() * 1.3 ** np.arange(5))

    first = tokens[3, 0]
    lengths = [float((basis.T @ first).norm()) for basis in mixture.bases]
    scale = float(tokens[3].norm(dim=-1).square().mean().sqrt())
    cloud = drawn(CLOUD, params).data[0]
    np.testing.assert_allclose([cloud.x[0], cloud.y[0], cloud.z[0]], np.array(lengths) / scale, rtol=1e-5)

    scores = tokens[3] @ mixture.bases[1] @ mixture.bases[1].T @ tokens[3].T
    pattern = scores.softmax(-1)
    pattern = pattern if threshold is None else 0.6 * (pattern > 0.6)
    np.testing.assert_allclose(drawn(MEMBERSHIP, params).data[0].z, pattern.numpy(), atol=1e-6)
    np.testing.assert_allclose(SNR.frame(SNR.result(params)).snr, ratios.flatten())


def test_angles_are_to_the_own_and_the_nearest_other_subspace():
    unrolling = SNR.result(SMALL)
    points = token_points(unrolling, "angles").coordinates[3]
    for token, label in enumerate(unrolling.mixture.labels.tolist()):
        angles = unrolling.angles[3, token].numpy()
        assert points[token, 0] == pytest.approx(angles[label])
        assert points[token, 1] == pytest.approx(np.delete(angles, label).min())
    two = SNR.result(replace(SMALL, clusters=2))
    assert token_points(two, "directions").coordinates.shape[-1] == 2
    with refused("kind='none'", "'lengths', 'directions', 'angles'"):
        token_points(two, "none")


def test_the_words_say_where_the_rate_breaks():
    first = FAMILY.parse()
    unrolling, conditions = SNR.result(first), CONDITIONS.result(first)
    assert 1 <= unrolling.exact_layers < 10
    best = int(unrolling.snr.mean(1).argmax())
    caption = SNR.caption(first, unrolling)
    says(caption, "1 + ητ = 1.3", f"{unrolling.exact_layers} of 10 layers", f"after layer {best}, its highest")
    says(caption, f"{sum(row.met for row in conditions.rows)} of its 8")
    captions = by_layer(unrolling)
    assert len(captions) == 11 and "× 1.300;" in captions[1] and "as drawn" in captions[0]
    plain = SNR.caption(replace(first, phi="softmax"), SNR.result(replace(first, phi="softmax")))
    assert "predicts no rate" in plain and "conditions are met" not in plain
    random = SNR.caption(replace(first, bases="random"), SNR.result(replace(first, bases="random")))
    assert "not orthogonal" in random


def test_subspaces_that_do_not_fit_are_refused_with_a_way_out():
    with refused("rank 30", "at least 90", 72):
        SNR.result(FAMILY.parse(rank=30))
    assert len(SNR.result(FAMILY.parse(rank=30, bases="random", layers=1)).tokens) == 2


def test_many_tokens_are_thinned_alike():
    unrolling = SNR.result(FAMILY.parse(tokens=100, rank=2, d_model=6, layers=1))
    sample = memberships_at(unrolling, 2, 1)
    assert sample.patterns.shape == (2, 96, 96)
    assert np.bincount(sample.labels).tolist() == [32, 32, 32]
    np.testing.assert_array_equal(sample.patterns[:, 40, 70], unrolling.memberships(1).numpy()[:, 108, 206])
    for subspace, layer, message in ((0, 0, "from 1 to 3"), (4, 0, "subspace=4"), (1, 2, "from 0 to 1")):
        with refused(message):
            memberships_at(unrolling, subspace, layer)


# ── trained models ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    save_tiny(tmp_path / "checkpoints", "tiny-mssa", n_layers=3, n_heads=2, attention="mssa")
    (tmp_path / "own.txt").write_text(TEXT)
    return tmp_path


def test_an_audit_of_a_text_is_that_of_its_two_halves(home: Path):
    params = FAMILY.parse("tiny-mssa", corpus=f"file:{home / 'own.txt'}", draws=5)
    result = AUDIT.result(params)
    model = aotlens.load("tiny-mssa")
    tokens = model.to_tokens(TEXT)[0]
    windows = tokens[: len(tokens) // 2 * 2].reshape(2, -1)  # half of it is shorter than the context of 48
    expected = audit(model, windows, n_draws=5)
    torch.testing.assert_close(result.snr, expected.snr, equal_nan=True)
    torch.testing.assert_close(result.null_snr, expected.null_snr, equal_nan=True)
    lines = {trace.name: trace for trace in AUDIT.figure(params, result).data if trace.name}
    np.testing.assert_allclose(lines["all tokens"].y, expected.ratios[0])
    principal = {trace.name: trace for trace in PRINCIPAL.figure(params, result).data if trace.name}
    np.testing.assert_allclose(principal["pattern"].y, expected.pca_ratios[2])
    says(AUDIT.caption(params, result), f"{expected.n_tokens} tokens", "subspaces of U", "of 9 (grouping, layer) pairs")


def test_several_documents_are_read_in_windows_and_a_short_one_is_refused(home: Path):
    model = aotlens.load("tiny-mssa")
    (home / "texts").mkdir()
    for name in "abcd":
        (home / "texts" / f"{name}.txt").write_text(TEXT * 4)
    several = open_corpus(f"dir:{home / 'texts'}")
    assert torch.equal(audit_tokens(model, several), held_out_windows(model, several, 2048))
    (home / "own.txt").write_text("a b")
    with refused("at least 16 tokens", "Take a longer one"):
        audit_tokens(model, open_corpus(f"file:{home / 'own.txt'}"))


def test_without_a_text_the_audit_is_the_stored_one(home: Path, monkeypatch: pytest.MonkeyPatch):
    record = stored_audit("novels-2l-gpt")
    record = replace(record, checkpoint="tiny-mssa", weights_sha256=find_checkpoint("tiny-mssa").weights_sha256)
    with refused("No audit of tiny-mssa is stored. Choose a text"):
        AUDIT.result(FAMILY.parse("tiny-mssa"))
    with refused("No model of text"):
        AUDIT.result(FAMILY.parse())
    store_in("audit", home, monkeypatch)
    file = home / "tiny-mssa.safetensors"
    record.save(file, compact=True)
    params = FAMILY.parse("tiny-mssa")
    result = AUDIT.result(params)
    torch.testing.assert_close(result.null_snr, record.audit.null_snr, equal_nan=True)
    says(AUDIT.caption(params, result), "tiny-mssa on 5 held-out documents of 98 English novels, 1837-1930: 2,040")
    replace(record, weights_sha256="0" * 64).save(file, compact=True)
    with refused("No audit of tiny-mssa is stored"):
        AUDIT.result(params)
    file.write_bytes(file.read_bytes()[:-1])
    with refused("can't be read. tiny-mssa.safetensors: expected a result of type AuditRecord"):
        AUDIT.result(params)


def test_a_model_with_fixed_patterns_is_refused(home: Path):
    save_tiny(home / "checkpoints", "tiny-fixed", n_layers=1, phi="fixed", fixed_pattern="random")
    with refused("tiny-fixed is a checkpoint of another kind"):
        FAMILY.parse("tiny-fixed")
