"""Heads as points: every head with both numbers is one, in its label's trace, and the chosen one has a ring."""

from __future__ import annotations

import aotlens
from aotlens.heads import find_heads, stored_atlas


def test_a_point_a_head_by_label() -> None:
    atlas = stored_atlas("novels-2l-mhsa").atlas
    frame = atlas.to_frame()
    figure = aotlens.plot(atlas, x="previous_token", y="copying", head="1.1", theme="dark")
    *traces, ring = figure.data
    points = {name: at for t in traces for name, *at in zip(t.customdata, t.x, t.y, strict=True)}
    expected = {f"{row.layer}.{row.head}": [row.previous_token, row.copying] for row in frame.itertuples()}
    assert points == expected and [ring.x[0], ring.y[0]] == expected["1.1"]
    for trace in traces:
        own = [f"{row.layer}.{row.head}" for row in frame.itertuples() if row.label.replace("_", " ") == trace.name]
        assert list(trace.customdata) == own
    assert figure.layout.xaxis.title.text == "previous token"
    assert "mixed" not in {trace.name for trace in traces[:-1]}, "mixed is last"


def test_heads_that_are_not_found_are_faint() -> None:
    atlas = stored_atlas("novels-2l-mhsa").atlas
    found = find_heads(atlas, "layer = 1")
    opacity = {
        name: shade for trace in aotlens.plot(found).data
        for name, shade in zip(trace.customdata, trace.marker.opacity, strict=True)
    }  # fmt: skip
    assert opacity == {name: 1.0 if name.startswith("1.") else 0.35 for name in opacity} and len(opacity) == 8
