"""The Skip-trigrams page's address: a table, its filters, and the text that it is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from aotlens.models.positions import POSITIONS
from app.core import Core, address

Score = Literal["effect", "sum", "product"]
End = Literal["top", "bottom"]
Within = Literal["table", "all"]
Fold = Literal["similar", "sources", "none"]
Tab = Literal["rows", "kinds", "forced", "heads", "direct"]
Beside = Literal["one", "text"]
Verdict = Literal["confirmed", "not confirmed", "too rare"]
VERDICTS: tuple[str, ...] = get_args(Verdict)

#: Training counts that a token must have, at first: training has hardly touched the vectors of rarer ones, which crowd
#: the top.
FIRST_LEAST = 300

#: Skip-trigrams that are listed, at first and at most; and the longest text that is searched for in a token.
FIRST_ROWS = 500
MAX_ROWS = 5000
_MAX_WANTED = 60

#: Tokens that can be asked for: of a text, or of training.
MAX_COUNT = 999_999_999

#: The sorts of skip-trigrams (`aotlens.trigrams.kinds.KINDS`, whose import takes seconds).
KINDS = ("copying", "punctuation", "names", "morphology", "other")

#: Tokens of text that rows are checked against, at first: as many as the bundled novels have.
FIRST_TOKENS = 300_000


def max_distance(n_ctx: int, positions: str | None) -> int:
    """Return the largest distance to a source: half the context; 0 for a model without positions."""
    return max(n_ctx // 2, 1) if positions else 0


def _distance(core: Core, state: TrigramsState, value: int | str) -> None:
    model = core.catalog.config(state.checkpoint or core.catalog.default())
    most = max_distance(model["n_ctx"], model["positions"]) if model else MAX_COUNT
    if not most:
        raise address.Unfit("no distance, since this model has no positions")
    rotates = bool(model and POSITIONS[model["positions"]].rotates)
    if value == "mean" and rotates:
        raise address.Unfit("a distance: rotary positions have no scores of their own to average", 1)
    if isinstance(value, int) and not 1 <= value <= most:
        mean = "" if rotates else ", or 'mean'"
        raise address.Unfit(f"a distance from 1 to {most} tokens{mean}", min(max(value, 1), most))


def _tokens(core: Core, state: TrigramsState, value: int) -> None:
    most = max(core.settings.evidence_tokens)
    if value > most:
        raise address.Unfit(f"at most {most:,} tokens", most)


@dataclass(frozen=True, kw_only=True)
class TrigramsState:
    """Everything that the Skip-trigrams page shows."""

    checkpoint: str | None = address.checkpoint()
    head: tuple[int, int] | None = address.head()
    score: Score = address.choice(get_args(Score), "effect")
    end: End = address.choice(get_args(End), "top")
    """The highest scores, or the lowest: what the head suppresses."""
    distance: int | Literal["mean"] | None = address.whole(words=("mean",), check=_distance)
    k: int = address.whole(FIRST_ROWS, least=1, most=MAX_ROWS)
    fold: Fold = address.choice(get_args(Fold), "similar")
    """The grouping of rows: those that differ in the source or the destination only, in the source only, or none."""
    least: int = address.whole(FIRST_LEAST, most=MAX_COUNT)
    """Training counts that a token must have; 0: any."""
    source: str = address.text("", most=_MAX_WANTED)
    """Part of a token, or `=` and all of it."""
    destination: str = address.text("", most=_MAX_WANTED)
    out: str = address.text("", most=_MAX_WANTED)
    within: Within = address.choice(get_args(Within), "table")
    """Whether tokens are searched for among the rows, or the rows are the best of those with such tokens."""
    verdict: Verdict | None = address.choice(VERDICTS)
    kind: str | None = address.choice(KINDS)
    corpus: str | None = address.corpus()
    tokens: int = address.whole(FIRST_TOKENS, least=1, most=MAX_COUNT, check=_tokens)
    """Tokens of it that are read."""
    row: int | None = address.whole()
    """The rank of the row that is explained; None: the best confirmed one, else the first."""
    tab: Tab = address.choice(get_args(Tab), "rows")
    """The panel that is open at the left; `beside` is at the right."""
    beside: Beside = address.choice(get_args(Beside), "one")
    own: bool = address.flag("with")
    """Whether heads that attend to the token itself, whatever it is, are part of the direct path."""
    after: str = address.text("", most=_MAX_WANTED)
    """Part of the first token of the direct path's bigrams, or `=` and all of it."""


ADDRESS = address.Address("trigrams", TrigramsState)
