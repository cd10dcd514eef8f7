"""*structures* §7: the pentagon network with the paper's numbers, and random projections against ε.

    python -m analyses.superposition [--quick] [--html FILE] [--docs docs/paths.md]

Prints each statement as claim, expected, measured, tolerance, and the table of projections, which --html plots and
--docs writes into its section of that page, with the claims.
The paper's e₁ + e₃ erases e₁; in fact it erases e₃ as well, and e₂ appears. Its proof of Theorem 27 names no
constants: C of m = C · log N / ε² is fitted here. Expected: every claim holds. About half a minute; `--quick` measures
fewer and smaller clouds.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float, Int

from analyses._claims import Claim, markdown, parser, report
from analyses._outcomes import publish_run
from analyses._superposition import (
    JohnsonLindenstrauss,
    feature_network,
    interference,
    johnson_lindenstrauss,
    measure_projection,
    pentagon,
    polygon,
    random_features,
    train_features,
)
from aotlens.plots.colours import INK, LINES, base_layout
from aotlens.plots.results import DISPLAY

SEED = 0
_TICKS = [digit * 10.0**power for power in range(-4, 6) for digit in (1, 2, 5)]


def example_26() -> list[Claim]:
    """Check Example 26: five features on a pentagon in the plane."""
    network = pentagon()
    single = torch.eye(5, dtype=torch.float64)
    others = network.before_output(single)[~torch.eye(5, dtype=torch.bool)]
    both = torch.tensor([1.0, 0, 1, 0, 0], dtype=torch.float64)
    out, before = network(both), network.before_output(both)
    cosine = math.cos(math.radians(72))

    def claim(text: str, expected: float, measured: float, tolerance: float = 1e-12) -> Claim:
        return Claim(text, expected, measured, tolerance)

    return [
        claim("x̂(e_k) = e_k for all k: largest error", 0, float((network(single) - single).abs().max())),
        claim("hidden neurons positive for all e_k", 1, float((network.hidden(single) > 0).all())),
        claim("largest interference, 1.5·cos 72° − 0.5", 1.5 * cosine - 0.5, float(others.max())),
        claim("… which the paper rounds to −0.04", -0.04, float(others.max()), 0.005),
        claim("e₁ + e₃: z₁ ≈ −0.21", -0.21, float(before[0]), 0.005),
        claim("e₁ + e₃: output 1 is erased", 0, float(out[0])),
        claim("e₁ + e₃: output 3 is erased too", 0, float(out[2])),
        claim("e₁ + e₃: output 2, not in the input, appears", 1.5 * 2 * cosine - 0.5, float(out[1])),
        claim("largest |cos| of the pentagon, cos 36°", math.cos(math.radians(36)), interference(polygon(5)).largest),
    ]


def almost_orthogonal(*, quick: bool) -> list[Claim]:
    """Check §7: N random directions in d dimensions are almost orthogonal, their cosines 1/√d."""
    n, d = (300, 100) if quick else (3000, 1000)
    measured = interference(random_features(n, d, SEED))
    return [
        Claim(
            f"§7: rms cosine of {n} random directions in {d} dimensions, 1/√d",
            d**-0.5,
            measured.rms,
            0.02 * d**-0.5,
            seed=SEED,
        )
    ]


def trained(*, quick: bool) -> list[Claim]:
    """Check §7: training, too, packs more sparse features into a space than it has dimensions, and gives each back."""
    n, d = (5, 2) if quick else (50, 20)
    features, bias = train_features(n, d, probability=0.02, steps=600 if quick else 3000, seed=SEED)
    measured = interference(features)
    n_features = int((measured.lengths > 0.5).sum())
    back = feature_network(torch.eye(n), features, bias).diagonal()
    return [
        Claim(
            f"§7: of {n} sparse features trained into {d} dimensions, more than {d} are represented",
            1,
            float(n_features > d),
            0,
            seed=SEED,
        ),
        Claim("… a feature alone comes back at (mean over features)", 1, float(back.mean()), 0.1, seed=SEED),
    ]


def theorem_27(result: JohnsonLindenstrauss, *, quick: bool) -> list[Claim]:
    """Check Theorem 27; and Corollary 28 for unit vectors, where it is a theorem about the ε that was measured."""
    frame = result.to_frame()
    small = frame[frame.distortion < 1]
    n, epsilon = (60, 0.35) if quick else (400, 0.25)
    m = result.dimensions_for(n, epsilon)
    dimension = result.projections[0].dimension
    fresh = johnson_lindenstrauss((n,), (m, m + 1), dimension=dimension, n_trials=6, seed=SEED + 10_000)
    return [
        Claim("Theorem 27: slope of log ε against log m", -0.5, result.exponent, 0.08, seed=SEED),
        Claim(
            f"Theorem 27: mean ε of {n} points that were not fitted, at m = C · log N / ε² for ε = {epsilon}",
            epsilon,
            float(fresh.to_frame().distortion.mean()),
            0.1 * epsilon,
            seed=SEED + 10_000,
        ),
        Claim(
            "check of the code: Corollary 28, |cos θ_f − cos θ| ≤ 4ε/(1 − ε), share of projections",
            1,
            float((small.angle_error <= small.angle_bound).mean()),
            0,
            seed=SEED,
        ),
        Claim(
            "check of the code: Corollary 28, |⟨f(x), f(y)⟩ − ⟨x, y⟩| ≤ 3ε, share of projections",
            1,
            float((frame.inner_error <= 3 * frame.distortion).mean()),
            0,
            seed=SEED,
        ),
    ]


def corollary_28(*, quick: bool) -> Claim:
    """Check Corollary 28: its proof says that points of other lengths follow "by normalizing"; they don't."""
    generator, n_seeds = torch.Generator().manual_seed(SEED), 500 if quick else 3000
    broken = 0
    for seed in range(n_seeds):
        x = torch.randn(2, 50, dtype=torch.float64, generator=generator)
        x = x / x.norm(dim=1, keepdim=True) * torch.tensor([[50.0], [1.0]])
        projection = measure_projection(x, 200, seed)
        broken += projection.angle_error > projection.angle_bound
    return Claim(
        "Corollary 28 for x 50 times as long as y, where it does not follow: share above 4ε/(1 − ε)",
        0.02,
        broken / n_seeds,
        0.015,
        seed=SEED,
    )


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, docs=True)
    options.add_argument("--html", type=Path, metavar="FILE", help="write the plots of projections here")
    arguments = options.parse_args(argv)
    if arguments.quick:
        lemma = johnson_lindenstrauss((30, 100), (64, 128, 256, 512), dimension=400, n_trials=6, seed=SEED)
    else:
        sizes = (128, 256, 512, 1024, 2048)
        lemma = johnson_lindenstrauss((50, 200, 800), sizes, dimension=2000, n_trials=6, seed=SEED)
    claims = [
        *example_26(),
        *almost_orthogonal(quick=arguments.quick),
        *trained(quick=arguments.quick),
        *theorem_27(lemma, quick=arguments.quick),
        corollary_28(quick=arguments.quick),
    ]
    status = report(claims)
    table = projections_table(lemma)
    print("\n" + table)
    publish_run(arguments, "superposition", "docs/paths.md", [claims, table])
    if arguments.html is not None:
        frame = lemma.to_frame()
        n, m, epsilon, angle = (frame[name].to_numpy() for name in ("n_points", "m", "distortion", "angle_error"))
        figures = [distortion_plot(n, m, epsilon, lemma.constant), angle_plot(n, epsilon, angle)]
        parts = [
            figure.to_html(full_html=False, include_plotlyjs=index == 0, default_height="480px", config=DISPLAY)
            for index, figure in enumerate(figures)
        ]
        arguments.html.write_text("<!doctype html><meta charset=utf-8>" + "".join(parts), encoding="utf-8")
        print(f"\n{arguments.html}: the plots")
    return status


def projections_table(result: JohnsonLindenstrauss) -> str:
    """Return the means over trials, as Markdown."""
    columns = ["n_points", "dimension", "m", "distortion", "rms_distortion", "angle_error", "angle_bound", "constant"]
    means = result.to_frame().groupby(["n_points", "m"], as_index=False)[columns].mean()
    rows = [[f"{value:.4g}" for value in row] for row in means[columns].itertuples(index=False)]
    title = f"Random ±1/√m projections, means over trials; m ≈ {result.constant:.2f} · log N / ε² (fitted):"
    return f"{title}\n\n{markdown(columns, rows)}"


def distortion_plot(
    n_points: Int[np.ndarray, " projection"],
    m: Int[np.ndarray, " projection"],
    distortion: Float[np.ndarray, " projection"],
    constant: float | int,
) -> go.Figure:
    """Draw ε against m on logarithmic axes, a colour for each size of cloud, and √(C · log N / m) with the fitted C."""
    figure = _clouds(n_points, m, distortion, "m = %{x}, ε = %{y:.3f}")
    line = np.unique(m)
    for colour, size in _colours(n_points):
        name = f"√(C · log {size} / m), C = {constant:.2f}"
        figure.add_trace(_line(line, np.sqrt(constant * np.log(size) / line), name, colour))
    figure.update_xaxes(title_text="m, dimensions after projection", tickvals=line, ticktext=[str(x) for x in line])
    figure.update_yaxes(title_text="ε, largest distortion of a squared distance", tickvals=_TICKS)
    return figure


def angle_plot(
    n_points: Int[np.ndarray, " projection"],
    distortion: Float[np.ndarray, " projection"],
    angle_error: Float[np.ndarray, " projection"],
) -> go.Figure:
    """Draw the largest error of a cosine against ε on logarithmic axes, and the bound 4ε/(1 − ε) where ε < 1."""
    figure = _clouds(n_points, distortion, angle_error, "ε = %{x:.3f}, error %{y:.3f}")
    epsilon = np.geomspace(distortion.min(), min(0.9, distortion.max()), 50)
    figure.add_trace(_line(epsilon, 4 * epsilon / (1 - epsilon), "4ε/(1 − ε)", INK["light"]))
    figure.update_xaxes(title_text="ε, largest distortion of a squared distance", tickvals=_TICKS)
    figure.update_yaxes(title_text="largest error of a cosine, |cos θ_f − cos θ|", tickvals=_TICKS)
    return figure


def _clouds(n_points: np.ndarray, x: np.ndarray, y: np.ndarray, hover: str) -> go.Figure:
    figure = go.Figure(layout=base_layout("light"))
    for colour, size in _colours(n_points):
        here = n_points == size
        figure.add_trace(
            go.Scatter(
                x=x[here],
                y=y[here],
                mode="markers",
                name=f"{size} points",
                marker={"color": colour},
                hovertemplate=hover,
            )
        )
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return figure


def _colours(n_points: np.ndarray) -> list[tuple[str, int]]:
    sizes = np.unique(n_points).tolist()
    return [(LINES["light"][index % len(LINES["light"])], size) for index, size in enumerate(sizes)]


def _line(x: np.ndarray, y: np.ndarray, name: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines", name=name, line={"color": colour, "dash": "dot", "width": 1.2}, hoverinfo="skip"
    )


if __name__ == "__main__":
    sys.exit(main())
