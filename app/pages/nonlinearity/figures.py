"""What of a compiled network is drawn, and its tables' records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.plots import Theme, attention_map, error_lines, error_surfaces, gate, mask_maps
from app.pages.nonlinearity import captions
from app.pages.nonlinearity.address import ADDRESS
from app.pages.nonlinearity.service import Compiled, Look, target

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Kink lines that are drawn over a surface.
_KINK_LINES = 40


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A number of the model, and where it comes from."""

    name: str
    value: str
    why: str


def facts(made: Compiled) -> list[Fact]:
    """What the model is, and how far from the network."""
    compiled, cfg = made.compiled, made.compiled.model.cfg
    ffn, construction = compiled.ffn, compiled.construction
    wide = {
        "lean": "its widest head, the one that cancels the skip connection",
        "narrow": "every head has size 1",
        "paper": "every head has size 1",
    }[construction]
    stated = max(*ffn.widths, ffn.d_in) + 1
    return [
        Fact(
            name="heads that write something",
            value=f"{compiled.n_heads}",
            why=f"{' + '.join(map(str, compiled.heads_per_layer))} by layer; stated: {stated} in each"
            if ffn.depth > 1
            else f"stated: {stated}",
        ),
        Fact(name="attention layers", value=str(cfg.n_layers), why="L, one a hidden layer; no MLP, no norm, no biases"),
        Fact(
            name="d_model",
            value=str(cfg.d_model),
            why=f"hidden numbers, a constant 1, the auxiliary token's mark; stated: max{{W, D}} + 2 = {stated + 1}",
        ),
        Fact(name="d_head", value=str(cfg.d_head), why=wide),
        Fact(
            name="proven |model − FFN|",
            value=f"≤ {compiled.proven_error:.3g}",
            why=f"over the whole range, rounding included (asked: {captions.short(made.state.tolerance)})",
        ),
        Fact(name="largest found", value=f"{made.measured:.3g}", why="a measurement: kinks, corners, random points"),
    ]


def layer_rows(made: Compiled) -> list[dict[str, Any]]:
    """One record a layer: units, η, heads, and how many the theorem states and its proof needs."""
    from aotlens.distill.compile.roles import heads_needed

    frame = made.compiled.to_frame()
    frame["proof_heads"] = heads_needed(made.compiled.ffn, "paper")
    return frame.to_dict(orient="records")


def head_rows(made: Compiled) -> list[dict[str, Any]]:
    """One record a head that does something."""
    return [
        {
            "id": f"{role.layer}.{role.head}",
            "head": f"{role.layer}.{role.head}",
            "layer": role.layer,
            "place": role.head,
            "job": captions.job(role),
            "reads": captions.reads(made, role),
            "writes": captions.writes(made, role),
            "kink": captions.kink(made, role),
            "sees": "itself and auxiliary" if role.gated else "itself",
            "eta": role.eta,
        }
        for role in made.roles
    ]


def error_figure(made: Compiled, x: tuple[float, ...] | None, log: bool, theme: Theme) -> go.Figure:
    """Network, model and error over the range."""
    proven, curve = made.compiled.proven_error, made.curve
    if made.state.inputs == 1:
        figure = error_lines(
            curve,  # type: ignore[arg-type]
            proven,
            at=None if x is None else x[0],
            log=log,
            target=target(made.state, curve.x),
            theme=theme,
        )
    else:
        at = None if x is None else (x[0], x[1])
        figure = error_surfaces(curve, proven, kinks=_kink_lines(made), at=at, log=log, theme=theme)  # type: ignore[arg-type]
    figure.update_layout(meta={"name": f"{captions.NAMES[made.state.preset]}: FFN, attention model and error"})
    # Zoomed in, it stays so while η slides.
    figure.update_layout(uirevision=ADDRESS.format(replace(made.state, eta=None)) + str(log))
    return figure


def gate_figure(made: Compiled, look: Look, theme: Theme) -> go.Figure | None:
    """The head as a function of what it reads; None for one without a gate."""
    from aotlens.distill.compile.bounds import RELU_GAP
    from aotlens.distill.compile.curves import gate_curve

    role = look.role
    if role.eta is None or look.bend is None or look.results is None:
        return None
    here = float(look.read[0])
    reach = 1.05 * float(max(np.abs(look.bend).max(), abs(here), 1e-3))
    t, weight = gate_curve(role.eta, reach=reach)
    kept = (t >= min(look.bend.min(), here, -8 * role.eta)) & (t <= max(look.bend.max(), here, 8 * role.eta))
    t, weight = t[kept], weight[kept]
    order = np.argsort(look.bend)
    as_relu = role.job == "unit" and made.state.activation == "relu"
    figure = gate(
        t,
        weight,
        eta=role.eta,
        gap=RELU_GAP * role.eta if as_relu else None,
        measured=(look.bend[order], look.results[order]),
        at=here,
        theme=theme,
    )
    figure.update_layout(meta={"name": f"Head {role.layer}.{role.head}: η = {role.eta:.3g}"})
    return figure


def pattern_figure(look: Look, theme: Theme) -> go.Figure:
    """The chosen head's pattern on the sequence."""
    figure = attention_map(look.pattern, look.tokens, visible=look.visible, theme=theme)
    figure.update_traces(texttemplate="%{z:.3f}", textfont={"size": 11})
    figure.update_xaxes(tickangle=0, title_text="key")
    figure.update_yaxes(title_text="query", scaleanchor="x", constrain="domain")
    figure.update_layout(meta={"name": f"Head {look.role.layer}.{look.role.head} at {look.tokens[1]}"})
    return figure


def mask_figure(made: Compiled, theme: Theme) -> go.Figure:
    """Each kind of mask once, with how many heads have it."""
    mask = np.array(made.compiled.model.cfg.attn_mask)
    found: dict[bytes, tuple[np.ndarray, int]] = {}
    for role in made.roles:
        one = mask[0 if len(mask) == 1 else role.head]
        found[one.tobytes()] = (one, found.get(one.tobytes(), (one, 0))[1] + 1)
    names = {}
    for one, count in found.values():
        kind = "itself and the auxiliary token" if one[1, 0] else "itself only"
        names[f"{count} head{'s' if count > 1 else ''}:<br>{kind}"] = one
    figure = mask_maps(
        names, ("aux.", *(f"x⁽{i}⁾".translate(_SUPERSCRIPTS) for i in range(1, len(mask[0])))), theme=theme
    )
    figure.update_layout(meta={"name": "Attention mask"})
    return figure


_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _kink_lines(made: Compiled) -> list[tuple[list[float], list[float]]]:
    from aotlens.distill.compile.curves import kink_lines

    if made.state.activation == "silu":
        return []
    return [
        (line[:, 0].tolist(), line[:, 1].tolist())
        for line in kink_lines(made.compiled.ffn, made.state.bound)[:_KINK_LINES]
    ]
