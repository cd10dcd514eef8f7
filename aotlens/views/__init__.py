"""One declaration per analysis: its call, figure, table, sentences; read by pages, commands, reports and sweeps.

    from aotlens.views import regression

    values = regression.values("regression-5d-mhsa", nonzero=2)
    scores = regression.SUPPORT.result(values)
    print(regression.SUPPORT.caption(values, scores))
    print(regression.SUPPORT.python(values))

calls.py        calls of the library as values, run and printed
view.py         what a view is
regression.py   in-context regression
"""

from __future__ import annotations

from aotlens.views.calls import Call, Load, Part, Workshop, call, make
from aotlens.views.view import About, Parameter, View

__all__ = ["About", "Call", "Load", "Parameter", "Part", "View", "Workshop", "call", "make"]
