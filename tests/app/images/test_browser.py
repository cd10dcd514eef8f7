"""The Images page in a real Chromium: choose, click, draw, upload, switch heads off; and what other pages say."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from app.core import Core
from app.factory import create_app
from app.pages import PAGES
from app.pages.images import captions
from app.pages.images.address import ADDRESS, ImagesState
from app.pages.images.ids import ids
from app.pages.images.request import ImageRequest
from app.pages.images.service import ImageViews
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import fits, in_the_first_screen, opened, query, serve, settled, wait, written
from tests.app.images.conftest import picture_file
from tests.app.test_accessibility import CONTRAST, OPTIONS, answered, faults, in_the_dark

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from aotlens.heads import SemanticConsistency

FIRST = ImageRequest(checkpoint="digits-tiny", data="digits", of=None, start=0, own=())


@pytest.fixture(scope="module")
def image_app(image_core: Core) -> App:
    return create_app(image_core.settings, image_core)


@pytest.fixture(scope="module")
def address(image_app: App) -> Iterator[str]:
    with serve(image_app) as address:
        yield address


@pytest.fixture(scope="module")
def views(image_app: App) -> ImageViews:
    return image_app.services["images"]


def at(**state: Any) -> str:
    return ADDRESS.format(ImagesState(checkpoint="digits-tiny", **state))


def drawn(page: Page, n_images: int = 10) -> None:
    """Waits until the gallery and all maps are there."""
    expect(page.locator(f"#{ids.GALLERY} .gallery-image")).to_have_count(n_images)
    page.wait_for_function("id => document.getElementById(id)?.naturalWidth > 0", arg=ids.GRID_PICTURE)
    settled(page)


def measured(views: ImageViews) -> SemanticConsistency:
    return wait(views.consistencies.start(FIRST)).result


def rows(page: Page) -> list[str]:
    """The heads in their order."""
    return page.locator(f"#{ids.CELLS} .row-name").all_text_contents()


def test_what_is_shown_first(open_page, views: ImageViews) -> None:
    page = open_page("/images", load=True)
    drawn(page)
    expect(page.locator(f"#{shell.caption(ids.PANEL)}")).to_have_text(
        captions.of_batch(views.of(FIRST), "digits", True, views.run(FIRST))
    )
    best = views.run(FIRST).logits.argmax(1)
    says = page.locator(f"#{ids.GALLERY} .gallery-says").all_text_contents()
    assert [text.partition(" ")[0] for text in says] == [str(number) for number in best]
    in_order = [f"0.{head}" for layer, head in measured(views).ranking() if layer == 0]
    expect(page.locator(f"#{ids.CELLS} .row-name")).to_have_text(in_order)
    in_the_first_screen(page, ids.GRID)
    expect(page.locator(f"#{ids.PICTURES} figure")).to_have_count(5)
    in_the_first_screen(page, ids.MAPS)


def test_a_click_chooses_a_head_and_an_image_and_a_patch_is_a_query(open_page, views: ImageViews) -> None:
    page = open_page(at(order="number"))
    drawn(page)
    assert rows(page) == ["0.0", "0.1", "0.2"]
    page.locator(f"#{ids.LAYER} [role=slider]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(f"#{ids.CELLS} .row-name").first).to_have_text("1.0")
    page.click(f"#{ids.CELLS} .map-cell[data-head='2'][data-image='4']")
    expect(page.locator(f"#{shell.title(ids.MAPS)}")).to_have_text("Image 5, head 1.2")
    for key, value in {"image": "4", "layer": "1", "head": "2"}.items():
        written(page, key, value)
    before = page.get_attribute(f"#{ids.GRID_PICTURE}", "src")
    page.click(f"#{ids.PICTURES} .patch[data-row='2'][data-column='3']")
    written(page, "patch", "2.3")
    expect(page.locator(f"#{shell.caption(ids.MAPS)}")).to_contain_text("patch (2, 3)")
    expect(page.locator(f"#{ids.GRID_PICTURE}")).not_to_have_attribute("src", str(before))
    page.keyboard.press("Escape")
    written(page, "patch", None)
    expect(page.locator(f"#{ids.GRID_PICTURE}")).to_have_attribute("src", str(before))
    page.locator(f"#{ids.CELLS} .map-here").focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator(f"#{shell.title(ids.MAPS)}")).to_have_text("Image 5, head 1.1")
    page.get_by_role("button", name="Later").click()
    written(page, "start", "10")
    page.click(f"#{ids.OF}")
    page.get_by_role("option", name="7", exact=True).click()
    written(page, "of", "7")
    written(page, "start", None)
    settled(page)


def test_heads_are_switched_off_and_the_predictions_say_what_that_changes(open_page, views: ImageViews) -> None:
    page = open_page(at(order="number", tab="predictions", image=1))
    drawn(page)
    whole = views.run(FIRST).probabilities[1]
    caption = page.locator(f"#{shell.caption(ids.PREDICTIONS)}")
    expect(caption).to_contain_text(f"‹{whole.argmax()}›, with probability {whole.max():.3f}")
    page.click(f"#{ids.CELLS} .head-switch[data-head='1']")
    written(page, "off", "0.1")
    expect(caption).to_contain_text("0.1 ablated by zero")
    page.locator(f"#{ids.CELLS} .map-cell[data-head='2'][data-image='1']").focus()
    page.keyboard.press("x")
    written(page, "off", "0.1,0.2")
    without = views.run(FIRST, ((0, 1), (0, 2)), "zero").probabilities[1]
    expect(caption).to_contain_text(f"‹{without.argmax()}›, with probability {without.max():.3f}")
    expect(page.locator(f"#{shell.body(ids.PREDICTIONS)} th").nth(2)).to_have_text("without")
    page.get_by_role("button", name="All on").click()
    written(page, "off", None)
    expect(caption).not_to_contain_text("Without")


def test_tabs_say_paths_and_consistency(open_page, views: ImageViews) -> None:
    page = open_page(at(image=2))
    drawn(page)
    opened(page, "Paths")
    found, target = views.contributions(FIRST, 2), int(views.run(FIRST).logits[2].argmax())
    said = captions.of_paths(found, found.place(target), str(target))
    expect(page.locator(f"#{shell.body(ids.PATHS)} p")).to_have_text(said)
    page.click(f"#{ids.TARGET}")
    page.get_by_role("option", name="4", exact=True).click()
    expect(page.locator(f"#{shell.body(ids.PATHS)} p").first).to_contain_text("Logit of ‹4›")
    written(page, "target", "4")
    opened(page, "Consistency")
    ranking = measured(views).ranking()
    names = page.locator(f"#{ids.RANKED} .ranked-row")
    expect(names).to_have_text([f"{layer}.{head}" for layer, head in ranking])
    names.last.click()
    written(page, "head", str(ranking[-1][1]) if ranking[-1][1] else None)
    written(page, "layer", str(ranking[-1][0]) if ranking[-1][0] else None)
    page.click(f"#{ids.CHECKPOINT}")
    page.get_by_role("option", name="digits-vit").click()
    written(page, "checkpoint", "digits-vit")
    opened(page, "Paths")
    expect(page.locator(f"#{shell.body(ids.PATHS)} p").first).to_contain_text("MLPs")


def test_consistency_is_stopped_and_measured_again(open_page, views: ImageViews, monkeypatch) -> None:
    """Everything else is there while it is measured."""
    enough, measure = threading.Event(), views.consistencies._measure

    def slow(asked: ImageRequest, report: Any) -> Any:
        while not enough.wait(0.02):
            report(3, 40, "looking at images")
        return measure(asked, report)

    monkeypatch.setattr(views.consistencies, "_measure", slow)
    page = open_page("/images?checkpoint=digits-vit&data=fashion-sample&tab=consistency")
    drawn(page)
    progress = page.locator(f"#{shell.progress(ids.CONSISTENCY)}")
    expect(progress).to_contain_text("looking at images, 3 of 40 images")
    assert rows(page) == ["0.0", "0.1", "0.2"]
    page.get_by_role("button", name="Stop").click()
    expect(progress).to_have_text("Stopped; nothing of it is kept.")
    page.get_by_role("button", name="Later").click()  # which begins nothing anew
    written(page, "start", "10")
    settled(page)
    expect(progress).to_have_text("Stopped; nothing of it is kept.")
    enough.set()
    page.get_by_role("button", name="Measure").click()
    expect(page.locator(f"#{ids.RANKED} .ranked-row")).to_have_count(3)
    expect(progress).to_be_empty()
    expect(page.get_by_role("button", name="Measure")).to_be_hidden()


def test_an_image_is_uploaded_and_removed(open_page, image_core: Core) -> None:
    page = open_page(at())
    drawn(page)
    chooser = page.locator(f"#{ids.UPLOAD} input[type=file]")
    chooser.set_input_files({"name": "square.png", "mimeType": "image/png", "buffer": picture_file()})
    drawn(page, 11)
    key = query(page)["own"]
    assert image_core.images.own.known(key)
    expect(page.locator(f"#{ids.GALLERY} .gallery-image").first).to_have_attribute("aria-pressed", "true")
    for name, content, message in [
        ("no.png", b"\x89PNG\r\n\x1a\n" + bytes(50), "can't be read"),
        ("text.jpg", b"not an image", "neither"),
        ("large.png", bytes(image_core.settings.max_image_bytes + 10), "at most"),
    ]:
        chooser.set_input_files({"name": name, "mimeType": "image/png", "buffer": content})
        expect(page.locator(f"#{shell.notice(ids.PANEL)}")).to_contain_text(message)
        drawn(page, 11)
    # The same address in another visit shows the same.
    page = open_page(page.url[page.url.index("/images") :], load=True)
    drawn(page, 11)
    page.get_by_role("button", name="Remove yours").click()
    drawn(page)
    written(page, "own", None)
    assert not image_core.images.own.known(key)


def test_a_drawing_is_looked_at(open_page, image_core: Core) -> None:
    page = open_page(at())
    drawn(page)
    page.get_by_text("Draw one").click()
    box = page.locator(f"#{ids.CANVAS}").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 112, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 112, box["y"] + 204, steps=8)
    page.mouse.up()
    page.get_by_role("button", name="Look at it").click()
    drawn(page, 11)
    own = image_core.images.own
    with Image.open(io.BytesIO((own.folder / f"{query(page)['own']}.png").read_bytes())) as kept:
        pixels = np.asarray(kept.convert("L"))
    assert pixels[30:190, 108:116].min() == 255 and pixels[:, :80].max() == 0


def test_files_of_what_is_shown(open_page, views: ImageViews) -> None:
    page = open_page(at(image=3, head=1))
    drawn(page)
    for name, entry in [("Heads × images", "Arrays of all heads (NPZ)"), ("Image 4, head 0.1", "Table (CSV)")]:
        if name.startswith("Image"):
            expect(page.locator(f"#{shell.title(ids.MAPS)}")).to_have_text(name)
            name = "One image"
        page.get_by_role("button", name=f"Export: {name}").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=entry).click()
        content = download.value.path().read_bytes()
        if entry.endswith("(NPZ)"):
            arrays = np.load(io.BytesIO(content))
            np.testing.assert_array_equal(arrays["pattern"], views.run(FIRST).maps.pattern)
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
    in_the_dark(page)
    assert faults(page, CONTRAST) == []


def test_from_a_card_to_its_images_and_back(open_page) -> None:
    page = open_page("/checkpoints?checkpoint=digits-tiny")
    page.get_by_role("link", name="Open in Images").click()
    drawn(page)
    page.get_by_role("link", name="Its card").click()
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
        if path in ("/heads", "/atlas", "/compare", "/trigrams", "/paths"):
            expect(page.locator("#page")).to_contain_text("digits-tiny reads images")
