"""`plot(result)`: the figure of a result, by its type's name, so that figures know no analysis and cost no import; and
how plotly shows it, in the app, in a report, in a notebook."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

from aotlens.files import replacing_file
from aotlens.plots import (
    atlas,
    attention,
    circuits,
    denoising,
    distillation,
    heads,
    images,
    nonlinearity,
    patching,
    paths,
    subspaces,
    training,
)
from aotlens.plots.colours import Theme
from aotlens.plots.primitives import head_map

#: The settings of plotly.js, which would show its logo, and a button that sends the figure to a cloud service.
DISPLAY: Final[dict[str, Any]] = {"displaylogo": False, "showSendToCloud": False, "responsive": True}

_SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)


def write_page(figure: go.Figure, path: Path, **options: Any) -> None:
    """Write a figure as one HTML file that needs no network: its Content-Security-Policy names no server, and no script
    but its own by their hashes. Raises `OSError`, with the path, for a full disk."""
    html = figure.to_html(include_plotlyjs=True, config=DISPLAY, **options)
    hashes = (base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in _SCRIPT.findall(html))
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes)
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    with replacing_file(path) as temporary:
        temporary.write_text(html.replace("<head>", f"<head>{meta}", 1), encoding="utf-8", newline="\n")


class NotebookFigure(go.Figure):
    """A figure that shows itself in a notebook as plotly's own do, by the renderer that plotly or the user has chosen,
    but with `DISPLAY`. In all else it is plotly's."""

    def show(self, *args: Any, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Show it as `plotly.graph_objects.Figure.show`; `config` overrides `DISPLAY`."""
        super().show(*args, config={**DISPLAY, **(config or {})}, **options)

    def _ipython_display_(self) -> None:
        import plotly.io

        if plotly.io.renderers.render_on_display and plotly.io.renderers.default:
            self.show()
        else:
            print(repr(self))

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None, validate: bool = True, **options: Any
    ) -> dict[str, Any]:
        return super()._repr_mimebundle_(include, exclude, validate, **{"config": DISPLAY, **options})


def plot(result: Any, *, theme: Theme = "light", **options: Any) -> go.Figure:
    """Draw the figure that the app shows of this result; `FIGURES` lists the types of result that have one. Any other
    result that has `head_values`, a quantity in words and its values `[layer, head]`, is drawn as a map of all heads.

    Options are those of the figure's own function: `head` of attention patterns and of compositions, `z` of one
    head's compositions, `motif` of motif scores, `score` of head scores, `x`, `y` and `head` of an atlas,
    `without_first` of pattern consistency, `by` of matched heads and of universality, `blocks` of universality, `width`
    of a distillation, `of` of term importance, `target` and `position` of a path expansion, `at` and `log` of a
    compiled network's error.

    It shows itself in Jupyter and VS Code by plotly's own display, which offers no cloud here (docs/notebooks.md).
    Raises `ValueError` for a result without a figure, and where a figure needs an option that was not given.
    """
    for kind in type(result).__mro__:
        figure = FIGURES.get(f"{kind.__module__}.{kind.__qualname__}")
        if figure is not None:
            return NotebookFigure(figure(result, theme=theme, **options))
    if hasattr(result, "head_values"):
        quantity, values = result.head_values
        return NotebookFigure(head_map(values, quantity, theme))
    known = ", ".join(sorted(name.rpartition(".")[2] for name in FIGURES))
    raise ValueError(f"plot: there is no figure of a {type(result).__name__}; there are figures of {known}.")


#: The figure of each type of result, by the type's qualified name.
FIGURES: dict[str, Callable[..., go.Figure]] = {
    "aotlens.circuits.around.HeadComposition": circuits.head_composition_figure,
    "aotlens.circuits.circuit.Circuit": circuits.circuit_figure,
    "aotlens.circuits.composition.Composition": circuits.composition_figure,
    "aotlens.circuits.family.DistanceProfile": circuits.distance_curve,
    "aotlens.circuits.overview.Overview": circuits.overview_figure,
    "aotlens.circuits.overview.CircuitBlock": circuits.block_figure,
    "aotlens.circuits.overview.CircuitMap": circuits.map_figure,
    "aotlens.circuits.reach.Reach": circuits.reach_curve,
    "aotlens.circuits.spectrum.Spectrum": circuits.spectrum_figure,
    "aotlens.data.pairs.PromptPairs": patching.pair_strips,
    "aotlens.denoise.audit.DenoisingAudit": denoising.audit_curves,
    "aotlens.denoise.descent.DescentErrors": subspaces.descent_errors,
    "aotlens.denoise.descent.PlaneDescent": subspaces.plane_descent,
    "aotlens.denoise.stored.FoundScales": denoising.found_scales,
    "aotlens.denoise.stored.RunMatrices": denoising.run_matrices,
    "aotlens.denoise.one_layer.Landscape": denoising.loss_landscape,
    "aotlens.denoise.regression.baselines.RegressionComparison": denoising.compared_regression,
    "aotlens.denoise.regression.layers.LayerReadings": denoising.layer_curves,
    "aotlens.denoise.regression.support.PromptMaps": denoising.regression_maps,
    "aotlens.denoise.regression.support.SupportScores": denoising.support_points,
    "aotlens.denoise.stored.DenoiserTraining": denoising.denoiser_curves,
    "aotlens.denoise.theorem.DenoisingRates": denoising.snr_curves,
    "aotlens.denoise.unrolling.Memberships": subspaces.memberships,
    "aotlens.denoise.unrolling.TokenPoints": subspaces.token_points,
    "aotlens.denoise.training.TrainedLayers": denoising.denoiser_curves,
    "aotlens.denoise.unrolling.Unrolling": subspaces.unrolled,
    "aotlens.distill.compared.ComparedDistillations": distillation.compared_distillations,
    "aotlens.distill.compile.curves.ErrorCurve": nonlinearity.error_lines,
    "aotlens.distill.compile.curves.ErrorSurface": nonlinearity.error_surfaces,
    "aotlens.distill.compile.described.CompiledMasks": nonlinearity.mask_maps,
    "aotlens.distill.compile.one_head.HeadAtInput": nonlinearity.head_pattern,
    "aotlens.distill.compile.one_head.HeadGate": nonlinearity.gate,
    "aotlens.distill.heads.result.Distillation": distillation.distillation,
    "aotlens.distill.heads.substitution.SubstitutionCosts": distillation.substitution,
    "aotlens.dynamics.influence_check.InfluenceCheck": training.check_points,
    "aotlens.dynamics.influence_check.Removal": training.removal_lines,
    "aotlens.dynamics.influence_files.InfluentialWindows": training.window_table,
    "aotlens.dynamics.influence_files.InfluenceProperties": training.property_points,
    "aotlens.dynamics.influence_result.Influence": training.influence_steps,
    "aotlens.dynamics.ledger.Ledger": training.ledger_areas,
    "aotlens.dynamics.over_training.OverTraining": training.training_lines,
    "aotlens.dynamics.retraining.Retrained": training.retrained_lines,
    "aotlens.evaluate.regression.RegressionErrors": denoising.regression_curves,
    "aotlens.heads.atlas.Atlas": atlas.atlas,
    "aotlens.heads.attention_to.MotifScores": heads.motifs,
    "aotlens.heads.image_maps.SemanticConsistency": images.consistency,
    "aotlens.heads.ablation.EachHead": heads.each_head,
    "aotlens.heads.head_scores.HeadScores": heads.head_scores,
    "aotlens.heads.image_run.ClassPredictions": images.class_predictions,
    "aotlens.heads.image_run.HeadOnImage": images.head_on_image,
    "aotlens.heads.image_run.LayerOnImages": images.layer_on_images,
    "aotlens.heads.matching.HeadMatching": heads.matching,
    "aotlens.heads.patterns.AttentionPatterns": attention.patterns_figure,
    "aotlens.heads.runs.ComparedMaps": attention.compared_maps,
    "aotlens.heads.runs.HeadMap": attention.head_map_figure,
    "aotlens.heads.same_patterns.PatternConsistency": heads.pattern_consistency,
    "aotlens.heads.same_patterns.RepeatedPatterns": heads.repeated,
    "aotlens.heads.shapley.ShapleyValues": heads.shapley_points,
    "aotlens.heads.subspaces.HeadSubspaces": denoising.subspace_overlaps,
    "aotlens.heads.sufficient.SufficientHeads": heads.sufficient_points,
    "aotlens.heads.summary.FoundHeads": atlas.atlas,
    "aotlens.heads.universality.Universality": heads.universality,
    "aotlens.patching.attribution.Attribution": patching.attribution_points,
    "aotlens.patching.circuit.EdgeCircuit": patching.circuit_graph,
    "aotlens.patching.edges.EdgeAttribution": patching.edge_attribution_points,
    "aotlens.patching.edges.PatchedEdges": patching.edge_bars,
    "aotlens.patching.sweep.Patched": patching.patched_map,
    "aotlens.paths.expansion.PathExpansion": paths.orders,
    "aotlens.paths.importance.TermImportance": paths.importance,
    "aotlens.paths.jacobian.LogitJacobian": paths.jacobian_map,
    "aotlens.paths.lens.HeadLens": paths.head_lens_map,
    "aotlens.paths.lens.LogitLens": paths.lens_map,
    "aotlens.paths.of_logit.LogitByOrder": paths.logit_orders,
    "aotlens.paths.patch_curves.PatchCurves": images.insertion_and_deletion,
    "aotlens.paths.patches.ClassPatches": images.class_patches,
    "aotlens.paths.of_logit.Sankey": paths.flow,
    "aotlens.paths.score.pairs.PairSums": paths.pair_sums,
    "aotlens.paths.score.traced.Trace": paths.traced,
    "aotlens.trigrams.evidence.Evidence": heads.verdicts,
    "aotlens.trigrams.rows.TrigramRows": heads.verdicts,
}
