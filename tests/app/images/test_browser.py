"""The Images page in a real Chromium: choose, click, draw, upload, ablate heads; and what other pages say."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from app.core import Core
from app.factory import create_app
from app.pages import PAGES
from app.pages.images.address import ADDRESS, ImagesState
from app.pages.images.ids import VIEWS, ids
from app.pages.images.service import Images
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import choose, fits, in_the_first_screen, opened, query, serve, settled, written
from tests.app.images.conftest import picture_file
from tests.app.test_accessibility import OPTIONS, answered, faults

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIRST = {"checkpoint": "digits-tiny", "data": "digits"}
CAPTION = f"#{shell.caption(ids.PANEL)}"
ASKS = re.compile("_dash-update-component|/images/maps")
SAID = f"#{ids.PICTURES} .said"


@pytest.fixture(scope="module")
def image_app(image_core: Core) -> App:
    return create_app(image_core.settings, image_core)


@pytest.fixture(scope="module")
def address(image_app: App) -> Iterator[str]:
    with serve(image_app) as address:
        yield address


@pytest.fixture(scope="module")
def images(image_app: App) -> Images:
    return image_app.services["images"]


def at(**state: Any) -> str:
    return ADDRESS.format(ImagesState(checkpoint="digits-tiny", **state))


def drawn(page: Page, n_images: int = 10) -> None:
    """Waits until the images and all maps are there, and consistency, which follows the maps and takes longer."""
    expect(page.locator(f"#{ids.GALLERY} .gallery-image")).to_have_count(n_images)
    expect(page.locator(f"#{ids.GRID_CELLS} .map-cell[data-image='{n_images - 1}']")).to_have_count(3)
    settled(page)
    expect(page.locator(f"#{ids.CONSISTENCY}:not([aria-busy=true])")).to_have_count(1)
    settled(page)


def asked(page: Page) -> list[str]:
    """The callbacks and maps that the page asks for from now on."""
    urls: list[str] = []
    page.on("request", lambda request: ASKS.search(request.url) and urls.append(request.url))
    return urls


def test_what_is_shown_first(open_page, images: Images) -> None:
    page = open_page("/images", load=True)
    drawn(page)
    chosen = images.values(FIRST)
    best = images.run(chosen).logits.argmax(1)
    says = page.locator(f"#{ids.GALLERY} .gallery-says").all_text_contents()
    assert [text.partition(" ")[0] for text in says] == [str(number) for number in best]
    wrong = int((best != np.arange(10)).sum())
    expect(page.locator(f"#{ids.GALLERY} .gallery-wrong")).to_have_count(wrong)
    expect(page.locator(CAPTION)).to_contain_text(f"{10 - wrong} of these 10 are recognised")
    ranking = images.workshop.result(VIEWS[ids.CONSISTENCY], chosen).ranking()
    in_order = [f"0.{head}" for layer, head in ranking if layer == 0]
    expect(page.locator(f"#{ids.GRID_CELLS} .row-name")).to_have_text(in_order)
    in_the_first_screen(page, ids.GRID)
    expect(page.locator(f"#{ids.PICTURES} figure")).to_have_count(5)
    in_the_first_screen(page, ids.MAPS)


@pytest.mark.visit
def test_a_head_and_a_query_are_chosen_without_the_server(open_page, images: Images) -> None:
    page = open_page(at(order="number", image=4))
    drawn(page)
    urls = asked(page)
    page.locator(f"#{ids.LAYER} [role=slider]").focus()
    choose(page, page.keyboard.press, "ArrowRight")
    expect(page.locator(f"#{ids.GRID_CELLS} .row-name").first).to_have_text("1.0")
    choose(page, page.click, f"#{ids.GRID_CELLS} .map-cell[data-head='2'][data-image='4']")
    expect(page.locator(f"#{shell.title(ids.MAPS)}")).to_have_text("Image 5, head 1.2")
    for key, value in {"image": "4", "layer": "1", "head": "2"}.items():
        written(page, key, value)
    page.hover(f"#{ids.PICTURES} .patch[data-row='0'][data-column='1']")
    expect(page.locator(SAID)).to_contain_text("Query: patch (0, 1)")
    choose(page, page.click, f"#{ids.PICTURES} .patch[data-row='2'][data-column='3']")
    written(page, "patch", "2.3")
    cover = page.locator(f"#{ids.PICTURES} .cover").nth(1)
    side = cover.bounding_box()["width"]
    cover.hover(position={"x": 0.3 * side, "y": 0.6 * side})  # patch (2, 1)
    number = images.run(images.values(FIRST)).maps.attention((2, 3))[4, 1, 2, 2, 1]
    expect(page.locator(SAID)).to_contain_text("Query: patch (2, 3) · locked")
    said = page.locator(SAID).text_content() or ""
    assert float(said.partition("Attention of 1.2 ")[2].split(",")[0]) == pytest.approx(number, abs=0.003)
    page.locator(f"#{ids.PICTURES} .patch[aria-pressed=true]").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    expect(page.locator(f"#{ids.PICTURES} .patch[data-row='2'][data-column='2']")).to_be_focused()
    choose(page, page.keyboard.press, "Escape")
    written(page, "patch", None)
    page.locator(f"#{ids.GRID_CELLS} .map-here").focus()
    choose(page, page.keyboard.press, "ArrowUp")
    expect(page.locator(f"#{shell.title(ids.MAPS)}")).to_have_text("Image 5, head 1.1")
    written(page, "head", "1")
    assert urls == []


def test_a_choice_is_one_request_and_the_maps(open_page) -> None:
    page = open_page(at(order="number"))
    drawn(page)
    urls = asked(page)
    page.locator(f"#{ids.GALLERY} .gallery-image").first.focus()
    choose(page, page.keyboard.press, "ArrowRight")
    written(page, "image", "1")
    settled(page)
    assert len(urls) == 1
    choose(page, page.get_by_role("button", name="Next").click)
    written(page, "start", "10")
    settled(page)
    assert len(urls) == 3 and sum("/images/maps" in url for url in urls) == 1
    choose(page, page.click, f"#{ids.OF}")
    choose(page, page.get_by_role("option", name="7", exact=True).click)
    written(page, "of", "7")
    written(page, "start", None)
    expect(page.locator(CAPTION)).to_contain_text("of class ‹7›")


def test_heads_are_ablated_and_the_predictions_say_what_that_changes(open_page, images: Images) -> None:
    page = open_page(at(order="number", tab="predictions", image=1))
    drawn(page)
    whole = images.run(images.values(FIRST)).probabilities[1]
    caption = page.locator(f"#{shell.caption(ids.PREDICTIONS)}")
    expect(caption).to_contain_text(f"‹{whole.argmax()}›, with probability {whole.max():.3f}")
    choose(page, page.locator(f"#{ids.GRID_CELLS} .head-switch").nth(1).click)
    written(page, "off", "0.1")
    expect(caption).to_contain_text("head 0.1 ablated by zero")
    page.locator(f"#{ids.GRID_CELLS} .map-cell[data-head='2'][data-image='1']").focus()
    choose(page, page.keyboard.press, "x")
    written(page, "off", "0.1,0.2")
    ablated = images.run(images.values({**FIRST, "off": [[0, 1], [0, 2]]})).probabilities[1]
    expect(caption).to_contain_text(f"‹{ablated.argmax()}›, with probability {ablated.max():.3f}")
    expect(page.locator(f"#{ids.LIKELIEST} th").nth(2)).to_have_text("heads ablated")
    choose(page, page.get_by_role("button", name="Ablate none").click)
    written(page, "off", None)
    expect(caption).not_to_contain_text("ablated")


def test_tabs_say_paths_and_consistency(open_page, images: Images) -> None:
    page = open_page(at(image=2))
    drawn(page)
    opened(page, "Paths")
    chosen = images.values({**FIRST, "image": 2})
    said = VIEWS[ids.PATHS].caption(chosen, images.workshop.result(VIEWS[ids.PATHS], chosen))
    expect(page.locator(f"#{shell.caption(ids.PATHS)}")).to_have_text(said)
    choose(page, page.click, f"#{ids.TARGET}")
    choose(page, page.get_by_role("option", name="4", exact=True).click)
    expect(page.locator(f"#{shell.caption(ids.PATHS)}")).to_contain_text("Logit of ‹4›")
    written(page, "target", "4")
    opened(page, "Consistency")
    ranking = images.workshop.result(VIEWS[ids.CONSISTENCY], chosen).ranking()
    names = page.locator(f"#{ids.RANKED} tbody button")
    expect(names).to_have_text([f"{layer}.{head}" for layer, head in ranking])
    expect(page.locator(f"#{shell.start(ids.CONSISTENCY)}")).to_be_hidden()
    choose(page, names.last.click)
    written(page, "head", str(ranking[-1][1]) if ranking[-1][1] else None)
    written(page, "layer", str(ranking[-1][0]) if ranking[-1][0] else None)
    choose(page, page.click, f"#{ids.CHECKPOINT}")
    choose(page, page.get_by_role("option", name="digits-vit").click)
    written(page, "checkpoint", "digits-vit")
    opened(page, "Paths")
    expect(page.locator(f"#{shell.caption(ids.PATHS)}")).to_contain_text("MLPs")


def test_an_image_is_uploaded_and_removed(open_page, image_core: Core) -> None:
    page = open_page(at())
    drawn(page)
    chooser = page.locator(f"#{ids.UPLOAD} input[type=file]")
    choose(page, chooser.set_input_files, {"name": "square.png", "mimeType": "image/png", "buffer": picture_file()})
    drawn(page, 11)
    key = query(page)["own"]
    assert image_core.images.own.known(key)
    expect(page.locator(f"#{ids.GALLERY} .gallery-image").first).to_have_attribute("aria-pressed", "true")
    for name, content, message in [
        ("no.png", b"\x89PNG\r\n\x1a\n" + bytes(50), "can't be read"),
        ("text.jpg", b"not an image", "neither"),
        ("large.png", bytes(image_core.settings.max_image_bytes + 10), "at most"),
    ]:
        choose(page, chooser.set_input_files, {"name": name, "mimeType": "image/png", "buffer": content})
        expect(page.locator(f"#{shell.notice(ids.PANEL)}")).to_contain_text(message)
        drawn(page, 11)
    # The same address in another visit shows the same.
    page = open_page(page.url[page.url.index("/images") :], load=True)
    drawn(page, 11)
    choose(page, page.get_by_role("button", name="Remove yours").click)
    drawn(page)
    written(page, "own", None)
    assert not image_core.images.own.known(key)


def test_a_drawing_is_looked_at(open_page, image_core: Core) -> None:
    page = open_page(at())
    drawn(page)
    choose(page, page.get_by_text("Draw one").click)
    box = page.locator(f"#{ids.CANVAS}").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 112, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 112, box["y"] + 204, steps=8)
    choose(page, page.mouse.up)
    choose(page, page.get_by_role("button", name="Use it").click)
    drawn(page, 11)
    own = image_core.images.own
    with Image.open(io.BytesIO((own.folder / f"{query(page)['own']}.png").read_bytes())) as kept:
        pixels = np.asarray(kept.convert("L"))
    assert pixels[30:190, 108:116].min() == 255 and pixels[:, :80].max() == 0


@pytest.mark.parametrize(
    ("panel", "entry"),
    [
        ("Heads × images", "Arrays of all heads (NPZ)"),
        ("Heads × images", "Picture (PNG)"),
        ("One image", "Table (CSV)"),
    ],
)
def test_files_of_what_is_shown(open_page, images: Images, panel: str, entry: str) -> None:
    page = open_page(at(image=3, head=1))
    drawn(page)
    choose(page, page.get_by_role("button", name=f"Export: {panel}").click)
    with page.expect_download() as download:
        choose(page, page.get_by_role("menuitem", name=entry).click)
    content = download.value.path().read_bytes()
    if "NPZ" in entry:
        arrays = np.load(io.BytesIO(content))
        np.testing.assert_array_equal(arrays["pattern"], images.run(images.values(FIRST)).maps.pattern)
    elif "PNG" in entry:
        with Image.open(io.BytesIO(content)) as picture:
            assert picture.size == (2 * (46 + 860), 2 * (34 + 258)) and len(picture.getcolors(10**7)) > 50
    else:
        lines = content.decode().splitlines()
        assert lines[0] == '"row","column","attention","value_weighted","rollout"' and len(lines) == 17


def test_nobody_is_kept_out_and_all_fits(open_page) -> None:
    page = open_page(at())
    drawn(page)
    answered(page)
    assert faults(page, OPTIONS) == []
    for tab in ("Paths", "Predictions", "Consistency"):
        opened(page, tab)
        assert faults(page, OPTIONS, f"#{ids.TABS}") == [], tab
    page.set_viewport_size({"width": 800, "height": 900})
    fits(page)


def test_from_a_card_to_its_images_and_back(open_page) -> None:
    page = open_page("/checkpoints?checkpoint=digits-tiny")
    choose(page, page.get_by_role("link", name="Open in Images").click)
    drawn(page)
    choose(page, page.get_by_role("link", name="Model card").click)
    expect(page.locator("#checkpoints-card-title")).to_have_text("digits-tiny")


@pytest.mark.long
def test_every_other_page_says_what_it_cannot_show(open_page) -> None:
    """A model of images where a text is read: a sentence that says where to go, and nothing that went wrong.

    What the sentence comes from is asked of the services in test_service.py, without a browser.
    """
    for path in [one.path for one in PAGES if one.name != "images"]:
        field = {"/compare": "left"}.get(path, "checkpoint")
        tab = "&tab=models" if path == "/subspaces" else ""
        page = open_page(f"{path}?{field}=digits-tiny{tab}", load=True)  # its first panel may be in a tab that is shut
        page.wait_for_selector("#page .panel", state="attached")
        settled(page)
        assert "Something went wrong" not in page.inner_text("#page"), path
        if path in ("/heads", "/atlas", "/trigrams", "/paths"):
            expect(page.locator("#page")).to_contain_text("digits-tiny reads images")
