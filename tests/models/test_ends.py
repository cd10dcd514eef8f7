"""Images and vectors in, classes and vectors out."""

from __future__ import annotations

import pytest
import torch

from tests.messages import refused

IMAGES = {
    "read_in": "patches", "image_size": 4, "patch_size": 2, "n_channels": 3, "n_ctx": 5, "class_token": True,
    "read_out": "classes", "d_out": 6, "d_vocab": None, "causal": False, "bias": True,
}  # fmt: skip
VECTORS = {"read_in": "vectors", "read_out": "vectors", "d_in": 4, "d_out": 3, "d_vocab": None, "bias": True}


@torch.no_grad()
def test_patches_are_read_in_reading_order_channels_first(make):
    model = make(torch.float64, **IMAGES)
    images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    _, cache = model.run_with_cache(images)
    embedded = cache["hook_embed"]
    assert embedded.shape == (2, 5, 12)
    torch.testing.assert_close(embedded[:, 0], model.embed.cls.expand(2, -1))
    for patch, (row, column) in enumerate([(0, 0), (0, 2), (2, 0), (2, 2)]):
        pixels = images[:, :, row : row + 2, column : column + 2].reshape(2, 12)
        torch.testing.assert_close(embedded[:, 1 + patch], pixels @ model.embed.W + model.embed.b)
    torch.testing.assert_close(cache["resid_pre", 0], embedded + model.W_pos)


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_classes_are_read_from_the_pooled_position(make, pooling):
    model = make(torch.float64, **IMAGES, pooling=pooling)
    images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    logits, cache = model.run_with_cache(images)
    last = cache["resid_post", 1]
    centred = last - last.mean(-1, keepdim=True)
    final = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    final = final * model.ln_final.w + model.ln_final.b
    pooled = final[:, 0] if pooling == "first" else final.mean(1)
    torch.testing.assert_close(logits, pooled @ model.W_U + model.b_U)
    targets = torch.tensor([5, 1])
    loss = model(images, return_type="loss", targets=targets)
    torch.testing.assert_close(loss, -logits.log_softmax(-1)[[0, 1], targets].mean())
    with pytest.raises(ValueError, match="needs targets"):
        model(images, return_type="loss")
    with pytest.raises(ValueError, match=r"targets: expected \[2\], got \[1\]"):
        model(images, return_type="loss", targets=targets[:1])


@torch.no_grad()
def test_vectors_are_read_in_and_out(make):
    model = make(torch.float64, **VECTORS)
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    out, cache = model.run_with_cache(x)
    assert out.shape == (2, 6, 3)
    torch.testing.assert_close(cache["hook_embed"], x @ model.embed.W + model.embed.b)
    targets = torch.randn_like(out)
    loss, each = (model(x, return_type="loss", targets=targets, loss_per_token=flag) for flag in (False, True))
    torch.testing.assert_close(loss, (out - targets).square().mean())
    torch.testing.assert_close(each, (out - targets).square())
    with refused("[2, 6, 3]", "None"):
        model(x, return_type="loss")
    with pytest.raises(ValueError, match=r"got \[2, 6, 1\]"):
        model(x, return_type="loss", targets=targets[..., :1])


@torch.no_grad()
def test_vectors_can_be_the_stream_itself(make):
    """No read-in, no read-out, no norm, no positions: a model with W_O = 0 is the identity."""
    model = make(
        torch.float64,
        read_in="vectors",
        read_out="vectors",
        d_vocab=None,
        norm=None,
        positions=None,
        causal=False,
    )
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    assert not torch.equal(model(x), x)
    for block in model.blocks:
        block.attn.W_O.zero_()
    torch.testing.assert_close(model(x), x)
    with refused("W_U", "residual stream"):
        _ = model.W_U
    with refused("W_E", "vectors", "tokens"):
        _ = model.W_E
    with refused("W_pos", "positions=None"):
        _ = model.W_pos


def test_tokens_in_and_classes_out(make, tokens):
    model = make(read_out="classes", d_out=4, causal=False, pooling="mean")
    assert model(tokens).shape == (2, 4) and model.W_U.shape == (12, 4)


def test_shapes_that_do_not_fit(make):
    with refused("[batch, 3, 4, 4]", "[2, 4, 4]"):
        make(**IMAGES)(torch.zeros(2, 4, 4))
    with pytest.raises(ValueError, match=r"expected images .* torch.uint8"):
        make(**IMAGES)(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    with refused("[batch, pos, 4]", "[2, 6, 5]"):
        make(**VECTORS)(torch.zeros(2, 6, 5))
    with refused("[batch, pos, 4]", "[6, 4]"):
        make(**VECTORS)(torch.zeros(6, 4))
    with refused("9 positions", "1 to 8"):
        make(**VECTORS)(torch.zeros(1, 9, 4))
