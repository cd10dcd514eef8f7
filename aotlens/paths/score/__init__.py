"""The explanation of a head's attention: one attention score as a sum over pairs of paths, exactly.

layer.py       what stands before a layer: the layers below it, what its queries and keys read, and how much of the
               variance over keys the best groups explain
side.py        what a score is compared with; one side of a score as a read-out of the layers below
expansion.py   `expansion.score(head, query, key)`: all pairs, and everything that can be asked of them
pairs.py       the largest pairs and sums of pairs as results, in words; search.py finds them, with proof
trace.py       `expansion.trace(head, query, key)`: the cells behind a cell
traced.py      a trace as a result, as a layered graph, and as JSON, SVG and one HTML file
"""

from aotlens.paths.score.expansion import ScoreExpansion
from aotlens.paths.score.layer import ExplainedVariance, explained_variance
from aotlens.paths.score.pairs import PairSums, Piece, TopPairs
from aotlens.paths.score.traced import Trace, TraceEdge, TraceNode
