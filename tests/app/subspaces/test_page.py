"""The Subspace denoising page without a browser: numbers against the library, its words, files and callbacks."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.denoise import memberships_at, sample_mixture, snr, token_points, unroll
from aotlens.views import View
from aotlens.views.subspaces import CLOUD, CONDITIONS, MEMBERSHIP, PARAMETERS, SNR, Chosen, by_layer
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.subspaces.address import ADDRESS, SubspacesState
from app.pages.subspaces.ids import VIEWS, ids
from app.pages.subspaces.service import MIXTURE, Subspaces, chosen_of, from_form
from app.shell import ids as shell
from app.shell.views import tables
from tests.messages import refused, says

State = SubspacesState
SMALL = chosen_of(State(clusters=3, rank=6, tokens=5, d_model=20, noise=0.1, layers=4, seed=2, layer=3, head=2))


@pytest.fixture(scope="module")
def service() -> Subspaces:
    return Subspaces(Core.start(Settings()))


def drawn(service: Subspaces, view: View, chosen: Chosen) -> Any:
    return view.figure(chosen, service.workshop.result(view, chosen))


@pytest.mark.parametrize(("phi", "threshold"), [("thresholded_softmax", 0.6), ("softmax", None)])
def test_what_is_drawn_is_the_librarys(service: Subspaces, phi: Any, threshold: float | None):
    chosen = replace(SMALL, phi=phi)
    mixture = sample_mixture(3, 6, 5, 20, 0.1, seed=2)
    tokens = unroll(mixture.tokens, mixture.bases, 0.5, phi, threshold, 4)
    ratios = torch.stack([snr(layer, mixture.bases, mixture.labels) for layer in tokens]).numpy()

    figure = drawn(service, SNR, chosen)
    for cluster in range(3):
        np.testing.assert_allclose(figure.data[cluster].y, ratios[:, cluster], rtol=1e-12)
    theory = [trace for trace in figure.data if trace.name == "theory"]
    assert len(theory) == (threshold is not None)
    for trace in theory:
        np.testing.assert_allclose(trace.y, ratios[0].mean() * 1.3 ** np.arange(5))

    first = tokens[3, 0]
    lengths = [float((basis.T @ first).norm()) for basis in mixture.bases]
    scale = float(tokens[3].norm(dim=-1).square().mean().sqrt())
    cloud = drawn(service, CLOUD, chosen).data[0]
    np.testing.assert_allclose([cloud.x[0], cloud.y[0], cloud.z[0]], np.array(lengths) / scale, rtol=1e-5)

    scores = tokens[3] @ mixture.bases[1] @ mixture.bases[1].T @ tokens[3].T
    pattern = scores.softmax(-1)
    pattern = pattern if threshold is None else 0.6 * (pattern > 0.6)
    shown = drawn(service, MEMBERSHIP, chosen).data[0].z
    np.testing.assert_allclose(shown, pattern.numpy(), atol=1e-6)


def test_angles_are_to_the_own_and_the_nearest_other_subspace(service: Subspaces):
    unrolling = service.unroll(SMALL)
    points = token_points(unrolling, "angles").coordinates[3]
    for token, label in enumerate(unrolling.mixture.labels.tolist()):
        angles = unrolling.angles[3, token].numpy()
        assert points[token, 0] == pytest.approx(angles[label])
        assert points[token, 1] == pytest.approx(np.delete(angles, label).min())
    two = service.unroll(replace(SMALL, clusters=2))
    assert token_points(two, "directions").coordinates.shape[-1] == 2
    with refused("kind='none'", "lengths, directions, angles"):
        token_points(two, "none")


def test_the_words_say_where_the_rate_breaks(service: Subspaces):
    first = chosen_of(State())
    unrolling, conditions = service.unroll(first), service.workshop.result(CONDITIONS, first)
    assert 1 <= unrolling.exact_layers < 10
    said = SNR.caption(first, unrolling)
    says(said, "1 + ητ = 1.3", f"{unrolling.exact_layers} of 10 layers")
    says(said, f"{sum(row.met for row in conditions.rows)} of its 8")
    best = int(unrolling.snr.mean(1).argmax())
    assert f"after layer {best}, its highest" in said
    captions = by_layer(unrolling)
    assert len(captions) == 11 and "× 1.300;" in captions[1] and "as drawn" in captions[0]

    plain = SNR.caption(replace(first, phi="softmax"), service.unroll(replace(first, phi="softmax")))
    assert "predicts no rate" in plain and "conditions are met" not in plain
    random = SNR.caption(replace(first, bases="random"), service.unroll(replace(first, bases="random")))
    assert "not orthogonal" in random


def test_subspaces_that_do_not_fit_are_refused_with_a_way_out(service: Subspaces):
    with refused("rank 30", "at least 90", 72, error=RequestError):
        service.unroll(chosen_of(State(rank=30)))
    assert len(service.unroll(chosen_of(State(rank=30, bases="random", layers=1))).tokens) == 2


def test_many_tokens_are_thinned_alike(service: Subspaces):
    unrolling = service.unroll(chosen_of(State(tokens=100, rank=2, d_model=6, layers=1)))
    shown = memberships_at(unrolling, 2, 1)
    assert shown.patterns.shape == (2, 96, 96)
    assert np.bincount(shown.labels).tolist() == [32, 32, 32]
    whole = unrolling.memberships(1).numpy()
    np.testing.assert_array_equal(shown.patterns[:, 40, 70], whole[:, 108, 206])
    for subspace, layer in ((0, 0), (4, 0), (1, 2)):
        with refused("a subspace from 1 to 3 and a layer from 0 to 1"):
            memberships_at(unrolling, subspace, layer)


def test_the_form_stays_within_its_bounds():
    form = {name: None for name in PARAMETERS} | {"phi": "softmax", "bases": "random"}
    first = {name: each.first for name, each in PARAMETERS.items()}
    assert from_form(**form) == {**first, "phi": "softmax", "bases": "random"}
    wild = from_form(**{**form, "noise": 7, "clusters": 99, "step": "x"})
    assert (wild["noise"], wild["clusters"], wild["step"]) == (1.0, 6, 0.5)
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


def test_files_hold_what_is_shown(service: Subspaces):
    def table(panel: str) -> pd.DataFrame:
        return pd.read_csv(io.BytesIO(files[shell.export(panel, "csv")](mixture, **looks).content))

    files, looks = tables(service.workshop, VIEWS, service.values), {"layer": 3, "picture": "lengths", "head": "2"}
    mixture = {name: getattr(SMALL, name) for name in MIXTURE}
    ratios = table(ids.SNR)
    assert len(ratios) == 5 * 3
    np.testing.assert_allclose(ratios.snr, service.unroll(SMALL).snr.flatten())
    cloud = table(ids.CLOUD)
    assert len(cloud) == 5 * 15 and list(cloud.columns[:3]) == ["layer", "token", "cluster"]
    np.testing.assert_allclose(
        table(ids.MEMBERSHIP).iloc[:, 1:], memberships_at(service.unroll(SMALL), 2, 3).patterns[3]
    )
    assert table(ids.CONDITIONS).met.tolist() == [row.met for row in service.workshop.result(CONDITIONS, SMALL).rows]
    with pytest.raises(RequestError, match="nothing to save"):
        files[shell.export(ids.SNR, "csv")](None, layer=0, picture="lengths", head="1")
