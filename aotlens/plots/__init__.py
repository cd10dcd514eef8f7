"""Arrays and labels → plotly figures. Knows no model and imports neither torch nor TransformerLens.

colours.py       scales and the shared look, light and dark
primitives.py    labels, matrices, texts in cells, points of heads, lines over seeds, and the axes around them
graphs.py        boxes in columns of layers with links, a head between those it reads and those that read it
attention.py     maps of attention: one head's, several, all heads in one large figure or one small picture
heads.py         scores and similarities of heads, points with intervals, skip-trigrams by verdict
atlas.py         one score of every head against another
circuits.py      entries and blocks of circuits, eigenvalues, scores over distances
images.py        maps of patches over their images, insertion and deletion, consistency
training.py      the training curve, the ledger of the loss, measures of each snapshot, influential windows
film.py          a run as a figure that plays, and as a GIF or MP4
paths.py         parts of a logit by length, head and token, traces, lenses
patching.py      restored shares, estimates and exact changes, a circuit as a graph
denoising.py     subspaces, SNR by layer, denoisers' training, the loss over α and β, in-context regression
subspaces.py     tokens of noisy subspaces layer by layer, queries on an energy
distillation.py  heads as feed-forward networks, models side by side: errors, and the cost of replacing heads
nonlinearity.py  a compiled network: error over the inputs, a head as a gate, masks
results.py       `plot(result)`: the figure of a result, and how plotly shows it
"""

from __future__ import annotations

from aotlens.conventions import describe, glyphs
from aotlens.plots.attention import all_heads_maps, attention_map, data_uri, sprite
from aotlens.plots.circuits import eigenvalue_plane
from aotlens.plots.colours import Theme
from aotlens.plots.denoising import (
    audit_curves,
    denoiser_curves,
    layer_curves,
    loss_landscape,
    rate_map,
    regression_curves,
    snr_curves,
    subspace_overlaps,
    support_points,
)
from aotlens.plots.graphs import Edge, composition_graph, layered_graph
from aotlens.plots.images import contribution_map, overlay_grid, picture
from aotlens.plots.nonlinearity import error_lines, error_surfaces, gate, head_pattern, mask_maps
from aotlens.plots.paths import order_bars
from aotlens.plots.primitives import head_points, is_whitespace, matrix_map
from aotlens.plots.results import plot
from aotlens.plots.training import training_curve
