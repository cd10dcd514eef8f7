"""Attention as denoising: subspaces, Bayes predictors, associative memory (*aot* §2 and §3, *in-context-denoising*).

subspaces.py    tokens on noisy subspaces, MSSA unrolled on them, signal-to-noise ratio of clusters and groups
unrolling.py    one mixture followed layer by layer: lengths, angles, memberships, and how long the rate holds
theorem.py      *aot*'s Theorem 3.1: its conditions, and its rate over noises and seeds
audit.py        whether a trained model's layers move tokens into their heads' subspaces
tasks.py        prompts of the three in-context denoising tasks
bayes.py        Bayes-optimal predictors, what they lose, and simpler estimators
one_layer.py    linear, softmax and Gaussian attention as a denoiser; the best scaled identities
training.py     such layers trained from random weights, all runs at once
stored.py       trainings, compared with Bayes and the baselines, and audits, on disk; bundled ones
energies.py     the energies that one layer of attention descends by one step; heads that are nearly gradient flows
descent.py      queries that go down these energies for any number of steps; one prompt in the plane
regression/     in-context regression: baselines, and what the layers of a trained model do
"""

from __future__ import annotations

from aotlens.denoise import regression
from aotlens.denoise.audit import DenoisingAudit, audit, audit_tokens
from aotlens.denoise.bayes import (
    BASELINES,
    ExpectedLoss,
    bayes_loss,
    bessel_ratio,
    predict,
    predict_mixture,
    squared_errors,
)
from aotlens.denoise.descent import (
    ENERGIES,
    Descent,
    DescentErrors,
    EnergyPlane,
    PlaneDescent,
    best_scale,
    descend,
    descend_by_share,
    descend_in_plane,
    energy_on_plane,
)
from aotlens.denoise.energies import (
    HeadAsymmetry,
    asymmetry,
    head_asymmetry,
    hopfield_energy,
    hopfield_step,
    layer_jacobian,
    memory_energy,
    memory_step,
    trajectory,
)
from aotlens.denoise.one_layer import Landscape, Scale, attend, landscape, optimal_linear_scale
from aotlens.denoise.stored import (
    AuditRecord,
    DenoiserTraining,
    FoundScales,
    RunMatrices,
    compare_with_bayes,
    find_audit,
    found_scales,
    landscape_around,
    named_training,
    run_matrices,
    stored,
    stored_audit,
    train_and_keep,
    trainings,
)
from aotlens.denoise.subspaces import Mixture, OverflowedTokens, memberships, sample_mixture, snr, unroll
from aotlens.denoise.tasks import TASKS, GaussianMixtures, LinearSubspaces, Prompts, Spheres, Task
from aotlens.denoise.theorem import Condition, Conditions, DenoisingRates, conditions, denoising_rates
from aotlens.denoise.training import TrainedLayers, TrainingSettings, train_layers
from aotlens.denoise.unrolling import (
    Memberships,
    TokenPoints,
    Unrolling,
    memberships_at,
    theorem_rate,
    token_points,
    unroll_mixture,
)
