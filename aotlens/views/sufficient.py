"""A small set of heads that does a task by itself, as a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import ABLATIONS, head_name
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.heads import ShapleyValues, SufficientHeads

#: Sequences, half of which are searched and half kept to check; and random tokens before they repeat, at most.
N_SEQUENCES, HALF_LENGTH = 64, 32

TASKS = {"repeats": "repeated random tokens", "prompts": "prompts of in-context regression"}
HOWS = {how: ABLATIONS[how] for how in ("position_mean", "mean", "zero", "uniform")}


@dataclass(frozen=True, kw_only=True)
class SufficientParameters(OfCheckpoint):
    """A model, a task that it can do, and the share of the heads' effect on it that the set must keep."""

    task: str = declare.choice(TASKS, label="Task")
    keep: float = declare.real(0.9, 0.5, 0.99, step=0.01, label="Faithfulness to keep")
    how: str = declare.choice(HOWS, label="Replace other heads' output with")
    seed: int = declare.whole(0, most=99, label="Sequences (seed)")


def _ends(model: Mapping[str, Any]) -> str | None:
    """The task that such a model can do."""
    if not model.get("causal", True):
        return None
    if model.get("read_in", "tokens") == "tokens":
        return "repeats"
    return "prompts" if (model.get("read_in"), model.get("d_out")) == ("vectors", 1) else None


def _task(params: SufficientParameters) -> tuple[Any, Any]:
    """Return tokens and targets."""
    if params.task == "repeats":
        tokens, half = params.repeats(N_SEQUENCES, HALF_LENGTH, params.seed)
        return tokens, make("aotlens.data.repeated_targets", tokens, half).named("targets")
    task = make("aotlens.data.RegressionTask", d=int(params.model["d_in"])).named("task")
    prompts = task.method("sample", N_SEQUENCES, (int(params.model["n_ctx"]) + 1) // 2, params.seed).named("prompts")
    return prompts.part("tokens"), prompts.part("targets")


def _call(params: SufficientParameters) -> Call:
    return call(
        "aotlens.heads.sufficient_heads", Load(params.checkpoint), *_task(params), keep=params.keep, how=params.how,
        seed=params.seed,
    )  # fmt: skip


def _shapley(params: SufficientParameters) -> Call:
    return call(
        "aotlens.heads.shapley_heads", Load(params.checkpoint), *_task(params), how=params.how, seed=params.seed
    )


def _missing(params: SufficientParameters) -> str | None:
    can = _ends(params.model)
    if can == params.task:
        return None
    if can is None:
        return f"{params.checkpoint} does neither task: it reads images, or later tokens too. Choose another."
    return f"{params.checkpoint} does not read {TASKS[params.task]}. Choose {TASKS[can]} for it."


def _says(params: SufficientParameters, result: SufficientHeads) -> str:
    within, model = (_verdicts(result, each) for each in (result.necessary_within, result.necessary_in_model))
    return (
        f"{len(result.heads)} of {params.n_heads} heads: {result.headline} ({result.n_held_out} of them, which the "
        f"search did not see; {result.searched:.3f} on the {result.n_searched} searched). In the set: {within}. In the "
        f"full model: {model}. {result.unit.capitalize()} on {TASKS[params.task]}: {result.whole:.3f} with all heads, "
        f"{result.empty:.3f} with none. {result.n_runs:,} sets were tried."
    )


def _verdicts(result: SufficientHeads, verdicts: Sequence[str]) -> str:
    """The heads of the set by what is said of them."""
    by_verdict = {
        verdict: [
            f"{layer}.{head}" for (layer, head), each in zip(result.heads, verdicts, strict=True) if each == verdict
        ]
        for verdict in ("necessary", "not necessary", "undecided")
    }
    return "; ".join(f"{verdict} {', '.join(heads)}" for verdict, heads in by_verdict.items() if heads) or "no head"


SUFFICIENT = View(
    name="heads",
    title="Heads that suffice",
    about="The smallest set of heads that was found that keeps as much of what all heads do for a task as is asked "
    "for, every other head ablated by the selected method. A task is the loss of tokens that occurred earlier in the "
    "same sequence of random tokens, or the squared error of prompts. Two searches, one that takes heads away and one "
    "that adds them, alone and in pairs; the smaller set wins. Half of the sequences are kept out of the search, and "
    "all numbers are of them. For each head of the set: what the set keeps without it, and what the full model keeps "
    "without it. A head is called necessary, or not, only where the interval (95% for all heads of the set at once, "
    "over sequences) is wholly on one side of what was to be kept. In the picture, filled is necessary, a ring is not, "
    "a ring with a dot is undecided.",
    formula="faithfulness(S) = (m(S) − m(∅)) ÷ (m(all) − m(∅)), m(S) being the measure with all heads but S replaced",
    source="Wang et al., Interpretability in the Wild (2022), §4: faithfulness and minimality of a circuit",
    call=_call,
    caption=_says,
    file=lambda params: f"sufficient-heads-{params.checkpoint}-{params.task}-keep{params.keep:g}-seed{params.seed}",
    missing=_missing,
    slow="sets of heads",
)


def says_hidden(result: ShapleyValues) -> str:
    """Name the heads of whose Shapley value an ablation of one head shows less than half; nothing for none."""
    names = ", ".join(
        head_name((int(layer), int(head))) for layer, head in zip(*np.nonzero(result.hidden), strict=True)
    )
    return f" Less than half of that is seen when it alone is ablated: {names}." if names else ""


def _says_shapley(params: SufficientParameters, result: ShapleyValues) -> str:
    return f"{result.headline} on {TASKS[params.task]}; {result.n_runs:,} sets of heads.{says_hidden(result)}"


SHAPLEY = View(
    name="shapley",
    title="Shapley value of each head",
    about="A head whose work others do as well is worth nothing when it alone is ablated. Its Shapley value is what it "
    "adds to the measure on average over all orders in which heads could be added, the others ablated by the selected "
    "method; the values of all heads add up to what all heads do. Next to it: what it adds alone, before all others, "
    "and after all others, which is an ablation's effect. A negative value of a loss says that the head lowers it. "
    "With up to 12 heads all sets are tried; with more, 128 orders are drawn. Intervals (95% for all heads at once) "
    "are over sequences, and wider by the error of drawing.",
    formula="φ_h = Σ_{S ∌ h} |S|! (n − |S| − 1)! ÷ n! · (m(S ∪ h) − m(S))",
    source="Shapley, A Value for n-Person Games (1953)",
    call=_shapley,
    caption=_says_shapley,
    file=lambda params: f"shapley-{params.checkpoint}-{params.task}-seed{params.seed}",
    missing=_missing,
    slow="sets of heads",
)

FAMILY = Family(
    "sufficient",
    "Which few heads do a task by themselves, which of them are necessary, and what does each add?",
    (SUFFICIENT, SHAPLEY),
    SufficientParameters,
    reads=lambda info: _ends(info.model) is not None,
)
