"""Heads on prompts of in-context regression: their maps, and whether they single out the coordinates that labels depend
on.

**Support.** For a query x_i and the label tokens y_j of the examples before it, a head's scores are regressed on

    s_ij = a_i + β_on Σ_{k ∈ S} x_ik x_jk + β_off Σ_{k ∉ S} x_ik x_jk + β_labels (w·x_i) y_j

with S the support of the prompt's own w, which no weight of the model can know: a head that compares inputs whatever
the prompt has β_on = β_off, one that has found the support has β_on > β_off. The last term is there since labels are
sums over the support: a head that compares the answer with labels, a score ŷ_i y_j, would have β_on = E w_k² > 0 and
β_off = 0 without it, though it never looked at an x. (In the bundled sparse model head 2.2 has z = 6.2 without it, and
0.3 with it.) a_i, which softmax does not see, is taken off by centring over j.

Standard errors take the prompt as the unit (they allow whatever dependence within it), and need some 50 of them: of
heads with random weights 4 to 8% had |z| > 1.96 from 50 prompts on, 8 to 10% of 20, 11 to 15% of 10, 15 to 20% of 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head, head_name, minus, require_whole
from aotlens.data import RegressionPrompts, RegressionTask
from aotlens.evaluate import points_of, require_regression
from aotlens.heads.patterns import AttentionPatterns, patterns_and_logits
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.results import Result, data_frame, top_head

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class SupportScores(Result):
    """β_on and β_off of every head, in nats a unit of x_ik x_jk, scores that compare labels apart."""

    on: Float64[np.ndarray, "layer head"]
    off: Float64[np.ndarray, "layer head"]
    labels: Float64[np.ndarray, "layer head"]
    """β_labels, nats a unit of (w·x_i) y_j: how far the scores compare the answer with labels."""
    standard_error: Float64[np.ndarray, "layer head"]
    """The standard error of β_on − β_off, over prompts."""
    n_prompts: int

    @property
    def z(self) -> Float64[np.ndarray, "layer head"]:
        """(β_on − β_off) ÷ its standard error, NaN where scores are all alike. The largest of H heads that know nothing
        is about √(2 ln H)."""
        known = self.standard_error > 0
        return np.divide(self.on - self.off, self.standard_error, out=np.full(self.on.shape, np.nan), where=known)

    @property
    def headline(self) -> str:
        return f"most towards the support in {top_head(self.z)}, in standard errors"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per head: layer, head, on, off, labels, z."""
        layers, heads = np.indices(self.on.shape)
        columns = {name: getattr(self, name).ravel() for name in ("on", "off", "labels", "z")}
        return data_frame({"layer": layers.ravel(), "head": heads.ravel(), **columns})


@torch.no_grad()
def support_scores(
    model: AttentionOnlyTransformer,
    task: RegressionTask,
    *,
    n_prompts: int = 256,
    n_points: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
) -> SupportScores:
    """Return β_on and β_off of every head on `n_prompts` prompts of a sparse `task`.

    Points are as many as the context holds unless given. Raises `ValueError` for a task on whose every active
    coordinate labels depend, for fewer than three points or four prompts, for a φ without scores, and as
    `require_regression`.
    """
    require_ours(model, "support_scores")
    require_regression(model, task.d)
    n_points = points_of(model) if n_points is None else n_points
    n_active = task.d if task.n_dims is None else task.n_dims
    if not model.cfg.has_query_key:
        raise ValueError(f"support_scores: a model with phi={model.cfg.phi!r} has no scores.")
    if task.n_relevant == n_active or n_points < 3 or n_prompts < 4:
        raise ValueError(
            f"support_scores: expected a sparse task, at least 3 points and 4 prompts; got {task.n_relevant} of "
            f"{n_active} coordinates, {n_points} points and {n_prompts} prompts."
        )
    prompts = task.sample(n_prompts, n_points, seed, dtype=torch.float64)
    inputs, support = prompts.inputs, (prompts.weights != 0).double()[:, None]
    answers = (inputs * prompts.weights[:, None]).sum(-1)
    compared = answers[:, :, None] * prompts.labels[:, None]
    products = torch.stack([*((inputs * part) @ inputs.mT for part in (support, 1 - support)), compared], -1)
    design = _centred(products[:, None])[:, 0]  # [prompt, query, key, 3]
    grams = torch.einsum("pqka,pqkb->pab", design, design)
    names = [hook_names.attn(layer, "hook_attn_scores") for layer in range(model.cfg.n_layers)]
    moments: list[Tensor] = []
    for rows in torch.arange(n_prompts).split(batch_size):
        tokens = prompts.tokens[rows].to(model.device, model.dtype)
        _, cache = model.run_with_cache(tokens, names_filter=names, return_cache_object=False)
        scores = torch.stack([cache[name][:, :, ::2, 1::2] for name in names], 1).cpu().double()
        # keys: the labels of all points but the last, which has none; a column of zeros stands for it
        scores = torch.nn.functional.pad(scores, (0, 1)).flatten(1, 2)[..., None]
        moments.append(torch.einsum("phqka,pqkb->phb", _centred(scores), design[rows]))
    moment = torch.cat(moments)  # [prompt, head, 3]
    inverse = torch.linalg.inv(grams.sum(0))
    slopes = moment.sum(0) @ inverse
    residual = (moment - torch.einsum("hb,pba->pha", slopes, grams)) @ inverse
    difference = (residual[..., 0] - residual[..., 1]).pow(2).sum(0) * n_prompts / (n_prompts - 1)
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    return SupportScores(
        on=slopes[:, 0].reshape(shape).numpy(),
        off=slopes[:, 1].reshape(shape).numpy(),
        labels=slopes[:, 2].reshape(shape).numpy(),
        standard_error=difference.sqrt().reshape(shape).numpy(),
        n_prompts=n_prompts,
    )


def _centred(values: Float[Tensor, "prompt head query key of"]) -> Float[Tensor, "prompt head query key of"]:
    """`values` of points as queries and points before them as keys, less the mean over a query's keys; 0 elsewhere."""
    n_points = values.shape[2]
    before = torch.ones(n_points, n_points, dtype=torch.bool).tril(-1)[:, :, None]
    counts = before.sum(1, keepdim=True).clamp(min=1)
    values_before = torch.where(before, values, 0.0)
    return torch.where(before, values_before - values_before.sum(3, keepdim=True) / counts, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptMaps(Result):
    """All heads on one prompt; the table and the figure show one of them, `head`."""

    patterns: AttentionPatterns
    """Positions are named x1, y1, x2, y2, …"""
    labels: Float[np.ndarray, " point"]
    answers: Float[np.ndarray, " point"]
    """The model's answer at each x."""
    number: int
    """The number of the prompt, from 0."""
    head: Head = (0, 0)

    @property
    def headline(self) -> str:
        return f"head {head_name(self.head)} of {self.patterns.headline} of prompt {self.number}"

    def sentences(self, query: int | None = None) -> str:
        """Return the model's answer at a query (by default the last x), and the keys that the head attends to most."""
        point = len(self.labels) - 1 if query is None else query // 2
        answer, label = minus(self.answers[point], "+.3f"), minus(self.labels[point], "+.3f")
        asked = (
            f"Prompt {self.number}: at x{point + 1}, after {point} examples, the model says {answer}, the label is "
            f"{label}."
        )
        if query is None:
            return f"{asked} Click an entry of the map, or choose a query, to lock its row."
        if query % 2:
            asked = f"Prompt {self.number}: y{point + 1} is a label, {label}; nothing is asked there."
        names, row = self.patterns.str_tokens, self.patterns.pattern[self.head][query, : query + 1]
        keys = ", ".join(f"{names[key]} {row[key]:.3f}" for key in np.argsort(-np.abs(row))[:3])
        return f"{asked} From {names[query]} head {head_name(self.head)} attends to {keys}, most first."

    def at(self, head: HeadLike) -> PromptMaps:
        """Return the same maps with the table and the figure of another head. Raises `ValueError` if it does not
        exist."""
        return replace(self, head=as_head(head, self.patterns))

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each query and key that it sees: query, key, attention, weighted, and score in nats
        unless the pattern is fixed."""
        patterns, names = self.patterns, np.array(self.patterns.str_tokens)
        queries, keys = np.nonzero(patterns.visible[min(self.head[1], len(patterns.visible) - 1)])
        columns = {"query": names[queries], "key": names[keys]}
        columns["attention"] = patterns.pattern[self.head][queries, keys]
        columns["weighted"] = patterns.value_weighted()[self.head][queries, keys]
        if patterns.scores is not None:
            columns["score"] = patterns.scores[self.head][queries, keys]
        return data_frame(columns)


def prompt_maps(model: AttentionOnlyTransformer, prompts: RegressionPrompts, number: int = 0) -> PromptMaps:
    """Run one of the prompts, and return all heads' attention on it and the answer at each x.

    Raises `ValueError` as `require_ours`, for a number that no prompt has, and for prompts that a model does not read.
    """
    require_ours(model, "prompt_maps")
    require_whole("number", number, 0, len(prompts.tokens) - 1)
    tokens = prompts.tokens[number]
    patterns, outputs = patterns_and_logits(model, tokens)
    return PromptMaps(
        patterns=replace(patterns, str_tokens=prompt_positions(len(tokens))), number=number,
        labels=prompts.labels[number].cpu().numpy(), answers=outputs[::2, 0].cpu().numpy(),
    )  # fmt: skip


def prompt_positions(n_pos: int) -> tuple[str, ...]:
    """Name what is at each position of a prompt: x1, y1, x2, y2, …"""
    return tuple(f"{'xy'[position % 2]}{position // 2 + 1}" for position in range(n_pos))
