"""QK and OV circuits: what each head looks for and what it writes, read from the weights alone.

circuit.py   the factored matrix that every function here takes and gives
sides.py     what a head can read: tokens, positions, biases, a prompt, another head's output
qk_ov.py     `qk_circuit`, `ov_circuit`
overview.py  a whole circuit in one small picture, and exact pieces of it
composition.py  what later heads read of what earlier ones write, beside random heads
"""

from aotlens.circuits.circuit import Circuit, Side, sum_of_circuits
from aotlens.circuits.composition import Composition, composition, virtual_head_norms
from aotlens.circuits.overview import Overview, block_overview, exact_block
from aotlens.circuits.qk_ov import ov_circuit, qk_circuit

__all__ = [
    "Circuit",
    "Composition",
    "Overview",
    "Side",
    "block_overview",
    "composition",
    "exact_block",
    "ov_circuit",
    "qk_circuit",
    "sum_of_circuits",
    "virtual_head_norms",
]
