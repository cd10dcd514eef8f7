"""What sharing one matrix forces on MSSA's circuits, in float64, and that nothing forces it on MHSA's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aotlens.circuits import Circuit, ov_circuit, qk_circuit
from aotlens.models import AttentionOnlyTransformer

Make = Callable[..., AttentionOnlyTransformer]
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
def test_qk_of_mssa_is_symmetric_positive_semidefinite(make: Make, head: tuple[int, int], norm: str, side: str) -> None:
    circuit = qk_circuit(make(**MSSA, norm=norm), head, side, side)
    assert asymmetry(circuit) < 1e-12 and lowest_eigenvalue(circuit) > -1e-12
    assert circuit.psd_because


@pytest.mark.parametrize("side", ["tokens", "prompt"])
def test_so_are_scores_with_biases_and_on_a_prompt(make: Make, side: str) -> None:
    model = make(**MSSA)
    _, cache = model.run_with_cache(torch.tensor([[1, 5, 2, 5]]))
    circuit = qk_circuit(model, (1, 0), side, side, frozen=cache if side == "prompt" else None, biases=True)
    assert asymmetry(circuit) < 1e-12 and lowest_eigenvalue(circuit) > -1e-12


@pytest.mark.parametrize("head", HEADS)
def test_residual_qk_is_the_scaled_square_of_the_subspace(make: Make, head: tuple[int, int]) -> None:
    model = make(attention="mssa", norm=None)
    U = model.W_Q[head].detach()
    torch.testing.assert_close(qk_circuit(model, head, "residual", "residual").AB, model.cfg.score_scale * U @ U.mT)


@pytest.mark.parametrize("head", HEADS)
def test_tied_ov_is_the_step_times_the_square_of_the_subspace(make: Make, head: tuple[int, int]) -> None:
    model = make(attention="mssa", tied_output=True, step_size=0.37, norm=None)
    U = model.W_V[head].detach()
    circuit = ov_circuit(model, head, "residual", "residual")
    torch.testing.assert_close(circuit.AB, 0.37 * U @ U.mT)
    assert lowest_eigenvalue(circuit) > -1e-12


def test_a_gain_breaks_the_symmetry_of_a_tied_ov_but_not_its_eigenvalues(make: Make) -> None:
    circuit = ov_circuit(make(attention="mssa", tied_output=True), (0, 0), "residual", "residual")
    assert asymmetry(circuit) > 0.1
    values = torch.linalg.eigvals(circuit.AB)
    assert values.real.min() > -1e-12 and values.imag.abs().max() < 1e-6


def test_nothing_forces_it_on_others(make: Make) -> None:
    mhsa, untied = make(norm=None), make(attention="mssa", norm=None)
    for circuit in (
        qk_circuit(mhsa, (0, 0), "residual", "residual"),
        ov_circuit(mhsa, (0, 0), "residual", "residual"),
        ov_circuit(untied, (0, 0), "residual", "residual"),
    ):
        assert asymmetry(circuit) > 0.5 and lowest_eigenvalue(circuit) < -0.1 and not circuit.psd_because
