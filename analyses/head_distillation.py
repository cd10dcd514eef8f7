"""*nonlinearity* Figure 2 and Remark 4.1: which heads does a feed-forward network of 16 hidden units imitate?

    python -m analyses.head_distillation --corpus dir:PATH [--out DIR] [--page docs/distillation.md] [--quick]
    python -m analyses.head_distillation --bundled          # from what is bundled, in seconds: no text, no training

PATH holds the novels that the checkpoints' cards name. Every head of the bundled checkpoints of novels and code is
distilled into FFNs of 4, 16 and 64 hidden units with three seeds, beside the linear map, the position's mean and
nearest neighbours; errors are on documents that neither the checkpoint nor the FFN was trained on. Heads are
labelled by where they attend most. Then heads are replaced by their FFNs in orders of their error (Remark 4.1).

The paper shows six heads of BERT, found by eye, and no numbers: its claims here are that heads on special tokens
([CLS], [SEP]; here the first token) are the most like an FFN, and that this can say which heads to replace.

A distillation is kept in DIR as NAME.safetensors; with --resume, those that are there are read instead of made again,
and one that was killed goes on. About half an hour on two cores; --quick takes two checkpoints and little text (two
minutes).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

import aotlens
from analyses._nonlinearity import Clock, Finding, Results, command_of, options, publish
from aotlens.data import open_corpus
from aotlens.distill import (
    Distillation,
    Record,
    SubstitutionCosts,
    bundled_distillations,
    compare_distillations,
    distill_heads,
    held_out_windows,
    load_record,
    substitution_costs,
)
from aotlens.distill.heads import Attending
from aotlens.plots.distillation import head_clouds
from aotlens.statistics import bootstrap_interval, rank_correlation

NOVELS = ("novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt", "novels-2l-mhsa", "novels-1l-mhsa")
CODE = "code-2l-mhsa"
QUICK = ("novels-2l-mhsa", "novels-2l-gpt")
WIDTHS, WIDTH, SEEDS = (0, 4, 16, 64), 16, 3
#: The amount of text, and what the floor is estimated with; the rest as `distill_heads` has it.
FULL_TEXT: dict[str, Any] = {
    "train_tokens": 200_000, "validation_tokens": 2048, "held_out_tokens": 32_768, "neighbours": 8192, "wide": None,
}  # fmt: skip
QUICK_TEXT: dict[str, Any] = {"train_tokens": 40_000, "held_out_tokens": 16_384, "neighbours": 4096}
REPLACED = ("novels-6l-mhsa", "novels-12l-mssa")
FIRST, PREVIOUS, SEPARATOR = "first_token", "previous_token", "separator"


def distil(name: str, corpus: Any, arguments: argparse.Namespace, clock: Clock) -> Distillation:
    """Distil the heads of one checkpoint; read where --resume finds it."""
    path = arguments.out / f"{name}.safetensors"
    if arguments.resume and path.exists():
        return load_record(path).distillation
    model = _load(name)
    more = {**FULL_TEXT, **(QUICK_TEXT if arguments.quick else {})}
    clock.say(f"distilling {name}")
    state = arguments.out / f"{name}.state"
    if not arguments.resume:
        state.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    distillation = distill_heads(model, corpus, WIDTHS, seeds=SEEDS, checkpoint=state, **more)
    distillation.save(path)
    return distillation


def _load(name: str) -> Any:
    return aotlens.load(name)


class Heads:
    """The quantities that are correlated over the heads of one model: mean errors over seeds, where they attend."""

    def __init__(self, found: Distillation) -> None:
        index = found.width_index(WIDTH)
        #: Heads that rest on the first position count as heads on it, whatever they do besides.
        rests = found.attending.scores.rests()[tuple(np.array(found.attending.heads).T)]
        self.label = np.where(rests, FIRST, np.array(found.attending.attends, dtype=object))
        self.special = _special(found.attending)
        self.pattern_consistency = found.attending.pattern_consistency
        self.error = found.error[:, index].mean(1)
        self.error_after_first = found.error_after_first[:, index].mean(1)

    def difference(self, kind: str, heads: np.ndarray | None = None) -> float:
        """Return the mean error of the heads with that label minus the others'; NaN where there is none of either."""
        heads = np.arange(len(self.label)) if heads is None else heads
        of, error = self.label[heads] == kind, self.error[heads]
        return float(error[of].mean() - error[~of].mean()) if of.any() and (~of).any() else math.nan

    def correlation(self, name: str, error: str = "error", heads: np.ndarray | None = None) -> float:
        """Return Spearman's correlation, over heads; NaN where one of the two is constant."""
        heads = np.arange(len(self.label)) if heads is None else heads
        return rank_correlation(getattr(self, name)[heads], getattr(self, error)[heads])

    def interval(self, statistic: Callable[[np.ndarray], float]) -> tuple[float, float]:
        """Return the 95% interval, by bootstrap over heads; draws without the statistic are left out."""
        return bootstrap_interval(statistic, len(self.label))


def findings(distillations: dict[str, Distillation], costs: dict[str, SubstitutionCosts]) -> list[Finding]:
    """Return the findings about heads: a number a checkpoint that has such heads, in the order of the first table."""
    models = [Heads(d) for d in distillations.values()]
    below, above = (-np.inf, 0.0), (0.0, np.inf)

    def there(values: Iterable[float]) -> tuple[float, ...]:
        return tuple(value for value in values if not math.isnan(value))

    listed = [
        Finding(
            claim="Heads on the first token distil better: their mean error minus other heads', by checkpoint",
            expected="below 0 (Figure 2: heads on [CLS] or [SEP] are the most like an FFN)",
            bounds=below,
            measured=there(heads.difference(FIRST) for heads in models),
        ),
        Finding(
            claim="Rank correlation of error with attention to the first token and separators, by checkpoint",
            expected="below 0",
            bounds=below,
            measured=there(heads.correlation("special") for heads in models),
        ),
        Finding(
            claim="Heads on the previous token distil worst: their mean error minus other heads', by checkpoint",
            expected="above 0 (ours: what they move is not in their own token)",
            bounds=above,
            measured=there(heads.difference(PREVIOUS) for heads in models),
        ),
        Finding(
            claim="Rank correlation of error with the pattern consistency over texts, by checkpoint",
            expected="below 0 (Figure 2's worse heads attend to data tokens)",
            bounds=below,
            measured=there(heads.correlation("pattern_consistency") for heads in models),
        ),
        Finding(
            claim="16 units do what the best of all does: mean of 1 − error at 16, ÷ mean of 1 − least error",
            expected="near 1 (ours; the paper takes 16 units and does not say why)",
            bounds=(0.9, np.inf),
            measured=tuple(_share(d) for d in distillations.values()),
        ),
    ]
    for name, cost in costs.items():
        own = cost.mean_cost(cost.by_error[0])
        listed += [
            Finding(
                claim=f"Remark 4.1, {name}: cost of replacing heads by error, minus that of random orders (one each)",
                expected="below 0, nats a token, mean over numbers of heads",
                bounds=below,
                measured=tuple(float(own - other) for other in cost.mean_cost(cost.random)),
            ),
            Finding(
                claim=f"Remark 4.1, {name}: the same, minus the reverse order",
                expected="below 0",
                bounds=below,
                measured=(float(own - cost.mean_cost(cost.reverse)),),
            ),
            Finding(
                claim=f"Remark 4.1, {name}: rank correlation of a head's error with its cost alone",
                expected="above 0",
                bounds=above,
                measured=(cost.rank_correlation,),
            ),
        ]
    return [finding for finding in listed if finding.measured]


def _special(attending: Attending) -> np.ndarray:
    """Give attention to the first token and to separators, over all queries: few see a separator, the rest count 0."""
    scores = attending.scores
    first, separator = (int(scores.n_queries[scores.motifs.index(name)]) for name in (FIRST, SEPARATOR))
    return attending.to(FIRST) + np.nan_to_num(attending.to(SEPARATOR)) * separator / first


def _share(distillation: Distillation) -> float:
    return float((1 - distillation.mean_error(WIDTH)).mean() / max(float((1 - distillation.floor).mean()), 1e-3))


def tables(distillations: dict[str, Distillation], costs: dict[str, SubstitutionCosts]) -> dict[str, Any]:
    by_model = []
    for name, d in distillations.items():
        assert d.neighbour_error is not None
        row: list[Any] = [name, len(d.heads)]
        row += [_interval(d.over_heads(width)) for width in WIDTHS]
        by_model.append([*row, float(d.position_error.mean()), float(d.neighbour_error.mean()), float(d.floor.mean())])
    models = {name: Heads(d) for name, d in distillations.items()}
    label, consistency, error = (
        np.concatenate([getattr(heads, part) for heads in models.values()])
        for part in ("label", "pattern_consistency", "error")
    )
    by_label = [
        [kind, int((label == kind).sum()), float(error[label == kind].mean()), _spread(error[label == kind]),
         float(np.nanmean(consistency[label == kind]))]
        for kind in sorted(set(label.tolist()), key=lambda kind: float(error[label == kind].mean()))
    ]  # fmt: skip
    by_checkpoint = [
        [name, len(heads.label), _estimate(heads, partial(heads.difference, FIRST)),
         _estimate(heads, partial(heads.correlation, "special", "error")),
         _estimate(heads, partial(heads.correlation, "special", "error_after_first")),
         _estimate(heads, partial(heads.correlation, "pattern_consistency", "error"))]
        for name, heads in models.items()
    ]  # fmt: skip
    best = []
    for name, d in distillations.items():
        order = d.order(WIDTH)
        for head in (*order[:2], *order[-2:]):
            place = d.place(head)
            linear = d.linear_error
            assert linear is not None
            low, high = d.interval(WIDTH)[place]
            best.append(
                [name, f"{head[0]}.{head[1]}", d.attending.attends[place],
                 _interval((float(d.mean_error(WIDTH)[place]), float(low), float(high))),
                 float(linear[place]), float(d.floor[place]), float(d.attending.pattern_consistency[place])]
            )  # fmt: skip
    by_title = {
        "Error on held-out documents, mean over heads (95% interval over heads)": (
            ["checkpoint", "heads", *("linear" if w == 0 else f"{w} units" for w in WIDTHS), "position's mean",
             "nearest neighbours", "floor"],
            by_model,
        ),
        f"By where heads attend most, {WIDTH} units, all checkpoints": (
            ["label", "heads", "mean error", "least to greatest", "pattern consistency"], by_label),
        f"What goes with the error, {WIDTH} units (95% interval, bootstrap over heads)": (
            ["checkpoint", "heads", "error of heads on the first token − others'",
             "rank correlation with attention to the first token and separators", "the same, error without position 0",
             "rank correlation with the pattern consistency"], by_checkpoint),
        f"The two best and worst heads of each, {WIDTH} units (95% interval over stretches of the held-out text and "
        "seeds, so of these texts alone)": (
            ["checkpoint", "head", "attends to", "error", "linear", "floor", "pattern consistency"], best),
    }  # fmt: skip
    for name, cost in costs.items():
        rows = [
            [int(size), *(float(cost.by_error[k, i]) for k in range(3)), float(cost.reverse[i]),
             _spread(cost.random[:, i]), float(cost.by_cost[i])]
            for i, size in enumerate(cost.sizes)
        ]  # fmt: skip
        title = f"{name}: added loss (nats a token) with the first heads of an order replaced"
        by_title[f"{title}, {cost.n_tokens:,} held-out tokens"] = (
            ["heads", "FFNs by error", "the same heads' means", "the same heads zero", "FFNs, reverse",
             "FFNs, random orders", "FFNs by cost alone"],
            rows,
        )  # fmt: skip
    return by_title


def _interval(values: tuple[float, float, float]) -> str:
    mean, low, high = values
    return f"{mean:.3f} ({max(low, 0.0):.3f} to {high:.3f})"


def _estimate(heads: Heads, statistic: Callable[..., float]) -> str:
    value = statistic()
    if math.isnan(value):
        return "no such heads"
    low, high = heads.interval(lambda drawn: statistic(heads=drawn))
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def _spread(values: np.ndarray) -> str:
    return f"{values.min():.3f} to {values.max():.3f}"


def plots(distillations: dict[str, Distillation], costs: dict[str, SubstitutionCosts]) -> dict[str, Any]:
    records = {
        name: Record(distillation=d, checkpoint=name, costs=costs.get(name)) for name, d in distillations.items()
    }
    compared = compare_distillations(records, WIDTH)
    x = {
        name: (heads.special, heads.pattern_consistency)
        for name, heads in ((name, Heads(d)) for name, d in distillations.items())
    }
    titles = ("attention to the first token and separators", "pattern consistency over texts")
    by_name = {
        "head_distillation": head_clouds(distillations, WIDTH, x, titles, kinds=compared.kinds),
        "head_distillation_widths": aotlens.plot(compared, what="widths"),
    }
    by_name |= {f"head_substitution_{name}": aotlens.plot(cost) for name, cost in costs.items()}
    return by_name


def results_of(distillations: dict[str, Distillation], costs: dict[str, SubstitutionCosts]) -> Results:
    """Return findings, tables and plots of distillations and of what replacing heads costs."""
    by_title = tables(distillations, costs)
    first = next(iter(distillations.values()))
    return Results(
        name="head_distillation",
        findings=findings(distillations, costs),
        settings={
            "hidden units": WIDTHS,
            "training tokens": first.train_tokens,
            "held-out tokens": first.held_out_tokens,
            "checkpoints": tuple(distillations),
        },
        seeds=range(SEEDS),
        data={
            name: {key: column.to_numpy() for key, column in d.to_frame().items()} for name, d in distillations.items()
        },
        tables=by_title,
        plots=plots(distillations, costs),
        page="docs/distillation.md",
    )


def bundled() -> Results:
    """Load the results from the bundled distillations, where `analyses.bundle_distillations` has put what this made."""
    records = bundled_distillations()
    distillations = {name: records[name].distillation for name in (*NOVELS, CODE)}
    return results_of(distillations, {name: cost for name in REPLACED if (cost := records[name].costs) is not None})


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--corpus", metavar="SPEC", help="the novels, as dir:PATH")
    parser.add_argument("--code", default="stdlib", metavar="SPEC", help="text for the model of code (stdlib)")
    parser.add_argument("--resume", action="store_true", help="read or finish the distillations that are in --out")
    parser.add_argument("--bundled", action="store_true", help="read the bundled distillations, and no text")
    arguments = parser.parse_args(argv)
    clock = Clock()
    if arguments.bundled:
        return publish(bundled(), arguments, command_of("head_distillation", arguments, "--bundled"), clock())
    if arguments.corpus is None:
        parser.error("give --corpus dir:PATH, or --bundled to read what is bundled.")
    novels, code = open_corpus(arguments.corpus), open_corpus(arguments.code)
    names = QUICK if arguments.quick else (*NOVELS, CODE)
    distillations = {name: distil(name, code if name == CODE else novels, arguments, clock) for name in names}
    costs = {}
    for name in QUICK[:1] if arguments.quick else REPLACED:
        clock.say(f"replacing heads of {name}")
        model = _load(name)
        windows = held_out_windows(model, novels, 2048 if arguments.quick else 4096)
        costs[name] = substitution_costs(model, distillations[name], windows, width=WIDTH, n_random=SEEDS)
    command = command_of("head_distillation", arguments, "--corpus dir:PATH")
    return publish(results_of(distillations, costs), arguments, command, clock())


if __name__ == "__main__":
    sys.exit(main())
