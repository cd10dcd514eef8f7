"""What is around every page, in a real Chromium; a console without errors."""

from __future__ import annotations

from playwright.sync_api import expect

from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids as heads
from app.shell import ids
from app.shell.tables import chips
from tests.app.conftest import choose, focused, head_drawn, settled


def test_the_theme_is_chosen_and_kept(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.")))
    head_drawn(page, "Head 0.0")
    choose(page, page.click, f"#{ids.THEME_CHOICE} >> text=Dark")
    page.wait_for_function("() => document.documentElement.dataset.mantineColorScheme === 'dark'")
    settled(page)
    page.reload()
    head_drawn(page, "Head 0.0")
    settled(page)
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    choose(page, page.click, f"#{ids.THEME_CHOICE} >> text=System")
    page.wait_for_function("() => document.documentElement.dataset.mantineColorScheme === 'light'")


def test_an_explanation_opens_by_keyboard_and_closes_by_escape(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.")))
    head_drawn(page, "Head 0.0")
    mark, text = page.locator(f"#{heads.GRID} summary"), page.locator(f"#{ids.explanation(heads.GRID)}")
    expect(mark).to_have_accessible_name("About: All heads")
    expect(text).to_be_hidden()
    mark.focus()
    choose(page, page.keyboard.press, "Enter")
    expect(text).to_contain_text("Row = layer, column = head")
    choose(page, page.locator(f"#{heads.MAP} summary").click)
    expect(text).to_be_hidden()  # one at a time
    choose(page, mark.click)
    choose(page, page.keyboard.press, "Escape")
    expect(text).to_be_hidden()
    focused(page, f"#{heads.GRID} summary")


def test_what_the_browser_draws_is_text_and_keeps_the_focus(open_page):
    page = open_page("/checkpoints")
    page.evaluate("() => document.body.append(aotlens.element('div', { id: 'group' }))")

    def draw(*texts: str) -> None:
        page.evaluate("tables => aotlens.drawTables('group', tables)", [chips(texts, [-0.07, 1.0])])

    markup = "<img/src=x/onerror=alert(1)>"
    draw(markup, "two")
    first, second = page.locator("#group button").all()
    expect(first).to_have_text(markup)
    assert first.locator("img").count() == 0 and "chip-negative" in str(first.get_attribute("class"))
    assert first.evaluate("element => element.style.getPropertyValue('--heat')") == "7%"
    second.focus()
    draw("three", "four")
    focused(page, "#group [data-position='1']")
    expect(page.locator(":focus")).to_have_text("four")


def test_components_are_told_of_changes_and_not_of_each_step_of_dash(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.")))
    head_drawn(page, "Head 0.0")
    settled(page)
    told = page.evaluate(
        """async (text) => {
            let told = 0;
            dash_stores[0].subscribe(() => { told += 1; });
            for (let i = 0; i < 20; i += 1) dash_clientside.set_props(text, { value: `The captain ${i}` });
            await new Promise((resolve) => requestAnimationFrame(resolve));
            return told;
        }""",
        heads.TEXT,
    )
    assert 20 <= told <= 25  # once a change; Dash itself takes three steps for each of the twenty
    expect(page.locator(f"#{heads.TEXT}")).to_have_value("The captain 19")


def test_what_is_typed_amid_a_text_stays_where_it_is_typed(open_page):
    page = open_page(HEADS.format(HeadsState(checkpoint="tiny-mhsa", text="The captain bowed.")))
    head_drawn(page, "Head 0.0")
    text = page.locator(f"#{heads.TEXT}")
    text.evaluate("element => { element.focus(); element.setSelectionRange(4, 4); }")
    choose(page, page.keyboard.type, "old sea ")
    expect(text).to_have_value("The old sea captain bowed.")


def test_pages_are_in_groups_that_open_by_pointer_and_keyboard(open_page):
    page = open_page("/circuits")
    circuits = page.locator(".nav-name", has_text="Circuits")
    navigation = page.locator(".navigation[data-page]")
    expect(circuits).to_have_attribute("data-page", "")
    expect(navigation).to_have_count(0)  # the group's own name is said once
    trigrams = page.locator(".nav-link", has_text="Skip-trigrams")
    expect(trigrams).to_be_hidden()
    circuits.hover()
    expect(trigrams).to_be_visible()
    page.mouse.move(700, 600)
    expect(trigrams).to_be_hidden()
    circuits.focus()
    expect(trigrams).to_be_visible()
    choose(page, page.keyboard.press, "Escape")
    expect(trigrams).to_be_hidden()
    circuits.focus()
    choose(page, page.keyboard.press, "Tab")
    choose(page, page.keyboard.press, "Tab")
    choose(page, page.keyboard.press, "Enter")
    page.wait_for_function("() => location.pathname === '/trigrams'")
    expect(trigrams).to_have_attribute("aria-current", "page")
    expect(navigation).to_have_attribute("data-page", "Skip-trigrams")
    expect(trigrams).to_be_hidden()


def test_a_chosen_page_shuts_its_menu_and_moves_no_other(open_page):
    page = open_page("/checkpoints")
    places = "[...document.querySelectorAll('.nav-name, .nav-group + .nav-link')].map(e => e.getBoundingClientRect().x)"
    before = page.evaluate(places)
    page.locator(".nav-name", has_text="Circuits").hover()
    trigrams = page.locator(".nav-link", has_text="Skip-trigrams")
    choose(page, trigrams.click)
    expect(page.locator(".navigation")).to_have_attribute("data-page", "Skip-trigrams")
    expect(trigrams).to_be_hidden()  # though the pointer is where it was
    assert page.evaluate(places) == before
    page.mouse.move(700, 600)
    page.locator(".nav-name", has_text="Circuits").hover()
    expect(trigrams).to_be_visible()
