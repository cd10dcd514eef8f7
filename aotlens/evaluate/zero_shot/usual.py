"""The usual protocol (Radford et al. 2019): every token of a test split once, with half a context before it.

Running text: windows at stride n_ctx/2, of which only the new half counts, so that at least n_ctx/2 tokens precede
every token that counts; of the first window all do. LAMBADA: the last word is right if each of its tokens is the
likeliest one. CBT, test split: the answer is the candidate that makes itself and the rest of the question likeliest.

Every window, passage and question begins with the tokenizer's start token, as training rows do, and where a context is
too long its beginning is cut behind that token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from aotlens.data.zero_shot import Cloze, Passage, RunningText
from aotlens.evaluate.zero_shot.scorers import Ids, Scorer, encode, fit_row, start_of

CBT_SPLIT = "test"


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """Losses of independent units of text."""

    data: str
    measure: str
    over: str
    """The kind of the units: passages, articles."""
    nats: Float[np.ndarray, " units"]
    """The losses in nats, summed over each unit."""
    counts: dict[str, Float[np.ndarray, " units"]]
    """The size of each unit in what the loss is stated per: `word`, `token`, `byte`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedLosses:
    """Mean losses on random windows, one of each seed."""

    data: str
    measure: str
    nats_per_token: Float[np.ndarray, " seeds"]
    tokens_per_byte: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits:
    """Questions, answered rightly or not."""

    data: str
    measure: str
    over: str
    hits: Bool[np.ndarray, " questions"]


Outcome = Losses | SeedLosses | Hits


def strided_rows(ids: Ids, start: Ids, n_ctx: int) -> tuple[list[Ids], list[int]]:
    """Rows of up to n_ctx + 1 ids (the last is only predicted), and from where on each row's tokens count.

    Every id counts once; without a start token the first one, which nothing precedes, not at all.
    """
    width, stride = n_ctx + 1 - len(start), max(1, n_ctx // 2)
    rows, firsts = [[*start, *ids[:width]]], [1]
    for begin in range(width, len(ids), stride):
        end = min(begin + stride, len(ids))
        row = [*start, *ids[max(0, end - width) : end]]
        rows.append(row)
        firsts.append(len(row) - (end - begin))
    return rows, firsts


def running_text(scorer: Scorer, text: RunningText) -> list[Outcome]:
    """The loss of a test split, by article: in windows over the joined articles, as perplexities are published, and of
    each article from its own start, which no other article precedes."""
    documents = [encode(scorer, "".join(rows)) for rows in text.documents]
    joined = [index for document in documents for index in document]
    ends = np.cumsum([len(document) for document in documents])[:-1]
    counts = {
        "token": np.array([len(document) for document in documents], dtype=float),
        "byte": np.array([len("".join(rows).encode()) for rows in text.documents], dtype=float),
    }
    by_measure = {
        "loss": np.split(_losses_of(scorer, [joined]), ends),
        "loss, articles alone": np.split(_losses_of(scorer, documents), ends),
    }
    return [
        Losses(data=text.name, measure=name, over="articles", nats=np.array([part.sum() for part in parts]),
               counts=counts)
        for name, parts in by_measure.items()
    ]  # fmt: skip


def _losses_of(scorer: Scorer, texts: Sequence[Ids]) -> np.ndarray:
    """The loss of every id of every text, each read from its own start; 0 for one that nothing precedes."""
    start = start_of(scorer)
    rows: list[Ids] = []
    firsts: list[int] = []
    begins: list[int] = []
    for ids in texts:
        several, starts = strided_rows(ids, start, scorer.n_ctx)
        begins.append(len(rows))
        rows, firsts = rows + several, firsts + starts
    losses: list[np.ndarray] = list(scorer.losses(rows, firsts)[0])
    for place in begins if not start else ():
        losses[place] = np.append(0.0, losses[place])
    return np.concatenate(losses)


def lambada(scorer: Scorer, passages: Sequence[Passage]) -> list[Outcome]:
    """The losses of the last word and of all tokens, and how often the last word is what greedy decoding writes."""
    start = start_of(scorer)
    words = [encode(scorer, passage.last_word) for passage in passages]
    rows: list[Ids] = []
    firsts: list[int] = []
    spans: list[tuple[int, int, int]] = []  # of a passage: its first row, the end of those of all tokens, its last row
    for passage, word in zip(passages, words, strict=True):
        context = encode(scorer, passage.context)
        several, begins = strided_rows([*context, *word], start, scorer.n_ctx)
        end = len(rows) + len(several)
        if len(several) > 1:  # the last word has a row of its own, with as much context as fits
            row, first = fit_row(start, context, word, scorer.n_ctx)
            several, begins = [*several, row], [*begins, first]
        spans.append((len(rows), end, len(rows) + len(several) - 1))
        rows += several
        firsts += begins
    losses, greedy = scorer.losses(rows, firsts)
    all_tokens = [np.concatenate(losses[first:end]) for first, end, _ in spans]
    last_words = [losses[last][-len(word) :] for (_, _, last), word in zip(spans, words, strict=True)]
    hits = [bool(greedy[last][-len(word) :].all()) for (_, _, last), word in zip(spans, words, strict=True)]
    word_counts = {
        "word": np.ones(len(words)),
        "token": np.array([len(word) for word in words], dtype=float),
        "byte": np.array([len(passage.last_word.encode()) for passage in passages], dtype=float),
    }
    counts = {
        "token": np.array([len(losses) for losses in all_tokens], dtype=float),
        "byte": np.array([len((passage.context + passage.last_word).encode()) for passage in passages], dtype=float),
    }
    return [
        Losses(
            data="LAMBADA",
            measure="loss of the last word",
            over="passages",
            nats=np.array([losses.sum() for losses in last_words]),
            counts=word_counts,
        ),
        Losses(
            data="LAMBADA",
            measure="loss of all tokens",
            over="passages",
            nats=np.array([losses.sum() for losses in all_tokens]),
            counts=counts,
        ),
        Hits(data="LAMBADA", measure="accuracy of the last word", over="passages", hits=np.array(hits)),
    ]


def cbt(scorer: Scorer, name: str, questions: Sequence[Cloze]) -> list[Outcome]:
    """Measure how often the right one of ten candidates makes itself and the rest of the question likeliest, in all."""
    start = start_of(scorer)
    rows: list[Ids] = []
    firsts: list[int] = []
    for question in questions:
        context = encode(scorer, question.context)
        candidates = [encode(scorer, f" {option}{question.rest}") for option in question.options]
        # One cut for all candidates: each is judged after the same words.
        context = context[max(0, len(context) + len(start) + max(map(len, candidates)) - scorer.n_ctx - 1) :]
        for candidate in candidates:
            row, first = fit_row(start, context, candidate, scorer.n_ctx)
            rows.append(row)
            firsts.append(first)
    losses, _ = scorer.losses(rows, firsts)
    return [choose(name, questions, [row.sum() for row in losses])]


def choose(name: str, questions: Sequence[Cloze], nats: Sequence[float]) -> Hits:
    """Find the questions that are answered rightly, where `nats` are the losses of all options of each in turn."""
    n_options = len(questions[0].options)
    answers = np.asarray(nats).reshape(len(questions), n_options).argmin(1)
    hits = answers == np.array([question.answer for question in questions])
    return Hits(data=name, measure="accuracy over 10 candidates", over="questions", hits=hits)
