"""*puzzles*: what others published of their small models, and what is measured of the same files here.

    python -m analyses published                          where each file is to be had
    python -m analyses published --models DIR [--quick] [--store]

No weights are shipped: fetch the files into a folder. They are known by their SHA-256 under whatever name; each is
opened, tried and compared with what its authors say: a puzzle of Bau Lab (April 2026), models of *A Mechanistic
Interpretability Analysis of Grokking* (Nanda, 2022), and one that sorts. A minute; `--quick`, which tries fewer inputs,
some seconds.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import aotlens
from analyses._claims import Verdict, markdown, parser, spread
from analyses._outcomes import ROOT, of_run
from aotlens.conventions import IGNORED, head_name
from aotlens.data import make_task
from aotlens.evaluate import exhaustive
from aotlens.heads import motif_scores
from aotlens.models import AttentionOnlyTransformer

_MOST_BYTES = 2**27
_SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class PublishedModel:
    """A file of others: where it is to be had, how it opens, and what is compared."""

    name: str
    source: str
    """The public repository, and the path in it."""
    sha256: str
    measure: Callable[[AttentionOnlyTransformer, bool], list[Verdict] | str]
    """`measure(model, quick)`: the statements with what was measured; a sentence if no figure is published."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `aotlens.load`."""


def ratio(claim: str, published: float, ours: Sequence[float], bounds: tuple[float, float], because: str) -> Verdict:
    """Return published ÷ ours, which holds if it is within the bounds."""
    quotients = tuple(published / value for value in ours)
    text = f"{spread(ours) if len(ours) > 1 else f'{ours[0]:.4f}'}; published ÷ ours {np.mean(quotients):.4f}"
    return Verdict(claim=claim, paper=f"{published:.4f}", ours=text, because=because, measured=quotients, bounds=bounds)


def max_of_list(model: AttentionOnlyTransformer, quick: bool, *, margin: float) -> list[Verdict]:
    """The maximum of five digits: accuracy and the smallest margin among digits, over all lists (`quick`: of digits
    0 to 4)."""
    task = make_task("max-of-list", "0-4" if quick else "0-9", "10 x 11 x 11 x 11 x 11 x 12", outputs="0-9")
    result = exhaustive(model, task)
    claim = "smallest digit margin is no smaller, logits" if quick else "smallest digit margin, logits"
    bounds = (0 if quick else 0.9999, 1.0001)  # on fewer lists the margin is larger
    return [
        Verdict(
            claim=f"accuracy on all {result.n_inputs:,} lists", paper="100%", ours=f"{result.accuracy:.4%}",
            because="" if result.accuracy == 1 else "some lists are answered wrongly",
        ),
        ratio(claim, margin, [result.margin], bounds, "another margin"),
    ]  # fmt: skip


def blocks(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return tokens `[n, 85]`: 0, and three blocks of 28 random tokens, each with the same 16 at a place of its own;
    and as targets those of the 16 but the first, from the second block on."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 128, (n, 85), generator=generator)
    tokens[:, 0] = 0
    repeated, targets = torch.randint(1, 128, (n, 16), generator=generator), torch.full((n, 85), IGNORED)
    for block in range(3):
        columns = 1 + 28 * block + torch.randint(13, (n, 1), generator=generator) + torch.arange(16)
        tokens.scatter_(1, columns, repeated)
        if block:
            targets.scatter_(1, columns[:, :-1], repeated[:, 1:])
    return tokens, targets


@torch.no_grad()
def induction(model: AttentionOnlyTransformer, quick: bool, *, losses: Mapping[str, float]) -> list[Verdict]:
    """The head that attends by induction most, and the loss of repeated tokens."""
    best = [motif_scores(model, half_length=40, seed=seed).best("induction") for seed in _SEEDS]
    heads = {head_name(head_and_score[0]) for head_and_score in best if head_and_score is not None}
    scores = [head_and_score[1] for head_and_score in best if head_and_score is not None]
    measured = []
    for seed in _SEEDS:
        tokens, targets = blocks(100 if quick else 2000, seed)
        measured.append(float(model(tokens, "loss", targets=targets)))
    why = "the file does not say how its sequences were drawn; ours are what its positions suggest"
    bounds = (0.9, 1.1)
    return [
        Verdict(
            claim="the induction head", paper="1.2", ours=f"{', '.join(sorted(heads))}: {spread(scores)}",
            because="" if heads == {"1.2"} else "another head scores higher",
        ),
        *(ratio(f"{name}, nats per repeated token", loss, measured, bounds, why) for name, loss in losses.items()),
    ]  # fmt: skip


def sort_without_repetition(model: AttentionOnlyTransformer, quick: bool) -> str:
    """Lists of five of eight (`quick`: six) numbers, of which those without repetition count."""
    values = "0 9 18 27 36 45" if quick else "0 9 18 27 36 45 54 63"
    task = make_task("sort", values, "64 x x x x x 65 y y y y y")
    result = exhaustive(model, task, keep=task.n_inputs)
    distinct = np.array([len(set(row)) == 5 for row in result.inputs[:, 1:6].tolist()])
    right = float((result.margins[distinct] > 0).mean())
    lists = f"all {distinct.sum():,} lists of five different numbers of {len(values.split())}"
    return f"sorts {right:.4%} of {lists}; {result.accuracy:.1%} if numbers may repeat"


@torch.no_grad()
def addition(model: AttentionOnlyTransformer, quick: bool) -> str:
    """Random sums of two numbers of five digits, largest digit first, each digit read from the correct ones so far."""
    shares = []
    for seed in _SEEDS:
        terms = torch.randint(10**5, (200 if quick else 4000, 2), generator=torch.Generator().manual_seed(seed))
        first, second, total = (
            (number[:, None] // 10 ** torch.arange(width - 1, -1, -1)) % 10
            for number, width in ((terms[:, 0], 5), (terms[:, 1], 5), (terms.sum(1), 6))
        )
        plus, equals = (torch.full((len(terms), 1), symbol) for symbol in (10, 11))
        predicted = model(torch.cat([first, plus, second, equals, total[:, :-1]], 1))[:, -6:].argmax(-1)
        shares.append(float((predicted == total).all(1).double().mean()))
    return f"all six digits right in this share of random sums: {spread(shares)}"


def _max_of_list(seed: int, sha256: str, margin: float) -> PublishedModel:
    apart = {f"layers.{{layer}}.heads.{{head}}.W_{part}.weight": f"blocks.{{layer}}.attn.W_{part}.T" for part in "QKV"}
    rest = {
        "layers.{layer}.W_O.weight": "blocks.{layer}.attn.W_O.T", "tok_embed.weight": "embed.W_E",
        "pos_embed.weight": "pos_embed.W_pos", "unembed.weight": "unembed.W_U.T",
    }  # fmt: skip
    sizes = {"n_layers": 1, "d_model": 64, "n_heads": 4, "d_head": 16, "n_ctx": 12, "d_vocab": 14, "norm": None}
    return PublishedModel(
        name=f"max of list, seed {seed}", sha256=sha256, measure=partial(max_of_list, margin=margin),
        source="rakaar/april-2026-max-of-list-mech-interp: 04_2026/puzzle1a/checkpoints/"
        f"unit_unembed_seed{seed}/model.pt",
        options={"config": {**sizes, "bias": False}, "key_map": apart | rest},
    )  # fmt: skip


def _grokking(name: str, file: str, sha256: str, **more: Any) -> PublishedModel:
    return PublishedModel(name=name, source=f"neelnanda-io/Grokking: saved_runs/{file}", sha256=sha256, **more)


_INDUCTION = {
    "config": {"n_layers": 2, "d_model": 48, "n_heads": 4, "d_head": 12, "n_ctx": 85, "d_vocab": 128, "norm": None,
               "bias": False},
    "key_map": {f"attn_blocks.*.attn.W_{part}": f"blocks.*.attn.W_{part}.T" for part in "QKVO"}
    | {"attn_blocks.*.attn.mask": None},
}  # fmt: skip
_CAUSAL = {"positional_embedding_type": "standard", "attention_dir": "causal"}

MODELS: tuple[PublishedModel, ...] = (
    _max_of_list(42, "a0c77f9cb9be1b996cb9421f1b8fa6f35e13edd6bb6c601b1ad7fc44a0564e07", 12.8516),
    _max_of_list(43, "2a99c825b664dcc97689eb27904c2c8b11673df69f233273c0cef2166e3a892b", 0.3431),
    _max_of_list(44, "627b8cc85948eff5a527f60159684256e554b1503b0d8ba31e2670f38e22baf2", 6.4040),
    _grokking(
        "induction, infinite data", "induction_head_infinite.pth",
        "c0d5adf16110d7832d429876119052960e02defb9a0f42c008463c920ea9aad5", options=_INDUCTION,
        measure=partial(induction, losses={"final loss": 0.3262}),
    ),
    _grokking(
        "induction, 512 sequences", "induction_head_finite.pth",
        "5c0f04f2a40d497fb1ff4ca9492b5c298d6c0644c9125737e68b2fe3626fea27", options=_INDUCTION,
        measure=partial(induction, losses={"training loss": 0.2172, "test loss": 1.2306}),
    ),
    _grokking(
        "five-digit addition", "5_digit_addition_infinite.pth",
        "24a4ab4f970b33ac9e7e6141a9687268b192d6993f1c1ea6e185e5bad3be9426", measure=addition,
        options={"config": {**_CAUSAL, "normalization_type": None, "act_fn": "relu"}},
    ),
    PublishedModel(
        name="sort", source="MatthewBaggins/one-attention-head-is-all-you-need: models/sort_1.pkl",
        sha256="da615d6d7c5fa42569d3a068a51602b63a8889e3d1f334a044ad6e9b1d922486", measure=sort_without_repetition,
        options={"config": _CAUSAL},
    ),
)  # fmt: skip


def files_by_hash(folder: Path) -> dict[str, Path]:
    """Return the files of a folder and those below it, of at most 128 MB, by their SHA-256. Raises ValueError if it
    does not exist."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder with the files; without --models the analysis says which.")
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size <= _MOST_BYTES)
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in files}


def compare(models: Sequence[PublishedModel], folder: Path, quick: bool) -> tuple[list[Verdict], list[str], list[str]]:
    """Return the statements about the models in the folder, each naming its model; sentences about those without a
    published figure; and the names of those that are missing. A refused file is a statement that does not hold."""
    files = files_by_hash(folder)
    verdicts: list[Verdict] = []
    notes: list[str] = []
    for published in models:
        if published.sha256 not in files:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what UNCHECKED warns of is compared here
                model = aotlens.load(files[published.sha256], "cpu", **published.options)
        except ValueError as error:
            because = str(error).replace(f"{files[published.sha256]}: ", "")
            verdicts.append(Verdict(claim=f"{published.name}: opens", paper="–", ours="refused", because=because))
            continue
        measured = published.measure(model, quick)
        if isinstance(measured, str):
            notes.append(f"{published.name}: {measured}.")
        else:
            verdicts += [replace(row, claim=f"{published.name}: {row.claim}") for row in measured]
    return verdicts, notes, [published.name for published in models if published.sha256 not in files]


def sources(models: Sequence[PublishedModel]) -> str:
    """Return a table of where each file is to be had, with its SHA-256."""
    return markdown(("model", "on GitHub", "SHA-256"), [(m.name, m.source, f"`{m.sha256}`") for m in models])


def table(verdicts: Sequence[Verdict]) -> str:
    """Return published, ours and the verdict: not the claims of one of the papers, which an outcome counts."""
    rows = [(row.claim, row.paper, row.ours, row.verdict) for row in verdicts]
    return markdown(("statement", "published", "ours", "verdict"), rows)


def main(argv: list[str] | None = None, models: Sequence[PublishedModel] = MODELS) -> int:
    options = parser(__doc__)
    options.add_argument("--models", type=Path, metavar="DIR", help="the folder with the files, under any name")
    arguments = options.parse_args(argv)
    print(sources(models))
    if arguments.models is None:
        print("\nFetch what you want to compare into a folder, and give it: --models DIR")
        return 0
    verdicts, notes, missing = compare(models, arguments.models, arguments.quick)
    if missing:
        print(f"\nNot in {arguments.models}: {', '.join(missing)}.")
    content = [sources(models), *([table(verdicts)] if verdicts else []), *notes]
    outcome = of_run("published", "python -m analyses published --models DIR", "docs/published.md", content, longest=12)
    print("", *content[1:], sep="\n")
    if arguments.store:
        if missing:
            raise ValueError("--store keeps a whole run; some files are missing, as said above.")
        outcome.publish(ROOT / "docs" / "published.md", store=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
