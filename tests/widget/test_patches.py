"""Maps over images: bytes read back by numpy; in Chromium pixels and numbers against the arrays, keys, and axe."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from aotlens.data.images import ImageProcessor
from aotlens.heads import ImageRun, image_run
from aotlens.widget import PatchMaps, module, pack
from tests.image_models import make
from tests.messages import refused
from tests.widget.decoded import unpacked

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_SAYS = [{"text": f"{name} · 0.5", "title": name, "wrong": name == "b"} for name in "abc"]
_PAGE = """
const boxes = ["gallery", "grid", "one", "large"].map((id) => document.getElementById(id));
const { ImageHeads, PatchMaps, Gallery, PatchGrid, ImageMaps, SignedMap } = HeadsElement.parts;
const heads = (window.heads = new ImageHeads());
[Gallery, PatchGrid, ImageMaps, SignedMap].forEach((Part, place) => heads.part(Part, boxes[place]));
const bytes = Uint8Array.from(atob(document.body.dataset.packed), (character) => character.charCodeAt(0));
heads.set({ maps: PatchMaps.of(bytes), added: { image: 2, name: "c", patches: [1, -2, 0, 0, 0, 0, 0, 0, 0.5] } });
"""
_STYLE = """
    .photo, .one-map { position: relative; width: 90px }
    canvas { display: block; width: 90px; height: 90px }
    .cover, .patches { position: absolute; inset: 0 }
    .patches { display: grid; grid-template-columns: repeat(3, 1fr) }
"""
#: Red, green, blue and cover of every patch of a map's canvas, [patch, 4].
_COVER = """(canvas) => [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data]"""


def run_of(**rest: Any) -> ImageRun:
    model = make(init_std=0.6, **rest)
    model.image_processor = ImageProcessor(mean=(0.4,) * 3, deviation=(0.2,) * 3, classes=tuple("abcd"))
    pixels = torch.randint(256, (3, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return image_run(model, pixels)


@pytest.mark.parametrize("rest", [{}, {"phi": "linear"}, {"class_token": False, "n_ctx": 9, "pooling": "mean"}])
def test_every_map_comes_back_to_half_a_step_of_its_own_scale(rest: dict[str, Any]) -> None:
    run = run_of(**rest)
    maps = PatchMaps(run=run, says=_SAYS)
    header, (pixels, steps, tops, norms, *rolled) = unpacked(pack(maps.header, maps.arrays))
    np.testing.assert_array_equal(pixels.reshape(run.images.shape), run.images)
    assert header["signed"] == ("phi" in rest) != bool(rolled) and header["query"] == run.maps.query_name
    back, top = steps.reshape(3, 3, 2, 10, 9).astype(float), tops.view("<f4").reshape(3, 3, 2, 10, 1)
    values = (back - 128) / 127 * top if header["signed"] else back / 255 * top
    for place, query in enumerate([None, *np.ndindex(3, 3)]):
        off = np.abs(values[:, :, :, place] - run.maps.attention(query).reshape(3, 3, 2, 9))
        assert (off <= top[:, :, :, place] / (250 if header["signed"] else 509)).all(), query
    weighted = values[..., 0, :] * norms.view("<f4").reshape(3, 3, 2, 9)
    np.testing.assert_allclose(weighted, run.maps.value_weighted().reshape(weighted.shape), rtol=0.2, atol=0.02)
    only = PatchMaps(run=run, says=_SAYS, queries=[(2, 1)])
    np.testing.assert_array_equal(only.arrays[1].ravel(), steps.reshape(3, 3, 2, 10, 9)[:, :, :, 8].ravel())


def test_what_does_not_belong_together_is_refused() -> None:
    run = run_of()
    with refused("3 sayings", "got 1"):
        PatchMaps(run=run, says=_SAYS[:1])
    run.maps.pattern[0, 0, 0, 0, 0] = np.nan
    with refused("not finite"):
        PatchMaps(run=run, says=_SAYS)


@pytest.fixture
def show(chromium: Browser, tmp_path: Path) -> Iterator[Callable[[PatchMaps], Page]]:
    """Opens a page with the parts alone, without a network; a console with nothing in it."""
    trouble: list[str] = []
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    context.set_offline(True)

    def open_page(maps: PatchMaps) -> Page:
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        names = ("gallery", "grid", "one", "large")
        boxes = "".join(f'<div id="{name}" role="group" aria-label="{name}"></div>' for name in names)
        data = base64.b64encode(pack(maps.header, maps.arrays)).decode()
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>maps</title><style>{_STYLE}</style>'
        html = f'{head}<body data-packed="{data}"><main>{boxes}</main>'
        file = tmp_path / "page.html"
        file.write_text(f'{html}<script type="module">{module(app=True)}{{{_PAGE}}}</script>', encoding="utf-8")
        page.goto(file.as_uri())
        page.wait_for_selector(".map-cell")
        return page

    yield open_page
    context.close()
    assert trouble == []


def test_a_map_covers_its_image_by_its_values(show: Callable[[PatchMaps], Page]) -> None:
    run = run_of()
    page = show(PatchMaps(run=run, says=_SAYS))
    for row, image in [(0, 0), (1, 2)]:
        cover = page.locator(f".map-cell[data-row='{row}'][data-image='{image}'] .cover")
        pixels = np.array(cover.evaluate(_COVER)).reshape(9, 4)
        values = run.maps.attention()[image, 0, row].ravel()
        np.testing.assert_allclose(pixels[:, 3], 229.5 * values / values.max(), atol=1.5)
        strong = pixels[pixels[:, 3] > 100]
        assert len(strong) and np.abs(strong[:, :3] - [0, 92, 170]).max() <= 2
    signed = np.array(page.locator("#large .cover").evaluate(_COVER)).reshape(9, 4)
    assert signed[:2, 3].tolist() == [115, 230] and np.abs(signed[1, :3] - [214, 84, 0]).max() <= 1
    grey = page.locator(".map-cell canvas").first.evaluate(_COVER)[:3]
    luminance = np.dot([0.299, 0.587, 0.114], run.images[0, :, 0, 0])
    np.testing.assert_allclose(grey, 96 + 140 / 255 * luminance, atol=1)
    assert page.locator("#gallery canvas").nth(1).evaluate(_COVER)[:3] == run.images[1, :, 0, 0].tolist()


def test_choosing_pointing_and_locking(show: Callable[[PatchMaps], Page]) -> None:
    run = run_of()
    page = show(PatchMaps(run=run, says=_SAYS))
    page.click(".map-cell[data-head='1'][data-image='2']")
    expect(page.locator("#one")).to_have_attribute("data-head", "0.1")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#one")).to_have_attribute("data-head", "0.0")
    expect(page.locator("#gallery [aria-pressed=true]")).to_have_text("b · 0.5")
    page.hover(".patch[data-row='1'][data-column='2']")
    expect(page.locator("#one")).to_have_attribute("data-query", "1,2")
    page.click(".patch[data-row='1'][data-column='2']")
    attention = run.maps.attention((1, 2))[1, 0, 0]
    strongest = row, column = divmod(int(attention.argmax()), 3)
    page.hover("#one figure:nth-child(2) .cover", position={"x": 30 * column + 15, "y": 30 * row + 15})
    said = page.locator("#one .said")
    expect(said).to_contain_text("Query: patch (1, 2) · locked; Escape lets go. Patch ")
    number = float((said.text_content() or "").partition("Attention of 0.0 ")[2].split(",")[0])
    assert number == pytest.approx(run.maps.attention((1, 2))[1, 0, 0][strongest], abs=0.002)
    number = float((said.text_content() or "").partition("Value-weighted, 0.0 ")[2].split(",")[0])
    assert number == pytest.approx(run.maps.value_weighted((1, 2))[1, 0, 0][strongest], rel=0.01)
    page.focus(".map-cell[tabindex='0']")
    page.keyboard.press("x")
    assert page.evaluate("window.heads.off") == [[0, 0]]
    expect(page.locator(".head-switch").first).to_have_attribute("aria-pressed", "true")
    violations = Axe().run(page).response["violations"]
    assert [one["id"] for one in violations if one["id"] not in ("region", "page-has-heading-one")] == []
