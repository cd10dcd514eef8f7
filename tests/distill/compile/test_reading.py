"""What is read, and what is refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aotlens.distill import compile_ffn, read_ffn
from tests.distill.compile.networks import mlp, unchecked_shapes, uniform
from tests.messages import refused


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Linear(3, 4), nn.ReLU()),
        nn.Sequential(nn.SiLU(), nn.Linear(3, 4)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.SiLU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0)), nn.Identity(), nn.ReLU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2)).eval(),
    ],
)  # fmt: skip
def test_what_is_read(network: nn.Sequential):
    x = uniform(20, 3, 2)
    compiled = compile_ffn(network, bound=2, tolerance=1e-6)
    assert_close(compiled(x), network.double()(x), atol=1e-6, rtol=0)


def test_pairs_are_applied_as_rows():
    w, b, out = torch.randn(3, 4), torch.randn(4), torch.randn(4, 2)
    x = uniform(20, 3, 2)
    expected = torch.relu(x @ w.double() + b.double()) @ out.double()
    compiled = compile_ffn([(w, b), (out, None)], activation="relu", bound=2, tolerance=1e-6)
    assert_close(compiled(x), expected, atol=1e-6, rtol=0)
    assert_close(compile_ffn(read_ffn([(w, b), (out, None)], "relu"), bound=2, tolerance=1e-6)(x), compiled(x))


def test_the_network_is_copied():
    network = mlp(3, 4, 2)
    compiled = compile_ffn(network, bound=2, tolerance=1e-6)
    before = compiled(uniform(4, 3, 1))
    network[0].weight.zero_()
    assert_close(compiled(uniform(4, 3, 1)), before)
    assert compiled.measured_error(n=50) <= 1e-6


def shared(*widths: int, activation: nn.Module) -> nn.Sequential:
    """One activation module between and after the layers; `nn.Sequential` lists it once among its children."""
    network = mlp(*widths)
    return nn.Sequential(*(activation if isinstance(one, nn.ReLU) else one for one in network), activation)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.SiLU()])
@pytest.mark.parametrize("widths", [(3, 4, 2), (3, 4, 4, 2)])
def test_a_module_that_stands_twice_is_read_twice(widths, activation):
    network = shared(*widths, activation=activation)
    compiled = compile_ffn(network, bound=1, tolerance=1e-3)
    x = uniform(500, 3, 1)
    assert compiled.ffn.depth == len(widths) - 1
    assert (compiled(x) - network(x)).abs().max() <= compiled.proven_error <= 1e-3


def test_a_linear_map_that_stands_twice_is_read_twice():
    linear, act = mlp(3, 3)[0], nn.ReLU()
    for network in (nn.Sequential(linear, act, linear, act), nn.Sequential(nn.Sequential(linear, act), act, linear)):
        compiled = compile_ffn(network, bound=1, tolerance=1e-3)
        x = uniform(500, 3, 1)
        assert (compiled(x) - network(x)).abs().max() <= compiled.proven_error


def test_reading_leaves_the_module_and_its_precision_alone():
    linear = nn.Linear(3, 4).to(torch.bfloat16)
    network = nn.Sequential(nn.ReLU(inplace=True), linear, nn.ReLU(inplace=True), linear.__class__(4, 2, bias=False))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert read_ffn(network).widths == (3, 4)
    for name, tensor in network.state_dict().items():
        assert tensor.dtype == before[name].dtype and torch.equal(tensor, before[name])
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_what_a_module_computes_is_compared_with_what_was_read(monkeypatch):
    network = mlp(3, 4, 4, 2)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: torch.relu(x) + 1e-9)
    with refused("3 → 4, relu, 4 → 4, relu, 4 → 2", "differs"):
        read_ffn(network)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x @ x)
    with refused("float64"):
        read_ffn(network)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def replaced() -> nn.Module:
    network = mlp(3, 4, 2)
    network[0].forward = lambda x: torch.zeros(len(x), 4, dtype=x.dtype)
    return network


def hooked() -> nn.Module:
    network = mlp(3, 4, 2)
    network[1].register_forward_hook(lambda *_: None)
    return network


class Own(nn.Module):
    pass


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), r"ffn\.1: GELU is not compiled: a head weighs"),
        (nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 2)), r"LeakyReLU is not compiled"),
        (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU()), r"ffn\.1: LayerNorm is not compiled; expected"),
        (nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.ReLU()), r"dropout in training is random.*\.eval\(\)"),
        (nn.Sequential(Doubled(3, 4), nn.ReLU()), r"ffn\.0: Doubled is a subclass"),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU()), "is a subclass"),
        (hooked(), r"ffn\.1 \(ReLU\) has forward hooks"),
        (replaced(), r"ffn\.0 \(Linear\) has a forward of its own"),
        (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.ReLU()), "linear maps in a row"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2)), "reads 5 numbers, but the .* writes 4"),
        (nn.Sequential(nn.Linear(3, 4)), "at least one ReLU or SiLU"),
        (nn.Sequential(nn.ReLU()), "at least one nn.Linear"),
        (nn.Sequential(), "at least one ReLU or SiLU"),
        ([(torch.eye(2), None), (torch.eye(2), None)], "need 'relu' or 'silu'"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Own()), r"Own is not compiled; expected .* or its layers'"),
    ],
)  # fmt: skip
def test_what_is_refused(network, message):
    with pytest.raises(ValueError, match=message):
        compile_ffn(network, bound=1, tolerance=0.1)


def test_what_is_read_otherwise_says_how():
    """Without the checks of types that tests have: as users call it."""
    read = getattr(read_ffn, "__wrapped__", read_ffn)
    for network, kind in ((mlp(3, 4, 2).state_dict(), "a state dict"), ("ffn.safetensors", "a path")):
        with refused(f"got {kind}", "load_ffn(path, activation)"):
            read(network, "relu")
    with refused("(W [input, output], b [output] or None)"):
        read([torch.eye(2), torch.eye(2)], "relu")


def test_weights_that_are_not_finite_are_refused():
    network = mlp(3, 4, 2)
    network[2].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"ffn\.2: expected finite weights"):
        compile_ffn(network, bound=1, tolerance=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bound": 0}, "bound=0: expected a finite number, above 0"),
        ({"bound": True}, "bound=True: expected a finite number, above 0"),
        ({"tolerance": True}, "tolerance=True: expected a finite number, above 0"),
        ({"bound": float("inf")}, "bound=inf"),
        ({"tolerance": -1.0}, "tolerance=-1.0: expected a finite number, above 0"),
        ({"tolerance": float("nan")}, "tolerance=nan"),
        ({"n_tokens": 0}, "n_tokens=0"),
        ({"n_tokens": 5000}, "n_tokens=5000: a mask of 5 heads would have 125,050,005 entries"),
        ({"bound": 1e300}, "numbers above 1e.300 would occur"),
        ({"auxiliary": torch.ones(6)}, r"expected a vector of d_model = 5 numbers, got \[6\]"),
        ({"auxiliary": torch.tensor([1.0, 1, 1, 1, 0])}, "the last of them not 0"),
        ({"auxiliary": torch.full((5,), float("nan"))}, "auxiliary: expected numbers"),
        ({"activation": "relu"}, "activation is for pairs"),
    ],
)
def test_arguments_that_cannot_be_met(change, message):
    arguments = {"bound": 1, "tolerance": 0.1, **change}
    with pytest.raises(ValueError, match=message):
        compile_ffn(mlp(3, 4, 2), **arguments)


@pytest.mark.parametrize("construction", ["lean", "narrow", "paper"])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU])
def test_a_tolerance_below_rounding_names_the_one_that_can_be_had(construction, activation):
    network = mlp(3, 5, 5, 2, activation=activation)
    refused_at, reached = 1e-16, 1.0
    while reached > 1.001 * refused_at:
        tolerance = (refused_at * reached) ** 0.5
        try:
            compiled = compile_ffn(network, bound=10, tolerance=tolerance, construction=construction)
            reached = tolerance
        except ValueError:
            refused_at = tolerance
    assert 1e-15 < reached < 1e-10
    assert compiled.measured_error(n=200) <= compiled.proven_error <= compiled.tolerance
    with refused("float64") as caught:
        compile_ffn(network, bound=10, tolerance=1e-16, construction=construction)
    within_5_percent = {f"{reached * (1 + percent / 100):.3g}" for percent in np.arange(0, 5, 0.02)}
    assert any(tolerance in str(caught.value) for tolerance in within_5_percent)


def test_a_model_that_would_not_fit_is_refused_with_the_construction_that_does():
    with refused("construction='narrow'", "size 1"):
        compile_ffn(mlp(600, 1200, 600), bound=1, tolerance=0.1)


def test_inputs_that_are_not_the_networks():
    compiled = compile_ffn(mlp(3, 4, 2), bound=1, tolerance=0.1)
    with pytest.raises(ValueError, match=r"rows of 3 numbers.*got \[5, 4\]"):
        compiled(torch.zeros(5, 4))
    with pytest.raises(ValueError, match="finite inputs"):
        compiled(torch.full((1, 3), float("nan")))
    with pytest.raises(ValueError, match=r"expected them in \[-1, 1\]"):
        compiled.measured_error(torch.full((1, 3), 2.0))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 3), (5, 4)])
def test_inputs_of_another_shape(shape):
    compiled = compile_ffn(mlp(3, 4, 2), bound=1, tolerance=0.1)
    with unchecked_shapes():
        for use in (compiled, compiled.error, compiled.ffn):
            with pytest.raises(ValueError, match=r"expected rows .* got \[") as caught:
                use(torch.zeros(shape))
            assert str(list(shape)) in str(caught.value)
        with pytest.raises(ValueError, match=r"rows? of 3 numbers"):
            compiled.measured_error(torch.zeros(shape))


def test_no_points_have_no_largest_error():
    compiled = compile_ffn(mlp(3, 4, 2), bound=1, tolerance=0.1)
    with refused("one row of 3", "[0, 3]"):
        compiled.measured_error(torch.zeros(0, 3))
    assert compiled(torch.zeros(0, 3)).shape == (0, 2)


def test_inputs_beyond_float64_are_refused():
    compiled = compile_ffn(mlp(3, 4, 2), bound=1, tolerance=0.1)
    far = torch.full((2, 3), 1e308, dtype=torch.float64)
    for use in (compiled, compiled.error):
        with refused("1e+308", "[-1, 1]"):
            use(far)
    assert compiled(far * 1e-200).isfinite().all()


def test_etas_whose_scores_float64_cannot_hold_are_never_built(monkeypatch):
    monkeypatch.setattr("aotlens.distill.compile.compiled.choose_etas", lambda *_, **__: (1e-303,))
    with pytest.raises(ValueError, match=r"numbers above 1e\+300 would occur"):
        compile_ffn(mlp(3, 4, 2), bound=1000, tolerance=0.1)
