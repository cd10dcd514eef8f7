"""Analyses of every snapshot are those of each model alone, kept, and run where joblib says."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import Run
from aotlens.dynamics import Measures, OverTraining, film, measure_model, over_training
from aotlens.models import AttentionOnlyTransformer
from tests.messages import refused

from .conftest import STEPS

CALLS: list[int] = []


def counted(model: AttentionOnlyTransformer, *, factor: float = 1.0) -> dict[str, Any]:
    """The norm of the embedding, and of every head's values."""
    CALLS.append(model.card.tokens_seen)
    return {"norm": factor * float(model.W_E.norm()), "values": model.W_V.norm(dim=(-1, -2)).numpy()}


def test_each_step_is_its_model_and_is_computed_once(run: Run, tmp_path: Path) -> None:
    CALLS.clear()
    seen: list[tuple[int, int]] = []
    result = over_training(run, counted, cache=tmp_path, progress=lambda *at: seen.append(at), factor=2.0)
    assert result.steps.tolist() == list(STEPS) and result.tokens is not None
    assert result.tokens.tolist() == [100 * step for step in STEPS] == CALLS and seen[-1] == (4, 4)
    for place, step in enumerate(STEPS):
        assert result["norm"][place] == 2 * float(run[step].W_E.norm())
        np.testing.assert_array_equal(result["values"][place], run[step].W_V.norm(dim=(-1, -2)).numpy())
    assert list(result.curves()) == ["norm"] and result.curves("values")["values 1.0"][2] == result["values"][2, 1, 0]
    assert result.to_frame().columns.tolist() == ["step", "tokens", "norm"]
    again = over_training(run, counted, cache=tmp_path, factor=2.0)
    assert len(CALLS) == 4, "the second call read what was kept"
    np.testing.assert_array_equal(again["values"], result["values"])
    over_training(run, counted, cache=tmp_path, factor=3.0, steps=[4])
    assert len(CALLS) == 5, "other settings are another result"
    over_training(run, counted, cache=None, steps=[4, 10])
    over_training(run, lambda model: 1.0, cache=tmp_path, steps=[0])
    assert len(CALLS) == 7 and len([*tmp_path.iterdir()]) == 5
    with refused("'norms'", "'norm', 'values'"):
        result["norms"]
    assert len(aotlens.plot(result).data) == 1 and len(aotlens.plot(result, of="values").data) == 4


def test_a_killed_one_goes_on_and_an_error_names_its_step(run: Run, tmp_path: Path) -> None:
    CALLS.clear()

    def stops(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        over_training(run, counted, cache=tmp_path, progress=stops)
    before = len(CALLS)
    over_training(run, counted, cache=tmp_path)
    assert before >= 2 and len(CALLS) == 4
    with refused("step 0", "nothing here"):
        over_training(run, fails)
    with refused("step 0", "expected numbers"):
        over_training(run, lambda model: "text", cache=None)
    with refused("at least one step"):
        over_training(run, counted, steps=[])


def fails(model: AttentionOnlyTransformer) -> float:
    raise ValueError("nothing here")


class Holder:
    """What a method or a called object holds is not in its name."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        return {"norm": self.factor * float(model.W_E.norm())}

    def method(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        return self(model)


def test_of_a_partial_a_method_or_an_object_nothing_is_kept(run: Run, tmp_path: Path) -> None:
    def norms(analysis: Any) -> np.ndarray:
        return over_training(run, analysis, cache=tmp_path, steps=[4])["norm"]

    for made in (lambda factor: partial(counted, factor=factor), Holder, lambda factor: Holder(factor).method):
        np.testing.assert_allclose(norms(made(2.0)), 2 * norms(made(1.0)))
    assert not [*tmp_path.iterdir()]


def zero_dimensions(model: AttentionOnlyTransformer) -> dict[str, Any]:
    return {"norm": np.array(float(model.W_E.norm()))}


def test_an_array_of_no_dimensions_is_the_same_number_when_it_is_read_again(run: Run, tmp_path: Path) -> None:
    one, two = (over_training(run, zero_dimensions, cache=tmp_path) for _ in range(2))
    np.testing.assert_array_equal(one["norm"], two["norm"])
    assert one["norm"].shape == (len(STEPS),) and len([*tmp_path.iterdir()]) == len(STEPS)


def test_it_runs_where_joblib_says(run: Run) -> None:
    with joblib.parallel_config("threading", n_jobs=2):
        result = over_training(run, counted, cache=None)
    np.testing.assert_array_equal(result["norm"], [float(model.W_E.norm()) for model in run])


def test_the_films_measures(run: Run, tokens: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    result = film(run, tokens, n_random=20, steps=[1, 10])
    first, last = result.results
    model = run[1]
    assert isinstance(first, Measures)
    losses = model.loss_per_token(tokens).double().numpy()
    np.testing.assert_allclose(first.loss_by_position, losses.mean(0), rtol=1e-6)
    assert first.loss == pytest.approx(losses.mean(), rel=1e-6)
    assert first.in_context == pytest.approx(losses[:, :4].mean() - losses[:, -4:].mean(), rel=1e-5)
    assert first.repeated_gain == aotlens.evaluate.repeat_losses(model, n_sequences=16).gain
    # The products themselves, in full, beside those that never form them.
    gain, end = model.blocks[1].ln1.w.double(), run[10]
    centring = torch.eye(16).double() - 1 / 16

    def circuit(of: AttentionOnlyTransformer, kind: str) -> torch.Tensor:
        folded = centring @ (of.blocks[1].ln1.w.double()[:, None] * torch.eye(16).double())
        if kind == "qk":
            return folded @ of.W_Q[1, 0].double() @ of.W_K[1, 0].double().T @ folded.T / 2
        return folded @ of.W_V[1, 0].double() @ of.W_O[1, 0].double()

    assert gain.shape == (16,)
    for kind in ("qk", "ov"):
        now, final = circuit(model, kind), circuit(end, kind)
        assert getattr(first, f"{kind}_norm")[1, 0] == pytest.approx(float(now.norm()), rel=1e-9)
        assert getattr(first, f"{kind}_distance")[1, 0] == pytest.approx(
            float((now - final).norm() / final.norm()), rel=1e-6
        )
        assert np.abs(getattr(last, f"{kind}_distance")).max() < 1e-7
        squares = torch.linalg.svdvals(now) ** 2
        assert getattr(first, f"{kind}_rank")[1, 0] == pytest.approx(
            float(squares.sum() ** 2 / (squares**2).sum()), rel=1e-9
        )
    best = aotlens.circuits.composition(model, "k").values[0, :, 1, 1].max()
    assert first.composition[1, 1, 1] == best and np.isnan(first.composition[:, 0]).all()
    assert first.by_order.shape == (2,) and np.abs(first.copying).max() <= 1
    frame = result.to_frame()
    assert {"step", "tokens", "measure", "head", "value"} == {*frame.columns}
    assert (
        frame[(frame.measure == "qk_norm") & (frame["head"] == "1.0")].value.tolist()
        == result["qk_norm"][:, 1, 0].tolist()
    )
    path = tmp_path / "film.safetensors"
    result.save(path)
    again = aotlens.results.load(path, OverTraining)
    np.testing.assert_array_equal(again["motif_scores"], result["motif_scores"])
    assert "loss" in repr(first) and "2 steps from 1 to 10" in repr(result)
    with refused("at least 5 positions", "[6, 3]"):
        measure_model(model, tokens[:, :3])
    with refused("predict their next token", "vectors"):
        measure_model(aotlens.AttentionOnlyTransformer(aotlens.ModelConfig(
            n_layers=1, d_model=8, n_heads=1, d_head=4, n_ctx=8, read_in="vectors", read_out="vectors"
        )), tokens)  # fmt: skip


def test_the_figure_of_a_film_marks_its_change_points(run: Run, tokens: torch.Tensor) -> None:
    before = measure_model(run[STEPS[0]], tokens, n_random=0)
    steps = np.geomspace(1, 10_000, 40).astype(np.int64)
    noise = np.random.default_rng(0).normal(scale=0.01, size=(40, 2))

    def at(place: int) -> Measures:
        falls, copies = place >= 20, place >= 30
        copying = np.full_like(before.copying, copies + noise[place, 0])
        return replace(before, loss=5.0 - 3 * falls + noise[place, 1], repeated_gain=0.1, copying=copying)

    result = OverTraining(run="r", analysis="film", steps=steps, tokens=None, results=tuple(map(at, range(40))))
    assert {name: change.step for name, change in result.events.items() if change.step is not None} == {
        "loss": steps[20],
        "copying": steps[30],
    }

    def marked(**options: Any) -> dict[str, float]:
        layout = aotlens.plot(result, **options).layout
        assert len(layout.shapes) == len(layout.annotations)
        return {each.text: line.x0 for each, line in zip(layout.annotations, layout.shapes, strict=True)}

    assert marked() == {"loss": steps[20], "copying": steps[30]}
    assert marked(of="copying") == {"copying": steps[30]} and marked(of="motif_scores/induction") == {}
    on_log, on_linear = (aotlens.plot(result, log=log).layout.annotations[0].x for log in (True, False))
    assert on_log == pytest.approx(np.log10(steps[20])) and on_linear == steps[20]
