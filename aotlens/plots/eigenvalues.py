"""The eigenvalues of a circuit in the complex plane."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Complex

from aotlens.plots.colours import INK, LINES, Theme, base_layout


def eigenvalue_plane(
    eigenvalues: Complex[np.ndarray, " inner"], *, unit: str = "", theme: Theme = "light"
) -> go.Figure:
    """Draw a point an eigenvalue; blue where the real part is positive, orange where it is negative.

    Both axes have the same scale, so that a phase is an angle. A positive real part means that what goes in along the
    eigenvector comes out with the same sign: copying, if rows and columns are the same tokens.
    """
    reach = 1.12 * float(np.abs(eigenvalues).max(initial=0.0)) or 1.0
    axis = {"range": [-reach, reach], "zeroline": True, "zerolinewidth": 1.5}
    figure = go.Figure(
        layout=base_layout(
            theme,
            xaxis={**axis, "title": {"text": "real part"}, "constrain": "domain"},
            yaxis={**axis, "title": {"text": "imaginary part"}, "scaleanchor": "x"},
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        )
    )
    for name, chosen, colour in (
        ("real part ≥ 0", eigenvalues.real >= 0, LINES[theme][0]),
        ("real part < 0", eigenvalues.real < 0, LINES[theme][1]),
    ):
        points = eigenvalues[chosen]
        figure.add_trace(
            go.Scatter(
                x=points.real.astype(np.float32),
                y=points.imag.astype(np.float32),
                customdata=np.abs(points).astype(np.float32),
                mode="markers",
                name=f"{name}: {int(chosen.sum())}",
                marker={"size": 9, "color": colour, "opacity": 0.75, "line": {"width": 1, "color": INK[theme]}},
                hovertemplate=f"real %{{x:.4g}}<br>imaginary %{{y:.4g}}<br>size %{{customdata:.4g}} {unit}"
                "<extra></extra>",
            )
        )
    return figure
