"""The Non-linearity page's answers, without Dash: against the library, torch and the model itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from app.core.address_values import number
from app.core.errors import RequestError
from app.pages.nonlinearity import captions
from app.pages.nonlinearity import figures as views
from app.pages.nonlinearity.address import ADDRESS, MAX_KNOTS, NonlinearityState
from app.pages.nonlinearity.service import Compiled, Nonlinearity, first_head, from_dict, knots, to_dict, within
from tests.messages import refused, says

State = NonlinearityState
FLOATS = st.floats(-1e6, 1e6, allow_nan=False).map(float)

# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────────

STATES = st.builds(
    State,
    preset=st.sampled_from(["abs", "hat", "ramp", "sawtooth", "square", "sine", "random", "drawn"]),
    inputs=st.sampled_from([1, 2]),
    activation=st.sampled_from(["relu", "silu"]),
    width=st.integers(1, 64),
    depth=st.integers(1, 6),
    seed=st.integers(0, 999_999),
    knots=st.sampled_from(["0,1;1,2", "-1e-05,.5;2.5,-3", "0,0;1,1;2,0"]),
    bound=FLOATS,
    tolerance=FLOATS,
    construction=st.sampled_from(["lean", "narrow", "paper"]),
    auxiliary=st.sampled_from(["unit", "random", "0.5,-1,2e-3"]),
    eta=st.none() | st.sampled_from([0.01, 3e-7, 2.0]),
    head=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
    x=st.none() | st.tuples(FLOATS) | st.tuples(FLOATS, FLOATS),
    scale=st.sampled_from(["linear", "log"]),
)


@given(STATES)
@example(State(tolerance=0.0009518017726863155, knots="0,0.00012345678901234567;1,2"))
def test_a_state_comes_back_from_its_address(state: State):
    path, _, query = ADDRESS.format(state).partition("?")
    assert path == "/nonlinearity"
    assert ADDRESS.parse("?" + query if query else "") == state
    assert from_dict(json.loads(json.dumps(to_dict(state)))) == state


@given(st.text(max_size=100))
def test_any_query_is_read(query: str):
    assert isinstance(ADDRESS.parse("?" + query), State)


def test_nonsense_is_left_out():
    query = (
        "?preset=cube&inputs=3&width=x&bound=nan&tolerance=inf&eta=1e999&knots=0,1;&auxiliary=,&x=1,2,3&head=1&scale=up"
    )
    assert ADDRESS.parse(query) == State(inputs=2)
    assert ADDRESS.parse("?width=999&depth=0") == State(width=64, depth=1)
    for text in ("1e", "0x1", "1_000", "٣", "", "1" * 50, "--1", "1e99999"):
        assert number(text) is None
    assert [number("1e-3"), number("-.5"), number("2.")] == [1e-3, -0.5, 2.0]


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────


def by_torch(state: State, x: np.ndarray) -> np.ndarray:
    """The preset in plain numpy and torch, without our networks."""
    if state.preset == "sawtooth":
        u = 2 ** (state.depth - 1) * (x + 1) / 2
        return np.where(np.abs(x) <= 1, 1 - np.abs(2 * (u % 1) - 1), 0.0)
    if state.preset == "abs":
        return np.abs(x)
    if state.preset == "ramp":
        return np.clip(x / 0.2 + 0.5, 0, 1)
    at = np.linspace(-state.bound, state.bound, state.width + 1)
    at, to = {
        "hat": (np.array([-1, 0, 1.0]), np.array([0, 1, 0.0])),
        "square": (at, at**2),
        "sine": (at, np.sin(np.pi * at)),
        "drawn": (np.array([-1, 0.5, 2.0]), np.array([3, -1, 0.25])),
    }[state.preset]
    return np.interp(x, at, to)


@pytest.mark.parametrize("preset", ["abs", "hat", "ramp", "sawtooth", "square", "sine", "drawn"])
@pytest.mark.parametrize("inputs", [1, 2])
def test_a_preset_is_the_function_it_names_and_so_is_its_model(compiler: Nonlinearity, preset, inputs: int):
    state = State(preset=preset, inputs=inputs, depth=3, knots="2,0.25;-1,3;0.5,-1", tolerance=1e-3)
    made = compiler.compile(state)
    x = np.random.default_rng(0).uniform(-2, 2, (50, inputs))
    expected = sum(by_torch(state, x[:, i]) for i in range(inputs))
    np.testing.assert_allclose(made.compiled.ffn(torch.from_numpy(x))[:, 0], expected, atol=1e-12)
    np.testing.assert_allclose(made.compiled(torch.from_numpy(x))[:, 0], expected, atol=1e-3)
    assert 0 < made.measured <= made.compiled.proven_error <= 1e-3
    assert float(made.curve.error.max()) <= made.measured


def test_silu_is_exact_and_has_no_eta(compiler: Nonlinearity):
    made = compiler.compile(State(preset="random", inputs=2, activation="silu", eta=0.3, width=5, depth=2, seed=4))
    assert made.state.eta is None and set(made.compiled.etas) == {1.0}
    assert made.measured < 1e-13 and "exact" in captions.exactness(made) and "nothing to slide" in captions.eta(made)
    layers: list[nn.Module] = []
    for weight, bias in zip(made.compiled.ffn.weights, made.compiled.ffn.biases, strict=True):
        linear = nn.Linear(*weight.shape).double()
        linear.weight.data, linear.bias.data = weight.T, bias
        layers += [linear, nn.SiLU()]
    x = torch.rand(30, 2, dtype=torch.float64) * 4 - 2
    torch.testing.assert_close(made.compiled(x), nn.Sequential(*layers[:-1])(x), atol=1e-13, rtol=0)


def test_eta_overrides_the_proofs_and_the_bound_follows(compiler: Nonlinearity):
    first = compiler.compile(State(preset="sawtooth", depth=2))
    bounds, measured = [], []
    for eta in (1e-4, 1e-2, 0.3):
        made = compiler.compile(State(preset="sawtooth", depth=2, eta=eta))
        assert made.compiled.etas == (eta, eta) and made.proof_etas == first.compiled.etas
        bounds.append(made.compiled.proven_error)
        measured.append(made.measured)
    assert bounds == sorted(bounds) and measured == sorted(measured) and all(np.array(measured) <= bounds)
    assert "within the tolerance" in captions.eta(compiler.compile(State(preset="hat", eta=1e-4)))
    assert "above the tolerance" in captions.eta(made) and "proof chooses" in captions.eta(first)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (State(bound=-1.0), "bound=-1.0: expected a positive"),
        (State(preset="sine", bound=0.0), "bound"),
        (State(tolerance=0.0), "tolerance=0.0: expected a positive"),
        (State(tolerance=1e-18), "below what float64"),
        (State(preset="drawn", knots="1,1;1,2"), "x = 1"),
        (State(preset="drawn", knots="1,1"), "two points or more"),
        (State(preset="drawn", knots=";".join(f"{i},0" for i in range(MAX_KNOTS + 1))), "at most 40 points"),
        (State(preset="random", width=64, depth=6, construction="paper"), "1,0"),
        (State(auxiliary="1,2,3,4,5,6,7"), "d_model = 3"),
        (State(auxiliary="1,2,0"), "last of them"),
        (State(eta=0.0), "η of layer 0"),
        (State(bound=1e300), "1e+300"),
    ],
)
def test_what_cannot_be_compiled_is_said(compiler: Nonlinearity, state: State, why: str):
    with pytest.raises(RequestError) as error:
        compiler.compile(state)
    assert why in str(error.value)


def test_points_are_read_and_wrong_ones_named():
    assert knots("0, 1\n 2,−3 \n\n") == ([0.0, 2.0], [1.0, -3.0])
    for text in ("0 1", "0,1,2", "a,b", "0,", "nan,0"):
        with pytest.raises(RequestError, match="a line each; got"):
            knots(text)


# ── one head ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("construction", ["lean", "narrow", "paper"])
@pytest.mark.parametrize("auxiliary", ["unit", "random"])
def test_a_heads_numbers_are_the_models(compiler: Nonlinearity, construction, auxiliary: str):
    state = State(preset="random", width=3, depth=2, seed=1, construction=construction, auxiliary=auxiliary, eta=0.4)
    made = compiler.compile(state)
    model = made.compiled.model
    for role in made.roles:
        seen = compiler.look(made, role.layer, role.head, (0.7,))
        np.testing.assert_allclose(seen.pattern.sum(1), 1.0, atol=1e-12)
        assert np.all(seen.pattern[~seen.visible] == 0)
        if role.eta is not None:
            t = float(seen.read[0])
            assert seen.pattern[1, 1] == pytest.approx(1 / (1 + np.exp(-t / role.eta)), abs=1e-9)
            np.testing.assert_allclose(seen.results, seen.bend / (1 + np.exp(-seen.bend / role.eta)), atol=1e-9)
            np.testing.assert_allclose(seen.wrote, t * seen.pattern[1, 1] * role.writes.numpy()[0], atol=1e-9)
    # What a layer's heads write, and the stream before it, are the stream after it.
    sequence = made.compiled.embed(torch.tensor([[[0.7], [0.1], [0.2], [0.3]]], dtype=torch.float64))
    _, cache = model.run_with_cache(sequence)
    for layer in range(2):
        wrote = sum(compiler.look(made, r.layer, r.head, (0.7,)).wrote for r in made.roles if r.layer == layer)
        before, after = (cache[f"blocks.{layer}.hook_resid_{end}"][0, 1, :-1].numpy() for end in ("pre", "post"))
        np.testing.assert_allclose(before + wrote, after, atol=1e-9)


def test_what_a_head_says(compiler: Nonlinearity):
    made = compiler.compile(State(eta=0.5))  # the hat: x + 1, x, x − 1
    rows = views.head_rows(made)
    assert [row["reads"] for row in rows] == ["x", "x + 1", "x", "x − 1"]
    assert [row["writes"] for row in rows[1:]] == ["1 × into f", "−2 × into f", "1 × into f"]
    assert [row["kink"] for row in rows] == ["", "−1", "0", "1"]
    said = " ".join(captions.head(made, compiler.look(made, 0, 1, (-0.5,))))
    says(said, "hidden unit 0", "t = x + 1 = 0.5", "x=−0.5", "σ(t/η) = 0.73106", "0.139")
    says(" ".join(captions.head(made, compiler.look(made, 0, 0, (0.0,)))), "own token only")
    with refused("head 0.9", error=RequestError):
        compiler.look(made, 0, 9, (0.0,))
    assert (
        first_head(made, None) == (0, 1) and first_head(made, [0, 3]) == (0, 3) and first_head(made, [5, 5]) == (0, 1)
    )
    assert within(made.state, (7.0,)) == (2.0,) and within(State(inputs=2), (0.1, -9)) == (0.1, -2.0)


def test_the_facts_are_the_models(compiler: Nonlinearity):
    made = compiler.compile(State(preset="sawtooth", depth=2, construction="paper"))
    facts = {fact.name: fact for fact in views.facts(made)}
    assert facts["heads that write something"].value == "19" and "stated: 4" in facts["heads that write something"].why
    assert facts["d_model"].value == str(made.compiled.model.cfg.d_model) == "5"
    rows = views.layer_rows(made)
    assert [(row["heads"], row["paper_heads"], row["proof_heads"]) for row in rows] == [(8, 4, 8), (11, 4, 11)]


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("log", [False, True])
def test_the_curves_are_drawn(compiler: Nonlinearity, theme, log: bool):
    made = compiler.compile(State(preset="square", width=4))
    figure = views.error_figure(made, (0.5,), log, theme)
    traces = {trace.name: trace for trace in figure.data}
    np.testing.assert_allclose(traces["FFN"].y, made.curve.ffn[:, 0])
    np.testing.assert_allclose(traces["fitted to"].y, made.curve.x**2)
    assert list(traces["proven bound"].y) == [made.compiled.proven_error] * 2
    assert figure.layout.yaxis2.type == ("log" if log else None)
    surface = compiler.compile(State(inputs=2))
    heat = views.error_figure(surface, (0.5, 0.5), log, theme)
    found = np.asarray(heat.data[1].z)
    if not log:
        np.testing.assert_allclose(found, surface.curve.error, rtol=1e-6)
    assert heat.data[1].zmax == pytest.approx(
        np.log10(surface.compiled.proven_error) if log else surface.compiled.proven_error
    )


def test_the_gate_is_silu_and_the_mask_the_models(compiler: Nonlinearity):
    made = compiler.compile(State(eta=0.2))
    figure = views.gate_figure(made, compiler.look(made, 0, 1, (0.3,)), "light")
    assert figure is not None
    gate = next(trace for trace in figure.data if trace.name == "η·SiLU(t/η)")
    t = torch.tensor(np.asarray(gate.x))
    np.testing.assert_allclose(gate.y, 0.2 * torch.nn.functional.silu(t / 0.2), atol=1e-12)
    assert views.gate_figure(made, compiler.look(made, 0, 0, (0.3,)), "light") is None
    masks = [np.asarray(trace.z, dtype=bool) for trace in views.mask_figure(made, "dark").data]
    np.testing.assert_array_equal(masks[0], np.eye(5, dtype=bool))
    assert masks[1][1:, 0].all() and not masks[1][1, 2] and not masks[1][0, 1]


def test_a_compiled_network_is_kept(compiler: Nonlinearity):
    first = compiler.compile(State(preset="abs"))
    assert compiler.compile(State(preset="abs", x=(0.3,), head=(0, 2), scale="log", width=9)) is first
    assert isinstance(first, Compiled) and compiler.compile(State(preset="abs", bound=1.0)) is not first
