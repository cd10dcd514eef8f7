"""Which heads recur over seeds, for MHSA, MSSA, GPT, and MHSA without weight decay (`aotlens.heads.universality`).

    aotlens sweep analyses/recipes/seeds.toml --out DIR                          (the models; two hours of two cores)
    python -m analyses.heads_across_seeds DIR/checkpoints/*/* --corpus dir:PATH [--page docs/universality.md]

Models of one recipe are matched with each other, on 32 held-out windows of 64 tokens, with 999 permutations; each two
recipes are compared over models (`compare_kinds`). A minute of one core.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from torch import Tensor

import aotlens
from analyses._claims import markdown, parser
from analyses._outcomes import ROOT, of_run
from aotlens.checkpoints import shared_held_out_windows
from aotlens.conventions import head_name
from aotlens.heads import Universality, universality
from aotlens.models import AttentionOnlyTransformer
from aotlens.statistics import holm

HEADER = (
    "kind", "matched", "tested", "mean", "permuted: mean ± sd", "standardised", "p", "layer 0 (permuted)",
    "layer 1 (permuted)",
)  # fmt: skip


def test_rows(kind: str, result: Universality) -> list[tuple[object, ...]]:
    """Return a row a test."""
    rows: list[tuple[object, ...]] = []
    for place, row in enumerate(result.tests_frame().to_dict("records")):
        both = zip(result.by_layer[place][:2], result.by_layer_null[place][:2], strict=True)
        layers = (f"{value:.3f} ({permuted:.3f})" for value, permuted in both)
        chance = f"{row['null_mean']:.3f} ± {row['null_std']:.3f}"
        rows.append((kind, row["matched"], row["tested"], f"{row['observed']:.3f}", chance,
                     f"{row['standardised']:.1f}", f"{row['p']:.3f}", *layers))  # fmt: skip
    return rows


def model_rows(
    by_kind: Mapping[str, list[str]], models: Mapping[str, AttentionOnlyTransformer], tokens: Tensor
) -> list[tuple[object, ...]]:
    """Return a row a kind: the weights of a model, and the loss of its models on the windows that heads are compared
    on."""
    rows: list[tuple[object, ...]] = []
    for kind, names in by_kind.items():
        losses = [float(models[name].loss_per_token(tokens).double().mean()) for name in names]
        n_weights = sum(weight.numel() for weight in models[names[0]].parameters())
        rows.append((kind, len(names), f"{n_weights:,}", f"{np.mean(losses):.2f} ± {np.std(losses):.2f}"))
    return rows


def group_rows(kind: str, result: Universality) -> list[tuple[object, ...]]:
    """Return a row a group that is in all models but one at most."""
    rows: list[tuple[object, ...]] = []
    for group in result.groups:
        if len(group.heads) >= len(result.models) - 1:
            heads = dict(group.heads)
            names = ", ".join(head_name(heads[name]) if name in heads else "–" for name in result.models)
            rows.append((kind, names, f"{group.matched:.2f}", f"{group.tested:.2f} ± {group.se:.2f}", f"{group.q:.2g}"))
    return rows


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="names or folders, seeds of some recipes")
    options.add_argument("--corpus", metavar="SPEC", required=True, help="the novels, as dir:PATH")
    options.add_argument("--page", type=Path, help="write its section of this page, and store the outcome")
    arguments = options.parse_args(argv)
    models = {}
    by_kind: dict[str, list[str]] = defaultdict(list)
    loaded = [aotlens.load(name, "cpu") for name in arguments.checkpoints]
    for model in sorted(loaded, key=lambda model: (model.card.name, model.card.seed or 0)):
        kind = model.card.name.removeprefix("formation-")
        if (name := f"{kind}-{model.card.seed}") in models:
            raise ValueError(f"{name}: expected each recipe and seed once, found two checkpoints of it.")
        models[name] = model
        by_kind[kind].append(name)
    windows = shared_held_out_windows(list(models.values()), arguments.corpus, 32, 64)
    tokens, documents = windows.ids, windows.documents
    universalities = {
        kind: universality({name: models[name] for name in names}, tokens, clusters=documents)
        for kind, names in by_kind.items()
    }
    tests = [row for kind, result in universalities.items() for row in test_rows(kind, result)]
    groups = [row for kind, result in universalities.items() for row in group_rows(kind, result)]
    closed = "; ".join(f"{kind} {result.closed:.2f}" for kind, result in universalities.items())
    parts = [
        markdown(
            ("kind", "models", "weights of each", "loss, nats a token: mean ± sd"), model_rows(by_kind, models, tokens)
        ),
        markdown(HEADER, tests),
        " ".join(f"{kind}: {result.beyond_distance}." for kind, result in universalities.items()),
        f"Groups matched by pattern that are in all models, or all but one, with their OV circuits' mean cosine "
        f"(± jackknife over models); of chains through three models these shares close: {closed}.",
        markdown(("kind", "head in seed 0, 1, …", "pattern", "ov", "q"), groups),
    ]
    kinds = {name: kind for kind, names in by_kind.items() for name in names}
    together = universality(models, tokens, n_permutations=999, kinds=kinds)
    rows: list[tuple[object, ...]] = []
    compared = [together.compare_kinds(*pair) for pair in combinations(by_kind, 2)]
    corrected = iter(holm(np.concatenate([comparison.p for comparison in compared])) if compared else ())
    for comparison in compared:
        assert comparison.standardised is not None
        for test, left, right, units, p in zip(
            comparison.tests, comparison.first, comparison.second, comparison.standardised, comparison.p, strict=True
        ):
            means = (f"{of.mean():+.3f} ({unit:.1f})" for of, unit in zip((left, right), units, strict=True))
            rows.append((*comparison.kinds, *test, *means, f"{p:.2g}", f"{next(corrected):.2g}"))
    header = (
        "kind", "other kind", "matched", "tested", "above permuted (standardised)", "of the other", "p", "p, Holm"
    )  # fmt: skip
    parts.append(markdown(header, rows))
    parts += [f"**{kind}**: {result.layer_trend}" for kind, result in universalities.items()]
    print("\n\n".join(parts))
    if arguments.page is not None:
        command = "python -m analyses.heads_across_seeds DIR/checkpoints/*/* --corpus dir:PATH"
        of_run("heads_across_seeds", command, str(arguments.page), parts).publish(ROOT / arguments.page, store=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
