"""The explanation of a head's attention: one attention score as a sum over pairs of paths, exactly.

layer.py       what stands before a layer: the layers below it, and what its queries and keys read
contrast.py    what a score is compared with
side.py        one side of a score as a read-out of the layers below
expansion.py   `expansion.score(head, query, key)`: all pairs, and everything that can be asked of them
words.py       a score and its pairs in words
explained.py   how much of the variance over keys the best groups explain
search.py      the largest pairs of paths, with proof; pairs.py is what it returns
trace.py       `expansion.trace(head, query, key)`: the cells behind a cell; cells.py has one step of it
trace_files.py     a trace as JSON, SVG and one HTML file; trace_layout.py says where its boxes stand
"""

from aotlens.paths.score.expansion import ScoreExpansion
from aotlens.paths.score.explained import ExplainedVariance, explained_variance
from aotlens.paths.score.pairs import PairSums, TopPairs
from aotlens.paths.score.trace import Trace
from aotlens.paths.score.traced import TraceEdge, TraceNode
from aotlens.paths.score.words import Piece
