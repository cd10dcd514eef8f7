"""Prompts without a head or a path: against a model that is linear, a naive loop, and the ablation of heads."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from aotlens.heads import ablate
from aotlens.paths import Path, expand, without_head, without_path
from tests.paths.conftest import KINDS, MLPS
from tests.small_models import MakeModel

WITH_MLPS = KINDS | {"mlps": MLPS["mlps"]}
CAUSAL = [kind for kind in WITH_MLPS if kind not in ("bidirectional", "masked")]


@pytest.mark.parametrize("kind", ["fixed", "learned pattern"])
@pytest.mark.parametrize("split", [False, True])
def test_without_norm_and_with_fixed_patterns_nothing_but_the_path_is_lost(
    make: MakeModel, tokens: Tensor, kind: str, split: bool
):
    """Such a model is linear: the forward pass and the expansion must agree for every path, biases included."""
    model = make(**KINDS[kind], norm=None, bias=True, positions="learned")
    expansion = expand(model, tokens, split_sources=split)
    paths = list(expansion.paths())
    for path in paths[:: 1 if not split else 3]:
        found = without_path(expansion, path)
        torch.testing.assert_close(found.forward, found.linear, rtol=0, atol=1e-9, msg=str(path))
        assert not torch.allclose(found.linear, found.clean)
    found = without_head(expansion, (0, 1))
    torch.testing.assert_close(found.forward, found.linear, rtol=0, atol=1e-9)


def naive_head(model, layer: int, head: int, x: Tensor) -> Tensor:
    """One softmax head with a pre-norm, written out query by query."""
    norm = model.blocks[layer].ln1
    centred = x - x.mean(-1, keepdim=True)
    read = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w + norm.b
    q = read @ model.W_Q[layer, head] + model.b_Q[layer, head]
    k = read @ model.W_K[layer, head] + model.b_K[layer, head]
    v = read @ model.W_V[layer, head] + model.b_V[layer, head]
    out = []
    for i in range(len(x)):
        scores = torch.stack([q[i] @ k[j] for j in range(i + 1)]) / k.shape[1] ** 0.5
        out.append(scores.softmax(0) @ v[: i + 1] @ model.W_O[layer, head])
    return torch.stack(out)


@pytest.mark.parametrize("at", [None, 1])
def test_a_path_is_patched_as_a_naive_loop_does(make: MakeModel, tokens: Tensor, at: int | None):
    model = make(norm="layernorm", bias=True, positions="learned")
    expansion = expand(model, tokens, split_sources=at is not None)
    embedded = model.W_E[tokens]
    streams = [embedded + model.W_pos[: len(tokens)]]
    for layer in range(2):
        heads = sum(naive_head(model, layer, head, streams[-1]) for head in range(2))
        streams.append(streams[-1] + heads + model.b_O[layer])
    lost = torch.zeros_like(embedded)
    rows = slice(None) if at is None else slice(at, at + 1)
    lost[rows] = embedded[rows]
    for layer, head in ((0, 1), (1, 0)):
        lost = naive_head(model, layer, head, streams[layer]) - naive_head(model, layer, head, streams[layer] - lost)
    x = streams[2] - lost
    centred = x - x.mean(-1, keepdim=True)
    norm = model.ln_final
    read = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w + norm.b
    found = without_path(expansion, Path("token", ((0, 1), (1, 0)), at))
    torch.testing.assert_close(found.forward, read @ model.W_U + model.b_U, rtol=0, atol=1e-9)
    assert not torch.allclose(found.forward, found.linear, atol=1e-3)


def naive_mlp(model, layer: int, x: Tensor) -> Tensor:
    block = model.blocks[layer]
    centred = x - x.mean(-1, keepdim=True)
    read = centred / (centred.pow(2).mean(-1, keepdim=True) + block.ln2.eps).sqrt() * block.ln2.w + block.ln2.b
    return block.mlp.activation(read @ model.W_in[layer] + model.b_in[layer]) @ model.W_out[layer] + model.b_out[layer]


@pytest.mark.parametrize("at", [None, 1])
@pytest.mark.parametrize(
    "path", [Path("token", ((0, 1), (2, 0))), Path("mlp_0", ((1, 1),)), Path("mlp_1"), Path("bias", ((1, 0),))], ids=str
)
def test_what_a_path_lacks_passes_mlps_anew(make: MakeModel, tokens: Tensor, path: Path, at: int | None):
    model = make(norm="layernorm", bias=True, positions="learned", n_layers=3, d_mlp=5)
    expansion = expand(model, tokens, split_sources=at is not None)
    x = model.W_E[tokens] + model.W_pos[: len(tokens)]
    one = torch.ones(5, 1) if at is None else (torch.arange(5) == at)[:, None].double()
    lost, heads = (model.W_E[tokens] if path.source == "token" else torch.zeros_like(x)) * one, dict(path.heads)
    for layer in range(3):
        middle = x + sum(naive_head(model, layer, head, x) for head in range(2)) + model.b_O[layer]
        if layer in heads:
            head = heads[layer]
            lesser = naive_head(model, layer, head, x - lost)
            if path.source == "bias":  # its first head loses its own biases of values as well
                norm = model.blocks[layer].ln1
                own = one * (norm.b @ model.W_V[layer, head] + model.b_V[layer, head])
                centred = x - lost - (x - lost).mean(-1, keepdim=True)
                read = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w + norm.b
                q = read @ model.W_Q[layer, head] + model.b_Q[layer, head]
                k = read @ model.W_K[layer, head] + model.b_K[layer, head]
                hidden = torch.full((5, 5), -torch.inf, dtype=torch.float64).triu(1)
                lesser = lesser - (q @ k.T / 3**0.5 + hidden).softmax(-1) @ own @ model.W_O[layer, head]
            lost = naive_head(model, layer, head, x) - lesser
        elif path.source == "bias" and layer < path.heads[0][0]:
            lost = lost + one * model.b_O[layer]
        lost = lost + naive_mlp(model, layer, middle) - naive_mlp(model, layer, middle - lost)
        if layer == path.source_layer:
            lost = naive_mlp(model, layer, middle) * one
        x = middle + naive_mlp(model, layer, middle)
    torch.testing.assert_close(expansion.frozen.logits, read_out(model, x), rtol=0, atol=1e-9)
    found = without_path(expansion, Path(path.start, path.heads, at))
    torch.testing.assert_close(found.forward, read_out(model, x - lost), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.clean - found.linear, expansion.logits(Path(path.start, path.heads, at)))
    assert not torch.allclose(found.forward, found.linear, atol=1e-3)


def read_out(model, x: Tensor) -> Tensor:
    centred, norm = x - x.mean(-1, keepdim=True), model.ln_final
    read = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w + norm.b
    return read @ model.W_U + model.b_U


@pytest.mark.parametrize("source", ["token", "position", "mlp_0"])
def test_a_source_without_heads_is_one_that_mlps_alone_miss(make: MakeModel, tokens: Tensor, source: str):
    """On the model itself: the source is 0, and every attention layer writes what it did."""
    model = make(norm="layernorm", bias=True, positions="learned", n_layers=3, d_mlp=5)
    _, cache = model.run_with_cache(tokens[None])
    hooks = [(f"blocks.{layer}.hook_attn_out", lambda x, hook: cache[hook.name]) for layer in range(3)]
    place = {"token": "hook_embed", "position": "hook_pos_embed", "mlp_0": "blocks.0.hook_mlp_out"}[source]
    expected = model.run_with_hooks(tokens[None], fwd_hooks=[*hooks, (place, lambda x, hook: torch.zeros_like(x))])
    found = without_path(expand(model, tokens), Path(source))
    torch.testing.assert_close(found.forward, expected[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", CAUSAL)
def test_without_a_head_is_its_ablation(make: MakeModel, tokens: Tensor, kind: str):
    model = make(**WITH_MLPS[kind], norm="layernorm", bias=True)
    expansion = expand(model, tokens)
    found = without_head(expansion, (1, 1))
    ablated = ablate(model, tokens[None], (1, 1))
    frame = found.to_frame(2, 4)
    assert frame.loc["mean_loss", "clean"] == pytest.approx(ablated.clean_mean, abs=1e-9)
    assert frame.loc["mean_loss", "forward"] == pytest.approx(ablated.ablated_mean, abs=1e-9)
    assert frame.loc["loss", "forward"] == pytest.approx(float(ablated.ablated_loss_per_token[0, 2]), abs=1e-9)
    through = expansion.through((1, 1), 4)[2]
    change = frame.loc["logit", "linear"] - frame.loc["logit", "clean"]
    assert change == pytest.approx(-float(through), abs=1e-9)


def test_what_a_frame_says(make: MakeModel, tokens: Tensor):
    expansion = expand(make(norm="layernorm", positions="learned"), tokens, split_sources=True)
    found = without_path(expansion, Path("position", ((1, 0),), 2))
    difference, single = found.to_frame(3, (4, 7)), found.to_frame(3, 4)
    for column, logits in (("clean", found.clean), ("forward", found.forward), ("linear", found.linear)):
        assert difference.loc["logit", column] == pytest.approx(float(logits[3, 4] - logits[3, 7]))
        assert single.loc["logit", column] == pytest.approx(float(logits[3, 4]))
        assert single.loc["probability", column] == pytest.approx(float(logits[3].softmax(-1)[4]))
    assert "loss" in single.index and "loss" not in found.to_frame(-1, 4).index
    assert "mean_loss" not in without_head(expand(make(), tokens[:1]), (0, 0)).to_frame(0, 1).index


def test_a_frame_of_what_is_not_there_is_refused(make: MakeModel, tokens: Tensor):
    found = without_head(expand(make(), tokens), (0, 0))
    for position, target, message in (
        (0, (2, 2), "two different outputs"),
        (0, -1, "output 0 to 8"),
        (0, 9, "output 0 to 8"),
        (5, 2, "position=5: expected a whole number from -5 to 4"),
    ):
        with pytest.raises(ValueError, match=message):
            found.to_frame(position, target)  # type: ignore[arg-type]


def test_the_model_is_as_before_and_what_cannot_be_done_is_refused(make: MakeModel, tokens: Tensor):
    model = make(bias=True)
    expansion = expand(model, tokens, split_sources=True)
    before = model(tokens[None])
    without_path(expansion, Path("bias", ((0, 0),), 1))
    without_head(expansion, (0, 0))
    assert not model.list_hooks()
    torch.testing.assert_close(model(tokens[None]), before, rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"head 2\.0"):
        without_head(expansion, (2, 0))
    with pytest.raises(ValueError, match="source position"):
        without_path(expansion, Path("token", ((0, 0),), 9))
    with pytest.raises(ValueError, match="writes logits"):
        without_head(expand(make(read_out="vectors", d_out=None), tokens), (0, 0))


@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"read_out": "classes", "d_out": 3, "pooling": "mean"}])
def test_losses_of_labels(make: MakeModel, tokens: Tensor, changes: dict):
    """`targets` are labels, whose losses are those of the model's own forward without the head's output matrix."""
    model = make(norm="layernorm", bias=True, **changes)
    classes = "read_out" in changes
    targets = torch.tensor([2]) if classes else torch.tensor([1, -100, 0, -100, 2])
    lesser = copy.deepcopy(model)
    with torch.no_grad():
        lesser.blocks[1].attn.W_O[1] = 0.0
    found = without_head(expand(model, tokens), "1.1")
    frame = found.to_frame(0, 2, targets)
    labels = targets if classes else targets[None]
    for column, of in (("clean", model), ("forward", lesser)):
        losses = of(tokens[None], return_type="loss", loss_per_token=True, targets=labels).flatten()
        assert frame.loc["loss", column] == pytest.approx(losses[0].item())
        assert frame.loc["mean_loss", column] == pytest.approx(losses.sum().item() / int((targets != -100).sum()))
    path = Path("token", ((1, 1),)) if classes else Path("bias")
    whole = without_path(expand(model, tokens), path)
    assert whole.forward.shape == whole.clean.shape
    assert ("loss" in found.to_frame(0, 2).index) == (not changes)
    if not classes:
        assert "loss" not in found.to_frame(1, 2, targets).index
        for wrong in (targets[:3], targets.double(), targets + 99):
            with pytest.raises(ValueError, match="targets: expected 5 labels"):
                found.to_frame(0, 2, wrong)
