"""The parameters of skip-trigrams, and the calls that list rows, check them against text, and give the direct path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.kinds import Reading
from aotlens.views.parameters import Limit, OfCheckpoint

if TYPE_CHECKING:
    pass

#: Rows that are searched for if similar ones are grouped, and examples that are kept of a row.
DEPTH, N_EXAMPLES = 20_000, 4
#: Skip-trigram bugs that are counted, those with the largest effect.
MOST_BUGS = 1000
#: Rows that are listed, and bigrams of each first token that is searched for, at most.
MOST_ROWS, OF_A_TOKEN = 5000, 20

SCORES = {"effect": "effect", "sum": "z + ov", "product": "z × ov"}
SIGNS = {"top": "promotes", "bottom": "suppresses"}
FOLDS = {"similar": "distinct", "sources": "sources grouped", "none": "all"}
#: The tokens in which a row may differ from the best of its group.
_OVER = {"similar": ("source", "destination"), "sources": ("source",), "none": ()}
VERDICTS = ("confirmed", "not confirmed", "too rare")
#: The kinds of `aotlens.trigrams.table`, whose import takes seconds.
KINDS = ("copying", "punctuation", "names", "morphology", "other")
NO_DISTANCE, ANY = "none", "any"
#: Parameters that change what the rows are.
TABLE = ("checkpoint", "head", "score", "end", "distance", "k", "fold", "least", "within")


@dataclass(frozen=True, kw_only=True)
class TrigramsParameters(OfCheckpoint):
    """Rows of a head, the text against which they are checked, the row that is explained, and the direct path."""

    head: Head = declare.head("Head")
    score: str = declare.choice(SCORES, label="Ranked by")
    end: str = declare.choice(SIGNS, label="Sign")
    distance: str | None = declare.option("Distance to the source", blank="left out")
    """A number of tokens; `mean` averages over distances."""
    k: int = declare.whole(500, least=1, most=MOST_ROWS, label="Rows")
    """Rows; if some are grouped, groups."""
    least: int = declare.whole(300, most=999_999_999, label="Min token frequency")
    """The least count in training of the tokens searched through: the vectors of rarer ones, which crowd the top, have
    hardly been trained."""
    fold: str = declare.choice(FOLDS, label="Similar rows")
    source: str = declare.text(label="Source", most=60, blank="any token")
    """Part of the source, or with `=` all of it."""
    destination: str = declare.text(label="Destination", most=60, blank="any token")
    out: str = declare.text(label="Predicted token", most=60, blank="any token")
    within: str = declare.choice({"table": "these rows", "all": "all triples"}, label="Search in")
    verdict: str = declare.choice({word: word for word in (ANY, *VERDICTS)}, label="Verdict")
    kind: str = declare.choice({word: word for word in (ANY, *KINDS)}, label="Kind of row")
    corpus: Reading | None = declare.corpus("Text", blank="text that was held out", usual=True)
    tokens: int = declare.whole(300_000, least=1, most=1_000_000, label="Tokens at most")
    row: int | None = declare.whole(
        None, least=1, most=MOST_ROWS, label="Row", blank="the best confirmed", cleared_by=TABLE
    )
    """The rank of the row that is explained."""
    own: bool = declare.flag("With heads that attend to the token itself", word="with")
    after: str = declare.text(label="Last token", most=60, blank="any token")
    """Part of the first token of the direct path's bigrams, or with `=` all of it."""
    checked: bool = True
    """Whether rows are shown with what the text says of them; on a page, once that was computed."""

    def limits(self) -> Mapping[str, Limit]:
        most, mean = self.distances
        options = {NO_DISTANCE: "left out"} | ({"mean": "mean"} if mean else {})
        options |= {str(n): f"{n} token{'s' * (n > 1)} back" for n in range(1, most + 1)}
        words = f"a distance from 1 to {most} tokens{', or mean' * mean}" if most else "no distance without positions"
        return {
            "distance": Limit(options=options, hidden=not most, words=words),
            "least": Limit(off=not self.counted),
            "row": Limit(most=self.k),
        }

    @property
    def distances(self) -> tuple[int, bool]:
        """The largest distance to a source, half the context or 0 without positions; and whether there is a mean:
        rotary positions have no scores of their own to average."""
        if not self.model.get("positions"):
            return 0, False
        from aotlens.models.positions import POSITIONS

        return max(int(self.model["n_ctx"]) // 2, 1), not POSITIONS[self.model["positions"]].rotates

    @property
    def counted(self) -> bool:
        """Whether the checkpoint has counts of its training tokens, which are the background."""
        return self.info is None or self.info.has_counts is not False

    @property
    def largest(self) -> bool:
        """Whether the highest scores are listed."""
        return self.end == "top"

    @property
    def over(self) -> tuple[str, ...]:
        """The tokens in which a row may differ from the best of its group."""
        return _OVER[self.fold]

    @property
    def depth(self) -> int:
        """The number of triples that are searched for."""
        return max(self.k, DEPTH) if self.over else self.k

    @property
    def name(self) -> str:
        """The head, as `0.6`."""
        return f"{self.head[0]}.{self.head[1]}"

    def wanted(self, *, searched: bool) -> dict[str, str]:
        """Return the texts by which triples are searched for, or else those by which rows are filtered."""
        roles = ("source", "destination", "out") if searched == (self.within == "all") else ()
        return {name: text for name in roles if (text := getattr(self, name))}

    @property
    def filters(self) -> dict[str, str]:
        """What rows must have to be listed, by column."""
        words = {name: word for name in ("verdict", "kind") if (word := getattr(self, name)) != ANY}
        return {**self.wanted(searched=False), **words}

    @property
    def search(self) -> dict[str, Any]:
        """Options of `skip_trigrams` that say which triples."""
        options: dict[str, Any] = {"score": self.score, "largest": self.largest}
        if self.distance not in (None, NO_DISTANCE):
            options["distance"] = int(self.distance) if self.distance.isdecimal() else self.distance
        if not self.counted:
            options["background"] = "uniform"
        elif self.least:
            options["min_count"] = self.least
        for role, text in self.wanted(searched=True).items():
            options[f"{role}s"] = make("aotlens.trigrams.tokens_like", Load(self.checkpoint), text, role)
        return options

    @property
    def listed(self) -> Call:
        """The rows, from the weights alone."""
        table = make("aotlens.trigrams.skip_trigrams", Load(self.checkpoint), self.head, k=self.depth, **self.search)
        over = {"over": self.over} if self.over else {}
        return call("aotlens.trigrams.list_rows", table.named("triples"), k=self.k, **over).named("rows")

    @cached_property
    def stored(self) -> bool:
        """Whether a check of these rows is bundled: those of a page without another choice, on the bundled novels."""
        if self.info is None or self.corpus is None or tuple(self.corpus.text.args) != ("novels",):
            return False
        from aotlens.results import find_stored

        record = find_stored("trigrams", self.info)
        if record is None or self.tokens != record.max_tokens:
            return False
        first = type(self)(checkpoint=self.checkpoint, model=self.model, info=self.info, head=self.head)
        heads = [(rows.table.layer, rows.table.head) for rows in record.rows]
        return self.head in heads and self.listed == first.listed

    @property
    def check(self) -> Call:
        """The check of the rows against the text."""
        if self.stored:
            return call("aotlens.trigrams.stored_check", self.listed, self.checkpoint).named("checked")
        ids = call("aotlens.trigrams.read_ids", Load(self.checkpoint), *self._text, **self.extent).named("ids")
        options = {"n_examples": N_EXAMPLES, "limit": MOST_BUGS}
        return call("aotlens.trigrams.check_rows", Load(self.checkpoint), self.listed, ids, **options).named("checked")

    @property
    def rows(self) -> Call:
        """The rows as they are shown: checked or not."""
        return self.check if self.has_verdicts else self.listed

    @property
    def has_verdicts(self) -> bool:
        """Whether the rows are shown with what a text says of them."""
        return self.corpus is not None and (self.checked or self.stored)

    @property
    def _text(self) -> list[Call]:
        """The text, if there is one."""
        return [] if self.corpus is None else [self.corpus.text.named("text")]

    @property
    def extent(self) -> dict[str, Any]:
        """The extent of the text that is read; nothing without a text."""
        if self.corpus is None:
            return {}
        extent: dict[str, Any] = {"max_tokens": self.tokens}
        if self.corpus.held_out:
            card = call("aotlens.checkpoints.find_checkpoint", self.checkpoint)
            extent["documents"] = card.method("held_out", self._text[0].method("names"))
        return extent

    @property
    def explained(self) -> Call:
        """The row that is explained."""
        row = self.rows.method("row", *([] if self.row is None else [self.row]))
        return call("aotlens.trigrams.explain_row", Load(self.checkpoint), row)

    @property
    def by_head(self) -> Call:
        """The rows of every head, counted."""
        options = {"k": self.k, **self.search}
        if self.over:
            options |= {"depth": self.depth, "over": self.over}
        return call("aotlens.trigrams.rows_by_head", Load(self.checkpoint), *self._text, **options, **self.extent)

    @property
    def bigrams(self) -> dict[str, Any]:
        """Options of `bigrams` and `zero_layer`: which heads are part of the path, and the text's bigrams."""
        options: dict[str, Any] = {}
        if self.own:
            options["heads"] = call("aotlens.trigrams.own_token_heads", Load(self.checkpoint))
        if self.corpus is not None:
            counts = call("aotlens.trigrams.count_bigrams", Load(self.checkpoint), *self._text, **self.extent)
            options["corpus"] = counts.named("counts")
        return options

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        return f"{self.checkpoint}-head-{self.name}-{what}"
