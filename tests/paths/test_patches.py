"""What patches add to a class: against autograd, brute force over all paths, a planted change, and refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names
from aotlens.paths import patch_contributions
from tests.image_models import MEAN_POOLED, make, random_images
from tests.messages import refused
from tests.small_models import SMALL, maker

KINDS = {
    "cls": {},
    "mean": MEAN_POOLED,
    "mean with cls": {"pooling": "mean"},
    "mssa": {"attention": "mssa", **MEAN_POOLED},
    "qk": {"positions": "qk"},
    "no norm": {"norm": None, "bias": False},
    "mlps": {"d_mlp": 7},
    "mlps, mean": {"d_mlp": 7, **MEAN_POOLED},
}


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_the_model_s_logits(kind: str) -> None:
    model, images = make(**KINDS[kind]), random_images()
    made = patch_contributions(model, images)
    logits = model(images).double().detach().numpy()
    for parts, expected in ((made.logit, logits), (made.above_mean, logits - logits.mean(1, keepdims=True))):
        np.testing.assert_allclose(parts.logits, expected, atol=1e-4)
        np.testing.assert_allclose(parts.total, expected, atol=1e-4 * max(1, np.abs(logits).max()))
        np.testing.assert_allclose(parts.outside + parts.patches.sum((-2, -1)), parts.total)
    assert (made.predicted == logits.argmax(1)).all()
    assert (made.logit.class_token == 0).all() != model.cfg.class_token
    assert (made.logit.positions == 0).all() == (model.cfg.positions == "qk")
    assert (made.logit.biases == 0).all() == (kind == "no norm")
    assert (made.logit.mlps != 0).all() == ("mlps" in kind)
    chosen = patch_contributions(model, images[0], [2, 1])
    np.testing.assert_allclose(chosen.above_mean.patches[0, 0], made.above_mean.patches[0, 2], atol=1e-4)
    assert chosen.place(1) == 1
    one = made.on_image(1, 2)
    assert one.logit.total[0, 0] == made.logit.total[1, 2] and one.above_mean.biases == made.above_mean.biases[1, 2]
    frame = one.to_frame().set_index(["row", "column"])
    assert frame.loc[(2, 1), "above_mean"] == made.above_mean.patches[1, 2, 2, 1]
    assert frame.loc[(0, 2), "logit"] == made.logit.patches[1, 2, 0, 2]
    assert made.on_image(2).number == made.predicted[2]
    np.testing.assert_array_equal(
        made.of_class(), np.stack([made.above_mean.patches[i, c] for i, c in enumerate(made.predicted)])
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_logit_that_is_rounding_has_no_share_outside(dtype: torch.dtype) -> None:
    """All classes are read out alike, but for one, by half a unit of bfloat16."""
    model, images = make(bias=False), random_images()
    with torch.no_grad():
        model.W_U[:] = model.W_U[:, :1].clone()
        model.W_U[:, 1] *= 1 + torch.finfo(torch.bfloat16).eps / 2
    made = patch_contributions(model.to(dtype), images.to(dtype))
    assert np.isfinite(made.above_mean.share_outside).all() == (dtype == torch.float32)
    assert np.isfinite(made.logit.share_outside).all()
    assert ("than rounding" in made.headline) == (dtype == torch.bfloat16)
    assert np.isfinite(made.on_image(0, 1).above_mean.share_outside).all() == (dtype == torch.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_a_patch_is_its_embedding_times_the_gradient_with_patterns_and_scales_frozen(kind: str) -> None:
    """Autograd through the model's own forward pass; patterns, scales and outputs of MLPs are put back as constants."""
    model, image = make(torch.float64, **KINDS[kind]), random_images(1, torch.float64)
    _, cache = model.run_with_cache(image)
    frozen = [name for name in cache.cache_dict if name.endswith(("hook_pattern", "hook_scale", "hook_mlp_out"))]
    leaf: list[Tensor] = []

    def take(value: Tensor, hook: object) -> Tensor:
        leaf.append(value.detach().clone().requires_grad_())
        return leaf[0]

    hooks = [(name, lambda value, hook, name=name: cache[name].detach()) for name in frozen]
    logits = model.run_with_hooks(image, fwd_hooks=[(hook_names.EMBED, take), *hooks])
    made = patch_contributions(model, image)
    before = int(model.cfg.class_token)
    bias = 0 if model.embed.b is None else model.embed.b.detach()
    for number in range(4):
        (gradient,) = torch.autograd.grad(logits[0, number], leaf[0], retain_graph=True)
        own = ((leaf[0].detach() - bias) * gradient)[0, before:].sum(-1).reshape(3, 3)
        np.testing.assert_allclose(made.logit.patches[0, number], own.numpy(), atol=1e-9)
        cls = (leaf[0].detach() * gradient)[0, :before].sum()
        np.testing.assert_allclose(made.logit.class_token[0, number], float(cls), atol=1e-9)
    if model.cfg.attn_only:
        return
    written = {name: cache[name].detach().requires_grad_() for name in frozen if name.endswith("hook_mlp_out")}
    put = [(name, lambda value, hook: written[hook.name]) for name in written]
    logits = model.run_with_hooks(image, fwd_hooks=[*put, *(hook for hook in hooks if hook[0] not in written)])
    for number in range(4):
        gradients = torch.autograd.grad(logits[0, number], [*written.values()], retain_graph=True)
        terms = [(x * gradient).sum().detach() for x, gradient in zip(written.values(), gradients, strict=True)]
        np.testing.assert_allclose(made.logit.mlps[0, number], float(sum(terms)), atol=1e-9)


@pytest.mark.parametrize("kind", ["cls", "mean"])
def test_a_patch_is_the_sum_over_all_paths_from_it(kind: str) -> None:
    """Every subset of layers and every choice of heads in them, multiplied out matrix by matrix."""
    model, image = make(torch.float64, **KINDS[kind]), random_images(1, torch.float64)
    _, cache = model.run_with_cache(image)
    cfg, before = model.cfg, int(model.cfg.class_token)
    assert cfg.patch_size is not None
    pixels = torch.nn.functional.unfold(image, cfg.patch_size, stride=cfg.patch_size)[0].T
    stream = torch.zeros(cfg.n_ctx, cfg.d_model, dtype=torch.float64)
    stream[before:] = pixels @ model.embed.W.detach()

    def read(layer: int | None, rows: Tensor) -> Tensor:
        norm = folded_norm(model, layer)
        return norm.read(rows, cache[norm.scale_hook][0])

    final = 0.0
    for heads in itertools.product([None, 0, 1], repeat=cfg.n_layers):
        # What starts at each patch alone: [source, position, d_model].
        part = torch.diag_embed(torch.ones(cfg.n_ctx, dtype=torch.float64))[..., None] * stream
        for layer, head in enumerate(heads):
            if head is not None:
                pattern = cache[hook_names.attn(layer, hook_names.PATTERN)][0, head]
                part = pattern @ read(layer, part) @ model.W_V[layer, head] @ model.W_O[layer, head]
        rows = read(None, part) @ model.W_U
        final = final + (rows[:, 0] if cfg.class_token else rows.mean(1)).detach()  # [source, class]
    made = patch_contributions(model, image)
    expected = final[before:].T.reshape(4, 3, 3).numpy()  # type: ignore[index]
    np.testing.assert_allclose(made.logit.patches[0], expected, atol=1e-9)


@pytest.mark.parametrize("changes", [{}, MEAN_POOLED], ids=["cls", "mean"])
def test_a_patch_replaced_by_the_mean_lowers_the_logit_by_its_path_term_less_the_mean_s(changes: dict) -> None:
    """With fixed patterns and no norm nothing else can change; the position stays, since it is added afterwards."""
    fields = {"norm": None, "phi": "fixed", "fixed_pattern": "random"}
    model = make(torch.float64, **{**changes, **fields})
    images = random_images(4, torch.float64)
    before = int(model.cfg.class_token)
    embedded = model.embed(images).detach()
    mean = embedded[:, before:].mean((0, 1))
    made = patch_contributions(model, images[0])
    clean = model(images[:1]).detach()[0]
    for row, column in [(0, 0), (1, 2), (2, 1)]:
        at = before + 3 * row + column

        def replace(value: Tensor, hook: object, at: int = at) -> Tensor:
            value = value.clone()
            value[:, at] = mean
            return value

        changed = model.run_with_hooks(images[:1], fwd_hooks=[(hook_names.EMBED, replace)]).detach()[0]
        # The mean embedding at this place: an image whose every patch is the mean, as far as this patch goes.
        gradient = _linear_map(model, images[:1], at)
        of_mean = (mean - model.embed.b.detach()) @ gradient
        lowered = torch.from_numpy(made.logit.patches[0, :, row, column]) - of_mean
        torch.testing.assert_close(clean - changed, lowered, atol=1e-6, rtol=0)


def _linear_map(model: AttentionOnlyTransformer, image: Tensor, at: int) -> Tensor:
    """`[d_model, class]`: what a unit of each direction at a position adds to every logit, by adding it."""
    columns = []
    clean = model(image).detach()[0]
    for direction in torch.eye(model.cfg.d_model, dtype=torch.float64):

        def add(value: Tensor, hook: object, direction: Tensor = direction) -> Tensor:
            value = value.clone()
            value[:, at] += direction
            return value

        columns.append(model.run_with_hooks(image, fwd_hooks=[(hook_names.EMBED, add)]).detach()[0] - clean)
    return torch.stack(columns)


def test_what_has_no_paths_is_refused_by_name() -> None:
    images = random_images()
    with refused("patch contributions", "tokens"):
        patch_contributions(maker(SMALL)(), images)
    with refused("classes"):
        patch_contributions(make(pooling=None), images)
    with refused("target 4", "0 to 3"):
        patch_contributions(make(), images, [4])
    with refused("120 classes", 100):
        patch_contributions(make(d_out=120), images)
    with refused("class 3", "(0, 1)"):
        patch_contributions(make(), images, [0, 1]).of_class([0, 1, 3])
