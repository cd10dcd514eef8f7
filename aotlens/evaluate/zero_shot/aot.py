"""The protocol whose published GPT-2 row equals Table 3's of *aot* (Attention-Only Transformers via Unrolled Subspace
Denoising), which follows nanoGPT's way of preparing and sampling data.

Losses, of LAMBADA too: the rows of a test split, each followed by an end token, become one sequence; the loss is the
mean over random windows of 1,024 tokens of it (of n_ctx where a model reads fewer), by seed; the mean over at least
three seeds has a standard error. A window begins anywhere, without a start token, so its first tokens have next to no
context, and the end tokens count among the predictions. LAMBADA's accuracy: greedy decoding of 10 tokens after the
context holds the word anywhere, in any case, also as a part of another word: an upper bound of the usual accuracy.
CBT, validation split: the answer is the candidate with which the whole passage, encoded at once, is likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aotlens.conventions import require_seed
from aotlens.data import Encoding
from aotlens.data.zero_shot import Cloze, Passage
from aotlens.evaluate.zero_shot.scorers import Ids, Scorer, encode, start_of
from aotlens.evaluate.zero_shot.usual import Hits, Outcome, SeedLosses, choose

CBT_SPLIT = "validation"
WINDOW = 1024
N_GENERATED = 10
FEWEST_SEEDS = 3


def random_windows(
    scorer: Scorer, name: str, measure: str, rows: Sequence[str], seeds: Sequence[int], n_windows: int
) -> list[Outcome]:
    """The mean loss on `n_windows` random windows of a test split's rows, for each seed.

    Raises `ValueError` for fewer than three seeds, and for a split of fewer than 3 tokens.
    """
    if len(set(seeds)) < FEWEST_SEEDS or n_windows < 1:
        raise ValueError(
            f"expected at least {FEWEST_SEEDS} different seeds and one window of each, got {list(seeds)} and "
            f"{n_windows}."
        )
    separator = Encoding.of(scorer.tokenizer).separator
    ids = np.array([index for row in rows for index in (*encode(scorer, row), separator)])
    width = min(WINDOW, scorer.n_ctx, len(ids) - 2)
    if width < 1:
        raise ValueError(f"{name}: expected at least 3 tokens with end tokens, got {len(ids)}.")
    means = []
    for seed in seeds:
        begins = np.random.default_rng(require_seed(seed)).integers(len(ids) - width, size=n_windows)
        windows = [ids[begin : begin + width + 1].tolist() for begin in begins]
        losses, _ = scorer.losses(windows, [1] * n_windows)
        means.append(np.concatenate(losses).mean())
    n_bytes = sum(len(row.encode()) for row in rows)
    return [SeedLosses(data=name, measure=measure, nats_per_token=np.array(means), tokens_per_byte=len(ids) / n_bytes)]


def lambada(scorer: Scorer, passages: Sequence[Passage], seeds: Sequence[int], n_windows: int) -> list[Outcome]:
    """The loss on random windows over all passages, and how often 10 greedy tokens hold the last word."""
    texts = [passage.context + passage.last_word for passage in passages]
    outcomes = random_windows(scorer, "LAMBADA", "loss of all tokens", texts, seeds, n_windows)
    start = start_of(scorer)
    room = scorer.n_ctx - N_GENERATED - len(start)
    if room < 1:
        raise ValueError(f"LAMBADA needs a context of more than {N_GENERATED + len(start)} tokens, got {scorer.n_ctx}.")
    prompts: list[Ids] = [[*start, *encode(scorer, passage.context)[-room:]] for passage in passages]
    written = scorer.continue_greedily(prompts, N_GENERATED)
    hits = [
        passage.last_word.strip().lower() in scorer.tokenizer.decode(ids).lower()
        for passage, ids in zip(passages, written, strict=True)
    ]
    measure = f"word within {N_GENERATED} generated tokens (upper bound)"
    return [*outcomes, Hits(data="LAMBADA", measure=measure, over="passages", hits=np.array(hits))]


def cbt(scorer: Scorer, name: str, questions: Sequence[Cloze]) -> list[Outcome]:
    """Measure how often the right one of ten candidates makes the whole passage likeliest.

    Passages longer than n_ctx lose their beginnings, each of a question equally many tokens.
    """
    start = start_of(scorer)
    rows: list[Ids] = []
    for question in questions:
        passages = [encode(scorer, f"{question.context} {option}{question.rest}") for option in question.options]
        cut = max(0, max(map(len, passages)) + len(start) - scorer.n_ctx - 1)
        rows += [[*start, *passage[cut:]] for passage in passages]
    losses, _ = scorer.losses(rows, [1] * len(rows))
    return [choose(name, questions, [row.sum() for row in losses])]
