"""A head's skip-trigrams, whether text bears them out, and the direct path, as views."""

from __future__ import annotations

from aotlens.views.calls import Call, Load, call, make
from aotlens.views.trigram_captions import (
    rows_caption,
    says_forced,
    says_path,
    says_verdicts,
    says_zero_layer,
)
from aotlens.views.trigram_choice import OF_A_TOKEN, TrigramsParameters
from aotlens.views.view import About, View

#: Operations for a token of text that is encoded and counted.
_A_TOKEN = 1e4
#: The same for an exponential that is summed.
_AN_EXP = 400.0

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"


def _missing(chosen: TrigramsParameters) -> str | None:
    return chosen.problem or None


def _missing_rows(chosen: TrigramsParameters) -> str | None:
    return chosen.problem or (None if chosen.searched else "The rows have not been searched for yet.")


def _missing_text(chosen: TrigramsParameters) -> str | None:
    return _missing_rows(chosen) or (chosen.no_text if chosen.reading is None else None)


def _missing_check(chosen: TrigramsParameters) -> str | None:
    reason = "The rows have not been checked against text, so it is not known what they force."
    return _missing_rows(chosen) or (None if chosen.checked or chosen.stored else reason)


def _search_cost(chosen: TrigramsParameters) -> float:
    """Two products of tokens × tokens, of the head's width; at a distance, with rotary positions, one more with an
    exponential an entry for each distance up to half the context."""
    model = chosen.model
    width = int(model.get("d_head") or int(model["d_model"]) // int(model["n_heads"]))
    distances = int(model["n_ctx"]) // 2 if chosen.distance is not None and model.get("positions") == "rotary" else 0
    return int(model["d_vocab"]) ** 2 * (4.0 * width + distances * (2.0 * width + _AN_EXP))


def _check_cost(chosen: TrigramsParameters) -> float:
    return _search_cost(chosen) + (0.0 if chosen.reading is None else _A_TOKEN * chosen.reading.tokens)


def _path_cost(chosen: TrigramsParameters) -> float:
    """Cost four products of tokens × tokens: the largest entries and normalisers, and these of all tokens."""
    reading = 0.0 if chosen.reading is None else _A_TOKEN * chosen.reading.tokens
    return 8.0 * int(chosen.model["d_vocab"]) ** 2 * int(chosen.model["d_model"]) + reading


def _rows_call(chosen: TrigramsParameters) -> Call:
    return chosen.rows


def _path(chosen: TrigramsParameters) -> Call:
    given = chosen.bigrams
    if not chosen.after:
        return call("aotlens.trigrams.bigrams", Load(chosen.checkpoint), chosen.k, **given)
    n = min(chosen.k, OF_A_TOKEN)
    most = max(chosen.most_rows // n, 1)
    tokens = make("aotlens.trigrams.tokens_like", Load(chosen.checkpoint), chosen.after, "first token", most=most)
    return call("aotlens.trigrams.bigrams", Load(chosen.checkpoint), n, tokens=tokens, **given)


#: The choice of rows, of which checkpoint.
CHOICE = View(
    name="choice",
    title="Skip-trigrams",
    about=About(
        text="A skip-trigram [source] … [destination] → [predicted token]: with the source earlier in the text and the "
        "destination as the current token, the head moves the logit of the predicted token. Read from the weights, "
        "over all triples of the vocabulary. The address in your browser holds everything you choose here.",
        formula="z = QK[destination, source] − log-mean-exp over training tokens;  effect = attention(z) · OV[source, "
        "predicted token]",
        source=f"Structures in Transformers, Section 5; {_FRAMEWORK}",
    ),
    call=lambda chosen: call("aotlens.checkpoints.find_checkpoint", chosen.checkpoint),
    caption=lambda chosen, info: info.name,
    file=lambda chosen: chosen.file("choice"),
    missing=_missing,
    pictured=False,
)
ROWS = View(
    name="rows",
    title="Rows",
    about=About(
        text="A row stands for a group of those that differ from it in the source or the destination only (sources "
        "grouped: in the source only); + lists the others of the group. All lists each by itself. Search by part of a "
        "token, or = and all of it (· is a space, ⏎ a line end). Click a column’s name to sort, a row to explain it; "
        "on the keyboard, arrow keys and Enter.",
    ),
    call=_rows_call,
    caption=rows_caption,
    file=lambda chosen: chosen.file("skip-trigrams"),
    missing=_missing,
    cost=_search_cost,
    pictured=False,
    slow="searches",
)
ONE = View(
    name="row",
    title="One row",
    about=About(
        text="The row in numbers and, once the rows are checked against text, how often it is true and in which "
        "places. A place opens in Heads.",
    ),
    call=lambda chosen: chosen.rows.method("row", *([] if chosen.row is None else [chosen.row])),
    caption=lambda chosen, row: f"{row.headline}.",
    file=lambda chosen: chosen.file("row"),
    missing=_missing_rows,
    pictured=False,
)
KINDS = View(
    name="kinds",
    title="Kinds",
    about=About(text="The kind of each row, by rules that read its strings; the first rule that holds counts."),
    call=_rows_call,
    caption=says_verdicts,
    file=lambda chosen: chosen.file("kinds"),
    missing=_missing_rows,
    table="kind_frame",
)
FORCED = View(
    name="forced",
    title="Forced skip-trigrams",
    about=About(
        text="A head’s score factors, so with keep … in → mind and keep … at → bay it also says keep … in → bay: what "
        "two confirmed rows with one source force, and how often the text has it.",
        formula="effect(in → bay) · effect(at → mind) = effect(in → mind) · effect(at → bay)",
        source=f"Skip-trigram bugs: {_FRAMEWORK}",
    ),
    call=_rows_call,
    caption=lambda chosen, rows: says_forced(rows),
    file=lambda chosen: chosen.file("forced-triples"),
    missing=_missing_check,
    table="forced_frame",
    pictured=False,
)
CHECK = View(
    name="check",
    title="Check against text",
    about=About(
        text="A row read from weights need not be true of language, nor matter where it is. Checked against text, each "
        "row gets a verdict, and places to read. Places are compared within stretches of one document, since a source "
        "may only tell which document it is.",
        formula="lift within documents = places that the predicted token follows ÷ those expected, were source and "
        "predicted token independent in a stretch",
    ),
    call=lambda chosen: chosen.check(),
    caption=says_verdicts,
    file=lambda chosen: chosen.file("check"),
    missing=_missing_text,
    pictured=False,
    slow="tokens",
)
#: The verdicts of the text alone, before the model is run on it.
DECIDABLE = View(
    name="decidable",
    title=CHECK.title,
    about=CHECK.about,
    call=lambda chosen: chosen.check(run_model=False),
    caption=lambda chosen, rows: (
        f"This text can decide {rows.evidence.n_testable:,} of the {len(rows):,} rows: the others occur too rarely in "
        f"the first {rows.evidence.n_tokens:,} tokens of {chosen.reading.about}."
    ),
    file=CHECK.file,
    missing=_missing_text,
    cost=_check_cost,
    pictured=False,
)
BY_HEAD = View(
    name="heads",
    title="All heads",
    about=About(
        text="Every head’s rows with these same choices, by kind and, where there is a text, by verdict. Click a head "
        "to go there.",
    ),
    call=lambda chosen: chosen.by_head,
    caption=lambda chosen, result: f"{result.headline[0].upper()}{result.headline[1:]}.",
    file=lambda chosen: f"{chosen.checkpoint}-skip-trigrams-by-head",
    missing=_missing_rows,
    pictured=False,
    slow="heads",
)
PATH = View(
    name="path",
    title="Direct path",
    about=About(
        text="Predictions from the last token alone, through no head: bigrams. Heads that attend to the token itself "
        "write bigrams too, and can be added. Beside them, how often the text chosen at the right has them. Search by "
        "part of the last token, or = and all of it.",
        formula="W_E W_U + Σ W_E W_V W_O W_U over these heads  [last, next], each row less its mean, in logits",
        source="Structures in Transformers, Section 4: zero-layer transformers",
    ),
    call=_path,
    caption=says_path,
    file=lambda chosen: f"{chosen.checkpoint}-direct-path",
    missing=_missing,
    cost=_path_cost,
    pictured=False,
)
#: The distance of the direct path’s prediction from the text’s bigrams.
ZERO_LAYER = View(
    name="zero_layer",
    title=PATH.title,
    about=PATH.about,
    call=lambda chosen: call("aotlens.trigrams.zero_layer", Load(chosen.checkpoint), **chosen.bigrams),
    caption=says_zero_layer,
    file=PATH.file,
    missing=_missing_text,
    cost=_path_cost,
    pictured=False,
)
