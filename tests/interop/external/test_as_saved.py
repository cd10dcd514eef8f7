"""A model that opens is the model that was saved: read-outs of their own, settings that a user states, defaults of the
installed `transformers`, and what nothing states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as T
from torch import nn

import aotlens
from aotlens.checkpoints import CheckpointError
from tests.interop.external.conftest import TOKENS, NanoGPT, noisy, write_json, write_nanogpt
from tests.messages import refused

SIZES = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 38, "num_attention_heads": 6,
         "max_position_embeddings": 40, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}  # fmt: skip
NANO: dict[str, Any] = {"n_layer": 2, "n_head": 3, "n_embd": 12, "block_size": 8, "vocab_size": 11, "bias": True}
MAKE: dict[str, Any] = {
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "gemma": lambda: T.GemmaForCausalLM(T.GemmaConfig(**SIZES, head_dim=10, num_key_value_heads=2)),
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(
        n_layer=2, n_head=3, n_embd=12, n_positions=40, vocab_size=31, bos_token_id=0, eos_token_id=1)),
    "bloom": lambda: T.BloomForCausalLM(T.BloomConfig(
        vocab_size=31, hidden_size=24, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=1)),
}  # fmt: skip


def error_of(ours: Any, expected: torch.Tensor, tokens: torch.Tensor) -> float:
    return float((ours(tokens) - expected).abs().max() / expected.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("in_memory", [True, False])
def test_two_different_matrices_are_not_tied_whatever_the_settings_say(
    tmp_path: Path, kind: str, in_memory: bool
) -> None:
    theirs = noisy(MAKE[kind]())
    theirs.lm_head.weight = nn.Parameter(torch.randn_like(theirs.lm_head.weight))
    theirs.save_pretrained(tmp_path)
    tokens = torch.arange(20)[None]
    ours = aotlens.load(theirs if in_memory else tmp_path, "cpu")
    assert error_of(ours, theirs(tokens).logits, tokens) < 1e-5


@torch.no_grad()
def test_an_untied_nanogpt_with_its_settings_keeps_its_read_out(tmp_path: Path) -> None:
    theirs = noisy(NanoGPT(**NANO))
    theirs.lm_head = nn.Linear(12, 11, bias=False)
    with torch.enable_grad():
        write_nanogpt(tmp_path / "ckpt.pt", theirs, **NANO)
    ours = aotlens.load(tmp_path / "ckpt.pt", "cpu")
    assert not ours.cfg.tied_embeddings
    assert error_of(ours, theirs(TOKENS), TOKENS) < 1e-5


def test_one_matrix_without_a_read_out_that_the_settings_ask_for_is_refused(tmp_path: Path) -> None:
    MAKE["gpt2"]().transformer.save_pretrained(tmp_path)
    write_json(tmp_path / "config.json", json.loads((tmp_path / "config.json").read_text()) | {
        "tie_word_embeddings": False})  # fmt: skip
    with refused("missing tensors", "unembed.W_U", error=CheckpointError):
        aotlens.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"transformer": True}, ("its settings use_rope are not read", "UNCHECKED")),
        ({"wpe": True}, ("no wpe.weight", "without positions", "UNCHECKED")),
        ({"bare": True}, ("nothing states its activation", "gelu_new", "UNCHECKED")),
    ],
    ids=["settings", "positions", "activation"],
)
def test_what_nothing_states_of_a_fork_of_nanogpt_is_warned_of(
    tmp_path: Path, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    state = {name: tensor.clone() for name, tensor in NanoGPT(**NANO).state_dict().items()}
    settings = dict(NANO) | ({"use_rope": True} if "transformer" in changes else {})
    if "wpe" in changes:
        del state["transformer.wpe.weight"]
    if "bare" in changes:
        del settings["bias"]
    torch.save({"model": state, "model_args": settings}, tmp_path / "ckpt.pt")
    with pytest.warns(UserWarning) as caught:
        aotlens.load(tmp_path / "ckpt.pt", "cpu")
    assert all(part in str(caught[0].message) for part in parts), caught[0].message


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*the file does not state")
def test_an_activation_that_the_user_states_is_used(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = noisy(NanoGPT(**NANO))
    torch.save(theirs.state_dict(), tmp_path / "m.pt")
    said = {"n_head": 3, "activation_function": "gelu_new"}
    ours = aotlens.load(tmp_path / "m.pt", "cpu", config=said)
    exact = F.gelu
    F.gelu = lambda x: exact(x, approximate="tanh")  # type: ignore[assignment]
    try:
        assert error_of(ours, theirs(TOKENS), TOKENS) < 1e-6
    finally:
        F.gelu = exact


@pytest.mark.parametrize(
    ("kind", "config", "parts"),
    [
        ("gpt2", {"layer_norm_eps": 0.5}, ("layer_norm_eps", "did you mean layer_norm_epsilon")),
        ("gpt2", {"n_embd": 25}, ("n_embd=25", "the tensors say 12")),
        ("llama", {"layer_norm_epsilon": 0.5}, ("layer_norm_epsilon", "does not know")),
        ("llama", {"n_head": 3}, ("n_head", "does not know")),
        ("llama", {"rope_theta": 50.0}, ("rope_theta", "did you mean rope_parameters")),
    ],
)
def test_a_setting_that_the_reader_does_not_know_is_refused_with_the_nearest_name(
    tmp_path: Path, kind: str, config: dict[str, Any], parts: tuple[str, ...]
) -> None:
    MAKE[kind]().save_pretrained(tmp_path)
    with refused(*parts, error=CheckpointError):
        aotlens.load(tmp_path, config=config)


@torch.no_grad()
def test_settings_that_a_user_may_state_are_used_and_those_that_change_nothing_accepted(tmp_path: Path) -> None:
    MAKE["gpt2"]().save_pretrained(tmp_path)
    ours = aotlens.load(tmp_path, "cpu", config={"layer_norm_epsilon": 0.5, "attn_pdrop": 0.0, "n_layer": 2})
    assert ours.cfg.norm_eps == 0.5 and "logits of transformers" in ours.card.description


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("gemma", {"hidden_act": "gelu"}),
        ("gemma", {"hidden_activation": "relu"}),
        ("gemma", {"partial_rotary_factor": 0.4}),
        ("llama", {"partial_rotary_factor": 0.5}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}}),
    ],
)
def test_settings_mean_what_the_installed_transformers_takes_them_for(
    tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    noisy(MAKE[kind]()).save_pretrained(tmp_path)
    write_json(tmp_path / "config.json", json.loads((tmp_path / "config.json").read_text()) | settings)
    theirs: Any = T.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = torch.arange(20)[None]
    ours = aotlens.load(tmp_path, "cpu")
    assert error_of(ours, theirs(tokens).logits, tokens) < 1e-5
    assert "The largest difference to the logits of transformers" in ours.card.description


def test_without_transformers_a_decoder_comes_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MAKE["llama"]().save_pretrained(tmp_path)
    monkeypatch.setattr("aotlens.interop.external.plans.config_class", lambda kind: None)
    with pytest.warns(UserWarning, match="UNCHECKED: no installed transformers knows llama"):
        ours = aotlens.load(tmp_path, "cpu")
    assert "UNCHECKED: the code of Hugging Face's llama is not installed" in ours.card.description


@torch.no_grad()
def test_a_reader_that_reads_another_model_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotlens.interop.external import plans

    noisy(MAKE["gpt2"]()).save_pretrained(tmp_path)
    monkeypatch.setitem(plans.ACTIVATIONS, "gelu_new", "gelu")
    with refused("it is another model", "logits of transformers", error=CheckpointError):
        aotlens.load(tmp_path, "cpu")


def test_a_bert_without_its_read_out_is_refused(tmp_path: Path) -> None:
    T.BertModel(T.BertConfig(**SIZES)).save_pretrained(tmp_path)
    with refused("cls.predictions", "at random", "Save the model with its read-out", error=CheckpointError):
        aotlens.load(tmp_path)
