"""A model tried on every input of a task: what a certificate of its behaviour is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Progress, require_whole
from aotlens.data.tasks import FiniteTask
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: The most inputs that are tried, and the most logits that are held at once.
MOST_INPUTS, _MOST_LOGITS = 10**7, 2**23


@dataclass(frozen=True, kw_only=True, eq=False)
class ExhaustiveCheck(Result):
    """How a model answers every input of a task, and its worst inputs, those with the smallest margins.

    An input's margin is the logit of the answer less the largest other logit, the least over the positions read, in
    logits. The model is right on an input if its margin is above 0.
    """

    task: str
    n_inputs: int
    n_right: int
    """Inputs with every answer right."""
    right_at: Int64[np.ndarray, " read"]
    """Inputs right at each position read."""
    inputs: Int64[np.ndarray, "worst pos"]
    """Token ids of the worst inputs, smallest margin first: all inputs that the model fails on, if there is room."""
    answers: Int64[np.ndarray, "worst read"]
    """The correct outputs."""
    predictions: Int64[np.ndarray, "worst read"]
    """The model's outputs."""
    margins: Float64[np.ndarray, " worst"]
    """−∞ for logits that are not numbers."""

    @property
    def accuracy(self) -> float:
        """The share of all inputs with every answer right."""
        return self.n_right / self.n_inputs

    @property
    def margin(self) -> float:
        """The margin of the worst input, in logits."""
        return float(self.margins[0])

    @property
    def failures(self) -> Int64[np.ndarray, "failure pos"]:
        """The inputs that the model fails on, worst first; as many as were kept of `n_inputs` − `n_right`."""
        return self.inputs[self.margins <= 0]

    @property
    def headline(self) -> str:
        share = "all" if self.n_right == self.n_inputs else f"{self.n_right:,} of"
        percent = "" if self.n_right == self.n_inputs else f" ({self.accuracy:.4%})"
        return (
            f"{self.task}: right on {share} {self.n_inputs:,} inputs{percent}; the worst margin is {self.margin:.4g} "
            f"logits, at {_ids(self.inputs[0])}"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per kept input, worst first: tokens, answer, prediction (ids), margin (logits) and right."""
        import pandas as pd

        return pd.DataFrame(
            {
                "tokens": [_ids(row) for row in self.inputs],
                "answer": [_ids(row) for row in self.answers],
                "prediction": [_ids(row) for row in self.predictions],
                "margin": self.margins,
                "right": self.margins > 0,
            }
        )


def _ids(row: Int64[np.ndarray, " id"]) -> str:
    return " ".join(map(str, row))


@torch.no_grad()
def exhaustive(
    model: AttentionOnlyTransformer,
    task: FiniteTask,
    *,
    keep: int = 1000,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> ExhaustiveCheck:
    """Run `model` on every input of `task` (`aotlens.data.make_task`), and keep the `keep` with the smallest margins.

    Inputs are made and run a batch at a time, by default as many as 2²³ logits allow, so that memory does not grow with
    their number. `progress(inputs done, inputs)` is called after each batch. Raises ValueError for a task of more than
    10⁷ inputs, and for a model that does not read tokens, or lacks a token, position or output of the task.
    """
    require_ours(model, "exhaustive")
    require_whole("keep", keep, 1)
    if task.n_inputs > MOST_INPUTS:
        raise ValueError(
            f"{task.name}: expected at most {MOST_INPUTS:,} inputs, got {task.n_inputs:,}; give fewer values or items."
        )
    n_outputs = _outputs_of(model, task)
    length = len(task.cases[0].allowed)
    size = batch_size or max(1, _MOST_LOGITS // (length * max(n_outputs, model.cfg.d_model)))
    outputs = torch.arange(n_outputs) if task.outputs is None else torch.tensor(sorted(set(task.outputs)))
    n_right, n_done, worst = 0, 0, None
    right_at = torch.zeros(len(task.cases[0].reads), dtype=torch.long)
    for inputs, reads, answers in task.batches(size):
        margins, predictions = _margins(model, inputs, reads, answers, outputs.to(model.device), task.name)
        right = margins > 0
        right_at += right.sum(0)
        n_right += int(right.all(1).sum())
        parts = [inputs, answers, predictions, margins.amin(1)]
        worst = parts if worst is None else [torch.cat(pair) for pair in zip(worst, parts, strict=True)]
        order = worst[-1].argsort(stable=True)[:keep]
        worst = [part[order] for part in worst]
        n_done += len(inputs)
        if progress is not None:
            progress(n_done, task.n_inputs)
    assert worst is not None, "a task has a case, and a case an input"
    names = ("inputs", "answers", "predictions", "margins")
    return ExhaustiveCheck(
        task=task.name,
        n_inputs=n_done,
        n_right=n_right,
        right_at=right_at.numpy(),
        **{name: part.numpy() for name, part in zip(names, worst, strict=True)},
    )


def _outputs_of(model: AttentionOnlyTransformer, task: FiniteTask) -> int:
    """Return how many outputs the model has. Raises ValueError for a model that cannot do the task."""
    cfg, case = model.cfg, task.cases[0]
    n_outputs = cfg.d_vocab if cfg.read_out == "tokens" else cfg.d_out
    if cfg.read_in != "tokens" or cfg.read_out not in ("tokens", "classes") or cfg.d_vocab is None or n_outputs is None:
        kind = f"from {cfg.read_in} to {cfg.read_out}"
        raise ValueError(f"exhaustive: expected a model from tokens to tokens or classes, got one {kind}.")
    if len(case.allowed) > cfg.n_ctx:
        raise ValueError(f"{task.name}: inputs of {len(case.allowed)} tokens; this model reads at most {cfg.n_ctx}.")
    last = max(max(tokens, default=0) for case in task.cases for tokens in case.allowed)
    if last >= cfg.d_vocab:
        raise ValueError(f"{task.name}: token {last}; this model has ids 0 to {cfg.d_vocab - 1}. Choose other values.")
    if cfg.read_out == "classes" and cfg.pooling is not None and len(case.reads) > 1:
        raise ValueError(f"{task.name}: {len(case.reads)} answers for an input; this model gives one.")
    wrong = [output for output in task.outputs or () if output >= n_outputs]
    if wrong or (n_outputs if task.outputs is None else len(set(task.outputs))) < 2:
        raise ValueError(f"{task.name}: expected at least two outputs from 0 to {n_outputs - 1}, got {task.outputs}.")
    return n_outputs


def _margins(
    model: AttentionOnlyTransformer, inputs: Tensor, reads: tuple[int, ...], answers: Tensor, outputs: Tensor, name: str
) -> tuple[Tensor, Tensor]:
    """Return margins in float64 and the predicted outputs, `[input, read]` each, on the CPU."""
    answers = answers.to(outputs.device)
    if not torch.isin(answers, outputs).all():
        wrong = answers[~torch.isin(answers, outputs)][0].item()
        raise ValueError(
            f"{name}: the answer {wrong} is not among the outputs that compete; say with answers= or outputs= which "
            "outputs of the model stand for the answers."
        )
    logits = model(inputs.to(model.device))
    logits = (logits[:, None] if logits.ndim == 2 else logits[:, list(reads)])[..., outputs].double()
    target = torch.searchsorted(outputs, answers)[..., None]
    others = logits.scatter(-1, target, -torch.inf).amax(-1)
    margins = logits.gather(-1, target)[..., 0] - others
    return margins.nan_to_num(-torch.inf, torch.inf, -torch.inf).cpu(), outputs[logits.argmax(-1)].cpu()
