"""Models of other families: read as bridges, or refused with every reason; models in memory are opened as the folders
that they write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch import nn
from transformer_lens.model_bridge import TransformerBridge

import aotlens
from aotlens.checkpoints import CheckpointError
from aotlens.distill import distill_heads
from aotlens.heads import atlas, value_norms
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.interop.external.conftest import TOKENS, NanoGPT, noisy, write_json
from tests.interop.external.test_vit import config as vit_config
from tests.messages import refused

pytestmark = pytest.mark.filterwarnings("ignore:.*`loss_type=None`.*")


def granite(folder: Path) -> transformers.GraniteForCausalLM:
    """Of random weights, two heads to a key, with the tokenizer that a bridge asks for."""
    config = transformers.GraniteConfig(
        vocab_size=30, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    model = noisy(transformers.GraniteForCausalLM(config))
    model.save_pretrained(folder)
    words = tokenizers.models.WordLevel({"<s>": 0, "</s>": 1, **{f"w{i}": i for i in range(2, 30)}}, unk_token="w2")
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words), bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    made.save_pretrained(folder)
    return model


@pytest.mark.long
@torch.no_grad()
def test_what_no_reader_knows_opens_as_a_bridge_for_motifs_atlas_value_norms_and_distillation(tmp_path: Path) -> None:
    theirs = granite(tmp_path)
    bridge: Any = aotlens.load(tmp_path, "cpu")
    assert isinstance(bridge, TransformerBridge)
    tokens = torch.randint(30, (4, 8), generator=torch.Generator().manual_seed(0))
    assert len(atlas(bridge, tokens).to_frame()) == 8
    with torch.enable_grad():
        assert distill_heads(bridge, (tokens, tokens.flip(1)), 0, seeds=1, neighbours=0, wide=None).headline
    found = value_norms(bridge, [(tokens, torch.zeros_like(tokens))], ["text"]).norms[0, :, 0]
    layer = theirs.model.layers[0]
    values = layer.self_attn.v_proj(layer.input_layernorm(theirs.model.embed_tokens(tokens)))
    each = values.unflatten(-1, (2, 4)).norm(dim=-1).mean((0, 1)).numpy()
    np.testing.assert_allclose(found, each[[0, 0, 1, 1]], rtol=1e-5)  # two heads in turn share a key


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rope_theta": 1e4}, "rotary positions (rope_theta)"),
        ({"alibi": True}, "ALiBi"),
        ({"multi_query": True}, "grouped keys"),
        ({"is_encoder_decoder": True}, "encoder"),
    ],
)
def test_a_map_brings_in_no_model_whose_settings_are_of_another_family(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    cfg = aotlens.ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, n_ctx=8, d_vocab=6)
    torch.save(aotlens.AttentionOnlyTransformer(cfg).state_dict(), tmp_path / "m.pt")
    write_json(tmp_path / "config.json", settings)
    with refused("outside the family", reason):
        aotlens.load(tmp_path, config=cfg)


def test_a_mean_of_two_read_outs_is_refused(tmp_path: Path) -> None:
    sizes = {name: getattr(vit_config(), name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = transformers.DeiTConfig(**sizes, intermediate_size=10, image_size=16, patch_size=4, num_labels=4)
    transformers.DeiTForImageClassificationWithTeacher(config).save_pretrained(tmp_path)
    with refused("two read-outs, whose mean its classes are (DeiTForImageClassificationWithTeacher)") as caught:
        aotlens.load(tmp_path)
    assert "no square" not in str(caught.value)


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_head=3, n_embd=12, n_positions=8, vocab_size=11)
        return noisy(transformers.GPT2LMHeadModel(config))
    if name == "vit":
        return noisy(transformers.ViTForImageClassification(vit_config()))
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12
    )
    return noisy(transformers.BertForMaskedLM(config))


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*comes without preprocessor_config")
@pytest.mark.parametrize("name", ["gpt2", "vit", "bert"])
def test_a_model_in_memory_opens_as_the_folder_that_it_writes(name: str) -> None:
    theirs = small(name)
    inputs = torch.randn(2, 3, 9, 9) if name == "vit" else TOKENS
    expected = theirs(inputs).logits
    model: Any = aotlens.load(theirs, "cpu")
    torch.testing.assert_close(model(inputs), expected, rtol=1e-5, atol=1e-5)
    assert isinstance(model, TransformerBridge) == (name == "bert")
    torch.testing.assert_close(theirs(inputs).logits, expected, rtol=0, atol=0)  # left as it was


@pytest.mark.filterwarnings("ignore:.*the file does not state")
@torch.no_grad()
def test_a_module_in_memory_is_its_state_dict() -> None:
    theirs = noisy(NanoGPT(n_layer=2, n_head=3, n_embd=12, block_size=8, vocab_size=11, bias=True))
    model = aotlens.load(theirs, "cpu", config={"n_head": 3, "activation_function": "gelu"})
    torch.testing.assert_close(model(TOKENS), theirs(TOKENS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: nn.Linear(2, 3), ("<Linear>", "config=ModelConfig", "key_map=")),
        (lambda: AttentionOnlyTransformer(ModelConfig(
            n_layers=1, d_model=4, n_heads=1, d_head=4, n_ctx=4, d_vocab=5)),
         ("<AttentionOnlyTransformer>", "open already")),
        (lambda: small("gpt2").to("meta"), ("<GPT2LMHeadModel>", "meta")),
        pytest.param(lambda: 7, ("a model in memory", "int"), marks=pytest.mark.unchecked),
        (lambda: transformers.MambaForCausalLM(transformers.MambaConfig(
            vocab_size=9, hidden_size=8, state_size=4, num_hidden_layers=1)),
         ("<MambaForCausalLM>", "'mamba'", "no layers of attention", "key_map=")),
    ],
    ids=["module", "ours", "meta", "number", "mamba"],
)  # fmt: skip
def test_what_does_not_open_in_memory_says_why(make: Callable[[], Any], parts: tuple[str, ...]) -> None:
    with refused(*parts):
        aotlens.load(make())


def test_a_gpt_bigcode_has_gpt2s_names_and_its_heads_in_another_order(tmp_path: Path) -> None:
    sizes = {"vocab_size": 30, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 16}
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    for multi_query in (False, True):
        config = transformers.GPTBigCodeConfig(**sizes, **ends, multi_query=multi_query)
        noisy(transformers.GPTBigCodeForCausalLM(config)).save_pretrained(tmp_path / str(multi_query))
        with refused("outside the family", "model_type='gpt_bigcode'", error=CheckpointError):
            aotlens.load(tmp_path / str(multi_query))


@torch.no_grad()
def test_a_roberta_is_a_bridge() -> None:
    config = transformers.RobertaConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, pad_token_id=10
    )
    theirs = noisy(transformers.RobertaForMaskedLM(config))
    model: Any = aotlens.load(theirs, "cpu")
    assert isinstance(model, TransformerBridge)
    torch.testing.assert_close(model(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_distilgpt2_is_a_gpt2_of_fewer_layers(tmp_path: Path) -> None:
    theirs = small("gpt2")
    theirs.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {**said, "_num_labels": 1, "id2label": {"0": "LABEL_0"}, "n_ctx": 8})
    torch.testing.assert_close(aotlens.load(tmp_path, "cpu")(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
