"""Texts of more tokens than all patterns are held of: maps by blocks and tiles, and what else a page says of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.heads import attention_patterns
from aotlens.plots.colours import lookup
from app.core import Core
from app.core.settings import Settings
from app.factory import create_app
from app.pages.heads.ids import ids
from app.shell.app import App
from tests.app.conftest import TEXT, choose, head_drawn, save_tiny, serve
from tests.widget.decoded import unpacked

#: A length that no block of 9 entries and no tile of 512 divides.
CONTEXT, HOST = 2050, {"Host": "localhost"}
#: The large map: what is in sight, where it is drawn, and how many tiles and numbers it waits for.
_STATE = """() => { const { map } = document.querySelector("#heads-map-canvas"), maps = map.of();
    return { shown: map.shown, ...map.place, waiting: maps.wanted.length + maps.flying.size }; }"""
_DRAWN = f"() => {{ const {{ shown, waiting }} = ({_STATE})(); return shown[2] === 40 && !waiting; }}"
_ZOOM = """() => new Promise((drawn) => { const { map } = document.querySelector("#heads-map-canvas");
    map.heads.addEventListener("drawn", drawn, { once: true });
    map.zoom([1500, 1300, 40]); })"""
_PIXELS = """([left, top, unit, span]) => {
    const pen = document.querySelector("#heads-map-canvas").map.canvas.getContext("2d");
    const all = Array.from({ length: span }, (_, place) => (place + .5) * unit);
    return all.map(y => all.map(x => [...pen.getImageData(left + x, top + y, 1, 1).data.slice(0, 3)])); }"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    folder = tmp_path_factory.mktemp("long")
    save_tiny(folder, "tiny-long", n_ctx=CONTEXT, init_std=0.6, history=False)
    settings = Settings(checkpoints=(folder,), device="cpu", first_checkpoint="tiny-long")
    return create_app(settings, Core.start(settings))


@pytest.fixture(scope="module")
def address(app: App) -> Iterator[str]:
    with serve(app) as address:
        yield address


@pytest.fixture(scope="module")
def text(app: App) -> str:
    """A text of exactly as many tokens as the context takes."""
    model = app.core.catalog.load("tiny-long").model
    pieces = model.to_str_tokens(TEXT * 60, prepend_bos=False)[: CONTEXT - 1]
    text = "".join(pieces)
    assert model.to_tokens(text).shape[1] == CONTEXT
    return text


@pytest.fixture(scope="module")
def pattern(app: App, text: str) -> np.ndarray:
    """`[layer, head, query, key]`, as the library makes it whole."""
    model = app.core.catalog.load("tiny-long").model
    return attention_patterns(model, model.to_tokens(text)[0]).pattern


@pytest.fixture
def get(app: App, text: str) -> Any:
    def ask(path: str, **rest: Any) -> Any:
        said = {"checkpoint": "tiny-long", "text": text, **rest}
        return app.server.test_client().get(path, query_string=said, headers=HOST)

    return ask


def biggest(values: np.ndarray, block: int) -> np.ndarray:
    """The largest entry of each block of a pattern, in which none is negative."""
    padded = np.pad(values, [(0, -size % block) for size in values.shape])
    return padded.reshape(-(-len(values) // block), block, -1, block).max((1, 3))


def test_all_heads_are_their_largest_entries(get: Any, pattern: np.ndarray):
    answer = get("/maps")
    header, (rest, first) = unpacked(answer.data)
    assert header["positions"] == CONTEXT and len(answer.data) <= 4e6
    block, tops = header["block"], np.array(header["tops"]).reshape(2, 3, 2)
    side = -(-CONTEXT // block)
    rest, first = rest.reshape(2, 3, side, side), first.reshape(2, 3, side)
    for head in np.ndindex(2, 3):
        later = pattern[head].copy()
        later[:, 0] = 0
        expected = biggest(later, block)
        np.testing.assert_allclose(rest[head] / 255 * tops[head][1], expected, atol=tops[head][1] / 255)
        np.testing.assert_allclose(tops[head], [pattern[head][:, 0].max(), later.max()], rtol=1e-3)
        expected = biggest(pattern[head][:, :1], block)[:, 0]
        np.testing.assert_allclose(first[head] / 255 * tops[head][0], expected, atol=tops[head][0] / 255)


@pytest.mark.parametrize(("block", "row", "column"), [(1, 3, 1), (1, 4, 4), (2, 1, 0), (4, 1, 0)])
def test_a_tile_is_that_part(get: Any, pattern: np.ndarray, block: int, row: int, column: int):
    tops = np.array(unpacked(get("/maps").data)[0]["tops"]).reshape(2, 3, 2)[1, 2]
    header, (rest, first) = unpacked(get("/maps/tile", head="1.2", block=block, row=row, column=column).data)
    side, later = 512 * block, pattern[1, 2].copy()
    later[:, 0] = 0
    rows, columns = slice(row * side, (row + 1) * side), slice(column * side, (column + 1) * side)
    expected = biggest(later[rows, columns], block)
    assert [header["rows"], header["columns"]] == list(expected.shape)
    np.testing.assert_allclose(rest.reshape(expected.shape) / 255 * tops[1], expected, atol=tops[1] / 255)
    if column == 0:
        expected = biggest(pattern[1, 2][rows, :1], block)[:, 0]
        np.testing.assert_allclose(first / 255 * tops[0], expected, atol=tops[0] / 255)


def test_a_line_is_exact(get: Any, pattern: np.ndarray):
    row, column = np.frombuffer(get("/maps/line", head="1.2", position=700).data, "<f4").reshape(2, -1)
    np.testing.assert_allclose(row[:701], pattern[1, 2, 700, :701], rtol=1e-4, atol=1e-6)  # another order of sums
    np.testing.assert_allclose(column[700:], pattern[1, 2, 700:, 700], rtol=1e-4, atol=1e-6)  # another order of sums
    assert np.isnan(row[701:]).all() and np.isnan(column[:700]).all()


@pytest.mark.parametrize(
    ("path", "rest", "says"),
    [
        ("/maps/tile", {"head": "1.2", "block": 3, "row": 0, "column": 0}, "blocks are 1, 2, 4"),
        ("/maps/tile", {"head": "1.2", "block": 1, "row": 5, "column": 0}, "There is no tile 5, 0"),
        ("/maps/tile", {"head": "1.2", "block": 1, "row": "x", "column": 0}, "There is no tile -1, 0"),
        ("/maps/tile", {"head": "1.7", "block": 1, "row": 0, "column": 0}, "has no head 1.7"),
        ("/maps/tile", {"text": "ab", "head": "1.2", "block": 1, "row": 0, "column": 0}, "come whole"),
        ("/maps/line", {"head": "1.2", "position": 2050}, "isn't in this text"),
        ("/maps", {"off": "0.1", "how": "mean"}, "ablated by zero only"),
    ],
)
def test_what_cannot_be_shown_is_said(get: Any, path: str, rest: dict[str, Any], says: str):
    answer = get(path, **rest)
    assert answer.mimetype == "application/json" and says in answer.text and "Traceback" not in answer.text


def test_the_limit_is_the_context_and_others_keep_theirs(app: App, text: str):
    core, loaded = app.core, app.core.catalog.load("tiny-long")
    assert core.inference.token_limit(loaded, long=True) == CONTEXT and core.inference.token_limit(loaded) == 512
    with pytest.raises(ValueError, match=r"2,050 tokens.*at most 512.*maps of Heads take 2,050"):
        core.inference.analyse("tiny-long", text)
    with pytest.raises(ValueError, match=r"at most 2,050 \(its context\)"):
        core.inference.analyse("tiny-long", text + TEXT, long=True)


def test_zoom_brings_tiles_and_the_numbers_are_the_patterns(open_page: Any, app: App, text: str, pattern: np.ndarray):
    key = app.server.test_client().post("/texts", data=text.encode(), headers=HOST).text
    page, answers = open_page("/", load=True), []
    page.on("response", lambda answer: answers.append(answer) if re.search("/maps[?/]", answer.url) else None)
    page.goto(f"{page.url.rstrip('/')}/heads?checkpoint=tiny-long&head=1.2&text={key}")
    head_drawn(page, "Head 1.2")
    expect(page.locator(f"#{ids.COUNT}")).to_have_text("2,050 of at most 2,050 tokens")
    expect(page.locator("#heads-motifs-line")).to_contain_text("the largest of a block")
    page.evaluate(_ZOOM)
    page.wait_for_function(_DRAWN)
    state = page.evaluate(_STATE)
    (query, key, span), unit = state["shown"], state["side"] / 40
    assert (query, key, span) == (1500, 1300, 40)
    pixels = np.array(page.evaluate(_PIXELS, [state["left"], state["top"], unit, span])).astype(int)
    part, colours = pattern[1, 2, 1500:1540, 1300:1340], lookup("sequential", "light", 256).astype(int)
    expected = colours[np.rint(255 * part / pattern[1, 2].max()).astype(int)]
    # An entry is a step of its own scale, shown as a step of the whole map's.
    assert np.abs(pixels - expected).max() <= 2 * np.abs(np.diff(colours, axis=0)).max()
    assert part.max() > 0.05 * pattern[1, 2].max(), "the part shows something"

    box = page.locator("#heads-map-canvas canvas").bounding_box()
    page.mouse.move(box["x"] + state["left"] + 10.5 * unit, box["y"] + state["top"] + 20.5 * unit)
    number = f"attention {pattern[1, 2, 1520, 1310]:.4f}"
    expect(page.locator("#heads-map-canvas .map-tip b")).to_have_text(number)
    choose(page, page.get_by_role("tab", name="Predicted token").click)
    expect(page.locator("#heads-next")).to_contain_text("takes at most 512")
    assert any("/maps/tile" in answer.url for answer in answers)
    assert max(len(answer.body()) for answer in answers) <= 4e6
