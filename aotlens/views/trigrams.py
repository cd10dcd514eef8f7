"""A head's skip-trigrams, whether text bears them out, and the direct path, as views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aotlens.conventions import head_name
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family, reads_text
from aotlens.views.trigram_parameters import MOST_ROWS, OF_A_TOKEN, SCORES, TrigramsParameters
from aotlens.views.view import FRAMEWORK, View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.trigrams import Bigrams, ExplainedRow, FilteredRows, TrigramRows, ZeroLayer

#: Operations per token of text that is encoded and counted.
_PER_TOKEN = 1e4
#: The same per exponential that is summed.
_PER_EXP = 400.0

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
    rotary = "distance" in params.search and model.get("positions") == "rotary"
    distances = int(model["n_ctx"]) // 2 if rotary else 0
    return int(model["d_vocab"]) ** 2 * (4.0 * params.d_head + distances * (2.0 * params.d_head + _PER_EXP))


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


_MEANING = {
    "effect": "attention × ov, in logits: how much the source raises the predicted token where it competes for "
    "attention with average tokens",
    "sum": "nats and logits added, which multiplies the odds of being attended to by those of being written, whatever "
    "the context's length",
    "product": "over z > 0 only, so that only rows come first where the head both looks for the source and writes the "
    "predicted token strongly",
}
#: The kinds of `aotlens.trigrams.kinds`, whose rules these are, in the order in which they are tried.
RULES = {
    "copying": "the predicted token is the source, whatever its case and the spaces around it, or one of them begins "
    "the other",
    "punctuation": "the predicted token has no letter and no digit; a line end is punctuation too",
    "names": "the predicted token begins with a capital letter, as names do (and titles, and words that begin a "
    "sentence)",
    "morphology": "the predicted token goes on with a word: it begins with a letter, without a space before it",
    "other": "none of these",
}
EXACT = "Exact: z and ov are terms of this model's own scores and logits, on any text."
_UNIFORM = (
    "This checkpoint stores no counts of its training tokens, so every token of the vocabulary counts alike as "
    "background; attention to a source is then less like that in text, and no token is left out for being rare."
)
_ROLES = {"source": "source", "destination": "destination", "out": "predicted token"}


def says_choice(params: TrigramsParameters) -> str:
    """Describe the rows that are listed."""
    which = "highest" if params.largest else "lowest"
    ends = {"sum": " (what the head neither looks for nor writes)"}
    what = "" if params.largest else ends.get(params.score, " (what the head suppresses)")
    among = []
    for role, text in params.wanted(searched=True).items():
        word = _ROLES[role]
        among.append(f"{word} is ‹{text[1:]}›" if text.startswith("=") else f"{word} contains ‹{text}›")
    if params.least and params.counted:
        among.append(f"{'other ' if among else ''}tokens have at least {params.least:,} training counts")
    of = f"the triples whose {' and '.join(among)}" if among else "all triples of tokens"
    by = f"{SCORES[params.score]}: {_MEANING[params.score]}."
    if not params.over:
        sentence = f"The {params.k:,} {which} of {of}{what}, found exactly, by {by}"
    else:
        sentence = (
            f"Among the {params.depth:,} {which} of {of}{what}, found exactly, the first {params.k:,} "
            f"that differ from every better one in more than {_over(params)}. By {by}"
        )
    return sentence if params.counted else f"{sentence} {_UNIFORM}"


def _of_rows(params: TrigramsParameters, result: TrigramRows | FilteredRows) -> str:
    """Give the number of rows, what the text says of them, how many are grouped with them, and whether they are
    exact."""
    rows: TrigramRows = result.rows if params.filters else result  # type: ignore[assignment, union-attr]
    sentence = f"{len(rows):,} rows"
    if params.filters:
        sentence = f"{len(result):,} of {len(rows):,} rows match"
    if rows.groups is not None and len(rows):
        beneath = rows.listed_frame()["grouped"]
        sentence += (
            f", with which {int(beneath.sum()):,} are grouped that differ from one of them in {_over(params)} only"
        )
    verdict = "" if rows.evidence is None else f" {rows.evidence.finding}"
    if params.stored:
        verdict += " This check comes with aotlens."
    if "verdict" in params.filters and rows.evidence is None:
        verdict = " No row has a verdict before the rows are checked against text."
    relative = f"Relative: compare rows with each other. {rows.table.relative}" if rows.table.relative else EXACT
    return f"{sentence}.{verdict}\n{relative}"


def _of_verdicts(params: TrigramsParameters, rows: TrigramRows) -> str:
    """Count the verdicts, or state that the rows were not checked."""
    if rows.evidence is None or params.corpus is None:
        return "No verdicts yet: the rows have not been checked against text."
    evidence = rows.evidence
    read = f"Read: the first {evidence.n_tokens:,} tokens of {params.corpus.about}."
    return f"{evidence.finding} {read} {evidence.assumption}"


def _before_check(params: TrigramsParameters) -> str:
    """State what the check will read."""
    assert params.corpus is not None
    return (
        f"Not checked yet. Run reads the first {params.tokens:,} tokens of {params.corpus.about}, in the background; "
        "you can stop it."
    )


def _of_bugs(rows: TrigramRows) -> str:
    """State what pairs of confirmed rows imply."""
    assert rows.forced is not None and rows.evidence is not None
    bugs, n_confirmed = rows.forced, rows.evidence.n_confirmed
    if not len(bugs):
        return (
            f"Of {n_confirmed:,} confirmed row{'s' * (n_confirmed != 1)} no two have one source and different "
            "destinations and predicted tokens, so they imply no other triple."
        )
    return (
        f"{len(bugs):,} triple{'s' * (len(bugs) != 1)} implied by pairs of {n_confirmed:,} confirmed rows: "
        f"{int(bugs.false.sum()):,} false, {bugs.verdict.count('too rare'):,} too rare to tell, "
        f"{bugs.verdict.count('confirmed'):,} confirmed themselves."
    )


def _of_path(params: TrigramsParameters, result: Bigrams) -> str:
    """Describe the direct path's table."""
    names = " and ".join(map(head_name, result.heads))
    what = f"W_E W_U{f' with what {names} write' if result.heads else ''}"
    which = "entries of the tokens searched for" if params.after else "largest entries of all"
    relative = f" Relative: {result.relative}" if result.relative else ""
    none = " No head attends to the token itself by distance alone, as far as the weights tell."
    return (
        f"{len(result.first):,} {which}, found exactly, of {what}."
        f"{none if params.own and not result.heads else ''}{relative}"
    )


def _of_zero_layer(params: TrigramsParameters, result: ZeroLayer) -> str:
    """Give the distance of the direct path's prediction from the text."""
    assert params.corpus is not None
    return (
        f"Its prediction is {result.mean_kl:.2f} nats per token (KL) from the {int(result.count.sum()):,} bigrams of "
        f"{params.corpus.about}; unigram frequencies are {result.unigram_kl:.2f} from them, whose entropy is "
        f"{result.entropy:.2f} nats."
    )


def _over(params: TrigramsParameters) -> str:
    return "the source or the destination" if "destination" in params.over else "the source"


def _of_row(params: TrigramsParameters, result: ExplainedRow) -> str:
    return result.sentences("" if params.corpus is None else params.corpus.about, RULES)


#: Which rows are searched for: the page's form.
CHOICE = View(
    name="choice",
    title="Search",
    about="A skip-trigram [source] … [destination] → [predicted token]: with the source earlier in the text and the "
    "destination as the current token, the head changes the logit of the predicted token. Read from the weights, over "
    "all triples of the vocabulary.",
    formula="z = QK[destination, source] − log-mean-exp over training tokens;  effect = attention(z) · OV[source, "
    "predicted token]",
    source=f"Structures in Transformers, Section 5; {FRAMEWORK}",
    call=lambda params: call("aotlens.checkpoints.find_checkpoint", params.checkpoint),
    caption=lambda params, info: says_choice(params),
    file=lambda params: params.file("choice"),
    pictured=False,
)
ROWS = View(
    name="rows",
    title="Rows",
    about="A row represents a group of those that differ from it in the source or the destination only (sources "
    "grouped: in the source only). Search by part of a token, or = and all of it (· is a space, ⏎ a line end). Click a "
    "row to explain it, a column's name to sort.",
    call=_listed,
    caption=_of_rows,
    file=lambda params: params.file("skip-trigrams"),
    cost=_search_cost,
    pictured=False,
    slow="searches",
    slow_part=_rows,
)
ONE = View(
    name="one",
    title="One row",
    about="The row by the weights and, once the rows are checked, by the text: places with the source and the "
    "destination, those first that the predicted token follows, with the head's attention from the destination to the "
    "source. A place opens in Heads; if its text does not begin with a token, without the first ones, so that its "
    "attention differs a little. Below, the other rows of its group.",
    call=lambda params: params.explained,
    caption=_of_row,
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
    about="The kind of each row, by its strings; the first rule that is met counts. "
    + " ".join(f"{kind[0].upper()}{kind[1:]}: {rule}." for kind, rule in RULES.items()),
    call=_rows,
    caption=_of_verdicts,
    file=lambda params: params.file("kinds"),
    table="kind_frame",
    cost=_search_cost,
    slow="searches",
    made_by="rows",
)
BUGS = View(
    name="forced",
    title="Skip-trigram bugs",
    about="A head's score factors, so with keep … in → mind and keep … at → bay it also has keep … in → bay: what two "
    "confirmed rows with one source imply, and how often the text has it.",
    formula="effect(in → bay) · effect(at → mind) = effect(in → mind) · effect(at → bay)",
    source=FRAMEWORK,
    call=_rows,
    caption=lambda params, rows: _of_bugs(rows),
    file=lambda params: params.file("forced-triples"),
    missing=_missing_check,
    table="forced_frame",
    pictured=False,
)
CHECK = View(
    name="check",
    title="Check against text",
    about="A row read from weights need not be true of language, nor matter where it is. Confirmed: within stretches "
    "of 8 windows of one document, the predicted token follows source … destination more often (for a row with an "
    "effect below 0: less often) than it follows the destination anyway, at a false discovery rate of 5% over the rows "
    "(Benjamini and Hochberg), stretches taken as independent. Too rare: in stretches with and without the source, "
    "fewer than 10 places with it or 10 without, or fewer than 5 such stretches. Not confirmed: the rest.",
    formula="lift within documents = places that the predicted token follows ÷ those expected, were source and "
    "predicted token independent in a stretch",
    call=lambda params: params.check,
    caption=_of_verdicts,
    file=lambda params: params.file("check"),
    missing=_missing_text,
    before=_before_check,
    cost=lambda params: _search_cost(params) if params.stored else 0.0,
    pictured=False,
    slow="tokens",
)
BY_HEAD = View(
    name="heads",
    title="All heads",
    about="The rows of every head in the same search, by kind and, if there is a text, by verdict. Click a head to go "
    "there.",
    call=lambda params: params.by_head,
    file=lambda params: f"{params.checkpoint}-skip-trigrams-by-head",
    pictured=False,
    slow="heads",
)
PATH = View(
    name="path",
    title="Direct path",
    about="Predictions from the last token alone, through no head: bigrams. Heads that attend to the token itself "
    "write bigrams too, and can be added. Next to them, how often the text has them. Search by part of the last token, "
    "or = and all of it.",
    formula="W_E W_U + Σ W_E W_V W_O W_U over these heads  [last, next], each row less its mean, in logits",
    source="Structures in Transformers, Section 4: zero-layer transformers",
    call=_path,
    caption=_of_path,
    file=lambda params: f"{params.checkpoint}-direct-path",
    cost=_path_cost,
    pictured=False,
)
ZERO_LAYER = View(
    name="zero_layer",
    title="Direct path compared with the text",
    about="The KL divergence of the direct path's prediction, with its biases, from the bigrams of the text.",
    source="Structures in Transformers, Section 4: zero-layer transformers",
    call=lambda params: call("aotlens.trigrams.zero_layer", Load(params.checkpoint), **params.bigrams),
    caption=_of_zero_layer,
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
