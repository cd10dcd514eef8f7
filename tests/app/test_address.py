"""Addresses: what is written is read back, in Python and in the browser; what can't be is said."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.address import Address, pair, parse_query, real, reals, texts, wholes
from app.core.links import Links
from app.pages import PAGES
from app.pages.heads.address import ADDRESS, HeadsState
from app.shell import static
from tests.messages import says

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
    path, _, query = ADDRESS.format(state).partition("?")
    assert path == "/heads"
    assert ADDRESS.parse("?" + query if query else "") == state


@given(st.text(max_size=100))
def test_any_query_is_read(query: str):
    for page in PAGES:
        page.address.parse("?" + query)


def test_what_a_browser_writes_is_read():
    """URLSearchParams' own form: + for a space, percent-encoded UTF-8."""
    search = "?checkpoint=novels-2l-mhsa&text=caf%C3%A9+%F0%9F%99%82%0A%00%2B&head=1.3&position=0&sink=hide"
    expected = HeadsState(checkpoint="novels-2l-mhsa", text="café 🙂\n\0+", head=(1, 3), position=0, hide_first=True)
    assert ADDRESS.parse(search) == expected


def test_nonsense_is_left_out():
    search = "?head=1&position=-3&view=upside-down&direction=&sink=maybe&checkpoint=&unknown=1"
    assert ADDRESS.parse(search) == HeadsState()
    assert ADDRESS.parse("?head=1.x&position=1e9") == HeadsState()
    assert ADDRESS.parse("?position=12345678901234567890&head=٣.٤") == HeadsState()


def test_a_lone_surrogate_does_not_break_an_address():
    assert ADDRESS.parse(ADDRESS.format(HeadsState(text="a\ud800b")).partition("/heads")[2]).text == "a?b"


# ── what cannot be ──────────────────────────────────────────────────────────────────────────────────────────


TAKEN = "{} was taken instead".format
LEFT_OUT = "left out"


@pytest.mark.parametrize(
    ("search", "state", "parts"),
    [
        ("view=upside-down", {}, ("attention, weighted, scores", TAKEN("attention"))),
        ("position=-3", {}, ("0 to 999,999", LEFT_OUT)),
        ("head=1", {}, ("1.3", LEFT_OUT)),
        ("sink=maybe", {}, ("'hide'", LEFT_OUT)),
        (
            "head=99.99&checkpoint=tiny-mhsa",
            {"checkpoint": "tiny-mhsa", "head": (0, 0)},
            ("2 layers of 3 heads", TAKEN("0.0")),
        ),
        (
            "checkpoint=nowhere",
            {"checkpoint": "tiny-fixed"},
            ("tiny-fixed, tiny-mhsa, tiny-mssa, broken", TAKEN("tiny-fixed")),
        ),
        (
            "position=3&text=a&checkpoint=tiny-mhsa",
            {"checkpoint": "tiny-mhsa", "text": "a"},
            ("text's 2 tokens", "0 to 1", LEFT_OUT),
        ),
    ],
)
def test_a_value_that_cannot_be_is_said(services, search: str, state: dict[str, Any], parts: tuple[str, ...]):
    found, (sentence,) = ADDRESS.read(f"?{search}", services)
    assert found == HeadsState(**state)
    says(sentence, f"{search.partition('&')[0]}: expected", *parts)


@pytest.mark.parametrize(
    ("page", "search", "parts"),
    [
        ("heads", "rank=nothing", ("rank=nothing: expected",)),
        ("heads", "position=47&text=a+b+c", ("position=47: expected", "text's")),
        ("paths", "position=40&text=a", ("position=40: expected", "text's 2 tokens")),
        ("paths", "target=300", ("target=300: expected", "0 to 299", LEFT_OUT)),
        ("paths", "versus=4096", ("versus=4096: expected", "0 to 299", LEFT_OUT)),
        ("trigrams", "corpus=text-0123456789abcdef", ("deleted", LEFT_OUT)),
        ("distillation", "corpus=novels", ("corpus=novels: expected", "kept here")),
        ("trigrams", "distance=25", ("1 to 24", "mean", TAKEN(24))),
        ("trigrams", "distance=near", ("1 to 24", "mean", LEFT_OUT)),
        ("trigrams", "tokens=999999999999", ("1,000,000", TAKEN(1000000))),
        ("trigrams", "tokens=-5", ("1,000,000", TAKEN(1))),
        ("trigrams", "k=1&row=99999", ("row=99999: expected at most 1", TAKEN(1))),
        ("compare", "text=a&other=a+b&position=2", ("position=2: expected", "text's 2 tokens", LEFT_OUT)),
        ("compare", "text=a&other=a+b&other-position=40", ("40: expected", "one of the text's", LEFT_OUT)),
        ("compare", "text=a&other-position=1", ("other-position=1: expected none", "same tokens", LEFT_OUT)),
        ("trigrams", "tokens=2000000", ("1,000,000", TAKEN(1000000))),
        ("distillation", "across=nothing", ("across=nothing: expected",)),
        ("subspaces", "layers=4&layer=5", ("layer=5: expected", "at most 4", TAKEN(4))),
        ("subspaces", "clusters=2&head=3", ("head=3: expected", "at most 2", TAKEN(2))),
        ("nonlinearity", "bound=2&x=2.5", ("x=2.5: expected", "-2 to 2", "2 was taken")),
    ],
)
def test_what_is_not_there_is_said(services, page: str, search: str, parts: tuple[str, ...]):
    declared = next(one.address for one in PAGES if one.name == page)
    first = "&checkpoint=tiny-mhsa" if "checkpoint" in declared.names() else "&left=tiny-mhsa&right=tiny-mhsa"
    _, (sentence,) = declared.read(f"?{search}{first}", services)
    says(sentence, *parts)


@pytest.mark.parametrize(
    ("page", "search"),
    [
        ("heads", "position=1&text=a&rank=previous_token"), ("paths", "position=0&text=a&target=299&versus=0"),
        ("trigrams", "distance=24&tokens=1000000"), ("trigrams", "distance=mean"), ("nonlinearity", "bound=3&x=2.5"),
        ("subspaces", "layers=4&layer=4&clusters=2&head=2"), ("distillation", "across=previous_token"),
    ],
)  # fmt: skip
def test_what_is_there_is_not(services, page: str, search: str):
    declared = next(one.address for one in PAGES if one.name == page)
    first = "&checkpoint=tiny-mhsa" if "checkpoint" in declared.names() else ""
    assert declared.read(f"?{search}{first}", services)[1] == []


def test_a_value_that_can_be_is_not(services):
    state = HeadsState(checkpoint="tiny-mssa", head=(2, 1), view="scores")
    assert ADDRESS.read(ADDRESS.format(state).partition("?")[2], services) == (state, [])


def test_a_long_value_is_quoted_in_part():
    _, (sentence,) = ADDRESS.read("?view=" + "x" * 500)
    assert len(sentence) < 200


# ── every kind of field ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class EveryState:
    """One of each kind that the Heads page has not."""

    number: float = real(0.05)
    maybe: float | None = real()
    share: float = real(0.5, least=0, most=1)
    block: tuple[int, int] | None = pair()
    rows: tuple[int, ...] = wholes(most=4)
    names: tuple[str, ...] = texts(most=3, longest=20)
    x: tuple[float, ...] | None = reals(most=2)


EVERY = Address("every", EveryState)
#: Numbers as people and sliders make them; `x` is written with six digits.
DECIMALS = st.decimals(-1000, 1000, places=3).map(float)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
EVERY_STATES = st.builds(
    EveryState,
    number=DECIMALS,
    maybe=st.none() | DECIMALS,
    share=st.floats(0, 1),
    block=st.none() | st.tuples(NUMBERS, NUMBERS),
    rows=st.lists(NUMBERS, max_size=4, unique=True).map(tuple),
    names=st.lists(NAMES, max_size=3, unique=True).map(tuple),
    x=st.none() | st.lists(st.decimals(-9, 9, places=3).map(float), min_size=1, max_size=2).map(tuple),
)


@given(EVERY_STATES)
def test_every_kind_comes_back(state: EveryState):
    assert EVERY.read(EVERY.format(state).partition("?")[2]) == (state, [])


@pytest.mark.parametrize(
    ("search", "state"),
    [
        ("?rows=1-2-x", EveryState()),
        ("?rows=5-4-3-2-1-0", EveryState(rows=(5, 4, 3, 2))),
        ("?names=a,b,c,d", EveryState(names=("a", "b", "c"))),
        ("?number=nan", EveryState()),
        ("?share=1.5", EveryState(share=1.0)),
        ("?x=1,2,3", EveryState()),
        ("?block=1.", EveryState()),
    ],
)
def test_every_kind_says_what_was_taken(search: str, state: EveryState):
    taken, sentences = EVERY.read(search)
    assert taken == state
    assert len(sentences) == 1


def test_links_know_pages_by_name():
    links = Links([ADDRESS, EVERY])
    assert links.to("heads", head=(1, 3), text="a b") == "/heads?text=a+b&head=1.3"
    with pytest.raises(ValueError, match="no page 'nowhere'"):
        links.to("nowhere")
    with pytest.raises(TypeError):
        links.to("heads", had=(1, 3))


def test_a_key_stands_once_in_an_address():
    @dataclass(frozen=True, kw_only=True)
    class Twice:
        a: float = real(1.0, key="b")
        b: float = real(2.0)

    with pytest.raises(ValueError, match="a key twice"):
        Address("twice", Twice)


# ── the browser ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_browser_writes_what_python_writes(chromium):
    """The same states through app/shell/static/address.js; compared by what Python reads in both."""
    addresses = {one.name: {"paths": [one.path], "fields": one.browser()} for one in (ADDRESS, EVERY)}
    cases: list[tuple[Any, Any]] = []

    @settings(max_examples=60, database=None)
    @given(st.tuples(st.just(ADDRESS), STATES) | st.tuples(st.just(EVERY), EVERY_STATES))
    def collect(case: tuple[Any, Any]) -> None:
        cases.append(case)

    collect()
    page = chromium.new_page()
    for name in ("wiring.js", "address.js"):
        page.evaluate((static.HERE / name).read_text())
    written = page.evaluate(
        "([addresses, cases]) => (aotlens.address.declare(addresses),"
        " cases.map(([page, state]) => aotlens.address.format(page, state)))",
        [addresses, [[one.name, asdict(state)] for one, state in cases]],
    )
    page.close()
    for (one, state), browser in zip(cases, written, strict=True):
        path, _, search = browser.partition("?")
        assert (path, one.read(search)) == (one.path, (state, []))
        assert parse_query(search).keys() == parse_query(one.format(state).partition("?")[2]).keys()


@pytest.mark.parametrize(
    ("value", "said"),
    [({"steps": 20}, None), ({"steps": 2**31}, "steps"), ({"steps": 2.5}, "steps"), ({"steps": True}, "steps"),
     ({"steps": "20"}, None), ({"steps": "2147483648"}, "steps"),
     ({"steps": "x"}, "steps"), ({"steps": None}, None), ({"inside": [{"steps": 0}]}, "steps"), ([1, "x"], None),
     ({"task": "nothing"}, "task"), ({"query": [0.5, 1.0]}, None), ({"query": [0.5] * 3}, "query"),
     ({"query": ["0.5"]}, "query"), ({"query": {"x": 1}}, None), ({"noise": 1}, None), ({"noise": 1e308}, "noise")],
)  # fmt: skip
def test_what_json_says_under_a_fields_name_is_what_the_address_could_say(value, said):
    from app.pages.denoising import PAGE

    assert PAGE.address.unsaid(value) == said


@pytest.mark.parametrize("field", [texts(most=2, longest=5), wholes(most=2)])
def test_lists_are_said_in_any_order_and_within_their_number(field):
    says = field.metadata["address"].says
    values = ["b", "a"] if says(["a"]) else [2, 1]
    assert says(values) and says([]) and not says([*values, values[0]]) and not says([None]) and says(3) and says("3")
