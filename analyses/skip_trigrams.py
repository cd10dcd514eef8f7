"""*structures* Table 1 for our own one-layer checkpoints: searched exhaustively, ranked, and tested on text.

    python -m analyses.skip_trigrams --corpus dir:PATH [--checkpoint NAME] [--max-tokens N] [--min-count N …]
                                     [--docs docs/skip_trigrams.md] [--quick]

PATH holds the novels that the checkpoint's card names; only the documents that its card says were kept from training
are read (all, where there are none of them). For every head: how many of its 100 best skip-trigrams the text confirms
(false discovery rate 5%); the same for 1,000 random triples of the same token frequencies; both again among tokens with
at least so many training counts; the rows on top and the best confirmed ones; the false triples that confirmed ones
force; and how far the direct path is from the text's bigrams. Prints Markdown; --docs writes it into its section of
that page.

Expected: more confirmed rows than among random triples, most of all among frequent tokens and for heads that attend to
more than one position. Some ten minutes on one core for 1.2 million tokens; `--quick` reads 50,000 and takes one head,
and few rows are common enough there to be judged.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import permutation_test

import aotlens
from analyses._claims import Claim, Finding, parser
from analyses._outcomes import of_run
from analyses._skip_trigram_page import OfHead, bug_lines, direct_path_lines, ensemble_check_on, row_lines, share_lines
from analyses._texts import documents_to_read
from aotlens.checkpoints.catalog import bundled_folder
from aotlens.data import Corpus, open_corpus
from aotlens.models import AttentionOnlyTransformer
from aotlens.trigrams import (
    Evidence,
    evidence,
    matched_random,
    read_ids,
    skip_trigram_bugs,
    skip_trigrams,
)

N_ROWS, N_RANDOM = 100, 1000
MIN_COUNTS = (5_000, 20_000)


def one_layer_checkpoints() -> list[str]:
    """Return the bundled language models with one layer that no MLP follows."""
    bundled = [info for info in aotlens.list_checkpoints() if info.path and info.path.parent == bundled_folder()]
    return [
        info.name
        for info in bundled
        if info.model.get("n_layers") == 1 and not info.model.get("d_mlp") and info.model.get("causal", True)
    ]


def of_heads(
    model: AttentionOnlyTransformer, heads: Sequence[int], ids: np.ndarray, min_counts: Sequence[int]
) -> Iterator[OfHead]:
    """Yield every head, among all tokens first, then among those with each of the counts."""
    for min_count in (0, *min_counts):
        for head in heads:
            table = skip_trigrams(model, (0, head), k=N_ROWS, min_count=min_count)
            checked = evidence(model, table, ids, max_tokens=None)
            random = matched_random(model, table, N_RANDOM)
            yield OfHead(
                head=head,
                min_count=min_count,
                found=checked,
                random=evidence(model, random, ids, max_tokens=None, run_model=False),
                bugs=skip_trigram_bugs(model, checked, ids, max_tokens=None),
            )


def of_shares(name: str, min_count: int, results: Sequence[OfHead]) -> Finding:
    """Measure whether text bears out a model's skip-trigrams more often than random triples of the same frequencies.

    Rows of one head share tokens and directions, so heads are the units; and one p-value, not adjusted, asks the same
    of 100 rows and of 1,000, which a false discovery rate does not.
    """
    shares = [(_borne_out(each.found), _borne_out(each.random)) for each in results]
    differences = np.array([own - other for own, other in shares if math.isfinite(own + other)])
    p = permutation_test(
        (differences,), np.mean, permutation_type="samples", alternative="greater", n_resamples=np.inf
    ).pvalue  # fmt: skip
    among = f"tokens with at least {min_count:,} counts" if min_count else "all tokens"
    return Finding(
        claim=f"Table 1, {name}, among {among}: share of testable rows with p ≤ 5% on text, less that of random "
        f"triples, mean of {len(differences)} heads (p = {p:.2g})",
        expected="above 0 by an exact test of signs flipped at 5%, heads as units: skip-trigrams read off the weights "
        "are true of text (its six are chosen)",
        bounds=(1e-9 if p <= 0.05 else 1.0, 1),
        measured=(float(differences.mean()),),
    )


def _borne_out(checked: Evidence) -> float:
    """The share of testable rows with p ≤ 5%; NaN where none can be tested."""
    testable = ~checked.association.too_rare
    return float((checked.association.p_value[testable] <= 0.05).mean()) if testable.any() else math.nan


def of_share_that_holds(name: str, min_count: int, results: Sequence[OfHead]) -> Finding:
    """Measure how many of the best rows are skip-trigrams of the text, as the paper's examples are."""
    confirmed = sum(each.found.n_confirmed for each in results)
    return Finding(
        claim=f"Table 1, {name}, among tokens with at least {min_count:,} counts: share of the best rows that text "
        "confirms",
        expected="most, were the paper's six like the rest",
        bounds=(0.5, 1),
        measured=(confirmed / sum(len(each.found.verdict) for each in results),),
    )


def of_theorem_25(model: AttentionOnlyTransformer, ids: np.ndarray) -> Claim:
    """Check Theorem 25 on text."""
    check = ensemble_check_on(model, ids)
    return Claim(
        claim="Theorem 25 on held-out text: bigram term + every head's skip-trigrams − logits, largest",
        expected=0, measured=check.residual, tolerance=1e-4 * max(1, check.largest),
    )  # fmt: skip


def section(
    name: str, corpus: Corpus, *, max_tokens: int | None, heads: int | None, min_counts: Sequence[int]
) -> tuple[list[Finding], list[Claim], str]:
    """Return a checkpoint's findings, and its part of the page as Markdown."""
    model = aotlens.load(name, "cpu")
    documents = documents_to_read(model, corpus)
    ids = read_ids(model, corpus, documents=documents, max_tokens=max_tokens)
    how_many = "All" if max_tokens is None or len(ids) < max_tokens else "The first"
    results = []
    for result in of_heads(model, range(model.cfg.n_heads if heads is None else heads), ids, min_counts):
        results.append(result)
        print(f"{name}: head 0.{result.head}, tokens with at least {result.min_count:,} counts: done", file=sys.stderr)
    lines = [
        f"## {name}",
        "",
        f"{how_many} {len(ids):,} tokens of {len(documents)} documents that training did not see: "
        f"{', '.join(documents)}. {results[0].found.assumption}",
        "",
    ]
    for min_count in (0, *min_counts):
        lines += share_lines(model, min_count, [each for each in results if each.min_count == min_count])
    for min_count in (0, *min_counts[-1:]):
        lines += row_lines(model, min_count, [each.found for each in results if each.min_count == min_count])
    lines += bug_lines(max((0, *min_counts)), [each for each in results if each.min_count == max((0, *min_counts))])
    by_count = {count: [each for each in results if each.min_count == count] for count in (0, *min_counts)}
    findings = [of_shares(name, count, of_count) for count, of_count in by_count.items()]
    if min_counts:
        findings.append(of_share_that_holds(name, max(min_counts), by_count[max(min_counts)]))
    return findings, [of_theorem_25(model, ids)], "\n".join([*lines, *direct_path_lines(model, ids)])


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, docs=True)
    options.add_argument("--corpus", required=True, metavar="SPEC", help="dir:PATH, file:PATH, stdlib or hf:NAME")
    options.add_argument("--checkpoint", metavar="NAME", help="one of them; all bundled one-layer models if not given")
    options.add_argument("--max-tokens", type=int, metavar="N", help="how much text to read; all of it if not given")
    options.add_argument(
        "--min-count", type=int, nargs="*", default=MIN_COUNTS, metavar="N",
        help="also among tokens with at least so many training counts (default: 5000 20000)",
    )  # fmt: skip
    chosen = options.parse_args(argv)
    corpus = open_corpus(chosen.corpus)
    quick: dict[str, Any] = {"max_tokens": 50_000, "heads": 1} if chosen.quick else {}
    how_much = {"max_tokens": chosen.max_tokens, "heads": None, "min_counts": sorted(chosen.min_count), **quick}
    names = [chosen.checkpoint] if chosen.checkpoint else one_layer_checkpoints()
    content: list[Any] = [part for name in names for part in section(name, corpus, **how_much)]
    command = "python -m analyses skip_trigrams --corpus dir:PATH"
    outcome = of_run("skip_trigrams", command, "docs/skip_trigrams.md", content)
    print(outcome.text)
    outcome.publish(chosen.docs, store=chosen.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
