"""The Python that a view prints, executed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from aotlens.views import View


def same_by_python(view: View, params: Any) -> Any:
    """Return the view's result, whose table and figure the printed Python must give, too."""
    result, space = view.result(params), {}
    exec(view.python(params), space)
    pd.testing.assert_frame_equal(space["table"], view.frame(result))
    if view.pictured:
        assert space["figure"].to_json() == view.figure(params, result).to_json()
    return result
