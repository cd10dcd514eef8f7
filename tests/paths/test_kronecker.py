"""Kronecker operators against the dense matrices that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.paths import Kronecker, KroneckerSum, Path, expand, virtual_weight
from tests.messages import refused
from tests.small_models import maker


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def first() -> Kronecker:
    return Kronecker(random(3, 4, seed=1), random(5, 2, seed=2))


@pytest.fixture
def second() -> Kronecker:
    return Kronecker(random(6, 3, seed=3), random(2, 7, seed=4))


def test_it_acts_as_the_dense_matrix_on_the_flattened_stream(first: Kronecker) -> None:
    x = random(4, 5)
    assert first.in_shape == (4, 5) and first.out_shape == (3, 2)
    torch.testing.assert_close((first.dense() @ x.reshape(-1)).reshape(3, 2), first(x))
    torch.testing.assert_close(first.dense(), torch.kron(first.pattern, first.weight.T.contiguous()))


def test_the_papers_action_on_columns_is_the_same_map(first: Kronecker) -> None:
    """(P ⊗ Q) X = Q X Pᵀ (Remark 14) with X = xᵀ, P the pattern and Q = weightᵀ."""
    X = random(4, 5).T
    torch.testing.assert_close(first.weight.T @ X @ first.pattern.T, first(X.T).T)


def test_the_mixed_product(first: Kronecker, second: Kronecker) -> None:
    product = second @ first
    assert isinstance(product, Kronecker)
    torch.testing.assert_close(product.dense(), second.dense() @ first.dense())
    torch.testing.assert_close(product.weight, first.weight @ second.weight)
    x = random(4, 5)
    torch.testing.assert_close(product(x), second(first(x)))


def test_sums_products_and_adjoints(first: Kronecker, second: Kronecker) -> None:
    other = Kronecker(random(3, 4, seed=5), random(5, 2, seed=6))
    total = first + other + 2 * first
    assert isinstance(total, KroneckerSum) and len(total.terms) == 3
    dense = 3 * first.dense() + other.dense()
    torch.testing.assert_close(total.dense(), dense)
    torch.testing.assert_close(total(random(4, 5)), 3 * first(random(4, 5)) + other(random(4, 5)))
    later = second + Kronecker(random(6, 3, seed=7), random(2, 7, seed=8))
    torch.testing.assert_close((later @ total).dense(), later.dense() @ dense)
    torch.testing.assert_close((second @ total).dense(), second.dense() @ dense)
    torch.testing.assert_close((later @ first).dense(), later.dense() @ first.dense())
    torch.testing.assert_close(total.adjoint().dense(), dense.T)
    torch.testing.assert_close(first.adjoint().dense(), first.dense().T)
    torch.testing.assert_close((first - other).dense(), first.dense() - other.dense())
    torch.testing.assert_close((total - first).dense(), dense - first.dense())
    torch.testing.assert_close(sum([first, other, first]).dense(), 2 * first.dense() + other.dense())
    x, y = random(4, 5), random(3, 2, seed=9)
    torch.testing.assert_close((first(x) * y).sum(), (x * first.adjoint()(y)).sum())
    torch.testing.assert_close((total * 0.5 + first).dense(), dense / 2 + first.dense())
    assert total.in_shape == (4, 5) and total.out_shape == (3, 2)


def test_norms_come_from_the_factors(first: Kronecker) -> None:
    other = Kronecker(random(3, 4, seed=5), random(5, 2, seed=6))
    assert first.norm() == pytest.approx(float(first.dense().norm()))
    total = first + other
    assert total.norm() == pytest.approx(float(total.dense().norm()))
    torch.testing.assert_close(sum([first + other, other]).dense(), first.dense() + 2 * other.dense())
    many = sum([first, other, 2 * first, 0.5 * other])
    assert isinstance(many, KroneckerSum)
    by_hand = sum((a.pattern * b.pattern).sum() * (a.weight * b.weight).sum() for a in many.terms for b in many.terms)
    assert many.norm() == pytest.approx(float(by_hand) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_cancels_has_no_norm_but_rounding(first: Kronecker, dtype: torch.dtype) -> None:
    """Σᵢⱼ⟨Aᵢ, Aⱼ⟩⟨Wᵢ, Wⱼ⟩ as it stands leaves √ε: 1e-4 of the size in float32."""
    whole = Kronecker(first.pattern.to(dtype), first.weight.to(dtype))
    thirds = Kronecker(whole.pattern * 3, whole.weight / 3)
    assert (whole - thirds).norm() <= 4 * torch.finfo(dtype).eps * whole.norm()
    both = (whole - thirds) - (whole - thirds)
    torch.testing.assert_close(both.dense(), torch.zeros_like(both.dense()))


def test_move_after_process_is_the_head(first: Kronecker) -> None:
    move, process = first.move(), first.process()
    torch.testing.assert_close(move(process(random(4, 5))), first(random(4, 5)))
    torch.testing.assert_close((move @ process).dense(), first.dense())
    assert torch.equal(move.weight, torch.eye(2, dtype=torch.float64))
    assert torch.equal(process.pattern, torch.eye(4, dtype=torch.float64))


def test_a_virtual_weight_is_block_diagonal() -> None:
    W = random(3, 2)
    torch.testing.assert_close(virtual_weight(W, 4).dense(), torch.block_diag(*[W.T] * 4))
    with pytest.raises(ValueError, match="n=0"):
        virtual_weight(W, 0)


def test_mistakes_are_named(first: Kronecker, second: Kronecker) -> None:
    with pytest.raises(ValueError, match=r"expected \[4, 5\], got \[5, 4\]"):
        first(random(5, 4))
    row = object.__new__(Kronecker)  # without the checks of types that tests have: as users call it
    for name, factor in (("pattern", torch.rand(3)), ("weight", torch.eye(2))):
        object.__setattr__(row, name, factor)
    with refused("two matrices", "[3]", "[2, 2]"):
        row.__post_init__()
    with refused("calling", error=TypeError):
        getattr(Kronecker.__matmul__, "__wrapped__", Kronecker.__matmul__)(first, random(4, 5))
    with pytest.raises(ValueError, match=r"onto \[4, 5\], got one onto \[6, 7\]"):
        first @ second
    with pytest.raises(ValueError, match="one shape"):
        first + second
    with pytest.raises(ValueError, match="at least one"):
        KroneckerSum(())
    with pytest.raises(ValueError, match="960 bytes, above max_bytes=959"):
        first.dense(max_bytes=959)
    with pytest.raises(ValueError, match="above max_bytes"):
        (first + first).dense(max_bytes=959)


@pytest.mark.parametrize("shape", [(3, 3, 1, 4), (1, 3, 4, 1), (3, 1, 1, 1), (1, 1, 1, 5)])
def test_a_width_of_1_is_dense_whatever_its_strides(shape: tuple[int, int, int, int]) -> None:
    m, n, p, q = shape
    for pattern in (random(m, n), random(n, m).T, random(m, 7)[:, :1].expand(m, n)):
        for weight in (random(p, q), random(q, p).T, random(1, q).expand(p, q)[:, :q]):
            operator, x = Kronecker(pattern, weight), random(n, p)
            torch.testing.assert_close(operator.dense() @ x.reshape(-1), operator(x).reshape(-1))
            torch.testing.assert_close(operator.dense(), torch.from_numpy(np.kron(pattern, weight.T)))


def test_a_bias_path_is_dense() -> None:
    model = maker(dtype=torch.float64)(bias=True)
    operator = expand(model, torch.tensor([[1, 2, 3]])).operator(Path("bias"))
    x = random(*operator.in_shape)
    torch.testing.assert_close(operator.dense() @ x.reshape(-1), operator(x).reshape(-1))
