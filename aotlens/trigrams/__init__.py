"""Skip-trigrams: `[source] … [destination] → [out]`, read from a head's weights and checked against text.

factors.py      what source, destination and out contribute; attention against a background
background.py   what a source competes with: the background's tokens, and positions at a distance
search.py       the best of all V³ triples, exactly
table.py        the rows as a value; their kinds (copying, punctuation, …); `fold_rows`: rows in groups
find.py         `skip_trigrams`, `score_triples`, `matched_random`: random triples of the same token frequencies

text.py         text as windows of a model's context, and as bigrams
counting.py     how often source … destination occurs, and what follows, by stretches of a document
verdict.py      lift within strata, its interval, the tests and the rule
measuring.py    what the head does there, and a few occurrences to read
evidence.py     `evidence`: all of that, in one pass
skip_trigram_bug.py     the false triples that pairs of rows force
rows.py         a head's rows in groups, checked; all heads; checks that come with aotlens
explained.py    `filter_rows`: rows by their tokens, kind and verdict; `explain_row`: a row with its examples as text

direct_path.py  `bigrams`: what the last token alone predicts; `zero_layer`: that, against the text's bigrams
"""

from __future__ import annotations

from aotlens.trigrams.background import (
    background_distribution,
    distance_scores,
    distance_shares,
    log_background,
    own_token_heads,
)
from aotlens.trigrams.counting import Counts, Strata
from aotlens.trigrams.direct_path import Bigrams, ZeroLayer, bigrams, direct_path, zero_layer
from aotlens.trigrams.evidence import Evidence, evidence
from aotlens.trigrams.explained import ExplainedRow, FilteredRows, explain_row, filter_rows
from aotlens.trigrams.find import frequent_tokens, matched_random, score_triples, skip_trigrams, tokens_like
from aotlens.trigrams.measuring import Example
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
from aotlens.trigrams.table import FoldedTrigrams, TrigramTable, count_kinds, fold_rows, kinds
from aotlens.trigrams.text import CorpusBigrams, count_bigrams, read_ids
from aotlens.trigrams.verdict import Association
