"""Python for the Skip-trigrams page's views: the search and, where the page has checked its rows, the check."""

from __future__ import annotations

from aotlens.plots import glyphs
from app.core import Core
from app.pages.trigrams.address import TrigramsState
from app.pages.trigrams.ids import ids
from app.pages.trigrams.service import MAX_BUGS, OVER, Choice, Reading, Trigrams
from app.pages.trigrams.service_direct import PathChoice, first_tokens
from app.pages.trigrams.view_callbacks import row_of
from app.shell.page import python_of
from app.shell.python import loading, reading

_COUNTED = "aotlens.trigrams.count_kinds(aotlens.trigrams.kinds(table))"


@python_of(ids.ROWS, ids.ONE, ids.KINDS, ids.FORCED, ids.ALL_HEADS, ids.PATH)
def python(core: Core, service: Trigrams, state: TrigramsState, panel: str) -> list[str] | None:
    """The lines that give a panel's numbers."""
    choice, shape = service.describe(state)
    text = service.reading(state, choice.checkpoint)
    if panel == ids.PATH:
        return _path(service, choice, state, text)
    if panel == ids.ALL_HEADS:
        every = f"[(layer, head) for layer in range({shape.n_layers}) for head in range({shape.n_heads})]"
        table = (f"    {line}" for line in _table(service, choice, "head"))
        return [*_loading(choice), f"result, heads = {{}}, {every}", "for head in heads:", *table,
                f"    result[head] = {_COUNTED}"]  # fmt: skip
    lines = [*_loading(choice), *_table(service, choice, f"{(choice.layer, choice.head)}")]
    evidence, rows = service.evidence(choice, text), "table"
    if evidence is not None and text is not None:
        rows, how_much = "found", f"max_tokens={text.tokens}, documents=documents"
        lines += [
            *reading(core, choice.checkpoint, text.text),
            f"found = aotlens.trigrams.evidence(model, table, text, {how_much})",
        ]
        if panel == ids.FORCED:
            forced = f"aotlens.trigrams.skip_trigram_bugs(model, found, text, limit={MAX_BUGS}, {how_much})"
            return [*lines, f"result = {forced}.to_frame()"]
        if panel == ids.KINDS:
            return [
                *lines,
                "pairs = list(zip(aotlens.trigrams.kinds(table), found.verdict))",
                "# By verdict, how many rows of each kind.",
                "result = {",
                "    verdict: aotlens.trigrams.count_kinds([kind for kind, its in pairs if its == verdict])",
                "    for verdict in ('confirmed', 'not confirmed', 'too rare')",
                "}",
            ]
    elif panel == ids.FORCED:
        return None
    if panel == ids.KINDS:
        return [*lines, f"result = {_COUNTED}"]
    found = service.table(choice)
    row = row_of(state.row, choice.k if found is None else len(found))
    return [*lines, f"result = {rows}.to_frame(){f'.iloc[[{row}]]' if panel == ids.ONE else ''}"]


def _loading(choice: Choice) -> list[str]:
    lines = loading(choice.checkpoint)
    if not (choice.source or choice.destination or choice.out):
        return lines
    strings = "model.tokenizer.str_tokens(range(model.cfg.d_vocab))"
    return [*lines, f"tokens = [aotlens.plots.glyphs(token) for token in {strings}]"]


def _table(service: Trigrams, choice: Choice, head: str) -> list[str]:
    """The rows that are listed, as `table`."""
    over = OVER[choice.fold]
    k = max(choice.k, service.settings.folded_rows) if over else choice.k
    asked = [f"k={k}", f"score={choice.score!r}", f"largest={choice.end == 'top'}"]
    if choice.distance is not None:
        asked.append(f"distance={choice.distance!r}")
    if choice.least:
        asked.append(f"min_count={choice.least}")
    if service.core.catalog.load(choice.checkpoint).model.unigram_counts is None:
        asked.append("background=np.ones(model.cfg.d_vocab)")
    lines = ["import numpy as np"] if asked[-1].startswith("background") else []
    for name in ("source", "destination", "out"):
        if wanted := getattr(choice, name):
            lines.append(f"{name}s = {_tokens_like(wanted)}")
            asked.append(f"{name}s={name}s")
    lines.append(f"table = aotlens.trigrams.skip_trigrams(model, {head}, {', '.join(asked)})")
    if over:
        best = f"aotlens.trigrams.fold_rows(table, {over}).best[:{choice.k}]"
        lines += ["# Rows that say nearly the same, folded beneath the best of them.", f"table = table.take({best})"]
    return lines


def _tokens_like(wanted: str) -> str:
    """As `service.contains` has it."""
    exact = wanted.startswith("=")
    like = f"token == {glyphs(wanted[1:])!r}" if exact else f"{glyphs(wanted).casefold()!r} in token.casefold()"
    return f"[number for number, token in enumerate(tokens) if {like}]"


def _path(service: Trigrams, choice: Choice, state: TrigramsState, text: Reading | None) -> list[str]:
    asked = PathChoice(checkpoint=choice.checkpoint, k=choice.k, own=state.own, after=state.after, reading=text)
    first, k = first_tokens(service, asked)
    lines, given = loading(asked.checkpoint), [str(k)]
    if first is not None:
        given.append(f"tokens={first}")
    if asked.own:
        given.append("heads=aotlens.trigrams.own_token_heads(model)")
    if text is not None:
        lines += reading(service.core, asked.checkpoint, text.text)
        given.append(f"corpus=text, max_tokens={text.tokens}, documents=documents")
    return [*lines, f"result = aotlens.trigrams.bigrams(model, {', '.join(given)}).to_frame()"]
