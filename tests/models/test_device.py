"""Which device is taken, and that Apple's is taken only where it multiplies as the CPU does. A stand-in plays it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from aotlens.models import device as devices
from aotlens.models import resolve_device
from tests.messages import refused

Product = Callable[[Tensor, Tensor, torch.device], Tensor]


@pytest.fixture
def play_mps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Product], list[tuple[bool, ...]]]]:
    """Let torch have an MPS device that multiplies as given; returns the list of what it was asked to multiply."""
    devices._check_products.cache_clear()

    def play(product: Product) -> list[tuple[bool, ...]]:
        asked: list[tuple[bool, ...]] = []

        def multiply(left: Tensor, right: Tensor, device: torch.device) -> Tensor:
            assert device.type == "mps" and left.dtype == right.dtype == torch.float32
            asked.append((left.ndim > 2, left.is_contiguous(), right.is_contiguous()))
            return product(left, right, device)

        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
        monkeypatch.setattr(devices, "_product", multiply)
        return asked

    yield play
    devices._check_products.cache_clear()


def right(left: Tensor, right: Tensor, device: torch.device) -> Tensor:
    return (left.double() @ right.double()).float()  # rounded otherwise than the CPU's


def test_auto_takes_cuda_else_the_cpu(play_mps, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = play_mps(right)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device() == torch.device("cpu") and not asked
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda") and not asked


def test_mps_is_checked_at_its_first_use_when_it_is_named(play_mps) -> None:
    asked = play_mps(right)
    assert resolve_device("mps") == torch.device("mps")
    every = {(batched, left, right) for batched in (False, True) for left in (False, True) for right in (False, True)}
    assert set(asked) == every and len(asked) == 8
    assert resolve_device(torch.device("mps")) == torch.device("mps") and len(asked) == 8


@pytest.mark.parametrize("wrong", ["left", "right", "batched", "nan"])
def test_an_mps_whose_products_differ_is_refused_every_time(play_mps, wrong: str) -> None:
    def broken(left: Tensor, right: Tensor, device: torch.device) -> Tensor:
        if wrong == "left" and not left.is_contiguous():
            left = left.mT.reshape(left.shape)  # as if the strides were overlooked
        if wrong == "right" and not right.is_contiguous():
            right = right.mT.reshape(right.shape)
        product = left @ right
        if wrong == "batched" and product.ndim > 2:
            product[-1, -1, -1, -1] += 0.1
        return product.fill_(torch.nan) if wrong == "nan" else product

    asked = play_mps(broken)
    for _ in range(2):
        before = len(asked)
        with refused("'mps'", "CPU", "device='cpu'"):
            resolve_device("mps")
        assert len(asked) > before
