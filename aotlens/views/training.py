"""A training run as views: its measures over the steps, and what each circuit took off the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aotlens.conventions import as_head
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Choice, Family, TextParameter, first_token
from aotlens.views.view import About, View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.dynamics import Ledger, OverTraining

TEXT = "Mr. Darcy met Elizabeth. Then Mr. Darcy met Elizabeth again, and Mr. Darcy said nothing."

#: What `aotlens.plot` draws of the film.
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
#: Sequences of the ledger, and random tokens before they come again.
N_SEQUENCES, HALF_LENGTH = 16, 31


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A run, a text, what is drawn of the film, and the step and the head whose maps are shown."""

    checkpoint: str
    model: Mapping[str, Any]
    """Its configuration."""
    start: int | None
    """The token that its texts begin with."""
    text: str
    measure: str
    step: str
    head: str

    @property
    def run(self) -> Call:
        """The snapshots of the run that trained the checkpoint."""
        return make("aotlens.load_run", Load(self.checkpoint).part("card").part("path")).named("run")

    @property
    def half_length(self) -> int:
        """Random tokens before they come again."""
        return min(HALF_LENGTH, (int(self.model["n_ctx"]) - 1) // 2)


def steps_of(info: CheckpointInfo) -> list[int]:
    """The steps of which there are snapshots of the run that trained a checkpoint."""
    from aotlens.checkpoints.snapshots import snapshot_steps

    return [] if info.path is None else snapshot_steps(info.path)


def _values(info: CheckpointInfo, **chosen: Any) -> Chosen:
    if chosen["head"]:
        as_head(chosen["head"], SimpleNamespace(n_layers=info.model["n_layers"], n_heads=info.model["n_heads"]))
    return Chosen(checkpoint=info.name, model=info.model, start=first_token(info), **chosen)


def _film(chosen: Chosen) -> Call:
    tokens = Load(chosen.checkpoint).method("to_tokens", chosen.text).named("tokens")
    return call("aotlens.dynamics.film", chosen.run, tokens, n_random=0)


def _ledger(chosen: Chosen) -> Call:
    sizes = int(chosen.model["d_vocab"]), N_SEQUENCES, chosen.half_length
    tokens = make("aotlens.data.repeated_random_tokens", *sizes, 1, eot_id=chosen.start).named("tokens")
    return call("aotlens.dynamics.ledger", chosen.run, tokens)


def _says_film(chosen: Chosen, result: OverTraining) -> str:
    from aotlens.dynamics.events import LEAST_SNAPSHOTS

    changes = result.events
    if not changes:
        return f"{result.headline}. Change points need at least {LEAST_SNAPSHOTS} snapshots."
    changed = sorted(
        ((c.step, c.after, name) for name, c in changes.items() if c.step is not None and c.after is not None)
    )
    said = "; ".join(f"{name} between steps {after:,} and {step:,}" for step, after, name in changed)
    flat = ", ".join(name for name, change in changes.items() if change.step is None)
    unchanged = f" No change point: {flat}." if flat else ""
    return f"{len(result.steps)} snapshots. Leaves its first values for good: {said or 'nothing'}.{unchanged}"


def _says_ledger(chosen: Chosen, result: Ledger) -> str:
    headline = f"{result.headline[0].upper()}{result.headline[1:]}"
    return f"{headline}. On random tokens that come twice, in {result.n_passes:,} passes."


FILM = View(
    name="measures",
    title="Measures over training",
    about=About(
        text="What is measured of the model at each snapshot of its training: the loss on the text, how much less the "
        "loss is at the end of the context than at its beginning, and on random tokens when they come again; of every "
        "head its motif scores, composition, copying score, and the norms of its circuits. A change point is the first "
        "snapshot after which a curve stays outside the band of its first tenth, and is named only where a flat curve "
        "of as much autocorrelation rarely looks so (5%). Click on a curve to show its step's maps, and its head's.",
        source="Olsson et al., In-context Learning and Induction Heads (2022): the phase change",
    ),
    call=_film,
    caption=_says_film,
    file=lambda chosen: f"training-{chosen.checkpoint}-measures",
    drawn=lambda chosen: {} if chosen.measure == "losses" else {"of": chosen.measure},
    slow="snapshots",
    picks="step = customdata; head = name",
)
LEDGER = View(
    name="ledger",
    title="What each circuit took off the loss",
    about=About(
        text="The change of the loss on random tokens that come twice, from the first snapshot to the last, as a sum "
        "of parts: QK and OV of every head, embedding, positions, read-out, MLPs. Each part is the integral of the "
        "gradient along straight lines between successive snapshots, in the products that heads act by, so that it "
        "does not depend on how their weights are factored. The parts sum to the change up to the residual that is "
        "said. Click on an area to show its step's maps, and its head's.",
        formula="ΔL = Σ_g ∫ ∂L/∂θ_g · dθ_g",
        source="Lan et al., LCA: Loss Change Allocation (2019), with exact integrals between snapshots",
    ),
    call=_ledger,
    caption=_says_ledger,
    file=lambda chosen: f"training-{chosen.checkpoint}-ledger",
    slow="segments",
    picks="step = customdata; head = name",
)

FAMILY = Family(
    name="training",
    about="How did the heads form while the model was trained?",
    views=(FILM, LEDGER),
    values=_values,
    parameters={
        "text": TextParameter("Text", TEXT, lines=3),
        "measure": Choice("Measure", MEASURES),
        "step": TextParameter("Step of the maps", "", most=9, blank="the last"),
        "head": TextParameter("Head of the large map", "", most=9, blank="the clearest"),
    },
    reads=lambda info: (
        (info.model.get("read_in", "tokens"), info.model.get("read_out", "tokens")) == ("tokens", "tokens")
        and bool(info.model.get("causal", True))
        and len(steps_of(info)) > 1
    ),
    none='There is no run with snapshots here. Write snapshots = "log:60" into a recipe and train it: its weights at '
    "60 moments are then kept beside the checkpoint, and this page plays them.",
)
