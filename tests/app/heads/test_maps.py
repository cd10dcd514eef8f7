"""The routes of the Heads page's maps: the library's numbers, a notebook's bytes, and what cannot be shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.core import Core
from tests.widget.decoded import decoded, unpacked

TEXT = "The captain bowed"


def get(app: Any, question: str) -> Any:
    return app.server.test_client().get(question, headers={"Host": "localhost"})


def test_maps_are_the_librarys_and_the_bytes_are_those_of_a_notebook(app, services: Core):
    from aotlens.notebook import show

    model = services.catalog.load("tiny-mhsa").model
    header, arrays = unpacked(get(app, f"/maps?checkpoint=tiny-mhsa&text={TEXT}").data)
    view = show(model, TEXT, live=False)
    assert [array.tobytes() for array in arrays] == [array.tobytes() for array in view.maps.arrays]
    shared = header.keys() & view.maps.header.keys() - {"name", "arrays"}
    assert {key: header[key] for key in shared} == {key: view.maps.header[key] for key in shared}
    values, half = decoded(header, arrays[0])
    assert (np.abs(values - view.patterns.pattern) <= half).all()


@pytest.mark.parametrize("view", ["attention", "weighted", "scores"])
def test_a_line_is_exact(app, services: Core, view: str):
    patterns = services.inference.analyse("tiny-mhsa", TEXT).patterns
    exact = {"attention": patterns.pattern, "weighted": patterns.value_weighted(), "scores": patterns.scores}[view]
    answer = get(app, f"/maps/line?checkpoint=tiny-mhsa&text={TEXT}&view={view}&head=1.2&position=3")
    row, column = np.frombuffer(answer.data, "<f4").reshape(2, -1)
    np.testing.assert_array_equal(row[:4], exact[1, 2, 3, :4])
    np.testing.assert_array_equal(column[3:], exact[1, 2, 3:, 3])
    assert np.isnan(row[4:]).all() and np.isnan(column[:3]).all()


def test_heads_that_are_off_are_off(app, services: Core):
    _, arrays = unpacked(get(app, f"/maps?checkpoint=tiny-mhsa&text={TEXT}&off=0.1").data)
    whole = unpacked(get(app, f"/maps?checkpoint=tiny-mhsa&text={TEXT}").data)[1]
    same = (arrays[0] == whole[0]).reshape(2, 3, -1).all(-1)
    assert same[0].all() and not same[1].any()


@pytest.mark.parametrize(
    ("question", "status", "says"),
    [
        ("/maps?checkpoint=tiny-mhsa&text=" + "x" * 3000, 204, ""),
        ("/maps?checkpoint=none", 204, ""),
        ("/maps?checkpoint=tiny-fixed&text=ab&view=scores", 200, "has a fixed pattern"),
        ("/maps?checkpoint=tiny-mhsa&text=ab&off=0.1&how=mean", 200, "choose a corpus"),
        ("/maps/line?checkpoint=tiny-mhsa&text=ab&head=7.1&position=1", 200, "has no head 7.1"),
        ("/maps/line?checkpoint=tiny-mhsa&text=ab&position=9", 200, "isn't in this text"),
    ],
)
def test_what_cannot_be_shown_is_said(app, question: str, status: int, says: str):
    answer = get(app, question)
    assert answer.status_code == status and says in answer.text and "Traceback" not in answer.text
    assert answer.mimetype == ("application/json" if says else "text/html")
