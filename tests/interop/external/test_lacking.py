"""Files of `transformers` that lack what its code reads: each is refused, or opens with a warning that says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import aotlens
from aotlens.checkpoints import CheckpointError
from tests.interop.external.conftest import noisy
from tests.interop.external.test_as_saved import SIZES
from tests.interop.external.test_decoders import CASES, GROUPED, rope
from tests.messages import refused, says

T = transformers


def lacking(folder: Path, case: str, *parts: str) -> None:
    """Save a model of `CASES` without the tensors whose names have one of some parts."""
    model_class, config_class, settings = CASES[case]
    noisy(model_class(config_class(**settings))).save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = {name: each for name, each in load_file(file).items() if not any(part in name for part in parts)}
    save_file({name: each.clone() for name, each in tensors.items()}, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("case", "part"),
    [("opt", "layer_norm.bias"), ("bloom", "h.1.input_layernorm.bias")],
)
def test_tensors_that_transformers_misses_are_warned_of(tmp_path: Path, case: str, part: str) -> None:
    lacking(tmp_path, case, part)
    with pytest.warns(UserWarning, match=r"UNCHECKED: .* transformers misses .*" + part.split(".")[-1]):
        aotlens.load(tmp_path, "cpu")


def test_biases_of_grouped_keys_that_are_missing_are_named(tmp_path: Path) -> None:
    lacking(tmp_path, "qwen2", "k_proj.bias")
    with pytest.warns(UserWarning) as warned:
        aotlens.load(tmp_path, "cpu")
    says(str(warned[0].message), "comes without blocks.0.attn.b_K, blocks.1.attn.b_K: read as zero")
    says(str(warned[1].message), "UNCHECKED", "k_proj.bias")


@pytest.mark.parametrize(
    ("case", "part", "ours"),
    [("gpt_neox", "post_attention_layernorm", "ln2"), ("bloom", "word_embeddings_layernorm", "word_embeddings")],
)
def test_norms_that_are_missing_are_refused(tmp_path: Path, case: str, part: str, ours: str) -> None:
    lacking(tmp_path, case, part)
    with refused(str(tmp_path), "missing tensors", ours, error=CheckpointError):
        aotlens.load(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("case", "part", "setting"), [("llama", "layers.1.", "num_hidden_layers"), ("bloom", "h.1.", "n_layer")]
)
def test_a_layer_that_is_missing_at_the_end_is_refused(tmp_path: Path, case: str, part: str, setting: str) -> None:
    lacking(tmp_path, case, part)
    with refused(str(tmp_path), f"{setting}=2", "its tensors are of 1 layers", "Is it whole?", error=CheckpointError):
        aotlens.load(tmp_path, "cpu")


@pytest.mark.parametrize("case", ["llama", "gpt2", "granite"])
@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (
            {"auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}},
            "auto_map={'AutoModelForCausalLM': 'modeling_mine",
        ),
        ({"architectures": ["MineForCausalLM"]}, "architectures=['MineForCausalLM']"),
    ],
)
def test_code_that_transformers_does_not_have_is_named(
    tmp_path: Path, case: str, settings: dict[str, Any], part: str
) -> None:
    sizes = {**SIZES, "n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 40} if case == "gpt2" else SIZES
    config = T.AutoConfig.for_model(case, **sizes)
    theirs = noisy(T.AutoModelForCausalLM.from_config(config))
    theirs.save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(described | settings))
    with pytest.warns(UserWarning, match="UNCHECKED: config.json names ") as warned:
        model = aotlens.load(tmp_path, "cpu")
    says(str(warned[0].message), part, "which was not run", "check=(tokens, logits)")
    if case != "granite":
        assert "UNCHECKED" in model.card.description
        tokens = torch.arange(20)[None]
        aotlens.load(tmp_path, "cpu", check=(tokens, theirs(tokens).logits))


def test_biases_of_normed_queries_are_refused_with_the_bridge(tmp_path: Path) -> None:
    settings = {**CASES["gemma3_text"][2], "attention_bias": True}
    T.Gemma3ForCausalLM(T.Gemma3TextConfig(**settings)).save_pretrained(tmp_path)
    with refused("qk_norm='head' needs", "without biases", "boot_transformers", error=CheckpointError):
        aotlens.load(tmp_path, "cpu")


def test_dynamic_frequencies_begin_where_transformers_lets_them(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**GROUPED, **rope("dynamic", factor=2.0, original_max_position_embeddings=16)}
    theirs = noisy(T.LlamaForCausalLM(T.LlamaConfig(**settings))).eval()
    theirs.save_pretrained(tmp_path)
    ours = aotlens.load(tmp_path, "cpu")
    tokens = torch.randint(31, (2, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(tokens[:, :38]).logits
        torch.testing.assert_close(ours(tokens[:, :38]), expected, atol=1e-5 * float(expected.abs().max()), rtol=0)
        expected = theirs(tokens).logits
        torch.testing.assert_close(ours(tokens), expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


def test_a_bert_without_its_sizes_is_bounded_by_those_of_transformers(tmp_path: Path) -> None:
    settings = {"vocab_size": 8, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 8}
    T.BertForMaskedLM(T.BertConfig(**settings, num_hidden_layers=1, max_position_embeddings=8)).save_pretrained(
        tmp_path
    )
    described = json.loads((tmp_path / "config.json").read_text())
    del described["hidden_size"], described["intermediate_size"]
    (tmp_path / "config.json").write_text(json.dumps({**described, "num_hidden_layers": 100}))
    with refused("describes a model of at least", "numbers", error=CheckpointError):
        aotlens.load(tmp_path, "cpu")
