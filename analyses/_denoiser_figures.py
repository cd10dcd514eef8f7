"""Figures 3 to 8 of *in-context-denoising*: the paper's numbers beside those of the bundled trainings."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go
import torch

from analyses._claims import Verdict, markdown, spread
from analyses._context_losses import losses_by_context
from aotlens.denoise import (
    TASKS,
    DenoiserTraining,
    LinearSubspaces,
    Task,
    TrainingSettings,
    descend,
    landscape,
    stored,
    train_layers,
)
from aotlens.plots import loss_landscape

ATTENTIONS = ("linear", "softmax")
#: The bundled trainings by task and attention.
Trainings = dict[tuple[str, str], DenoiserTraining]


def scales_table(results: Trainings) -> str:
    """Return every training's scales and losses, mean and range of six seeds; signs flip as a whole and are
    left out."""
    rows = []
    for (task, attention), training in results.items():
        layers, off = training.layers, training.layers.off_diagonal.mean(0)
        optimum = training.optimum
        rows.append(
            (
                task,
                attention,
                spread(layers.alpha.abs()),
                spread(layers.beta.abs()),
                spread(layers.alpha * layers.beta),
                f"{optimum.alpha * optimum.beta:.4g}",
                f"{float(off[0]):.2f}, {float(off[1]):.2f}",
                spread(layers.train_loss[:, -1]),
                spread(layers.test_loss[:, -1]),
                f"{training.baselines['Bayes']:.4g}",
                f"{training.bayes.value:.4g}",
                int(layers.stuck.sum()),
            )
        )
    header = (
        "task", "attention", "α", "β", "αβ", "best αβ", "off-diagonal QK, OV", "training loss", "loss on other prompts",
        "Bayes on these", "Bayes", "stuck",
    )  # fmt: skip
    return markdown(header, rows)


def of_figure_3(results: Trainings, *, quick: bool) -> list[Verdict]:
    """Return the paper's numbers beside ours."""
    linear, softmax = (results["subspaces", kind].layers for kind in ATTENTIONS)
    mixture = results["mixtures", "softmax"]
    least = int(mixture.layers.test_loss.mean(0).argmin())
    early = ""
    if not quick:
        settings = TrainingSettings(n_epochs=least, learning_rate=mixture.layers.settings.learning_rate)
        early = f"; {spread(train_layers(TASKS['mixtures'], 'softmax', settings).beta.abs())} when stopped there"
    final, lowest = (mixture.layers.test_loss[:, place].mean() for place in (-1, least))
    off = "the product is off by more than a twentieth"
    bayes, of_linear = results["subspaces", "linear"].baselines["Bayes"], results["mixtures", "linear"].layers
    return [
        Verdict(
            claim="linear, subspaces: αβ", paper="0.327", ours=spread(linear.alpha * linear.beta), because=off,
            measured=numbers(linear.alpha * linear.beta), bounds=near(0.327),
        ),
        Verdict(
            claim="softmax, subspaces: αβ", paper="1.607 · 0.194 = 0.312", ours=spread(softmax.alpha * softmax.beta),
            because=off, measured=numbers(softmax.alpha * softmax.beta), bounds=near(0.312),
        ),
        Verdict(
            claim="softmax, subspaces: α and β",
            paper="1.607 and 0.194",
            ours=f"{spread(softmax.alpha.abs())} and {spread(softmax.beta.abs())}",
            because="the loss hardly changes along the valley of their product, and how far training goes along it "
            "depends on the learning rate and the epochs, which the paper does not give",
            measured=numbers(softmax.alpha.abs()), bounds=near(1.607),
        ),
        Verdict(
            claim="softmax, mixtures: α", paper="≈ 1", ours=spread(mixture.layers.alpha.abs()),
            because="it is off by more than a tenth", measured=numbers(mixture.layers.alpha.abs()), bounds=(0.9, 1.1),
        ),
        Verdict(
            claim="softmax, mixtures: β",
            paper="5.127",
            ours=f"{spread(mixture.layers.beta.abs())} after {mixture.layers.settings.n_epochs} epochs{early}",
            because=f"on 800 prompts β goes on rising after the loss on other prompts is least (epoch {least}, "
            f"{float(lowest):.3f}; {float(final):.3f} at the end)",
            measured=numbers(mixture.layers.beta.abs()), bounds=near(5.127),
        ),
        Verdict(
            claim="linear, subspaces: loss nears Bayes, 5.333",
            paper="achieves this bound",
            ours=f"training {spread(linear.train_loss[:, -1])}, other prompts {spread(linear.test_loss[:, -1])}; "
            f"{bayes:.3f} by Bayes on these",
            because="the best scaled identity at L = 499 loses 5.5223, and 512 weights fit 800 prompts in part",
            measured=numbers(linear.test_loss[:, -1] / bayes), bounds=(0, 1.05),
        ),
        Verdict(
            claim="softmax is no worse than linear on mixtures (Figure 7)",
            paper="linear performs less well",
            ours=f"{spread(mixture.layers.test_loss[:, -1])} against "
            f"{spread(of_linear.test_loss[:, -1])}",
            because="it loses more",
            measured=numbers(mixture.layers.test_loss[:, -1] / of_linear.test_loss[:, -1]), bounds=(0, 1),
        ),
    ]  # fmt: skip


def numbers(values: Any) -> tuple[float, ...]:
    """Return a tensor's entries, one a seed."""
    return tuple(values.flatten().tolist())


def near(value: float) -> tuple[float, float]:
    """Return the bounds within a twentieth of what the paper prints."""
    return 0.95 * value, 1.05 * value


def of_figure_4(*, quick: bool) -> tuple[list[Verdict], str]:
    """Return the trained linear layer on contexts of other lengths and subspaces of other dimensions."""
    layers = stored("subspaces", "linear").layers
    tasks: dict[str, Task] = {f"d = {d}": LinearSubspaces(d=d) for d in (4, 8, 12)}
    lengths = (10, 100, 499) if quick else (10, 20, 50, 100, 200, 499, 999)
    result = losses_by_context(layers, lengths, tasks=tasks, n_prompts=100 if quick else 1000)
    mean = result.loss.mean(1)
    rows = [
        (task, length, spread(result.loss[index, :, place]), f"{float(result.bayes[index]):.3f}")
        for index, task in enumerate(result.tasks)
        for place, length in enumerate(lengths)
    ]
    falls = bool((mean.diff(dim=1) < 0).all())
    excess = (mean[:, -1] / result.bayes).tolist()
    verdicts = [
        Verdict(
            claim="Figure 4(a): the loss falls to Bayes's with the context",
            paper="converges",
            ours=f"d = 8: {float(mean[1, 0]):.2f} at L = {lengths[0]}, {float(mean[1, -1]):.2f} at {lengths[-1]}, "
            f"Bayes {float(result.bayes[1]):.2f}",
            because=_why_not_bayes(falls),
            measured=(excess[1] if falls else math.inf,),
            bounds=(0, 1.05),
        ),
        Verdict(
            claim="Figure 4(b): trained on d = 8, it denoises d = 4 and 12",
            paper="mild performance loss",
            ours=", ".join(f"{task}: {ratio:.2f} × Bayes" for task, ratio in zip(tasks, excess, strict=True)),
            because="it loses more than a fifth above Bayes",
            measured=tuple(excess),
            bounds=(0, 1.2),
        ),
    ]
    return verdicts, markdown(("subspaces", "L", "loss, mean (range) of six seeds", "Bayes"), rows)


def _why_not_bayes(falls: bool) -> str:
    """Say why the loss on the longest context is no reproduction of Bayes's."""
    if not falls:
        return "it does not fall at every length"
    return (
        "it falls at every length, but ends above: the off-diagonals that 800 prompts leave cost the same at any length"
    )


def of_figure_5(results: Trainings, *, quick: bool) -> list[Verdict]:
    """Return verdicts on further steps down the energy after the one that is attention."""
    verdicts = []
    for task, model in TASKS.items():
        layers = results[task, "softmax"].layers
        alpha, beta = float(layers.alpha.abs().mean()), float(layers.beta.abs().mean())
        prompts = model.sample(100 if quick else 400, 499, seed=1)
        result = descend(model, prompts, alpha=alpha, beta=beta, n_steps=10)
        errors = result.errors.mean(1)
        verdicts.append(
            Verdict(
                claim=f"Figure 5, {task}: one step is better than many (γ = α = {alpha:.2f}, β = {beta:.2f})",
                paper="iterating degrades",
                ours=f"query {float(errors[0]):.3f}, 1 step {float(errors[1]):.3f}, 2 steps {float(errors[2]):.3f}, 10 "
                f"steps {float(errors[-1]):.3f}, Bayes {float(result.bayes_errors.mean()):.3f}",
                because="a second step helps",
                measured=(float(errors[1] / errors[2:].min()),),
                bounds=(0, 1),
            )
        )
    return verdicts


def of_figure_6(results: Trainings, *, quick: bool) -> tuple[list[Verdict], dict[str, go.Figure]]:
    """Return the loss of scaled identities over α and β, and where training and the posterior mean's scales
    lie in it."""
    verdicts, figures = [], {}
    n_points = 10 if quick else 50
    for task in ("spheres", "mixtures"):
        layers, model = results[task, "softmax"].layers, TASKS[task]
        prompts = model.sample(100 if quick else 800, 499, seed=1)
        alphas = torch.linspace(0.05, 3, n_points, dtype=torch.float64)
        betas = torch.linspace(0.3, 15, n_points, dtype=torch.float64)
        surface = landscape(prompts, alphas, betas)
        trained = float(layers.alpha.abs().mean()), float(layers.beta.abs().mean())
        posterior = 1.0, 1 / model.noise_variance
        minimum = surface.minimum
        losses = [
            float(landscape(prompts, *(torch.tensor([value], dtype=torch.float64) for value in point)).loss)
            for point in (trained, posterior)
        ]
        verdicts.append(
            Verdict(
                claim=f"Figure 6, {task}: training and posterior mean lie in one valley",
                paper="yes",
                ours=f"least {minimum.loss:.4f} at α {minimum.alpha:.2f}, β {minimum.beta:.2f}; trained scales "
                f"{losses[0]:.4f}, (1, 1/σ_Z²) {losses[1]:.4f}; zero {model.mean_square:.3f}",
                because="one of them loses a fifth more",
                measured=tuple(loss / minimum.loss for loss in losses),
                bounds=(0, 1.2),
            )
        )
        points = {"trained": trained, "posterior mean": posterior, "least": (minimum.alpha, minimum.beta)}
        figures[f"landscape_{task}"] = loss_landscape(surface, points=points)
    return verdicts, figures


def of_figure_8() -> list[Verdict]:
    """Return verdicts on transformed prompts: A is undone."""
    verdicts = []
    for attention in ATTENTIONS:
        layers, plain = (stored("subspaces", attention, transformed=on).layers for on in (True, False))
        off, off_plain = (training.off_diagonal.mean(0).tolist() for training in (layers, plain))
        verdicts.append(
            Verdict(
                claim=f"Figure 8, {attention}: training finds αA⁻¹ and β(AAᵀ)⁻¹",
                paper="yes, with αβ ≈ 1/3 in the limit",
                ours=f"AᵀW_QK A and AᵀW_OV are identities up to an off-diagonal of {off[0]:.2f} and {off[1]:.2f} "
                f"(without A: {off_plain[0]:.2f} and {off_plain[1]:.2f}); αβ = {spread(layers.alpha * layers.beta)}",
                because="some runs are stuck",
                measured=(int(layers.stuck.sum()),),
                bounds=(0, 0),
            )
        )
    return verdicts
