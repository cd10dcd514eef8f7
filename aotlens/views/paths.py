"""A logit as a sum over paths, and what is left without one of them, as views; scores.py has those of a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aotlens.conventions import Head, head_name
from aotlens.views import parameters as declare
from aotlens.views import scores
from aotlens.views.calls import Call, Load, Part, call, make
from aotlens.views.family import Family, reads_text
from aotlens.views.parameters import Limit, OfPrompt
from aotlens.views.view import FRAMEWORK, View

#: A text that ends where a name that came before goes on, so that the model's first choice is worth explaining.
TEXT = "Miss Harriet Smith danced with Mr. Elton. Then Harriet"
RANKINGS = {"abs": "largest in size", "pos": "most for it", "neg": "most against it"}
#: Paths that are listed at most, and links that are drawn.
MAX_K, LINKS = 200, 40
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


_NOTHING = "Nothing is removed. Click “without” next to a path, or a head in the table of heads; or write it here."
_EXPANSION = f"{FRAMEWORK}, path expansion"


def _without(params: PathsParameters) -> Call:
    what = params.without.strip()
    removed = what if what[:1].isdecimal() else make("aotlens.paths.Path.named", what)
    effect = call("aotlens.paths.effect_without", params.expansion, removed, params.at, params.logit)
    return effect.running()


def _view(name: str, title: str, method: str = "", **rest: Any) -> View:
    """A view of one logit: what a method of the expansion gives at the position for the target."""
    usual = {
        "call": lambda params: params.method(method, params.at, params.logit),
        "file": lambda params: params.file_of_logit(name),
    }
    return View(name=name, title=title, **{**usual, **rest})


SOURCES = _view(
    "sources",
    "Text and target",
    about="A logit is a sum over paths: a token (or position, or bias) and the heads that carry it to the output, one "
    "after another. Attention patterns and norm scales are frozen as they are on this text. Click a token to explain "
    "what is predicted there. Shading: what all paths that start at a token add to the logit (blue) or take from it "
    "(orange). The address in your browser holds everything you choose here.",
    formula="logits = Π (Id + Σₕ Aʰ ⊗ W_OVʰ) applied to the tokens, then W_U",
    source=_EXPANSION,
    method="logit_by_source",
    pictured=False,
)
ORDERS = _view(
    "orders",
    "By number of heads",
    about="All paths by the number of heads that they pass. The bars add up to the logit.",
    method="logit_by_order",
)
TOP = _view(
    "top",
    "Largest paths",
    about="Single paths. Click a head to see its attention on this text, or “without” to run the model without the "
    "path. A path carries what is moved; where a head looks is frozen. So a head that only steers where a later one "
    "looks, as a previous-token head does for an induction head, is on no large path: take the head itself away to see "
    "it.",
    formula="A²(n, j) A¹(j, i) · x(i) W_OV¹ W_OV² W_U[target], for a path from token i through two heads",
    source=_EXPANSION,
    method="top",
    call=lambda params: params.method(
        "top", params.k, params.at, params.logit, params.by,
        **({} if params.through is None else {"through": head_name(params.through)}), budget=scores.BUDGET,
    ),
    file=lambda params: params.file_of_logit(
        "top" if params.through is None else f"top-through-{head_name(params.through)}"
    ),
    pictured=False,
)  # fmt: skip
HEADS = _view(
    "heads",
    "Heads",
    about="Sums of paths by head. Click a head to run the model without it (again: with it), or its sum to list the "
    "paths through it; on the keyboard, arrow keys and Enter.",
    method="logit_by_head",
    pictured=False,
)
FLOW = _view(
    "flow",
    "Flow",
    about="The same paths, joined: tokens on the left, heads by layer, the logit on the right. The width of a link is "
    "the size of all paths that use it; blue adds to the logit, orange takes away. Flows of both signs can cancel.",
    method="sankey",
    call=lambda params: params.method("sankey", params.at, params.logit, max_links=LINKS),
)
WITHOUT = _view(
    "without",
    "Without a head or a path",
    about="The model is run again without the head (its output is zero at every position) or the path (each head on it "
    "reads the stream without it). This forward pass computes patterns and norm scales anew; the linear estimate keeps "
    "them frozen. Where the two differ, the effect goes through patterns (where heads look) and scales.",
    call=_without,
    file=lambda params: params.file_of_logit(f"without-{params.without.strip()}"),
    missing=lambda params: None if params.without.strip() else _NOTHING,
    pictured=False,
)


def notes(params: PathsParameters) -> str:
    """Say what is special about the model's paths, in sentences."""
    from aotlens.models import PHIS

    cfg, sentences = params.config, []
    if cfg.sees_later_keys:
        sentences.append("This model sees both sides: what it predicts at a token is that token, not the next one.")
    if not cfg.attn_only:
        sentences.append(
            f"This model has MLPs (d_mlp = {cfg.d_mlp}). What each writes on this text is a source of its own, mlp_0 "
            "for layer 0, held as it is: what it read from tokens and heads is hidden in it."
        )
    if cfg.n_layers == 1:
        sentences.append("This model has one layer: no path passes more than one head.")
    if not cfg.has_query_key:
        exact = (
            "the linear estimate is the forward pass"
            if not cfg.norm
            else "only the norms' scales make a forward pass differ from the linear estimate"
        )
        sentences.append(f"Its attention patterns are fixed: they don't depend on the text, and {exact}.")
    elif not PHIS[cfg.phi].rows_sum_to_one:
        sentences.append("Rows of its attention patterns don't sum to 1; paths carry them as they are.")
    return " ".join(sentences)


FAMILY = Family(
    "paths",
    "Which paths through heads a logit comes from, and which pairs of paths an attention score.",
    (SOURCES, ORDERS, TOP, HEADS, FLOW, WITHOUT, *scores.VIEWS),
    PathsParameters,
    reads=reads_text,
)
