"""What the algorithms of the analyses say that they cost: operations and bytes by size.

A law counts the terms that can lead: multiply-adds as two operations, numbers as 4 bytes (8 in float64). Its constants
are those of the algorithm, not of the machine, so that its *exponents* can be held against fitted ones. Bytes are
beyond the model's weights.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks._scale.shapes import Shape

#: Windows of the atlas's text, those on which heads are left out, and windows of a distillation's.
ATLAS_WINDOWS, ABLATED_WINDOWS, DISTILLED_WINDOWS = 8, 2, 32
#: Hidden units of the distilled networks.
UNITS = 16
#: Some ten operations an attention entry for each of the atlas's motifs, constancy and examples.
ATLAS_PER_ENTRY = 200
#: Nodes that the search of an untrained model's largest paths expands; its note has the number of each point.
NODES = 700

Law = Callable[[Shape], float]


def pairs(s: Shape) -> float:
    """Pairs of an earlier and a later head."""
    return s.layers * (s.layers - 1) / 2 * s.heads**2


def rotations(s: Shape) -> float:
    """As many as `all_compositions` draws by default."""
    return max(2000, 20 * pairs(s))


def _projections(s: Shape) -> float:
    """All four products of a layer with its weights, for one position."""
    return 8 * s.width * s.heads * s.d_head


def _attention(s: Shape) -> float:
    """Scores and averages of one layer, for one window."""
    return 4 * s.tokens**2 * s.heads * s.d_head


def forward_operations(s: Shape) -> float:
    layers = s.layers * (s.tokens * _projections(s) + _attention(s))
    return layers + 2 * s.tokens * s.width * s.vocabulary


def forward_bytes(s: Shape) -> float:
    copies = 8 * s.heads * s.d_head * s.width  # the products lay a layer's matrices side by side
    return 4 * (s.tokens * (s.vocabulary + 4 * s.width + 4 * s.heads * s.d_head) + copies)


def circuits_operations(s: Shape) -> float:
    each = 2 * s.vocabulary**2 * s.d_head + 4 * s.vocabulary * s.width * s.d_head
    return s.layers * s.heads * each


def circuits_bytes(s: Shape) -> float:
    return 4 * s.vocabulary * (s.width + 4 * s.d_head + 40) + 8 * 2**20


def trigrams_operations(s: Shape) -> float:
    each = 4 * s.vocabulary**2 * s.d_head + 8 * s.vocabulary * s.width * s.d_head
    return s.layers * s.heads * each


def trigrams_bytes(s: Shape) -> float:
    return 4 * s.vocabulary * (s.width + 12 * s.d_head) + 8 * 2**20


def path_sums_operations(s: Shape) -> float:
    step = s.tokens * _projections(s) / 2 + _attention(s) / 2
    return forward_operations(s) + step * (s.layers * (s.layers + 1) / 2 + 3 * s.layers)


def path_bytes(s: Shape) -> float:
    """Patterns, the maps V and O, the read-out with its norm, and the streams."""
    weights = 4 * s.layers * s.heads * s.d_head * s.width
    return 4 * (2 * s.layers * s.heads * s.tokens**2 + weights + s.width * s.vocabulary + s.tokens * s.vocabulary)


def path_top_operations(s: Shape) -> float:
    every = s.layers * s.heads
    bounds = every**2 * s.d_head**2 * (s.width + s.tokens)
    nodes = NODES * every * s.d_head * s.tokens * (s.width + s.tokens)
    return forward_operations(s) + bounds + nodes


def path_top_bytes(s: Shape) -> float:
    every = s.layers * s.heads
    return path_bytes(s) + 8 * (every**2 + every * s.tokens * s.d_head * 2)


def composition_operations(s: Shape) -> float:
    read = s.layers * s.heads * s.width * s.d_head**2 * 12
    return 3 * (pairs(s) * (2 * s.width * s.d_head**2 + 4 * s.d_head**3) + read)


def composition_bytes(s: Shape) -> float:
    return 8 * (8 * s.layers * s.heads * s.width * s.d_head + 20 * (s.layers * s.heads) ** 2)


def null_operations(s: Shape) -> float:
    each = 3 * s.d_head**3 + 2 * s.layers * s.heads * s.d_head**2 + 6 * pairs(s) * s.d_head
    return composition_operations(s) + rotations(s) * each


def atlas_operations(s: Shape) -> float:
    every = s.layers * s.heads
    patterns = 2 * ATLAS_WINDOWS * (forward_operations(s) + ATLAS_PER_ENTRY * every * s.tokens**2)
    copying = every * (4 * s.vocabulary**2 * s.d_head + 12 * s.vocabulary * s.width * s.d_head)
    layer = s.tokens * _projections(s) + _attention(s)
    without = ABLATED_WINDOWS * every * (s.layers / 2 * layer + 2 * s.tokens * s.width * s.vocabulary)
    return patterns + copying + composition_operations(s) + without


def atlas_bytes(s: Shape) -> float:
    every = s.layers * s.heads
    kept = 3 * 8 * every * s.tokens**2
    batch = 4 * ATLAS_WINDOWS * s.tokens * (3 * s.heads * s.tokens + s.vocabulary)
    return kept + batch + composition_bytes(s) + 4 * s.width * s.vocabulary


def distillation_operations(s: Shape) -> float:
    n_tokens = DISTILLED_WINDOWS * s.tokens
    model = s.layers * (n_tokens * _projections(s) + DISTILLED_WINDOWS * _attention(s))
    training = 6 * (s.width + s.d_head) * UNITS * n_tokens * s.layers * s.heads
    moments = s.layers * (2 * n_tokens * s.width * (s.width + 2 * s.heads * s.d_head) + 10 * s.width**3)
    return 2 * model + training + moments


def distillation_bytes(s: Shape) -> float:
    every, n_tokens = s.layers * s.heads, DISTILLED_WINDOWS * s.tokens
    activations = 4 * n_tokens * (s.layers * s.width + every * s.d_head)
    moments = 8 * s.layers * s.width * (3 * s.width + 3 * s.heads * s.d_head)
    networks = 4 * 6 * every * UNITS * (s.width + s.d_head)
    return activations + moments + networks
