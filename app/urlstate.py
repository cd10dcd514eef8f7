"""What an address says, as values; pure functions.

    /heads?checkpoint=novels-2l-mhsa&text=The+cat&head=1.3&position=4&view=scores&direction=from&sink=hide
    /circuits?checkpoint=novels-2l-mhsa&head=1.0&left=tokens&right=0.3&rows=12-262&block=3.17
    /paths?checkpoint=novels-2l-mhsa&text=Then+Harriet&position=17&target=262&versus=11&by=pos&k=40&without=1.0
    /trigrams?checkpoint=novels-1l-mhsa&head=0.2&score=sum&end=bottom&distance=mean&k=200&out=%C2%B7thou&verdict=confirmed
    /checkpoints?checkpoint=novels-2l-mhsa

Addresses are typed, cut and pasted, so parsing never fails: what can't be understood is left out, which the page reads
as "not chosen". The browser writes the same form (assets/address.js).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qs, urlencode

View = Literal["attention", "weighted", "scores"]
Direction = Literal["to", "from"]
Kind = Literal["qk", "ov"]
Statistic = Literal["extreme", "mean"]
Ranking = Literal["abs", "pos", "neg"]
Score = Literal["effect", "sum", "product"]
End = Literal["top", "bottom"]
Within = Literal["table", "all"]
Verdict = Literal["confirmed", "not confirmed", "too rare"]
VERDICTS: tuple[str, ...] = get_args(Verdict)

HEADS_PATH = "/heads"
CIRCUITS_PATH = "/circuits"
PATHS_PATH = "/paths"
TRIGRAMS_PATH = "/trigrams"
CHECKPOINTS_PATH = "/checkpoints"

#: Layers, heads and positions have at most this many digits; longer numbers are no addresses of ours.
_MAX_DIGITS = 6

#: A side of a circuit by name; an earlier or later head is `layer.head`.
SIDES = ("tokens", "positions", "bias", "residual", "logits")

#: Rows and columns of the map that an address may name.
MAX_CHOSEN = 48

#: Standard deviations above chance from which the Circuits page draws two heads as composed.
FIRST_Z = 5

#: Paths that the Paths page lists, at first and at most.
FIRST_K = 20
MAX_K = 200

#: A head, `1.0`, or a path, `token@4-0.2-1.3`: where it starts and the heads that it passes.
_WITHOUT = re.compile(r"\d{1,4}\.\d{1,4}|(token|position|bias)(@\d{1,6})?(-\d{1,4}\.\d{1,4}){0,200}", re.ASCII)


#: Skip-trigrams that are listed, at first and at most; and the longest text that is searched for in a token.
FIRST_ROWS = 500
MAX_ROWS = 5000
_MAX_WANTED = 60

#: What sorts of skip-trigrams there are (`aotlens.trigrams.kinds.KINDS`, whose import takes seconds).
TRIGRAM_KINDS = ("copying", "punctuation", "names", "morphology", "other")

#: Tokens of text that rows are held against, at first.
FIRST_TOKENS = 100_000


@dataclass(frozen=True, kw_only=True)
class HeadsState:
    """Everything that the Heads page shows."""

    checkpoint: str | None = None
    text: str | None = None
    """None: the first example."""
    head: tuple[int, int] | None = None
    """Layer and head."""
    position: int | None = None
    """The locked token; None: none."""
    view: View = "attention"
    direction: Direction = "to"
    """Whether chips show where the token attends, or what attends to it."""
    hide_first: bool = False
    """Whether attention to position 0 is left out."""


@dataclass(frozen=True, kw_only=True)
class CircuitsState:
    """Everything that the Circuits page shows."""

    checkpoint: str | None = None
    head: tuple[int, int] | None = None
    kind: Kind = "qk"
    left: str | None = None
    """The rows' side, one of `SIDES` or `layer.head`; None: tokens, where the model has them."""
    right: str | None = None
    biases: bool = False
    """Whether the biases are in every entry of a QK circuit."""
    rows: tuple[int, ...] = ()
    """The map's rows; none: those of the largest entries."""
    columns: tuple[int, ...] = ()
    row: int | None = None
    """The row that is listed; None: that of the largest entry."""
    column: int | None = None
    statistic: Statistic = "extreme"
    """What stands for a block of the whole matrix."""
    block: tuple[int, int] | None = None
    """The block that is shown in full; None: that of the largest entry."""
    z: int = FIRST_Z
    """Composition is drawn from so many standard deviations above independent random heads."""
    text: str | None = None
    """The text on the Heads page, for the way back."""


@dataclass(frozen=True, kw_only=True)
class PathsState:
    """Everything that the Paths page shows."""

    checkpoint: str | None = None
    text: str | None = None
    """None: the first example."""
    position: int | None = None
    """The token after which the target stands; None: the last."""
    target: int | None = None
    """A token's id; None: the model's first choice."""
    versus: int | None = None
    """The token whose logit is subtracted."""
    by: Ranking = "abs"
    """Which paths come first: the largest in size, the most for the target, the most against it."""
    k: int = FIRST_K
    without: str | None = None
    """The head or path that is taken away, as `_WITHOUT` has it."""


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


def parse_query(search: str | None) -> dict[str, str]:
    """The last value of each key of `?key=value&…`."""
    query = (search or "").removeprefix("?")
    values = parse_qs(query, keep_blank_values=True, max_num_fields=None)
    return {key: found[-1] for key, found in values.items()}


def parse_heads(search: str | None) -> HeadsState:
    """The state that `format_heads` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    return HeadsState(
        checkpoint=query.get("checkpoint") or None,
        text=query.get("text"),
        head=_head(query),
        position=_number(query.get("position")),
        view=_choice(query, "view", get_args(View), "attention"),
        direction=_choice(query, "direction", get_args(Direction), "to"),
        hide_first=query.get("sink") == "hide",
    )


def format_heads(state: HeadsState) -> str:
    """The address of a state; defaults are left out."""
    pairs: dict[str, str] = {}
    if state.checkpoint:
        pairs["checkpoint"] = state.checkpoint
    if state.text is not None:
        pairs["text"] = state.text
    if state.head is not None:
        pairs["head"] = f"{state.head[0]}.{state.head[1]}"
    if state.position is not None:
        pairs["position"] = str(state.position)
    if state.view != "attention":
        pairs["view"] = state.view
    if state.direction != "to":
        pairs["direction"] = state.direction
    if state.hide_first:
        pairs["sink"] = "hide"
    return HEADS_PATH + _query(pairs)


def parse_circuits(search: str | None) -> CircuitsState:
    """The state that `format_circuits` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    z = _number(query.get("z"))
    return CircuitsState(
        checkpoint=query.get("checkpoint") or None,
        head=_head(query),
        kind=_choice(query, "kind", get_args(Kind), "qk"),
        left=_side(query, "left"),
        right=_side(query, "right"),
        biases=query.get("biases") == "with",
        rows=_numbers(query.get("rows")),
        columns=_numbers(query.get("columns")),
        row=_number(query.get("row")),
        column=_number(query.get("column")),
        statistic=_choice(query, "blocks", get_args(Statistic), "extreme"),
        block=_pair(query.get("block", "")),
        z=FIRST_Z if z is None else z,
        text=query.get("text"),
    )


def format_circuits(state: CircuitsState) -> str:
    """The address of a state; defaults are left out."""
    pairs = {
        "checkpoint": state.checkpoint,
        "head": _dotted(state.head),
        "kind": state.kind if state.kind != "qk" else None,
        "left": state.left,
        "right": state.right,
        "biases": "with" if state.biases else None,
        "rows": "-".join(map(str, state.rows)),
        "columns": "-".join(map(str, state.columns)),
        "row": None if state.row is None else str(state.row),
        "column": None if state.column is None else str(state.column),
        "blocks": state.statistic if state.statistic != "extreme" else None,
        "block": _dotted(state.block),
        "z": str(state.z) if state.z != FIRST_Z else None,
        "text": state.text,
    }
    kept = {key: value for key, value in pairs.items() if value or (key == "text" and value is not None)}
    return CIRCUITS_PATH + _query(kept)


def parse_paths(search: str | None) -> PathsState:
    """The state that `format_paths` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    k, without = _number(query.get("k")), query.get("without", "")
    return PathsState(
        checkpoint=query.get("checkpoint") or None,
        text=query.get("text"),
        position=_number(query.get("position")),
        target=_number(query.get("target")),
        versus=_number(query.get("versus")),
        by=_choice(query, "by", get_args(Ranking), "abs"),
        k=FIRST_K if k is None else min(max(k, 1), MAX_K),
        without=without if _WITHOUT.fullmatch(without) else None,
    )


def format_paths(state: PathsState) -> str:
    """The address of a state; defaults are left out."""
    pairs = {
        "checkpoint": state.checkpoint,
        "text": state.text,
        "position": None if state.position is None else str(state.position),
        "target": None if state.target is None else str(state.target),
        "versus": None if state.versus is None else str(state.versus),
        "by": state.by if state.by != "abs" else None,
        "k": str(state.k) if state.k != FIRST_K else None,
        "without": state.without,
    }
    return PATHS_PATH + _query({key: value for key, value in pairs.items() if value is not None})


def parse_trigrams(search: str | None) -> TrigramsState:
    """The state that `format_trigrams` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    k, tokens, distance = (_number(query.get(key)) for key in ("k", "tokens", "distance"))
    wanted = {key: query.get(key, "")[:_MAX_WANTED] for key in ("source", "destination", "out")}
    return TrigramsState(
        checkpoint=query.get("checkpoint") or None,
        head=_head(query),
        score=_choice(query, "score", get_args(Score), "effect"),
        end=_choice(query, "end", get_args(End), "top"),
        distance="mean" if query.get("distance") == "mean" else distance,
        k=FIRST_ROWS if k is None else min(max(k, 1), MAX_ROWS),
        **wanted,
        within=_choice(query, "within", get_args(Within), "table"),
        verdict=_choice(query, "verdict", VERDICTS, None),
        kind=_choice(query, "kind", TRIGRAM_KINDS, None),
        corpus=query.get("corpus") or None,
        tokens=tokens or FIRST_TOKENS,
        row=_number(query.get("row")),
    )


def format_trigrams(state: TrigramsState) -> str:
    """The address of a state; defaults are left out."""
    pairs = {
        "checkpoint": state.checkpoint,
        "head": _dotted(state.head),
        "score": state.score if state.score != "effect" else None,
        "end": state.end if state.end != "top" else None,
        "distance": None if state.distance is None else str(state.distance),
        "k": str(state.k) if state.k != FIRST_ROWS else None,
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
    return TRIGRAMS_PATH + _query({key: value for key, value in pairs.items() if value})


def parse_checkpoints(search: str | None) -> str | None:
    """The checkpoint chosen on the Checkpoints page."""
    return parse_query(search).get("checkpoint") or None


def format_checkpoints(checkpoint: str | None) -> str:
    """The address of the Checkpoints page with one chosen."""
    return CHECKPOINTS_PATH + _query({"checkpoint": checkpoint} if checkpoint else {})


def _query(pairs: Mapping[str, str]) -> str:
    # A lone surrogate can't be part of an address; the page says so where the text is.
    return "?" + urlencode(pairs, errors="replace") if pairs else ""


def _number(value: str | None) -> int | None:
    if value is None or not (value.isascii() and value.isdigit()) or len(value) > _MAX_DIGITS:
        return None
    return int(value)


def _head(query: Mapping[str, str]) -> tuple[int, int] | None:
    return _pair(query.get("head", ""))


def _pair(value: str) -> tuple[int, int] | None:
    first, dot, second = value.partition(".")
    parts = _number(first), _number(second)
    return (parts[0], parts[1]) if dot and parts[0] is not None and parts[1] is not None else None


def _dotted(pair: tuple[int, int] | None) -> str | None:
    return None if pair is None else f"{pair[0]}.{pair[1]}"


def _numbers(value: str | None) -> tuple[int, ...]:
    """Distinct numbers, as many as a map has room for; none if one of them can't be read."""
    parts = [_number(part) for part in value.split("-")] if value else []
    numbers = [part for part in parts if part is not None]
    return tuple(dict.fromkeys(numbers))[:MAX_CHOSEN] if len(numbers) == len(parts) else ()


def _side(query: Mapping[str, str], key: str) -> str | None:
    value = query.get(key)
    return value if value in SIDES or (value and _dotted(_pair(value)) == value) else None


def _choice(query: Mapping[str, str], key: str, choices: tuple[str, ...], default: str | None):  # type: ignore[no-untyped-def]
    value = query.get(key)
    return value if value in choices else default
