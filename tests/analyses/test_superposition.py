"""The paper's numbers, bounds that no vectors can beat, and projections measured by a naive loop."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from analyses._superposition import (
    feature_network,
    interference,
    johnson_lindenstrauss,
    measure_projection,
    pentagon,
    polygon,
    random_features,
    random_projection,
    train_features,
)
from analyses.superposition import angle_plot, distortion_plot


def test_each_single_feature_of_the_pentagon_comes_back_exactly() -> None:
    network = pentagon()
    single = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(network(single), single, rtol=0, atol=1e-12)
    assert (network.hidden(single) > 0).all()
    before = network.before_output(single)
    others = before[~torch.eye(5, dtype=torch.bool)]
    assert float(others.max()) == pytest.approx(1.5 * math.cos(math.radians(72)) - 0.5)
    assert float(others.max()) == pytest.approx(-0.04, abs=0.005)


def test_two_distant_features_of_the_pentagon_erase_each_other_and_a_third_appears() -> None:
    network = pentagon()
    x = torch.tensor([1.0, 0, 1, 0, 0], dtype=torch.float64)
    out = network(x)
    assert float(out[0]) == 0 and float(out[2]) == 0
    assert float(network.before_output(x)[0]) == pytest.approx(-0.21, abs=0.005)
    assert float(out[1]) == pytest.approx(1.5 * 2 * math.cos(math.radians(72)) - 0.5) and float(out[1]) > 0.42
    assert (network.hidden(x) > 0).all()


def test_the_pentagon_by_the_papers_own_formulas() -> None:
    """Columns, as printed, in numpy."""
    W1 = np.array(
        [[math.cos(2 * math.pi * k / 5) for k in range(1, 6)], [math.sin(2 * math.pi * k / 5) for k in range(1, 6)]]
    )
    b1 = np.array([0.82, 0.97])
    W2 = 1.5 * W1.T
    b2 = -W2 @ b1 - 0.5
    relu = lambda z: np.maximum(z, 0)  # noqa: E731
    for x in np.random.default_rng(0).random((20, 5)):
        expected = relu(W2 @ relu(W1 @ x + b1) + b2)
        np.testing.assert_allclose(pentagon()(torch.tensor(x)).numpy(), expected, atol=1e-12)


def test_interference_of_known_directions() -> None:
    orthogonal = interference(torch.eye(4))
    assert orthogonal.largest == orthogonal.rms == orthogonal.welch_bound == 0
    five = interference(polygon(5))
    assert five.largest == pytest.approx(abs(math.cos(2 * math.pi * 2 / 5)))
    assert five.welch_bound <= five.largest
    # Three vectors in the plane at 120° reach Welch's bound.
    three = interference(polygon(3))
    assert three.largest == pytest.approx(three.welch_bound) == pytest.approx(0.5)
    absent = interference(torch.tensor([[1.0, 0], [0, 0], [0, 2]]))
    assert absent.largest == 0 and absent.lengths.tolist() == [1, 0, 2]


def test_random_features_interfere_as_random_vectors_do() -> None:
    d = 400
    found = interference(random_features(600, d))
    assert found.rms == pytest.approx(d**-0.5, rel=0.03)
    assert found.welch_bound < found.largest < 6 * d**-0.5


def test_training_packs_more_features_than_dimensions() -> None:
    features, bias = train_features(5, 2, probability=0.05, steps=600, learning_rate=0.04)
    found = interference(features)
    assert (found.lengths > 0.7).sum() >= 4  # orthogonal directions would be two
    x = torch.eye(5)
    error = (feature_network(x, features, bias) - x).pow(2).sum()
    two_only = 3.0  # what giving back two features perfectly leaves
    assert float(error) < two_only


def test_one_projection_by_a_naive_loop() -> None:
    points = torch.randn(12, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = measure_projection(points, 16, seed=3)
    matrix = random_projection(40, 16, seed=3)
    assert set((matrix * 4).unique().tolist()) == {-1.0, 1.0}
    after = points @ matrix
    ratios, angles = [], []
    for i, j in itertools.combinations(range(12), 2):
        ratios.append(float((after[i] - after[j]).norm() ** 2 / (points[i] - points[j]).norm() ** 2) - 1)
        cosines = [torch.cosine_similarity(x[i], x[j], dim=0) for x in (points, after)]
        angles.append(float(cosines[0] - cosines[1]))
    norms = [float(after[i].norm() ** 2 / points[i].norm() ** 2) - 1 for i in range(12)]
    assert found.distortion == pytest.approx(max(map(abs, ratios + norms)))
    assert found.rms_distortion == pytest.approx(math.sqrt(sum(r * r for r in ratios) / len(ratios)))
    assert found.angle_error == pytest.approx(max(map(abs, angles)))
    inner = [
        float(after[i] @ after[j] - points[i] @ points[j]) / float(points[i].norm() * points[j].norm())
        for i, j in itertools.combinations(range(12), 2)
    ]
    assert found.inner_error == pytest.approx(max(map(abs, inner)))
    assert found.constant == pytest.approx(16 * found.distortion**2 / math.log(12))


def test_the_corollary_needs_unit_vectors() -> None:
    """A slip of the paper: for x 50 times as long as y, "by normalizing" does not follow."""
    generator = torch.Generator().manual_seed(0)
    broken = {"unit": 0, "long": 0}
    for seed in range(600):
        x = torch.randn(2, 50, dtype=torch.float64, generator=generator)
        x = x / x.norm(dim=1, keepdim=True)
        for name, points in (("unit", x), ("long", x * torch.tensor([[50.0], [1.0]]))):
            found = measure_projection(points, 200, seed)
            broken[name] += found.inner_error > 3 * found.distortion or found.angle_error > found.angle_bound
    assert broken["unit"] == 0 and broken["long"] > 3


def test_every_projection_is_drawn_for_itself() -> None:
    found = johnson_lindenstrauss((10, 20), (8, 16), dimension=30, n_trials=3)
    assert len({projection.seed for projection in found.projections}) == len(found.projections) == 12


def test_the_fitted_dimension_gives_epsilon_on_average() -> None:
    found = johnson_lindenstrauss((30, 100), (64, 128, 256, 512), dimension=300, n_trials=6)
    m = found.dimensions_for(100, 0.4)
    fresh = johnson_lindenstrauss((100,), (m, m + 1), dimension=300, n_trials=12, seed=900)
    distortions = [projection.distortion for projection in fresh.projections]
    assert np.mean(distortions) == pytest.approx(0.4, rel=0.1)
    assert 0.2 < np.mean([distortion > 0.4 for distortion in distortions]) < 0.8  # no bound


def test_distortion_falls_as_the_theorem_says() -> None:
    found = johnson_lindenstrauss((30, 100), (64, 128, 256, 512), dimension=600, n_trials=2)
    frame = found.to_frame()
    assert len(frame) == 16 and (frame.angle_error <= frame.angle_bound).all()
    assert found.exponent == pytest.approx(-0.5, abs=0.08)
    for projection in found.projections:
        assert projection.rms_distortion == pytest.approx(math.sqrt(2 / projection.m), rel=0.3)
    # The fitted constant foretells a cloud that it has not seen.
    m = found.dimensions_for(100, 0.4)
    fresh = torch.randn(100, 600, dtype=torch.float64, generator=torch.Generator().manual_seed(99))
    assert measure_projection(fresh, m, seed=99).distortion == pytest.approx(0.4, rel=0.3)


def test_points_and_fitted_lines() -> None:
    n, m = np.array([10, 10, 50, 50]), np.array([64, 256, 64, 256])
    figure = distortion_plot(n, m, np.array([0.6, 0.3, 0.8, 0.4]), 4.0)
    points = [trace for trace in figure.data if trace.mode == "markers"]
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert [trace.name for trace in points] == ["10 points", "50 points"]
    assert list(points[1].y) == [0.8, 0.4]
    np.testing.assert_allclose(lines[1].y, np.sqrt(4 * np.log(50) / np.array([64, 256])))
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert list(figure.layout.xaxis.tickvals) == [64, 256] and lines[0].name == "√(C · log 10 / m), C = 4.00"


def test_angles_lie_under_their_bound() -> None:
    n, epsilon = np.array([10, 10, 50]), np.array([0.2, 0.5, 1.3])
    figure = angle_plot(n, epsilon, np.array([0.1, 0.3, 0.6]))
    bound = figure.data[-1]
    assert [trace.name for trace in figure.data] == ["10 points", "50 points", "4ε/(1 − ε)"]
    np.testing.assert_allclose(bound.y, 4 * np.array(bound.x) / (1 - np.array(bound.x)))
    assert min(bound.x) == pytest.approx(0.2) and max(bound.x) == pytest.approx(0.9)  # none for ε ≥ 1
