"""*structures* Table 1 for our own one-layer checkpoints: searched exhaustively, ranked, and held against text.

    python -m analyses.skip_trigrams --corpus dir:PATH [--checkpoint NAME] [--max-tokens N] [--out FILE] [--quick]

PATH holds the novels that the checkpoint's card names; only the documents that its recipe held out of training are
read. For every head: how many of its 100 best skip-trigrams the text confirms (false discovery rate 5%); the same for
1,000 random triples of the same token frequencies; and its best confirmed rows, as Markdown (to --out, or printed).

Expected: more confirmed rows than among random triples for the heads that look further than the previous token. Some
ten minutes on two cores for a million tokens; `--quick` reads 50,000 and takes one head, and few rows are common enough
there to be judged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import aotlens
from analyses._claims import parser
from aotlens.checkpoints.catalog import bundled_folder
from aotlens.data import Corpus, open_corpus
from aotlens.models import AttentionOnlyTransformer
from aotlens.plots.labels import describe
from aotlens.train import list_recipes, load_recipe
from aotlens.trigrams import Evidence, evidence, matched_random, skip_trigrams

N_ROWS, N_RANDOM, N_SHOWN = 100, 1000, 5


def one_layer_checkpoints() -> list[str]:
    """The bundled language models with one layer that no MLP follows."""
    bundled = [info for info in aotlens.list_checkpoints() if info.path and info.path.parent == bundled_folder()]
    return [info.name for info in bundled if info.model.get("n_layers") == 1 and not info.model.get("d_mlp")]


def held_out(name: str, corpus: Corpus) -> tuple[str, ...]:
    """The documents that the checkpoint's recipe kept from training; all, for a checkpoint without a recipe."""
    if name not in list_recipes():
        return corpus.names()
    return corpus.split(load_recipe(name).corpus.validation).validation


def of_head(
    model: AttentionOnlyTransformer, head: int, corpus: Corpus, documents: Sequence[str], max_tokens: int | None
) -> tuple[Evidence, Evidence]:
    """The head's best rows, and random rows matched to them, both held against the text."""
    table = skip_trigrams(model, 0, head, k=N_ROWS)
    found = evidence(model, table, corpus, documents=documents, max_tokens=max_tokens)
    random = matched_random(model, table, N_RANDOM)
    return found, evidence(model, random, corpus, documents=documents, max_tokens=max_tokens, run_model=False)


def summary_row(head: int, found: Evidence, random: Evidence) -> str:
    own, others = found.summary(), random.summary()
    cells = [
        f"0.{head}",
        f"{found.share_confirmed:.0%}",
        str(own["not confirmed"]),
        str(own["too rare"]),
        f"{random.share_confirmed:.1%}",
        str(others["not confirmed"]),
        str(others["too rare"]),
    ]
    return f"| {' | '.join(cells)} |"


def table_rows(head: int, found: Evidence) -> Iterator[str]:
    """The best confirmed rows, or the best of all where none is."""
    frame = found.to_frame()
    confirmed = frame[frame.verdict == "confirmed"]
    for _, row in (confirmed if len(confirmed) else frame).head(N_SHOWN).iterrows():
        tokens = (f"`{describe(row[name])}`".replace("|", "\\|") for name in ("source", "destination", "out"))
        lift = "-" if row.lift != row.lift else f"{row.lift:.1f} ({row.lift_low:.1f} to {row.lift_high:.1f})"
        numbers = [f"{row.effect:.2f}", f"{row.followed} of {row.occurrences}", lift]
        numbers += ["-" if x != x else f"{x:.2f}" for x in (row.measured_attention, row.measured_effect)]
        numbers.append("-" if row.ablation_change != row.ablation_change else f"{row.ablation_change:+.2f}")
        yield f"| 0.{head} | {' | '.join(tokens)} | {' | '.join(numbers)} | {row.verdict} |"


def document(name: str, corpus: Corpus, *, max_tokens: int | None, heads: int | None) -> str:
    """Both tables of a checkpoint, as Markdown."""
    model = aotlens.load(name, "cpu")
    documents = held_out(name, corpus)
    summary: list[str] = []
    rows: list[str] = []
    n_tokens = 0
    for head in range(model.cfg.n_heads if heads is None else heads):
        found, random = of_head(model, head, corpus, documents, max_tokens)
        summary.append(summary_row(head, found, random))
        rows += table_rows(head, found)
        n_tokens = found.n_tokens
        print(f"{name}: head 0.{head} done", file=sys.stderr)
    return "\n".join(
        [
            f"## {name}",
            "",
            f"{n_tokens:,} tokens of {len(documents)} documents that training did not see.",
            "",
            f"| head | confirmed, of its top {N_ROWS} | not confirmed | too rare "
            f"| confirmed, of {N_RANDOM:,} random | not confirmed | too rare |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *summary,
            "",
            "| head | source | destination | out | effect | out follows | lift (95%) | attention | direct effect "
            "| ablation | verdict |",
            "| --- " * 11 + "|",
            *rows,
            "",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--corpus", required=True, metavar="SPEC", help="dir:PATH, file:PATH, stdlib or hf:NAME")
    options.add_argument("--checkpoint", metavar="NAME", help="one of them; all bundled one-layer models if not given")
    options.add_argument("--max-tokens", type=int, default=1_000_000, metavar="N", help="how much text to read")
    options.add_argument("--out", type=Path, metavar="FILE", help="write the Markdown here")
    chosen = options.parse_args(argv)
    corpus = open_corpus(chosen.corpus)
    max_tokens, heads = (50_000, 1) if chosen.quick else (chosen.max_tokens, None)
    names = [chosen.checkpoint] if chosen.checkpoint else one_layer_checkpoints()
    text = "\n".join(document(name, corpus, max_tokens=max_tokens, heads=heads) for name in names)
    if chosen.out is None:
        print(text)
    else:
        chosen.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
