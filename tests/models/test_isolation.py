"""Hooks reach what they name and nothing else; a model refuses what it cannot honour; losses against PyTorch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 8}
TOKENS = torch.randint(0, 9, (1, 6), generator=torch.Generator().manual_seed(0))


def _model(pattern: Tensor | None = None, **fields: object) -> AttentionOnlyTransformer:
    if fields.get("read_in") != "vectors":
        fields = {"d_vocab": 9, **fields}
    return AttentionOnlyTransformer(ModelConfig(**{**SIZES, **fields}), pattern=pattern).double()


@pytest.mark.parametrize("positions", ["learned", "qk"])
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_an_in_place_edit_of_one_of_mssas_three_leaves_the_others(name: str, positions: str) -> None:
    model = _model(attention="mssa", positions=positions)

    def in_place(value: Tensor, hook: object) -> Tensor:
        value[:, 2] = 0.0
        return value

    def copied(value: Tensor, hook: object) -> Tensor:
        return in_place(value.clone(), hook)

    place = f"blocks.0.attn.hook_{name}"
    edited = [model.run_with_hooks(TOKENS, fwd_hooks=[(place, edit)]) for edit in (in_place, copied)]
    assert torch.equal(*edited)
    assert not torch.allclose(edited[0], model(TOKENS))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("place", ["blocks.0.attn.hook_pattern", "hook_pos_embed"])
def test_an_in_place_edit_leaves_the_weights(place: str, batch: int) -> None:
    model = _model(phi="fixed", fixed_pattern="random", causal=False)
    tokens = TOKENS.expand(batch, -1)
    before, weights = model(tokens), {name: value.clone() for name, value in model.state_dict().items()}
    edited = model.run_with_hooks(tokens, fwd_hooks=[(place, lambda value, hook: value.zero_())])
    assert not torch.allclose(edited, before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(tokens), before)


def test_an_in_place_edit_leaves_the_callers_vectors() -> None:
    model = _model(read_in="vectors", read_out="vectors", positions=None)
    vectors = torch.randn(2, 5, 12, dtype=torch.float64)
    kept = vectors.clone()
    model.run_with_hooks(vectors, fwd_hooks=[("hook_embed", lambda value, hook: value.zero_())])
    assert torch.equal(vectors, kept)


MASK = torch.ones(8, 8, dtype=torch.bool).tril()[None]


@pytest.mark.parametrize(
    "fields",
    [
        {"phi": "fixed", "fixed_pattern": "random"},
        {"attn_mask": MASK},
        {"read_out": "classes", "d_out": 4, "pooling": "first"},
    ],
)
def test_padding_on_the_left_is_refused_where_positions_have_numbers(fields: dict) -> None:
    model = _model(**fields)
    right, left = torch.tensor([[1, 1, 1, 1, 0, 0]]), torch.tensor([[0, 0, 1, 1, 1, 1]])
    alone = model(TOKENS[:, :4])
    padded = model(TOKENS, attention_mask=right)
    torch.testing.assert_close(padded if "d_out" in fields else padded[:, :4], alone)
    with refused("padding", "right"):
        model(TOKENS, attention_mask=left)


def test_the_loss_of_vectors_leaves_padding_out() -> None:
    model = _model(read_in="vectors", read_out="vectors", d_out=3)
    vectors, targets = torch.randn(1, 6, 12, dtype=torch.float64), torch.randn(1, 6, 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    alone = model(vectors[:, :4], return_type="loss", targets=targets[:, :4])
    torch.testing.assert_close(model(vectors, return_type="loss", targets=targets, attention_mask=mask), alone)


def test_given_token_targets_leave_padding_out() -> None:
    model = _model(causal=False)
    targets = torch.randint(0, 9, (1, 6))
    mask = torch.tensor([[1, 1, 1, 0, 0, 0]])
    alone = model(TOKENS[:, :3], return_type="loss", targets=targets[:, :3])
    torch.testing.assert_close(model(TOKENS, return_type="loss", targets=targets, attention_mask=mask), alone)


def test_a_bf16_model_takes_its_loss_in_float32() -> None:
    model = _model().bfloat16()
    logits, loss = model(TOKENS, return_type="both")
    expected = torch.nn.functional.cross_entropy(logits[0, :-1].double(), TOKENS[0, 1:])
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=0, atol=1e-5)


def test_a_mask_that_shows_later_keys_has_no_next_token_loss() -> None:
    model = _model(attn_mask=torch.ones(1, 8, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="needs targets"):
        model(TOKENS, return_type="loss")
    with pytest.raises(ValueError, match="causal model"):
        model.generate(TOKENS, 1)
    assert _model(attn_mask=MASK)(TOKENS, return_type="loss").isfinite()


def test_an_additive_mask_is_refused() -> None:
    additive = torch.zeros(1, 8, 8).masked_fill(~MASK, -torch.inf)
    with refused("True", "-inf"):
        ModelConfig(**SIZES, d_vocab=9, phi="linear", attn_mask=additive)


def test_a_given_pattern_that_looks_ahead_is_refused() -> None:
    uniform = torch.full((8, 8), 1 / 8)
    with refused("expected 0", "mask"):
        _model(phi="fixed", fixed_pattern="given", pattern=uniform)
    _model(phi="fixed", fixed_pattern="given", pattern=uniform, causal=False)


def test_a_seed_means_the_same_weights_whatever_torchs_default_type_is() -> None:
    cfg = ModelConfig(**SIZES, d_vocab=9)
    expected = AttentionOnlyTransformer(cfg).state_dict()
    torch.set_default_dtype(torch.float64)
    try:
        found = AttentionOnlyTransformer(cfg).state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in expected.items():
        torch.testing.assert_close(found[name].float(), value, msg=name)


FIELDS = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "causal": False}
CLASSES = AttentionOnlyTransformer(
    ModelConfig(**FIELDS, n_ctx=4, read_in="patches", image_size=4, patch_size=2, read_out="classes", d_out=5,
                pooling="mean", seed=1)
).double()  # fmt: skip
VECTORS = AttentionOnlyTransformer(
    ModelConfig(**FIELDS, n_ctx=6, read_in="vectors", d_in=3, read_out="vectors", d_out=2, seed=1)
).double()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_label_smoothing_is_the_mixture_that_it_says(smoothing: float):
    torch.manual_seed(0)
    images, labels = torch.randn(6, 1, 4, 4, dtype=torch.float64), torch.randint(5, (6,))
    log_p = CLASSES(images).log_softmax(-1)
    q = (1 - smoothing) * F.one_hot(labels, 5) + smoothing / 5
    by_hand = -(q * log_p).sum(-1)
    loss = CLASSES(images, return_type="loss", targets=labels, label_smoothing=smoothing)
    torch.testing.assert_close(loss, by_hand.mean())
    torch.testing.assert_close(loss, F.cross_entropy(CLASSES(images), labels, label_smoothing=smoothing))
    each = CLASSES(images, return_type="loss", targets=labels, label_smoothing=smoothing, loss_per_token=True)
    torch.testing.assert_close(each, by_hand)


def test_label_smoothing_that_means_nothing_is_refused():
    images, labels = torch.randn(2, 1, 4, 4, dtype=torch.float64), torch.tensor([0, 1])
    with refused("label_smoothing=1.0", "0 to below 1"):
        CLASSES(images, return_type="loss", targets=labels, label_smoothing=1.0)
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    with refused("vectors"):
        VECTORS(x, return_type="loss", targets=torch.zeros(2, 6, 2, dtype=torch.float64), label_smoothing=0.1)


def test_targets_of_vectors_that_are_nan_do_not_count():
    torch.manual_seed(0)
    x, targets = torch.randn(3, 6, 3, dtype=torch.float64), torch.randn(3, 6, 2, dtype=torch.float64)
    counts = torch.rand(3, 6, 2) < 0.6
    sparse = torch.where(counts, targets, torch.nan)
    outputs = VECTORS(x).detach()
    expected = sum(
        float((outputs[place] - targets[place]) ** 2) for place in map(tuple, counts.nonzero().tolist())
    ) / int(counts.sum())
    loss = VECTORS(x, return_type="loss", targets=sparse)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    loss.backward()
    gradients = [p.grad.clone() for p in VECTORS.parameters() if p.grad is not None]
    VECTORS.zero_grad()
    (((VECTORS(x) - targets) * counts).pow(2).sum() / counts.sum()).backward()  # autograd without a NaN
    for gradient, parameter in zip(gradients, (p for p in VECTORS.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)
    VECTORS.zero_grad()
    each = VECTORS(x, return_type="loss", targets=sparse, loss_per_token=True)
    assert each.shape == targets.shape and (each[~counts] == 0).all()


def test_padding_and_nan_together():
    x, targets = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(2, 6, 2, dtype=torch.float64)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    sparse = targets.clone()
    sparse[0, 0] = torch.nan
    errors = (VECTORS(x, attention_mask=mask) - targets).pow(2)
    kept = mask.clone()
    kept[0, 0] = False
    loss = VECTORS(x, return_type="loss", targets=sparse, attention_mask=mask)
    torch.testing.assert_close(loss, errors[kept].mean())
    with refused("NaN", "average"):
        VECTORS(x, return_type="loss", targets=torch.full_like(targets, torch.nan))


def test_images_of_another_type_than_the_weights_are_named():
    with refused("torch.float64"):
        CLASSES(torch.randn(2, 1, 4, 4))
    with pytest.raises(ValueError, match=r"as floats, got .*uint8"):
        CLASSES(torch.zeros(2, 1, 4, 4, dtype=torch.uint8))  # it has no image processor
