"""*aot* §3, Figure 4 and Theorem 3.1: attention unrolled on noisy subspaces, and whether trained layers denoise theirs.

    python -m analyses subspace_denoising [--quick] [--html DIR] [--docs docs/denoising.md]

First the theorem: the SNR of thresholded and of plain softmax attention on a mixture of four subspaces (K = 4, p = 64,
N = 200, d = 256, η = 0.5, τ = 0.6; ten seeds) beside (1 + ητ)^l, for how many layers the rate is exact, and sizes at
which the SNR rises at δ = 0.2 and δ = 0.5 alike and at which it does not (Figure 4 gives none). Then trained models:
the stored audits of the bundled checkpoints (`aotlens audit` made them) on some 2,040 held-out tokens, in the subspaces
of U or of W_V, beside twenty rotations of the layers' writes and of the subspaces. Prints claims and tables; --html
writes the figures, --docs its section.

Expected: every claim about the theorem holds; the trained models do not denoise. Ten minutes; `--quick` takes two seeds
and few layers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import aotlens
from analyses._claims import Claim, Finding, Verdict, markdown, parser, report, spread, verdicts_table, write_figures
from analyses._outcomes import publish_run
from aotlens.denoise import DenoisingAudit, DenoisingRates, denoising_rates, stored_audit
from aotlens.heads import subspaces
from aotlens.plots import rate_map

NOISES = (0.01, 0.05, 0.1, 0.2, 0.5)
#: The number of layers for which the rate is exact at these noises, least and most over seeds, as the design found.
EXACT = {0.01: (10, 12), 0.05: (4, 6), 0.1: (2, 3), 0.2: (0, 1), 0.5: (0, 0)}
CHECKPOINTS = (
    "novels-12l-mssa",
    "novels-6l-mhsa",
    "novels-2l-gpt",
    "novels-2l-mhsa",
    "novels-4l-masked",
    "novels-1l-mhsa",
    "code-2l-mhsa",
)
PHIS = {"thresholded softmax": ("thresholded_softmax", 0.6), "softmax": ("softmax", None)}
#: Sizes (rank of a subspace, tokens of a cluster, η) that show both ways; K = 4 and d = 4 · rank.
SIZES = ((8, 50, 0.1), (16, 50, 0.1), (64, 50, 0.5))


def unrolled(phi: str, threshold: float | None, seeds: Sequence[int], noises: Sequence[float]) -> DenoisingRates:
    """Return the SNR by layer at the sizes of the design: N = 200 in all, 14 layers."""
    return denoising_rates(noises, phi=phi, threshold=threshold, n_layers=14, seeds=seeds)


def of_the_theorem(rates: DenoisingRates) -> list[Claim]:
    """Check Theorem 3.1 where it is exact, and where it breaks."""
    first = (rates.ratios[0, :, :9] - rates.rate).abs().max()
    claims = [Claim("δ = 0.01: SNR(l + 1) ÷ SNR(l) in the first nine layers is 1 + ητ", 0, float(first), 1e-9)]
    for noise, exact in zip(rates.noises, rates.exact_layers, strict=True):
        least, most = EXACT[noise]
        for name, value in (("least", int(exact.min())), ("most", int(exact.max()))):
            claims.append(
                Claim(
                    f"δ = {noise:g}: layers with the exact rate, {name} of {len(rates.seeds)} seeds",
                    (least + most) / 2,
                    value,
                    (most - least) / 2 + 1,
                )
            )
    return claims


def layer_table(rates: dict[str, DenoisingRates]) -> str:
    """Write SNR ÷ its start after some layers, over seeds, beside the theorem."""
    rows = []
    for name, result in rates.items():
        for index, noise in enumerate(result.noises):
            for layer in (1, 2, 4, 8, 12):
                gains = result.gains[index, :, layer]
                finite = gains[gains.isfinite()]
                ours = spread(finite) if len(finite) else "not finite"
                theorem = f"{1.3**layer:.4g}" if name != "softmax" else ""
                rows.append((name, f"{noise:g}", layer, theorem, ours))
    header = ("φ", "δ", "layers", "(1 + ητ)^l", f"SNR ÷ start, mean (range) of {len(result.seeds)} seeds")
    return markdown(header, rows)


def of_figure_4(seeds: Sequence[int]) -> tuple[list[Finding], str]:
    """Find sizes at which the SNR rises at δ = 0.2 and 0.5 alike, and at which it does not."""
    rows, findings = [], []
    for name, (phi, threshold) in PHIS.items():
        for rank, n_tokens, step_size in SIZES:
            rates = denoising_rates(
                (0.2, 0.5), rank=rank, n_tokens=n_tokens, d_model=4 * rank, step_size=step_size, phi=phi,
                threshold=threshold, n_layers=4, seeds=seeds,
            )  # fmt: skip
            gains = rates.gains[:, :, -1]
            findings += [
                Finding(
                    claim=f"Figure 4, δ = {noise:g}, {name}, p = {rank}, N = {4 * n_tokens}, η = {step_size:g}: SNR ÷ "
                    "start after 4 layers",
                    expected="rises (sizes are not given)",
                    bounds=(1, np.inf),
                    measured=tuple(of_noise.tolist()),
                )
                for noise, of_noise in zip((0.2, 0.5), gains, strict=True)
            ]
            verdict = ["rises" if (row > 1).all() else "falls" if (row < 1).all() else "by seed" for row in gains]
            cells = [cell for pair in zip(map(spread, gains.tolist()), verdict, strict=True) for cell in pair]
            rows.append((name, rank, 4 * n_tokens, f"{step_size:g}", *cells))
    header = ("φ", "p", "N", "η", "δ = 0.2: SNR ÷ start after 4 layers", "", "δ = 0.5", "")
    return findings, markdown(header, rows)


def audit_table(results: Mapping[str, DenoisingAudit]) -> str:
    """Return one row a model, grouping and layer."""
    rows = []
    for name, result in results.items():
        for row in result.to_frame().itertuples():
            before = (f"{row.snr:.3f}", f"{row.rotated_snr:.3f}", f"{row.p_snr:.2g}")
            null = f"{row.null_ratio:.3f} ({row.null_least:.3f} to {row.null_largest:.3f})"
            after = (f"{row.ratio:.3f}", null, f"{row.p_above:.2g}", f"{row.p_below:.2g}")
            turned = f"{row.rotated_ratio:.3f} ({row.rotated_ratio_least:.3f} to {row.rotated_ratio_largest:.3f})"
            rows.append((name, row.grouping, f"{row.relative_depth:.2f}", *before, *after, turned))
    header = (
        "checkpoint", "tokens", "relative depth", "SNR before", "rotated subspaces", "p above", "after ÷ before",
        "writes rotated", "p above", "p below", "after ÷ before, subspaces rotated",
    )  # fmt: skip
    return markdown(header, rows)


def of_trained_models(results: Mapping[str, DenoisingAudit]) -> list[Verdict]:
    """Return what the paper reads a layer as, beside what trained layers do."""
    verdicts = []
    for name, result in results.items():
        rises, falls, pairs = int(result.rises.sum()), int(result.falls.sum()), result.ratios.numel()
        verdicts.append(
            Verdict(
                claim=f"{name}: each layer raises the SNR in its heads' subspaces ({result.matrix})",
                paper="all layers",
                ours=f"ratios {_range(result.ratios)}; beyond every rotated write it rises in {rises} and falls in "
                f"{falls} of {pairs} (grouping, layer), by chance {pairs / (1 + len(result.null_snr)):.1f} each",
                because="layers lower it, and most by more than their writes randomly rotated would"
                if falls * 2 > pairs
                else "most layers change it as their writes randomly rotated would",
                measured=(rises / pairs,),
                bounds=(1, 1),
            )
        )
        frame = result.pca_frame()
        more, above = int((frame.snr > frame.random_snr).sum()), int((frame.p_snr < 0.05).sum())
        pca_falls = int((frame.ratio < frame.null_least).sum())
        verdicts.append(
            Verdict(
                claim=f"{name}: tokens of a head lie in fewer directions than random groups (before the layer)",
                paper="tokens of a cluster lie in its subspace",
                ours=f"SNR {_range(frame.snr)}, above the random groups' mean in {more} and above every random group "
                f"in {above} of {len(frame)} (random groups: {_range(frame.random_snr)}); after ÷ before "
                f"{_range(frame.ratio)}, writes rotated {_range(frame.null_ratio)}, below every one in {pca_falls}",
                because="no such directions hold them: random groups have nearly as much",
                measured=(float(np.nanmean(frame.snr / frame.random_snr)),),
                bounds=(2, np.inf),
            )
        )
    for name in results:
        read = subspaces(aotlens.load(name, device="cpu"))
        of_random, of_weights = read.layer_ratios
        verdicts.append(
            Verdict(
                claim=f"{name}: subspaces of a layer are nearly orthogonal (Eq. 7)",
                paper="U_kᵀ U_j ≈ 0",
                ours=f"overlap {of_random:.2f} times that of random subspaces, {of_weights:.2f} times that of random "
                f"weights behind the same norms; {read.room}",
                because="heads of a layer share directions more than random subspaces do; the norms' gains alone "
                f"multiply the overlap by {of_random / of_weights:.2f}",
                measured=(of_random,),
                bounds=(0, 0.5),
            )
        )
    return verdicts


def _range(values: Any) -> str:
    """The least to the largest, of those that are numbers."""
    array = np.asarray(values, dtype=np.float64)
    return f"{np.nanmin(array):.2f} to {np.nanmax(array):.2f}"


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, html=True, docs=True)
    arguments = options.parse_args(argv)
    seeds = range(2 if arguments.quick else 10)
    rates = {name: unrolled(phi, tau, seeds, NOISES) for name, (phi, tau) in PHIS.items()}
    claims = of_the_theorem(rates["thresholded softmax"])
    status = report(claims)
    by_size, sizes = of_figure_4(seeds)
    tables = [layer_table(rates), sizes]
    figures = {name.replace(" ", "_"): aotlens.plot(result) for name, result in rates.items()}
    noises = (0.01, 0.1, 0.5) if arguments.quick else (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
    figures["where_the_rate_breaks"] = rate_map(unrolled("thresholded_softmax", 0.6, seeds[:2], noises))
    results = {name: stored_audit(name).audit for name in CHECKPOINTS}
    verdicts, audits = of_trained_models(results), audit_table(results)
    figures |= {name: aotlens.plot(result) for name, result in results.items()}
    figures |= {f"{name}_pca": aotlens.plot(result, principal=True) for name, result in results.items()}
    print("", *tables, verdicts_table(verdicts), audits, sep="\n\n")
    write_figures(arguments.html, figures)
    publish_run(arguments, "subspace_denoising", "docs/denoising.md", [claims, by_size, *tables, verdicts, audits])
    return status


if __name__ == "__main__":
    sys.exit(main())
