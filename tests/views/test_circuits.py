"""Views of a circuit without an app: what is written becomes a choice, whose executed call gives result and table."""

from __future__ import annotations

import pytest

from aotlens.views import View
from aotlens.views.circuits import EIGENVALUES, FAMILY, MAP
from tests.views.executed import same_by_python

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
def test_its_python_gives_its_result_table_and_figure(view: View) -> None:
    params = FAMILY.parse("novels-1l-mhsa", head="0.3", kind="ov", row=" the", block="3.4")
    if view.name == "composition":
        assert "one layer" in (view.missing(params) or "")
        return
    result = same_by_python(view, params)
    assert view.caption(params, result) and view.cost(params) > 0


def test_what_is_written_is_held_against_the_model() -> None:
    params = FAMILY.parse("novels-2l-mhsa", head="1.0", right="0.2", row="17", column=" the")
    assert (params.head, params.left, params.right, params.row, params.column) == ((1, 0), "tokens", "0.2", 17, " the")
    with pytest.raises(ValueError, match=r"head 2\.0: this model has layers 0 to 1"):
        FAMILY.parse("novels-2l-mhsa", head="2.0")
    with pytest.raises(ValueError, match=r"left: expected one of tokens, positions, bias, residual, got '1\.0'"):
        FAMILY.parse("novels-2l-mhsa", left="1.0")
    positions = FAMILY.parse("novels-2l-mhsa", left="tokens", right="positions")
    assert "columns are positions" in (EIGENVALUES.missing(positions) or "") and MAP.missing(positions) is None
