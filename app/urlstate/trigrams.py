"""The Skip-trigrams page's address: a table, its filters, and the text that it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.urlstate.query import choice, dotted, format_query, head_of, number, parse_query

Score = Literal["effect", "sum", "product"]
End = Literal["top", "bottom"]
Within = Literal["table", "all"]
Verdict = Literal["confirmed", "not confirmed", "too rare"]
VERDICTS: tuple[str, ...] = get_args(Verdict)

TRIGRAMS_PATH = "/trigrams"

#: Skip-trigrams that are listed, at first and at most; and the longest text that is searched for in a token.
FIRST_ROWS = 500
MAX_ROWS = 5000
_MAX_WANTED = 60

#: Tokens that can be asked for: of a text, or of training.
MAX_COUNT = 999_999_999

#: What sorts of skip-trigrams there are (`aotlens.trigrams.kinds.KINDS`, whose import takes seconds).
TRIGRAM_KINDS = ("copying", "punctuation", "names", "morphology", "other")

#: Tokens of text that rows are held against, at first.
FIRST_TOKENS = 100_000


@dataclass(frozen=True, kw_only=True)
class TrigramsState:
    """Everything that the Skip-trigrams page shows."""

    checkpoint: str | None = None
    head: tuple[int, int] | None = None
    score: Score = "effect"
    end: End = "top"
    """The highest scores, or the lowest: what the head suppresses."""
    distance: int | Literal["mean"] | None = None
    k: int = FIRST_ROWS
    least: int = 0
    """Training counts that a token must have; 0: any."""
    source: str = ""
    """Part of a token, or `=` and all of it."""
    destination: str = ""
    out: str = ""
    within: Within = "table"
    """Whether tokens are searched for among the rows, or the rows are the best of those with such tokens."""
    verdict: Verdict | None = None
    kind: str | None = None
    corpus: str | None = None
    """A name that the server knows; None: its first."""
    tokens: int = FIRST_TOKENS
    """Tokens of it that are read."""
    row: int | None = None
    """The rank of the row that is explained; None: the first."""


def parse_trigrams(search: str | None) -> TrigramsState:
    """The state that `format_trigrams` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    k, distance = (number(query.get(key)) for key in ("k", "distance"))
    tokens, least = (_count(query.get(key)) for key in ("tokens", "least"))
    wanted = {key: query.get(key, "")[:_MAX_WANTED] for key in ("source", "destination", "out")}
    return TrigramsState(
        checkpoint=query.get("checkpoint") or None,
        head=head_of(query),
        score=choice(query, "score", get_args(Score), "effect"),
        end=choice(query, "end", get_args(End), "top"),
        distance="mean" if query.get("distance") == "mean" else distance,
        k=FIRST_ROWS if k is None else min(max(k, 1), MAX_ROWS),
        least=least or 0,
        **wanted,
        within=choice(query, "within", get_args(Within), "table"),
        verdict=choice(query, "verdict", VERDICTS, None),
        kind=choice(query, "kind", TRIGRAM_KINDS, None),
        corpus=query.get("corpus") or None,
        tokens=tokens or FIRST_TOKENS,
        row=number(query.get("row")),
    )


def _count(value: str | None) -> int | None:
    """Tokens are counted beyond the six digits of `number`."""
    if value is None or not (value.isascii() and value.isdigit()) or len(value) > len(str(MAX_COUNT)):
        return None
    return int(value)


def format_trigrams(state: TrigramsState) -> str:
    """The address of a state; defaults are left out."""
    pairs = {
        "checkpoint": state.checkpoint,
        "head": dotted(state.head),
        "score": state.score if state.score != "effect" else None,
        "end": state.end if state.end != "top" else None,
        "distance": None if state.distance is None else str(state.distance),
        "k": str(state.k) if state.k != FIRST_ROWS else None,
        "least": str(state.least) if state.least else None,
        "source": state.source,
        "destination": state.destination,
        "out": state.out,
        "within": state.within if state.within != "table" else None,
        "verdict": state.verdict,
        "kind": state.kind,
        "corpus": state.corpus,
        "tokens": str(state.tokens) if state.tokens != FIRST_TOKENS else None,
        "row": None if state.row is None else str(state.row),
    }
    return TRIGRAMS_PATH + format_query({key: value for key, value in pairs.items() if value})
