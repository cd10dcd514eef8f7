"""One attention score of a prompt: what it is compared with, and its largest pairs of paths."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from app.core.cache import Cache, Memory
from app.core.errors import RequestError
from app.core.expansions import Expanded, Expansions

if TYPE_CHECKING:
    from aotlens.paths.score import ScoreExpansion

#: "mean", "plain" (the score itself) or the position of another key, as addresses say it.
Against = int | str

_OTHERS = 5  # other keys that are offered to compare with


@dataclass(frozen=True, kw_only=True)
class ScoreQuestion:
    """The question of a score: one cell of one head on one prompt."""

    checkpoint: str
    text: str
    head: tuple[int, int]
    query: int
    key: int
    against: Against | None = None
    """The contrast; None: what is sensible for the cell."""

    def to_dict(self) -> dict[str, Any]:
        """Return the question for the browser."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    """A score as a sum over pairs of paths, and why it is compared with what it is."""

    question: ScoreQuestion
    expanded: Expanded
    score: ScoreExpansion
    reason: str
    """The reason for a contrast that nobody has chosen, a sentence; "" where somebody has, or where it is the mean."""

    @property
    def against(self) -> Against:
        """Return what it is compared with, as addresses say it."""
        return "plain" if self.score.against is None else self.score.against

    def at(self, position: int) -> str:
        """Return a token and where it stands: `" Pend"@18`."""
        return self.score.words.at(position)


def whole_numbers(what: str, *values: Any) -> tuple[int, ...]:
    """Read what a browser sends as whole numbers. Raises RequestError for anything else."""
    if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
        raise RequestError(f"Expected whole numbers for {what}, got {', '.join(map(repr, values))}.")
    return values


def as_against(value: Any) -> Against | None:
    """Read what a browser says that a score is compared with. Raises RequestError for anything else."""
    if value is None or value in ("mean", "plain"):
        against: Against | None = value
        return against
    return whole_numbers("the key that a score is compared with", value)[0]


class Scores:
    """Scores that were asked for, remembered."""

    def __init__(self, expansions: Expansions, memory: Memory) -> None:
        self._expansions = expansions
        self._explained: Cache[tuple[str, ScoreQuestion], Explained] = memory.cache(32, grows=True)

    def explain(self, question: ScoreQuestion) -> Explained:
        """Return a score's expansion. Raises RequestError, in a sentence, for a cell that has none."""
        expanded = self._expansions.of(question.checkpoint, question.text)
        return self._explained.get((expanded.key, question), lambda: self._explain(expanded, question))

    def _explain(self, expanded: Expanded, question: ScoreQuestion) -> Explained:
        from aotlens.paths.score.expansion import default_contrast

        cell, asked = (question.head, question.query, question.key), question.against
        try:
            with expanded.loaded.exclusive:
                score = expanded.expansion.score(*cell)
                against, reason = default_contrast(score, {None: "auto", "plain": None}.get(asked, asked))  # type: ignore[arg-type]
                score = expanded.expansion.score(*cell, against=against)
        except ValueError as error:  # a hidden key, a pattern without scores
            message = str(error).removeprefix("score: ")
            raise RequestError(f"This attention can't be explained: {message}") from error
        return Explained(question=question, expanded=expanded, score=score, reason=reason)

    def cancellation(self, question: ScoreQuestion) -> tuple[float, float]:
        """Return Σ|term| over all pairs of last heads, and what they add up to."""
        values = self.explain(question).score.by_head_pair().values
        return float(values.abs().sum()), float(values.sum())

    def choices(self, question: ScoreQuestion) -> list[tuple[Against, str]]:
        """List what the score can be compared with, and its name; other keys by how much they are attended to."""
        from aotlens.paths.score.expansion import keys_by_score

        explained = self.explain(question)
        score = explained.score
        if not score.compares:
            return [("plain", "raw score")]
        others = [key for key in keys_by_score(score) if key != score.key]
        first = [0] if 0 in others else []
        keys = [*first, *(key for key in others if key)][: _OTHERS + 1]
        if isinstance(score.against, int) and score.against not in keys:
            keys.append(score.against)
        named = [(key, "the first token" if key == 0 else explained.at(key)) for key in keys]
        mean: list[tuple[Against, str]] = [("mean", "the average key")] if others else []
        return [*mean, *named, ("plain", "raw score")]
