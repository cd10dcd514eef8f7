"""*in-context-denoising*, Figures 3 to 8 and Propositions 3.2, 5 and 6: one layer of attention beside Bayes.

    python -m analyses in_context_denoising [--quick] [--html DIR] [--docs docs/denoising.md]

Reads the bundled trainings (six seeds, `python -m analyses.bundle_denoisers`) for Figures 3, 7 and 8, measures them on
other contexts and subspaces (Figure 4), scans α and β (Figure 6, 50 × 50 points), goes down the energies for several
steps (Figure 5), checks the propositions on random prompts, and asks which heads of trained models are nearly gradient
flows (several layers: denoising_depth). Prints each claim with the paper's figure, ours and a verdict;
--html writes the figures, --docs its section. Expected: what is exact holds, and the trained scales lie in the paper's
valley; where they differ the table says why. Ten minutes; `--quick` takes few prompts and layers.
"""

from __future__ import annotations

import sys

import torch

import aotlens
from analyses._claims import Claim, Finding, markdown, parser, report, spread, verdicts_table, write_figures
from analyses._convergence import check_proposition_6, fit_proposition_5, small_weight_error
from analyses._denoiser_figures import (
    ATTENTIONS,
    of_figure_3,
    of_figure_4,
    of_figure_5,
    of_figure_6,
    of_figure_8,
    scales_table,
)
from analyses._outcomes import publish_run
from aotlens.denoise import (
    TASKS,
    DenoiserTraining,
    LinearSubspaces,
    attend,
    bayes_loss,
    descend,
    head_asymmetry,
    optimal_linear_scale,
    stored,
)

#: The checkpoints whose heads are asked for the symmetry of their Jacobians, and a text for them.
CHECKPOINTS = ("novels-2l-mhsa", "novels-2l-gpt", "novels-6l-mhsa", "novels-12l-mssa")
TEXT = (
    "Mrs. Dashwood was surprised only for a moment at seeing him; for his coming to Barton was, in her opinion, of all "
    "things the most natural. Her joy and expressions of regard long outlived her wonder. He received the kindest "
    "welcome from her; and shyness, coldness, reserve could not stand against such a reception. They had begun to fail "
    "him before he entered the house, and they were quite overcome by the captivating manners of Mrs. Dashwood."
)


def trainings() -> dict[tuple[str, str], DenoiserTraining]:
    """Return every bundled training of prompts that were not transformed."""
    return {(task, attention): stored(task, attention) for task in TASKS for attention in ATTENTIONS}


def exact() -> list[Claim]:
    """Check what is a formula: closed forms of §8 of the design, and one step down an energy."""
    tasks = list(TASKS.values())
    scales = [optimal_linear_scale(task, 499) for task in tasks]
    claims = [
        Claim(f"optimal αβ of linear attention at L = 499, {name}", value, scale.beta, t)
        for name, scale, value, t in zip(TASKS, scales, (0.32743, 4.6621, 3.0443), (5e-6, 5e-5, 1e-4), strict=True)
    ]
    claims += [
        Claim("loss a prompt there, subspaces", 5.5223, scales[0].loss, 5e-5),
        Claim("Bayes loss, subspaces (Eq. 4)", 16 / 3, bayes_loss(tasks[0]).value, 1e-12),
    ]
    for energy, kind, formula in (("memory", "softmax", "α, Eq. 16"), ("hopfield", "linear", "αβ, Eq. A.15")):
        prompts = tasks[2].sample(20, 499)
        step = descend(tasks[2], prompts, energy=energy, alpha=0.95, beta=6.1).states[1]
        identity = torch.eye(16, dtype=torch.float64)
        layer = attend(prompts.context, prompts.query, 6.1 * identity, 0.95 * identity, kind)
        difference = float((step - layer).abs().max())
        claims.append(Claim(f"one step of size γ = {formula} is {kind} attention", 0, difference, 1e-6))
    return claims


def propositions(*, quick: bool) -> tuple[list[Claim], Finding, str]:
    """Check Propositions 3.2, 5 and 6 on random prompts."""
    prompts = LinearSubspaces().sample(20, 99)
    identity = torch.eye(16, dtype=torch.float64)
    errors = small_weight_error(prompts, identity, identity, [1e-3, 1e-4])
    lengths = (20, 100) if quick else (20, 100, 499, 2000)
    fitted = fit_proposition_5((2, 4, 8), lengths, n_prompts=200 if quick else 500)
    check = check_proposition_6((0.5, 1.0, 2.0), n_prompts=300 if quick else 1000)
    least = min(float(check.held_sum.min()), float(check.held_vector.min()))
    claims = [
        Claim(
            "Proposition 3.2: the error falls as ε (ratio at 10⁻³ and 10⁻⁴)",
            10,
            float(errors[0] / errors[1]),
            1,
            seed=0,
        ),
        Claim(
            "Proposition 6 at R‖x̃‖/σ² ≤ 2: least share of prompts within the bounds, of 0.95 promised",
            1,
            least,
            0.05,
            seed=0,
        ),
    ]
    of_sum = f"{float(check.slack_sum.min()):.2f} to {float(check.slack_sum.max()):.2f}"
    of_vector = f"{float(check.slack_vector.min()):.1f} to {float(check.slack_vector.max()):.1f}"
    text = (
        f"Proposition 5 names no constant. Fitted, δ = 0.05: C of about {float(fitted.constants.max()):.2g} serves "
        f"d = 2, 4, 8 and L = {', '.join(map(str, lengths))}; the least needed is about "
        f"{float(fitted.constants.min()):.2g}. The "
        f"bounds of Proposition 6 are {of_sum} (the sum) and {of_vector} (the vector) times the 95% quantile of the "
        "error."
    )
    constant = Finding(
        claim=f"Proposition 5: C that d = 2, 4, 8 and L = {', '.join(map(str, lengths))} need (δ = 0.05)",
        expected="one C > 0 for all (the proof names none)",
        bounds=(0, 2),
        measured=tuple(fitted.constants.flatten().tolist()),
    )
    return claims, constant, text


def flows(*, quick: bool) -> str:
    """Measure which heads of trained models are nearly gradient flows."""
    rows = []
    for name in CHECKPOINTS[: 1 if quick else None]:
        model = aotlens.load(name, device="cpu")
        tokens = model.to_tokens(TEXT)[:, : 40 if quick else 120]
        result = head_asymmetry(model, tokens, every=8, n_draws=5 if quick else 20)
        frame = result.to_frame().dropna()
        below = int((frame.asymmetry < frame.null_least).sum())
        nearest = ", ".join(f"{row.layer}.{row.head} {row.asymmetry:.2f}" for row in frame.head(3).itertuples())
        null = f"{frame.null.mean():.2f} ({frame.null_least.min():.2f} to {frame.null_largest.max():.2f})"
        rows.append((name, spread(frame.asymmetry), null, f"{below} of {len(frame)}", nearest))
    header = (
        "checkpoint",
        "‖J − Jᵀ‖ ÷ ‖J + Jᵀ‖, mean (range) of heads",
        "W_OV rotated",
        "below every rotation",
        "least",
    )
    return markdown(header, rows)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, html=True, docs=True)
    arguments = options.parse_args(argv)
    results = trainings()
    checked, constant, constants = propositions(quick=arguments.quick)
    claims = [*exact(), *checked]
    status = report(claims)
    print(f"\n{constants}", flush=True)
    of_contexts, contexts = of_figure_4(quick=arguments.quick)
    of_landscapes, figures = of_figure_6(results, quick=arguments.quick)
    verdicts = [
        *of_figure_3(results, quick=arguments.quick),
        *of_contexts,
        *of_figure_5(results, quick=arguments.quick),
        *of_landscapes,
        *of_figure_8(),
    ]
    tables = [scales_table(results), contexts, flows(quick=arguments.quick)]
    print("", verdicts_table(verdicts), *tables, sep="\n\n")
    if arguments.html is not None:
        figures |= {f"training_{task}_{kind}": aotlens.plot(training) for (task, kind), training in results.items()}
        write_figures(arguments.html, figures)
    publish_run(
        arguments, "in_context_denoising", "docs/denoising.md", [claims, [constant], constants, verdicts, *tables]
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
