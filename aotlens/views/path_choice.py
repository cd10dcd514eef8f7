"""The choice of a prompt's logit and of its paths, and of an attention score; numbers in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head, head_name, minus
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call
from aotlens.views.parameters import Limit, OfPrompt

if TYPE_CHECKING:
    from aotlens.models import ModelConfig

#: A text that ends where a name that came before goes on, so that the model's first choice is worth explaining.
TEXT = "Miss Harriet Smith danced with Mr. Elton. Then Harriet"
RANKINGS = {"abs": "largest in size", "pos": "most for it", "neg": "most against it"}
#: Paths that are listed at most, links that are drawn, and nodes that a search may expand.
MAX_K, LINKS, BUDGET = 200, 40, 1000
_LAST = "the last"
#: Parameters that change what a target means.
_PLACE = ("checkpoint", "text", "position")


@dataclass(frozen=True, kw_only=True)
class PathsParameters(OfPrompt):
    """A logit of a prompt, which of its paths are listed, and what is removed; and an attention score of it."""

    text: str = declare.text(TEXT, label="Text", most=50_000, lines=2)
    position: int | None = declare.whole(
        None, most=10**6, label="After the token at position", blank=_LAST, cleared_by=("text",)
    )
    target: int | str | None = declare.row("Answer", blank="the model's first choice", searched=True, cleared_by=_PLACE)
    versus: int | str | None = declare.row(
        "Wrong answer", blank="none: the logit itself", searched=True, cleared_by=_PLACE
    )
    by: str = declare.choice(RANKINGS, label="Paths")
    k: int = declare.whole(20, least=1, most=MAX_K, label="Paths listed")
    through: Head | None = declare.head("Through head", blank="any", listed=True, cleared_by=("checkpoint",))
    without: str = declare.text(label="Head or path removed, as 1.0 or token@4-0.2-1.3", blank="nothing removed")
    head: Head | None = declare.head("Head", blank="by attention", listed=True, cleared_by=("checkpoint",))
    query: int | None = declare.whole(None, most=10**6, label="Query", blank=_LAST, cleared_by=("text",))
    key: int | None = declare.whole(None, most=10**6, label="Key", blank="by attention", cleared_by=("text",))
    against: int | str | None = declare.text(
        label="Compared with key",
        most=7,
        blank="mean, plain or a key's position",
        cleared_by=("text", "head", "query", "key"),
    )

    def limits(self) -> Mapping[str, Limit]:
        limits = {}
        if self.n_tokens is not None:
            words = f"the position of one of the text's {self.n_tokens:,} tokens, from 0 to {self.n_tokens - 1:,}"
            limits = dict.fromkeys(("position", "query", "key"), Limit(most=self.n_tokens - 1, words=words))
        n = int(self.model.get("d_vocab") or 0)
        if n:
            token = Limit(most=n - 1, words=f"the id of a token, from 0 to {n - 1:,}")
            limits |= dict.fromkeys(("target", "versus"), token)
        return limits

    @cached_property
    def config(self) -> ModelConfig:
        """The model's configuration, checked."""
        from aotlens.models import ModelConfig

        return ModelConfig.from_dict(dict(self.model))

    @property
    def expansion(self) -> Call:
        """All paths of the prompt."""
        expansion = call("aotlens.paths.expand", Load(self.checkpoint), self.text, split_sources=True)
        return expansion.named("expansion")

    def method(self, name: str, *args: Any, **options: Any) -> Call:
        """Return a method of the expansion: work that is worth remembering."""
        return Call(self.expansion.part(name), args, options)

    # ── a logit

    @property
    def at(self) -> int:
        """The position, −1 for the last."""
        return -1 if self.position is None else self.position

    @property
    def logit(self) -> Any:
        """The target as the library takes it: a token, two for a difference, None for the model's first choice."""
        target, versus = self._token(self.target), self._token(self.versus)
        if versus is None:
            return target
        return (self.expansion.method("first_choice", self.at) if target is None else target, versus)

    def _token(self, token: int | str | None) -> Any:
        """A token by its id or its text."""
        if not isinstance(token, str):
            return token
        return Call(Part(Load(self.checkpoint), "to_single_token"), [token], kept=False)

    # ── a score

    @property
    def score(self) -> Call:
        """The score as a sum over pairs of paths."""
        return self._of_cell("score").named("score")

    @property
    def trace(self) -> Call:
        """The cells behind its cell."""
        return self._of_cell("trace")

    def _of_cell(self, method: str) -> Call:
        cell = {"head": self.head, "query": self.query, "key": self.key}
        named = {name: value for name, value in cell.items() if value is not None}
        return self.method(method, **named, against=self.compared).running()

    @property
    def compared(self) -> int | str | None:
        """The contrast as the library takes it: "auto" by default, None for the score itself."""
        if self.against in (None, "", "auto"):
            return "auto"
        if self.against == "plain":
            return None
        return int(self.against) if str(self.against).isdecimal() else self.against

    @property
    def not_compared(self) -> str | None:
        """The reason why a score can't be compared with what is named; None if it can be."""
        other = self.compared
        if other in (None, "auto"):
            return None
        if self.model and (self.config.position_kind.rotates or self.config.qk_norm is not None):
            return (
                f"Compared with key: {other} can't be, since this model's keys are rotated by their positions or have "
                "a norm of their own. Write plain, for the score itself, or leave it empty."
            )
        if isinstance(other, str) and other != "mean":
            return f"Compared with key: expected mean, plain or a key's position, got {other!r}."
        return None

    # ── files

    def file_of_logit(self, what: str) -> str:
        """Name a file of the logit."""
        return f"{self.checkpoint}-paths-{what}-after-{'last' if self.position is None else self.position}"

    def file_of_score(self, what: str) -> str:
        """Name a file of the score."""
        cell = [None if self.head is None else head_name(self.head), self.query, self.key]
        return "-".join([self.checkpoint, "score", *(str(part) for part in cell if part is not None), what])


def signed(value: float, digits: int = 3) -> str:
    """Write a number with its sign, a minus as long as a plus: `+1.840`, `−0.400`; rounded to nothing `+0.000`."""
    return minus(round(value, digits) + 0.0, f"+.{digits}f")


def percent(share: float) -> str:
    """Write a probability for people."""
    if share >= 0.01:
        return f"{share:.1%}"
    return f"{share:.2g}" if share < 1e-5 else f"{100 * share:.2g}%"
