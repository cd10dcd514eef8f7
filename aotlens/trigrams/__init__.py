"""Skip-trigrams: `[source] … [destination] → [out]`, read from a head's weights and held against text.

factors.py      what source, destination and out contribute; attention against a background
distance.py     what positions add at a distance
normaliser.py   what a destination scores the background's tokens
search.py       the best of all V³ triples, exactly
table.py        the rows as a value
find.py         `skip_trigrams`, `score_triples`
"""

from __future__ import annotations

from aotlens.trigrams.distance import distance_scores
from aotlens.trigrams.find import score_triples, skip_trigrams
from aotlens.trigrams.table import TrigramTable

__all__ = ["TrigramTable", "distance_scores", "score_triples", "skip_trigrams"]
