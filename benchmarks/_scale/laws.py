"""The costs that the algorithms of the analyses say that they have: operations and bytes by size.

A law is a sum of the terms that can lead: multiply-adds as two operations, numbers as 4 bytes (8 in float64). Its
constants are those of the algorithm, not of the machine, so that its *exponents* can be held against fitted ones; what
a term takes a machine is fitted in `rates.py`. Bytes are beyond the model's weights.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks._scale.shapes import Shape

#: Windows of the atlas's text, those on which heads are left out, and windows of a distillation's.
ATLAS_WINDOWS, ABLATED_WINDOWS, DISTILLED_WINDOWS = 8, 2, 32
#: Hidden units of the distilled networks.
UNITS = 16
#: Some ten operations an attention entry for each of the atlas's motifs, pattern consistency and examples.
ATLAS_PER_ENTRY = 200
#: Nodes that the search of the largest paths may expand; how many it does is a matter of weights, and noted.
NODES = 1000
#: The terms of a law at a shape; the law is their sum.
Terms = tuple[float, ...]
Law = Callable[[Shape], Terms]


def pairs(s: Shape) -> float:
    """Count the pairs of an earlier and a later head."""
    return s.layers * (s.layers - 1) / 2 * s.heads**2


def rotations(s: Shape) -> float:
    """Count rotations, as many as `run_composition_null` draws."""
    return max(2000, 20 * pairs(s))


def _projections(s: Shape) -> float:
    """All four products of a layer with its weights, for one position."""
    return 8 * s.width * s.heads * s.d_head


def _attention(s: Shape) -> float:
    """Count operations of scores and averages of one layer, for one window."""
    return 4 * s.tokens**2 * s.heads * s.d_head


def _logits(s: Shape) -> float:
    """Count operations of the logits of one prompt."""
    return 2 * s.tokens * s.width * s.vocabulary


def forward_operations(s: Shape) -> Terms:
    return s.layers * s.tokens * _projections(s), s.layers * _attention(s), _logits(s)


def forward_bytes(s: Shape) -> Terms:
    copies = 8 * s.heads * s.d_head * s.width  # the products lay a layer's matrices side by side
    streams = s.tokens * (4 * s.width + 4 * s.heads * s.d_head)
    return 4 * s.tokens * s.vocabulary, 4 * streams, 4 * copies


def circuits_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    return every * 2 * s.vocabulary**2 * s.d_head, every * 4 * s.vocabulary * s.width * s.d_head


def circuits_bytes(s: Shape) -> Terms:
    return 4 * s.vocabulary * s.width, 4 * s.vocabulary * (4 * s.d_head + 40)


def trigrams_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    return every * 4 * s.vocabulary**2 * s.d_head, every * 8 * s.vocabulary * s.width * s.d_head


def trigrams_bytes(s: Shape) -> Terms:
    return 4 * s.vocabulary * s.width, 4 * s.vocabulary * 12 * s.d_head


def path_sums_operations(s: Shape) -> Terms:
    """Return the law's terms: the layers' products serve the pass and every step of a sum."""
    steps = s.layers * (s.layers + 1) / 2 + 3 * s.layers
    projections, attention, logits = forward_operations(s)
    return projections + steps * s.tokens * _projections(s) / 2, attention + steps * _attention(s) / 2, logits


def path_bytes(s: Shape) -> Terms:
    """Count bytes of patterns, the maps V and O, the read-out with its norm, logits, and the heads' values."""
    every = s.layers * s.heads
    return (
        8 * every * s.tokens**2,
        16 * every * s.d_head * s.width,
        4 * s.width * s.vocabulary,
        4 * s.tokens * s.vocabulary,
        8 * every * s.tokens * s.d_head,
    )


def path_top_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    bounds = every**2 * s.d_head**2 * (s.width + s.tokens)
    nodes = NODES * every * s.d_head * s.tokens * (s.width + s.tokens)
    return (*forward_operations(s), bounds, nodes)


def path_top_bytes(s: Shape) -> Terms:
    every = s.layers * s.heads
    return (*path_bytes(s), 8 * every**2)


def composition_operations(s: Shape) -> Terms:
    read = s.layers * s.heads * s.width * s.d_head**2 * 36
    return 3 * pairs(s) * (2 * s.width * s.d_head**2 + 4 * s.d_head**3), read


def composition_bytes(s: Shape) -> Terms:
    products = 8 * s.heads**2 * s.d_head**2 * 4  # of all heads of two layers
    return 64 * s.layers * s.heads * s.width * s.d_head, 160 * (s.layers * s.heads) ** 2, products


def null_operations(s: Shape) -> Terms:
    n = rotations(s)
    drawn, turned = n * 3 * s.d_head**3, n * 2 * s.layers * s.heads * s.d_head**2
    return (*composition_operations(s), drawn, turned, n * 6 * pairs(s) * s.d_head)


def atlas_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    entries = 2 * ATLAS_WINDOWS * ATLAS_PER_ENTRY * every * s.tokens**2
    copying = every * 4 * s.vocabulary**2 * s.d_head, every * 12 * s.vocabulary * s.width * s.d_head
    layer = s.tokens * _projections(s) + _attention(s)
    passes = 2 * ATLAS_WINDOWS * sum(forward_operations(s))
    without = ABLATED_WINDOWS * every * s.layers / 2 * layer, ABLATED_WINDOWS * every * _logits(s)
    return (passes, entries, *copying, *without, *composition_operations(s))


def atlas_bytes(s: Shape) -> Terms:
    every = s.layers * s.heads
    batch = 4 * ATLAS_WINDOWS * s.tokens * 3 * s.heads * s.tokens
    logits = 4 * ATLAS_WINDOWS * s.tokens * s.vocabulary
    return (24 * every * s.tokens**2, batch, logits, *composition_bytes(s), 4 * s.width * s.vocabulary)


def distillation_operations(s: Shape) -> Terms:
    n_tokens = DISTILLED_WINDOWS * s.tokens
    model = 2 * s.layers * (n_tokens * _projections(s) + DISTILLED_WINDOWS * _attention(s))
    training = 6 * (s.width + s.d_head) * UNITS * n_tokens * s.layers * s.heads
    moments = 2 * s.layers * n_tokens * s.width * (s.width + 2 * s.heads * s.d_head)
    return model, training, moments, 10 * s.layers * s.width**3


def distillation_bytes(s: Shape) -> Terms:
    every, n_tokens = s.layers * s.heads, DISTILLED_WINDOWS * s.tokens
    activations = 4 * n_tokens * (s.layers * s.width + every * s.d_head)
    moments = 24 * s.layers * s.width * (s.width + s.heads * s.d_head)
    return activations, moments, 24 * every * UNITS * (s.width + s.d_head)
