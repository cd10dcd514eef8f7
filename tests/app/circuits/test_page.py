"""The Circuits page without a browser: limits of a choice, what its tables list, what its captions and files say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotlens.views.circuit_parameters import CircuitsParameters, left_sides, right_sides
from aotlens.views.circuits import (
    BLOCK,
    CIRCUIT,
    COMPOSITION,
    COPYING,
    EIGENVALUES,
    FAMILY,
    MAP,
    OVERVIEW,
    TOP,
    meaning,
)
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.circuits import PAGE
from app.shell.arrange import Linked
from app.shell.view_service import Views
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
def more(tmp_path_factory: pytest.TempPathFactory, checkpoints: Path) -> Iterator[Views]:
    """Every kind of model that has a side, a norm or a bias more or less."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, rest in VARIANTS.items():
        save_tiny(folder, name, **rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield Views(Core.start(Settings(checkpoints=(checkpoints, folder), device="cpu")), FAMILY)


def ask(circuits: Views, checkpoint: str, **shown: Any) -> CircuitsParameters:
    return circuits.values({"checkpoint": checkpoint, **shown})


def lines(circuits: Views, view: Any, params: CircuitsParameters) -> list[dict[str, Any]]:
    """A panel's tables."""
    panel = PAGE.declared.panels[f"circuits-{view.name}"]
    assert isinstance(panel, Linked) and panel.lines is not None
    return panel.lines(params, circuits.workshop.result(view, params))


def circuit_of(circuits: Views, params: CircuitsParameters) -> Any:
    return circuits.workshop.result(CIRCUIT, params)


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_model_does_not_have_is_replaced(more: Views):
    params = ask(more, "tiny-bare", head=(7, 0), left="positions", right="1.0", biases=True)
    assert (params.head, params.left, params.right, params.biases) == ((0, 0), "tokens", "tokens", True)
    assert ask(more, "tiny-bare", kind="ov", right="tokens", biases=True).right == "logits"
    assert not ask(more, "tiny-bare", kind="ov", biases=True).biases
    asked = "?checkpoint=tiny-mhsa&left=1.1&row=99999&columns=3-999999&block=900.2"
    state, sentences = PAGE.address.read(asked, more.core)
    assert (state.left, state.row, state.columns, state.block) == (None, None, (3,), None)
    says(
        " ".join(sentences), "left=1.1", "row=99999: expected tokens from 0 to 299. It was left out.",
        "columns=3-999999: expected tokens from 0 to 299. 3 was taken instead.",
        "block=900.2: expected one of 150 × 150 blocks.",
    )  # fmt: skip


@pytest.mark.parametrize("checkpoint", ["tiny-mhsa", "tiny-plain", "tiny-bare"])
@pytest.mark.parametrize("kind", ["qk", "ov"])
def test_limits_of_rows_and_columns_are_the_sizes_of_the_circuit(more: Views, checkpoint: str, kind: str):
    lefts, rights = ask(more, checkpoint, kind=kind).sides()
    for left, right in zip(cycle(lefts), rights, strict=False):
        params = ask(more, checkpoint, kind=kind, left=left, right=right)
        assert tuple(n for _, n in params.axes()) == circuit_of(more, params).shape


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
def test_every_side_that_is_offered_is_drawn_and_listed(more: Views, checkpoint: str, kind: Any, left: str, right: str):
    first = ask(more, checkpoint, kind=kind)
    lefts, rights = (list(sides(first.config, 0, kind)) for sides in (left_sides, right_sides))
    assert (lefts, rights) == (left.split(), right.split())
    # Each pair of sides of the model that has them all; of the others each side once.
    n_pairs = max(len(lefts), len(rights))
    pairs = product(lefts, rights) if checkpoint == "tiny-mhsa" else islice(zip(cycle(lefts), cycle(rights)), n_pairs)
    for one, other in pairs:
        chosen = ask(more, checkpoint, kind=kind, left=one, right=other, z=1)
        assert (chosen.left, chosen.right) == (one, other)
        assert CIRCUIT.caption(chosen, circuit_of(more, chosen))
        for view in (MAP, OVERVIEW, BLOCK, EIGENVALUES):
            if view.missing(chosen) is None:
                assert picture(more.workshop, view, chosen, "dark")["caption"], view.name
        for panel in PAGE.declared.panels.values():
            if getattr(panel, "lines", None) and panel.view.missing(chosen) is None:
                assert lines(more, panel.view, chosen), panel.view.name


def test_earlier_heads_are_sides(more: Views):
    chosen = ask(more, "tiny-mhsa", head=(1, 2), right="0.1")
    assert list(right_sides(chosen.config, 1, "qk"))[-3:] == ["0.0", "0.1", "0.2"]
    says(meaning(chosen, circuit_of(more, chosen)), "source token, through 0.1", "as head 0.1 writes it")


def test_a_fixed_pattern_has_no_qk_circuit_and_says_so(more: Views):
    chosen = ask(more, "tiny-fixed-two", head=(1, 0))
    says(MAP.missing(chosen) or "", "no queries", "keys")
    assert CIRCUIT.missing(chosen) == MAP.missing(chosen)
    assert ask(more, "tiny-fixed-two", kind="ov").right == "logits"
    assert set(more.workshop.result(COMPOSITION, chosen).modes) == {"v"}


@pytest.mark.parametrize(
    ("checkpoint", "kind", "word"),
    [("tiny-mhsa", "qk", "scale"), ("tiny-plain", "qk", None), ("tiny-mlp", "ov", "MLP"), ("tiny-bare", "qk", None)],
)
def test_relative_circuits_are_marked(more: Views, checkpoint: str, kind: Any, word: str | None):
    notes = circuit_of(more, ask(more, checkpoint, kind=kind)).reasons
    assert not notes if word is None else any(word in note for note in notes)


def test_positions_behind_a_norm_are_marked_as_on_another_scale_than_tokens(more: Views):
    chosen = ask(more, "tiny-mhsa", left="positions")
    assert left_sides(chosen.config, 0, "qk")["positions"] == "positions (undivided)"
    assert any("cannot be compared with" in note for note in circuit_of(more, chosen).reasons)
    plain = ask(more, "tiny-plain", left="positions")
    assert left_sides(plain.config, 0, "qk")["positions"] == "positions" and not circuit_of(more, plain).reasons


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_map_names_its_lines_for_clicks_and_a_block_its_place(more: Views):
    chosen = ask(more, "tiny-mhsa", head=(0, 1), rows=(5, 299), columns=(7,), block=(2, 29))
    meta = picture(more.workshop, MAP, chosen, "dark")["figure"].layout.meta
    assert (meta["rows"], meta["columns"]) == ([5, 299], [7])
    labels = PAGE.declared.labels["rows"](more, chosen)
    assert meta["row_names"] == [labels.shown(5), labels.shown(299)]
    assert list(picture(more.workshop, BLOCK, chosen, "light")["figure"].layout.meta["block"]) == [2, 29]
    entries = more.workshop.result(TOP, chosen)
    column = int(entries.columns.ids[entries.n_largest])
    cell = lines(more, TOP, chosen)[1]["rows"][0][2]
    assert cell["pick"] == {"column": {"value": column, "label": labels.shown(column)}, "beside": "lines"}


def test_composition_is_told_once_for_mssa_and_leads_through_the_earlier_head(more: Views):
    chosen = ask(more, "tiny-mssa", head=(1, 0), z=5)
    result = more.workshop.result(COMPOSITION, chosen)
    assert set(result.modes) == {"qk", "v"}
    says(COMPOSITION.caption(chosen, result), "one matrix")
    for at, row in enumerate(lines(more, COMPOSITION, chosen)[0]["rows"]):
        through = row[2]["pick"]
        side = "right" if result.modes[at] == "qk" else "left"
        assert list(through["head"]) == result.later[at].tolist()
        assert through["kind"] == ("qk" if side == "right" else "ov")
        assert through[side] == "{}.{}".format(*result.earlier[at])
        assert through["left" if side == "right" else "right"] is None
    says(COMPOSITION.missing(ask(more, "tiny-plain")) or "", "one layer")


def test_a_score_of_1_by_construction_is_called_that(more: Views):
    chosen = ask(more, "tiny-tied", kind="ov")
    says(EIGENVALUES.caption(chosen, more.workshop.result(EIGENVALUES, chosen)), "by construction")
    plain = ask(more, "tiny-plain", kind="ov")
    said = EIGENVALUES.caption(plain, more.workshop.result(EIGENVALUES, plain))
    assert "by construction" not in said and "Copying score" in said


def test_copying_marks_the_chosen_head_and_of_a_large_model_is_of_it_alone(
    more: Views, monkeypatch: pytest.MonkeyPatch
):
    chosen = ask(more, "tiny-mhsa", head=(1, 1))
    rows = lines(more, COPYING, chosen)[0]["rows"]
    assert [row[0]["text"] for row in rows if row[0]["class"] == "here"] == ["1.1"] and len(rows) == 6
    monkeypatch.setattr("aotlens.views.circuit_parameters.MOST_COPYING", 0.0)
    result = more.workshop.result(COPYING, chosen)
    assert result.heads == ((1, 1),)
    says(COPYING.caption(chosen, result), "Only this head's")


def test_work_of_too_large_a_model_is_refused_before_it_starts(more: Views):
    for view in FAMILY.views:
        chosen = ask(more, "tiny-mhsa", head=(1, 1))
        assert 0 < view.cost(chosen) < more.core.settings.max_operations, view.name
    assert OVERVIEW.cost(chosen) == pytest.approx(0.1 * 2 * 300**2 * chosen.config.d_head)


def test_files_have_the_exact_values_and_nothing_missing_is_saved(more: Views):
    chosen = ask(more, "tiny-mhsa", head=(1, 0))
    circuit = circuit_of(more, chosen)
    matrix = (circuit.A.detach().double() @ circuit.B.detach().double()).numpy()
    for view in (MAP, TOP, BLOCK):
        frame = view.frame(more.workshop.result(view, chosen))
        np.testing.assert_allclose(frame.nats, matrix[frame.row, frame.column], rtol=1e-12)
    assert table(more.workshop, TOP, chosen).name == "tiny-mhsa-head-1.0-qk-tokens-tokens-top.csv"
    with pytest.raises(RequestError, match="eigenvalues"):
        table(more.workshop, EIGENVALUES, ask(more, "tiny-mhsa", left="tokens", right="positions"))
