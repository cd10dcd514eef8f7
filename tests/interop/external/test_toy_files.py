"""Small models of others: heads stored apart, embeddings as in 2022; against code of theirs written out here."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotlens
from aotlens.interop.external.material import read_material
from tests.interop.external.conftest import TOKENS, noisy
from tests.messages import refused


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(6, 4, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(7, 7)))

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        scores = self.query(x) @ self.key(x).mT / math.sqrt(4)
        return scores.masked_fill(self.tril[:n, :n] == 0, -math.inf).softmax(-1) @ self.value(x)


class Lecture(nn.Module):
    """The model of a well-known lecture on GPT: heads in a ModuleList, norms before the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.norm, self.read_out = (
            nn.Embedding(9, 6), nn.Embedding(7, 6), nn.LayerNorm(6), nn.Linear(6, 9),
        )  # fmt: skip
        self.blocks = nn.ModuleList(
            [nn.ModuleDict({
                "heads": nn.ModuleList([Head() for _ in range(3)]), "proj": nn.Linear(12, 6), "ln1": nn.LayerNorm(6),
            }) for _ in range(2)]
        )  # fmt: skip

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            normed = block["ln1"](x)
            x = x + block["proj"](torch.cat([head(normed) for head in block["heads"]], -1))
        return self.read_out(self.norm(x))


SIZES: dict[str, Any] = {
    "n_layers": 2, "d_model": 6, "n_heads": 3, "d_head": 4, "n_ctx": 7, "d_vocab": 9, "bias": True, "qkv_bias": False,
}  # fmt: skip
HEADS = {
    f"blocks.{{layer}}.heads.{{head}}.{theirs}.weight": f"blocks.{{layer}}.attn.W_{theirs[0].upper()}.T"
    for theirs in ("query", "key", "value")
}
KEY_MAP: dict[str, str | None] = {
    **HEADS, "blocks.{layer}.heads.{head}.tril": None, "blocks.{layer}.proj.weight": "blocks.{layer}.attn.W_O.T",
    "blocks.*.proj.bias": "blocks.*.attn.b_O", "blocks.*.ln1.weight": "blocks.*.ln1.w",
    "blocks.*.ln1.bias": "blocks.*.ln1.b", "norm.weight": "ln_final.w", "norm.bias": "ln_final.b",
    "tokens.weight": "embed.W_E", "places.weight": "pos_embed.W_pos", "read_out.weight": "unembed.W_U.T",
    "read_out.bias": "unembed.b_U",
}  # fmt: skip


@torch.no_grad()
def test_heads_that_are_stored_apart_are_stacked_in_their_order(tmp_path: Path) -> None:
    theirs = noisy(Lecture())
    state = dict(reversed(theirs.state_dict().items()))  # the order in the file says nothing
    torch.save(state, tmp_path / "m.pt")
    check = (TOKENS, theirs(TOKENS))
    model = aotlens.load(tmp_path / "m.pt", "cpu", config=SIZES, key_map=KEY_MAP, check=check)
    torch.testing.assert_close(model(TOKENS), theirs(TOKENS), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.W_K[1, 2], theirs.blocks[1]["heads"][2].key.weight.mT)
    del state["blocks.1.heads.1.key.weight"]
    torch.save(state, tmp_path / "m.pt")
    with refused("missing head 1 of blocks.1.attn.W_K", "n_heads"):
        aotlens.load(tmp_path / "m.pt", config=SIZES, key_map=KEY_MAP)


@torch.no_grad()
def test_heads_as_matrices_of_a_list_and_in_three_parts(tmp_path: Path) -> None:
    """`W_Q.2` as a ParameterList names it, and queries, keys and values of a head side by side."""
    source = noisy(aotlens.AttentionOnlyTransformer(aotlens.ModelConfig(**SIZES | {"bias": False, "qkv_bias": None})))
    state = dict(source.state_dict())
    for layer in range(2):
        name = f"blocks.{layer}.attn"
        parts = [state.pop(f"{name}.W_{part}") for part in "QKV"]
        for head, out in enumerate(state.pop(f"{name}.W_O")):
            state[f"{name}.qkv{head}"] = torch.cat([part[head] for part in parts], -1)
            state[f"{name}.W_O.{head}"] = out
    torch.save(state, tmp_path / "m.pt")
    key_map = {
        "blocks.{layer}.attn.W_O.{head}": "blocks.{layer}.attn.W_O",
        "blocks.*.attn.qkv{head}": "blocks.*.attn.W_QKV",
    }
    check = (TOKENS, source(TOKENS))
    aotlens.load(tmp_path / "m.pt", "cpu", config=source.cfg, key_map=key_map, check=check)


@pytest.mark.parametrize(
    ("theirs", "ours", "parts"),
    [
        ("blocks.{layer}.proj.weight", "blocks.0.attn.W_O.T", ("{layer}", "both sides")),
        ("blocks.{layer}.heads.{head}.key.weight", "blocks.{layer}.attn.W_K.{head}.T", ("{head}", "on theirs")),
        (
            "blocks.{layer}.heads.{head}.key.weight",
            "blocks.{layer}.attn.W_Q.T",
            ("given twice", "0.query.weight"),
        ),
        ("blocks.{layer}.heads.{head}.key.weight", "blocks.*.ln1.w", ("{layer}", "both sides")),
        ("blocks.{layer}.heads.{head}.key.weight", "blocks.{layer}.ln1.w", ("head 0 of blocks.0.ln1.w", "0 heads")),
        ("blocks.{head}.heads.{head}.key.weight", "embed.W_E", ("{head}", "at most once")),
    ],
)
def test_maps_of_heads_that_cannot_be(tmp_path: Path, theirs: str, ours: str, parts: tuple[str, ...]) -> None:
    torch.save(Lecture().state_dict(), tmp_path / "m.pt")
    with refused(*parts):
        aotlens.load(tmp_path / "m.pt", config=SIZES, key_map={**KEY_MAP, theirs: ours})


def test_more_heads_than_the_model_has(tmp_path: Path) -> None:
    torch.save(Lecture().state_dict(), tmp_path / "m.pt")
    with refused("blocks.0.heads.2", "head 2 of blocks.0.attn.W_", "2 heads"):
        aotlens.load(tmp_path / "m.pt", config={**SIZES, "n_heads": 2}, key_map=KEY_MAP)


def state_of_2022(d_vocab: int, d_model: int = 6) -> dict[str, Tensor]:
    """A state dict as code on grokking stored it: every matrix [out, in] but that of the read-out."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return 0.5 * torch.randn(*shape, generator=generator)

    block = "blocks.0"
    return {
        "embed.W_E": draw(d_model, d_vocab), "pos_embed.W_pos": draw(7, d_model),
        **{f"{block}.attn.W_{part}": draw(3, 4, d_model) for part in "KQV"}, f"{block}.attn.W_O": draw(d_model, 12),
        f"{block}.attn.mask": torch.ones(7, 7).tril(), f"{block}.mlp.W_in": draw(5, d_model),
        f"{block}.mlp.b_in": draw(5), f"{block}.mlp.W_out": draw(d_model, 5), f"{block}.mlp.b_out": draw(d_model),
        "unembed.W_U": draw(d_model, d_vocab),
    }  # fmt: skip


def logits_of_2022(state: dict[str, Tensor], tokens: Tensor) -> Tensor:
    n = tokens.shape[1]
    part = {name.rsplit(".", 1)[-1]: tensor for name, tensor in state.items()}
    x = torch.einsum("dbp->bpd", part["W_E"][:, tokens]) + part["W_pos"][:n]
    q, k, v = (torch.einsum("ihd,bpd->biph", part[f"W_{name}"], x) for name in "QKV")
    scores = torch.einsum("biph,biqh->biqp", k, q) / math.sqrt(4)
    pattern = scores.masked_fill(part["mask"][:n, :n] == 0, -1e10).softmax(-1)
    z = torch.einsum("biph,biqp->biqh", v, pattern).transpose(1, 2).flatten(2)
    x = x + torch.einsum("df,bqf->bqd", part["W_O"], z)
    x = x + F.relu(x @ part["W_in"].mT + part["b_in"]) @ part["W_out"].mT + part["b_out"]
    return x @ part["W_U"]


UNSAID = {
    "normalization_type": None, "positional_embedding_type": "standard", "attention_dir": "causal", "act_fn": "relu",
}  # fmt: skip


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*read as zero")
def test_matrices_of_2022_are_recognised_by_shape_and_asked_for_where_square(tmp_path: Path) -> None:
    path, state = tmp_path / "m.pth", state_of_2022(d_vocab=9)
    torch.save(state, path)
    with pytest.warns(UserWarning, match="read transposed"):
        model = aotlens.load(path, "cpu", config=UNSAID, check=(TOKENS, logits_of_2022(state, TOKENS)))
    torch.testing.assert_close(model.W_E, state["embed.W_E"].mT)
    state = state_of_2022(d_vocab=9, d_model=9)
    torch.save(state, path)
    with refused("do not tell W_E", "'d_model d_vocab'", "W_U"):
        aotlens.load(path, config=UNSAID)
    said = {**UNSAID, "W_E": "d_model d_vocab", "W_U": "d_model d_vocab"}
    with pytest.warns(UserWarning, match="read transposed"):
        aotlens.load(path, "cpu", config=said, check=(TOKENS, logits_of_2022(state, TOKENS)))


@torch.no_grad()
@pytest.mark.parametrize("d_vocab", [9, 6])
@pytest.mark.filterwarnings("ignore:.*(UNCHECKED|read as zero)")
def test_an_embedding_of_2022_beside_a_key_map(tmp_path: Path, d_vocab: int) -> None:
    path, state, short = tmp_path / "m.pth", state_of_2022(d_vocab), TOKENS % 6
    torch.save({name.replace("blocks.", "attn_blocks."): tensor for name, tensor in state.items()}, path)
    names = {f"attn.W_{part}": f"attn.W_{part}.T" for part in "QKVO"} | {
        "mlp.W_in": "mlp.W_in.T", "mlp.W_out": "mlp.W_out.T", "mlp.b_in": "mlp.b_in", "mlp.b_out": "mlp.b_out",
    }  # fmt: skip
    key_map: dict[str, str | None] = {f"attn_blocks.*.{theirs}": f"blocks.*.{ours}" for theirs, ours in names.items()}
    options: dict[str, Any] = {
        "config": {**SIZES, "n_layers": 1, "d_vocab": d_vocab, "d_mlp": 5, "act_fn": "relu", "norm": None},
        "key_map": {**key_map, "attn_blocks.*.attn.mask": None}, "check": (short, logits_of_2022(state, short)),
    }  # fmt: skip
    if d_vocab == 9:
        with pytest.warns(UserWarning, match=r"embed.W_E is \[d_model, d_vocab\]"):
            aotlens.load(path, "cpu", **options)
        return
    with refused("embed.W_E", "[6, 6]", "embed.W_E.T"):
        aotlens.load(path, "cpu", **options)
    options["key_map"]["embed.W_E"] = "embed.W_E.T"
    aotlens.load(path, "cpu", **options)


@torch.no_grad()
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_plain_pickle_of_a_state_dict(tmp_path: Path, protocol: int) -> None:
    """Each storage in it is bytes, in torch.save's form of before 1.6; two views share one, one is bfloat16."""
    path, whole = tmp_path / "m.pkl", torch.randn(4, 6)
    state = {"a.weight": whole, "a.rows": whole[1:, 2:], "b": torch.randn(3).bfloat16(), "c": torch.arange(3)}
    path.write_bytes(pickle.dumps({"state_dict": state, "epoch": 3}, protocol=protocol))
    if protocol == 2:
        with refused("m.pkl", "a protocol before 3", "save model.state_dict()"):
            read_material(path)
        return
    tensors = read_material(path).tensors
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        name: each.dtype for name, each in state.items()
    }
    assert all(torch.equal(tensors[name], tensor) for name, tensor in state.items())


def test_a_plain_pickle_that_lies(tmp_path: Path) -> None:
    """A storage in a storage, one that is not bytes, one that claims more than its bytes, one cut short."""
    path, program = tmp_path / "m.pkl", pickle.dumps({"a": torch.ones(4)}, protocol=4)
    call = b"ctorch.storage\n_load_from_bytes\n"
    nested = b"\x80\x02" + call + b"]\x85R."
    hostile = {
        "calls torch.storage._load_from_bytes": b"\x80\x04" + call + b"C" + bytes([len(nested)]) + nested + b"\x85R.",
        "in no bytes": b"\x80\x04" + call + b"]\x85R.",
        "a storage of 4 numbers": program.replace(b"K\x04\x85", b"K\x09\x85"),
        "damaged": program[:-40],
    }
    for message, content in hostile.items():
        path.write_bytes(content)
        with refused("m.pkl", message):
            read_material(path)
