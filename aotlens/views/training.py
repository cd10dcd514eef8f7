"""A training run as views: its measures over the steps, and what each circuit took off the loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.conventions import Head, minus, several
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make, stamp_of
from aotlens.views.family import Family, is_causal
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.dynamics import Influence, InfluenceCheck, InfluentialWindows, Ledger, OverTraining

TEXT = "Mr. Darcy met Elizabeth. Then Mr. Darcy met Elizabeth again, and Mr. Darcy said nothing."

#: The measures of the film that `aotlens.plot` draws.
MEASURES = {
    "losses": "Loss, in-context and repeated-token gain",
    "motif_scores/previous_token": "Previous-token score",
    "motif_scores/induction": "Induction score",
    "composition/k": "K-composition",
    "copying": "Copying score",
    "qk_norm": "Norm of QK circuits",
    "ov_norm": "Norm of OV circuits",
    "qk_distance": "QK circuits: distance from their end",
    "ov_distance": "OV circuits: distance from their end",
}
#: Sequences of the ledger, and random tokens before they repeat.
N_SEQUENCES, HALF_LENGTH = 16, 31


@dataclass(frozen=True, kw_only=True)
class TrainingParameters(OfCheckpoint):
    """A run, a text, the measure that is drawn, and the step and the head whose maps are shown."""

    text: str = declare.text(TEXT, label="Text", lines=3)
    measure: str = declare.choice(MEASURES, label="Measure")
    step: str = declare.text(label="Step of the maps", most=9, blank="the last")
    head: Head | None = declare.head("Head of the large map", blank="the clearest")
    influence_on: str = declare.text(label="Influence of windows on", most=60, blank="the first measure")

    @property
    def run(self) -> Call:
        """The snapshots of the run that trained the checkpoint."""
        return make("aotlens.load_run", Load(self.checkpoint).part("card").part("path")).named("run")


def steps_of(info: CheckpointInfo) -> list[int]:
    """Return the steps of which there are snapshots of the run that trained a checkpoint."""
    from aotlens.checkpoints.snapshots import snapshot_steps

    return [] if info.path is None else snapshot_steps(info.path)


def _film(params: TrainingParameters) -> Call:
    tokens = Load(params.checkpoint).method("to_tokens", params.text).named("tokens")
    return call("aotlens.dynamics.film", params.run, tokens, n_random=0)


def _ledger(params: TrainingParameters) -> Call:
    tokens, _ = params.repeats(N_SEQUENCES, HALF_LENGTH, seed=1)
    return call("aotlens.dynamics.ledger", params.run, tokens)


def _kept_at(params: TrainingParameters, kind: str) -> Path | None:
    """Return the path of the influences of the run, or of their check; None where they are not kept."""
    from aotlens.results import stored_path

    folder = None if params.info is None else params.info.path
    name = {"influence": "influence", "check": "influence-check"}[kind]
    path = None if folder is None else stored_path(name, folder)
    return path if path is not None and path.is_file() else None


def _kept(params: TrainingParameters, kind: str) -> Call:
    """Return what is stored next to the checkpoint."""
    path = _kept_at(params, kind)
    stamp = 0 if path is None else stamp_of(str(path.stat().st_mtime_ns))
    folder = Load(params.checkpoint).part("card").part("path")
    return make(f"aotlens.dynamics.stored_{kind}", folder).named(kind).stamped(stamp)


def _windows(params: TrainingParameters) -> Call:
    tokenizer = Load(params.checkpoint).part("tokenizer")
    measure = {"measure": params.influence_on} if params.influence_on else {}
    return call("aotlens.dynamics.influential_windows", _kept(params, "influence"), tokenizer, **measure)


def _no_influence(params: TrainingParameters) -> str | None:
    if _kept_at(params, "influence"):
        return None
    return (
        "No influences are kept next to this checkpoint. Find them, in some nine times as long as it was trained: "
        f'aotlens influence {params.checkpoint} --corpus SPEC --measure "induction 1.0"'
    )


def _no_windows(params: TrainingParameters) -> str | None:
    return None if _kept_at(params, "influence") else "No influences are kept next to this checkpoint: see above."


def _no_check(params: TrainingParameters) -> str | None:
    if _kept_at(params, "check"):
        return None
    return _no_windows(params) or (
        "These influences were not checked by retraining. Call aotlens influence again with --check 40."
    )


def _says_influence(params: TrainingParameters, result: Influence) -> str:
    shares = ", ".join(f"{share:.0%}" for share in result.first_step_share)
    return (
        f"{result.finding} Step 0, whose step of AdamW takes signs, is left out: it "
        f"has {shares} of all. Checks: Σ over a batch {result.batch_residual:.1e} of its norm; states undone to "
        f"{result.undone:.1e}."
    )


def _says_windows(params: TrainingParameters, result: InfluentialWindows) -> str:
    return f"{result.finding} What stands earlier in a window is bold."


def _says_check(params: TrainingParameters, result: InfluenceCheck) -> str:
    differences = ", ".join(
        f"{name} {minus(low, '+.2f')} to {minus(high, '+.2f')}"
        for name in result.measures
        for low, high in [result.difference_interval(name)]
    )
    return f"{result.finding} Difference from TracIn, 95%: {differences}."


def _says_film(params: TrainingParameters, result: OverTraining) -> str:
    from aotlens.dynamics.events import LEAST_SNAPSHOTS

    changes = result.events
    if not changes:
        return f"{result.headline}. Change points need at least {LEAST_SNAPSHOTS} snapshots."
    changed = sorted(
        ((c.step, c.after, name) for name, c in changes.items() if c.step is not None and c.after is not None)
    )
    changes_at = "; ".join(f"{name} between steps {after:,} and {step:,}" for step, after, name in changed)
    flat = ", ".join(name for name, change in changes.items() if change.step is None)
    unchanged = f" No lasting change found: {flat}." if flat else ""
    return f"{several(len(result.steps), 'snapshot')}. Onset: {changes_at or 'none'}.{unchanged}"


def _says_ledger(params: TrainingParameters, result: Ledger) -> str:
    return f"{result.finding} On random tokens shown twice, in {result.n_passes:,} passes."


FILM = View(
    name="measures",
    title="Measures over training",
    about="Measures of the model at each snapshot of its training: the loss on the text, how much less the loss is at "
    "the end of the context than at its beginning, and on random tokens when they repeat; of every head its motif "
    "scores, composition, copying score, and the norms of its circuits. A change point is the first snapshot after "
    "which a curve stays outside the band of its first tenth, and is named only where a flat curve of as much "
    "autocorrelation rarely looks so (5%). Click on a curve to show its step's maps, and its head's.",
    source="Olsson et al., In-context Learning and Induction Heads (2022): the phase change",
    call=_film,
    caption=_says_film,
    file=lambda params: f"training-{params.checkpoint}-measures",
    drawn=lambda params: {} if params.measure == "losses" else {"of": params.measure},
    slow="snapshots",
    picks="step = customdata; head = name",
)
LEDGER = View(
    name="ledger",
    title="Change of the loss by circuit",
    about="The change of the loss on random tokens that come twice, from the first snapshot to the last, as a sum of "
    "parts: QK and OV of every head, embedding, positions, read-out, MLPs. Each part is the integral of the gradient "
    "along straight lines between successive snapshots, in the products that heads act by, so that it does not depend "
    "on how their weights are factored. The parts sum to the change up to the residual that is said. Click on an area "
    "to show its step's maps, and its head's.",
    formula="ΔL = Σ_g ∫ ∂L/∂θ_g · dθ_g",
    source="Lan et al., LCA: Loss Change Allocation (2019), with exact integrals between snapshots",
    call=_ledger,
    caption=_says_ledger,
    file=lambda params: f"training-{params.checkpoint}-ledger",
    slow="segments",
    picks="step = customdata; head = name",
)

INFLUENCE = View(
    name="influence",
    title="Which steps taught it",
    about="The derivative of a measure at the end of training with respect to the weight of every training window, "
    "through every step of AdamW: here the sum of its sizes over the windows of each step, as a share. Of a loss a "
    "negative influence helps, of any other measure a positive one. Leaving a window out changes the measure by minus "
    "its influence to first order. How far that holds for this run, only retraining says: the check below.",
    formula="dM/dw_i, loss of a step = Σ w_i ℓ_i ÷ Σ w_i, at w = 1",
    source="Ilyas and Engstrom, MAGIC: Near-Optimal Data Attribution for Deep Learning (2025)",
    call=lambda params: _kept(params, "influence"),
    missing=_no_influence,
    caption=_says_influence,
    file=lambda params: f"training-{params.checkpoint}-influence",
)
WINDOWS = View(
    name="windows",
    title="Influential training sequences",
    about="The training windows that helped the measure most, and those that harmed it most, as text, with the "
    "document in which they begin. Compare windows with others of their step: influences of a step sum to 0.",
    call=_windows,
    missing=_no_windows,
    caption=_says_windows,
    file=lambda params: f"training-{params.checkpoint}-windows",
)
CHECK = View(
    name="check",
    title="Does retraining confirm it?",
    about="The run made again without random subsets of its windows: the change that influences predict, the change "
    "that was found, and what TracIn predicts from products of gradients at ten snapshots. Each point is a retraining; "
    "the interval is a bootstrap over them.",
    source="Pruthi et al., Estimating Training Data Influence by Tracing Gradient Descent (2020): TracIn",
    call=lambda params: _kept(params, "check"),
    missing=_no_check,
    caption=_says_check,
    file=lambda params: f"training-{params.checkpoint}-check",
)

FAMILY = Family(
    "training",
    "How did the heads form while the model was trained?",
    (FILM, LEDGER, INFLUENCE, WINDOWS, CHECK),
    TrainingParameters,
    reads=lambda info: is_causal(info) and len(steps_of(info)) > 1,
    none='There is no run with snapshots here. Write snapshots = "log:60" into a recipe and train it: its weights at '
    "60 moments are then kept next to the checkpoint, and this page plays them.",
)
