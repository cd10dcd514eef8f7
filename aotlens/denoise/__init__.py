"""Attention as denoising: subspaces, Bayes predictors, associative memory (*aot* §2 and §3, *in-context-denoising*).

subspaces.py    tokens on noisy subspaces, MSSA unrolled on them, signal-to-noise ratio
unrolling.py    one mixture followed layer by layer: lengths, angles, memberships, and how long the rate holds
theorem.py      *aot*'s Theorem 3.1: its conditions, and its rate over noises and seeds
audit.py        whether a trained model's layers move tokens into their heads' subspaces
audit_files.py  audits with what they were made on, on disk; those of the bundled checkpoints
tasks.py        prompts of the three in-context denoising tasks
bayes.py        Bayes-optimal predictors, what they lose, and simpler estimators
one_layer.py    linear, softmax and Gaussian attention as a denoiser; the best scaled identities
training.py     such layers trained from random weights, all runs at once
kept.py         trainings by name, and what their runs found
stored.py       trainings beside Bayes and the baselines, on disk; the paper's own are bundled
energies.py     the energies that one layer of attention descends by one step; the symmetry that this needs
flows.py        which heads of trained models are nearly gradient flows of an energy
regression/     in-context regression: baselines, and what the layers of a trained model do
in_plane.py     one prompt in two dimensions: its energy, the way of its query, errors of many
descent.py      queries that go down these energies for any number of steps, beside Bayes; the energy over the plane
"""

from __future__ import annotations

from aotlens.denoise import regression
from aotlens.denoise.audit import DenoisingAudit, audit, audit_tokens
from aotlens.denoise.audit_files import AuditRecord, find_audit, stored_audit
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
from aotlens.denoise.flows import HeadAsymmetry, head_asymmetry
from aotlens.denoise.in_plane import DescentErrors, PlaneDescent, best_scale, descend_by_share, descend_in_plane
from aotlens.denoise.kept import (
    FoundScales,
    RunMatrices,
    found_scales,
    landscape_around,
    named_training,
    run_matrices,
    train_and_keep,
    trainings,
)
from aotlens.denoise.one_layer import Landscape, Scale, attend, landscape, optimal_linear_scale
from aotlens.denoise.stored import DenoiserTraining, compare_with_bayes, stored
from aotlens.denoise.subspaces import Mixture, OverflowedTokens, memberships, sample_mixture, snr, unroll
from aotlens.denoise.tasks import TASKS, GaussianMixtures, LinearSubspaces, Prompts, Spheres, Task
from aotlens.denoise.theorem import Condition, Conditions, DenoisingRates, conditions, denoising_rates
from aotlens.denoise.token_pictures import Memberships, TokenPoints, memberships_at, token_points
from aotlens.denoise.training import TrainedLayers, TrainingSettings, train_layers
from aotlens.denoise.unrolling import Unrolling, theorem_rate, unroll_mixture
