"""x-transformers' names and conventions, against their formulas written out here (its package gave the same to 2e-6);
and `torch.nn.TransformerEncoder` with each of its options, in memory and as a state dict."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotlens
from aotlens.checkpoints import CheckpointError
from tests.interop.external.conftest import noisy
from tests.messages import refused

D, HEADS, D_HEAD, D_MLP, V, N = 12, 3, 8, 10, 17, 7
LAYERS = "attn_layers.layers."
SAID = {"heads": HEADS, "causal": True, "norm_add_unit_offset": True}
KINDS: list[dict[str, Any]] = [
    {}, {"norm": "g"}, {"rotary": 4}, {"rotary": 8, "norm": "g", "glu": True}, {"glu": True, "swish": True},
    {"tied": True}, {"mlp": False}, {"bias": False}, {"offset": False}, {"causal": False}, {"prefix": "model.net."},
]  # fmt: skip


def state_of(kind: dict[str, Any]) -> dict[str, Tensor]:
    """Random tensors under x-transformers' names, two layers of attention and two of feed-forward in turn."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) / math.sqrt(shape[-1])

    norm, state = kind.get("norm", "gamma"), {"token_emb.emb.weight": drawn(V, D), "attn_layers.final_norm.x": drawn(D)}
    if kind.get("rotary"):
        state["attn_layers.rotary_pos_emb.inv_freq"] = 1000.0 ** -(torch.arange(0, kind["rotary"], 2) / kind["rotary"])
    else:
        state["pos_emb.emb.weight"] = 3 * drawn(N, D)
    if not kind.get("tied"):
        state["to_logits.weight"] = drawn(V, D)
    step = 2 if kind.get("mlp", True) else 1
    for number in range(2 * step):
        layer = f"{LAYERS}{number}."
        state[f"{layer}0.0.x"] = drawn(D)
        if number % step == 0:
            state |= {f"{layer}1.to_{letter}.weight": 2 * drawn(HEADS * D_HEAD, D) for letter in "qkv"}
            state[f"{layer}1.to_out.weight"] = drawn(D, HEADS * D_HEAD)
            continue
        into, rows = ("ff.0.proj", 2 * D_MLP) if kind.get("glu") else ("ff.0.0", D_MLP)
        state |= {f"{layer}1.{into}.weight": drawn(rows, D), f"{layer}1.ff.2.weight": drawn(D, D_MLP)}
        if kind.get("bias", True):
            state |= {f"{layer}1.{into}.bias": drawn(rows), f"{layer}1.ff.2.bias": drawn(D)}
    return {name.replace(".x", f".{norm}"): tensor for name, tensor in state.items()}


def logits_of(state: dict[str, Tensor], kind: dict[str, Any], tokens: Tensor) -> Tensor:
    """The formulas."""
    norm, offset = kind.get("norm", "gamma"), float(kind.get("offset", True))

    def normed(x: Tensor, name: str) -> Tensor:
        gain = state[f"{name}.{norm}"] + offset
        return gain * (F.normalize(x, dim=-1) * math.sqrt(D) if norm == "g" else F.layer_norm(x, (D,)))

    def turned(x: Tensor) -> Tensor:  # pairs of neighbours, of the first coordinates
        turns = state.get("attn_layers.rotary_pos_emb.inv_freq")
        if turns is None:
            return x
        angle = torch.arange(x.shape[-2])[:, None] * turns
        pairs = torch.view_as_complex(x[..., : 2 * len(turns)].unflatten(-1, (-1, 2)).contiguous())
        return torch.cat([torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2),
                          x[..., 2 * len(turns) :]], -1)  # fmt: skip

    E = state["token_emb.emb.weight"]
    x = E[tokens]
    if "pos_emb.emb.weight" in state:
        x = x + state["pos_emb.emb.weight"][: tokens.shape[1]] / math.sqrt(D)
    for number in range(1 + max(int(name.split(".")[2]) for name in state if name.startswith(LAYERS))):
        layer = f"{LAYERS}{number}."
        into = normed(x, f"{layer}0.0")
        if f"{layer}1.to_q.weight" in state:
            side_by_side = (F.linear(into, state[f"{layer}1.to_{each}.weight"]) for each in "qkv")
            q, k, v = (each.unflatten(-1, (HEADS, D_HEAD)).transpose(1, 2) for each in side_by_side)
            scores = turned(q) @ turned(k).mT / math.sqrt(D_HEAD)
            if kind.get("causal", True):
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
            x = x + F.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2), state[f"{layer}1.to_out.weight"])
            continue
        act = F.silu if kind.get("swish") else F.gelu
        name = f"{layer}1.ff.0.proj" if kind.get("glu") else f"{layer}1.ff.0.0"
        hidden = F.linear(into, state[f"{name}.weight"], state.get(f"{name}.bias"))
        plain, gate = hidden.chunk(2, -1) if kind.get("glu") else (1.0, hidden)
        x = x + F.linear(plain * act(gate), state[f"{layer}1.ff.2.weight"], state.get(f"{layer}1.ff.2.bias"))
    x = normed(x, "attn_layers.final_norm")
    return x @ (state["to_logits.weight"] if "to_logits.weight" in state else E / math.sqrt(D)).T


@pytest.mark.filterwarnings("ignore:.*comes without")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_its_logits_are_those_of_the_formulas(kind: dict[str, Any], tmp_path: Path) -> None:
    state, tokens = state_of(kind), torch.randint(V, (2, N), generator=torch.Generator().manual_seed(1))
    expected = logits_of(state, kind, tokens)
    torch.save({kind.get("prefix", "") + name: tensor for name, tensor in state.items()}, tmp_path / "m.pt")
    said = {**SAID, "causal": kind.get("causal", True), "norm_add_unit_offset": kind.get("offset", True)}
    with pytest.warns(UserWarning, match="UNCHECKED: options of x-transformers"):
        model = aotlens.load(tmp_path / "m.pt", "cpu", config={**said, "ff_swish": kind.get("swish", False)})
    torch.testing.assert_close(model(tokens), expected, rtol=1e-5, atol=1e-5)
    assert model.cfg.n_layers == 2 and model.cfg.attn_only == (not kind.get("mlp", True))


@pytest.mark.filterwarnings("ignore:.*comes without")
def test_another_model_of_the_same_tensors_is_refused_by_its_logits(tmp_path: Path) -> None:
    state, tokens = state_of({"glu": True}), torch.arange(N)[None]
    torch.save(state, tmp_path / "m.pt")
    expected = logits_of(state, {"glu": True, "swish": True}, tokens)
    with refused("another model", error=CheckpointError):
        aotlens.load(tmp_path / "m.pt", "cpu", config=SAID, check=(tokens, expected))
    aotlens.load(tmp_path / "m.pt", "cpu", config={**SAID, "ff_swish": True}, check=(tokens, expected))


@pytest.mark.parametrize(("changes", "words"), [
    ({}, ("heads", "causal", "norm_add_unit_offset")),
    ({f"{LAYERS}0.0.0.gamma": None, **SAID}, ("norms elsewhere than before the layers",)),
    ({f"{LAYERS}99999999999.0.0.gamma": torch.ones(D), **SAID}, ("each of 100,000,000,000 layers",)),
    ({f"{LAYERS}3.1.to_q.weight": torch.ones(24, D), **SAID}, ("another order than attention, feed-forward",)),
    ({f"{LAYERS}0.1.to_k.weight": torch.ones(8, D), **SAID}, ("keys or values of another width",)),
    ({f"{LAYERS}1.1.ff.0.0.weight": torch.ones(3), **SAID}, ("of two dimensions",)),
    ({f"{LAYERS}1.1.ff.0.0.weight": None, **SAID}, ("1.1.ff.0.0.weight",)),
    ({"pos_emb.emb.weight": None, "attn_layers.rotary_pos_emb.inv_freq": torch.ones(1), **SAID}, ("2 frequencies",)),
    ({"pos_emb.emb.weight": None, "attn_layers.rotary_pos_emb.inv_freq": torch.zeros(3), **SAID}, ("base",)),
    ({**SAID, "heads": 5}, ("heads=5 for queries of width 24",)),
    ({**SAID, "heads": 0}, ("heads=0",)),
    ({**SAID, "heads": 10**30}, ("heads",)),
    ({"rel_pos.weight": torch.ones(2), **SAID}, ("unknown tensors rel_pos.weight",)),
], ids=lambda each: " ".join(map(str, each))[:40])  # fmt: skip
def test_what_it_cannot_be_is_refused_by_name(changes: dict[str, Any], words: tuple[str, ...], tmp_path: Path) -> None:
    tensors = {name: value for name, value in changes.items() if "." in name}
    state = {name: value for name, value in (state_of({}) | tensors).items() if value is not None}
    torch.save(state, tmp_path / "m.pt")
    with refused(*words, error=CheckpointError):
        aotlens.load(tmp_path / "m.pt", "cpu", config={n: v for n, v in changes.items() if n not in tensors})


def encoder(final: bool = True, **options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    given = {"nhead": 3, "dim_feedforward": 10, "batch_first": True, "layer_norm_eps": 1e-3, **options}
    layer = nn.TransformerEncoderLayer(12, dropout=0.0, **given)
    norm = nn.LayerNorm(12, eps=given["layer_norm_eps"]) if final else None
    made = noisy(nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False))
    assert isinstance(made, nn.TransformerEncoder)
    return made


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*comes without")
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("options", [
    {}, {"norm_first": True}, {"activation": "gelu"}, {"activation": nn.GELU("tanh"), "norm_first": True},
    {"bias": False}, {"activation": nn.SiLU()},
])  # fmt: skip
def test_vectors_are_those_of_the_encoder(options: dict[str, Any], final: bool) -> None:
    theirs = encoder(final, **options)
    ours = aotlens.load(theirs, "cpu")
    assert ours.cfg.norm_place == ("before" if options.get("norm_first") else "after")
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    _, cache = ours.run_with_cache(x)
    torch.testing.assert_close(cache["resid_post", 0], theirs.layers[0](x), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*the file does not state")
@torch.no_grad()
def test_a_state_dict_is_asked_what_shapes_do_not_tell(tmp_path: Path) -> None:
    theirs = encoder(activation="gelu")
    torch.save(theirs.state_dict(), tmp_path / "m.pt")
    with refused("nhead", "norm_first", "activation", error=CheckpointError):
        aotlens.load(tmp_path / "m.pt", "cpu")
    said = {"nhead": 3, "norm_first": False, "activation": "gelu", "layer_norm_eps": 1e-3}
    x = torch.randn(1, 5, 12)
    torch.testing.assert_close(aotlens.load(tmp_path / "m.pt", "cpu", config=said)(x), theirs(x), rtol=1e-5, atol=1e-5)
    with refused("nhead=5 for d_model=12", "activation='mish'", error=CheckpointError):
        aotlens.load(tmp_path / "m.pt", "cpu", config={**said, "nhead": 5, "activation": "mish"})


def test_layers_of_different_options_are_refused() -> None:
    theirs = encoder()
    theirs.layers[1].norm_first = True
    with refused("with the same options"):
        aotlens.load(theirs, "cpu")
    other = encoder()
    other.norm = nn.LayerNorm(12, eps=1e-2)
    with refused("the layers' eps"):
        aotlens.load(other, "cpu")
