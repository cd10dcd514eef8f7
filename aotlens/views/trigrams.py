"""A head's skip-trigrams, whether text bears them out, and the direct path, as views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family, reads_text
from aotlens.views.trigram_captions import (
    RULES,
    rows_caption,
    says_before,
    says_bugs,
    says_choice,
    says_path,
    says_row,
    says_verdicts,
    says_zero_layer,
)
from aotlens.views.trigram_choice import MOST_ROWS, OF_A_TOKEN, TrigramsParameters
from aotlens.views.view import About, View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo

#: Operations per token of text that is encoded and counted.
_PER_TOKEN = 1e4
#: The same per exponential that is summed.
_PER_EXP = 400.0

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"
NO_TEXT = (
    "There is no text to check the rows against: choose one (on the page, upload or paste one), or start the app with "
    "--corpus file:PATH or --corpus dir:PATH."
)


def _missing_text(params: TrigramsParameters) -> str | None:
    return NO_TEXT if params.corpus is None else None


def _missing_check(params: TrigramsParameters) -> str | None:
    return None if params.has_verdicts else "The rows have not been checked against text."


def _search_cost(params: TrigramsParameters) -> float:
    """Two products of tokens × tokens, of the head's width; at a distance, with rotary positions, one more with an
    exponential per entry for each distance up to half the context."""
    model = params.model
    width = int(model.get("d_head") or int(model["d_model"]) // int(model["n_heads"]))
    rotary = "distance" in params.search and model.get("positions") == "rotary"
    distances = int(model["n_ctx"]) // 2 if rotary else 0
    return int(model["d_vocab"]) ** 2 * (4.0 * width + distances * (2.0 * width + _PER_EXP))


def _path_cost(params: TrigramsParameters) -> float:
    """Cost four products of tokens × tokens: the largest entries and normalisers, and these of all tokens."""
    reading = 0.0 if params.corpus is None else _PER_TOKEN * params.tokens
    return 8.0 * int(params.model["d_vocab"]) ** 2 * int(params.model["d_model"]) + reading


def _rows(params: TrigramsParameters) -> Call:
    return params.rows


def _listed(params: TrigramsParameters) -> Call:
    if not params.filters:
        return params.rows
    return make("aotlens.trigrams.filter_rows", params.rows, **params.filters)


def _path(params: TrigramsParameters) -> Call:
    if not params.after:
        return call("aotlens.trigrams.bigrams", Load(params.checkpoint), params.k, **params.bigrams)
    n = min(params.k, OF_A_TOKEN)
    most = max(MOST_ROWS // n, 1)
    tokens = make("aotlens.trigrams.tokens_like", Load(params.checkpoint), params.after, "first token", most=most)
    return call("aotlens.trigrams.bigrams", Load(params.checkpoint), n, tokens=tokens, **params.bigrams)


#: Which rows are searched for: the page's form.
CHOICE = View(
    name="choice",
    title="Search",
    about=About(
        text="A skip-trigram [source] … [destination] → [predicted token]: with the source earlier in the text and the "
        "destination as the current token, the head changes the logit of the predicted token. Read from the weights, "
        "over all triples of the vocabulary.",
        formula="z = QK[destination, source] − log-mean-exp over training tokens;  effect = attention(z) · OV[source, "
        "predicted token]",
        source=f"Structures in Transformers, Section 5; {_FRAMEWORK}",
    ),
    call=lambda params: call("aotlens.checkpoints.find_checkpoint", params.checkpoint),
    caption=lambda params, info: says_choice(params),
    file=lambda params: params.file("choice"),
    pictured=False,
)
ROWS = View(
    name="rows",
    title="Rows",
    about=About(
        text="A row represents a group of those that differ from it in the source or the destination only (sources "
        "grouped: in the source only). Search by part of a token, or = and all of it (· is a space, ⏎ a line end). "
        "Click a row to explain it, a column's name to sort.",
    ),
    call=_listed,
    caption=rows_caption,
    file=lambda params: params.file("skip-trigrams"),
    cost=_search_cost,
    pictured=False,
    slow="searches",
    slow_part=_rows,
)
ONE = View(
    name="one",
    title="One row",
    about=About(
        text="The row by the weights and, once the rows are checked, by the text: places with the source and the "
        "destination, those first that the predicted token follows, with the head's attention from the destination to "
        "the source. A place opens in Heads; if its text does not begin with a token, without the first ones, so that "
        "its attention differs a little. Below, the other rows of its group.",
    ),
    call=lambda params: params.explained,
    caption=says_row,
    file=lambda params: params.file("row"),
    cost=_search_cost,
    pictured=False,
    slow="searches",
    slow_part=_rows,
    made_by="rows",
)
#: The same as a table of the places in text.
EXAMPLES = replace(
    ONE,
    name="examples",
    title="Examples",
    file=lambda params: params.file("examples"),
    missing=_missing_check,
    table="examples_frame",
)
BY_KIND = View(
    name="kinds",
    title="Kinds",
    about=About(
        text="The kind of each row, by its strings; the first rule that is met counts. "
        + " ".join(f"{kind[0].upper()}{kind[1:]}: {rule}." for kind, rule in RULES.items())
    ),
    call=_rows,
    caption=says_verdicts,
    file=lambda params: params.file("kinds"),
    table="kind_frame",
    cost=_search_cost,
    slow="searches",
    made_by="rows",
)
BUGS = View(
    name="forced",
    title="Skip-trigram bugs",
    about=About(
        text="A head's score factors, so with keep … in → mind and keep … at → bay it also has keep … in → bay: what "
        "two confirmed rows with one source imply, and how often the text has it.",
        formula="effect(in → bay) · effect(at → mind) = effect(in → mind) · effect(at → bay)",
        source=_FRAMEWORK,
    ),
    call=_rows,
    caption=lambda params, rows: says_bugs(rows),
    file=lambda params: params.file("forced-triples"),
    missing=_missing_check,
    table="forced_frame",
    pictured=False,
)
CHECK = View(
    name="check",
    title="Check against text",
    about=About(
        text="A row read from weights need not be true of language, nor matter where it is. Confirmed: within "
        "stretches of 8 windows of one document, the predicted token follows source … destination more often (for a "
        "row with an effect below 0: less often) than it follows the destination anyway, at a false discovery rate of "
        "5% over the rows (Benjamini and Hochberg), stretches taken as independent. Too rare: in stretches with and "
        "without the source, fewer than 10 places with it or 10 without, or fewer than 5 such stretches. Not "
        "confirmed: the rest.",
        formula="lift within documents = places that the predicted token follows ÷ those expected, were source and "
        "predicted token independent in a stretch",
    ),
    call=lambda params: params.check,
    caption=says_verdicts,
    file=lambda params: params.file("check"),
    missing=_missing_text,
    before=says_before,
    cost=lambda params: _search_cost(params) if params.stored else 0.0,
    pictured=False,
    slow="tokens",
)
BY_HEAD = View(
    name="heads",
    title="All heads",
    about=About(
        text="The rows of every head in the same search, by kind and, if there is a text, by verdict. Click a head to "
        "go there.",
    ),
    call=lambda params: params.by_head,
    caption=lambda params, result: result.finding,
    file=lambda params: f"{params.checkpoint}-skip-trigrams-by-head",
    pictured=False,
    slow="heads",
)
PATH = View(
    name="path",
    title="Direct path",
    about=About(
        text="Predictions from the last token alone, through no head: bigrams. Heads that attend to the token itself "
        "write bigrams too, and can be added. Next to them, how often the text has them. Search by part of the last "
        "token, or = and all of it.",
        formula="W_E W_U + Σ W_E W_V W_O W_U over these heads  [last, next], each row less its mean, in logits",
        source="Structures in Transformers, Section 4: zero-layer transformers",
    ),
    call=_path,
    caption=says_path,
    file=lambda params: f"{params.checkpoint}-direct-path",
    cost=_path_cost,
    pictured=False,
)
ZERO_LAYER = View(
    name="zero_layer",
    title="Direct path compared with the text",
    about=About(
        text="The KL divergence of the direct path's prediction, with its biases, from the bigrams of the text.",
        source="Structures in Transformers, Section 4: zero-layer transformers",
    ),
    call=lambda params: call("aotlens.trigrams.zero_layer", Load(params.checkpoint), **params.bigrams),
    caption=says_zero_layer,
    file=lambda params: f"{params.checkpoint}-zero-layer",
    missing=_missing_text,
    cost=_path_cost,
    pictured=False,
)


def _reads(info: CheckpointInfo) -> bool:
    from aotlens.models.phi import PHIS

    has_words = reads_text(info) and info.tokenizer_sha256 is not None
    return has_words and PHIS[str(info.model.get("phi", "softmax"))].ranks_as_softmax


FAMILY = Family(
    "trigrams",
    "What source … destination → predicted token does a head promote, and is it so in text?",
    (ROWS, ONE, EXAMPLES, BY_KIND, BUGS, CHECK, BY_HEAD, PATH, ZERO_LAYER),
    TrigramsParameters,
    reads=_reads,
    made={"checked": CHECK},
)
