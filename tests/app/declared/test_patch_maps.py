"""Maps over images in Chromium, on Images: choose, click, draw, upload, ablate heads; and what other pages say."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from aotlens.views.images import CONSISTENCY, PATCHES
from app.core import Core
from app.pages import PAGES
from app.pages.images import PAGE
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import choose, in_the_first_screen, opened, query, serve, settled, written
from tests.app.declared.conftest import picture_file
from tests.app.declared_pages import addresses

if TYPE_CHECKING:
    from playwright.sync_api import Page

FIRST = {"checkpoint": "digits-tiny", "data": "digits"}
ASKS = re.compile("_dash-update-component|/images/maps")
SAID = ".patch-pictures .said"
TITLE = "#images-head-title"
OFF = "#images-field-ablated-line"
at = addresses(PAGE, checkpoint="digits-tiny")


@pytest.fixture(scope="module")
def address(image_app: App) -> Iterator[str]:
    with serve(image_app) as address:
        yield address


@pytest.fixture(scope="module")
def images(image_app: App) -> Views:
    return image_app.services["images"]


def run_of(images: Views, **state: Any) -> Any:
    """The run of the model on what is shown."""
    return images.values({**FIRST, **state}).run.run(images.workshop)


def caption(page: Page, name: str) -> Any:
    return page.locator(f"#images-{name}-caption")


def drawn(page: Page, n_images: int = 10) -> None:
    """Waits until the images and all maps are there, and consistency, which is asked for apart."""
    expect(page.locator(".patch-gallery .gallery-image")).to_have_count(n_images)
    expect(page.locator(f".patch-cells .map-cell[data-image='{n_images - 1}']")).to_have_count(3)
    settled(page)
    expect(page.locator("#images-consistency:not([aria-busy=true])")).to_have_count(1)
    settled(page)


def asked(page: Page) -> list[str]:
    """The callbacks and maps that the page asks for from now on."""
    urls: list[str] = []
    page.on("request", lambda request: ASKS.search(request.url) and urls.append(request.url))
    return urls


@pytest.mark.visit
def test_a_head_and_a_query_are_chosen_without_the_server(open_page, images: Views) -> None:
    page = open_page(at(order="number", image=4), load=True)
    drawn(page)
    in_the_first_screen(page, "images-layer")
    in_the_first_screen(page, "images-head")
    urls = asked(page)
    choose(page, page.click, ".pick-head[data-layer='1'][data-head='0']")
    expect(page.locator(".patch-cells .row-name").first).to_have_text("1.0")
    choose(page, page.click, ".patch-cells .map-cell[data-head='2'][data-image='4']")
    expect(page.locator(TITLE)).to_have_text("Image 5, head 1.2")
    written(page, "image", "4")
    written(page, "head", "1.2")
    page.hover(".patch-pictures .patch[data-row='0'][data-column='1']")
    expect(page.locator(SAID)).to_contain_text("Query: patch (0, 1)")
    choose(page, page.click, ".patch-pictures .patch[data-row='2'][data-column='3']")
    written(page, "patch", "2.3")
    cover = page.locator(".patch-pictures .cover").nth(1)
    side = cover.bounding_box()["width"]
    cover.hover(position={"x": 0.3 * side, "y": 0.6 * side})  # patch (2, 1)
    number = run_of(images).maps.attention((2, 3))[4, 1, 2, 2, 1]
    expect(page.locator(SAID)).to_contain_text("Query: patch (2, 3) · locked")
    said = page.locator(SAID).text_content() or ""
    assert float(said.partition("Attention of 1.2 ")[2].split(",")[0]) == pytest.approx(number, abs=0.003)
    page.locator(".patch-pictures .patch[aria-pressed=true]").focus()
    choose(page, page.keyboard.press, "ArrowLeft")
    expect(page.locator(".patch-pictures .patch[data-row='2'][data-column='2']")).to_be_focused()
    choose(page, page.keyboard.press, "Escape")
    written(page, "patch", None)
    page.locator(".patch-cells .map-here").focus()
    choose(page, page.keyboard.press, "ArrowUp")
    expect(page.locator(TITLE)).to_have_text("Image 5, head 1.1")
    written(page, "head", "1.1")
    assert urls == []


def test_a_choice_is_one_request_and_the_maps(open_page, images: Views) -> None:
    page = open_page(at())
    drawn(page)
    best = run_of(images).logits.argmax(1)
    says = page.locator(".patch-gallery .gallery-says").all_text_contents()
    assert [text.partition(" ")[0] for text in says] == [str(number) for number in best]
    expect(page.locator(".patch-gallery .gallery-wrong")).to_have_count(int((best != np.arange(10)).sum()))
    ranking = images.workshop.result(CONSISTENCY, images.values(FIRST)).ranking()
    in_order = [f"0.{head}" for layer, head in ranking if layer == 0]
    expect(page.locator(".patch-cells .row-name")).to_have_text(in_order)
    urls = asked(page)
    page.locator(".patch-gallery .gallery-image").first.focus()
    choose(page, page.keyboard.press, "ArrowRight")
    written(page, "image", "1")
    settled(page)
    assert len(urls) == 1
    page.locator("#images-field-start").focus()
    choose(page, page.keyboard.press, "ArrowUp")
    written(page, "start", "10")
    settled(page)
    assert len(urls) == 3 and sum("/images/maps" in url for url in urls) == 1
    choose(page, page.click, "#images-field-of")
    choose(page, page.get_by_role("option", name="7", exact=True).click)
    written(page, "of", "7")
    written(page, "start", None)
    expect(page.locator("#images-field-start")).to_have_value("")
    expect(caption(page, "images")).to_contain_text("of class ‹7›")


def test_heads_are_ablated_and_the_predictions_say_what_that_changes(open_page, images: Views) -> None:
    page = open_page(at(order="number", tab="predictions", image=1))
    drawn(page)
    whole = run_of(images).probabilities[1]
    expect(caption(page, "predictions")).to_contain_text(f"‹{whole.argmax()}›, with probability {whole.max():.3f}")
    choose(page, page.locator(".patch-cells .head-switch").nth(1).click)
    written(page, "off", "0.1")
    expect(caption(page, "predictions")).to_contain_text("head 0.1 ablated by zero")
    page.locator(".patch-cells .map-cell[data-head='2'][data-image='1']").focus()
    choose(page, page.keyboard.press, "x")
    written(page, "off", "0.1,0.2")
    expect(page.locator(OFF)).to_have_text("0.1, 0.2")
    ablated = run_of(images, ablated=[[0, 1], [0, 2]]).probabilities[1]
    expect(caption(page, "predictions")).to_contain_text(f"‹{ablated.argmax()}›, with probability {ablated.max():.3f}")
    expect(page.locator("#images-predictions-lines th").nth(2)).to_have_text("heads ablated")
    choose(page, page.get_by_role("button", name="Ablate none").click)
    written(page, "off", None)
    expect(caption(page, "predictions")).not_to_contain_text("ablated")
    choose(page, page.locator(".patch-cells .head-switch").first.click)
    written(page, "off", "0.0")
    choose(page, page.click, "#images-field-checkpoint")
    choose(page, page.get_by_role("option", name="digits-vit").click)
    written(page, "off", None)
    expect(page.locator(OFF)).to_have_text("none")
    expect(caption(page, "predictions")).not_to_contain_text("ablated")


def test_what_a_smaller_model_lacks_is_chosen_no_longer(open_page) -> None:
    page = open_page(at(order="number", head=[1, 2], patch=[3, 3]))
    drawn(page)
    choose(page, page.click, "#images-field-checkpoint")
    choose(page, page.get_by_role("option", name="digits-vit").click)  # of one layer
    expect(page.locator(TITLE)).to_have_text("Image 1, head 0.0")
    written(page, "head", "0.0")
    written(page, "patch", "3.3")


def test_tabs_say_paths_and_consistency(open_page, images: Views) -> None:
    page = open_page(at(image=2))
    drawn(page)
    opened(page, "Paths")
    params = images.values({**FIRST, "image": 2})
    said = PATCHES.caption(params, images.workshop.result(PATCHES, params))
    expect(caption(page, "patches")).to_have_text(said)
    choose(page, page.click, "#images-field-target")
    choose(page, page.get_by_role("option", name="4", exact=True).click)
    expect(caption(page, "patches")).to_contain_text("Logit of ‹4›")
    written(page, "target", "4")
    opened(page, "Consistency")
    ranking = images.workshop.result(CONSISTENCY, params).ranking()
    names = page.locator("#images-consistency-lines tbody button")
    expect(names).to_have_text([f"{layer}.{head}" for layer, head in ranking])
    expect(page.locator("#images-consistency-start")).to_be_hidden()
    choose(page, names.last.click)
    written(page, "head", "{}.{}".format(*ranking[-1]))


def test_an_image_is_uploaded_and_removed(open_page, image_core: Core) -> None:
    page = open_page(at(image=3))
    drawn(page)
    chooser = page.locator("#images-field-own-upload input[type=file]")
    choose(page, chooser.set_input_files, {"name": "square.png", "mimeType": "image/png", "buffer": picture_file()})
    drawn(page, 11)
    key = query(page)["own"]
    assert image_core.images.own.known(key)
    expect(page.locator(".patch-gallery .gallery-image").first).to_have_attribute("aria-pressed", "true")
    for name, content, message in [
        ("no.png", b"\x89PNG\r\n\x1a\n" + bytes(50), "can't be read"),
        ("text.jpg", b"not an image", "neither"),
        ("large.png", bytes(image_core.settings.max_image_bytes + 10), "at most"),
    ]:
        choose(page, chooser.set_input_files, {"name": name, "mimeType": "image/png", "buffer": content})
        expect(page.locator("#images-form-notice")).to_contain_text(message)
        drawn(page, 11)
    # The same address in another visit shows the same.
    page = open_page(page.url[page.url.index("/images") :], load=True)
    drawn(page, 11)
    choose(page, page.get_by_role("button", name="Remove yours").click)
    drawn(page)
    written(page, "own", None)
    expect(page.get_by_role("button", name="Remove yours")).to_be_hidden()
    assert not image_core.images.own.known(key)


def test_a_drawing_is_looked_at(open_page, image_core: Core) -> None:
    page = open_page(at())
    drawn(page)
    choose(page, page.get_by_text("Draw one").click)
    box = page.locator("canvas.pad").bounding_box()
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


def test_the_picture_of_all_heads_is_saved(open_page) -> None:
    page = open_page(at(image=3, head=[0, 1]))
    drawn(page)
    choose(page, page.get_by_role("button", name="Export: Heads × images").click)
    with page.expect_download() as download:
        choose(page, page.get_by_role("menuitem", name="Picture (PNG)").click)
    with Image.open(download.value.path()) as picture:
        assert picture.size == (2 * (46 + 860), 2 * (34 + 258)) and len(picture.getcolors(10**7)) > 50


@pytest.mark.long
def test_every_other_page_says_what_it_cannot_show(open_page) -> None:
    """A model of images where a text is read: a sentence that says where to go, and nothing that went wrong.

    What the sentence comes from is asked of the services in test_images.py, without a browser.
    """
    for one in [one for one in PAGES if one.name != "images"]:
        path, field = one.path, {"compare": "left"}.get(one.name, "checkpoint")
        tab = "&tab=models" if path == "/subspaces" else ""
        page = open_page(f"{path}?{field}=digits-tiny{tab}", load=True)  # its first panel may be in a tab that is shut
        page.wait_for_selector("#page .panel", state="attached")
        settled(page)
        assert "Something went wrong" not in page.inner_text("#page"), path
        if one.declared is None and one.name in ("heads", "atlas", "trigrams"):
            expect(page.locator("#page")).to_contain_text("digits-tiny reads images")
