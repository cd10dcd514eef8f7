"""`plot(result)`: the figure of a result, by its type's name, so that figures know no analysis and cost no import."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import Head, HeadLike, as_head, head_name, minus
from aotlens.plots import circuits, images, patching
from aotlens.plots.atlas import atlas
from aotlens.plots.attention import QUANTITIES, attention_map
from aotlens.plots.circuits import distance_curve, reach_curve
from aotlens.plots.colours import BACKGROUND, INK, LINES, Theme, base_layout
from aotlens.plots.denoising import (
    audit_curves,
    denoiser_curves,
    found_scales,
    loss_landscape,
    run_matrices,
    snr_curves,
    subspace_overlaps,
)
from aotlens.plots.descent import descent_errors, plane_descent
from aotlens.plots.display import NotebookFigure
from aotlens.plots.distillation import compared_distillations, distillation, substitution
from aotlens.plots.gallery import pattern_gallery
from aotlens.plots.head_points import head_points
from aotlens.plots.influence import (
    check_points,
    influence_steps,
    property_points,
    removal_lines,
    retrained_lines,
    window_table,
)
from aotlens.plots.kinds import verdicts
from aotlens.plots.labels import plotly_text
from aotlens.plots.layered import LayeredLink, layered_graph
from aotlens.plots.lens import head_lens_map, jacobian_map, lens_map
from aotlens.plots.matrix import matrix_map
from aotlens.plots.nonlinearity import error_lines, error_surfaces, gate, head_pattern, mask_maps
from aotlens.plots.paths import flow, logit_orders, order_bars
from aotlens.plots.regression import (
    compared_regression,
    layer_curves,
    regression_curves,
    regression_maps,
    support_points,
)
from aotlens.plots.subspaces import memberships, token_points, unrolled
from aotlens.plots.sufficient import shapley_points, sufficient_points
from aotlens.plots.training import ledger_areas, training_lines

if TYPE_CHECKING:
    from aotlens.heads import (
        AttentionPatterns,
        ComparedMaps,
        EachHead,
        HeadMap,
        HeadMatching,
        HeadScores,
        MotifScores,
        PatternConsistency,
        RepeatedPatterns,
        Universality,
    )
    from aotlens.paths import PairSums, PathExpansion, TermImportance, Trace

#: The number of heads up to which their patterns are drawn side by side.
MOST_PATTERNS = 24


def plot(result: Any, *, theme: Theme = "light", **options: Any) -> go.Figure:
    """Draw the figure that the app shows of this result; `FIGURES` lists the types of result that have one.

    Options are those of the figure's own function below: `head` of attention patterns and of compositions, `z` of one
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
    known = ", ".join(sorted(name.rpartition(".")[2] for name in FIGURES))
    raise ValueError(f"plot: there is no figure of a {type(result).__name__}; there are figures of {known}.")


def attention(patterns: AttentionPatterns, *, head: HeadLike | None = None, theme: Theme = "light") -> go.Figure:
    """Draw one head's attention pattern, or those of all heads side by side."""
    names = [plain or f"{place}" for place, plain in enumerate(patterns.str_tokens)] or [
        str(token) for token in patterns.tokens
    ]
    if head is not None:
        layer, number = _head(head, patterns.pattern.shape[:2])
        visible = patterns.visible[min(number, len(patterns.visible) - 1)]
        return attention_map(patterns.pattern[layer, number], names, visible=visible, theme=theme)
    n_layers, n_heads = patterns.pattern.shape[:2]
    if n_layers * n_heads > MOST_PATTERNS:
        raise ValueError(f"plot: {n_layers * n_heads} heads are too many for one figure; give head='layer.head'.")
    heads = list(np.ndindex(n_layers, n_heads))
    titles = list(map(head_name, heads))
    maps = [patterns.pattern[place] for place in heads]
    return pattern_gallery(maps, titles, [names] * len(heads), columns=n_heads, theme=theme)


def head_map(result: HeadMap, *, theme: Theme = "light") -> go.Figure:
    """Draw one head's map, blank where it is NaN."""
    return attention_map(result.values, result.str_tokens, quantity=QUANTITIES[result.quantity], theme=theme)


def compared_maps(result: ComparedMaps, *, theme: Theme = "light") -> go.Figure:
    """Draw right − left, entry by entry, with zero in the middle of the scale."""
    values = result.difference
    top = float(np.abs(np.nan_to_num(values)).max()) or 1.0
    quantity = f"Δ {QUANTITIES[result.left.quantity]}"
    return attention_map(values, result.left.str_tokens, quantity=quantity, theme=theme, span=(-top, top))


def motifs(scores: MotifScores, *, motif: str | None = None, excess: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw one motif's score of every head, layers down and heads across; without a name induction, or else the first.
    With `excess`, attention to the keys of each motif beyond chance, a row per head."""
    if excess:
        rows = list(map(head_name, np.ndindex(*scores.excess.shape[1:])))
        columns = [name.replace("_", " ") for name in scores.motifs]
        values = scores.excess.reshape(len(columns), -1).T
        return matrix_map(
            values, rows, columns, quantity="attention − chance", row_title="head", column_title="", theme=theme
        )
    motif = motif or ("induction" if "induction" in scores.motifs else scores.motifs[0])
    return _by_head(np.asarray(scores[motif]), f"attention: {motif.replace('_', ' ')}", theme, shares=True)


def head_scores(result: HeadScores, *, score: str | None = None, theme: Theme = "light") -> go.Figure:
    """Draw one score of every head less its chance, layers down and heads across; without a name the first measured
    one."""
    name = score or next(iter(result.measured), result.scores[0])
    if name not in result.scores:
        raise ValueError(f"plot: score={name!r}: expected one of {', '.join(result.scores)}.")
    values = result.excess[result.scores.index(name)]
    return _by_head(np.asarray(values), f"{name.replace('_', ' ')} − chance", theme)


def pattern_consistency(
    result: PatternConsistency, *, without_first: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw every head's pattern consistency, layers down and heads across; with key 0 or without it."""
    values = result.without_first if without_first else result.values
    return _by_head(np.asarray(values), "pattern consistency" + (" without key 0" if without_first else ""), theme)


def repeated(result: RepeatedPatterns, *, theme: Theme = "light") -> go.Figure:
    """Draw the distance of every two heads' patterns, heads of one group side by side."""
    order = np.argsort(result.groups, kind="stable")
    several = len(result.models) > 1
    names = [
        (f"{result.models[place]} " if several else "") + f"{layer}.{head}"
        for place, (layer, head) in (result.heads[index] for index in order)
    ]
    values = np.asarray(result.distances)[np.ix_(order, order)]
    title = "head, by group"
    return matrix_map(
        values, names, names, quantity="Jensen–Shannon distance", row_title=title, column_title=title, theme=theme
    )


def matching(result: HeadMatching, *, by: str | None = None, theme: Theme = "light") -> go.Figure:
    """Draw the similarity of every two heads, by one measure (ov, qk, pattern) or the mean of all."""
    if by is not None and by not in result.measured:
        raise ValueError(f"plot: no measure {by!r}; there are {', '.join(result.measured)}.")
    values = result.similarity if by is None else getattr(result, by)
    rows, columns = (list(map(head_name, side)) for side in (result.left, result.right))
    quantity = "mean similarity" if by is None else f"{by} cosine"
    return matrix_map(
        np.asarray(values), rows, columns, quantity=quantity, row_title="left head", column_title="right head",
        theme=theme,
    )  # fmt: skip


def universality(
    result: Universality, *, by: str | None = None, blocks: bool = False, layers: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw the similarity of every two heads of all models by one evidence (that of the groups), groups side by side;
    with `blocks` model by model, and heads that are assigned to each other have a square; with `layers` instead how
    much the heads of each layer recur above permuted ones, a line per test."""
    if layers:
        return _by_layer(result, theme)
    evidence = result.grouped_by[0] if by is None else by
    keys = [(result.models[place], head) for place, head in zip(result.model, result.heads, strict=True)]
    grouped = [] if blocks else [keys.index(key) for group in result.groups for key in group.heads]
    order = grouped + [place for place in range(len(keys)) if place not in set(grouped)]
    names = [f"{keys[place][0]} {head_name(keys[place][1])}" for place in order]
    values = result.of(evidence)[np.ix_(order, order)]
    figure = matrix_map(values, names, names, quantity=evidence, row_title="head", column_title="head", theme=theme)
    if blocks:
        ends = np.concatenate([result.pairs, result.pairs[:, ::-1]]).T
        first, other = np.array(figure.data[0].x)[ends]
        line = {"width": 1.5, "color": INK[theme]}
        seen = np.where(np.abs(values[*ends]) > np.abs(values).max() / 2, BACKGROUND[theme], INK[theme])
        figure.add_scatter(
            x=first, y=other, mode="markers", name="assigned to each other", hoverinfo="skip", showlegend=False,
            marker={"symbol": "square-open", "size": 9, "color": seen, "line": {"width": 1.5}},
        )  # fmt: skip
        edges = [-0.5, len(names) - 0.5]
        figure.update_layout(xaxis={"range": edges}, yaxis={"range": edges[::-1], "autorange": None})
        for edge in np.flatnonzero(np.diff(result.model)) + 0.5:
            figure.add_hline(y=edge, line=line).add_vline(x=edge, line=line)
    return figure


def _by_layer(result: Universality, theme: Theme) -> go.Figure:
    """Each test's excess over permuted heads by layer, with intervals over models."""
    figure = go.Figure(layout=base_layout(theme))
    for place, (names, rows) in enumerate(result.layers_frame().groupby(["matched", "tested"], sort=False)):
        beside = (place - (len(result.tests) - 1) / 2) * 0.06  # so that intervals do not lie on each other
        figure.add_scatter(
            x=rows.layer + beside, y=rows.excess, mode="lines+markers", name=f"{names[0]}, tested by {names[1]}",
            line={"width": 1.6, "color": LINES[theme][place]}, marker={"size": 8},
            error_y={"type": "data", "symmetric": False, "array": (rows.high - rows.excess).fillna(0),
                     "arrayminus": (rows.excess - rows.low).fillna(0), "width": 0, "thickness": 1.2},
            customdata=rows[["layer", "low", "high"]].to_numpy(),
            hovertemplate="layer %{customdata[0]}: %{y:+.3f} (%{customdata[1]:+.3f} to %{customdata[2]:+.3f})",
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": INK[theme], "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text="layer", tickvals=list(range(result.by_layer.shape[1])))
    figure.update_yaxes(title_text="above permuted heads")
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True)
    return figure


def each_head(result: EachHead, *, theme: Theme = "light") -> go.Figure:
    """Draw the change of the model's loss without each head alone, with intervals; heads not left out are blank."""
    layers, heads = np.array(result.heads).T
    values = np.full((layers.max() + 1, heads.max() + 1, 3), np.nan)
    values[layers, heads] = np.column_stack([result.changes, result.intervals()])
    return head_points(values[..., 0], values[..., 1:], quantity=f"change in {result.unit}", theme=theme)


def orders(
    expansion: PathExpansion, *, target: int | tuple[int, int], position: int = -1, theme: Theme = "light"
) -> go.Figure:
    """Draw the contribution of all paths through k heads to the logit of `target`, or a difference of two, at
    `position`."""
    return logit_orders(expansion.logit_by_order(position, target), theme=theme)


def pair_sums(result: PairSums, *, theme: Theme = "light") -> go.Figure:
    """Draw all pairs of paths of a score in groups, query side down and key side across."""
    title = {"orders": "heads on the", "heads": "last head,", "sources": "source,"}[result.by]
    values = result.values.double().cpu().numpy()
    return matrix_map(
        values, result.names, result.names, quantity=result.unit, row_title=f"{title} query side",
        column_title=f"{title} key side", theme=theme,
    )  # fmt: skip


def importance(result: TermImportance, *, of: str = "orders", theme: Theme = "light") -> go.Figure:
    """Draw the decrease of the loss by paths of each length (`of="orders"`), or by each head, given all others
    (`of="heads"`).

    `of="heads alone"` shows what a head takes off the loss of a model without any other.
    """
    quantity = "nats a token off the loss"
    if of == "orders":
        return order_bars(result.by_order, quantity=quantity, first=1, theme=theme)
    values = {"heads": result.given_the_rest, "heads alone": result.alone}.get(of)
    if values is None:
        raise ValueError(f"plot: of={of!r}: expected orders, heads or heads alone.")
    if np.isnan(values).any():
        raise ValueError("plot: heads were not measured; term_importance(model, tokens, heads=True) does.")
    return _by_head(values, quantity, theme)


def traced(result: Trace, *, theme: Theme = "light") -> go.Figure:
    """Draw the cells behind one cell, in columns of layers, with what each is made of: blue is the key side, orange the
    query side, dashed is negative."""
    layout = result.layout()
    links = []
    for link in layout.links:
        ends = " → ".join(plotly_text(layout.boxes[place].title) for place in (link.start, link.end))
        text = f"{link.side} side: {ends}<br><b>{minus(link.nats, '+.3f')} nats</b>, {link.share:.0%} of the side"
        links.append(
            LayeredLink(
                link.start, link.end, link.share, text, int(link.side == "query"), "dash" if link.nats < 0 else "solid"
            )
        )
    return layered_graph(layout.boxes, links, theme=theme)


#: The figure of each type of result, by the type's qualified name.
FIGURES: dict[str, Callable[..., go.Figure]] = {
    "aotlens.data.pairs.PromptPairs": patching.pair_strips,
    "aotlens.circuits.around.HeadComposition": circuits.head_composition_figure,
    "aotlens.circuits.circuit.Circuit": circuits.circuit_figure,
    "aotlens.circuits.composition.Composition": circuits.composition_figure,
    "aotlens.circuits.family.DistanceProfile": distance_curve,
    "aotlens.circuits.overview.Overview": circuits.overview_figure,
    "aotlens.circuits.pieces.CircuitBlock": circuits.block_figure,
    "aotlens.circuits.pieces.CircuitMap": circuits.map_figure,
    "aotlens.circuits.reach.Reach": reach_curve,
    "aotlens.circuits.spectrum.Spectrum": circuits.spectrum_figure,
    "aotlens.denoise.audit.DenoisingAudit": audit_curves,
    "aotlens.denoise.in_plane.DescentErrors": descent_errors,
    "aotlens.denoise.in_plane.PlaneDescent": plane_descent,
    "aotlens.denoise.kept.FoundScales": found_scales,
    "aotlens.denoise.kept.RunMatrices": run_matrices,
    "aotlens.denoise.one_layer.Landscape": loss_landscape,
    "aotlens.dynamics.influence_check.InfluenceCheck": check_points,
    "aotlens.dynamics.influence_check.Removal": removal_lines,
    "aotlens.dynamics.influence_files.InfluentialWindows": window_table,
    "aotlens.dynamics.influence_properties.InfluenceProperties": property_points,
    "aotlens.dynamics.influence_result.Influence": influence_steps,
    "aotlens.dynamics.ledger.Ledger": ledger_areas,
    "aotlens.dynamics.over_training.OverTraining": training_lines,
    "aotlens.dynamics.retraining.Retrained": retrained_lines,
    "aotlens.denoise.regression.comparison.RegressionComparison": compared_regression,
    "aotlens.denoise.regression.layers.LayerReadings": layer_curves,
    "aotlens.denoise.regression.maps.PromptMaps": regression_maps,
    "aotlens.denoise.regression.support.SupportScores": support_points,
    "aotlens.denoise.stored.DenoiserTraining": denoiser_curves,
    "aotlens.denoise.theorem.DenoisingRates": snr_curves,
    "aotlens.denoise.token_pictures.Memberships": memberships,
    "aotlens.denoise.token_pictures.TokenPoints": token_points,
    "aotlens.denoise.training.TrainedLayers": denoiser_curves,
    "aotlens.denoise.unrolling.Unrolling": unrolled,
    "aotlens.distill.compared.ComparedDistillations": compared_distillations,
    "aotlens.distill.compile.curves.ErrorCurve": error_lines,
    "aotlens.distill.compile.curves.ErrorSurface": error_surfaces,
    "aotlens.distill.compile.described.CompiledMasks": mask_maps,
    "aotlens.distill.compile.one_head.HeadAtInput": head_pattern,
    "aotlens.distill.compile.one_head.HeadGate": gate,
    "aotlens.distill.heads.result.Distillation": distillation,
    "aotlens.distill.heads.selection.SubstitutionCosts": substitution,
    "aotlens.evaluate.regression.RegressionErrors": regression_curves,
    "aotlens.heads.atlas.Atlas": atlas,
    "aotlens.heads.attention_to.MotifScores": motifs,
    "aotlens.heads.head_scores.HeadScores": head_scores,
    "aotlens.heads.consistency.SemanticConsistency": images.consistency,
    "aotlens.heads.same_patterns.PatternConsistency": pattern_consistency,
    "aotlens.heads.same_patterns.RepeatedPatterns": repeated,
    "aotlens.heads.summary.FoundHeads": atlas,
    "aotlens.heads.each_head.EachHead": each_head,
    "aotlens.heads.image_run.ClassPredictions": images.class_predictions,
    "aotlens.heads.image_run.HeadOnImage": images.head_on_image,
    "aotlens.heads.image_run.LayerOnImages": images.layer_on_images,
    "aotlens.heads.matching.HeadMatching": matching,
    "aotlens.heads.universality.Universality": universality,
    "aotlens.heads.patterns.AttentionPatterns": attention,
    "aotlens.heads.runs.ComparedMaps": compared_maps,
    "aotlens.heads.runs.HeadMap": head_map,
    "aotlens.heads.subspaces.HeadSubspaces": subspace_overlaps,
    "aotlens.heads.shapley.ShapleyValues": shapley_points,
    "aotlens.heads.sufficient.SufficientHeads": sufficient_points,
    "aotlens.patching.attribution.Attribution": patching.attribution_points,
    "aotlens.patching.circuit.EdgeCircuit": patching.circuit_graph,
    "aotlens.patching.edges.EdgeAttribution": patching.edge_attribution_points,
    "aotlens.patching.edges.PatchedEdges": patching.edge_bars,
    "aotlens.patching.sweep.Patched": patching.patched_map,
    "aotlens.paths.expansion.PathExpansion": orders,
    "aotlens.paths.importance.TermImportance": importance,
    "aotlens.paths.jacobian.LogitJacobian": jacobian_map,
    "aotlens.paths.lens.HeadLens": head_lens_map,
    "aotlens.paths.lens.LogitLens": lens_map,
    "aotlens.paths.of_logit.LogitByOrder": logit_orders,
    "aotlens.paths.patch_curves.PatchCurves": images.insertion_and_deletion,
    "aotlens.paths.patches.ClassPatches": images.class_patches,
    "aotlens.paths.sankey.Sankey": flow,
    "aotlens.paths.score.pairs.PairSums": pair_sums,
    "aotlens.paths.score.trace.Trace": traced,
    "aotlens.trigrams.evidence.Evidence": verdicts,
    "aotlens.trigrams.rows.TrigramRows": verdicts,
}


def _head(head: HeadLike, shape: tuple[int, ...]) -> Head:
    """`(1, 4)` or `"1.4"`, of a result with this many layers and heads."""
    return as_head(head, SimpleNamespace(n_layers=shape[0], n_heads=shape[1]))


def _by_head(values: np.ndarray, quantity: str, theme: Theme, *, shares: bool = False) -> go.Figure:
    """`values[layer, head]`, layers down and heads across; `shares` are of 1."""
    layers, heads = ([str(number) for number in range(n)] for n in values.shape)
    return matrix_map(
        values, layers, heads, quantity=quantity, row_title="layer", column_title="head", shares=shares, theme=theme
    )
