"""The stacked weights, initial, folded and broken ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotlens.heads import motif_scores
from aotlens.models import AttentionOnlyTransformer, ModelConfig, folded_norm, hook_names, widened
from aotlens.models.weights import initialise
from tests.messages import refused
from tests.small_models import maker

SHAPES = {
    "W_E": (11, 12), "W_pos": (8, 12), "W_U": (12, 11), "b_U": (11,),
    "W_Q": (2, 3, 12, 5), "W_K": (2, 3, 12, 5), "W_V": (2, 3, 12, 5), "W_O": (2, 3, 5, 12),
    "b_Q": (2, 3, 5), "b_K": (2, 3, 5), "b_V": (2, 3, 5), "b_O": (2, 12),
}  # fmt: skip
MLP_SHAPES = {"W_in": (2, 12, 9), "W_out": (2, 9, 12), "b_in": (2, 9), "b_out": (2, 12)}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_names_and_shapes_are_transformer_lens_s(make, attention, bias):
    model = make(attention=attention, bias=bias, d_mlp=9)
    for name, shape in {**SHAPES, **MLP_SHAPES}.items():
        tensor = getattr(model, name)
        assert tensor.shape == shape, name
        assert bool(tensor.any()) == (bias or not name.startswith("b_")), f"{name}: zero where there is none"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [{}, {"attention": "mssa", "tied_output": True, "step_size": 0.3}])
def test_a_heads_own_weights_are_those_of_the_stacks(make, kind, bias):
    model = make(bias=bias, **kind)
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
        for head in ((0, 2), (1, 1)):
            assert torch.equal(model.of_head(name, head), getattr(model, name)[head]), (name, head)
    with pytest.raises(ValueError, match="no queries or keys"):
        make(phi="fixed", fixed_pattern="learned").of_head("W_Q", (0, 0))


def test_mssa_has_one_matrix_three_names(make):
    model = make(attention="mssa", bias=True)
    assert torch.equal(model.W_Q, model.W_K) and torch.equal(model.W_K, model.W_V)
    assert torch.equal(model.b_Q, model.b_V)
    tied = make(attention="mssa", tied_output=True, step_size=0.3)
    torch.testing.assert_close(tied.W_O, 0.3 * tied.W_Q.transpose(-1, -2))
    assert sum(p.numel() for n, p in tied.named_parameters() if ".attn." in n) == 2 * 3 * 12 * 5


def test_gradients_reach_the_stacked_weights_parameters(make, tokens):
    model = make(attention="mssa", tied_output=True)
    model.W_O.sum().backward()
    torch.testing.assert_close(model.blocks[0].attn.U.grad, torch.ones(3, 12, 5))


def test_tied_embeddings_are_one_matrix(make, tokens):
    model = make(torch.float64, tied_embeddings=True)
    assert torch.equal(model.W_U, model.W_E.T) and "unembed.W_U" not in model.state_dict()
    _, cache = model.run_with_cache(tokens)
    final = cache["blocks.1.hook_resid_post"]
    torch.testing.assert_close(model(tokens), model.ln_final(final) @ model.W_E.T)


def test_what_is_not_there_says_so(make):
    with refused("W_in", "attention-only"):
        _ = make().W_in


def test_weights_are_a_function_of_the_seed():
    sizes = {"n_layers": 1, "d_model": 4, "n_heads": 2, "d_head": 2, "n_ctx": 3, "d_vocab": 5}
    torch.manual_seed(1)
    first = AttentionOnlyTransformer(ModelConfig(**sizes, seed=7)).state_dict()
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    second = AttentionOnlyTransformer(ModelConfig(**sizes, seed=7)).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random numbers are left alone"
    other = AttentionOnlyTransformer(ModelConfig(**sizes, seed=8)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["embed.W_E"], other["embed.W_E"])


@torch.no_grad()
@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_initial_scales(attention):
    """1/√(input width); W_O and W_out a further √(2·layers) smaller; positions as large as what they join."""
    sizes = {
        "n_layers": 2,
        "d_model": 256,
        "n_heads": 4,
        "d_head": 64,
        "n_ctx": 64,
        "d_vocab": 300,
        "d_mlp": 512,
    }
    model = AttentionOnlyTransformer(ModelConfig(**sizes, attention=attention))
    expected = {
        "W_Q": 256**-0.5, "W_V": 256**-0.5, "W_O": 256**-0.5 / 2, "W_in": 256**-0.5, "W_out": 512**-0.5 / 2,
        "W_E": 256**-0.5, "W_U": 256**-0.5, "W_pos": 256**-0.5,
    }  # fmt: skip
    for name, std in expected.items():
        assert float(getattr(model, name).std()) == pytest.approx(std, rel=0.03), name
    fixed = AttentionOnlyTransformer(ModelConfig(**sizes, attention=attention, init_std=0.02))
    for name, std in {"W_Q": 0.02, "W_O": 0.01, "W_U": 0.02, "W_pos": 0.02}.items():
        assert float(getattr(fixed, name).std()) == pytest.approx(std, rel=0.03), name
    qk = AttentionOnlyTransformer(ModelConfig(**sizes, positions="qk"))
    assert float(qk.W_pos.std()) == pytest.approx(1.0, rel=0.03)
    chosen = AttentionOnlyTransformer(ModelConfig(**sizes, positions="qk", position_init_std=0.1))
    assert float(chosen.W_pos.std()) == pytest.approx(0.1, rel=0.03)


def test_state_dictionaries_come_back(make, tokens):
    model = make(attention="mssa", phi="fixed", fixed_pattern="random", positions=None)
    other = AttentionOnlyTransformer(model.cfg)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(tokens), model(tokens))
    initialise(other)
    assert not torch.equal(other(tokens), model(tokens))


@pytest.mark.parametrize("init_std", [None, 0.05])
@pytest.mark.parametrize(
    "read_in",
    [
        {"read_in": "patches", "image_size": 28, "patch_size": 7, "n_channels": 3},
        {"read_in": "vectors", "d_in": 200},
        {"read_in": "vectors", "d_in": None},
    ],
    ids=["patches", "vectors", "the stream's own vectors"],
)
def test_positions_and_cls_start_at_the_scale_of_what_is_read_in(read_in: dict[str, Any], init_std: float | None):
    sizes = {"n_layers": 1, "d_model": 512, "n_heads": 2, "d_head": 8, "n_ctx": 17, "d_vocab": None}
    cfg = ModelConfig(**sizes, **read_in, class_token=True, read_out="classes", d_out=3, init_std=init_std)
    model = AttentionOnlyTransformer(cfg)
    shape = (64, 3, 28, 28) if "image_size" in read_in else (64, 16, read_in["d_in"] or 512)
    _, cache = model.run_with_cache(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    read = cache["hook_embed"][:, 1:].square().mean().sqrt().item()  # without [CLS]
    assert model.W_pos.square().mean().sqrt().item() == pytest.approx(read, rel=0.03)
    assert cache["hook_embed"][:, 0].square().mean().sqrt().item() == pytest.approx(read, rel=0.1)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_changed_since_is_read_again(value: float) -> None:
    model = AttentionOnlyTransformer(ModelConfig(n_layers=1, d_model=4, n_heads=2, d_head=2, n_ctx=16, d_vocab=6))

    def scores() -> object:
        return motif_scores(model, half_length=3, n_sequences=2)

    scores()
    with torch.no_grad():
        model.blocks[0].attn.W_O[1, 0, 0] = value
    with refused("blocks.0.attn.W_O", "not finite"):
        scores()
    with torch.no_grad():
        model.blocks[0].attn.W_O[1, 0, 0] = 0.0
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    scores()
    model.load_state_dict({**state, "embed.W_E": torch.full((6, 4), value)}, assign=True)  # another tensor, as new
    with refused("embed.W_E", "not finite"):
        scores()
    model.to("meta")
    with refused("meta device"):
        scores()


ROWS = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("layer", [0, 1, None])
@pytest.mark.parametrize("norm", ["layernorm", None])
def test_its_parts_make_up_the_norm(layer: int | None, norm: str | None) -> None:
    model = maker(dtype=torch.float64)(norm=norm)
    module = model.ln_final if layer is None else model.blocks[layer].ln1
    folded, weight = folded_norm(model, layer), torch.randn(3, 12, 5, dtype=torch.float64)
    expected = module(ROWS).detach()
    scale = folded.scale(ROWS)
    torch.testing.assert_close(folded.read(ROWS, scale) + folded.bias, expected)
    torch.testing.assert_close(folded.gained(folded.centre(ROWS) / scale) + folded.bias, expected)
    through = (ROWS / scale)[:, None] @ folded.into(weight) + folded.bias @ weight[:, None]
    torch.testing.assert_close(through, expected[:, None] @ weight)


@pytest.mark.parametrize("layer", [0, 1, None])
def test_a_prompts_scale(layer: int | None) -> None:
    model = maker(dtype=torch.float64)()
    _, cache = model.run_with_cache(torch.tensor([[1, 2, 3]]), return_cache_object=False)
    stream = cache[hook_names.resid_post(1) if layer is None else hook_names.resid_pre(layer)]
    folded = folded_norm(model, layer)
    torch.testing.assert_close(cache[folded.scale_hook], folded.scale(stream))
    assert torch.equal(folded_norm(maker()(norm=None), layer).scale(stream), torch.ones_like(stream[..., :1]))


def test_half_precision_is_widened_and_what_is_given_keeps_its_own() -> None:
    model = maker(dtype=torch.bfloat16)()
    folded = folded_norm(model, 0)
    assert (folded.gain.dtype, folded.into(model.W_V[0]).dtype) == (torch.float32, torch.bfloat16)
    assert folded.read(ROWS, folded.scale(ROWS)).dtype == torch.float64 and not folded.gain.requires_grad
    assert widened(ROWS) is not ROWS or not ROWS.requires_grad
    assert widened(model.W_V).dtype == torch.float32 and widened(ROWS).dtype == torch.float64
