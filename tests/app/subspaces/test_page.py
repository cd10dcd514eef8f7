"""The Subspace denoising page without a browser: numbers against the library, its words, files and callbacks."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.denoise import sample_mixture, snr, unroll
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.subspaces import figures, words
from app.pages.subspaces.address import ADDRESS, PARAMETERS, SubspacesState
from app.pages.subspaces.callbacks import make_file
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service import Subspaces, from_dict, from_form, to_dict
from app.shell import ids as shell
from tests.messages import refused, says

State = SubspacesState
SMALL = State(clusters=3, rank=6, tokens=5, d_model=20, noise=0.1, layers=4, seed=2, layer=3, head=2)


@pytest.fixture(scope="module")
def service() -> Subspaces:
    return Subspaces(Core.start(Settings()))


@pytest.mark.parametrize(("phi", "threshold"), [("thresholded_softmax", 0.6), ("softmax", None)])
def test_what_is_drawn_is_the_librarys(service: Subspaces, phi: Any, threshold: float | None):
    state = from_dict({**to_dict(SMALL), "phi": phi}, layer=3, head=2)
    mixture = sample_mixture(3, 6, 5, 20, 0.1, seed=2)
    tokens = unroll(mixture.tokens, mixture.bases, 0.5, phi, threshold, 4)
    ratios = torch.stack([snr(layer, mixture.bases, mixture.labels) for layer in tokens]).numpy()

    figure = figures.snr_figure(service, state, "light")
    for cluster in range(3):
        np.testing.assert_allclose(figure.data[cluster].y, ratios[:, cluster], rtol=1e-12)
    theory = [trace for trace in figure.data if trace.name == "theory"]
    assert len(theory) == (threshold is not None)
    for trace in theory:
        np.testing.assert_allclose(trace.y, ratios[0].mean() * 1.3 ** np.arange(5))
    assert figure.layout.meta["layer"] == 3

    first = tokens[3, 0]
    lengths = [float((basis.T @ first).norm()) for basis in mixture.bases]
    scale = float(tokens[3].norm(dim=-1).square().mean().sqrt())
    cloud = figures.cloud_figure(service, state, "light").data[0]
    np.testing.assert_allclose([cloud.x[0], cloud.y[0], cloud.z[0]], np.array(lengths) / scale, rtol=1e-5)

    scores = tokens[3] @ mixture.bases[1] @ mixture.bases[1].T @ tokens[3].T
    pattern = scores.softmax(-1)
    pattern = pattern if threshold is None else 0.6 * (pattern > 0.6)
    drawn = figures.membership_figure(service, state, "light").data[0].z
    np.testing.assert_allclose(drawn, pattern.numpy(), atol=1e-6)


def test_angles_are_to_the_own_and_the_nearest_other_subspace(service: Subspaces):
    from dataclasses import replace

    points = service.points(replace(SMALL, picture="angles")).coordinates[3]
    unrolling = service.unroll(SMALL)
    for token, label in enumerate(unrolling.mixture.labels.tolist()):
        angles = unrolling.angles[3, token].numpy()
        assert points[token, 0] == pytest.approx(angles[label])
        assert points[token, 1] == pytest.approx(np.delete(angles, label).min())
    assert service.points(replace(SMALL, clusters=2, picture="directions")).coordinates.shape[-1] == 2


def test_the_words_say_where_the_rate_breaks(service: Subspaces):
    state = State()
    unrolling, conditions = service.unroll(state), service.conditions(state)
    assert 1 <= unrolling.exact_layers < 10
    said = " ".join(words.meaning(unrolling, conditions))
    says(said, "1 + ητ = 1.3", f"{unrolling.exact_layers} of 10 layers")
    says(said, f"{sum(row.met for row in conditions.rows)} of its 8")
    best = int(unrolling.snr.mean(1).argmax())
    assert f"after layer {best}, its highest" in said
    captions = words.captions(unrolling)
    assert len(captions) == 11 and "× 1.300;" in captions[1] and "as drawn" in captions[0]

    plain = " ".join(words.meaning(service.unroll(State(phi="softmax")), conditions))
    assert "predicts no rate" in plain and "conditions are met" not in plain
    random = " ".join(words.meaning(service.unroll(State(bases="random")), conditions))
    assert "not orthogonal" in random


def test_subspaces_that_do_not_fit_are_refused_with_a_way_out(service: Subspaces):
    with refused("rank 30", "at least 90", 72, error=RequestError):
        service.unroll(State(rank=30))
    assert len(service.unroll(State(rank=30, bases="random", layers=1)).tokens) == 2


def test_many_tokens_are_thinned_alike(service: Subspaces):
    patterns, labels = service.memberships(State(tokens=100, rank=2, d_model=6, layers=1))
    assert patterns.shape == (2, 96, 96)
    assert np.bincount(labels).tolist() == [32, 32, 32]


def test_the_form_stays_within_its_bounds():
    form = {name: None for name in PARAMETERS} | {"phi": "softmax", "bases": "random"}
    assert from_form(**form) == State(phi="softmax", bases="random")
    wild = from_form(**{**form, "noise": 7, "clusters": 99, "step": "x"})
    assert (wild.noise, wild.clusters, wild.step) == (1.0, 6, 0.5)
    state, sentences = ADDRESS.read("?noise=9&clusters=0&layers=3.5")
    assert (state.noise, state.clusters, state.layers) == (1.0, 2, 10)
    assert len(sentences) == 3
    says(sentences[1], "0 to 1")


def test_an_address_comes_back():
    state = State(
        clusters=4, rank=3, tokens=7, d_model=40, noise=0.25, step=0.35, threshold=0.55, layers=6, seed=11,
        phi="softmax", bases="random", layer=5, picture="angles", head=3,
    )  # fmt: skip
    assert ADDRESS.read(ADDRESS.format(state).partition("?")[2]) == (state, [])
    assert from_dict(to_dict(state), layer=5, picture="angles", head=3) == state


def test_files_hold_what_is_shown(service: Subspaces):
    def table(panel: str) -> pd.DataFrame:
        looks = {"layer": 3, "picture": "lengths", "head": "2"}
        content = make_file(service, shell.export(panel, "csv"), to_dict(SMALL), **looks).content
        return pd.read_csv(io.BytesIO(content))

    ratios = table(ids.SNR)
    assert len(ratios) == 5 * 3
    np.testing.assert_allclose(ratios.snr, service.unroll(SMALL).snr.flatten())
    cloud = table(ids.CLOUD)
    assert len(cloud) == 5 * 15 and list(cloud.columns[:3]) == ["layer", "token", "cluster"]
    np.testing.assert_allclose(table(ids.MEMBERSHIP).iloc[:, 1:], service.memberships(SMALL)[0][3])
    assert table(ids.CONDITIONS).met.tolist() == [row.met for row in service.conditions(SMALL).rows]
    with pytest.raises(RequestError, match="nothing to save"):
        make_file(service, shell.export(ids.SNR, "csv"), None, layer=0, picture="lengths", head="1")
