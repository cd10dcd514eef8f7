"""The Circuits page without a browser: which circuit is asked for, what there is in the place of what there is not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.views.circuit_captions import meaning
from aotlens.views.circuit_choice import left_sides, right_sides
from aotlens.views.circuits import BLOCK, COLUMN, COMPOSITION, COPYING, EIGENVALUES, MAP, OVERVIEW, ROW, SINGULAR, TOP
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.circuits import callbacks
from app.pages.circuits.address import ADDRESS, MAX_CHOSEN, CircuitsState
from app.pages.circuits.ids import VIEWS, ids
from app.pages.circuits.service import CircuitRequest, Circuits
from app.shell.views import picture, table
from tests.app.conftest import save_tiny
from tests.messages import says

VARIANTS: dict[str, dict[str, Any]] = {
    "tiny-plain": {"norm": None, "positions": "qk", "n_layers": 1},
    "tiny-bare": {"positions": None, "bias": True},
    "tiny-mlp": {"d_mlp": 16},
    "tiny-fixed-two": {"phi": "fixed", "fixed_pattern": "random"},
    "tiny-tied": {"attention": "mssa", "tied_output": True, "norm": None, "tied_embeddings": True, "n_heads": 2},
}


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory, checkpoints: Path) -> Iterator[Circuits]:
    """Every kind of model that has a side, a norm or a bias more or less."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, rest in VARIANTS.items():
        save_tiny(folder, name, **rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        small = {"overview_blocks": 32, "n_entries": 20}
        yield Circuits(Core.start(Settings(checkpoints=(checkpoints, folder), device="cpu", **small)))


def ask(circuits: Circuits, checkpoint: str, **state: Any) -> CircuitRequest:
    return circuits.of_address(CircuitsState(checkpoint=checkpoint, **state))


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────────

NUMBERS = st.integers(0, 999_999)
PAIRS = st.tuples(NUMBERS, NUMBERS)
SIDES = st.none() | st.sampled_from(["tokens", "positions", "bias", "residual", "logits", "0.3", "11.7"])
CHOSEN = st.lists(NUMBERS, max_size=MAX_CHOSEN, unique=True).map(tuple)
STATES = st.builds(
    CircuitsState,
    checkpoint=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    head=st.none() | PAIRS,
    kind=st.sampled_from(["qk", "ov"]),
    left=SIDES,
    right=SIDES,
    biases=st.booleans(),
    rows=CHOSEN,
    columns=CHOSEN,
    row=st.none() | NUMBERS,
    column=st.none() | NUMBERS,
    statistic=st.sampled_from(["extreme", "mean"]),
    block=st.none() | PAIRS,
    z=st.integers(0, 999),
    text=st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
)


@given(STATES)
def test_a_state_comes_back_from_its_address(state: CircuitsState):
    path, _, query = ADDRESS.format(state).partition("?")
    assert path == "/circuits"
    assert ADDRESS.parse("?" + query if query else "") == state


def test_nonsense_is_left_out():
    nonsense = "?head=1&kind=vo&left=0.x&right=/etc&rows=1-x&columns=-&row=-1&block=3&blocks=max&z=many&biases=1"
    assert ADDRESS.parse(nonsense) == CircuitsState()
    assert ADDRESS.parse("?left=00.3&right=1.2.3") == CircuitsState()
    assert len(ADDRESS.parse("?rows=" + "-".join(map(str, range(99)))).rows) == MAX_CHOSEN


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_model_does_not_have_is_replaced(more: Circuits):
    chosen = ask(more, "tiny-bare", head=(7, 0), left="positions", right="1.0", biases=True)
    assert (chosen.head, chosen.left, chosen.right, chosen.biases) == ((0, 0), "tokens", "tokens", True)
    assert ask(more, "tiny-bare", kind="ov", right="tokens", biases=True).right == "logits"
    assert not ask(more, "tiny-bare", kind="ov", biases=True).biases
    named = ask(more, "tiny-mhsa", left="1.1", row=99_999, columns=(3, 999_999), block=(900, 2))
    assert (named.left, named.row, named.columns, named.block) == ("tokens", None, (3,), None)
    says(" ".join(named.said), "left=1.1", "row=99999", "tokens from 0 to 299", "columns=3-999999")
    says(named.block_said, "block=900.2", "one of 30 × 30 blocks")


@pytest.mark.parametrize(
    ("checkpoint", "kind", "left", "right"),
    [
        ("tiny-mhsa", "qk", "tokens positions bias residual", "tokens positions bias residual"),
        ("tiny-plain", "qk", "tokens positions bias residual", "tokens positions bias residual"),
        ("tiny-plain", "ov", "tokens bias residual", "logits residual"),
        ("tiny-bare", "qk", "tokens bias residual", "tokens bias residual"),
        ("tiny-mhsa", "ov", "tokens positions bias residual", "logits 1.0 1.1 1.2 residual"),
    ],
)
def test_every_side_that_is_offered_is_drawn_and_listed(
    more: Circuits, checkpoint: str, kind: Any, left: str, right: str
):
    first = ask(more, checkpoint, kind=kind)
    lefts, rights = (list(sides(first.model, 0, kind)) for sides in (left_sides, right_sides))
    assert (lefts, rights) == (left.split(), right.split())
    # Each pair of sides of the model that has them all; of the others each side once.
    n_pairs = max(len(lefts), len(rights))
    pairs = product(lefts, rights) if checkpoint == "tiny-mhsa" else islice(zip(cycle(lefts), cycle(rights)), n_pairs)
    for one, other in pairs:
        chosen = ask(more, checkpoint, kind=kind, left=one, right=other, z=1)
        assert (chosen.left, chosen.right, chosen.problem) == (one, other, "")
        assert callbacks.choose(more, chosen, None)["meaning"]
        for view in (MAP, OVERVIEW, BLOCK, EIGENVALUES):
            if view.missing(chosen) is None:
                assert picture(more.workshop, view, chosen, "dark")["caption"], view.name
        for draw, view in (
            (callbacks.list_top, TOP),
            (callbacks.list_block, BLOCK),
            (callbacks.list_singular, SINGULAR),
        ):
            assert draw(chosen, more.workshop.result(view, chosen))["lines"]
        for axis, view in (("row", ROW), ("column", COLUMN)):
            assert callbacks.list_line(axis, chosen, more.workshop.result(view, chosen))["lines"]


def test_earlier_heads_are_sides(more: Circuits):
    chosen = ask(more, "tiny-mhsa", head=(1, 2), right="0.1")
    assert list(right_sides(chosen.model, 1, "qk"))[-3:] == ["0.0", "0.1", "0.2"]
    says(meaning(chosen, more.circuit(chosen)), "source token, through 0.1", "as head 0.1 writes it")


def test_a_fixed_pattern_has_no_qk_circuit_and_says_so(more: Circuits):
    chosen = ask(more, "tiny-fixed-two", head=(1, 0))
    says(chosen.problem, "no queries", "keys")
    assert callbacks.choose(more, chosen, None)["shown"]["problem"] == MAP.missing(chosen) == chosen.problem
    assert ask(more, "tiny-fixed-two", kind="ov").right == "logits"
    assert set(more.workshop.result(COMPOSITION, chosen).modes) == {"v"}


@pytest.mark.parametrize(
    ("checkpoint", "kind", "word"),
    [("tiny-mhsa", "qk", "scale"), ("tiny-plain", "qk", None), ("tiny-mlp", "ov", "MLP"), ("tiny-bare", "qk", None)],
)
def test_relative_circuits_are_marked(more: Circuits, checkpoint: str, kind: Any, word: str | None):
    notes = more.circuit(ask(more, checkpoint, kind=kind)).reasons
    assert not notes if word is None else any(word in note for note in notes)


def test_positions_behind_a_norm_are_marked_as_on_another_scale_than_tokens(more: Circuits):
    chosen = ask(more, "tiny-mhsa", left="positions")
    assert left_sides(chosen.model, 0, "qk")["positions"] == "positions (undivided)"
    assert any("cannot be compared with" in note for note in more.circuit(chosen).reasons)
    plain = ask(more, "tiny-plain", left="positions")
    assert left_sides(plain.model, 0, "qk")["positions"] == "positions" and not more.circuit(plain).reasons


def test_unknown_and_broken_checkpoints_are_refused(more: Circuits):
    with pytest.raises(RequestError, match="No checkpoint is called"):
        ask(more, "../etc")
    with pytest.raises(RequestError, match="can't be opened"):
        ask(more, "broken")


def test_lines_stay_while_rows_and_columns_are_what_they_were(more: Circuits):
    first = ask(more, "tiny-mhsa", head=(0, 1), row=5, rows=(7, 9))
    shown = callbacks.choose(more, first, None)["shown"]
    form = {**shown["form"], "head": [1, 1]}
    other = more.values(form, ["7", "9"], [], "5", None, before=shown)
    assert (other.rows, other.row) == ((7, 9), 5)
    answer = callbacks.choose(more, other, None)
    controls, searchable = (
        answer["shown"]["controls"],
        {ids.MAP_ROWS, ids.MAP_COLUMNS, ids.ROW_CHOICE, ids.COLUMN_CHOICE},
    )
    assert not searchable & controls.keys() and "heads" not in answer and controls[ids.HEAD] == {"data": [1, 1]}
    positions = more.values({**form, "left": "positions"}, ["7", "9"], ["3"], "5", None, before=shown)
    assert (positions.rows, positions.columns, positions.row) == ((), (3,), None)
    controls = callbacks.choose(more, positions, None)["shown"]["controls"]
    assert searchable & controls.keys() == {ids.MAP_ROWS, ids.ROW_CHOICE} and controls[ids.MAP_ROWS]["value"] == []


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_map_names_its_lines_for_clicks_and_a_block_its_place(more: Circuits):
    chosen = ask(more, "tiny-mhsa", head=(0, 1), rows=(5, 299), columns=(7,), block=(2, 29))
    meta = picture(more.workshop, MAP, chosen, "dark")["figure"].layout.meta
    assert (meta["rows"], meta["columns"]) == ([5, 299], [7])
    labels = more.labels(chosen)[0]
    assert meta["row_names"] == [labels.shown(5), labels.shown(299)]
    assert list(picture(more.workshop, BLOCK, chosen, "light")["figure"].layout.meta["block"]) == [2, 29]
    lines = callbacks.list_top(chosen, more.workshop.result(TOP, chosen))["lines"]
    entries = more.workshop.result(TOP, chosen)
    cell = lines[1]["rows"][0][2]
    assert cell["pick"] == [
        "column",
        int(entries.columns.ids[20]),
        more.labels(chosen)[1].shown(entries.columns.ids[20]),
    ]


def test_composition_is_told_once_for_mssa_and_leads_through_the_earlier_head(more: Circuits):
    chosen = ask(more, "tiny-mssa", head=(1, 0), z=5)
    result = more.workshop.result(COMPOSITION, chosen)
    assert set(result.modes) == {"qk", "v"}
    says(COMPOSITION.caption(chosen, result), "one matrix")
    for at, row in enumerate(callbacks.list_composition(chosen, result)["lines"][0]["rows"]):
        through = row[2]["pick"][1]
        side = "right" if result.modes[at] == "qk" else "left"
        assert through["head"] == result.later[at].tolist() and through["kind"] == ("qk" if side == "right" else "ov")
        assert through[side] == "{}.{}".format(*result.earlier[at])
    says(COMPOSITION.missing(ask(more, "tiny-plain")) or "", "one layer")


def test_a_score_of_1_by_construction_is_called_that(more: Circuits):
    chosen = ask(more, "tiny-tied", kind="ov")
    says(EIGENVALUES.caption(chosen, more.workshop.result(EIGENVALUES, chosen)), "by construction")
    plain = ask(more, "tiny-plain", kind="ov")
    said = EIGENVALUES.caption(plain, more.workshop.result(EIGENVALUES, plain))
    assert "by construction" not in said and "Copying score" in said


def test_copying_marks_the_chosen_head_and_of_a_large_model_is_of_it_alone(
    more: Circuits, monkeypatch: pytest.MonkeyPatch
):
    chosen = ask(more, "tiny-mhsa", head=(1, 1))
    rows = callbacks.list_copying(chosen, more.workshop.result(COPYING, chosen))["lines"][0]["rows"]
    assert [row[0]["text"] for row in rows if row[0]["class"] == "here"] == ["1.1"] and len(rows) == 6
    monkeypatch.setattr("aotlens.views.circuit_choice.MOST_COPYING", 0.0)
    result = more.workshop.result(COPYING, chosen)
    assert result.heads == ((1, 1),)
    says(COPYING.caption(chosen, result), "Only the chosen head's")


def test_work_of_too_large_a_model_is_refused_before_it_starts(more: Circuits):
    for view in VIEWS.values():
        chosen = ask(more, "tiny-mhsa", head=(1, 1))
        assert 0 < view.cost(chosen) < more.core.settings.max_operations, view.name
    assert OVERVIEW.cost(chosen) == pytest.approx(0.1 * 2 * 300**2 * chosen.model.d_head)


def test_files_have_the_exact_values_and_nothing_missing_is_saved(more: Circuits):
    chosen = ask(more, "tiny-mhsa", head=(1, 0))
    circuit = more.circuit(chosen)
    matrix = (circuit.A.detach().double() @ circuit.B.detach().double()).numpy()
    for panel in (ids.MAP, ids.TOP, ids.BLOCK):
        frame = VIEWS[panel].frame(more.workshop.result(VIEWS[panel], chosen))
        np.testing.assert_allclose(frame.nats, matrix[frame.row, frame.column], rtol=1e-12)
    assert table(more.workshop, TOP, chosen).name == "tiny-mhsa-head-1.0-qk-tokens-tokens-top.csv"
    with pytest.raises(RequestError, match="eigenvalues"):
        table(more.workshop, EIGENVALUES, ask(more, "tiny-mhsa", left="tokens", right="positions"))
