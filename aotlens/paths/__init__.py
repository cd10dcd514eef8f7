"""Path expansions: a model's logits as a sum over paths from the prompt's tokens through heads, for any depth.

kronecker.py      operators A ⊗ W, never formed
frozen.py         the linear maps of a model whose patterns and norm scales are frozen on a prompt, and its streams
path.py           a path's name, and a path in words
target.py         a logit, or a difference of two, as a direction; sum of paths − model
expansion.py      `expand(model, tokens)`: all paths of a prompt, and everything that can be asked of them (expanded.py)
groups.py         sums of paths by last head, through a head, by source, by virtual head
of_logit.py       one logit by number of heads, by head and by source, as tables; its flow back to tokens
enumeration.py    paths one at a time, as operators, and counted; every path, where they are few
search.py         the largest paths, where they are many; bounds.py says how large the others can be
score/            why a head attends where it does: a score as a sum over pairs of paths
attribution.py    direct logit attribution
lens.py           what the stream at each layer, and each head, would say by itself; jacobian.py: what a step in it does
intervention.py   the model run without a head or a path, compared with what the expansion says of it
effect.py         what one prediction loses without them; one edge between two heads taken out
wiring.py         all edges of a model, and runs of it with some of them from another prompt; runs.py: such runs
patches.py        what each patch of an image adds to a class; patch_curves.py: what the model does without patches
importance.py     the loss with short paths only; layers and heads alone and given the rest
"""

from aotlens.paths.attribution import direct_logit_attribution
from aotlens.paths.effect import EdgePatch, RemovalEffect, effect_without, patch_edge, patch_edges
from aotlens.paths.enumeration import AllPaths
from aotlens.paths.expansion import PathExpansion, expand
from aotlens.paths.groups import ByHead, BySource
from aotlens.paths.importance import TermImportance, term_importance
from aotlens.paths.intervention import Intervention, without_head, without_path
from aotlens.paths.jacobian import LogitJacobian, logit_jacobian
from aotlens.paths.kronecker import Kronecker, KroneckerSum, virtual_weight
from aotlens.paths.lens import HeadLens, LogitLens, head_lens, logit_lens
from aotlens.paths.of_logit import LogitByHead, LogitByOrder, LogitBySource, Node, Sankey
from aotlens.paths.patch_curves import PatchCurves, patch_curves
from aotlens.paths.patches import ClassPatches, LogitParts, PatchContributions, patch_contributions
from aotlens.paths.path import Path
from aotlens.paths.score import ExplainedVariance, PairSums, ScoreExpansion, TopPairs, Trace, explained_variance
from aotlens.paths.search import TopPaths
from aotlens.paths.target import Residual
from aotlens.paths.wiring import Edge, EdgeLike, Wires
