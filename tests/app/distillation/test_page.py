"""The Distillation page's services against the library, its callbacks' answers, files and addresses."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotlens.distill import load_record, text_errors
from aotlens.views import View
from aotlens.views.distillation import ATTENTION, COSTS, CURVE, HEADS, ONE, WIDTHS, DistillationParameters, of_head
from app.core import Core
from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.own_texts import key_of
from app.pages.distillation import captions
from app.pages.distillation.address import ADDRESS, DistillationState
from app.pages.distillation.callbacks import heads_csv, text_csv
from app.pages.distillation.form_callbacks import order_of
from app.pages.distillation.ids import VIEWS, ids
from app.pages.distillation.service import DistillationRequest, Distillations, heads_of
from app.pages.distillation.tables import error_chips, head_rows
from app.shell.views import tables
from tests.app.conftest import TEXT, wait
from tests.messages import refused, says

BOTH = ("tiny-mhsa", "tiny-mssa")
PROMPT = {"text": "The captain bowed to the captain."}


def describe(service: Distillations, **state: Any) -> DistillationParameters:
    shown, problems = service.describe(DistillationState(**{"results": BOTH, "width": 4, **state}))
    assert shown is not None and not problems
    return shown


def picture(service: Distillations, view: View, shown: DistillationParameters, theme: Any = "light") -> Any:
    return view.figure(shown, service.workshop.result(view, shown), theme)


# ── which results ────────────────────────────────────────────────────────────────────────────────────────────


def test_results_are_found_and_what_is_wrong_is_said(distilled: Distillations):
    page = distilled
    assert [entry.key for entry in page.list()] == ["tiny-mhsa", "tiny-mssa", "bad"]
    shown, problems = page.describe(DistillationState(results=("bad", "tiny-mssa", "nobody"), width=4))
    assert shown is not None and shown.results == ("tiny-mssa",)
    assert "bad can't be read" in problems[0] and "/" not in problems[0].partition("found")[0]
    assert "'nobody'" in problems[1] and "tiny-mhsa" in problems[1]
    shown, problems = page.describe(DistillationState(results=BOTH, width=2))
    assert shown is not None and shown.results == ("tiny-mssa",)
    says(problems[0], "tiny-mhsa", "FFNs of 2")
    shown, problems = page.describe(DistillationState(results=("tiny-mhsa",), of="tiny-mhsa", head=(9, 9)))
    assert shown is not None and "9.9" in problems[0]
    assert page.describe(DistillationState(results=("nobody",)))[0] is None


def test_the_most_ffn_like_head_comes_first_and_a_named_one_stays(distilled: Distillations):
    found = distilled.record("tiny-mhsa").distillation
    shown = describe(distilled)
    assert (shown.of, (shown.layer, shown.head)) == ("tiny-mhsa", found.order(4)[0])
    shown = describe(distilled, of="tiny-mssa", head=(2, 1))
    assert (shown.of, shown.layer, shown.head) == ("tiny-mssa", 2, 1)


def test_files_of_one_name_are_told_apart(tmp_path: Path, services: Core, distilled: Distillations):
    files = []
    for corpus in ("first", "second"):
        (tmp_path / corpus).mkdir()
        files.append(tmp_path / corpus / "mine.safetensors")
        replace(distilled.record("tiny-mhsa"), corpus=corpus).save(files[-1])
    page = Distillations(replace(services, settings=replace(services.settings, distillations=tuple(files))))
    shown = describe(page, results=("mine", "mine-2"))
    compared = page.workshop.result(HEADS, shown)
    assert {name: record.corpus for name, record in compared.records.items()} == {"mine": "first", "mine-2": "second"}
    says(HEADS.python(shown), "load_record('mine-2.safetensors')")


# ── figures and rows are the library's numbers ───────────────────────────────────────────────────────────────


def test_grids_have_the_errors(distilled: Distillations):
    shown = describe(distilled, of="tiny-mssa", head=(2, 1))
    figure = picture(distilled, HEADS, shown)
    for trace, key in zip(figure.data[: len(BOTH)], BOTH, strict=True):
        found = distilled.record(key).distillation
        for place, (layer, head) in enumerate(found.heads):
            assert trace.z[layer][head] == pytest.approx(found.mean_error(4)[place], rel=1e-6)
            assert list(trace.customdata[layer][head][:3]) == [key, layer, head]
            low, high = found.interval(4)[place]
            assert f"{low:.3f} to {high:.3f}" in trace.customdata[layer][head][3]
    (frame,) = figure.layout.shapes
    assert (frame.x0 + frame.x1) / 2 == pytest.approx(1) and (frame.y0 + frame.y1) / 2 == pytest.approx(2)
    assert figure.layout.coloraxis.cmin == 0 and figure.layout.coloraxis.cmax == 1


def test_widths_have_means_baselines_and_the_head(distilled: Distillations):
    shown = describe(distilled, of="tiny-mhsa", head=(1, 2))
    figure = picture(distilled, WIDTHS, shown)
    found = distilled.record("tiny-mhsa").distillation
    line, others = figure.data[0], figure.data[1]
    assert list(line.x) == ["linear", "2", "4"] and list(others.x)[-1] == "least<br>of all"
    np.testing.assert_allclose(
        np.array(line.y, dtype=float)[[0, 2]], [found.mean_error(w).mean() for w in (0, 4)], 1e-6
    )
    assert np.isnan(line.y[1])  # that width was not distilled
    np.testing.assert_allclose(others.y[-1], found.floor.mean(), rtol=1e-6)
    np.testing.assert_allclose(others.y[1], found.position_error.mean(), rtol=1e-6)
    low, high = found.over_heads(4)[1:]
    assert line.error_y.array[2] == pytest.approx(high - found.mean_error(4).mean())
    head = next(trace for trace in figure.data if trace.name == "tiny-mhsa 1.2")
    np.testing.assert_allclose(head.y[2], found.mean_error(4)[found.place((1, 2))], rtol=1e-6)
    assert low < high


def test_clouds_have_a_point_a_head(distilled: Distillations):
    shown = describe(distilled, across="previous_token", of="tiny-mssa", head=(1, 0))
    figure = picture(distilled, ATTENTION, shown, "dark")
    first = figure.data[0]
    found = distilled.record("tiny-mhsa").distillation
    np.testing.assert_allclose(first.x, found.attending.to("previous_token"), rtol=1e-6)
    np.testing.assert_allclose(first.y, found.mean_error(4), rtol=1e-6)
    rings = [trace for trace in figure.data if trace.marker.symbol == "circle-open" and trace.x[0] is not None]
    assert len(rings) == 2


def test_costs_are_the_librarys_and_missing_ones_are_said(distilled: Distillations):
    shown = describe(distilled)
    page = distilled
    costs = page.record("tiny-mhsa").costs
    figure = picture(page, COSTS, shown)
    assert costs is not None
    named = {trace.name: trace for trace in figure.data}
    np.testing.assert_allclose(named["FFNs, most FFN-like first"].y, costs.by_error[0], rtol=1e-5)
    np.testing.assert_allclose(named["the same heads zero"].y, costs.by_error[2], rtol=1e-5)
    says(COSTS.caption(shown, page.workshop.result(COSTS, shown)), "Not measured for tiny-mssa")
    with refused("no costs"):
        picture(page, COSTS, describe(distilled, results=("tiny-mssa",)))


def test_rows_words_and_the_learning_curve(distilled: Distillations):
    page = distilled
    shown = describe(distilled, of="tiny-mhsa", head=(0, 1))
    compared = page.workshop.result(HEADS, shown)
    rows = head_rows(compared.to_frame())
    assert len(rows) == 6 + 6 and {row["result"] for row in rows} == set(BOTH)
    found = page.record("tiny-mhsa").distillation
    place = found.place((0, 1))
    row = next(row for row in rows if row["id"] == "tiny-mhsa:0.1")
    assert row["error"] == found.mean_error(4)[place] and row["floor"] == found.floor[place]
    said = of_head(shown, compared)
    assert f"error {found.mean_error(4)[place]:.3f}" in said and "Replaced alone" in said and "linear map" in said
    said = captions.data(page, "tiny-mhsa", 4)
    says(said, "MHSA", "2 × 3 heads", "a text", "seeds 0–1", "a test")
    figure = picture(page, CURVE, shown)
    assert [trace.name for trace in figure.data][:2] == ["seed 0", "seed 1"]
    assert figure.data[2].name.startswith("linear map (held out)")
    np.testing.assert_allclose(figure.data[1].y, found.curve[:, place, 0, 1], rtol=1e-6)
    with refused("solved for, not trained", error=RequestError):
        picture(page, CURVE, describe(distilled, results=("tiny-mhsa",), width=0))
    classes = picture(page, ONE, shown).data[0]
    assert set(classes.y) <= {*found.class_frame()["class"], "first token"} - {"first"}


# ── one head on a text ───────────────────────────────────────────────────────────────────────────────────────


def test_errors_on_a_text_are_the_librarys(distilled: Distillations):
    page = distilled
    errors, width, result = page.on_text(describe(distilled, of="tiny-mhsa", head=(1, 1)), PROMPT["text"])
    assert errors is not None and width == 4
    model = distilled.catalog.load("tiny-mhsa").model
    own = text_errors(
        model, page.record("tiny-mhsa").distillation, torch.tensor(result.patterns.tokens), (1, 1), width=4
    )
    np.testing.assert_allclose(errors.relative, own.relative, rtol=1e-6)
    # Of the linear map nothing was kept but its errors: the FFN of width 4 stands in, and that is said.
    shown = describe(distilled, results=("tiny-mhsa",), width=0)
    errors, width, _ = page.on_text(shown, PROMPT["text"])
    assert width == 4
    says(captions.on_text(shown, errors, width), "Only", "4 hidden units")
    tokens = result.patterns.tokens.tolist()
    chips = error_chips(tokens, result.patterns.str_tokens, own.relative.tolist(), own.movement.tolist())
    assert len(chips) == result.patterns.n_pos
    heats = [int(chip.style["--heat"].rstrip("%")) for chip in chips]
    assert np.argmax(heats) == np.argmax(own.relative) and max(heats) <= 100


def test_ffns_of_other_weights_are_refused(distilled: Distillations, monkeypatch: pytest.MonkeyPatch):
    import dataclasses

    page = distilled
    other = dataclasses.replace(page.record("tiny-mhsa"), weights_sha256="0" * 64)
    monkeypatch.setattr(page, "record", lambda key: other)
    with pytest.raises(RequestError, match="other weights"):
        page.on_text(
            DistillationParameters(results=BOTH, width=4, across="first_token", of="tiny-mhsa", layer=0, head=0), "a"
        )


# ── distil ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_distillation_is_made_kept_and_shown(distilled: Distillations):
    page = distilled
    order = order_of(distilled, "tiny-mssa", "book.txt", ["4", "0"], "1.1, 0.0", 1, "1000", True)
    assert order.hidden == (0, 4) and order.heads == ((0, 0), (1, 1))
    job = wait(page.start(order))
    assert job.state == "done", job.error
    assert job.result == order.key and order.key in [entry.key for entry in page.list()]
    (entry,) = (entry for entry in page.list() if entry.key == order.key)
    assert entry.source == "made here"
    record = load_record(entry.path)
    assert record.distillation.heads == order.heads and record.costs is not None and record.costs.width == 4
    assert record.belongs_to(distilled.catalog.info("tiny-mssa"))
    shown = describe(distilled, results=(order.key,), of=order.key, head=(1, 1))
    errors, _, _ = page.on_text(shown, PROMPT["text"])
    assert errors is not None and np.isfinite(errors.relative).all()
    figure = picture(page, HEADS, shown)
    assert np.isnan(figure.data[0].z[2][0])  # not distilled
    assert page.start(order) is job  # done: not made again
    entry.path.unlink()


def test_a_pasted_text_is_distilled_on_and_kept(distilled: Distillations):
    text = TEXT * 30
    order = order_of(distilled, "tiny-mssa", PASTED, ["4"], "0.0", 1, "1000", False, pasted=text)
    assert order.corpus == key_of(text) and distilled.corpora.own.get(order.corpus) is not None
    job = wait(distilled.start(order))
    assert job.state == "done", job.error
    (entry,) = (entry for entry in distilled.list() if entry.key == order.key)
    assert load_record(entry.path).corpus == "Pasted: The captain bowed, and Mrs. Pendlebury"
    entry.path.unlink()
    with pytest.raises(RequestError, match="paste or upload one"):
        order_of(distilled, "tiny-mssa", PASTED, ["4"], "0.0", 1, "1000", False, pasted=" ")


def test_a_distillation_can_be_stopped(distilled: Distillations, monkeypatch: pytest.MonkeyPatch):
    import aotlens.distill

    page = distilled
    real = aotlens.distill.distill_heads

    def slow(*args: Any, progress: Any, **rest: Any) -> Any:
        def report(done: int, total: int) -> None:
            page.jobs.stop()
            progress(done, total)

        return real(*args, progress=report, **rest)

    monkeypatch.setattr("aotlens.distill.distill_heads", slow)
    order = DistillationRequest(
        checkpoint="tiny-mhsa", corpus="book.txt", hidden=(2,), heads=None, seeds=1, tokens=1000, costs=False
    )
    assert wait(page.start(order)).state == "stopped"
    assert order.key not in [entry.key for entry in page.list()]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (("tiny-mhsa", None, ["4"], "", 1, "1000", False), "--corpus"),
        (("tiny-mhsa", "book.txt", [], "", 1, "1000", False), "at least one width"),
        (("tiny-mhsa", "book.txt", ["4"], "first", 1, "1000", False), "layer.head"),
        (("tiny-mhsa", "book.txt", ["4"], "7.0", 1, "1000", False), "no head 7.0"),
        (("tiny-mhsa", "elsewhere", ["4"], "", 1, "1000", False), "elsewhere"),
        (("nobody", "book.txt", ["4"], "", 1, "1000", False), "nobody"),
    ],
)
def test_what_cant_be_distilled_is_refused_with_a_reason(distilled: Distillations, form: Any, said: str):
    with pytest.raises(RequestError, match=said):
        distilled.start(order_of(distilled, *form))


def test_heads_are_read():
    assert heads_of(" ") is None and heads_of("1.0,0.2  1.0") == ((0, 2), (1, 0))


# ── files and addresses ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("panel", [*VIEWS, ids.ALL, ids.ON_TEXT])
def test_every_export_is_a_file(distilled: Distillations, panel: str):
    shown = describe(distilled, of="tiny-mhsa", head=(1, 0))
    data = {name: getattr(shown, name) for name in ("results", "width", "across", "of", "layer", "head")}
    make: Any = next(iter(tables(distilled.workshop, {panel: VIEWS.get(panel, HEADS)}, distilled.values).values()))
    of_text = partial(text_csv, distilled, prompt=PROMPT)
    make = {ids.ALL: heads_csv(distilled), ids.ON_TEXT: of_text}.get(panel, make)
    file = make(data)
    rows = list(csv.DictReader(io.StringIO(file.content.decode())))
    assert file.name.startswith("tiny-mhsa") and file.name.endswith(".csv") and rows
    if panel == ids.ALL:
        errors = distilled.record("tiny-mhsa").distillation.mean_error(4)
        np.testing.assert_allclose([float(row["error"]) for row in rows[:6]], errors)
    with pytest.raises(RequestError, match="Nothing is shown"):
        make(None)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters=","), min_size=1, max_size=40)


@given(
    st.builds(
        DistillationState,
        results=st.lists(NAMES, max_size=3, unique=True).map(tuple),
        width=st.none() | st.integers(0, 999_999),
        across=st.sampled_from(["first_token", "previous_token", "induction", "separator"]),
        of=st.none() | NAMES,
        head=st.none() | st.tuples(st.integers(0, 99), st.integers(0, 99)),
        text=st.none() | st.text(st.characters(codec="utf-8"), max_size=60),
    )
)
def test_a_state_comes_back_from_its_address(state: DistillationState):
    path, _, query = ADDRESS.format(state).partition("?")
    assert path == "/distillation" and ADDRESS.parse("?" + query if query else "") == state


@given(st.text(max_size=80))
def test_any_query_is_read(query: str):
    assert isinstance(ADDRESS.parse("?" + query), DistillationState)
