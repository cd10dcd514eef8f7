"""The parameters of in-context regression: models, the task that prompts are drawn from, and what is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aotlens.conventions import ABLATIONS, Head
from aotlens.plots.attention import QUANTITIES
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, make
from aotlens.views.parameters import Limit, OfCheckpoints, declared

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo

#: Prompts over which errors are averaged; on which layers are read off, and as many others that the probes are fitted
#: on; on which heads are left out and motifs are measured; of the support's scores; and of which maps are shown.
N_PROMPTS, N_READ, N_HEADS, N_SUPPORT, N_SHOWN = 320, 200, 128, 256, 32

#: The most numbers that an input may have where they are chosen.
MOST_D = 64

#: The replacements of a head's output: those that need no other prompts than the ones that are measured.
STAND_INS = {how: ABLATIONS[how] for how in ("mean", "zero", "uniform", "position_mean")}


AXES = {"linear": "linear", "log": "logarithmic"}


@dataclass(frozen=True, kw_only=True)
class RegressionParameters(OfCheckpoints):
    """Models that read equally many numbers, the inspected one, and the task."""

    dims: int | None = declare.whole(None, least=1, most=MOST_D, label="Dimension of inputs")
    nonzero: int | None = declare.whole(None, least=1, most=MOST_D, label="Nonzero weights")
    noise: float = declare.real(0.0, 0.0, 2.0, step=0.05, label="Noise of labels (std)")
    scale: float = declare.real(1.0, 0.2, 3.0, step=0.05, label="Scale of inputs (std)")
    mean: float = declare.real(0.0, -2.0, 2.0, step=0.1, label="Mean of inputs")
    skew: float = declare.real(0.0, 0.0, 4.0, step=0.1, label="Skew of their covariance")
    seed: int = declare.whole(0, most=99, label="Prompts (seed)")
    axis: str = declare.choice(AXES, label="Axis of errors", page_only=True)
    how: str = declare.choice(STAND_INS, label="Replace head output with")
    head: Head = declare.head("Head", page_only=True)
    prompt: int = declare.whole(0, most=N_SHOWN - 1, label="Prompt", page_only=True)
    query: int | None = declare.row("Locked query", blank="no row locked", page_only=True)
    quantity: str = declare.choice(QUANTITIES, label="Quantity shown in the maps", key="view", page_only=True)

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **given: Any) -> Self:
        widths = {info.name: width(info) for info in infos}
        if len(set(widths.values())) > 1:
            raise ValueError(f"expected checkpoints of regression that read equally many numbers, got {widths}.")
        return super().of_infos(*infos, **given)

    def limits(self) -> Mapping[str, Limit]:
        from aotlens.denoise.regression import prompt_positions

        return {
            "dims": Limit(most=self.d, off=self.d < 2),
            "nonzero": Limit(most=self.dims or self.d, off=self.d < 2),
            "query": Limit(options=dict(enumerate(prompt_positions(2 * self.points[self.checkpoint] - 1)))),
        }

    @property
    def d(self) -> int:
        """The number of coordinates of an input."""
        return width(self.inspected)

    @property
    def points(self) -> dict[str, int]:
        """The number of points of the longest prompt that each model reads."""
        return {info.name: (int(info.model["n_ctx"]) + 1) // 2 for info in (*self.infos, self.inspected)}

    @property
    def n_heads(self) -> int:
        """The number of heads of the inspected model, in all layers."""
        return int(self.inspected.model["n_layers"]) * int(self.inspected.model["n_heads"])

    @property
    def task(self) -> Call:
        """The task that the prompts are drawn from."""
        settings = {
            "n_nonzero": self.nonzero, "n_dims": self.dims, "noise_std": self.noise, "input_scale": self.scale,
            "input_mean": self.mean, "input_skew": self.skew,
        }  # fmt: skip
        usual = {"n_nonzero": None, "n_dims": None, "noise_std": 0.0, "input_scale": 1.0}
        settings = {name: value for name, value in settings.items() if value != usual.get(name, 0.0)}
        return make("aotlens.data.RegressionTask", d=self.d, **settings).named("task")

    @property
    def model(self) -> Load:
        """The one that is looked into."""
        return Load(self.checkpoint)

    def prompts(self, n_prompts: int) -> Call:
        """Return the first prompts of the task, as long as the checkpoint reads them."""
        return self.task.method("sample", n_prompts, self.points[self.checkpoint], self.seed).named("prompts")

    def operations(self, model: str, n_prompts: int, n_passes: int = 1) -> float:
        """Count two operations for each weight, position and pass over so many prompts."""
        weights = {info.name: info.n_weights or 0 for info in (*self.infos, self.inspected)}
        return 2.0 * weights[model] * 2 * self.points[model] * n_prompts * n_passes

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        parts = [f"d{self.dims or self.d}"]
        parts += [] if self.nonzero is None else [f"nonzero{self.nonzero}"]
        usual = {name: declared(RegressionParameters)[name].first for name in ("noise", "scale", "mean", "skew")}
        parts += [f"{key}{getattr(self, key):g}" for key, first in usual.items() if getattr(self, key) != first]
        return f"regression-{what}-{'-'.join(parts)}-seed{self.seed}"


def width(info: CheckpointInfo) -> int:
    """Return how many numbers a model reads."""
    return int(info.model.get("d_in") or info.model["d_model"])


def regresses(info: CheckpointInfo) -> bool:
    """Return whether a checkpoint is of in-context regression: vectors in, one number out, later tokens unseen."""
    model = info.model
    ends = model.get("read_in"), model.get("read_out"), model.get("d_out")
    return ends == ("vectors", "vectors", 1) and bool(model.get("causal", True))
