"""What tests of the Skip-trigrams page in a browser share: its address, and waiting for its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.pages.trigrams.address import ADDRESS
from tests.app.conftest import settled

if TYPE_CHECKING:
    from playwright.sync_api import Page


def trigrams(**state: Any) -> str:
    return ADDRESS.to(**{"checkpoint": "tiny-one", "head": (0, 1), "k": 300, "fold": "none", **state})


def listed(page: Page, said: str) -> None:
    """Waits until the grid's count says so, and the first row is explained, where that panel is in view."""
    page.wait_for_function(
        """said => document.getElementById("trigrams-rows-caption")?.textContent.startsWith(said)
            && (said.startsWith("0")
                || document.querySelector("#trigrams-rows-table .ag-row [col-id=kind]")?.textContent)
            && (innerWidth < 1000 || document.querySelector("#trigrams-one-body .trigram-big"))""",
        arg=said,
    )


def column(page: Page, name: str) -> list[str]:
    """The texts of a column, as far as it is in view, from the top."""
    return page.evaluate(
        """name => [...document.querySelectorAll("#trigrams-rows-table .ag-center-cols-container .ag-row")]
            .sort((a, b) => a.getAttribute("row-index") - b.getAttribute("row-index"))
            .map(row => row.querySelector(`[col-id=${name}]`)?.textContent ?? "")""",
        name,
    )


def lists(page: Page, name: str, expected: list[str]) -> None:
    """Waits until the rows in view are the first of `expected`; the grid shows them some time after their count."""
    page.wait_for_function(
        """([name, expected]) => {
            const rows = [...document.querySelectorAll("#trigrams-rows-table .ag-center-cols-container .ag-row")]
                .sort((a, b) => a.getAttribute("row-index") - b.getAttribute("row-index"));
            return rows.length >= Math.min(expected.length, 10) && rows.every(
                (row, at) => (row.querySelector(`[col-id=${name}]`)?.textContent ?? "") === expected[at]);
        }""",
        arg=[name, expected],
    )
    settled(page)


def checked(page: Page) -> None:
    page.wait_for_function("""() => /confirmed|too rare/.test(
        document.querySelector("#trigrams-rows-table .ag-row [col-id=verdict]")?.textContent ?? "")""")
