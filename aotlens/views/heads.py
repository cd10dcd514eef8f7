"""The behaviour of heads on one text, in the full model and with some of them ablated, as views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import ABLATIONS, Head, describe, head_name, minus
from aotlens.plots.attention import QUANTITIES
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call, make
from aotlens.views.compare import TEXT
from aotlens.views.family import Family, reads_text
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import View, pass_cost

if TYPE_CHECKING:
    from aotlens.evaluate import NextTokenPredictions
    from aotlens.heads import ComparedLosses, PromptRun

#: The replacements of an ablated head's output that take no other text.
HOWS = {how: ABLATIONS[how] for how in ("zero", "uniform")}
#: Likeliest tokens that are listed.
N_PREDICTIONS = 10

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (2021); φ, MSSA: Attention-Only Transformers, Eq. 4"


@dataclass(frozen=True, kw_only=True)
class HeadsParameters(OfCheckpoint):
    """A text in a model, one of its heads, a position, and the heads that are ablated."""

    text: str = declare.text(TEXT, label="Text", most=50_000, lines=3)
    head: Head = declare.head("Head, as layer.head")
    quantity: str = declare.choice(QUANTITIES, label="Quantity")
    first: str = declare.choice({"show": "shown", "hide": "left out"}, label="Attention to position 0")
    position: int | None = declare.whole(None, most=10**6, label="Position whose prediction is shown", blank="the last")
    ablated: tuple[Head, ...] = declare.head("Heads ablated, as 0.1,1.0", several=1024, blank="no heads")
    how: str = declare.choice(HOWS, label="Replace head output with")
    reference: Call | None = None
    """Windows of a corpus from which an ablated head's output is replaced; None if it reads none."""
    n_predictions: int = N_PREDICTIONS
    n_tokens: int = 512
    """The number of tokens of the text, where they are counted."""

    @property
    def without_first(self) -> bool:
        """Whether attention to position 0 is left out."""
        return self.first == "hide"

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts whose tokens are counted."""
        return (self.text,)

    @property
    def sees_later_keys(self) -> bool:
        """Whether it is a masked language model, which says something of a token's own position."""
        return not self.model.get("causal", True)

    def run(self, *, ablated: bool = False, **asked: Any) -> Call:
        """Return the run of the full model, or with the heads ablated."""
        options: dict[str, Any] = {}
        if ablated:
            options = {"ablated": list(map(head_name, self.ablated)), "how": self.how}
            if self.reference is not None:
                options["reference"] = self.reference.named("windows")
        run = call("aotlens.heads.run_prompt", Load(self.checkpoint), self.text, **options, **asked)
        return run.named("ablated" if ablated else "run")

    def map(self, *, ablated: bool = False) -> Call:
        """Return the head's map."""
        run = self.run(ablated=ablated, losses=False)
        return run.method("map", head_name(self.head), self.quantity, without_first=self.without_first)

    def quantities(self) -> Call:
        """Return the maps of all heads, with the heads ablated where there are any: `[layer, head, query, key]`."""
        return Call(self.run(ablated=bool(self.ablated), losses=False).part("patterns").part("quantity"),
                    [self.quantity], kept=False)  # fmt: skip

    def predictions(self, *, ablated: bool = False) -> Call:
        """Return the likeliest tokens after the position, or at it."""
        tokens = Call(Part(Load(self.checkpoint), "to_tokens"), [self.text], kept=False).item(0)
        logits = self.run(ablated=ablated, losses=False, logits=True).part("logits")
        k = min(self.n_predictions, int(self.model.get("d_vocab") or self.n_predictions))
        position = -1 if self.position is None else self.position
        return call("aotlens.evaluate.predictions_of_logits", Load(self.checkpoint), tokens, logits, position, k)

    def losses(self) -> Call:
        """Return the run with its losses; beside the run with the heads ablated, where there are any."""
        full = self.run()
        if not self.ablated:
            return full
        return make("aotlens.heads.compare_runs", full, self.run(ablated=True)).named("runs").method("losses")

    def cost(self, n_passes: float = 1.0) -> float:
        """Return the operations of so many passes over the text, with the heads ablated as well where there are any."""
        return (1 + bool(self.ablated)) * n_passes * pass_cost(self.model, self.n_tokens)

    def file(self, what: str, *, ablated: bool = False) -> str:
        """Name a file of `what`."""
        off = f"-without-{'-'.join(map(head_name, self.ablated))}-{self.how}" if ablated and self.ablated else ""
        return f"{self.checkpoint}{off}-{what}"

    @property
    def says_ablated(self) -> str:
        """The ablated heads and the kind of ablation."""
        return f"{', '.join(map(head_name, self.ablated))} ablated by {ABLATIONS[self.how]}"


def says_predictions(params: HeadsParameters, result: NextTokenPredictions) -> str:
    """Return the position, the likeliest token, and the actual one with its loss in nats."""
    where = f"{'At' if result.at_position else 'After'} position {result.position}"
    actual, came = "", result.actual
    if came is not None:
        actual = f" {describe(came.str_token)} has {came.probability:.3g}, rank {came.rank:,}"
        hint = ", and the model sees it: write <|mask|> in its place to have it guessed."
        actual += hint if result.at_position else f", loss {came.loss:.2f} nats."
    return f"{where}, {result.headline}.{actual} Entropy {result.entropy:.2f} nats."


def mean_loss(losses: np.ndarray) -> float:
    """Return the mean of the finite losses; NaN if none is."""
    known = losses[np.isfinite(losses)]
    return float(known.mean()) if len(known) else float("nan")


def says_full(params: HeadsParameters, losses: np.ndarray) -> str:
    """Return the full model's mean loss in a sentence."""
    known = int(np.isfinite(losses).sum())
    if not known:
        return "No token of this text has a loss: it takes two tokens, or one that is no mask."
    how = " with the token hidden, one after the other" if params.sees_later_keys else ""
    return f"Full model: mean {mean_loss(losses):.3f} nats over {known} tokens{how}."


def says_change(params: HeadsParameters, result: ComparedLosses) -> str:
    """Return the change of the losses by ablation in a sentence."""
    assert result.difference is not None
    change = result.difference[np.isfinite(result.difference)]
    return (
        f"{params.says_ablated}: mean {mean_loss(result.right):.3f} nats, a change of "
        f"{minus(mean_loss(result.difference), '+.3f')}; {int((change > 0).sum())} of {len(change)} tokens are more "
        "surprising."
    )


def _says_losses(params: HeadsParameters, result: PromptRun | ComparedLosses) -> str:
    if not params.ablated:
        return says_full(params, result.losses)  # type: ignore[union-attr, arg-type]
    return f"{says_full(params, result.left)} {says_change(params, result)}"  # type: ignore[union-attr, arg-type]


def _missing(params: HeadsParameters) -> str | None:
    return None if params.ablated else "No heads are ablated, so this is what the full model does."


MAP = View(
    name="map",
    title="One head",
    about="The entry at (query, key) is how much of the key's value vector the head moves to the query. "
    "Value-weighted: times the length of that vector, which is how much the head really moves: heads often rest on a "
    "token whose value is nearly zero. Scores: what the head computes before it chooses, in nats; a softmax depends on "
    "differences within a row only, so compare along rows. Point at an entry for the exact value; click it to lock it, "
    "and its query among the tokens: then “Why?” (or w) says why the head attends there.",
    formula="attention A(i, j) = φ(score(i, j)); value-weighted A(i, j) · ‖xⱼ W_V‖; score(i, j) = xᵢ W_Q W_Kᵀ xⱼᵀ / "
    "√d_head",
    source=f"{_FRAMEWORK}; value-weighted: Attention is Not Only a Weight (Kobayashi et al. 2020)",
    call=lambda params: params.map(),
    caption=lambda params, result: f"{result.headline}, full model.",
    file=lambda params: params.file(f"head-{head_name(params.head)}-{params.quantity}"),
    cost=lambda params: params.cost(),
)
ABLATED_MAP = replace(
    MAP,
    name="ablated-map",
    title="One head under ablation",
    call=lambda params: params.map(ablated=True),
    caption=lambda params, result: f"{result.headline}, {params.says_ablated}.",
    file=lambda params: params.file(f"head-{head_name(params.head)}-{params.quantity}", ablated=True),
    missing=_missing,
)


def _file_of_predictions(params: HeadsParameters, *, ablated: bool = False) -> str:
    where = "at" if params.sees_later_keys else "next-after"
    return params.file(f"{where}-{'last' if params.position is None else params.position}", ablated=ablated)


PREDICTIONS = View(
    name="predictions",
    title="Predicted token",
    about="The next token’s distribution after the locked token, or after the last one; of a masked language model, "
    "which sees both sides, the distribution at that token. Probabilities are over the whole vocabulary.",
    formula="p = softmax(logits)",
    call=lambda params: params.predictions(),
    caption=says_predictions,
    file=_file_of_predictions,
    cost=lambda params: params.cost(),
    pictured=False,
)
ABLATED_PREDICTIONS = replace(
    PREDICTIONS,
    name="ablated-predictions",
    title="Predicted token under ablation",
    call=lambda params: params.predictions(ablated=True),
    caption=lambda params, result: f"{params.says_ablated}: {says_predictions(params, result)}",
    file=lambda params: _file_of_predictions(params, ablated=True),
    missing=_missing,
)
LOSSES = View(
    name="losses",
    title="Loss of each token",
    about="The number beneath a token is how surprising the token is to the model, in nats; below, how that changes "
    "when heads are ablated: blue for more, orange for less surprising. In tables, left is the full model and right "
    "the one with heads ablated. A masked language model is asked for each token with <|mask|> in its place, the "
    "others as they are.",
    formula="loss(i) = −log p(tᵢ | t₀ … tᵢ₋₁)",
    source="Masked models: Masked Language Model Scoring (Salazar et al. 2020)",
    call=lambda params: params.losses(),
    caption=_says_losses,
    file=lambda params: params.file("losses", ablated=True),
    cost=lambda params: params.cost(float(params.n_tokens) if params.sees_later_keys else 1.0),
    pictured=False,
)


FAMILY = Family(
    "heads",
    "Attention of heads on a text, and the model's predictions with some heads ablated.",
    (MAP, ABLATED_MAP, PREDICTIONS, ABLATED_PREDICTIONS, LOSSES),
    HeadsParameters,
    reads=reads_text,
)
