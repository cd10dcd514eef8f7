"""What a search finds, one head closely, what its circuits are sharpest about, against the atlas and the weights."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import aotlens
from aotlens.circuits import qk_circuit
from aotlens.heads import find_heads, head_summary, sharpest_circuits, stored_atlas
from aotlens.heads.head_search import rows_where

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

ATLAS = stored_atlas("novels-2l-mhsa").atlas


def test_a_search_finds_rows_of_the_table_and_says_what_it_cannot_read() -> None:
    found = find_heads(ATLAS, "induction_random > 0.4")
    assert found.headline == "3 of 8 heads" and find_heads(ATLAS).headline == "8 heads"
    pd.testing.assert_frame_equal(found.to_frame(), ATLAS.to_frame().iloc[[4, 5, 7]])
    with pytest.raises(ValueError, match=r"Heads where 'induktion > 1': there is no column 'induktion'"):
        find_heads(ATLAS, "induktion > 1")


def test_a_picture_has_a_ring_names_what_is_found_and_refuses_what_is_no_score() -> None:
    figure = aotlens.plot(find_heads(ATLAS, "layer = 1"), x="copying", y="entropy", head="0.3")
    shown = {name: text for trace in figure.data[:-1] for name, text in zip(trace.customdata, trace.text, strict=True)}
    assert {name for name, text in shown.items() if text} == {"1.0", "1.1", "1.2", "1.3"} and len(shown) == 8
    assert (figure.data[-1].x[0], figure.data[-1].y[0]) == (ATLAS.copying[0, 3], ATLAS.entropy[0, 3])
    for name in ("nonsense", "layer", "loss_position_mean_low"):
        with pytest.raises(ValueError, match=rf"no score {name}\. There are: margin, "):
            aotlens.plot(ATLAS, x=name)


def test_a_summary_has_the_heads_own_rows() -> None:
    one = head_summary(ATLAS, "1.3")
    assert one.headline == ATLAS.sentence("1.3") and sum(one.counts) == 256 * 254
    assert set(one.to_frame()["motif"]) == set(ATLAS.motifs.motifs)
    partners = one.partner_frame()
    assert [tuple(row) for row in partners.itertuples(index=False)] == [
        ("reads", *each.head, each.mode, each.value, each.z) for each in ATLAS.reads("1.3", 4)
    ]
    losses = one.loss_frame().set_index("how")
    for how, each in ATLAS.ablations.items():
        place = ATLAS.heads.index((1, 3))
        assert tuple(losses.loc[how, ["change", "low", "high"]]) == (each.changes[place], *each.intervals()[place])
        assert losses.loc[how, "together"] == ATLAS.together[how].change


def test_a_bin_without_examples_gives_the_highest_that_has_some() -> None:
    assert head_summary(ATLAS, "1.3", 4).bin == 4 and head_summary(ATLAS, "1.3").bin == 9
    assert ATLAS.examples.counts[0, 0, 0] == 0 and head_summary(ATLAS, "0.0", 0).bin == 9
    one = head_summary(ATLAS, "1.3", 4)
    assert list(one.example_frame()["bin"]) == [4] * len(one.examples) and one.examples == ATLAS.examples.of("1.3", 4)
    with pytest.raises(ValueError, match="layers 0 to 1 and heads 0 to 3"):
        head_summary(ATLAS, "2.0")


def test_the_sharpest_rows_are_those_of_the_whole_circuit() -> None:
    model = aotlens.load("novels-2l-mhsa", device="cpu")
    direct, through, writes = sharpest_circuits(model, ATLAS, "1.3").circuits
    assert "keys through 0.3" in through.title and through.through == (0, 3) and writes.unit == "logits"
    circuit = qk_circuit(model, "1.3", "tokens", "0.3")
    whole = (circuit.A @ circuit.B).double()
    above = whole - (whole.logsumexp(1, keepdim=True) - np.log(whole.shape[1]))
    token = {text: place for place, text in enumerate(model.tokenizer.str_tokens(range(whole.shape[0])))}
    for row, entries, values in zip(through.rows, through.entries, through.values, strict=True):
        best = above[token[row]].topk(3)
        assert [token[entry] for entry in entries] == best.indices.tolist()
        np.testing.assert_allclose(values, best.values, atol=1e-4)
    assert len(direct.rows) == 5
    # Head 1.2 reads no earlier head beyond flipped signs: there is nothing through another one.
    assert [each.through for each in sharpest_circuits(model, ATLAS, "1.2").circuits] == [None, None]


FRAME = pd.DataFrame(
    {
        "layer": [0, 0, 1, 1],
        "head": [0, 1, 0, 1],
        "label": ["previous_token", "mixed", "first_token", "mixed"],
        "induction_random": [0.0, 0.5, 0.9, np.nan],
        "previous_token": [0.9, 0.1, 0.0, 0.2],
        "pattern_consistency": [1.0, 0.5, -0.25, 0.25],
        "reads": ["", "", "0.1 k z=9", "0.0 q z=2"],
    }
)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("induction_random > 0.4", [1, 2]),
        ("induction random>=.5 AND layer=1", [2]),
        ("induction_random <= 0", [0]),
        ("induction_random != 0.9", [0, 1]),  # a head without the number is not found
        ("pattern_consistency < -1e-1", [2]),
        ("layer = 0 and head = 0 or layer == 1 and pattern_consistency > 0", [0, 3]),
        ("mixed", [1, 3]),
        ("Previous Token", [0]),
        ("token and layer = 1", [2]),
        ("label != mixed", [0, 2]),
        ("reads = 0.1 K z=9", None),
        ("head = 1.0", [2]),
        ("head != 1.0 and layer = 1", [3]),
        ("0.1", [1]),
        ("head > 0.5", [1, 3]),
    ],
)  # fmt: skip
def test_what_is_found(search: str, found: list[int] | None) -> None:
    if found is None:
        with pytest.raises(ValueError, match="expected a column"):
            rows_where(FRAME, search)
    else:
        assert rows_where(FRAME, search).nonzero()[0].tolist() == found


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("induktion > 0.4", r"no column 'induktion'\. Did you mean induction random\?"),
        ("zzz = 1", r"no column 'zzz'\. There are layer, head, label"),
        ("pattern_consistency > high", "pattern_consistency is a number, so expected one after >, got 'high'"),
        ("label > 3", "label is a text, so expected = or !=, got >"),
        ("pattern_consistency", "is a column: compare it with something, as pattern_consistency > 0.4"),
        ("bracket", "no head has such a label; there are first token, mixed, previous token"),
        ("pattern_consistency > 0.1 > 0", "expected a column, one of"),
        ("x" * 301, "at most 300 characters, got 301"),
        ("__import__('os') = 1", "there is no column"),
    ],
)
def test_what_cannot_be_read_is_said(search: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_where(FRAME, search)
