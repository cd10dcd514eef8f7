"""What an influence is read for: sums, classes of tokens, properties of windows, a call that goes on, and refusals."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import torch

from aotlens.dynamics import Influence, TrainingWindows, influence, influence_properties, recipe_run, window_properties
from aotlens.dynamics.influence_files import influential_windows
from aotlens.train import OBJECTIVES
from tests.dynamics.small_runs import recipe, text
from tests.messages import refused


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    chosen = recipe(steps=20)
    spec = text(tmp_path_factory.mktemp("corpus") / "texts")
    return recipe_run((chosen, OBJECTIVES["next_token"].prepare(chosen, spec)))


@pytest.fixture(scope="module")
def found(run, tmp_path_factory) -> Influence:
    return influence(run, ["induction 1.0", "loss"], folder=tmp_path_factory.mktemp("states"))


def made(tokens: np.ndarray, **more: np.ndarray) -> TrainingWindows:
    """Windows of given tokens `[window, pos]`, one a step."""
    n = len(tokens)
    given = {"steps": np.arange(n), "documents": np.zeros(n, dtype=int), "offsets": np.arange(n)} | more
    return TrainingWindows(lengths=np.full(n, tokens.shape[1]), tokens=tokens.ravel(), names=("a",), **given)


def influences(windows: TrainingWindows, values: np.ndarray) -> Influence:
    """Each window's influence on induction, at its second token."""
    per_token = np.zeros((1, windows.tokens.size))
    per_token[0, windows.starts + 1] = values
    return Influence(
        run="r", identity="i", weights_sha256=None, measures=("induction 1.0",), values=np.zeros(1), windows=windows,
        per_token=per_token, undone=0.0, replayed=None, eps_root=0.0, dtype="float64",
    )  # fmt: skip


def test_windows_are_those_of_training(run):
    windows = TrainingWindows.of(run, 20)
    assert len(windows) == 120 and windows.steps.tolist() == np.repeat(np.arange(20), 6).tolist()
    train = run.objective.data.train
    for window in range(120):
        np.testing.assert_array_equal(windows.own(window), run.rows(window // 6)[window % 6])
        offset = int(windows.offsets[window])
        if offset < 0:
            assert windows.document(window) == "random tokens"
            continue
        np.testing.assert_array_equal(windows.own(window)[1:6], train.tokens[offset : offset + 5])
        begins = [start - 1 <= offset for start in train.document_starts]
        assert windows.document(window) == train.document_names[sum(begins) - 1]
    with refused("window 120", "from 0 to 119"):
        windows.own(120)


def test_classes_and_distances_are_those_of_a_plain_loop(rng):
    tokens = rng.integers(0, 5, size=(40, 12))
    windows = made(tokens)
    seen = set()
    new = []
    for row, classes, back in zip(
        tokens, windows.classes.reshape(40, 12), windows.distances(2).reshape(40, 12), strict=True
    ):
        assert classes[0] == -1
        for pos in range(1, 12):
            pairs = [tuple(row[k - 1 : k + 1]) for k in range(1, pos)]
            own = (row[pos - 1], row[pos])
            assert classes[pos] == (0 if own in pairs else 1 if row[pos] in row[:pos] else 2)
            assert back[pos] == (pos - 1 - max(k for k, pair in enumerate(pairs) if pair == own) if own in pairs else 0)
    for row in tokens:
        own_new = [False] * 12
        for pos in range(1, 12):
            own_new[pos] = (row[pos - 1], row[pos]) not in seen
            seen.add((row[pos - 1], row[pos]))
        new += own_new
    assert windows.new_to_training().tolist() == new


def test_spans_mark_what_comes_again():
    windows = made(np.array([[0, 5, 6, 7, 8, 5, 6, 7, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8]]))
    assert windows.spans(0) == [(False, [5, 6, 7, 8]), (True, [5, 6, 7]), (False, [9])]
    assert windows.spans(1) == [(False, [1, 2, 3, 4, 5, 6, 7, 8])]


def test_sums_are_of_tokens_and_leave_out_the_first_step(found):
    windows, later = found.windows, found.windows.steps > 0
    per_token = found.per_token.reshape(2, 120, 24)
    np.testing.assert_allclose(found.per_window, per_token.sum(2))
    np.testing.assert_allclose(found.by_step, np.abs(per_token.sum(2)).reshape(2, 20, 6).sum(2))
    np.testing.assert_allclose(found.first_step_share, found.by_step[:, 0] / found.by_step.sum(1))
    assert found.batch_residual < 1e-5
    frame = found.by_document()
    assert frame["windows"].sum() == later.sum()
    assert frame["loss"].sum() == pytest.approx(found.of("loss")[later].sum(), abs=1e-9)
    for name, own in zip(frame["document"], frame["loss"], strict=True):
        chosen = [window for window in np.flatnonzero(later) if windows.document(int(window)) == name]
        assert own == pytest.approx(found.of("loss")[chosen].sum())
    classes = found.by_class()
    assert classes["tokens"].sum() == later.sum() * 23
    assert classes["induction 1.0"].sum() == pytest.approx(found.of()[later].sum(), abs=1e-9)
    assert found.correlations()[0, 1] == pytest.approx(np.corrcoef(*[np.argsort(np.argsort(each[later])) for each in found.per_window])[0, 1])  # fmt: skip  # noqa: E501
    assert len(found.to_frame()) == 120 and list(found.to_frame().columns[-2:]) == ["induction 1.0", "loss"]


def test_a_few_windows_at_a_time_give_what_all_at_once_do(run, found, tmp_path, monkeypatch):
    module = sys.modules["aotlens.dynamics.influence"]  # whose name in the package is the function's
    monkeypatch.setattr(module, "_TOKENS_AT_ONCE", 100)  # batches of 6 windows: 4 and 2
    parts = influence(run, ["induction 1.0", "loss"], folder=tmp_path)
    np.testing.assert_allclose(parts.per_token, found.per_token, atol=2e-4 * np.abs(found.per_token).max())
    np.testing.assert_array_equal(parts.values, found.values)


def test_helpful_windows_raise_scores_and_lower_losses(found):
    for measure, sign in (("induction 1.0", 1), ("loss", -1)):
        own = sign * found.of(measure)
        helpful, harmful = found.helpful(5, measure), found.harmful(5, measure)
        assert (found.windows.steps[[*helpful, *harmful]] > 0).all()
        later = np.sort(own[found.windows.steps > 0])
        np.testing.assert_allclose(own[helpful], later[::-1][:5])
        np.testing.assert_allclose(own[harmful], later[:5])
    helpful, harmful = found.helpful(10_000), found.harmful(10_000)
    assert (found.of()[helpful] > 0).all() and (found.of()[harmful] < 0).all()
    assert sorted([*helpful, *harmful]) == np.flatnonzero((found.of() != 0) & (found.windows.steps > 0)).tolist()
    with refused("measure 'x'", "induction 1.0, loss"):
        found.of("x")


def test_properties_predict_planted_help(rng):
    """Help that is made of repeats alone is found so, in every part; without any, intervals hold 0 as often as said."""
    tokens = np.where(rng.random((2000, 1)) < rng.random((2000, 1)), rng.integers(0, 3, (2000, 16)), rng.integers(0, 60, (2000, 16)))  # fmt: skip  # noqa: E501
    windows = made(tokens, steps=np.arange(2000) // 20, offsets=np.arange(2000) * 500)
    repeats = window_properties(windows)[0].reshape(100, 20)
    own = (repeats - repeats.mean(1, keepdims=True)).ravel() + 0.05 * rng.normal(size=2000)
    fit = influence_properties(influences(windows, own))
    assert fit.properties[0] == "repeats" and (fit.intervals[:, 0, 0] > 0.5).all()
    assert (np.abs(fit.coefficients[:, 1:]) < 0.1).all() and fit.r_squared[0] > 0.8
    assert fit.clusters == "pieces of 4,096 tokens"
    covered = [influence_properties(influences(windows, rng.normal(size=2000))) for _ in range(4)]
    inside = np.mean([(each.intervals[0, :, 0] <= 0) & (each.intervals[0, :, 1] >= 0) for each in covered])
    assert inside > 0.65  # 12 intervals of 95%
    few = influence_properties(influences(dataclasses.replace(windows, offsets=np.arange(2000) * 38), own))
    assert few.n_clusters == 19 and np.isnan(few.intervals).all()
    np.testing.assert_allclose(few.coefficients, fit.coefficients)


def test_quarters_are_of_the_steps_after_the_first(found):
    assert made(np.zeros((7, 2), dtype=int)).quarters.tolist() == [-1, 0, 0, 1, 2, 2, 3]
    assert made(np.zeros((2, 2), dtype=int)).quarters.tolist() == [-1, 0]
    early = (found.windows.steps > 0) & (found.windows.steps <= 5)  # 5 of 19 steps
    later = found.windows.steps > 0
    expected = np.abs(found.per_window[:, early]).sum(1) / np.abs(found.per_window[:, later]).sum(1)
    np.testing.assert_allclose(found.first_quarter_share, expected)


def test_texts_of_spans_hold_whole_characters(run):
    tokenizer = run.objective.data.tokenizer
    ids = tokenizer.encode("qé yé qè")
    found = influences(made(np.array([[0] * len(ids), [0, *ids][: len(ids)], [0, *ids][: len(ids)]])), np.arange(3))
    ends = influential_windows(found, tokenizer, 5)
    assert ends.windows.tolist() == [2, 1] and ends.helps == (True, True)
    assert "\N{REPLACEMENT CHARACTER}" not in ends.texts[0] and "<0x" not in "".join(ends.pieces[0][:-1])
    assert "".join(ends.pieces[0]) == tokenizer.decode(ids[:-1])
    none = influential_windows(influences(found.windows, np.array([1.0, 0.0, 0.0])), tokenizer)
    assert not len(none.to_frame()) and "no window after step 0" in none.headline
    harmful = influential_windows(influences(found.windows, np.array([1.0, -1.0, 0.0])), tokenizer)
    assert harmful.headline == "no window after step 0 helps induction 1.0"


def test_a_call_that_was_stopped_goes_on(run, found, tmp_path):
    class Stopped(Exception):
        pass

    calls: list[int] = []

    def stop_at(moment):
        def progress(done: int, total: int) -> None:
            assert total == 40
            calls.append(done)
            if done == moment:
                raise Stopped

        return progress

    for moment in (9, 28):
        with pytest.raises(Stopped):
            influence(run, ["induction 1.0", "loss"], folder=tmp_path, progress=stop_at(moment))
    calls.clear()
    again = influence(run, ["induction 1.0", "loss"], folder=tmp_path, progress=stop_at(-1))
    assert min(calls) > 20  # the replay is there
    np.testing.assert_allclose(again.per_token, found.per_token, rtol=1e-3, atol=1e-6 * np.abs(found.per_token).max())
    assert again.undone == pytest.approx(found.undone, rel=0.5)
    assert not list(tmp_path.iterdir())


def test_states_of_other_measures_are_not_taken_for_these(run, tmp_path):
    def stop(done: int, total: int) -> None:
        if done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        influence(run, ["loss"], folder=tmp_path, progress=stop)
    mine = influence(run, {"loss": lambda model: model.W_E.square().sum()}, folder=tmp_path)
    expected = influence(run, {"loss": lambda model: model.W_E.square().sum()}, folder=tmp_path / "other")
    np.testing.assert_allclose(mine.per_token, expected.per_token, rtol=1e-3, atol=1e-9)


def test_what_is_not_followed_is_refused_by_name(run, tmp_path):
    data = run.objective.data
    with refused("optimiser = 'lion'"):
        recipe_run((recipe(optimiser="lion"), data))
    with refused("bfloat16 autocast"):
        recipe_run((recipe(cpu_autocast=True), data))
    with refused("objective = 'masked'"):
        recipe_run((recipe(objective="masked", model={"causal": False}), data))
    for measures, said in (
        (["x"], "measure 'x'"),
        (["induction"], "L.H"),
        (["induction 5.0"], "5"),
        (["k_composition 1.0 0.0"], "an earlier layer's head"),
        ([], "at least one"),
        ({"f": lambda model: 3.0}, "one differentiable number"),
        ({"f": lambda model: model.W_E}, "one differentiable number"),
        ({"f": lambda model: (model.W_E * torch.inf).sum()}, "not finite"),
    ):
        with refused(said):
            influence(run, measures, folder=tmp_path)
    for more, said in (({"steps": 0}, "steps=0"), ({"steps": 21}, "steps=21"), ({"eps_root": -1.0}, "eps_root")):
        with refused(said):
            influence(run, ["loss"], folder=tmp_path, **more)
    rotary = recipe_run((recipe(steps=20, model={"positions": "rotary"}), data))
    with refused("k_composition 0.0 1.0", "rotated"):
        influence(rotary, ["k_composition 0.0 1.0"], folder=tmp_path)
    with refused("dtype"):
        influence(run, ["loss"], folder=tmp_path, dtype=torch.bfloat16)
    with refused("several windows in a step"):
        influence(recipe_run((recipe(steps=20, rows=1), data)), ["loss"], folder=tmp_path)


def test_runs_agree_where_the_same_documents_help():
    rng = np.random.default_rng(0)
    names = tuple("abcdefghij")
    worth = rng.normal(size=10)

    def of_run(order: np.ndarray, sign: float, measure: str) -> Influence:
        """Windows of all documents in some order, step 0 with a value that must not count."""
        windows = dataclasses.replace(made(np.arange(120).reshape(40, 3), documents=order), names=names)
        values = sign * worth[order]
        values[0] = 1e6
        return dataclasses.replace(influences(windows, values), measures=(measure,))

    order = rng.permuted(np.repeat(np.arange(10), 4))
    left = of_run(order, 1, "induction 1.0")
    other = of_run(order[::-1].copy(), -1, "loss")
    correlation, (low, high), n = left.agreement(other)
    assert (correlation, n) == (pytest.approx(1.0), 10) and low > 0.9 and high == pytest.approx(1.0)
    assert left.agreement(of_run(order, 1, "loss"))[0] == pytest.approx(-1.0)
    few = of_run(order % 7, 1, "loss")
    with refused("8 documents or more", "got 7"):
        left.agreement(few)
    with refused("measure 'x'"):
        left.agreement(other, other_measure="x")
