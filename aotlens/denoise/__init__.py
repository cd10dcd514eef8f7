"""Attention as denoising: subspaces, Bayes predictors, associative memory (*aot* §2 and §3, *in-context-denoising*).

subspaces.py    tokens on noisy subspaces, MSSA unrolled on them, signal-to-noise ratio
unrolling.py    one mixture followed layer by layer: lengths, angles, memberships, and how long the rate holds
theorem.py      *aot*'s Theorem 3.1: its conditions, and its rate over noises and seeds
tasks.py        prompts of the three in-context denoising tasks
bayes.py        Bayes-optimal predictors, what they lose, and simpler estimators
one_layer.py    linear, softmax and Gaussian attention as a denoiser; the best scaled identities
training.py     such layers trained from random weights, all runs at once
energies.py     the energies that one layer of attention descends by one step; the symmetry that this needs
descent.py      queries that go down these energies for any number of steps, beside Bayes; the energy over the plane
"""

from __future__ import annotations

from aotlens.denoise.bayes import (
    BASELINES,
    ExpectedLoss,
    bayes_loss,
    bessel_ratio,
    predict,
    predict_mixture,
    squared_errors,
)
from aotlens.denoise.descent import ENERGIES, Descent, EnergyPlane, descend, energy_on_plane
from aotlens.denoise.energies import (
    asymmetry,
    hopfield_energy,
    hopfield_step,
    layer_jacobian,
    memory_energy,
    memory_step,
    trajectory,
)
from aotlens.denoise.one_layer import Landscape, Scale, attend, landscape, optimal_linear_scale
from aotlens.denoise.subspaces import Mixture, OverflowedTokens, memberships, sample_mixture, snr, unroll
from aotlens.denoise.tasks import TASKS, GaussianMixtures, LinearSubspaces, Prompts, Spheres, Task
from aotlens.denoise.theorem import Condition, Conditions, DenoisingRates, conditions, denoising_rates
from aotlens.denoise.training import TrainedLayers, TrainingSettings, train_layers
from aotlens.denoise.unrolling import Unrolling, theorem_rate, unroll_mixture

__all__ = [
    "BASELINES",
    "ENERGIES",
    "TASKS",
    "Condition",
    "Conditions",
    "DenoisingRates",
    "Descent",
    "EnergyPlane",
    "ExpectedLoss",
    "GaussianMixtures",
    "Landscape",
    "LinearSubspaces",
    "Mixture",
    "OverflowedTokens",
    "Prompts",
    "Scale",
    "Spheres",
    "Task",
    "TrainedLayers",
    "TrainingSettings",
    "Unrolling",
    "asymmetry",
    "attend",
    "bayes_loss",
    "bessel_ratio",
    "conditions",
    "denoising_rates",
    "descend",
    "energy_on_plane",
    "hopfield_energy",
    "hopfield_step",
    "landscape",
    "layer_jacobian",
    "memberships",
    "memory_energy",
    "memory_step",
    "optimal_linear_scale",
    "predict",
    "predict_mixture",
    "sample_mixture",
    "snr",
    "squared_errors",
    "theorem_rate",
    "train_layers",
    "trajectory",
    "unroll",
    "unroll_mixture",
]
