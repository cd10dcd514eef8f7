"""A model tried on every input of a small task, as a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.data.tasks import TASKS
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.evaluate import ExhaustiveCheck


@dataclass(frozen=True, kw_only=True)
class ExhaustiveParameters(OfCheckpoint):
    """A model and a task."""

    task: str = declare.choice({name: known.about for name, known in TASKS.items()}, label="Task")
    values: str = declare.text("0-9", label="Token ids of an item, in order")
    layout: str = declare.text("x x x", label="Layout: token ids, x for an item, y for an answer")
    answers: str = declare.text(label="Outputs that stand for the answers", blank="the values; 0 and 1 for a verdict")
    outputs: str = declare.text(label="Outputs that compete for the answer", blank="all outputs")

    @property
    def options(self) -> dict[str, str]:
        """The other arguments of `make_task`."""
        names = ("values", "layout", "answers", "outputs")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


def _call(params: ExhaustiveParameters) -> Call:
    task = make("aotlens.data.make_task", params.task, **params.options).named("task")
    return call("aotlens.evaluate.exhaustive", Load(params.checkpoint), task)


def _caption(params: ExhaustiveParameters, result: ExhaustiveCheck) -> str:
    """The headline, what the model says at the worst input, and how often each of several answers is right."""
    answer, prediction = (" ".join(map(str, row)) for row in (result.answers[0], result.predictions[0]))
    several = ""
    if len(result.right_at) > 1:
        shares = ", ".join(f"{right / result.n_inputs:.2%}" for right in result.right_at)
        several = f" Of the answers, in order, {shares} are right."
    failed = result.n_inputs - result.n_right
    listed = f" The table has {len(result.failures):,} of its {failed:,} failures." if failed else ""
    return f"{result.headline}, where the answer is {answer} and the model's {prediction}.{several}{listed}"


def _reads(model: Mapping[str, Any]) -> bool:
    return model.get("read_in", "tokens") == "tokens" and model.get("read_out", "tokens") in ("tokens", "classes")


EXHAUSTIVE = View(
    name="inputs",
    title="Every input of a task",
    about="The model is run on every input of a task with at most 10,000,000 of them. It is right on an input if the "
    "logit of the answer is the largest at each position that is read; the margin says by how much. The table has the "
    "inputs with the smallest margins, so that it begins with those that the model fails on.",
    formula="margin(x) = min over reads r of (logit_r[answer_r] − max over other outputs o of logit_r[o])",
    call=_call,
    caption=_caption,
    file=lambda params: f"exhaustive-{params.checkpoint}-{params.task}",
    pictured=False,
    slow="inputs",
)

FAMILY = Family(
    "exhaustive",
    "Is a model right on every input of a task, by what margin, and where is it wrong?",
    (EXHAUSTIVE,),
    ExhaustiveParameters,
    reads=lambda info: _reads(info.model),
)
