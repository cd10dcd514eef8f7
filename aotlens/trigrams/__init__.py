"""Skip-trigrams: `[source] … [destination] → [out]`, read from a head's weights and held against text.

factors.py      what source, destination and out contribute; attention against a background
distance.py     what positions add at a distance
normaliser.py   what a destination scores the background's tokens
search.py       the best of all V³ triples, exactly
table.py        the rows as a value
find.py         `skip_trigrams`, `score_triples`

text.py         text as windows of a model's context
counting.py     how often source … destination occurs, and what follows
verdict.py      lift, its interval, the test and the rule
measuring.py    what the head does there
examples.py     a few occurrences to read
evidence.py     `evidence`: all of that, in one pass
"""

from __future__ import annotations

from aotlens.trigrams.distance import distance_scores
from aotlens.trigrams.evidence import Evidence, evidence
from aotlens.trigrams.examples import Example
from aotlens.trigrams.find import score_triples, skip_trigrams
from aotlens.trigrams.table import TrigramTable

__all__ = ["Evidence", "Example", "TrigramTable", "distance_scores", "evidence", "score_triples", "skip_trigrams"]
