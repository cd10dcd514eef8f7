"""The choice of skip-trigrams, and the calls that give them, check them against text, and give the direct path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aotlens.conventions import Head
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.kinds import Reading

#: Rows that are searched for where those that say nearly the same are grouped, and examples that are kept of a row.
DEPTH, N_EXAMPLES = 20_000, 4
#: Forced skip-trigrams that are counted, those with the largest forced effect.
MOST_FORCED = 1000
#: Bigrams of each first token that is searched for, at most.
OF_A_TOKEN = 20


@dataclass(frozen=True, kw_only=True)
class TrigramsParameters:
    """Rows of a head, the text that they are held against, the row that is explained, and the direct path."""

    checkpoint: str
    head: Head = (0, 0)
    model: Mapping[str, Any] = field(default_factory=dict)
    """The model's configuration."""
    counted: bool = True
    """Whether the checkpoint has counts of its training tokens, which are the background."""
    score: str = "effect"
    largest: bool = True
    distance: int | str | None = None
    k: int = 500
    """Rows; where some are grouped, groups."""
    over: tuple[str, ...] = ()
    """The tokens in which a row may differ from the best of its group."""
    depth: int = DEPTH
    least: int = 0
    """Training counts that the tokens searched through must have."""
    source: str = ""
    """The text that these tokens must contain, or with `=` be; empty: all tokens."""
    destination: str = ""
    out: str = ""
    reading: Reading | None = None
    """The text on which rows are checked; None where there is none."""
    checked: bool = False
    """Whether the rows are shown with what the text says of them."""
    stored: bool = False
    """Whether that comes with aotlens."""
    row: int | None = None
    """The rank of the row that is explained; None for the best confirmed one, else the first."""
    own: bool = False
    """Whether heads that attend to the token itself, whatever it is, are part of the direct path."""
    after: str = ""
    """The text that the first tokens of the direct path's bigrams must contain; empty: all tokens."""
    most_rows: int = 5000
    """Bigrams in all, where first tokens are searched for."""
    problem: str = ""
    """The reason why there is nothing; empty where there is something."""
    searched: bool = True
    """Whether the rows have been searched for, or can be at once."""
    no_text: str = "There is no text to check the rows against: choose or paste one."
    """The message where there is no `reading`."""

    @property
    def name(self) -> str:
        """The head, as `0.6`."""
        return f"{self.head[0]}.{self.head[1]}"

    @property
    def _search(self) -> dict[str, Any]:
        """Options of `skip_trigrams` that say which triples."""
        options: dict[str, Any] = {"score": self.score, "largest": self.largest}
        if self.distance is not None:
            options["distance"] = self.distance
        if self.least:
            options["min_count"] = self.least
        if not self.counted:
            options["background"] = "uniform"
        for role in ("source", "destination", "out"):
            text = getattr(self, role)
            if text:
                options[f"{role}s"] = make("aotlens.trigrams.tokens_like", Load(self.checkpoint), text, role)
        return options

    @property
    def listed(self) -> Call:
        """The rows, from the weights alone."""
        k = max(self.k, self.depth) if self.over else self.k
        table = make("aotlens.trigrams.skip_trigrams", Load(self.checkpoint), self.head, k=k, **self._search)
        over = {"over": self.over} if self.over else {}
        return call("aotlens.trigrams.list_rows", table.named("triples"), k=self.k, **over).named("rows")

    @property
    def rows(self) -> Call:
        """The rows as they are shown: checked or not."""
        if self.stored:
            return make("aotlens.trigrams.stored_check", self.listed, self.checkpoint).named("checked")
        return self.check() if self.checked else self.listed

    def check(self, **options: Any) -> Call:
        """Return the check of the rows against the text."""
        assert self.reading is not None
        ids = call(
            "aotlens.trigrams.read_ids", Load(self.checkpoint), self.reading.text.named("text"), **self.extent
        ).named("ids")
        given = {"n_examples": N_EXAMPLES, "limit": MOST_FORCED, **options}
        check = call("aotlens.trigrams.check_rows", Load(self.checkpoint), self.listed, ids, **given)
        return check if options else check.named("checked")

    @property
    def extent(self) -> dict[str, Any]:
        """The extent of the text that is read."""
        assert self.reading is not None
        extent: dict[str, Any] = {"max_tokens": self.reading.tokens}
        if self.reading.held_out:
            card = call("aotlens.checkpoints.find_checkpoint", self.checkpoint)
            extent["documents"] = card.method("held_out", self.reading.text.named("text").method("names"))
        return extent

    @property
    def by_head(self) -> Call:
        """The rows of every head, counted."""
        options = {"k": self.k, **self._search}
        if self.over:
            options |= {"depth": max(self.k, self.depth), "over": self.over}
        if self.reading is None:
            return call("aotlens.trigrams.rows_by_head", Load(self.checkpoint), **options)
        text = self.reading.text.named("text")
        return call("aotlens.trigrams.rows_by_head", Load(self.checkpoint), text, **options, **self.extent)

    @property
    def own_heads(self) -> Call:
        """The heads that attend to the token itself."""
        return call("aotlens.trigrams.own_token_heads", Load(self.checkpoint))

    @property
    def bigrams(self) -> dict[str, Any]:
        """Options of `bigrams` and `zero_layer`: which heads are part of the path, and the text's bigrams."""
        options: dict[str, Any] = {}
        if self.own:
            options["heads"] = self.own_heads
        if self.reading is not None:
            text = self.reading.text.named("text")
            counts = call("aotlens.trigrams.count_bigrams", Load(self.checkpoint), text, **self.extent)
            options["corpus"] = counts.named("counts")
        return options

    def of_head(self, head: Head) -> TrigramsParameters:
        """Return the choice for another head."""
        return replace(self, head=head)

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        return f"{self.checkpoint}-head-{self.name}-{what}"
