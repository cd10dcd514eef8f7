"""Why a head attends where it does: one attention score as a sum over pairs of paths, exactly.

layer.py       what stands before a layer: the layers below it, and what its queries and keys read
contrast.py    what a score is compared with
side.py        one side of a score as a read-out of the layers below
expansion.py   `expansion.score(head, query, key)`: all pairs, and everything that can be asked of them
sums.py        a score as a table of products
"""

from aotlens.paths.score.expansion import ScoreExpansion
from aotlens.paths.score.sums import PairSums

__all__ = ["PairSums", "ScoreExpansion"]
