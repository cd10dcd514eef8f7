"""The Circuits page without a browser: what is asked for, what is shown, and files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aotlens.circuits import ov_circuit, qk_circuit
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.circuits import figures, words
from app.pages.circuits import service_structure as structure
from app.pages.circuits.address import ADDRESS, MAX_CHOSEN, CircuitsState
from app.pages.circuits.file_callbacks import _FILES, make_file
from app.pages.circuits.ids import ids
from app.pages.circuits.service import Choice, Circuits
from app.shell import ids as shell
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


def dense(circuits: Circuits, choice: Choice) -> np.ndarray:
    """The whole matrix by the library, in float64."""
    model = circuits.core.catalog.load(choice.checkpoint).model
    make = qk_circuit if choice.kind == "qk" else ov_circuit
    rest: dict[str, Any] = {"biases": choice.biases} if choice.kind == "qk" else {}
    sides = [tuple(map(int, s.split("."))) if "." in s else s for s in (choice.left, choice.right)]
    circuit = make(model, (choice.layer, choice.head), *sides, **rest)
    return (circuit.A.detach().double() @ circuit.B.detach().double()).numpy()


def ask(circuits: Circuits, checkpoint: str, **state: Any) -> Choice:
    found = circuits.describe(CircuitsState(checkpoint=checkpoint, **state))
    assert not found.problem, found.problem
    return found.choice


def show_all(circuits: Circuits, choice: Choice) -> None:
    """Everything that the page shows of a circuit."""
    shown, found = circuits.circuit(choice), circuits.spectrum(choice)
    figures.entries(circuits, choice).figure("light")
    for statistic in ("extreme", "mean"):
        figures.overview(circuits, choice, statistic).figure("dark")
    assert figures.block(circuits, choice, None).map.figure("light").layout.meta["block"]
    assert len(circuits.row(choice, shown.rows.n - 1).largest.values) <= shown.columns.n
    assert len(circuits.column(choice, 0).smallest.values) <= shown.rows.n
    assert structure.singular_pairs(shown, found)
    assert found.eigenvalues is not None or words.no_eigenvalues(shown)
    assert found.eigenvalues is None or words.eigenvalues(shown, found)


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
    found = ask(more, "tiny-bare", head=(7, 0), left="positions", right="1.0", biases=True)
    assert (found.layer, found.head, found.left, found.right, found.biases) == (0, 0, "tokens", "tokens", True)
    assert ask(more, "tiny-bare", kind="ov", right="tokens", biases=True).right == "logits"
    assert not ask(more, "tiny-bare", kind="ov", biases=True).biases


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
def test_sides_that_exist_are_offered(more: Circuits, checkpoint: str, kind: Any, left: str, right: str):
    found = more.describe(CircuitsState(checkpoint=checkpoint, kind=kind))
    assert [side.value for side in found.left_options] == left.split()
    assert [side.value for side in found.right_options] == right.split()
    # Each pair of sides of the model that has them all; of the others each side once.
    lefts, rights = ([side.value for side in options] for options in (found.left_options, found.right_options))
    n_pairs = max(len(lefts), len(rights))
    pairs = product(lefts, rights) if checkpoint == "tiny-mhsa" else islice(zip(cycle(lefts), cycle(rights)), n_pairs)
    for one, other in pairs:
        choice = ask(more, checkpoint, kind=kind, left=one, right=other)
        shown = more.circuit(choice)
        assert tuple(shown.circuit.shape) == (shown.rows.n, shown.columns.n)
        assert words.meaning(shown)
        show_all(more, choice)


def test_earlier_heads_are_sides(more: Circuits):
    found = more.describe(CircuitsState(checkpoint="tiny-mhsa", head=(1, 2), right="0.1"))
    assert [side.value for side in found.right_options][-3:] == ["0.0", "0.1", "0.2"]
    shown = more.circuit(found.choice)
    assert shown.columns.through == "0.1"
    assert "source token, through 0.1" in words.meaning(shown)
    np.testing.assert_allclose(more.values(found.choice, [3], [5])[0, 0], dense(more, found.choice)[3, 5])


def test_a_fixed_pattern_has_no_qk_circuit_and_says_so(more: Circuits):
    found = more.describe(CircuitsState(checkpoint="tiny-fixed-two", head=(1, 0)))
    says(found.problem, "no queries", "keys")
    assert ask(more, "tiny-fixed-two", kind="ov").right == "logits"
    around = structure.around(more, "tiny-fixed-two", (1, 0))
    assert {edge.mode for edge in around.edges} == {"v"}


@pytest.mark.parametrize(
    ("checkpoint", "kind", "word"),
    [("tiny-mhsa", "qk", "scale"), ("tiny-plain", "qk", None), ("tiny-mlp", "ov", "MLP"), ("tiny-bare", "qk", None)],
)
def test_relative_circuits_are_marked(more: Circuits, checkpoint: str, kind: Any, word: str | None):
    notes = more.describe(CircuitsState(checkpoint=checkpoint, kind=kind)).notes
    assert not notes if word is None else any(word in note for note in notes)


def test_positions_behind_a_norm_are_marked_as_on_another_scale_than_tokens(more: Circuits):
    found = more.describe(CircuitsState(checkpoint="tiny-mhsa", left="positions"))
    (label,) = [side.label for side in found.left_options if side.value == "positions"]
    assert label == "positions (undivided)" and any("cannot be compared with" in note for note in found.notes)
    plain = more.describe(CircuitsState(checkpoint="tiny-plain", left="positions"))
    assert "positions" in [side.label for side in plain.left_options] and not plain.notes


def test_unknown_and_broken_checkpoints_are_refused(more: Circuits):
    with pytest.raises(RequestError, match="No checkpoint is called"):
        more.describe(CircuitsState(checkpoint="../etc"))
    with pytest.raises(RequestError, match="can't be opened"):
        more.describe(CircuitsState(checkpoint="broken"))


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["qk", "ov"])
def test_top_row_and_column_are_those_of_the_dense_matrix(more: Circuits, kind: Any):
    choice = ask(more, "tiny-mhsa", head=(0, 1), kind=kind)
    matrix = dense(more, choice)
    found = more.top(choice)
    order = np.sort(matrix.ravel())
    np.testing.assert_allclose(found.largest.values, order[::-1][:20], rtol=1e-9)
    np.testing.assert_allclose(found.smallest.values, order[:20], rtol=1e-9)
    np.testing.assert_allclose(found.largest.values, matrix[found.largest.rows, found.largest.columns], rtol=1e-9)
    # Relative to the row: log-mean-exp for scores, mean for logits.
    level = np.log(np.exp(matrix).mean(1)) if kind == "qk" else matrix.mean(1)
    relative = matrix - level[:, None]
    np.testing.assert_allclose(found.largest_relative, relative[found.largest.rows, found.largest.columns])
    row = more.row(choice, 17)
    assert row.largest.columns.tolist() == np.argsort(-matrix[17], kind="stable")[:20].tolist()
    assert set(row.smallest.rows.tolist()) == {17}
    assert row.row_statistics is not None
    assert float(row.row_statistics.mean[0]) == pytest.approx(matrix[17].mean())
    column = more.column(choice, 250)
    assert column.smallest.rows.tolist() == np.argsort(matrix[:, 250], kind="stable")[:20].tolist()
    assert more.column(choice, 250) is column


def test_the_map_has_the_largest_entries_or_what_was_chosen(more: Circuits):
    choice = ask(more, "tiny-mhsa", head=(0, 1))
    matrix = dense(more, choice)
    view = figures.entries(more, choice)
    row, column = np.unravel_index(np.abs(matrix).argmax(), matrix.shape)
    assert (view.rows[0], view.columns[0]) == (row, column)
    np.testing.assert_allclose(view.values, matrix[np.ix_(view.rows, view.columns)], rtol=1e-9)
    chosen = figures.entries(more, choice, [5, 299, 5], [7])
    assert (chosen.rows, chosen.columns) == ([5, 299], [7])
    half = figures.entries(more, choice, [5])
    assert half.columns[0] == np.abs(matrix[5]).argmax()
    assert figures.entries(more, choice, [], [7]).rows[0] == np.abs(matrix[:, 7]).argmax()
    with pytest.raises(RequestError, match="no token 300"):
        figures.entries(more, choice, [300])
    meta = chosen.figure("dark").layout.meta
    assert (meta["rows"], meta["columns"]) == ([5, 299], [7])


def test_a_block_is_that_of_the_whole_matrix(more: Circuits):
    choice = ask(more, "tiny-mhsa", head=(0, 1))
    matrix = dense(more, choice)
    whole = figures.overview(more, choice, "extreme")
    says(whole.caption, "10 × 10", "300 × 300")
    found = figures.block(more, choice, [2, 29])
    part = matrix[20:30, 290:300]
    np.testing.assert_allclose(found.map.values, part, rtol=1e-9)
    entries, _ = found.listed
    assert abs(float(entries.values[0])) == pytest.approx(np.abs(part).max())
    assert len({*zip(entries.rows.tolist(), entries.columns.tolist(), strict=True)}) == len(entries.values)
    for missing in (None, [99, 0]):
        largest = figures.block(more, choice, missing)
        assert float(largest.listed[0].values[0]) == pytest.approx(matrix.flat[np.abs(matrix).argmax()])


def test_a_small_circuit_is_shown_whole(more: Circuits):
    choice = ask(more, "tiny-mhsa", left="bias", right="positions")
    whole = figures.overview(more, choice, "extreme")
    assert whole.overview.values.shape == (1, 24)
    says(whole.caption, "1 × 2", "1 × 48")
    assert figures.entries(more, choice).values.shape[0] == 1
    assert len(more.row(choice, 0).largest.values) == 20


def test_search_finds_tokens_as_they_are_written(more: Circuits):
    labels = more.circuit(ask(more, "tiny-mhsa")).rows
    the = labels.texts.index(" the") if labels.texts and " the" in labels.texts else None
    captain = labels.search("captain", 5)
    assert captain and "captain" in labels.text(captain[0])
    if the is not None:
        assert labels.search(" the", 3)[0] == the and labels.search("·the", 3)[0] == the
    assert labels.search("17", 3)[0] == 17
    assert labels.search("", 4) == [0, 1, 2, 3]
    assert labels.search("no such token", 4) == []


def test_composition_is_the_librarys_and_told_once_for_mssa(more: Circuits):
    around = structure.around(more, "tiny-mssa", (1, 0))
    assert {edge.mode for edge in around.edges} == {"qk", "v"}
    assert len(around.edges) == 2 * 4
    first = around.edges[0]
    found = around.compositions["q" if first.mode == "qk" else "v"]
    assert first.value == found.values[(*first.earlier, *first.later)]
    assert [edge.value for edge in around.edges] == sorted((edge.value for edge in around.edges), reverse=True)
    pair = (*first.earlier, *first.later)
    (record, *_) = structure.edge_records(around.edges, (1, 0), around.compositions)
    assert (record["rank"], record["z"], record["z_turned"]) == (found.rank[pair], found.z_signs[pair], found.z[pair])
    assert (record["norm"], record["random_mean"]) == (found.norms[pair], found.random_mean[pair])
    kept = sum(int(one.edges[:, :, 1, 0].sum()) for mode, one in around.compositions.items() if mode != "k")
    assert len(around.above_null) == kept
    assert "one matrix" in words.composed(around, 5)
    asked = structure.through(first)
    assert (asked["layer"], asked["head"]) == first.later
    side = f"{first.earlier[0]}.{first.earlier[1]}"
    assert asked["right" if first.mode == "qk" else "left"] == side
    assert asked["kind"] == ("qk" if first.mode == "qk" else "ov")
    assert structure.around(more, "tiny-plain", (0, 0)).edges == []


def test_a_score_of_1_by_construction_is_called_that(more: Circuits):
    choice = ask(more, "tiny-tied", kind="ov")
    found = more.spectrum(choice)
    assert found.by_construction and found.copying_score == pytest.approx(1)
    assert "by construction" in words.eigenvalues(more.circuit(choice), found)
    plain = ask(more, "tiny-plain", kind="ov")
    said = words.eigenvalues(more.circuit(plain), more.spectrum(plain))
    assert "by construction" not in said and "Copying score" in said


def test_copying_lists_every_head_or_the_chosen_one(more: Circuits):
    records, _ = structure.copying(more, "tiny-mhsa", (1, 1))
    assert [one["head"] for one in records if one["chosen"]] == ["1.1"] and len(records) == 6
    model = more.core.catalog.load("tiny-mhsa").model
    logits = dense(more, ask(more, "tiny-mhsa", kind="ov", head=(1, 1)))
    own = float((logits.argmax(1) == np.arange(len(logits))).mean())
    assert records[4]["top1"] == pytest.approx(own) and model.cfg.n_heads == 3


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("entry", _FILES)
def test_every_export_is_a_file(more: Circuits, entry: str):
    choice = ask(more, "tiny-mhsa", head=(1, 0), kind="ov")
    data = {**choice.to_dict(), "layers": 2, "heads": 3, "problem": ""}
    file = make_file(more, entry, data)
    assert file.name.startswith("tiny-mhsa") and file.name.endswith(entry.rsplit("-", 1)[1])
    text = file.content.decode()
    if entry.endswith("json"):
        assert json.loads(text)["checkpoint"] == "tiny-mhsa"
    else:
        rows = list(csv.DictReader(io.StringIO(text)))
        assert rows and all(None not in row and None not in row.values() for row in rows)


def test_a_csv_holds_the_exact_values(more: Circuits):
    choice = ask(more, "tiny-mhsa", head=(1, 0))
    data = {**choice.to_dict(), "layers": 2, "heads": 3, "problem": ""}
    matrix = dense(more, choice)
    for entry in (shell.export(ids.MAP, "csv"), shell.export(ids.TOP, "csv"), shell.export(ids.BLOCK, "csv")):
        for row in csv.DictReader(io.StringIO(make_file(more, entry, data).content.decode())):
            assert float(row["nats"]) == pytest.approx(matrix[int(row["row"]), int(row["column"])], rel=1e-12)
    texts = more.circuit(choice).rows.texts
    assert texts is not None and row["row_label"] == texts[int(row["row"])]


def test_an_export_of_nothing_says_why(more: Circuits):
    with pytest.raises(RequestError, match="Nothing is shown"):
        make_file(more, shell.export(ids.TOP, "csv"), None)
    data = {**ask(more, "tiny-mhsa", left="tokens", right="positions").to_dict(), "problem": ""}
    with pytest.raises(RequestError, match="no eigenvalues"):
        make_file(more, shell.export(ids.EIGENVALUES, "csv"), data)


def test_reading_a_circuit_leaves_no_gradient(more: Circuits):
    circuit = more.circuit(ask(more, "tiny-mhsa")).circuit
    assert not circuit.A.requires_grad and isinstance(circuit.A, torch.Tensor)
