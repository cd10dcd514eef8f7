"""The start page: its finding against the model's own run, the ways in, the menu that takes choices along, and Find."""

from __future__ import annotations

import pytest
import torch
from playwright.sync_api import expect

import aotlens
from aotlens.checkpoints.catalog import bundled_folder  # the fixtures' own patch comes after this import
from app.core import Core
from app.core.settings import Settings
from app.factory import create_app
from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.start.finding import TEXT
from tests.app.conftest import choose, query, settled


@pytest.fixture(scope="module")
def bundled():
    settings = Settings(checkpoints=(bundled_folder(),), device="cpu")
    return create_app(settings, Core.start(settings))


def test_the_finding_is_what_the_model_computes(bundled):
    finding = bundled.services["start"].finding()
    model = aotlens.load(bundled_folder() / finding.checkpoint, "cpu")
    tokens = model.to_tokens(TEXT)
    logits, cache = model.run_with_cache(tokens)
    names = [picture.title.split(" ")[0] for picture in finding.pictures]
    assert names == ["0.3", "1.0", "1.0"]
    for picture, name in zip(finding.pictures[:2], names, strict=False):
        layer, head = map(int, name.split("."))
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][0, head]
        assert torch.allclose(torch.as_tensor(picture.values), pattern, atol=1e-6)
        assert f"{pattern[picture.marked]:.2f}" in picture.sentence
    query_at, key = finding.pictures[1].marked
    assert tokens[0, query_at] == tokens[0, key - 1] and query_at == len(tokens[0]) - 1

    def without(layer, head):
        def ablate(z, hook):
            z[:, :, head] = 0
            return z

        return model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", ablate)])

    told = [float(each[0, -1].softmax(-1)[tokens[0, key]]) for each in (logits, without(1, 0), without(0, 3))]
    assert f"{told[0]:.0%}; with head 1.0 ablated, {told[1]:.1%}; with 0.3 ablated, {told[2]:.1%}" in finding.sentence
    written = finding.pictures[2]
    ids = [model.to_single_token(token.replace("·", " ")) for token in written.tokens]
    rows = aotlens.circuits.ov_circuit(model, "1.0")[torch.tensor(ids)].AB.double()
    expected = (rows - rows.mean(1, keepdim=True))[:, ids]
    assert torch.allclose(torch.as_tensor(written.values), expected, atol=1e-4)


def test_without_a_stored_atlas_there_is_no_finding_and_the_ways_in_are_there(app):
    assert app.services["start"].finding() is None
    page = next(page for page in app.pages if page.name == "start")
    assert "start-finding" not in str(page.layout(app.core, app.services["start"], None))


def entries(app):
    return app.server.test_client().get("/find.json", headers={"Host": "localhost"}).json


def test_pages_and_checkpoints_that_open_are_found(app):
    named = {entry["name"]: entry["href"] for entry in entries(app)}
    assert named["Circuits"] == "/circuits" and named["tiny-mssa"] == "/checkpoints?checkpoint=tiny-mssa"
    assert "broken" not in named and "Start" not in named


def test_panels_are_found_where_their_tab_is_open(app):
    found = {entry["name"]: entry for entry in entries(app)}
    assert found["Two scores"] == {"name": "Two scores", "note": "on Atlas", "href": "/atlas"}
    assert found["Eigenvalues"]["href"] == "/circuits?view=eigenvalues"
    assert found["Verdict"]["href"] == "/atlas?tab=path"


def test_heads_of_stored_atlases_are_found_by_what_they_do(bundled):
    head = {entry["name"]: entry for entry in entries(bundled)}["induction: 1.0 of novels-2l-mhsa"]
    assert head["href"] == "/heads?checkpoint=novels-2l-mhsa&head=1.0" and "random tokens" in head["note"]


@pytest.mark.visit
def test_a_sentence_typed_at_the_start_is_run_and_goes_along_the_menu(open_page):
    page = open_page("/", load=True)
    choose(page, page.fill, "#start-text", "Tom met Ann & Tom met")
    choose(page, page.get_by_role("button", name="See its heads").click)
    expect(page.locator("#heads-text")).to_have_value("Tom met Ann & Tom met")
    page.wait_for_function("() => new URLSearchParams(location.search).get('head')")
    page.locator("button.nav-name", has_text="Circuits").focus()  # the first picture has a span
    choose(page, page.locator(".nav-link", has_text="Paths").click)
    expect(page.locator("#paths-field-text")).to_have_value("Tom met Ann & Tom met")
    assert page.locator(".taken-instead").count() == 0


def test_a_head_is_kept_by_a_page_that_has_none_of_it(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.", head=(1, 1))))
    page.wait_for_function("() => aotlens.address.along('/heads').includes('head=1.1')")
    for path, link in (("/heads", "Paths"), ("/paths", "Skip-trigrams")):
        expect(page.locator(f".nav-link[aria-current='page'][href^='{path}']")).to_have_count(1)  # which shuts the menu
        page.locator("button.nav-name", has_text="Circuits").focus()
        choose(page, page.locator(".nav-link", has_text=link).click)
        page.wait_for_function("path => location.pathname !== path", arg=path)
        settled(page)
    page.wait_for_function("() => location.pathname === '/trigrams'")
    page.wait_for_function("() => new URLSearchParams(location.search).get('head') === '1.1'")


def test_what_another_page_cannot_show_is_left_out_without_a_word(open_page):
    page = open_page("/heads?checkpoint=nowhere&along=1")
    expect(page.locator("#heads-text")).to_be_visible()
    assert page.locator(".taken-instead").count() == 0


def test_the_start_page_leads_back_to_the_last_view(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mssa", text="The captain bowed.", head=(1, 1))))
    page.wait_for_function("() => aotlens.address.last()?.href.includes('head=1.1')")
    choose(page, page.click, ".brand")
    choose(page, page.locator(".start-last", has_text="Heads").click)
    page.wait_for_function("() => location.pathname === '/heads'")
    settled(page)
    assert query(page)["head"] == "1.1" and query(page)["checkpoint"] == "tiny-mssa"


def test_find_by_keyboard(open_page):
    page = open_page("/checkpoints")
    choose(page, page.keyboard.press, "Control+k")
    box = page.get_by_role("searchbox")
    choose(page, box.fill, "no such thing")
    expect(page.locator(".find-none")).to_contain_text("heads by what they do")
    choose(page, page.keyboard.press, "Escape")
    expect(page.locator("dialog.find")).to_be_hidden()
    choose(page, page.keyboard.press, "Control+k")
    choose(page, box.fill, "tiny mssa")
    expect(page.locator(".find-list a")).to_have_count(1)
    choose(page, page.keyboard.press, "ArrowDown")
    choose(page, page.keyboard.press, "Enter")
    page.wait_for_function("() => new URLSearchParams(location.search).get('checkpoint') === 'tiny-mssa'")
    expect(page.locator("dialog.find")).to_be_hidden()


def test_heads_of_the_open_checkpoint_come_first_and_a_number_is_a_word(open_page):
    state = HeadsState(checkpoint="tiny-mssa", text="The captain bowed.", head=(1, 1))
    page = open_page(HEADS.format(state), load=True)  # without the list that was read before
    page.wait_for_function("() => aotlens.address.along('/heads').includes('tiny-mssa')")
    named = {"tiny-mhsa": ("1.3", "mixed"), "tiny-mssa": ("1.3", "induction"), "other": ("11.3", "induction")}
    heads = [
        {"name": f"{label}: {head} of {name}", "note": "", "href": f"/heads?checkpoint={name}&head={head}"}
        for name, (head, label) in named.items()
    ]
    page.route("**/find.json", lambda route: route.fulfill(json=heads))
    choose(page, page.keyboard.press, "Control+k")
    choose(page, page.get_by_role("searchbox").fill, "1.3")
    expect(page.locator(".find-list a")).to_have_text(["induction: 1.3 of tiny-mssa", "mixed: 1.3 of tiny-mhsa"])
