"""Views of a compiled network without an app: the function that is named, what is said of it, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from aotlens.views import View
from aotlens.views.nonlinearity import (
    CONSTRUCTIONS,
    ERROR,
    FAMILY,
    GATE,
    HEAD,
    HEADS,
    LAYERS,
    MASK,
    MAX_KNOTS,
    PRESETS,
    NonlinearityParameters,
    eta,
    network,
    read_points,
)
from tests.messages import refused, says
from tests.views.executed import same_by_python

DEEP = NonlinearityParameters(preset="sawtooth", eta=0.05, head=(1, 2), x=(0.25,), scale="log")


@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
@pytest.mark.parametrize(
    "params",
    [
        DEEP,
        NonlinearityParameters(preset="random", inputs=2, width=3, activation="silu", auxiliary="random"),
        NonlinearityParameters(preset="drawn", knots="0,0;1,2;1.5,-1", auxiliary="0.5,-1,2"),
        NonlinearityParameters(preset="ramp", inputs=2),
        NonlinearityParameters(preset="sine"),
    ],
    ids=lambda params: params.preset,
)
def test_its_python_gives_its_result_table_and_figure(view: View, params: NonlinearityParameters) -> None:
    result = same_by_python(view, params)
    assert view.file(params).startswith(f"compiled-{params.preset}-") and view.caption(params, result)


# ── the function ─────────────────────────────────────────────────────────────────────────────────────────────


def by_numpy(params: NonlinearityParameters, x: np.ndarray) -> np.ndarray:
    """The preset of one input without our networks."""
    if params.preset == "sawtooth":
        u = 2 ** (params.depth - 1) * (x + 1) / 2
        return np.where(np.abs(x) <= 1, 1 - np.abs(2 * (u % 1) - 1), 0.0)
    if params.preset == "abs":
        return np.abs(x)
    if params.preset == "ramp":
        return np.clip(x / 0.2 + 0.5, 0, 1)
    at = np.linspace(-params.bound, params.bound, params.width + 1)
    at, to = {
        "hat": (np.array([-1, 0, 1.0]), np.array([0, 1, 0.0])),
        "square": (at, at**2),
        "sine": (at, np.sin(np.pi * at)),
        "drawn": (np.array([-1, 0.5, 2.0]), np.array([3, -1, 0.25])),
    }[params.preset]
    return np.interp(x, at, to)


@pytest.mark.parametrize("preset", sorted(set(PRESETS) - {"random"}))
@pytest.mark.parametrize("inputs", [1, 2])
def test_a_preset_is_the_function_it_names_and_so_is_its_model(preset: str, inputs: int) -> None:
    params = NonlinearityParameters(preset=preset, inputs=inputs, depth=3, knots="2,0.25;-1,3;0.5,-1", tolerance=1e-3)
    compiled, error = LAYERS.result(params), ERROR.result(params)
    x = np.random.default_rng(0).uniform(-2, 2, (50, inputs))
    expected = sum(by_numpy(params, x[:, i]) for i in range(inputs))
    np.testing.assert_allclose(compiled.ffn(torch.from_numpy(x))[:, 0], expected, atol=1e-12)
    np.testing.assert_allclose(compiled(torch.from_numpy(x))[:, 0], expected, atol=1e-3)
    assert error.error.max() <= error.measured <= error.proven == compiled.proven_error <= 1e-3
    if inputs == 1 and preset in ("square", "sine"):
        np.testing.assert_allclose(error.target, {"square": np.square, "sine": np.sin}[preset](
            error.x * (np.pi if preset == "sine" else 1)), atol=1e-12)  # fmt: skip


def test_silu_is_exact_and_has_no_eta() -> None:
    params = NonlinearityParameters(preset="random", inputs=2, activation="silu", eta=0.3, width=5, depth=2, seed=4)
    compiled = LAYERS.result(params)
    assert set(compiled.etas) == {1.0} and ERROR.result(params).measured < 1e-13
    assert "nothing to slide" in eta(params) and params.limits()["eta"].hidden
    layers: list[nn.Module] = []
    for weight, bias in zip(compiled.ffn.weights, compiled.ffn.biases, strict=True):
        linear = nn.Linear(*weight.shape).double()
        linear.weight.data, linear.bias.data = weight.T, bias
        layers += [linear, nn.SiLU()]
    x = torch.rand(30, 2, dtype=torch.float64) * 4 - 2
    torch.testing.assert_close(compiled(x), nn.Sequential(*layers[:-1])(x), atol=1e-13, rtol=0)


def test_a_chosen_eta_stands_in_every_layer_and_the_bound_follows() -> None:
    first = LAYERS.result(NonlinearityParameters(preset="sawtooth"))
    bounds, measured = [], []
    for value in (1e-4, 1e-2, 0.3):
        params = NonlinearityParameters(preset="sawtooth", eta=value)
        compiled = LAYERS.result(params)
        assert compiled.etas == (value, value) and params.model.etas == first.etas
        bounds.append(compiled.proven_error)
        measured.append(ERROR.result(params).measured)
    assert bounds == sorted(bounds) and measured == sorted(measured) and all(np.array(measured) <= bounds)
    assert "above the tolerance" in eta(params)
    assert "within the tolerance" in eta(NonlinearityParameters(eta=1e-4))
    assert "chosen by the proof" in eta(NonlinearityParameters())
    assert params.limits()["eta"].rest == first.etas[0]


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (NonlinearityParameters(bound=-1.0), "bound=-1.0: expected a"),
        (NonlinearityParameters(tolerance=1e-18), "below what float64"),
        (NonlinearityParameters(preset="drawn", knots="1,1;1,2"), "x = 1"),
        (NonlinearityParameters(preset="drawn", knots="1,1"), "two points or more"),
        (
            NonlinearityParameters(preset="drawn", knots=";".join(f"{i},0" for i in range(MAX_KNOTS + 1))),
            "at most 40 points",
        ),
        (NonlinearityParameters(auxiliary="1,2,3,4"), "d_model = 3"),
        (NonlinearityParameters(auxiliary="1,2,0"), "last of them"),
        (NonlinearityParameters(auxiliary="1,,2"), "Auxiliary token: expected a number"),
        (NonlinearityParameters(eta=0.0), "η of layer 0"),
    ],
)
def test_what_cannot_be_compiled_is_said(params: NonlinearityParameters, why: str) -> None:
    for view in FAMILY.views:
        with refused(why):
            view.result(params)
    if params.problem:
        assert network(params) == eta(params) == "" and "head" not in params.limits()


def test_points_are_read_and_wrong_ones_named() -> None:
    assert read_points("0, 1\n 2,−3 \n\n") == ([0.0, 2.0], [1.0, -3.0])
    for text in ("0 1", "0,1,2", "a,b", "0,", "nan,0"):
        with refused("a line each; got"):
            read_points(text)


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_head_says() -> None:
    params = NonlinearityParameters(eta=0.5, head=(0, 1), x=(-0.5,))  # the hat: x + 1, x, x − 1
    heads = HEADS.result(params)
    assert heads.reads == ("x", "x + 1", "x", "x − 1") and heads.kinks == ("", "−1", "0", "1")
    assert heads.writes[1:] == ("1 × into f", "−2 × into f", "1 × into f")
    says(HEAD.caption(params, HEAD.result(params)), "Hidden unit 0", "t = x + 1 = 0.5", "x=−0.5", "= 0.73106", "0.139")
    linear = replace(params, head=(0, 0))
    says(HEAD.caption(linear, HEAD.result(linear)), "own token only")
    with refused("This head has no gate"):
        GATE.result(linear)
    unnamed = replace(params, head=None)
    assert (HEAD.result(unnamed).role.head, HEAD.file(unnamed)) == (1, "compiled-hat-1d-relu-lean-head-0.1")
    assert MASK.caption(params, MASK.result(params)) == "1 head: itself only, 3 heads: itself and the auxiliary token."


def test_the_facts_are_the_models() -> None:
    params = NonlinearityParameters(preset="sawtooth", construction="paper")
    compiled = LAYERS.result(params)
    told = {name: (value, why) for name, value, why in compiled.facts()}
    assert told["heads"] == ("19", "8 + 11 by layer; Theorem 4.1 states 4 in each")
    assert told["d_model"][0] == str(compiled.model.cfg.d_model) == "5"
    rows = LAYERS.frame(compiled)[["heads", "paper_heads", "proof_heads"]]
    assert rows.to_numpy().tolist() == [[8, 4, 8], [11, 4, 11]]


def test_a_head_and_an_input_are_within_the_models() -> None:
    with refused("head: expected a head of this model that is not only zeros, got '5.5'"):
        FAMILY.parse(head="5.5")
    with refused("x: expected numbers from -2 to 2, the inputs' bound, got '7'"):
        FAMILY.parse(x="7")
    assert NonlinearityParameters(head=(5, 5), x=(7.0,), inputs=2).fitted()[0].shown_head == (0, 1)
    assert NonlinearityParameters(x=(7.0, -9.0)).fitted()[0].point == (2.0,)
    assert NonlinearityParameters(x=(0.1,), inputs=2).point == (0.1, 0.1)
    hidden = {name for name, limit in NonlinearityParameters(preset="square").limits().items() if limit.hidden}
    assert hidden == {"depth", "seed", "knots"}
    same = [LAYERS.key(NonlinearityParameters(preset="abs", width=width, knots="0,0;1,1")) for width in (3, 9)]
    assert same[0] == same[1], "what a network does not use changes nothing"


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_a_model_is_as_large_as_was_estimated_at_most(preset: str, construction: str) -> None:
    params = NonlinearityParameters(preset=preset, construction=construction, inputs=2, width=5, depth=3, tolerance=0.5)
    model = LAYERS.result(params).model
    sizes = {name: getattr(model.cfg, name) for name in params.sizes}
    if preset == "drawn":  # of as many points as there may be
        assert all(sizes[name] <= params.sizes[name] for name in sizes)
    else:
        assert all(size <= params.sizes[name] <= size + 2 for name, size in sizes.items())
    weights = [getattr(model, name) for name in ("W_Q", "W_K", "W_V", "W_O")]
    assert params.held >= 2 * 8 * sum(each.numel() for each in weights)
    assert ERROR.cost(params) > ERROR.cost(replace(params, inputs=1)) > GATE.cost(params) / 2 > 0
