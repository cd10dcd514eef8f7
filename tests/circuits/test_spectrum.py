"""Spectra against numpy's dense eigenvalues and singular values, TransformerLens's, and circuits with known ones; what
sharing one matrix forces on MSSA's circuits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.circuits import Circuit, FactoredMatrix, ov_circuit, qk_circuit, sum_of_circuits
from aotlens.circuits.spectrum import spectrum
from tests.small_models import MakeModel


def random(rows: int, inner: int, columns: int, dtype: torch.dtype = torch.float64) -> FactoredMatrix:
    generator = torch.Generator().manual_seed(rows * 100 + inner)
    A = torch.randn(rows, inner, generator=generator, dtype=dtype)
    return FactoredMatrix(A, torch.randn(inner, columns, generator=generator, dtype=dtype))


def same_set(actual: np.ndarray, expected: np.ndarray) -> None:
    """Each of the expected numbers, as often as it is there, in whatever order."""
    left = list(expected)
    for value in actual:
        left.pop(int(np.argmin(np.abs(np.array(left) - value))))
    assert len(actual) + len(left) == len(expected)
    np.testing.assert_allclose(left, 0, atol=1e-6)
    assert np.abs(actual.sum() - expected.sum()) < 1e-8


@pytest.mark.parametrize(("rows", "inner", "columns"), [(40, 5, 40), (6, 6, 6), (4, 9, 4), (1, 3, 1)])
def test_eigenvalues_are_those_of_the_dense_matrix(rows: int, inner: int, columns: int) -> None:
    circuit = random(rows, inner, columns)
    result = spectrum(circuit)
    expected = np.linalg.eigvals(circuit.AB.numpy())
    assert result.eigenvalues is not None and len(result.eigenvalues) == min(rows, inner)
    same_set(result.eigenvalues, expected)
    assert result.copying_score == pytest.approx(expected.real.sum() / np.abs(expected).sum(), abs=1e-6)
    assert (np.diff(np.abs(result.eigenvalues)) <= 1e-12).all()
    assert not result.by_construction and result.why == ""


def test_equals_transformer_lens() -> None:
    circuit = random(30, 4, 30)
    result = spectrum(circuit, n_vectors=4)
    assert result.eigenvalues is not None
    same_set(result.eigenvalues, circuit.eigenvalues.numpy())
    np.testing.assert_allclose(result.singular_values, circuit.S.numpy(), rtol=1e-10)
    np.testing.assert_allclose(np.abs((result.left_vectors * circuit.U.numpy()).sum(0)), 1, rtol=1e-10)
    np.testing.assert_allclose(np.abs((result.right_vectors * circuit.V.numpy()).sum(0)), 1, rtol=1e-10)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(20, 3, 31), (3, 8, 5), (30, 6, 4), (1, 2, 9)])
def test_singular_pairs_rebuild_the_matrix(rows: int, inner: int, columns: int) -> None:
    circuit = random(rows, inner, columns)
    result = spectrum(circuit, k=2, n_vectors=99)
    rank = min(rows, inner, columns)
    U, S, V = result.left_vectors, result.singular_values, result.right_vectors
    assert U.shape == (rows, rank) and V.shape == (columns, rank)
    np.testing.assert_allclose(U * S @ V.T, circuit.AB.numpy(), atol=1e-10)
    np.testing.assert_allclose(S, np.linalg.svd(circuit.AB.numpy(), compute_uv=False)[:rank], atol=1e-10)
    np.testing.assert_allclose(U.T @ U, np.eye(rank), atol=1e-10)
    assert (U[np.abs(U).argmax(0), range(rank)] > 0).all()
    for ends, vectors in ((result.left, U), (result.right, V)):
        k = min(2, len(vectors))
        for i, vector in enumerate(vectors.T):
            assert list(ends.highest_values[i]) == sorted(vector, reverse=True)[:k]
            assert list(ends.lowest_values[i]) == sorted(vector)[:k]
            assert list(vector[ends.highest[i]]) == list(ends.highest_values[i])
            assert list(vector[ends.lowest[i]]) == list(ends.lowest_values[i])


def test_float32_factors_lose_nothing_more() -> None:
    circuit = random(50, 5, 50, torch.float32)
    wide = FactoredMatrix(circuit.A.double(), circuit.B.double())
    np.testing.assert_array_equal(spectrum(circuit).singular_values, spectrum(wide).singular_values)


@pytest.mark.parametrize(("sign", "score"), [(1.0, 1.0), (-1.0, -1.0)])
def test_copying_and_its_opposite(sign: float, score: float) -> None:
    A = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    assert spectrum(FactoredMatrix(A, sign * A.T)).copying_score == pytest.approx(score)


def test_a_rotation_copies_nothing() -> None:
    A = torch.eye(6)[:, :2]
    result = spectrum(FactoredMatrix(A, torch.tensor([[0.0, -1.0], [1.0, 0.0]]) @ A.T))
    assert result.copying_score == pytest.approx(0.0)
    np.testing.assert_allclose(result.eigenvalues, [1j, -1j])


def test_no_score_is_no_number() -> None:
    A = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    zero = spectrum(FactoredMatrix(A, torch.zeros(4, 20)))
    assert zero.copying_score is None and "every eigenvalue is 0" in zero.why and not zero.singular_values.any()
    cancels = torch.linalg.qr(A.double()).Q.float()  # W_V reads nothing of what W_O writes, up to rounding
    orthogonal = FactoredMatrix(cancels[:, :2], cancels[:, 2:].T)
    assert spectrum(orthogonal).copying_score is None and spectrum(orthogonal).singular_values[0] > 0.9
    oblong = spectrum(random(5, 2, 6))
    assert oblong.eigenvalues is None and oblong.copying_score is None and "only a square matrix" in oblong.why


def test_only_like_things_have_eigenvalues(make: MakeModel) -> None:
    model = make(n_ctx=11)  # as many positions as tokens
    assert spectrum(qk_circuit(model, (0, 0))).copying_score is not None
    assert spectrum(qk_circuit(model, (0, 0), "positions", "positions")).copying_score is not None
    assert spectrum(ov_circuit(model, (0, 0))).copying_score is not None
    assert spectrum(ov_circuit(model, (1, 0), (0, 1))).copying_score is not None  # a virtual head, tokens to tokens
    mixed = spectrum(qk_circuit(model, (0, 0), "tokens", "positions"))
    assert mixed.eigenvalues is None and "rows are tokens, columns are positions" in mixed.why


def test_by_construction(make: MakeModel) -> None:
    """Of a tied MSSA's circuits, those of design §8, and no others."""
    tied = {"attention": "mssa", "tied_output": True, "step_size": 0.5}
    copies = {"tied_embeddings": True, "norm": None}

    def ov(right: str = "logits", left: str = "tokens", **changes: object) -> tuple[bool, float | None]:
        result = spectrum(ov_circuit(make(**changes), (1, 0), left, right))
        assert bool(result.why) == result.by_construction
        return result.by_construction, result.copying_score

    for certain in (
        ov(**tied, **copies),
        ov("residual", "residual", **tied, norm=None),
        ov("residual", "residual", **tied),
    ):
        assert certain[0] and certain[1] == pytest.approx(1, abs=1e-6)
    for changes in (
        {},
        copies,
        {"attention": "mssa", **copies},
        tied,
        {**tied, "norm": None},
        {**tied, "tied_embeddings": True},
    ):
        assert not ov(**changes)[0], changes
    untied = ov(**tied)[1]
    assert untied is not None and untied < 0.99
    # With tied embeddings and a norm it is near 1, but no law: the two norms' gains may differ, in sign too.
    model = make(**tied, tied_embeddings=True)
    with torch.no_grad():
        model.ln_final.w[:6] *= -1
    score = spectrum(ov_circuit(model, (1, 0))).copying_score
    assert score is not None and score < 0.99
    assert not ov("residual", "residual", attention="mssa")[0]
    model = make(**tied)
    with torch.no_grad():
        model.blocks[1].ln1.w[:6] = -1.0
    negative = spectrum(ov_circuit(model, (1, 0), "residual", "residual"))
    assert not negative.by_construction and negative.copying_score is not None and negative.copying_score < 0.999


def test_a_sum_over_layers_with_other_gains_is_not_positive_by_construction(make: MakeModel) -> None:
    """D₁P₁ + D₂P₂ need not be similar to a positive matrix; D(P₁ + P₂) is."""
    model = make(attention="mssa", tied_output=True)
    one, same_layer, other_layer = (
        ov_circuit(model, (layer, head), "residual", "residual") for layer, head in ((0, 0), (0, 1), (1, 0))
    )
    assert spectrum(sum_of_circuits([one, same_layer])).by_construction
    assert not spectrum(sum_of_circuits([one, other_layer])).by_construction


def test_a_zero_circuit_is_nothing_by_construction(make: MakeModel) -> None:
    model = make(attention="mssa", tied_output=True, norm=None)
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0] = 0.0
    result = spectrum(ov_circuit(model, (0, 0), "residual", "residual"))
    assert result.copying_score is None and not result.by_construction and "every eigenvalue is 0" in result.why


def test_the_frame() -> None:
    result = spectrum(random(7, 3, 5), k=2)
    frame = result.to_frame()
    assert len(frame) == 3 * 2 * 2 * 2
    assert list(frame.columns) == ["vector", "singular_value", "side", "end", "rank", "id", "value"]
    row = frame[(frame.vector == 1) & (frame.side == "right") & (frame.end == "lowest") & (frame["rank"] == 0)].iloc[0]
    assert row.id == result.right_vectors[:, 1].argmin() and row.value == result.right_vectors[:, 1].min()
    assert row.singular_value == result.singular_values[1]


def test_the_frame_of_a_circuit_names_its_rows_and_columns_and_its_eigenvalues_are_a_table(make: MakeModel) -> None:
    circuit = qk_circuit(make(), (0, 1), "tokens", "positions")
    named = spectrum(circuit, 3, n_vectors=2).to_frame()
    assert {row.label for row in named.itertuples() if row.side == "right"} <= {f"position {at}" for at in range(99)}
    assert all(row.label.endswith(f" {row.id}") for row in named.itertuples())
    with pytest.raises(ValueError, match="no eigenvalues"):
        spectrum(circuit).eigenvalue_frame()
    result = spectrum(ov_circuit(make(), (0, 1)))
    frame = result.eigenvalue_frame()
    np.testing.assert_array_equal(frame.real + 1j * frame.imaginary, result.eigenvalues)


@pytest.mark.parametrize(
    ("circuit", "options", "message"),
    [
        (FactoredMatrix(torch.ones(2, 3, 1), torch.ones(2, 1, 3)), {}, r"one matrix .* got \[2, 3, 3\]"),
        (FactoredMatrix(torch.ones(0, 1), torch.ones(1, 0)), {}, "with entries"),
        (FactoredMatrix(torch.full((2, 1), torch.nan), torch.ones(1, 2)), {}, "NaN"),
        (random(2, 2, 2), {"k": 0}, "k=0"),
        (random(2, 2, 2), {"n_vectors": 0}, "n_vectors=0"),
    ],
)
def test_what_is_no_matrix(circuit: FactoredMatrix, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spectrum(circuit, **options)


HEADS = [(0, 1), (1, 2)]
MSSA = {"attention": "mssa", "bias": True}


def asymmetry(circuit: Circuit) -> float:
    """‖M − Mᵀ‖ / ‖M‖, 0 to 2."""
    dense = circuit.AB
    return float((dense - dense.mT).norm() / dense.norm())


def lowest_eigenvalue(circuit: Circuit) -> float:
    """Of the symmetric part, divided by the largest size of one."""
    values = torch.linalg.eigvalsh((circuit.AB + circuit.AB.mT) / 2)
    return float(values.min() / values.abs().max())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("norm", ["layernorm", None])
@pytest.mark.parametrize("side", ["residual", "tokens", "positions", "bias"])
def test_qk_of_mssa_is_symmetric_positive_semidefinite(
    make: MakeModel, head: tuple[int, int], norm: str, side: str
) -> None:
    circuit = qk_circuit(make(**MSSA, norm=norm), head, side, side)
    assert asymmetry(circuit) < 1e-12 and lowest_eigenvalue(circuit) > -1e-12
    assert circuit.psd_because


@pytest.mark.parametrize("side", ["tokens", "prompt"])
def test_so_are_scores_with_biases_and_on_a_prompt(make: MakeModel, side: str) -> None:
    model = make(**MSSA)
    _, cache = model.run_with_cache(torch.tensor([[1, 5, 2, 5]]))
    circuit = qk_circuit(model, (1, 0), side, side, frozen=cache if side == "prompt" else None, biases=True)
    assert asymmetry(circuit) < 1e-12 and lowest_eigenvalue(circuit) > -1e-12


@pytest.mark.parametrize("head", HEADS)
def test_residual_qk_is_the_scaled_square_of_the_subspace(make: MakeModel, head: tuple[int, int]) -> None:
    model = make(attention="mssa", norm=None)
    U = model.W_Q[head].detach()
    torch.testing.assert_close(qk_circuit(model, head, "residual", "residual").AB, model.cfg.score_scale * U @ U.mT)


@pytest.mark.parametrize("head", HEADS)
def test_tied_ov_is_the_step_times_the_square_of_the_subspace(make: MakeModel, head: tuple[int, int]) -> None:
    model = make(attention="mssa", tied_output=True, step_size=0.37, norm=None)
    U = model.W_V[head].detach()
    circuit = ov_circuit(model, head, "residual", "residual")
    torch.testing.assert_close(circuit.AB, 0.37 * U @ U.mT)
    assert lowest_eigenvalue(circuit) > -1e-12


def test_a_gain_breaks_the_symmetry_of_a_tied_ov_but_not_its_eigenvalues(make: MakeModel) -> None:
    circuit = ov_circuit(make(attention="mssa", tied_output=True), (0, 0), "residual", "residual")
    assert asymmetry(circuit) > 0.1
    values = torch.linalg.eigvals(circuit.AB)
    assert values.real.min() > -1e-12 and values.imag.abs().max() < 1e-6


def test_nothing_forces_it_on_others(make: MakeModel) -> None:
    mhsa, untied = make(norm=None), make(attention="mssa", norm=None)
    for circuit in (
        qk_circuit(mhsa, (0, 0), "residual", "residual"),
        ov_circuit(mhsa, (0, 0), "residual", "residual"),
        ov_circuit(untied, (0, 0), "residual", "residual"),
    ):
        assert asymmetry(circuit) > 0.5 and lowest_eigenvalue(circuit) < -0.1 and not circuit.psd_because
