"""Addresses: what is written is read back, and what can't be read is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.urlstate import (
    HeadsState,
    format_checkpoints,
    format_heads,
    parse_checkpoints,
    parse_heads,
)

# An address is UTF-8: it can hold every character but a lone surrogate.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)
NUMBERS = st.integers(0, 999_999)

STATES = st.builds(
    HeadsState,
    checkpoint=st.none() | TEXTS.filter(bool),
    text=st.none() | TEXTS,
    head=st.none() | st.tuples(NUMBERS, NUMBERS),
    position=st.none() | NUMBERS,
    view=st.sampled_from(["attention", "weighted", "scores"]),
    direction=st.sampled_from(["to", "from"]),
    hide_first=st.booleans(),
)


@given(STATES)
def test_a_state_comes_back_from_its_address(state: HeadsState):
    path, _, query = format_heads(state).partition("?")
    assert path == "/heads"
    assert parse_heads("?" + query if query else "") == state


@given(st.none() | TEXTS.filter(bool))
def test_a_checkpoint_comes_back_from_its_address(name: str | None):
    path, _, query = format_checkpoints(name).partition("?")
    assert path == "/checkpoints"
    assert parse_checkpoints("?" + query) == name


@given(st.text(max_size=100))
def test_any_query_is_read(query: str):
    assert isinstance(parse_heads("?" + query), HeadsState)


def test_what_a_browser_writes_is_read():
    """URLSearchParams' own form: + for a space, percent-encoded UTF-8."""
    search = "?checkpoint=novels-2l-mhsa&text=caf%C3%A9+%F0%9F%99%82%0A%00%2B&head=1.3&position=0&sink=hide"
    expected = HeadsState(checkpoint="novels-2l-mhsa", text="café 🙂\n\0+", head=(1, 3), position=0, hide_first=True)
    assert parse_heads(search) == expected


def test_nonsense_is_left_out():
    search = "?head=1&position=-3&view=upside-down&direction=&sink=maybe&checkpoint=&unknown=1"
    assert parse_heads(search) == HeadsState()
    assert parse_heads("?head=1.x&position=1e9") == HeadsState()
    assert parse_heads("?position=12345678901234567890&head=٣.٤") == HeadsState()


def test_a_lone_surrogate_does_not_break_an_address():
    assert parse_heads(format_heads(HeadsState(text="a\ud800b")).partition("/heads")[2]).text == "a?b"
