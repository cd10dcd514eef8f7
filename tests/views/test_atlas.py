"""Views of an atlas without an app: the executed call gives the result, its table and its figure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aotlens.checkpoints import find_checkpoint
from aotlens.heads import find_atlas
from aotlens.views import family
from aotlens.views.atlas import CIRCUIT, FAMILY, HEADS, SCORES, SUMMARY
from tests.messages import refused, says
from tests.views.executed import same_by_python

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.fixture
def params(real_bundled_folder):
    return FAMILY.parse("novels-2l-mhsa", where="layer = 1", head="1.3", y="entropy", bin="4")


@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
def test_its_python_gives_its_result_table_and_figure(view, params) -> None:
    result = same_by_python(view, params)
    assert "novels-2l-mhsa" in view.file(params) and view.caption(params, result)


def test_a_distillation_stands_next_to_the_stored_atlas(params) -> None:
    assert params.distillation == "novels-2l-mhsa"
    assert HEADS.frame(HEADS.result(params))["ffn_error"].notna().all()
    assert "ffn_error" not in HEADS.frame(HEADS.result(replace(params, distillation=None)))


def test_a_search_that_cannot_be_read_says_what_is_meant(params) -> None:
    for view in (HEADS, SCORES):
        with refused("Did you mean layer"):
            view.result(replace(params, where="leyer = 1"))


def test_scores_are_those_of_the_atlas(params) -> None:
    options = params.limits()["x"].options
    table = find_atlas(find_checkpoint("novels-2l-mhsa")).atlas.to_frame()
    named = {name for name in table.select_dtypes("number") if not name.endswith(("_low", "_high"))}
    assert set(options) >= named - {"layer", "head"}
    assert next(iter(options)) == "induction_random" and params.x is None
    with refused("x: expected one of induction_random"):
        FAMILY.parse("novels-2l-mhsa", x="nonsense")


def test_an_atlas_of_a_text_is_made_as_it_is_asked_for(params) -> None:
    of_text = FAMILY.parse("novels-2l-mhsa", corpus="file:text.txt", tokens=4096)
    lines = CIRCUIT.python(of_text)
    assert "text = aotlens.data.open_corpus('file:text.txt')\n" in lines and "n_tokens=4096" in lines
    assert lines.count("aotlens.load('novels-2l-mhsa')") == 1


def test_what_a_model_with_mlps_leaves_out_is_said(params) -> None:
    with_mlps = replace(params, model={**params.model, "d_mlp": 64})
    says(SUMMARY.caption(with_mlps, SUMMARY.result(params)), "Head 1.3: ", "MLPs (d_mlp = 64)", "(stored)")
    assert "MLPs" not in SUMMARY.caption(params, SUMMARY.result(params))


def test_a_stored_atlas_of_other_weights_is_none() -> None:
    info = replace(find_checkpoint("novels-2l-mhsa"), weights_sha256="0" * 64)
    assert find_atlas(info) is None and find_atlas(replace(info, name="nowhere")) is None
    says(SUMMARY.missing(family("atlas").parse(info)), "No atlas of novels-2l-mhsa is stored")
