"""Skip-trigrams: `[source] … [destination] → [out]`, read from a head's weights and checked against text.

factors.py      what source, destination and out contribute; attention against a background
distance.py     what positions add at a distance
normaliser.py   what a destination scores the background's tokens
row_maxima.py   the largest entry of every row of a product, with a rounding bound
search.py       the best of all V³ triples, exactly
table.py        the rows as a value
find.py         `skip_trigrams`, `score_triples`
folding.py      `fold_rows`: rows that differ in one token only, beneath the best of them
kinds.py        copying, punctuation, names, morphology: read from a row's tokens

text.py         text as windows of a model's context
strata.py       counts by stretches of a document
counting.py     how often source … destination occurs, and what follows
hypergeometric.py   the exact test's tail
verdict.py      lift within strata, its interval, the tests and the rule
measuring.py    what the head does there
examples.py     a few occurrences to read
evidence.py     `evidence`: all of that, in one pass
matched.py      random triples of the same token frequencies
skip_trigram_bug.py     the false triples that pairs of rows force
rows.py         a head's rows in groups, checked; all heads; checks that come with aotlens
filtering.py    `filter_rows`: rows by their tokens, kind and verdict
explained.py    `explain_row`: a row with its examples as text, and the prompts that open them

corpus_bigrams.py   which token follows which in text
direct_path.py  `bigrams`: what the last token alone predicts
zero_layer.py   `zero_layer`: that, against the text's bigrams
"""

from __future__ import annotations

from aotlens.trigrams.corpus_bigrams import CorpusBigrams, count_bigrams
from aotlens.trigrams.counting import Counts
from aotlens.trigrams.direct_path import Bigrams, bigrams, direct_path
from aotlens.trigrams.distance import distance_scores, distance_shares, own_token_heads
from aotlens.trigrams.evidence import Evidence, evidence
from aotlens.trigrams.examples import Example
from aotlens.trigrams.explained import ExplainedRow, explain_row
from aotlens.trigrams.filtering import FilteredRows, filter_rows
from aotlens.trigrams.find import frequent_tokens, score_triples, skip_trigrams, tokens_like
from aotlens.trigrams.folding import FoldedTrigrams, fold_rows
from aotlens.trigrams.kinds import count_kinds, kinds
from aotlens.trigrams.matched import matched_random
from aotlens.trigrams.normaliser import background_distribution, log_background
from aotlens.trigrams.rows import (
    RowsByHead,
    StoredRows,
    TrigramRow,
    TrigramRows,
    check_rows,
    find_rows,
    list_rows,
    rows_by_head,
    stored_check,
)
from aotlens.trigrams.skip_trigram_bug import SkipTrigramBugs, skip_trigram_bugs
from aotlens.trigrams.strata import Strata
from aotlens.trigrams.table import TrigramTable
from aotlens.trigrams.text import read_ids
from aotlens.trigrams.verdict import Association
from aotlens.trigrams.zero_layer import ZeroLayer, zero_layer
