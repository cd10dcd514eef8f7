"""Arrays and labels → plotly figures. Knows no model and imports neither torch nor TransformerLens.

labels.py       tokens as people read them
colours.py      scales and the shared look, light and dark
attention.py    one head's map
atlas.py        one score of every head against another
thumbnails.py   all heads in one small picture
all_heads.py    all heads in one large figure, for a paper
cells.py        texts in the cells of heat maps
images.py       maps of patches over their images, insertion and deletion, consistency
training.py     the training curve, the ledger of the loss, and what an analysis gave of each snapshot
film.py         a run as a figure that plays
curves.py       curves of several kinds over seeds
gallery.py      a few attention maps side by side
matrix.py       entries of a circuit
eigenvalues.py  a circuit's eigenvalues in the complex plane
composition.py  a head between those it reads and those that read it
nonlinearity.py a compiled network: error over the inputs, a head as a gate, masks
denoising.py    subspaces, SNR by layer, denoisers' training, the loss over α and β
distillation.py heads as feed-forward networks, models side by side: errors, and what replacing heads costs
results.py      `plot(result)`: the figure of a result
display.py      how plotly shows a figure, wherever that is: without its logo and its cloud
subspaces.py    tokens of noisy subspaces layer by layer: where they lie, their SNR, what attends to what
descent.py      an energy over the plane with a query on its way down it, and errors step by step
regression.py   errors of in-context regression by the number of examples
head_points.py  a number of every head with its interval
paths.py        what paths of each length add to a logit, and its flow from tokens through heads
page/           pieces of a page that stands on its own: arrays packed for the browser, all heads' maps with hover
layered.py      a trace: boxes in columns of layers, and what each is made of
"""

from __future__ import annotations

from aotlens.conventions import describe
from aotlens.plots.all_heads import all_heads_maps
from aotlens.plots.attention import attention_map
from aotlens.plots.colours import Theme
from aotlens.plots.composition import Edge, composition_graph
from aotlens.plots.denoising import (
    audit_curves,
    denoiser_curves,
    loss_landscape,
    rate_map,
    snr_curves,
    subspace_overlaps,
)
from aotlens.plots.eigenvalues import eigenvalue_plane
from aotlens.plots.head_points import head_points
from aotlens.plots.images import contribution_map, overlay_grid, picture
from aotlens.plots.labels import glyphs, is_whitespace
from aotlens.plots.layered import layered_graph
from aotlens.plots.matrix import matrix_map
from aotlens.plots.nonlinearity import error_lines, error_surfaces, gate, head_pattern, mask_maps
from aotlens.plots.paths import order_bars
from aotlens.plots.regression import layer_curves, regression_curves, support_points
from aotlens.plots.results import plot
from aotlens.plots.thumbnails import data_uri, sprite
from aotlens.plots.training import training_curve
