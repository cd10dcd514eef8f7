"""*nonlinearity*, Figure 1: attention patterns that repeat from head to head, whatever the text.

    python -m analyses.head_patterns --corpus dir:PATH [--bert NAME] [--quick] [--out DIR]

For each bundled checkpoint of the novels, and for BERT (`--bert bert-base-uncased`, from Hugging Face's hub, or a
folder): how much of each head's attention goes to the next token, the previous one, the token itself, the first
position and the last, on three samples of held-out text: windows spread evenly over it, or sentences drawn with a seed.
A head that gives one of them half or more shows that pattern. Claims: patterns repeat (several heads show the same
one), heads look at the next token (where they can see it), and some look mostly at the first and at the last token.
About two minutes; `--quick`, half a minute.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import aotlens
from analyses._nonlinearity import Clock, Finding, Results, plot_name, publish_on_text, text_options
from analyses._texts import bert_tokens, load_bert, sentences, windows
from aotlens.checkpoints import bundled_folder
from aotlens.data import Corpus, open_corpus
from aotlens.heads import PLACES, MotifScores, attention_by_place, attention_patterns
from aotlens.plots.attention import pattern_gallery

SEEDS = (0, 1, 2)
THRESHOLD = 0.5
INF = float("inf")
EXAMPLE = "It was not the first time that she had seen him there."


def bundled_novels() -> list[str]:
    """Return the models of novels, each training once; those with rotary positions stand in `analyses.positions`."""
    names = (path.parent.name for path in bundled_folder().glob("novels-*/config.json"))
    return sorted(name for name in names if "rotary" not in name and not name.endswith("-run"))


def of_checkpoint(name: str, corpus: Corpus, n_windows: int) -> tuple[Any, list[MotifScores]]:
    model = aotlens.load(name, "cpu")
    length = min(64, model.cfg.n_ctx)
    return model, [attention_by_place(model, rows) for rows in windows(model, corpus, length, n_windows, len(SEEDS))]


def of_bert(name: str, corpus: Corpus, n_sentences: int) -> tuple[Any, list[MotifScores]]:
    """Measure each sentence alone, without padding; return the mean over sentences of its own shares."""
    model = load_bert(name)
    scores = []
    for seed in SEEDS:
        texts = sentences(corpus, n_sentences, seed)
        rows = [tokens for tokens in (bert_tokens(model, text) for text in texts) if tokens.shape[1] >= 5]
        scores.append(mean_of([attention_by_place(model, row) for row in rows]))
    return model, scores


def mean_of(scores: list[MotifScores]) -> MotifScores:
    """Return the mean of each score over texts of any length, each counting once."""
    return dataclasses.replace(scores[0], values=np.mean([sample.values for sample in scores], axis=0))


def heads_on_places(scores: MotifScores) -> dict[str, int]:
    """Count the heads that give each place half their attention."""
    return {place: int((np.nan_to_num(scores[place]) >= THRESHOLD).sum()) for place in PLACES}


def findings_of(name: str, scores: list[MotifScores], bidirectional: bool) -> Iterator[Finding]:
    counts = [heads_on_places(sample) for sample in scores]
    repeated = [max(count.values()) for count in counts]
    yield Finding(claim=f"{name}: heads that share the commonest pattern", expected="several", bounds=(2, INF),
                  measured=tuple(map(float, repeated)))  # fmt: skip
    wanted = ("next_token", "first_token", "last_token") if bidirectional else ("first_token",)
    for place in wanted:
        yield Finding(claim=f"{name}: heads that give {place.replace('_', ' ')} half their attention", expected="some",
                      bounds=(1, INF), measured=tuple(float(count[place]) for count in counts))  # fmt: skip
    spread = np.nanmax(np.stack([sample.values for sample in scores]).std(0))
    yield Finding(claim=f"{name}: largest spread of a head's share over texts (standard deviation)",
                  expected="small: not of the text", bounds=(0, 0.1), measured=(float(spread),))  # fmt: skip


def examples(name: str, model: Any, scores: MotifScores) -> tuple[list[np.ndarray], list[str], list[list[str]]]:
    """Return for each place the head that attends there most, on one sentence."""
    if name.startswith("novels-"):
        tokens = model.to_tokens(EXAMPLE)
        every = attention_patterns(model, tokens).pattern
        words = model.to_str_tokens(tokens[0])
    else:
        tokens = bert_tokens(model, EXAMPLE)
        _, cache = model.run_with_cache(tokens)
        every = torch.stack([cache["pattern", layer][0] for layer in range(model.cfg.n_layers)]).detach().numpy()
        words = model.tokenizer.convert_ids_to_tokens(tokens[0].tolist())
    patterns, titles = [], []
    for place in PLACES:
        best = scores.best(place)
        if best is None:  # a causal model does not see it
            continue
        (layer, head), share = best
        patterns.append(every[layer, head])
        titles.append(f"{place.replace('_', ' ')}: {layer}.{head} ({share:.2f})")
    return patterns, titles, [list(words)] * len(patterns)


def main(argv: list[str] | None = None) -> int:
    arguments = text_options(__doc__).parse_args(argv)
    clock, corpus = Clock(), open_corpus(arguments.corpus)
    n = 8 if arguments.quick else 64
    findings: list[Finding] = []
    rows: list[list[object]] = []
    plots, data = {}, {}
    for name in [*bundled_novels(), *([arguments.bert] if arguments.bert else [])]:
        model, scores = of_bert(name, corpus, n) if name == arguments.bert else of_checkpoint(name, corpus, n)
        bidirectional = name == arguments.bert or model.sees_later_keys
        findings += findings_of(name, scores, bidirectional)
        mean = mean_of(scores)
        labels = heads_on_places(mean)
        cells = [
            "not seen" if place in mean.reasons else f"{mean[place].max():.2f} ({labels[place]})" for place in PLACES
        ]
        rows.append([name, int(np.prod(mean.values.shape[1:])), *cells])
        plots[plot_name("head-patterns", name)] = pattern_gallery(*examples(name, model, mean))
        data[name] = {place: mean[place] for place in PLACES}
        clock.say(name)
    header = ["model", "heads", *(place.replace("_", " ") for place in PLACES)]
    results = Results(
        name="head_patterns",
        findings=findings,
        settings={"windows or sentences": n, "a pattern is": f"a share of at least {THRESHOLD}"},
        seeds=SEEDS,
        data=data,
        tables={"Largest share of one head's attention, and how many heads give half or more": (header, rows)},
        plots=plots,
    )
    return publish_on_text(results, arguments, clock())


if __name__ == "__main__":
    sys.exit(main())
