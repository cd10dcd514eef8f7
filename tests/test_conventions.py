"""The translation table of `aotlens.conventions`, on shapes in which no transpose can hide."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens import conventions
from aotlens.conventions import require_between, require_choice, require_shape
from tests.messages import refused

N_POS, D_MODEL, D_HEAD, D_VOCAB = 3, 5, 2, 7


def softmax_rows(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


@pytest.fixture
def columns(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A head of the papers: tokens are columns, every map multiplies from the left."""
    return {
        "X": rng.normal(size=(D_MODEL, N_POS)),
        "W_Q": rng.normal(size=(D_HEAD, D_MODEL)),
        "W_K": rng.normal(size=(D_HEAD, D_MODEL)),
        "W_V": rng.normal(size=(D_HEAD, D_MODEL)),
        "W_O": rng.normal(size=(D_MODEL, D_HEAD)),
        "W_E": rng.normal(size=(D_MODEL, D_VOCAB)),
        "W_U": rng.normal(size=(D_VOCAB, D_MODEL)),
    }


@pytest.fixture
def rows(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same head here."""
    return {name.replace("X", "x"): matrix.T for name, matrix in columns.items()}


def test_a_head_of_structures_is_pattern_x_w_v_w_o(columns, rows):
    p, r = columns, rows
    A = softmax_rows((p["W_Q"] @ p["X"]).T @ (p["W_K"] @ p["X"]))
    H = p["W_O"] @ (p["W_V"] @ p["X"]) @ A.T

    pattern = softmax_rows(r["x"] @ r["W_Q"] @ (r["x"] @ r["W_K"]).T)
    np.testing.assert_allclose(pattern, A, atol=1e-12)
    np.testing.assert_allclose(pattern @ r["x"] @ r["W_V"] @ r["W_O"], H.T, atol=1e-12)

    # (A ⊗ W_O W_V) on X stacked column by column, with numpy's own Kronecker product.
    stacked = np.kron(A, p["W_O"] @ p["W_V"]) @ p["X"].flatten(order="F")
    np.testing.assert_allclose(stacked.reshape(D_MODEL, N_POS, order="F"), H, atol=1e-12)


def test_a_column_wise_phi_is_the_transposed_pattern(columns, rows):
    U = columns["W_K"].T  # aot's U_k, [d_model, d_head] in the paper and here
    Z, x = columns["X"], rows["x"]
    phi = softmax_rows((Z.T @ U @ U.T @ Z).T).T  # each column, [key, query], sums to 1
    paper = U @ U.T @ Z @ phi

    pattern = softmax_rows(x @ U @ (x @ U).T)
    np.testing.assert_allclose(pattern, phi.T, atol=1e-12)
    np.testing.assert_allclose(pattern @ x @ U @ U.T, paper.T, atol=1e-12)


def test_circuits_are_destination_by_source_and_source_by_output(columns, rows):
    p, r = columns, rows
    full_qk = r["W_E"] @ r["W_Q"] @ r["W_K"].T @ r["W_E"].T
    full_ov = r["W_E"] @ r["W_V"] @ r["W_O"] @ r["W_U"]
    np.testing.assert_allclose(full_qk, p["W_E"].T @ p["W_Q"].T @ p["W_K"] @ p["W_E"], atol=1e-12)
    np.testing.assert_allclose(full_ov, (p["W_U"] @ p["W_O"] @ p["W_V"] @ p["W_E"]).T, atol=1e-12)

    destination, source = 6, 1
    score = (p["W_Q"] @ p["W_E"][:, destination]) @ (p["W_K"] @ p["W_E"][:, source])
    assert full_qk[destination, source] == pytest.approx(score, abs=1e-12)
    logits = p["W_U"] @ p["W_O"] @ p["W_V"] @ p["W_E"][:, source]
    np.testing.assert_allclose(full_ov[source], logits, atol=1e-12)


@pytest.mark.parametrize("glossary", [conventions.DIMENSIONS, conventions.UNITS], ids=["dimensions", "units"])
def test_the_glossaries_are_words_with_meanings(glossary):
    assert all(word.isidentifier() and meaning for word, meaning in glossary.items())


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "expected"),
    [
        ({"least": 0, "most": 1}, (0, 1, 0.5), (-1e-9, 1 + 1e-9), "from 0 to 1"),
        ({"above": 0, "below": 1}, (1e-9, np.float32(0.5)), (0, 1), "above 0 and below 1"),
        ({"above": 0, "most": 0.5}, (0.5,), (0, 0.51), "above 0 and at most 0.5"),
        ({"least": 0, "below": 1}, (0,), (1, -0.1), "at least 0 and below 1"),
        ({"least": 1}, (1, 1e300), (0.9,), "at least 1"),
        ({}, (-1e300,), (), "a finite number."),
    ],
)
def test_a_number_between_bounds(bounds, inside, outside, expected):
    for value in inside:
        assert require_between("share", value, **bounds) is value
    for value in (*outside, math.nan, math.inf, -math.inf, "0.5", None, True, np.ones(2), torch.ones(2), 10**400):
        with refused("share=", "expected a finite number", expected):
            require_between("share", value, **bounds)


def test_a_choice_is_one_of_those_that_there_are():
    choices = {"mean": 1, "median": 2, "zero": 3}
    assert require_choice("how", "median", choices) == "median"
    assert require_choice("step", np.int64(3), [1, 3]) == 3
    with refused("how='medain'", "expected one of 'mean', 'median', 'zero'", "Did you mean 'median'"):
        require_choice("how", "medain", choices)
    for value in (None, ["mean"], np.ones(2), torch.ones(2), 1):
        with refused("how=", "expected one of 'mean', 'median', 'zero'."):
            require_choice("how", value, choices)
    with refused("id='t77x'", "expected one of 500, such as 't0'", "'t77'"):
        require_choice("id", "t77x", [f"t{i}" for i in range(500)])
    with refused("name='a'", "there are no choices"):
        require_choice("name", "a", ())


def test_a_shape_of_sizes_and_names():
    array = np.ones((2, 3, 3))
    assert require_shape("pattern", array, ("head", "pos", "pos")) is array
    assert require_shape("x", torch.ones(2, 5), ("pos", 5)).shape == (2, 5)
    for value, shape, expected in (
        (array, ("pos", "pos", 3), "[pos, pos, 3], got [2, 3, 3]"),
        (array, (2, 3), "[2, 3], got [2, 3, 3]"),
        (torch.ones(2), (3,), "[3], got [2]"),
        (torch.ones(()), ("pos",), "[pos], got []"),
    ):
        with refused(f"x: expected {expected}"):
            require_shape("x", value, shape)
