"""QK and OV circuits: what each head looks for and what it writes, read from the weights alone.

factored.py  a matrix kept as a product of two thin ones, which every function here takes
circuit.py   such a matrix with what its rows and columns are; its entries as tables
extremes.py  the largest and smallest entries, of the whole or of one line; the rows that it is sharpest about
overview.py  a whole circuit in one small picture, and maps of some rows and columns
sides.py     what a head can read: tokens, positions, biases, a prompt, another head's output
qk_ov.py     `qk_circuit`, `ov_circuit`
distance.py  QK circuits of models with rotary positions or ALiBi: at a distance, or averaged over all
    family.py               those of one head at many distances; over_distances.py: the largest entries over all
    reach.py                what a head's scores vary with: the distance, the tokens, both
composition.py  what later heads read of what earlier ones write, compared with two nulls; around.py: of one head
    head_pairs.py           the products of all pairs, by their factors, and what heads write on a text
    nulls.py                flipped directions of the stream that they share, which decides; random rotations
spectrum.py  eigenvalues, singular pairs; the copying score, and how often a head raises a token's own logit most
topk.py      the largest entries of a circuit or of each of its rows: exact, streamed, at any vocabulary
    per_row.py              the search row by row
    tiles.py                products of which only maxima are kept, and how threads share them
    factors.py              what rounding can do, and float64 values whose bits depend on nothing but the factors
rows.py      mean, log-mean-exp and spread of every row; the rank of its diagonal
"""

from aotlens.circuits.around import HeadComposition, head_composition
from aotlens.circuits.circuit import Circuit, CircuitTable, Lines, Side, sum_of_circuits
from aotlens.circuits.composition import Composition, all_compositions, composition
from aotlens.circuits.extremes import ExtremeEntries, StrongestRows, extreme_entries, strongest_rows
from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.family import CircuitFamily, DistanceProfile, EntriesAtDistances
from aotlens.circuits.overview import (
    CircuitBlock,
    CircuitMap,
    Overview,
    block_overview,
    circuit_block,
    circuit_map,
    exact_block,
)
from aotlens.circuits.qk_ov import ov_circuit, qk_circuit
from aotlens.circuits.reach import Reach, distance_profile, reach
from aotlens.circuits.rows import RowStatistics, above_row_level, diagonal_rank, row_statistics
from aotlens.circuits.spectrum import CopyingRate, CopyingScores, Ends, Spectrum, copying_rate, copying_scores, spectrum
from aotlens.circuits.topk import (
    EntrySearch,
    TopEntries,
    TopPerLine,
    search_entries,
    top_entries,
    top_per_column,
    top_per_row,
)
