"""In which order the parts of an induction circuit form, over seeds, for MHSA, MSSA, rotary positions and GPT.

    aotlens sweep analyses/recipes/formation.toml --out DIR     (the models and their snapshots; two hours of two cores)
    python -m analyses.circuit_formation RUN ... --corpus dir:PATH [--ledger BOOKS ...] [--page docs/training-film.md]

Each RUN is a run with snapshots named KIND-SEED, or a film of one that was saved (NAME.safetensors): what
`aotlens.dynamics.film` measures of every snapshot on 16 held-out windows of 256 tokens and on random tokens that come
twice, of which `film_curves` are the events here, but for the loss. Two moments of each: when it leaves the band of its
beginning for good (`change_point`), and when it is half-way (`half_way`). Orders are by paired t of log steps over
seeds, with Holm's correction over the pairs of a kind. BOOKS are ledgers that were saved, of the loss on random tokens
that come twice, from step 100 to 1,460.

A film of 65 snapshots takes a minute and a half of one core. Seeds are of training: data, order and initial weights.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from analyses._claims import markdown, parser
from analyses._outcomes import ROOT, of_run
from aotlens import load_run
from aotlens.checkpoints import shared_held_out_windows
from aotlens.dynamics import (
    ChangePoint,
    Ledger,
    OverTraining,
    change_point,
    film,
    film_curves,
    half_way,
    order_of_events,
)
from aotlens.dynamics.events import LEAST_SEEDS
from aotlens.results import load

EVENTS = ("copying", "gain on repeated tokens", "k composition", "previous token", "induction")
#: Roles of heads in a ledger: the first-layer head that attends to the token before most, and the second layer's.
ROLES = (
    "previous-token head QK",
    "previous-token head OV",
    "other first-layer heads",
    "second layer QK",
    "second layer OV",
)


#: The least change that counts as forming: of a score, a tenth of the range; of gain, half a nat; of composition, .02.
LEAST_CHANGE = {
    "copying": 0.1,
    "gain on repeated tokens": 0.5,
    "k composition": 0.02,
    "previous token": 0.1,
    "induction": 0.1,
}
MOMENTS = ("leaves its beginning", "half-way")


def moments(measures: OverTraining) -> dict[str, tuple[ChangePoint, ChangePoint]]:
    """Return of each event when it leaves its beginning for good, and when it is half-way for good; step None for both
    where the curve does not change, or by less than `LEAST_CHANGE`."""
    by_event = {}
    curves = film_curves(measures)
    for name in EVENTS:
        change, half = (when(measures.steps, curves[name]) for when in (change_point, half_way))
        if abs(curves[name][-5:].mean() - curves[name][:5].mean()) < LEAST_CHANGE[name] or half.step is None:
            change = half = dataclasses.replace(change, step=None, after=None)
        by_event[name] = (change, half)
    return by_event


def events_table(by_kind: Mapping[str, Sequence[OverTraining]]) -> str:
    """Return a row an event of a kind: seeds in which it happened, its two moments, and the curve's mean at the end."""
    rows = []
    for kind, runs in by_kind.items():
        changes, ends = [moments(run) for run in runs], [film_curves(run) for run in runs]
        for event in EVENTS:
            pairs = [change[event] for change in changes if change[event][0].step is not None]
            last = [float(end[event][-5:].mean()) for end in ends]
            when = [_median([pair[moment].step for pair in pairs]) for moment in range(len(MOMENTS))]
            rows.append(
                (kind, event, f"{len(pairs)} of {len(runs)}", *when, f"{np.mean(last):.2f} ± {np.std(last):.2f}")
            )
    columns = (f"{moment}, step: median (range)" for moment in MOMENTS)
    return markdown(("kind", "event", "seeds", *columns, "at the end: mean ± sd"), rows)


def _median(steps: Sequence[int | None]) -> str:
    numbers = [step for step in steps if step is not None]
    return f"{np.median(numbers):,.0f} ({min(numbers):,}–{max(numbers):,})" if numbers else "–"


def order_text(kind: str, runs: Sequence[OverTraining]) -> str:
    """Say what is decided of the order of events of a kind, by each of the two moments."""
    changes = [moments(run) for run in runs]
    happened = [event for event in EVENTS if all(change[event][0].step is not None for change in changes)]
    if len(happened) < 2 or len(runs) < LEAST_SEEDS:
        return (
            f"**{kind}**, {len(runs)} seeds: fewer than two events happened in every seed, or fewer than three seeds."
        )
    sentences = []
    for place, moment in enumerate(MOMENTS):
        order = order_of_events({event: [change[event][place] for change in changes] for event in happened})
        left = len(happened) * (len(happened) - 1) // 2 - len(order.decided)
        sentences.append(f"by *{moment}*, {'; '.join(order.decided) or 'nothing is decided'} ({left} pairs undecided)")
    return f"**{kind}**, {len(runs)} seeds: {'. Also '.join(sentences)}."


def ledger_table(books: Iterable[Ledger], films: Mapping[str, OverTraining]) -> str:
    """Write mean and standard deviation over seeds of what each role earned, nats a token."""
    rows: dict[str, list[float]] = defaultdict(list)
    for ledger in books:
        measures = films[ledger.run]
        scores = measures["motif_scores"][-1, measures.results[0].motifs.index("previous_token"), 0]
        previous = f"0.{int(scores.argmax())}"
        sums = dict.fromkeys(ROLES, 0.0)
        for entry, value in zip(ledger.entries, ledger.totals, strict=True):
            head, _, circuit = entry.partition(" ")
            if head == previous:
                sums[f"previous-token head {circuit}"] += float(value)
            elif head.startswith("0.") and circuit:
                sums["other first-layer heads"] += float(value)
            elif head.startswith("1.") and circuit:
                sums[f"second layer {circuit}"] += float(value)
            else:
                sums[entry] = float(value)
        for name, value in {"loss": ledger.change, **sums, "residual": float(ledger.residuals.sum())}.items():
            rows[name].append(value)
        rows["split differs with every second snapshot"].append(ledger.halved or 0.0)
    return markdown(
        ("entry", "nats a token: mean ± sd", "range"),
        [(name, f"{np.mean(v):+.3f} ± {np.std(v):.3f}", f"{min(v):+.3f} to {max(v):+.3f}") for name, v in rows.items()],
    )


def film_of(source: str, corpus: str | None) -> OverTraining:
    """Return a film that was saved, or that of a run on held-out text."""
    if Path(source).suffix == ".safetensors":
        measures = load(source, OverTraining)
        assert isinstance(measures, OverTraining)
        return measures
    if corpus is None:
        raise ValueError(f"{source}: expected --corpus, of which each run is measured on the held-out documents.")
    run = load_run(source, "cpu")
    return film(run, shared_held_out_windows([run[run.steps[-1]]], corpus, 16, 256).ids, n_random=0)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs, or films that were saved")
    options.add_argument("--corpus", metavar="SPEC", help="the novels, as dir:PATH, where RUN is no saved film")
    options.add_argument("--ledger", nargs="*", default=[], metavar="BOOKS", help="ledgers that were saved")
    options.add_argument("--page", type=Path, help="write its section of this page, and store the outcome")
    arguments = options.parse_args(argv)
    films = {measures.run: measures for measures in (film_of(source, arguments.corpus) for source in arguments.runs)}
    by_kind: dict[str, list[OverTraining]] = defaultdict(list)
    for name in sorted(films):
        by_kind[name.rpartition("-")[0].removeprefix("formation-")].append(films[name])
    parts = [events_table(by_kind), *(order_text(kind, runs) for kind, runs in by_kind.items())]
    if arguments.ledger:
        parts.append(ledger_table([load(path, Ledger) for path in arguments.ledger], films))
    print("\n\n".join(parts))
    if arguments.page is not None:
        command = "python -m analyses.circuit_formation RUN ... --corpus dir:PATH"
        outcome = of_run("circuit_formation", command, str(arguments.page), parts)
        outcome.publish(ROOT / arguments.page, store=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
