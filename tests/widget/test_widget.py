"""The widget's module by itself in Chromium: its pixels and numbers against numpy, its keys, its files, and axe."""

from __future__ import annotations

import base64
import gzip
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect

from aotlens.plots.colours import Scale, Theme, lookup
from aotlens.widget import HeadMaps, looks, module, pack, packed
from tests.widget.decoded import decoded, unpacked

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


N = 64
THEMES: tuple[Theme, ...] = ("light", "dark")
#: The large map's part of the element, and where it draws.
_PART = """const { heads } = document.querySelector("aotlens-heads");
    const part = [...heads.parts.values()].find(one => one.place);
    const { left, top, side } = part.place, { n } = part.of(), [q0, k0, span] = part.shown, unit = side / span;"""
#: The canvas's pixel in the middle of every entry, [query, key, red green blue alpha].
_PIXELS = f"""() => {{ {_PART}
    const {{ width, height }} = part.canvas, all = Array.from({{ length: n }}, (_, place) => place);
    const {{ data }} = part.canvas.getContext("2d").getImageData(0, 0, width, height);
    const at = (q, k) => 4 * (Math.floor(top + (q + .5) * unit) * width + Math.floor(left + (k + .5) * unit));
    return all.map(q => all.map(k => [...data.slice(at(q, k), at(q, k) + 4)]));
}}"""


def maps_of(signed: bool = False, n: int = N, shape: tuple[int, int] = (2, 3)) -> HeadMaps:
    """Random entries below the diagonal, of which those of position 0 are forty times as large."""
    values = np.random.default_rng(3).random((*shape, n, n), dtype=np.float32) - (0.5 if signed else 0)
    values[..., 0] *= 40
    visible = np.tril(np.ones((1, n, n), dtype=bool))
    return HeadMaps(
        values=values * visible, str_tokens=[f" t{each}" for each in range(n)], visible=visible, head=(1, 2)
    )


@pytest.fixture
def show(chromium: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a page with the element alone, without a network; a console with nothing in it."""
    trouble: list[str] = []
    contexts = []

    def open_page(maps: HeadMaps, scheme: Any = "light", width: int = 1440) -> Page:
        context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        html = f'<aotlens-heads data-packed="{packed(maps.header, maps.arrays)}"></aotlens-heads>'
        style = "<style>:root { color-scheme: light dark } body { background: light-dark(#fff, #242424) }</style>"
        start = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>maps</title>{style}<main>{html}</main>'
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(f'{start}<script type="module">{module(app=True)}</script>', encoding="utf-8")
        page.goto(file.as_uri())
        page.wait_for_selector("aotlens-heads[data-head]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def place(page: Page, query: int, key: int) -> tuple[float, float]:
    """Where an entry of the large map is in the window."""
    x, y = page.evaluate(
        f"""([query, key]) => {{ {_PART}
            const box = part.canvas.getBoundingClientRect();
            return [box.left + left + (key - k0 + .5) * unit, box.top + top + (query - q0 + .5) * unit]; }}""",
        [query, key],
    )
    return x, y


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("hides", [False, True])
def test_every_entry_has_the_colour_of_its_value(show, theme: Theme, signed: bool, hides: bool):
    """Against Python's table of the scale, to the nearest of its 255 steps or the one beside it."""
    maps = maps_of(signed)
    page = show(maps, theme)
    if hides:
        page.locator("input[type=checkbox]").first.check()
        page.wait_for_function("() => document.querySelector('aotlens-heads').heads.frame === 0")
    pixels = np.array(page.evaluate(_PIXELS))
    values, seen = maps.values[1, 2].astype(np.float64), maps.visible[0].copy()
    if hides:
        seen[:, 0] = False
    scale: Scale = "diverging" if signed else "sequential"
    colours = lookup(scale, theme, 255 if signed else 256).astype(int)
    top = np.abs(values[seen]).max()
    step = np.clip(np.rint(127 + 127 * values / top if signed else 255 * values / top), 0, len(colours) - 1).astype(int)
    near = np.stack([colours[np.clip(step + by, 0, len(colours) - 1)] for by in (-1, 0, 1)])
    off = np.abs(near - pixels[None, ..., :3]).max(-1).min(0)
    assert (off[seen] <= 1).all(), np.argwhere((off > 1) & seen)[:5]
    assert (pixels[..., 3] == 255 * seen).all(), "what no query sees is not drawn"


def test_nothing_covers_position_0_in_a_tile(show):
    """Its column, from the first query to the last, is on the screen as in the array, and so is a tile's last key."""
    values = np.zeros((2, 3, N, N), dtype=np.float32)
    values[..., 0] = values[..., -1] = values[..., 0, :] = values[..., -1, :] = 1
    page = show(HeadMaps(values=values, str_tokens=["t"] * N, visible=np.ones((1, N, N), dtype=bool)))
    for number in range(6):
        box = page.locator(".cell canvas").nth(number).bounding_box()
        screen = np.array(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)
        x, y, side = round(box["x"]), round(box["y"]), round(box["width"])
        tile = screen[y : y + side, x : x + side]
        darkest = lookup("sequential", "light", 256)[-1]
        for edge in (tile[:, 0], tile[:, -1], tile[0], tile[-1]):
            assert (np.abs(edge - darkest).max(-1) <= 2).all(), number


def test_a_small_tile_shows_the_largest_entry_of_each_block(show):
    values = np.zeros((1, 1, 300, 300), dtype=np.float32)
    values[0, 0, 211, 97] = values[0, 0, 17, 0] = 0.5
    page = show(HeadMaps(values=values, str_tokens=["t"] * 300, visible=np.ones((1, 300, 300), dtype=bool)))
    dark = page.evaluate(
        """() => { const canvas = document.querySelector("aotlens-heads").shadowRoot.querySelector(".cell canvas");
                   const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                   const places = [...Array(width * width).keys()].filter(place => data[4 * place] < 50);
                   return [width, places.map(place => [Math.floor(place / width), place % width])]; }"""
    )
    width, places = dark
    block = int(np.ceil(300 / width))
    assert width < 300 and places == [[17 // block, 0], [211 // block, 97 // block]]


@pytest.mark.parametrize("signed", [False, True])
def test_the_pointer_is_told_both_tokens_and_the_number(show, signed: bool):
    maps = maps_of(signed)
    page = show(maps)
    for query, key in ((20, 0), (20, 7), (63, 62)):
        page.mouse.move(*place(page, query, key))
        tip = page.locator(".map-tip")
        expect(tip).to_contain_text(f"query  ·t{query} ({query})")
        expect(tip).to_contain_text(f"key  ·t{key} ({key})")
        part = np.abs(maps.values[1, 2][:, :1] if key == 0 else maps.values[1, 2][:, 1:]).max()
        said = float(re.findall(r"attention (-?[\d.]+)", tip.inner_text())[0])
        half = part / (254 if signed else 510)
        assert abs(said - maps.values[1, 2, query, key]) <= 2 * half, "half a step, and what rounding of the text adds"
    page.mouse.move(*place(page, 3, 40))
    expect(page.locator(".said")).to_contain_text("not visible")


def test_tokens_are_shaded_by_the_row_or_by_the_column(show):
    maps = maps_of()
    page = show(maps)
    page.locator(".chip").nth(30).click()
    for direction in ("to", "from"):
        if direction == "from":
            page.locator("input[type=checkbox]").nth(1).check()
            page.wait_for_function("() => document.querySelector('aotlens-heads').dataset.key === '30'")
        shades = "all => all.map(chip => parseFloat(chip.style.getPropertyValue('--heat')))"
        heat = np.array(page.locator(".chip").evaluate_all(shades))
        line = maps.values[1, 2, 30] if direction == "to" else maps.values[1, 2, :, 30]
        # Shades are whole per cents, and entries steps of a byte.
        np.testing.assert_allclose(heat, 100 * line / line.max(), atol=0.8)


def test_exact_numbers_are_asked_of_one_token_at_a_time_and_of_the_last(show):
    page = show(maps_of())
    asked = page.evaluate(
        """async () => {
            const { heads } = document.querySelector("aotlens-heads"), asked = [], answers = [];
            const line = () => ({ row: new Float32Array(64), column: new Float32Array(64) });
            heads.ask = (maps, head, position) => new Promise(done => {
                asked.push(position);
                answers.push(() => done(line()));
            });
            for (const position of [5, 6, 7, 8]) { heads.point({ position }); heads.exact(); } // it rests on each
            const before = [...asked];
            while (answers.length) { answers.shift()(); await new Promise(done => setTimeout(done)); }
            return [before, asked];
        }"""
    )
    assert asked == [[5], [5, 8]]


def test_keys_walk_lock_and_let_go(show):
    page = show(maps_of())
    host = page.locator("aotlens-heads")
    page.locator(".cell-chosen").focus()
    for key, head in (("ArrowLeft", "1.1"), ("ArrowUp", "0.1"), ("ArrowUp", "0.1"), ("ArrowRight", "0.2")):
        page.keyboard.press(key)
        expect(host).to_have_attribute("data-head", head)
    page.locator("canvas.map").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(host).to_have_attribute("data-held", "true")
    expect(page.locator(".said")).to_contain_text("Head 0.2: ·t2 (2) → ·t1 (1)")
    page.keyboard.press("Escape")
    expect(host).to_have_attribute("data-held", "false")
    page.locator(".chip").first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".chip-locked")).to_have_attribute("data-position", "2")


def test_a_thousand_tokens_are_zoomed_to_single_entries(show):
    n = 1024
    values = np.zeros((1, 1, n, n), dtype=np.float32)
    values[0, 0, 700, 300] = 0.75
    page = show(HeadMaps(values=values, str_tokens=["t"] * n, visible=np.tril(np.ones((1, n, n), dtype=bool))))
    page.locator("canvas.map").scroll_into_view_if_needed()
    page.mouse.move(*place(page, 700, 300))
    for _ in range(12):
        page.mouse.wheel(0, -240)
        page.wait_for_timeout(30)
        page.mouse.move(*place(page, 700, 300))
    unit = f"() => {{ {_PART} return unit; }}"
    assert page.evaluate(unit) > 10
    expect(page.locator(".map-tip")).to_contain_text("attention 0.750")
    x, y = place(page, 700, 300)
    page.mouse.down()
    page.mouse.move(x - 40, y - 40, steps=4)
    page.mouse.up()
    expect(page.locator("aotlens-heads")).to_have_attribute("data-held", "false")
    moved = place(page, 700, 300)
    assert np.allclose(moved, (x - 40, y - 40), atol=12), "a drag moves the map and locks nothing"
    page.mouse.dblclick(*moved)
    page.wait_for_function(f"() => {{ {_PART} return part.window === null; }}")


def test_labels_do_not_overlap(show):
    """Of 300 tokens those stand at the axes that have room, and the locked one always."""
    page = show(maps_of(n=300, shape=(2, 3)))
    page.locator(".chip").nth(31).click()
    gaps, names = page.evaluate(
        f"""() => {{ {_PART}
            const told = [], pen = {{ text: (...given) => told.push(given) }}, colours = part.of().themes.light;
            part.labels(pen, {{ left, top, side, unit, names: part.of().tokens, colours, span: [0, 0, n] }});
            const down = told.filter(([, , , {{ turned }}]) => !turned).map(([, , y]) => y).sort((a, b) => a - b);
            return [down.slice(1).map((y, i) => y - down[i]), told.map(([text]) => text)]; }}"""
    )
    assert min(gaps) >= 11.9 and "·t31" in names


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_serious(show, theme: Theme):
    page = show(maps_of(), theme, 800)
    page.locator(".chip").nth(9).click()
    found = Axe().run(page).response["violations"]
    serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    assert not serious, [(rule["id"], [node["html"][:120] for node in rule["nodes"]]) for rule in serious]
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


def test_pictures_are_files_of_the_same_drawing(show):
    maps = maps_of()
    page = show(maps)
    files = page.evaluate(
        f"""async () => {{ {_PART}
            const [png, svg] = await Promise.all(["png", "svg"].map(format => part.file(format)));
            return [png.name, [...new Uint8Array(await png.content.arrayBuffer())], await svg.content.text()]; }}"""
    )
    picture = Image.open(io.BytesIO(bytes(files[1]))).convert("RGB")
    assert files[0] == "head 1.2 · attention" and picture.size == (1800, 1640)
    said = re.sub(r"<[^>]+>", " ", files[2])
    for text in ("head 1.2 · attention", "·t8", "query (destination)", "key (source)", "0"):
        assert text in said, text
    image = re.findall(r'href="data:image/png;base64,([^"]+)"', files[2])
    inner = np.array(Image.open(io.BytesIO(base64.b64decode(image[0]))).convert("RGBA"))
    assert inner.shape == (N, N, 4) and (inner[..., 3] == 255 * maps.visible[0]).all()


#: Draws two runs side by side: their packed arrays, heads, and positions that correspond.
_BESIDE = """([left, right, heads, places]) => {
    const { parts } = customElements.get("aotlens-heads");
    const mapsOf = (base64) => parts.Maps.of(Uint8Array.from(atob(base64), (one) => one.charCodeAt(0)));
    const both = (window.both = new parts.SideBySide());
    for (const side of ["left", "right", "difference"]) {
        const box = Object.assign(document.createElement("div"), { id: side });
        box.style = "height: 400px; width: 400px";
        document.body.append(box);
        both.panes[side].part(parts.LargeMap, box);
    }
    const aligned = !places.some(([a, b]) => a !== b);
    both.set({ left: mapsOf(left), right: mapsOf(right), heads, places, aligned });
}"""
_BESIDE_PIXELS = """side => {
    const { canvas, place: { left, top, side: size }, maps: { n } } = document.getElementById(side).map;
    const { width, height } = canvas, unit = size / n, all = [...Array(n).keys()];
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    const at = (q, k) => 4 * (Math.floor(top + (q + .5) * unit) * width + Math.floor(left + (k + .5) * unit));
    return all.map(q => all.map(k => [...data.slice(at(q, k), at(q, k) + 4)]));
}"""


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("aligned", [True, False])
def test_two_runs_have_one_scale_and_their_difference_is_exact(show, theme: Theme, aligned: bool):
    """Against numpy: the colours of both maps and of right − left, and the number of an entry in the page's words."""
    n, heads = 24, ((1, 2), (0, 1))
    generator = np.random.default_rng(5)
    left, right = maps_of(n=n), maps_of(n=n)
    object.__setattr__(right, "values", left.values * generator.uniform(0.98, 1.02, left.values.shape).astype("f4"))
    places = [(each, each) for each in range(n)] if aligned else [(each, each + 2) for each in range(n - 2)]
    page = show(maps_of(n=4), theme)
    sent = [
        base64.b64encode(
            pack({**maps.header, "signed_themes": looks("diverging")}, [*maps.arrays, maps.finer])
        ).decode()
        for maps in (left, right)
    ]
    page.evaluate(_BESIDE, [*sent, heads, places])
    page.wait_for_function("() => Object.values(both.panes).every(one => one.frame === 0)")
    values = [maps.values[head].astype(float) for maps, head in zip((left, right), heads, strict=True)]
    seen = left.visible[0]
    top = max(each[seen].max() for each in values)
    expected = np.full((n, n), np.nan)
    for query, other_query in places:
        for key, other_key in places:
            if seen[query, key] and seen[other_query, other_key]:
                expected[query, key] = values[1][other_query, other_key] - values[0][query, key]
    colours = {
        scale: lookup(scale, theme, size).astype(int) for scale, size in (("sequential", 256), ("diverging", 255))
    }
    most = np.nanmax(np.abs(expected))
    steps = {
        "left": ("sequential", 255 * values[0] / top, seen),
        "right": ("sequential", 255 * values[1] / top, seen),
        "difference": ("diverging", 127 + 127 * np.nan_to_num(expected) / most, np.isfinite(expected)),
    }
    for side, (scale, step, shown) in steps.items():
        pixels = np.array(page.evaluate(_BESIDE_PIXELS, side))
        nearest = np.rint(step).astype(int)
        near = np.stack([colours[scale][np.clip(nearest + by, 0, len(colours[scale]) - 1)] for by in (-1, 0, 1)])
        off = np.abs(near - pixels[None, ..., :3]).max(-1).min(0)
        assert (off[shown] <= 1).all() and (pixels[..., 3] == 255 * shown).all(), side
    told = page.evaluate("""() => [9, 12].map(query => { const { maps } = both.panes.difference;
        return maps.value(0, 0, query, 7); })""")
    np.testing.assert_allclose(told, expected[[9, 12], 7], atol=2e-5)
    # What is pointed at in one is pointed at in the others, where positions are the same.
    page.evaluate("() => both.panes.left.point({ cell: [12, 7] })")
    pointed = page.evaluate("() => Object.values(both.panes).map(one => one.pointed.cell)")
    assert pointed == [[12, 7], [12, 7] if aligned else None, [12, 7]]


@pytest.mark.parametrize("signed", [False, True])
def test_values_come_back_to_half_a_step_of_their_own_scale(signed: bool):
    values = np.random.default_rng(0).random((2, 3, 5, 5), dtype=np.float32) - (0.5 if signed else 0)
    values[..., 0] *= 1000  # what drowns the rest of one scale does not drown it here
    visible = np.random.default_rng(1).random((3, 5, 5)) < 0.8
    maps = HeadMaps(values=values, str_tokens=list("ab cd"), visible=visible)
    header, (steps, masks) = unpacked(pack(maps.header, maps.arrays))
    assert (masks.reshape(visible.shape) == visible).all() and header["masks"] == 3 and header["spaces"] == [2]
    assert header["signed"] is signed
    back, half = decoded(header, steps)
    seen = np.broadcast_to(visible, values.shape)
    assert (np.abs(back - values) <= half)[seen].all() and (back[~seen] == 0).all()


def test_a_string_is_the_same_bytes_and_never_two_of_them():
    maps = HeadMaps(
        values=np.ones((1, 1, 1, 1), np.float32), str_tokens=["</script>"], visible=np.ones((1, 1, 1), bool)
    )
    text = packed(maps.header, maps.arrays)
    assert gzip.decompress(base64.b64decode(text)) == pack(maps.header, maps.arrays)
    assert text == packed(maps.header, maps.arrays) and "<" not in text
