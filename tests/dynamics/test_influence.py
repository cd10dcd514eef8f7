"""Influence against finite differences through whole runs, two steps by hand, ridge regression, and planted text."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import aotlens
from aotlens.circuits import composition, copying_scores
from aotlens.dynamics import influence
from aotlens.dynamics.adamw import AdamW, State
from aotlens.dynamics.influence import _Sweep
from aotlens.dynamics.influence_measures import as_measures, is_loss
from aotlens.dynamics.recipe_run import RecipeRun, differentiable_twice, recipe_run
from aotlens.evaluate import repeat_losses, validation_loss
from aotlens.heads import motif_scores
from aotlens.train import OBJECTIVES
from tests.cases import mostly_long
from tests.dynamics.small_runs import WORDS, recipe, text

MEASURES = (
    "loss",
    "repeated_loss",
    "induction 1.0",
    "previous_token 0.1",
    "copying 1.1",
    "ov_norm 0.1",
    "qk_norm 1.0",
    "k_composition 0.0 1.0",
    "q_composition 0.1 1.1",
    "v_composition 0.0 1.1",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return text(tmp_path_factory.mktemp("corpus") / "texts")


@pytest.fixture(scope="module")
def run_of(corpus: str) -> Callable[..., RecipeRun]:
    def make(**more: Any) -> RecipeRun:
        chosen = recipe(**more)
        return recipe_run((chosen, OBJECTIVES["next_token"].prepare(chosen, corpus)))

    return make


KINDS: dict[str, dict[str, Any]] = {
    "mhsa": {},
    "clipped, smoothed": {"clip": 0.3, "label_smoothing": 0.1},
    "two stages": {
        "stages": [
            {"tokens": 6 * rows * 24, "batch_size": rows, "sequence_length": 24, "learning_rate": 3e-3 / rows}
            for rows in (6, 3)
        ]
    },
    "mssa": {"model": {"attention": "mssa"}},
    "rotary": {"model": {"positions": "rotary", "norm": "rms", "d_mlp": 12}},
    "no norm, tied": {"model": {"norm": None, "tied_embeddings": True}},
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_finite_differences_through_whole_runs(run_of, tmp_path, kind):
    """Of a window of every step but the first, relative to the largest influence of its step: at most 1e-4."""
    run = run_of(**KINDS[kind])
    names = [name for name in MEASURES if "rotary" not in kind or "composition" not in name]
    found = influence(run, names, dtype=torch.float64, eps_root=0.0, folder=tmp_path)
    rng, eps = np.random.default_rng(0), 1e-5
    for step in range(1, run.n_steps):
        window = int(rng.integers(run.windows(step).start, run.windows(step).stop))
        ends = []
        for sign in (1, -1):
            weights = np.ones(len(found.windows))
            weights[window] += sign * eps
            model = run.train(weights, dtype=torch.float64)
            ends.append([float(measure(model)) for measure in as_measures(names, run).values()])
        difference = (np.array(ends[0]) - ends[1]) / (2 * eps)
        own = found.windows.steps == step
        error = np.abs(difference - found.per_window[:, window]) / np.abs(found.per_window[:, own]).max(1)
        assert error.max() <= 1e-4, (step, dict(zip(names, error, strict=True)))
    assert found.batch_residual <= 1e-10 and found.undone <= 1e-9
    assert (found.per_token[:, found.windows.starts] == 0).all()
    trained = run.train(dtype=torch.float64)
    values = [float(measure(trained)) for measure in as_measures(names, run).values()]
    np.testing.assert_allclose(found.values, values, rtol=1e-9)


@pytest.mark.parametrize("eps_root", [0.0, 1e-6])
def test_two_steps_by_hand(run_of, tmp_path, eps_root):
    """Both steps written out in one graph of PyTorch's formulas, without any of our code backwards."""
    run = run_of(steps=2, clip=0.5)
    found = influence(run, ["loss", "ov_norm 0.0"], dtype=torch.float64, eps_root=eps_root, folder=tmp_path)
    model = run.model(torch.float64)
    weights = {name: each.detach().requires_grad_() for name, each in model.named_parameters()}
    by_window = torch.ones(12, dtype=torch.float64, requires_grad=True)
    state = {name: (each, torch.zeros_like(each), torch.zeros_like(each)) for name, each in weights.items()}
    for step in range(2):
        own = by_window[6 * step : 6 * step + 6]
        with differentiable_twice():
            losses = run.losses(model, run.rows(step), {name: each[0] for name, each in state.items()})
        loss = (own[:, None] * losses).sum() / (own.sum() * losses.shape[1])
        gradients = torch.autograd.grad(loss, [each[0] for each in state.values()], create_graph=True)
        norm = torch.cat([each.flatten() for each in gradients]).norm()
        clip = torch.clamp(0.5 / (norm + 1e-6), max=1.0)
        later = {}
        for (name, (weight, mean, square)), gradient in zip(state.items(), gradients, strict=True):
            mean = 0.9 * mean + 0.1 * clip * gradient
            square = 0.95 * square + 0.05 * (clip * gradient) ** 2
            decay = 0.1 if weight.ndim >= 2 and name.rsplit(".", 1)[-1] not in ("W_pos",) else 0.0
            seen = square > 0
            root = torch.where(seen, square / (1 - 0.95 ** (step + 1)) + eps_root, 1.0).sqrt() + 1e-8
            update = torch.where(seen, mean / (1 - 0.9 ** (step + 1)) / root, 0.0)
            later[name] = (weight * (1 - run.rate(step) * decay) - run.rate(step) * update, mean, square)
        state = later
    final = {name: each[0] for name, each in state.items()}
    for name, trained in run.train(dtype=torch.float64, eps_root=eps_root).named_parameters():
        torch.testing.assert_close(trained, final[name].detach(), rtol=1e-9, atol=1e-12)
    heads = slice(0, 1)
    held_out = aotlens.data.validation_windows(run.objective.data.validation, 24, max_windows=16)
    with differentiable_twice():
        loss_at_the_end = run.losses(model, held_out, final).mean()
    measures = [
        loss_at_the_end,
        (final["blocks.0.attn.W_V"][heads] @ final["blocks.0.attn.W_O"][heads]).norm(),
    ]
    by_hand = torch.stack([torch.autograd.grad(each, by_window, retain_graph=True)[0] for each in measures]).numpy()
    np.testing.assert_allclose(found.values, [float(each.detach()) for each in measures], rtol=1e-10)
    np.testing.assert_allclose(found.per_window, by_hand, rtol=1e-6, atol=1e-9 * np.abs(by_hand).max())


class _Line(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(n, dtype=torch.float64))

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64


class _Ridge:
    """Least squares on the same rows at every step, among them one √λ e_j with label 0 for each coefficient.

    Of its minimum θ* = (Σ w x xᵀ)⁻¹ Σ w x y, dθ*/dw_i = H⁻¹ x_i (y_i − x_iᵀ θ*).
    """

    def __init__(self, n_steps: int, penalty: float) -> None:
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(8, 3)), rng.normal(size=8)
        self.x = torch.from_numpy(np.vstack([x, np.sqrt(penalty) * np.eye(3)]))
        self.y = torch.from_numpy(np.concatenate([y, np.zeros(3)]))
        self.n_steps = n_steps
        stages = [SimpleNamespace(learning_rate=0.03)]
        self.recipe = SimpleNamespace(weight_decay=0.0, optimiser="adamw", betas=(0.9, 0.99), clip=1e9, stages=stages)
        self.identity = {"ridge": penalty, "steps": n_steps}

    def model(self, dtype: torch.dtype = torch.float64) -> _Line:
        return _Line(3)

    def rows(self, step: int) -> torch.Tensor:
        return torch.zeros(11, 2, dtype=torch.long)

    def rate(self, step: int) -> float:
        return 0.03

    def losses(self, model: Any, rows: torch.Tensor) -> torch.Tensor:
        return (self.x @ model.w - self.y).square()[:, None]

    def loss(self, model: Any, rows: torch.Tensor) -> torch.Tensor:
        return self.losses(model, rows).mean()


@pytest.mark.long
@pytest.mark.unchecked  # a regression in a model's place
def test_a_ridge_regression_has_its_closed_form(tmp_path):
    """A row that comes at every step has the sum of its influences, and their limit is the implicit derivative."""
    n_steps, aim = 1500, np.array([0.3, -1.0, 0.7])
    run: Any = _Ridge(n_steps, 0.5)
    sweep = _Sweep(run, n_steps, torch.float64, 0.1, tmp_path, None)
    end = sweep._replay()
    x, y = run.x.numpy(), run.y.numpy()
    hessian = x.T @ x
    theta = np.linalg.solve(hessian, x.T @ y)
    np.testing.assert_allclose(end.weights.numpy(), theta, atol=1e-8)
    adjoint = State(torch.from_numpy(aim)[None], *(torch.zeros(1, 3, dtype=torch.float64) for _ in range(2)))
    total, after = np.zeros(11), end
    for start in reversed(range(0, n_steps, sweep.every)):
        adjoint, _, own = sweep._back(range(start, min(start + sweep.every, n_steps)), adjoint, after)
        after = sweep._state(start)
        total += own.reshape(-1, 11, 2).sum((0, 2))
    np.testing.assert_allclose(total, (y - x @ theta) * (x @ np.linalg.solve(hessian, aim)), rtol=1e-5, atol=1e-8)


def test_a_step_is_pytorchs_and_is_undone(rng):
    n = 40
    parameter = nn.Parameter(torch.from_numpy(rng.normal(size=n)))
    optimiser = torch.optim.AdamW([parameter], lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)
    own = AdamW(betas=(0.9, 0.95), clip=1.5, decay=torch.full((n,), 0.1, dtype=torch.float64))
    state = State(parameter.detach().clone(), *(torch.zeros(n, dtype=torch.float64) for _ in range(2)))
    states, gradients = [state], []
    for t in range(1, 31):
        gradient = torch.from_numpy(rng.normal(size=n)) * (torch.arange(n) > 0)  # the first has none
        parameter.grad = gradient.clone()
        nn.utils.clip_grad_norm_([parameter], 1.5)
        optimiser.step()
        state = own.step(state, gradient, t, 0.01)
        torch.testing.assert_close(state.weights, parameter.detach(), rtol=1e-12, atol=1e-14)
        states.append(state)
        gradients.append(gradient)
    for t in reversed(range(1, 31)):
        before = State(own.weights_before(state, t, 0.01), *own.moments_before(state, gradients[t - 1]))
        for mine, kept in zip(before, states[t - 1], strict=True):
            torch.testing.assert_close(mine, kept, rtol=1e-9, atol=1e-9)
        state = before
    assert own.undoable == 87 and AdamW(betas=(0.0, 0.9), clip=1.0, decay=torch.zeros(1)).undoable == 0


@pytest.mark.parametrize("seed", mostly_long(range(20), range(3)))
def test_the_document_that_alone_teaches_a_pair_is_found_first(tmp_path, seed):
    """Of ten documents one has "zebra quilt": its influence on the loss of that pair is the most helpful."""
    rng = np.random.default_rng(seed)
    planted = " ".join(itertools.chain.from_iterable(("zebra", "quilt", *rng.choice(WORDS, 2)) for _ in range(100)))
    spec = text(tmp_path / "texts", 10, seed, **{f"planted{seed}": planted})
    chosen = recipe(steps=40, seed=seed, stage={"repeat_fraction": 0.0, "learning_rate": 1e-2})
    run = recipe_run((chosen, OBJECTIVES["next_token"].prepare(chosen, spec)))
    prompt = torch.tensor([run.objective.data.tokenizer.encode("far zebra quilt")])
    found = influence(run, {"loss of the pair": lambda model: run.losses(model, prompt)[0, 3:].mean()}, folder=tmp_path)
    frame = found.by_document().set_index("document")
    assert f"planted{seed}" in frame.index
    assert frame["loss of the pair"].idxmin() == f"planted{seed}"


def test_measures_are_those_of_the_analyses(run_of):
    run = run_of(label_smoothing=0.2)  # of training alone
    model = run.train()
    found = {name: float(measure(model)) for name, measure in as_measures(MEASURES, run).items()}
    scores = motif_scores(model, n_sequences=16, half_length=11, seed=0)
    repeats = repeat_losses(model, half_length=11, n_sequences=16, seed=0)
    held_out = aotlens.data.validation_windows(run.objective.data.validation, 24, max_windows=16)
    expected = {
        "loss": validation_loss(model, held_out),
        "repeated_loss": repeats.second_half,
        "induction 1.0": float(scores["induction"][1, 0]),
        "previous_token 0.1": float(scores["previous_token"][0, 1]),
        "copying 1.1": float(copying_scores(model, ["1.1"]).scores[0]),
        "ov_norm 0.1": float((model.W_V[0, 1] @ model.W_O[0, 1]).norm()),
        "qk_norm 1.0": float((model.W_Q[1, 0] @ model.W_K[1, 0].T).norm()),
        "k_composition 0.0 1.0": float(composition(model, "k").values[0, 0, 1, 0]),
        "q_composition 0.1 1.1": float(composition(model, "q").values[0, 1, 1, 1]),
        "v_composition 0.0 1.1": float(composition(model, "v").values[0, 0, 1, 1]),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert [is_loss(name) for name in (*MEASURES[:3], "glossary score", "Loss")] == [True, True, False, False, True]
