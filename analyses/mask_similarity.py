"""*nonlinearity*, Figure 3: the same [MASK] in different contexts, layer by layer.

    python -m analyses.mask_similarity --corpus dir:PATH [--checkpoint NAME] [--bert NAME] [--quick] [--out DIR]

The mask token stands first (after the start token or [CLS]) in pairs of texts of one length, so that position does not
tell them apart; the cosine of its residual streams says how far the contexts do. Similar contexts: the same text but
for a tenth of its tokens, taken from another. Different contexts: passages about half of the held-out text apart, or
sentences drawn at random. Claims: the cosine falls with depth, and is lower for different contexts. On our masked
language model (novels-4l-masked), and on BERT given its name on Hugging Face's hub, or a folder. Three samples of text:
windows spread evenly over it, or sentences drawn with a seed. Half a minute; `--quick`, less.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

import aotlens
from analyses._nonlinearity import Clock, Finding, Results, plot_name, publish_on_text, text_options
from analyses._texts import bert_tokens, load_bert, sentences, windows
from aotlens.data import Corpus, open_corpus
from aotlens.evaluate import mask_id_of
from aotlens.heads.reader import HeadReader
from aotlens.models import hook_names
from aotlens.plots.primitives import seed_curves

SEEDS = (0, 1, 2)
CHECKPOINT = "novels-4l-masked"
LENGTH, POSITION = 32, 1
REPLACED = 0.1


def contexts(model: Any, name: str, bert: bool, corpus: Corpus, n: int, seed: int) -> tuple[Tensor, Tensor, int]:
    """Return `n` texts, another one for each, of equal length, and the mask's id."""
    if not bert:
        rows = windows(model, corpus, LENGTH, 2 * n, len(SEEDS))[SEEDS.index(seed)]
        return rows[:n], rows[n:], mask_id_of(model)
    wanted = []
    for text in sentences(corpus, 8 * n, seed, shortest=50):
        tokens = bert_tokens(model, text)[0]
        if len(tokens) > LENGTH // 2:
            wanted.append(torch.cat([tokens[: LENGTH // 2 - 1], tokens[-1:]]))
    if len(wanted) < 2 * n:
        raise ValueError(f"expected {2 * n} sentences of at least {LENGTH // 2} tokens, got {len(wanted)}.")
    rows = torch.stack(wanted[: 2 * n])
    return rows[:n], rows[n:], int(model.tokenizer.mask_token_id)


def mask_similarity(
    model: Any, one: Int[Tensor, "pair pos"], other: Int[Tensor, "pair pos"], position: int, batch_size: int = 32
) -> Float64[np.ndarray, "depth pair"]:
    """Return the cosine of the residual streams at `position`, before the first layer and after each, of pairs of
    sequences with the same token there. Raises `ValueError` for other pairs, whose streams differ before any layer."""
    if one.shape != other.shape or not torch.equal(one[:, position], other[:, position]):
        raise ValueError(f"expected pairs of one length with the same token, the mask, at position {position}.")
    reader = HeadReader.of(model, "mask similarity")
    cosine = np.empty((reader.n_layers + 1, len(one)))
    for start in range(0, len(one), batch_size):
        rows = slice(start, start + batch_size)
        streams: list[dict[int, Tensor]] = [{}, {}]
        for side, tokens in zip(streams, (one[rows], other[rows]), strict=True):

            def keep(depth: int, stream: Tensor, side: dict[int, Tensor] = side) -> None:
                side[depth] = stream[:, position].detach().float().cpu().double()

            reader.listen(tokens, hook_names.resid_pre, keep)
            reader.listen(tokens, hook_names.resid_post, lambda layer, stream: keep(layer + 1, stream))
        for depth in range(len(cosine)):
            both = streams[0][depth], streams[1][depth]
            cosine[depth, rows] = torch.nn.functional.cosine_similarity(*both, dim=-1).numpy()
    return cosine


def similarities(text: Tensor, other: Tensor, mask_id: int, model: Any, seed: int) -> dict[str, np.ndarray]:
    """Return the mean cosine by depth for similar and for different contexts."""
    text, other = text.clone(), other.clone()
    text[:, POSITION] = other[:, POSITION] = mask_id
    near = text.clone()
    inner = range(POSITION + 1, text.shape[1] - 1)
    n_replaced = max(1, round(REPLACED * len(inner)))
    rng = np.random.default_rng(seed)
    for row in range(len(text)):
        places = torch.from_numpy(rng.choice(inner, n_replaced, replace=False))
        near[row, places] = other[row, places]
    return {
        "similar contexts": mask_similarity(model, text, near, POSITION).mean(1),
        "different contexts": mask_similarity(model, text, other, POSITION).mean(1),
    }


def findings_of(name: str, similar: np.ndarray, different: np.ndarray) -> Iterator[Finding]:
    """Yield findings of both `[seed, depth]`."""
    for kind, values in (("similar", similar), ("different", different)):
        yield Finding(claim=f"{name}: cosine after the last layer, {kind} contexts", expected="below 1",
                      bounds=(-1, 0.99), measured=tuple(values[:, -1]))  # fmt: skip
        yield Finding(claim=f"{name}: how much lower than after the first layer, {kind} contexts",
                      expected="falls layer by layer", bounds=(0.02, 2),
                      measured=tuple(values[:, 1] - values[:, -1]))  # fmt: skip
    yield Finding(claim=f"{name}: last cosine, similar − different contexts", expected="above 0",
                  bounds=(0.02, 2), measured=tuple(similar[:, -1] - different[:, -1]))  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = text_options(__doc__)
    parser.add_argument("--checkpoint", default=CHECKPOINT, metavar="NAME", help="a masked language model of ours")
    arguments = parser.parse_args(argv)
    clock, corpus = Clock(), open_corpus(arguments.corpus)
    n = 16 if arguments.quick else 200
    findings: list[Finding] = []
    plots, data = {}, {}
    rows: list[list[object]] = []
    for name in [arguments.checkpoint, *([arguments.bert] if arguments.bert else [])]:
        bert = name == arguments.bert
        model: Any = load_bert(name) if bert else aotlens.load(name, "cpu")
        runs = [similarities(*contexts(model, name, bert, corpus, n, seed), model=model, seed=seed) for seed in SEEDS]
        curves = {kind: np.stack([run[kind] for run in runs]) for kind in runs[0]}
        findings += findings_of(name, *curves.values())
        depths = np.arange(curves["similar contexts"].shape[1])
        plots[plot_name("mask-similarity", name)] = seed_curves(
            depths, curves, x_title="layers passed", y_title="cosine of [MASK] in two contexts"
        )
        data[name] = curves
        rows += [[f"{name}, {kind}", ", ".join(f"{v:.3f}" for v in values.mean(0))] for kind, values in curves.items()]
        clock.say(name)
    results = Results(
        name="mask_similarity",
        findings=findings,
        settings={"pairs": n, "tokens a text": LENGTH, "replaced in similar contexts": REPLACED},
        seeds=SEEDS,
        data=data,
        tables={"Cosines before the first layer and after each": (["model", "cosines"], rows)},
        plots=plots,
    )
    return publish_on_text(results, arguments, clock())


if __name__ == "__main__":
    sys.exit(main())
