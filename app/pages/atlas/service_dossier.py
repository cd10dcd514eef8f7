"""A head's dossier: passages, what its circuits are sharpest about, partners, losses, motifs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from app.core.errors import RequestError
from app.pages.atlas import words
from app.pages.atlas.service import Atlases, Made

if TYPE_CHECKING:
    from aotlens.conventions import Head
    from aotlens.heads.atlas import Partner
    from aotlens.heads.examples import Example

#: Tokens before a query and before a key that a passage has, and the least attention of a key that is told.
_BEFORE_QUERY, _BEFORE_KEY, _LEAST = 14, 4, 0.05
#: From how many standard deviations above flipped signs a head's circuit is shown through another one.
_LEAST_Z = 3.0
#: Motifs that are listed of a head, those most beyond chance first.
_N_MOTIFS = 6


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some of a passage: plain text, or one token that the head attends from or to."""

    text: str
    kind: Literal["plain", "query", "key", "next", "gap"]
    weight: float = 0.0
    """Attention of the query to it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Passage:
    """A place in the text where a head attends away from key 0."""

    away: float
    pieces: list[Piece]
    text: str | None
    """The window up to the token behind the query, where the Heads page reads the same tokens of it."""
    position: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Sharpest:
    """The rows that a circuit is sharpest about, in tokens' texts."""

    title: str
    unit: str
    rows: list[tuple[str, list[tuple[str, float]]]]
    """A row's token, and its largest entries: token and value above the row's level."""
    link: dict[str, Any]
    """The same circuit on the Circuits page."""


def bins(made: Made, head: Head) -> list[int]:
    """How many queries attend so much away from key 0, by tenths."""
    return [int(count) for count in made.atlas.examples.counts[head]]


def chosen_bin(made: Made, head: Head, wanted: int | None) -> int:
    """The wanted bin where it has examples, else the highest that has some."""
    counts = bins(made, head)
    if wanted is not None and 0 <= wanted < len(counts) and counts[wanted]:
        return wanted
    return max((place for place, count in enumerate(counts) if count), default=0)


def passages(service: Atlases, made: Made, head: Head, bin: int) -> list[Passage]:
    """The examples of a bin. Raises RequestError where the checkpoint can't be opened."""
    loaded = service.core.catalog.load(made.checkpoint)
    return [_passage(loaded.model, made, example) for example in made.atlas.examples.of(head, bin)]


def _passage(model: Any, made: Made, example: Example) -> Passage:
    ids = made.atlas.examples.tokens[example.sequence].tolist()
    strings = model.tokenizer.str_tokens(ids)
    keys = {k: w for k, w in zip(example.keys, example.weights, strict=True) if w >= _LEAST and k != example.query}
    own = dict(zip(example.keys, example.weights, strict=True)).get(example.query, 0.0)
    last = min(example.query + 1, len(ids) - 1)
    shown = set(range(max(1, example.query - _BEFORE_QUERY), last + 1))
    for key in keys:
        shown |= set(range(max(1, key - _BEFORE_KEY), min(key + 2, len(ids))))
    pieces: list[Piece] = []
    before = 0
    for position in sorted(shown):
        if position > before + 1:
            pieces.append(Piece(text="…", kind="gap"))
        before = position
        if position == example.query:
            pieces.append(Piece(text=strings[position], kind="query", weight=own))
        elif position in keys:
            pieces.append(Piece(text=strings[position], kind="key", weight=keys[position]))
        elif position == example.query + 1:
            pieces.append(Piece(text=strings[position], kind="next"))
        elif pieces and pieces[-1].kind == "plain":
            pieces[-1] = Piece(text=pieces[-1].text + strings[position], kind="plain")
        else:
            pieces.append(Piece(text=strings[position], kind="plain"))
    # Some windows begin within a character of several bytes, or with a space that a tokenizer would merge otherwise.
    text = "".join(strings[1 : last + 1])
    same = model.to_tokens(text)[0].tolist() == ids[: last + 1]
    return Passage(away=example.away, pieces=pieces, text=text if same else None, position=example.query)


def sharpest(service: Atlases, made: Made, head: Head) -> list[Sharpest]:
    """What a head looks for, by itself and through the heads that it reads, and what it writes.

    Raises RequestError where the model has no such circuits.
    """
    if "circuits" in made.atlas.missing:
        raise RequestError(f"This model has no circuits of tokens: {made.atlas.missing['circuits']}.")
    found = []
    if service.core.catalog.load(made.checkpoint).model.cfg.has_query_key:
        found.append(_of(service, made, head, "qk", None, "", "Looks for: query → keys"))
        for side in ("k", "q"):
            partner = next((one for one in made.atlas.reads(head, 99) if one.mode == side), None)
            if partner is not None and partner.z >= _LEAST_Z:
                what = f"Looks for, {words.MODES[side]} through {words.name(partner.head)}"
                found.append(_of(service, made, head, "qk", partner.head, side, what))
                break
    found.append(_of(service, made, head, "ov", None, "", "Writes: source → next tokens"))
    return found


def _of(service: Atlases, made: Made, head: Head, kind: str, through: Head | None, side: str, title: str) -> Sharpest:
    top = service.strongest(made.checkpoint, head, kind, through, side)
    tokenizer = service.core.catalog.load(made.checkpoint).model.tokenizer

    def text(index: Any) -> str:
        return str(tokenizer.str_tokens([int(index)])[0])

    rows = [
        (text(row), [(text(column), float(value)) for column, value in zip(columns, values, strict=True)])
        for row, columns, values in zip(top.rows, top.columns, top.relative, strict=True)
    ]
    link: dict[str, Any] = {"kind": kind, "head": head}
    if through is not None:
        link["right" if side == "k" else "left"] = words.name(through)
    return Sharpest(title=title, unit="nats" if kind == "qk" else "logits", rows=rows, link=link)


def partners(made: Made, head: Head) -> dict[str, tuple[Partner, ...]]:
    """Whom a head reads and feeds most beyond flipped signs."""
    return {"reads": made.atlas.reads(head, 4), "feeds": made.atlas.feeds(head, 4)}


def losses(made: Made, head: Head) -> list[dict[str, Any]]:
    """One record a kind of replacement: the change without this head and its interval, and without all heads."""
    records = []
    for how, each in made.atlas.ablations.items():
        place = each.heads.index(head)
        low, high = each.intervals()[place]
        together = made.atlas.together[how]
        records.append(
            {"how": how, "change": float(each.changes[place]), "low": float(low), "high": float(high),
             "together": together.change, "clean": together.clean_mean, "n": len(each.clean)}
        )  # fmt: skip
    return records


def motifs(made: Made, head: Head) -> list[dict[str, Any]]:
    """One record a motif: score, chance, excess and its interval; those most beyond chance first."""
    frame = made.atlas.motifs.chance_frame()
    own = frame[(frame["layer"] == head[0]) & (frame["head"] == head[1]) & frame["excess"].notna()]
    rows = own.sort_values("excess", ascending=False, kind="stable").head(_N_MOTIFS)
    return rows.to_dict("records")
