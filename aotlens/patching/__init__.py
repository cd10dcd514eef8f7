"""Activations of one prompt put into the run of another: what restores an answer, and what it cannot do without.

    pairs = aotlens.data.PromptPairs.induction(model)
    aotlens.patching.patch(model, pairs, "z").to_frame()

sweep.py         `patch`: every layer and position, or every head, one at a time
attribution.py   the same from one gradient, with the largest patched
edges.py         `path_patch`: edges from a head, an MLP or the embedding into a head's side, an MLP or the logits
circuit.py       `find_circuit`: a small set of edges that does what the model does, and the check of it
circuit_search.py   sets of edges, each measured once, and the search among them
both.py          clean and corrupted prompts as the model runs them, and what the results share
metrics.py       two texts as a pair, with the model's own answers, and what is measured of it
"""

from aotlens.patching.attribution import Attribution, attribution
from aotlens.patching.circuit import EdgeCircuit, circuit_faithfulness, find_circuit
from aotlens.patching.edges import EdgeAttribution, PatchedEdges, attribute_edges, path_patch
from aotlens.patching.metrics import PairMetric, pair_of
from aotlens.patching.sweep import HEADS, STREAMS, Patched, patch
