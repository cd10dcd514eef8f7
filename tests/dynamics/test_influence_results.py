"""What an influence is read for: sums, classes of tokens, properties of windows, a call that goes on, and refusals."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import scipy.stats
import torch

from aotlens.dynamics import Influence, TrainingWindows, influence, influence_properties, recipe_run, window_properties
from aotlens.dynamics.influence_files import influential_windows
from aotlens.dynamics.influence_measures import as_measures
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
    with refused("measure='x'", "'induction 1.0', 'loss'"):
        found.of("x")


@pytest.mark.long
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


def test_properties_that_are_one_variable_have_coefficients_alone_only(rng):
    """A word comes once more in each window, at a distance that falls with the number of its repeats: help that is made
    of repeats is seen in both alone, and not divided between them."""
    n_repeats = rng.integers(2, 12, 2000)
    tokens = np.stack([np.concatenate([np.tile(rng.permutation(60)[: 24 - n], 2)[:24]]) for n in n_repeats])
    windows = made(tokens, steps=np.arange(2000) // 20, offsets=np.arange(2000) * 500)
    help_ = n_repeats + 0.5 * rng.normal(size=2000)
    centred = (help_.reshape(100, 20) - help_.reshape(100, 20).mean(1, keepdims=True)).ravel()
    fit = influence_properties(influences(windows, centred))
    assert fit.correlations[0, 1] < -0.95 and np.isnan(fit.coefficients[:, :2]).all()
    scaled = centred.reshape(100, 20) / np.sqrt(np.square(centred).reshape(100, 20).mean(1, keepdims=True))
    own = window_properties(windows).reshape(3, 100, 20)
    own = own - own.mean(2, keepdims=True)
    expected = [(each[1:] * scaled[1:]).mean() / each[1:].std() for each in own[:2]]
    np.testing.assert_allclose(fit.alone[0, :2], expected, rtol=1e-6)
    assert fit.alone_intervals[0, 0, 0] > 0.8 and fit.alone_intervals[0, 1, 1] < -0.8 and fit.r_squared[0] > 0.8


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


def _sum_of_squares(model) -> torch.Tensor:
    return model.W_E.square().sum()


@pytest.mark.parametrize(
    ("begun", "asked"),
    [
        (lambda run: ["loss"], lambda run: {"loss": _sum_of_squares}),
        (lambda run: {"mine": as_measures(["loss"], run)["loss"]},
         lambda run: {"mine": as_measures(["ov_norm 0.1"], run)["ov_norm 0.1"]}),
        (lambda run: {"mine": _sum_of_squares, **as_measures(["loss"], run)}, lambda run: ["loss"]),
    ],
    ids=["a function", "another name", "fewer"],
)  # fmt: skip
@pytest.mark.long
def test_states_of_other_measures_are_not_taken_for_these(run, tmp_path, begun, asked):
    def stop(done: int, total: int) -> None:
        if done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        influence(run, begun(run), folder=tmp_path, progress=stop)
    resumed = influence(run, asked(run), folder=tmp_path)
    expected = influence(run, asked(run), folder=tmp_path / "other")
    assert resumed.per_token.shape == expected.per_token.shape
    close = {"rtol": 1e-3, "atol": 1e-4 * np.abs(expected.per_token).max()}
    np.testing.assert_allclose(resumed.per_token, expected.per_token, **close)


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
        ({"f": lambda model: model.W_E.sum().detach()}, "detached"),
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


@pytest.mark.long
def test_runs_agree_where_the_same_documents_help(rng):
    """Of windows that are worth what their document is, in steps of which each has a tenth of the influence before."""
    worth, steps = rng.normal(size=10), np.arange(60) // 10

    def of_run(documents: np.ndarray, measure: str, sign: float = 1, first: int = 0) -> Influence:
        tokens = np.arange(180).reshape(60, 3) + first
        windows = made(tokens, steps=steps, documents=documents)
        windows = dataclasses.replace(windows, names=tuple("abcdefghij"))
        values = sign * worth[documents] * 10.0**-steps
        values[:10] = 1e6  # step 0 must not count
        return dataclasses.replace(influences(windows, values), measures=(measure,))

    def means(documents: np.ndarray) -> list[float]:
        by_step = worth[documents].reshape(6, 10)
        scaled = (by_step / np.sqrt(np.square(by_step).mean(1, keepdims=True))).ravel()
        return [scaled[10:][documents[10:] == place].mean() for place in range(10)]

    drawn = [rng.permuted(np.repeat(np.arange(10), 6)) for _ in range(2)]
    left, right = of_run(drawn[0], "induction 1.0"), of_run(drawn[1], "loss", -1, first=1)
    correlation, (low, high), n = left.agreement(right)
    assert correlation == pytest.approx(scipy.stats.spearmanr(*map(means, drawn)).statistic)
    assert n == 10 and 0.7 < low <= correlation + 1e-9 <= high + 2e-9
    assert left.agreement(of_run(drawn[1], "loss", first=1))[0] == pytest.approx(-correlation)
    of_two = []  # the other's first measure has the opposite sign of the one that is asked for
    for each, sign in ((left, 1), (of_run(drawn[1], "loss", -1, first=1), -1)):
        both = np.concatenate([sign * each.per_token, each.per_token])
        measures = {"measures": ("first", "induction 1.0"), "values": np.repeat(each.values, 2)}
        of_two.append(dataclasses.replace(each, **measures, per_token=both))
    assert of_two[0].agreement(of_two[1], "induction 1.0")[0] == pytest.approx(-correlation)
    assert of_two[0].agreement(of_two[1], "induction 1.0", "first")[0] == pytest.approx(correlation)
    assert left.document_reliability() > 0.7
    noise = dataclasses.replace(left, per_token=rng.permuted(left.per_token, axis=1))
    assert abs(noise.document_reliability(n_splits=300)) < 0.5
    with refused("8 documents or more with two windows", "got 7"):
        of_run(drawn[0] % 7, "loss").document_reliability()
    with refused("n_splits"):
        left.document_reliability(n_splits=0)
    with refused("measure='loss'"):
        right.agreement(left, "loss")
    with refused("other windows"):
        left.agreement(of_run(drawn[1], "loss"))
    with refused("8 documents or more", "got 7"):
        left.agreement(of_run(drawn[1] % 7, "loss", first=1))
    with refused("measure='x'"):
        left.agreement(right, other_measure="x")
