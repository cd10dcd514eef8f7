"""*nonlinearity*, Figure 10: how long the value vectors of special tokens are, layer by layer.

    python -m analyses.value_norms --corpus dir:PATH [--bert NAME] [--quick] [--out DIR]

Mean ‖v‖ of the start token, of the first token of the text and of all others, in the bundled checkpoints of the novels
on held-out windows; of [CLS], [SEP], the first token and the others in BERT (`--bert bert-base-uncased` from Hugging
Face's hub, or a folder), on 100 sentences (`--corpus hf:stanfordnlp/sst2::sentence` is the paper's). Claims, for BERT:
[CLS] is small before layer 4, [SEP] almost zero after layer 5. For a start token the like of it: where heads attend to
it, its value vectors are short. Three samples of text: windows spread evenly over it, or sentences drawn with a seed. A
minute; `--quick`, less.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import aotlens
from analyses._nonlinearity import Clock, Finding, Results, plot_name, publish_on_text, text_options
from analyses._texts import bert_tokens, load_bert, sentences, windows
from analyses.head_patterns import bundled_novels
from aotlens.data import Corpus, open_corpus
from aotlens.heads import ValueNorms, attention_by_place, value_norms
from aotlens.plots.primitives import seed_curves

SEEDS = (0, 1, 2)
OURS = ("start token", "first token", "other")
BERT = ("[CLS]", "[SEP]", "first token", "other")
SINK = 0.5


def of_checkpoint(name: str, corpus: Corpus, n: int) -> Iterator[tuple[ValueNorms, np.ndarray]]:
    """Yield for each sample of text: norms, and each head's attention to the start token."""
    model = aotlens.load(name, "cpu")
    for rows in windows(model, corpus, min(64, model.cfg.n_ctx), n, len(SEEDS)):
        kinds = torch.full_like(rows, 2)
        kinds[:, 0], kinds[:, 1] = 0, 1
        norms = value_norms(model, [(rows[i : i + 16], kinds[i : i + 16]) for i in range(0, n, 16)], OURS)
        yield norms, attention_by_place(model, rows)["first_token"]


def of_bert(model: Any, corpus: Corpus, n: int, seed: int) -> ValueNorms:
    batches = []
    for text in sentences(corpus, n, seed):
        tokens = bert_tokens(model, text)
        kinds = torch.full_like(tokens, 3)
        kinds[:, 0], kinds[:, -1], kinds[:, 1] = 0, 1, 2
        batches.append((tokens, kinds))
    return value_norms(model, batches, BERT)


def ours(name: str, runs: list[tuple[ValueNorms, np.ndarray]]) -> Iterator[Finding]:
    relative = np.stack([norms.relative("start token", "other") for norms, _ in runs])
    attention = np.stack([share for _, share in runs])
    sinks = attention.mean(0) >= SINK
    if sinks.any():
        yield Finding(
            claim=f"{name}: ‖v‖ of the start token ÷ others', in the {int(sinks.sum())} heads that give it half their "
            "attention", expected="small", bounds=(0, 0.5), measured=tuple(relative[:, sinks].mean(1)),
        )  # fmt: skip
        if not sinks.all():
            rest = relative[:, ~sinks].mean(1)
            yield Finding(claim=f"{name}: that ratio in those heads ÷ in the rest", expected="below 1", bounds=(0, 0.8),
                          measured=tuple(relative[:, sinks].mean(1) / rest))  # fmt: skip
    else:
        yield Finding(claim=f"{name}: heads that give the start token half their attention", expected="some",
                      bounds=(1, float("inf")), measured=(0.0,))  # fmt: skip


def berts(name: str, runs: list[ValueNorms]) -> Iterator[Finding]:
    layers = np.stack([run.by_layer() for run in runs])  # [seed, layer, kind]
    cls, sep, other = (layers[..., BERT.index(kind)] for kind in ("[CLS]", "[SEP]", "other"))
    n_layers = layers.shape[1]
    yield Finding(claim=f"{name}: ‖v‖ of [CLS] ÷ others', layers 1 to 3", expected="small", bounds=(0, 0.5),
                  measured=tuple((cls / other)[:, : min(3, n_layers)].mean(1)))  # fmt: skip
    if n_layers > 5:
        yield Finding(claim=f"{name}: ‖v‖ of [SEP] ÷ others', after layer 5", expected="nearly 0", bounds=(0, 0.3),
                      measured=tuple((sep / other)[:, 5:].mean(1)))  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    arguments = text_options(__doc__).parse_args(argv)
    clock, corpus = Clock(), open_corpus(arguments.corpus)
    n = 16 if arguments.quick else 100
    findings: list[Finding] = []
    plots, data = {}, {}
    rows: list[list[object]] = []
    for name in bundled_novels():
        runs = list(of_checkpoint(name, corpus, n))
        findings += ours(name, runs)
        layers = np.stack([norms.by_layer() for norms, _ in runs])
        _add(name, OURS, layers, plots, data, rows)
        clock.say(name)
    if arguments.bert:
        model = load_bert(arguments.bert)
        norms = [of_bert(model, corpus, n, seed) for seed in SEEDS]
        findings += berts(arguments.bert, norms)
        _add(arguments.bert, BERT, np.stack([sample.by_layer() for sample in norms]), plots, data, rows)
        clock.say(arguments.bert)
    results = Results(
        name="value_norms",
        findings=findings,
        settings={"windows or sentences": n},
        seeds=SEEDS,
        data=data,
        tables={"Mean ‖v‖ by layer (d_head units, over heads and seeds)": (["model", "tokens", "layers"], rows)},
        plots=plots,
    )
    return publish_on_text(results, arguments, clock())


def _add(
    name: str,
    kinds: tuple[str, ...],
    layers: np.ndarray,
    plots: dict[str, Any],
    data: dict[str, Any],
    rows: list[list[object]],
) -> None:
    """Add `layers [seed, layer, kind]` as a plot, as numbers and as rows of the table."""
    curves = {kind: layers[..., index] for index, kind in enumerate(kinds)}
    plots[plot_name("value-norms", name)] = seed_curves(
        np.arange(1, layers.shape[1] + 1), curves, x_title="layer", y_title="mean norm of value vectors"
    )
    data[name] = curves
    rows += [[name, kind, ", ".join(f"{v:.2f}" for v in values.mean(0))] for kind, values in curves.items()]


if __name__ == "__main__":
    sys.exit(main())
