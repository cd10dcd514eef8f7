"""Distillations side by side: the tables are the records', the figures those tables, and mistakes are named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import aotlens
from aotlens.distill import (
    ComparedDistillations,
    Record,
    bundled_distillations,
    compare_distillations,
    named_record,
    record_paths,
)
from aotlens.results import load
from tests.messages import refused

NAMES = ("novels-1l-mhsa", "novels-2l-mhsa")


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return {name: named_record(name) for name in NAMES}


@pytest.fixture(scope="module")
def compared(records: dict[str, Record]) -> ComparedDistillations:
    return compare_distillations(records, 16, "1.0", of="novels-2l-mhsa", across="previous_token")


def test_a_row_is_a_head_with_its_records_numbers(records, compared):
    frame = compared.to_frame()
    assert len(frame) == sum(len(record.distillation.heads) for record in records.values())
    found, place = records["novels-2l-mhsa"].distillation, compared.place
    row = frame[(frame.result == "novels-2l-mhsa") & (frame["layer"] == 1) & (frame["head"] == 0)].iloc[0]
    assert row["error"] == found.mean_error(16)[place] and row["floor"] == found.floor[place]
    assert (row["low"], row["high"]) == tuple(found.interval(16)[place])
    assert row["previous_token"] == found.attending.to("previous_token")[place]
    assert row["cost_zero"] == records["novels-2l-mhsa"].costs.alone[place, 2]
    assert f"{found.mean_error(16).mean():.3f}" in compared.headline


def test_the_answer_has_each_models_shares(records):
    compared = compare_distillations(records, 16)
    for name, record in records.items():
        found = record.distillation
        explained = {width: 1 - found.error[:, found.hidden.index(width)].mean(1) for width in (4, 16)}
        share = {width: each.sum() / (1 - found.floor).sum() for width, each in explained.items()}
        assert f"{explained[16].mean():.0%} ({share[16]:.0%}) of {name}" in compared.answer
        assert f"{explained[4].mean():.0%} ({share[4]:.0%})" in compared.answer.partition(";")[2]
    worse = {"squared_error": 1.2 * np.broadcast_to(found.baseline[:, None, None], found.squared_error.shape)}
    worse |= {"neighbour_error": None, "wide_error": None}
    of_worse = dataclasses.replace(record, distillation=dataclasses.replace(found, **worse))
    assert f"-20% (none beats the constant) of {name}" in compare_distillations({name: of_worse}, 16).answer


def test_the_other_tables_are_the_records_own(records, compared):
    for name, record in records.items():
        of_it = compared.width_frame()
        widths = of_it[of_it["result"] == name].drop(columns="result").reset_index(drop=True)
        pd.testing.assert_frame_equal(widths, record.distillation.to_frame(), check_dtype=False)
        costs = compared.cost_frame()
        costs = costs[costs["result"] == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(costs.drop(columns=["result", "width"]), record.costs.curve_frame())
        assert set(costs["width"]) == {16}
        around = compared.attention_frame()
        np.testing.assert_array_equal(
            around["pattern_consistency"][around["result"] == name], record.distillation.attending.pattern_consistency
        )
    curve = compared.curve_frame()
    np.testing.assert_array_equal(curve["tokens"], compared.found.curve_tokens)
    column = compared.found.settings.trained.index(16)
    np.testing.assert_array_equal(curve.iloc[:, 1], compared.found.curve[:, compared.place, column, 0])
    assert compared.class_frame()["share_of_error"].sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("what", ["heads", "widths", "attention", "costs", "classes", "curve"])
def test_every_picture_is_drawn_and_another_is_refused(compared, what, tmp_path: Path):
    figure = aotlens.plot(compared, what=what)
    assert figure.data
    compared.save(tmp_path / "a.safetensors")
    assert aotlens.plot(load(tmp_path / "a.safetensors"), what=what).to_json() == figure.to_json()
    with refused("what='none'", "'heads', 'widths'"):
        aotlens.plot(compared, what="none")


def test_what_is_not_there_is_named(records):
    first = compare_distillations(records)
    assert first.of == NAMES[0] and first.head == records[NAMES[0]].distillation.order(first.width)[0]
    with refused("at least one record"):
        compare_distillations({})
    with refused("width=5", "0, 4, 16"):
        compare_distillations(records, 5)
    with refused("of='nobody'", *NAMES):
        compare_distillations(records, of="nobody")
    with refused("9.9 was not distilled"):
        compare_distillations(records, head=(9, 9))
    with refused("across='nothing'", "induction"):
        compare_distillations(records, across="nothing")
    linear = compare_distillations(records, 0)
    with refused("no learning curve"):
        linear.curve_frame()
    bare = compare_distillations({"a": dataclasses.replace(records[NAMES[0]], costs=None)})
    with refused("no costs"):
        aotlens.plot(bare, what="costs")


def test_records_are_found_by_name_the_users_own_first(records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    (tmp_path / "distillations").mkdir()
    dataclasses.replace(records[NAMES[0]], corpus="mine").save(tmp_path / "distillations" / f"{NAMES[0]}.safetensors")
    given = tmp_path / "my result.safetensors"
    assert list(record_paths([given]))[:2] == ["my_result", NAMES[0]]
    assert set(bundled_distillations()) - {NAMES[0]} < set(record_paths())
    assert named_record(NAMES[0]).corpus == "mine"
    assert named_record(f"{NAMES[0]}-2").corpus == records[NAMES[0]].corpus
    with refused("'nobody'", NAMES[0]):
        named_record("nobody")
