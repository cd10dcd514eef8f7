"""Views of an atlas without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from aotlens.views import make
from aotlens.views.atlas import CIRCUIT, EXAMPLES, HEADS, LOSSES, MOTIFS, PARTNERS, SCORES, WEIGHTS, AtlasParameters

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

CHOSEN = AtlasParameters(
    checkpoint="novels-2l-mhsa", distillation="novels-2l-mhsa", where="layer = 1", readable="layer = 1", head=(1, 3),
    y="entropy", bin=4,
)  # fmt: skip


@pytest.mark.parametrize("view", [HEADS, SCORES, EXAMPLES, MOTIFS, WEIGHTS, LOSSES, PARTNERS], ids=lambda one: one.name)
def test_its_python_gives_its_result_table_and_figure(view) -> None:
    result = view.result(CHOSEN)
    space: dict[str, object] = {}
    exec(view.python(CHOSEN), space)
    pd.testing.assert_frame_equal(space["table"], view.frame(result))
    if view.pictured:
        assert space["figure"].to_json() == view.figure(CHOSEN, result).to_json()
    assert view.file(CHOSEN).startswith("atlas-novels-2l-mhsa") and view.caption(CHOSEN, result)


def test_a_distillation_stands_beside_the_stored_atlas() -> None:
    assert HEADS.frame(HEADS.result(CHOSEN))["ffn_error"].notna().all()
    assert "ffn_error" not in HEADS.frame(HEADS.result(replace(CHOSEN, distillation=None)))


def test_a_search_that_cannot_be_read_leaves_the_picture() -> None:
    chosen = replace(CHOSEN, where="leyer = 1", readable="")
    assert SCORES.caption(chosen, SCORES.result(chosen)) == "8 heads"
    with pytest.raises(ValueError, match="Did you mean layer"):
        HEADS.result(chosen)


def test_an_atlas_of_another_text_is_made_as_it_was_and_another_of_its_name_is_told_from_it() -> None:
    text = make("aotlens.data.open_corpus", "file:text.txt")
    chosen = AtlasParameters(checkpoint="mine", corpus=text, tokens=4096, stamp=7)
    lines = CIRCUIT.python(chosen)
    assert "text = aotlens.data.open_corpus('file:text.txt')\n" in lines and "n_tokens=4096" in lines
    assert lines.count("aotlens.load('mine')") == 1 and CIRCUIT.key(chosen) != CIRCUIT.key(replace(chosen, stamp=8))
