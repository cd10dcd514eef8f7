"""Files in exactly the formats that others write, with random weights: logits of their own code to 1e-5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from transformer_lens.model_bridge import TransformerBridge

import aotlens
from aotlens.heads import motif_scores
from aotlens.interop import open_external
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.interop.external.conftest import (
    TOKENS,
    HookedTransformer,
    HookedTransformerConfig,
    NanoGPT,
    noisy,
    write_json,
    write_nanogpt,
)
from tests.interop.test_legacy import legacy_logits, legacy_state, unsaid
from tests.messages import refused

pytestmark = pytest.mark.filterwarnings("ignore:.*`loss_type=None`.*")


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


# --- Hugging Face's GPT-2


@torch.no_grad()
@pytest.mark.parametrize("safe", [True, False], ids=["model.safetensors", "pytorch_model.bin"])
def test_a_gpt2_folder(gpt2, tmp_path, safe):
    if safe:
        gpt2.save_pretrained(tmp_path)
    else:
        gpt2.config.save_pretrained(tmp_path)
        masks = {f"transformer.h.{layer}.attn.bias": torch.ones(1, 1, 8, 8).tril() for layer in range(2)}
        torch.save({**gpt2.state_dict(), **masks}, tmp_path / "pytorch_model.bin")
    opened = open_external(tmp_path, device="cpu")
    model = opened.model
    same(model(TOKENS), gpt2(TOKENS).logits)
    assert isinstance(model, AttentionOnlyTransformer)
    assert model.cfg.tied_embeddings and model.cfg.bias and not model.cfg.has_read_out_bias
    assert (model.cfg.act_fn, model.cfg.norm_eps, model.cfg.d_mlp) == ("gelu_new", 1e-4, 48)
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    masks_dropped = () if safe else ("lm_head.weight", *(f"transformer.h.{layer}.attn.bias" for layer in range(2)))
    assert opened.dropped == masks_dropped and opened.absent == ()
    same(aotlens.load(tmp_path, "cpu")(TOKENS), gpt2(TOKENS).logits)
    assert "Hugging Face's GPT-2" in aotlens.load(tmp_path, "cpu").card.description


@torch.no_grad()
def test_gpt2_without_its_read_out_and_in_half_precision(gpt2, tmp_path):
    """`GPT2Model` is saved without `transformer.` before its names; the read-out is the embedding all the same."""
    expected = gpt2(TOKENS).logits
    gpt2.transformer.save_pretrained(tmp_path / "headless")
    same(aotlens.load(tmp_path / "headless", "cpu")(TOKENS), expected)
    half = gpt2.to(torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    model = aotlens.load(tmp_path / "half", "cpu")
    assert model.dtype == torch.float32
    same(model(TOKENS), half.float()(TOKENS).logits)


@torch.no_grad()
def test_an_untied_gpt2_with_another_activation_and_unscaled_scores(tmp_path):
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, n_positions=8, vocab_size=11, n_inner=10, activation_function="relu",
        scale_attn_weights=False, tie_word_embeddings=False,
    )  # fmt: skip
    theirs = noisy(transformers.GPT2LMHeadModel(config))
    theirs.save_pretrained(tmp_path)
    model = aotlens.load(tmp_path, "cpu")
    same(model(TOKENS), theirs(TOKENS).logits)
    assert (model.cfg.attn_scale, model.cfg.d_mlp, model.cfg.tied_embeddings) == (1.0, 10, False)


@torch.no_grad()
def test_a_sharded_gpt2(gpt2, tmp_path):
    gpt2.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    same(aotlens.load(tmp_path, "cpu")(TOKENS), gpt2(TOKENS).logits)
    next(tmp_path.glob("model-00001*.safetensors")).unlink()
    with refused("model-00001-of-", "not found"):
        aotlens.load(tmp_path)


def test_a_gpt2_outside_the_family(gpt2, tmp_path):
    gpt2.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"scale_attn_by_inverse_layer_idx": True, "activation_function": "mish"}
    write_json(tmp_path / "config.json", config)
    reasons = "scale_attn_by_inverse_layer_idx=True; activation_function='mish'"
    with pytest.raises(ValueError, match=f"outside the family of aotlens models: {reasons}"):
        aotlens.load(tmp_path)


@pytest.mark.filterwarnings("ignore:.*the file does not state")
@torch.no_grad()
def test_a_state_dict_of_gpt2_alone_is_asked_for_what_shapes_do_not_tell(gpt2, tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"model_state_dict": gpt2.state_dict(), "epoch": 3}, path)
    asked = r"do not tell n_head \(heads of each layer\); activation_function .*config={'n_head'"
    with pytest.raises(ValueError, match=asked):
        aotlens.load(path)
    said = {"n_head": 3, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-4}
    same(aotlens.load(path, "cpu", config=said)(TOKENS), gpt2(TOKENS).logits)


@torch.no_grad()
def test_the_tokenizer_of_a_folder_is_padded_to_the_models_vocabulary(tmp_path, tokenizer):
    size = tokenizer.d_vocab + 6
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=32, vocab_size=size)
    theirs = noisy(transformers.GPT2LMHeadModel(config))
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path / "tokenizer.json")
    model = aotlens.load(tmp_path, "cpu")
    text = "the cat <|unused 271|> sat"
    assert model.tokenizer.encode(text) == tokenizer.encode(text)
    assert model.tokenizer.d_vocab == size and model.to_str_tokens([size - 1]) == [f"<|unused {size - 1}|>"]
    same(model("the cat"), theirs(torch.tensor([[0, *tokenizer.encode("the cat")]])).logits)


# --- nanoGPT


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."], ids=["plain", "compiled"])
def test_a_checkpoint_of_nanogpt(tmp_path, bias, prefix):
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 3, "n_embd": 12, "block_size": 8, "vocab_size": 11, "bias": bias}
    theirs = noisy(NanoGPT(**sizes))
    with torch.enable_grad():
        write_nanogpt(tmp_path / "ckpt.pt", theirs, prefix, **sizes)
    for source in (tmp_path, tmp_path / "ckpt.pt"):
        model = aotlens.load(source, "cpu")
        same(model(TOKENS), theirs(TOKENS))
    assert (model.cfg.act_fn, model.cfg.bias, model.cfg.tied_embeddings) == ("gelu", bias, True)


# --- TransformerLens's old format


@pytest.mark.filterwarnings("ignore:.*the file does not state")
@torch.no_grad()
@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
@pytest.mark.parametrize("shortformer", [True, False])
def test_a_state_dict_alone(tmp_path, norm, shortformer):
    """Sizes come from shapes; norms that left no trace, positions and the direction are asked for by name."""
    state, path = legacy_state(norm), tmp_path / "model.pt"
    torch.save(state, path)
    positions = "shortformer" if shortformer else "standard"
    said = unsaid(positional_embedding_type=positions)
    asked = "positional_embedding_type ('standard', or"
    if norm != "LN":
        said, asked = {**said, "normalization_type": norm}, f"normalization_type ('LN', 'LNPre' .*; {asked}"
    with pytest.raises(ValueError, match=f"these do not tell {asked}".replace("(", r"\(")):
        aotlens.load(path)
    model = aotlens.load(path, "cpu", config=said)
    same(model(TOKENS), legacy_logits(state, TOKENS, norm=norm, shortformer=shortformer))
    assert (model.cfg.n_heads, model.cfg.d_head, model.cfg.n_ctx, model.cfg.causal) == (2, 4, 7, True)


@pytest.mark.filterwarnings("ignore:.*the file does not state")
@torch.no_grad()
def test_a_lower_triangular_mask_tells_no_direction(tmp_path):
    """A bidirectional `HookedTransformer` stores one too, and does not apply it."""
    state = legacy_state("LN")
    torch.save(state, tmp_path / "m.pth")
    with refused("attention_dir", "'causal' or 'bidirectional'"):
        aotlens.load(tmp_path / "m.pth", config={"positional_embedding_type": "standard"})
    everything = state | {f"blocks.{layer}.attn.mask": torch.ones(7, 7, dtype=torch.bool) for layer in range(2)}
    expected = legacy_logits(everything, TOKENS, norm="LN", shortformer=False)
    same(aotlens.load(tmp_path / "m.pth", "cpu", config=unsaid(attention_dir="bidirectional"))(TOKENS), expected)
    torch.save(everything, tmp_path / "all.pth")
    same(aotlens.load(tmp_path / "all.pth", "cpu", config={"positional_embedding_type": "standard"})(TOKENS), expected)


@pytest.mark.parametrize(
    ("mask", "words"),
    [(torch.ones(7, 7).tril().triu(-2), "hide earlier keys"), (torch.ones(7, 7), "show later keys")],
)
def test_a_mask_that_is_not_the_causal_one_is_refused(tmp_path, mask: torch.Tensor, words: str) -> None:
    """Their model applies the mask that was loaded: a band is local attention."""
    torch.save(legacy_state("LN") | {"blocks.1.attn.mask": mask}, tmp_path / "m.pth")
    with refused(words):
        aotlens.load(tmp_path / "m.pth", "cpu", config=unsaid(attention_dir="causal"))


def test_what_else_is_asked_for(tmp_path):
    torch.save(legacy_state("LN", d_mlp=5), tmp_path / "m.pth")
    with refused("attention_dir", "'causal' or 'bidirectional'", "act_fn", "gelu"):
        aotlens.load(tmp_path / "m.pth", config={"positional_embedding_type": "standard"})


@torch.no_grad()
def test_a_task_model_with_other_outputs_than_inputs(tmp_path):
    """p + 1 symbols in, p out: classes at every position."""
    state = legacy_state("LN")
    state |= {"unembed.W_U": state["unembed.W_U"][:, :8], "unembed.b_U": state["unembed.b_U"][:8]}
    torch.save({"model": state, "config": {"d_vocab_out": 8, "normalization_type": "LN"}}, tmp_path / "m.pth")
    model = aotlens.load(tmp_path / "m.pth", "cpu")
    same(model(TOKENS), legacy_logits(state, TOKENS, norm="LN", shortformer=False))
    assert (model.cfg.read_out, model.cfg.d_out, model.cfg.pooling) == ("classes", 8, None)


# --- A pickled module


@torch.no_grad()
@pytest.mark.parametrize("norm", ["LN", None])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_pickled_hooked_transformer(tmp_path, save_module, norm, wrapped):
    """Its classes do not exist here any more, and nothing of the file is imported."""
    state = legacy_state(norm, d_mlp=5)
    cfg = HookedTransformerConfig(
        n_layers=2, d_model=6, n_ctx=7, d_head=4, d_vocab=9, d_vocab_out=9, n_heads=2, attn_only=False, d_mlp=5,
        act_fn="relu", normalization_type=norm, attn_scale=2.0,
    )  # fmt: skip
    module: Any = HookedTransformer(cfg, state)
    save_module(nn.ModuleDict({"model": module})["model"] if wrapped else module, tmp_path / "model.pt")
    with pytest.raises(ModuleNotFoundError):
        torch.load(tmp_path / "model.pt", weights_only=False)
    opened = open_external(tmp_path / "model.pt", device="cpu")
    same(opened.model(TOKENS), legacy_logits(state, TOKENS, norm=norm, shortformer=False))
    assert opened.model.cfg.attn_scale is None
    assert {name.rsplit(".", 1)[-1] for name in opened.dropped} == {"mask", "IGNORE"}


@pytest.mark.parametrize(("word", "ours", "value"), [("eps", "norm_eps", 0.3), ("attn_scale", "attn_scale", 1 / 0.3)])
def test_a_setting_that_is_no_plain_number(tmp_path: Path, word: str, ours: str, value: float) -> None:
    """A number of NumPy is read as one; a tensor is refused, where it was taken for a setting that is not there."""
    for number in (0.3, np.float64(0.3), torch.tensor(0.3)):
        torch.save({"model": legacy_state("LN"), "cfg": unsaid() | {word: number}}, tmp_path / "w.pt")
        if isinstance(number, torch.Tensor):
            with refused(f"{ours}='<StoredTensor>'", "number"):
                aotlens.load(tmp_path / "w.pt")
        else:
            assert getattr(aotlens.load(tmp_path / "w.pt").cfg, ours) == value


# --- Any names, with a configuration and a map


class Plain(nn.Module):
    """Somebody's transformer in plain PyTorch: packed and separate projections, Linear everywhere, bidirectional."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, 6), nn.Embedding(7, 6)
        self.layers = nn.ModuleList(
            [
                nn.ModuleDict(
                    {
                        "norm": nn.LayerNorm(6),
                        "q": nn.Linear(6, 6),
                        "k": nn.Linear(6, 6),
                        "v": nn.Linear(6, 6),
                        "o": nn.Linear(6, 6),
                    }
                )
                for _ in range(2)
            ]
        )
        self.last, self.head = nn.LayerNorm(6), nn.Linear(6, 4)
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            y = layer["norm"](x)
            q, k, v = (layer[name](y).unflatten(-1, (2, 3)).transpose(1, 2) for name in "qkv")
            z = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + layer["o"](z.transpose(1, 2).flatten(2))
        return self.head(self.last(x)).mean(1)


CONFIG: dict[str, Any] = {
    "n_layers": 2, "d_model": 6, "n_heads": 2, "d_head": 3, "n_ctx": 7, "d_vocab": 9, "causal": False, "bias": True,
    "read_out": "classes", "d_out": 4, "pooling": "mean",
}  # fmt: skip
KEY_MAP = {
    "tokens.weight": "embed.W_E",
    "places.weight": "pos_embed.W_pos",
    "layers.*.norm.weight": "blocks.*.ln1.w",
    "layers.*.norm.bias": "blocks.*.ln1.b",
    **{f"layers.*.{name}.weight": f"blocks.*.attn.W_{name.upper()}.T" for name in "qkvo"},
    **{f"layers.*.{name}.bias": f"blocks.*.attn.b_{name.upper()}" for name in "qkvo"},
    "last.weight": "ln_final.w",
    "last.bias": "ln_final.b",
    "head.weight": "unembed.W_U.T",
    "head.bias": "unembed.b_U",
    "scale": None,
}


@torch.no_grad()
@pytest.mark.parametrize("as_fields", [True, False])
def test_names_mapped_to_ours(tmp_path, as_fields):
    theirs = noisy(Plain())
    torch.save(theirs.state_dict(), tmp_path / "plain.pt")
    config: Any = CONFIG if as_fields else ModelConfig(**CONFIG)
    check = (TOKENS, theirs(TOKENS))
    model = aotlens.load(tmp_path / "plain.pt", "cpu", config=config, key_map=KEY_MAP, check=check)
    same(model(TOKENS), theirs(TOKENS))
    with pytest.warns(UserWarning, match=r"UNCHECKED: .*check=\(tokens, logits\)"):
        aotlens.load(tmp_path / "plain.pt", "cpu", config=config, key_map=KEY_MAP)


@torch.no_grad()
def test_our_own_names_need_no_map(tmp_path):
    model = AttentionOnlyTransformer(ModelConfig(**CONFIG, attention="mssa"))
    torch.save(model.state_dict(), tmp_path / "ours.pt")
    same(aotlens.load(tmp_path / "ours.pt", "cpu", config=model.cfg)(TOKENS), model(TOKENS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head.weight": "unembed.W_U"}, r"head.weight: expected \[6, 4\], found \[4, 6\]"),
        ({"scale": "blocks.0.attn.scale"}, r"unknown tensors scale \(as blocks.0.attn.scale\).*None leaves"),
        ({"layers.*.q.weight": "blocks.0.attn.W_Q"}, r"'layers.\*.q.weight' → 'blocks.0.attn.W_Q': expected as"),
        ({"last.bias": "ln_final.w"}, "ln_final.w is given twice, the second time by last.bias"),
        ({"head.weight": None}, r"missing tensors unembed.W_U; found head.bias, head.weight, last.bias"),
        ({"head.bias": "blocks.0.attn.b_QKV"}, r"head.bias: expected queries, keys and values side by side"),
    ],
)
def test_maps_that_do_not_fit(tmp_path, changes, message):
    torch.save(Plain().state_dict(), tmp_path / "plain.pt")
    with pytest.raises(ValueError, match=message):
        aotlens.load(tmp_path / "plain.pt", config=CONFIG, key_map={**KEY_MAP, **changes})


def test_names_that_nobody_knows(tmp_path):
    torch.save(Plain().state_dict(), tmp_path / "plain.pt")
    with refused("embed.W_E", "wte.weight", "scale", "map="):
        aotlens.load(tmp_path / "plain.pt")
    with refused("key_map=", "config="):
        aotlens.load(tmp_path / "plain.pt", key_map=KEY_MAP)
    torch.save({"step": 1, "a": Plain().state_dict(), "b": Plain().state_dict()}, tmp_path / "two.pt")
    with refused("named tensors", "'a': dict, 'b': dict, 'step': int"):
        aotlens.load(tmp_path / "two.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with refused("list", "model.state_dict()"):
        aotlens.load(tmp_path / "list.pt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.bin").mkdir()
    with refused("aotlens checkpoint", "notes.bin"):
        aotlens.load(tmp_path / "empty")


# --- BERT


@torch.no_grad()
def test_a_bert_comes_as_a_bridge(tmp_path):
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=8, attn_implementation="eager",
    )  # fmt: skip
    theirs = noisy(transformers.BertForMaskedLM(config))
    theirs.save_pretrained(tmp_path)
    bridge: Any = aotlens.load(tmp_path, "cpu")
    assert isinstance(bridge, TransformerBridge)
    same(bridge(TOKENS), theirs(TOKENS).logits)
    _, cache = bridge.run_with_cache(TOKENS)
    same(cache["pattern", 1], theirs(TOKENS, output_attentions=True).attentions[1])
    assert motif_scores(bridge, half_length=3)["induction"].shape == (2, 2)
    with refused("key_map", "config="):
        aotlens.load(tmp_path, "cpu", key_map={"embed.W_E": "no.such.tensor"})
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with refused("3 bytes"):
        aotlens.load(Path(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"cut" * 10_000)
    with refused("BERT"):
        aotlens.load(Path(tmp_path))
