"""Decoders of `transformers`, with random weights and sizes that break every coincidence: logits of their own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import aotlens
from aotlens.checkpoints import CheckpointError
from aotlens.interop.external.decoder_families import FAMILIES
from tests.interop.external.conftest import noisy, write_json
from tests.messages import refused

T = transformers
NAMED = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 38,
         "max_position_embeddings": 40, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}  # fmt: skip
GROUPED = {**NAMED, "num_attention_heads": 6, "num_key_value_heads": 2}
WIDE = {**GROUPED, "head_dim": 10}  # not hidden_size ÷ heads
OLD = {"vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40, "n_inner": 38,
       "bos_token_id": 0, "eos_token_id": 1}  # fmt: skip

FALCON = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "ffn_hidden_size": 38,
          "max_position_embeddings": 40, "bos_token_id": 0, "eos_token_id": 1}  # fmt: skip


def rope(kind: str = "default", **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 300.0, **more}}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
CASES: dict[str, tuple[type, type, dict[str, Any]]] = {
    "llama": (T.LlamaForCausalLM, T.LlamaConfig, {**WIDE, **rope()}),
    "llama, biases, tied": (T.LlamaForCausalLM, T.LlamaConfig, {
        **GROUPED, **rope("linear", factor=3.0), "attention_bias": True, "mlp_bias": True,
        "tie_word_embeddings": True}),
    "llama, one kind of biases": (T.LlamaForCausalLM, T.LlamaConfig, {**GROUPED, **rope(), "attention_bias": True}),
    "llama 3.1": (T.LlamaForCausalLM, T.LlamaConfig, {**WIDE, **rope("llama3", **LLAMA3)}),
    "llama, dynamic": (T.LlamaForCausalLM, T.LlamaConfig, {
        **WIDE, **rope("dynamic", factor=2.0, original_max_position_embeddings=40)}),
    "mistral": (T.MistralForCausalLM, T.MistralConfig, {**WIDE, **rope(), "sliding_window": 14}),
    "cwm": (T.CwmForCausalLM, T.CwmConfig, {
        **WIDE, **rope(), "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}),
    "qwen2": (T.Qwen2ForCausalLM, T.Qwen2Config, {**GROUPED, **rope()}),
    "qwen2, windows": (T.Qwen2ForCausalLM, T.Qwen2Config, {
        **GROUPED, **rope(), "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen3": (T.Qwen3ForCausalLM, T.Qwen3Config, {**WIDE, **rope()}),
    "gemma": (T.GemmaForCausalLM, T.GemmaConfig, {**WIDE, **rope()}),
    "gemma2": (T.Gemma2ForCausalLM, T.Gemma2Config, {
        **WIDE, **rope(), "sliding_window": 6, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 2.5}),
    "gemma3_text": (T.Gemma3ForCausalLM, T.Gemma3TextConfig, {
        **WIDE, "sliding_window": 6, "query_pre_attn_scalar": 7, "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 40.0},
                            "full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 8.0}}}),
    "olmo": (T.OlmoForCausalLM, T.OlmoConfig, {**GROUPED, **rope()}),
    "olmo, clipped": (T.OlmoForCausalLM, T.OlmoConfig, {**GROUPED, **rope(), "clip_qkv": 0.1}),
    "olmo2": (T.Olmo2ForCausalLM, T.Olmo2Config, {**GROUPED, **rope()}),
    "olmo3": (T.Olmo3ForCausalLM, T.Olmo3Config, {
        **GROUPED, **rope(), "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}),
    "phi3": (T.Phi3ForCausalLM, T.Phi3Config, {**GROUPED, **rope(partial_rotary_factor=0.5), "sliding_window": 9}),
    "falcon": (T.FalconForCausalLM, T.FalconConfig, {**FALCON}),
    "falcon, groups": (T.FalconForCausalLM, T.FalconConfig, {
        **FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, one norm": (T.FalconForCausalLM, T.FalconConfig, {
        **FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    "falcon, one after the other": (T.FalconForCausalLM, T.FalconConfig, {
        **FALCON, "multi_query": False, "parallel_attn": False, "bias": True, "tie_word_embeddings": False}),
    "stablelm": (T.StableLmForCausalLM, T.StableLmConfig, {
        **GROUPED, **rope(partial_rotary_factor=0.5), "use_qkv_bias": True, "hidden_size": 48}),
    "stablelm, parallel": (T.StableLmForCausalLM, T.StableLmConfig, {
        **GROUPED, **rope(partial_rotary_factor=0.25), "use_parallel_residual": True, "hidden_size": 48}),
    "phi": (T.PhiForCausalLM, T.PhiConfig, {**GROUPED, **rope(partial_rotary_factor=0.5)}),
    "gpt_neox": (T.GPTNeoXForCausalLM, T.GPTNeoXConfig, {
        **NAMED, "num_attention_heads": 3, **rope(partial_rotary_factor=0.5)}),
    "gpt_neox, one after the other": (T.GPTNeoXForCausalLM, T.GPTNeoXConfig, {
        **NAMED, "num_attention_heads": 3, **rope(partial_rotary_factor=0.25), "use_parallel_residual": False,
        "attention_bias": False, "tie_word_embeddings": True}),
    "gptj": (T.GPTJForCausalLM, T.GPTJConfig, {**OLD, "rotary_dim": 4}),
    "gpt_neo": (T.GPTNeoForCausalLM, T.GPTNeoConfig, {
        "vocab_size": 31, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "intermediate_size": 38,
        "max_position_embeddings": 40, "attention_types": [[["global", "local"], 1]], "window_size": 14,
        "bos_token_id": 0, "eos_token_id": 1}),
    "opt": (T.OPTForCausalLM, T.OPTConfig, {
        **{name: value for name, value in NAMED.items() if name != "intermediate_size"}, "ffn_dim": 38,
        "num_attention_heads": 3, "word_embed_proj_dim": 24}),
    "bloom": (T.BloomForCausalLM, T.BloomConfig, {
        "vocab_size": 31, "hidden_size": 24, "n_layer": 2, "n_head": 3, "bos_token_id": 0, "eos_token_id": 1}),
}  # fmt: skip


def theirs(case: str) -> Any:
    model, config, fields = CASES[case]
    torch.manual_seed(0)
    return noisy(model(config(**fields, attn_implementation="eager")))


def test_every_family_has_a_case() -> None:
    assert {case.split(",")[0].split(" ")[0] for case in CASES} == FAMILIES.keys()


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_logits_and_patterns_are_those_of_transformers(tmp_path: Path, case: str) -> None:
    model = theirs(case)
    model.save_pretrained(tmp_path)
    ours = aotlens.load(tmp_path, "cpu")
    n_pos = 60 if "dynamic" in case else 20
    tokens = torch.randint(31, (2, min(n_pos, ours.cfg.n_ctx)), generator=torch.Generator().manual_seed(1))
    expected = model(tokens, output_attentions=True)
    found, cache = ours.run_with_cache(tokens)
    for logits in (ours(tokens), found):
        error = (logits - expected.logits).abs().max() / expected.logits.abs().max().clamp(min=1)
        assert float(error) < 1e-5
    for layer in range(2):
        torch.testing.assert_close(cache["pattern", layer], expected.attentions[layer], rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_settings_of_older_files_are_read_as_those_of_newer_ones(tmp_path: Path) -> None:
    model = theirs("gemma3_text")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("layer_types", "rope_parameters", "_sliding_window_pattern"):
        del config[name]
    older = {"rope_theta": 300.0, "rope_local_base_freq": 40.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    write_json(tmp_path / "config.json", {**config, **older, "sliding_window_pattern": 2})
    tokens = torch.arange(20)[None]
    torch.testing.assert_close(aotlens.load(tmp_path, "cpu")(tokens), model(tokens).logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("case", ["llama", "gemma2", "gemma3_text", "olmo2", "olmo3", "phi3", "stablelm"])
def test_settings_that_are_left_out_are_the_familys_own(tmp_path: Path, case: str) -> None:
    """Small weights and embeddings, so that an epsilon counts."""
    model_type, config_type, fields = CASES[case]
    shape = {name: value for name, value in fields.items() if name in WIDE} | {"num_hidden_layers": 4}
    torch.manual_seed(0)
    model = model_type(config_type(**shape, attn_implementation="eager")).eval()
    for weight in model.parameters():
        weight.mul_(0.2 if weight.ndim > 1 else 1.0)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("rms_norm_eps", "layer_norm_eps", "rope_parameters", "rope_theta", "rope_scaling", "sliding_window",
                 "rope_local_base_freq", "query_pre_attn_scalar"):  # fmt: skip
        config.pop(name, None)
    write_json(tmp_path / "config.json", config)
    tokens = torch.randint(31, (2, 30), generator=torch.Generator().manual_seed(2))
    expected = model(tokens).logits
    error = (aotlens.load(tmp_path, "cpu")(tokens) - expected).abs().max() / expected.abs().max()
    assert float(error) < 1e-4


def gemma3_with_images(folder: Path, **changes: Any) -> Any:
    text = {**CASES["gemma3_text"][2], **changes}
    tower = {"hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2,
             "image_size": 8, "patch_size": 4}  # fmt: skip
    config = T.Gemma3Config(text_config=text, vision_config=tower, mm_tokens_per_image=1, image_token_index=30,
                            boi_token_index=28, eoi_token_index=29)  # fmt: skip
    torch.manual_seed(0)
    model = noisy(T.Gemma3ForConditionalGeneration(config))
    model.save_pretrained(folder)
    return model


@torch.no_grad()
@pytest.mark.parametrize("newer", [False, True])
def test_of_gemma3_with_images_the_text_part_is_read(tmp_path: Path, newer: bool) -> None:
    model = gemma3_with_images(tmp_path)
    if newer:  # as Gemma3ForConditionalGeneration names its own modules
        for path in tmp_path.glob("*.safetensors"):
            path.unlink()
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.warns(UserWarning, match="the text part is read, and [23][0-9] tensors of images are left out"):
        ours = aotlens.load(tmp_path, "cpu")
    tokens = torch.randint(28, (2, 20), generator=torch.Generator().manual_seed(1))
    expected = model(tokens).logits
    error = (ours(tokens) - expected).abs().max() / expected.abs().max().clamp(min=1)
    assert float(error) < 1e-5


@pytest.mark.filterwarnings("ignore:.*the text part")
@pytest.mark.parametrize("text", [None, [], {"num_attention_heads": 0}, {"num_attention_heads": 5, "head_dim": 10}])
def test_a_gemma3_with_images_whose_text_part_is_not_described_is_refused(tmp_path: Path, text: Any) -> None:
    gemma3_with_images(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {**config, "text_config": {**config["text_config"], **text} if text else text})
    wanted = "text_config" if not text else "num_attention_heads=0" if len(text) == 1 else "not a multiple of"
    with refused(wanted, error=CheckpointError):
        aotlens.load(tmp_path, "cpu")


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("llama", {"rms_norm_eps": NAN}, "norm_eps=nan"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": NAN}}, "base=nan"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": INF}}, "base=inf"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 0}}, "base=0"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": NAN}}, "factor=nan"),
        ("llama", {"rope_parameters": [1, 2]}, "'rope_parameters' with value [1, 2]"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 1e300}}, "factor=1e+300"),
        ("llama", {"head_dim": 10**30}, "head_dim=1000000000000000000000000000000"),
        ("llama", {"head_dim": 2**31}, "expected [2, 24, 2147483648]"),
        ("llama", {"num_attention_heads": 0}, "num_attention_heads=0"),
        ("llama", {"num_attention_heads": True}, "num_attention_heads=True"),
        ("llama", {"num_key_value_heads": 1.5}, "num_key_value_heads=1.5"),
        ("gpt_neox", {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": NAN}},
         "partial_rotary_factor=nan"),
        ("gpt_neox", {"partial_rotary_factor": 1e300}, "partial_rotary_factor=1e+300"),
        ("gpt_neox", {"partial_rotary_factor": "half"}, "partial_rotary_factor='half'"),
        ("gptj", {"rotary_dim": NAN}, "'rotary_dim' expected int"),
        ("mistral", {"sliding_window": NAN}, "sliding_window=nan"),
        ("mistral", {"sliding_window": -3}, "sliding_window=-3"),
        ("gpt_neo", {"window_size": 0}, "window of 0"),
        ("gpt_neo", {"attention_types": 7}, "attention_types=7"),
        ("gpt_neo", {"attention_types": [[["global", "local"], 10**30]]}, "attention_types=[[['global'"),
        ("gemma2", {"query_pre_attn_scalar": NAN}, "'query_pre_attn_scalar' expected int"),
        ("gemma2", {"attn_logit_softcapping": NAN}, "score_cap=nan"),
        ("gemma2", {"layer_types": 5}, "'layer_types' with value 5"),
        ("gemma3_text", {"rope_parameters": {"full_attention": 5}}, "full_attention=5"),
        ("gemma3_text", {"_sliding_window_pattern": 0, "layer_types": None}, "does not know: _sliding_window_pattern"),
        ("olmo", {"clip_qkv": NAN}, "clip_qkv=nan"),
        ("qwen2", {"use_sliding_window": True, "layer_types": None, "max_window_layers": "x"},
         "'max_window_layers' expected int"),
    ],
)  # fmt: skip
def test_damaged_settings_are_refused_by_name(tmp_path: Path, case: str, changes: dict[str, Any], message: str) -> None:
    """Given as `config=`, since JSON has no NaN."""
    theirs(case).save_pretrained(tmp_path)
    with refused(message, error=CheckpointError):
        aotlens.load(tmp_path, "cpu", config=changes)


@torch.no_grad()
def test_the_scaled_frequencies_of_olmo3_are_those_of_layers_without_a_window(tmp_path: Path) -> None:
    _, _, fields = CASES["olmo3"]
    scaled = {**fields, "rope_theta": 300.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    del scaled["rope_parameters"]
    torch.manual_seed(0)
    model = noisy(T.Olmo3ForCausalLM(T.Olmo3Config(**scaled, attn_implementation="eager")))
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {**config, "rope_parameters": None, "rope_theta": 300.0,
                                          "rope_scaling": scaled["rope_scaling"]})  # fmt: skip
    tokens = torch.arange(20)[None]
    torch.testing.assert_close(aotlens.load(tmp_path, "cpu")(tokens), model(tokens).logits, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_model_without_its_read_out_says_what_is_missing(tmp_path: Path) -> None:
    theirs("llama").model.save_pretrained(tmp_path / "untied")
    with refused("missing tensors", "unembed.W_U", error=CheckpointError):
        aotlens.load(tmp_path / "untied", "cpu")
    tied = theirs("llama, biases, tied")
    tied.model.save_pretrained(tmp_path / "tied")
    tokens = torch.arange(10)[None]
    torch.testing.assert_close(
        aotlens.load(tmp_path / "tied", "cpu")(tokens), tied(tokens).logits, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("llama", {"num_key_value_heads": 0}, "num_key_value_heads=0"),
        ("llama", {"num_key_value_heads": 4}, "n_kv_heads=4 does not divide n_heads=6"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": -5.0}}, "rotary base=-5.0"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_type='yarn'"),
        ("llama", {"hidden_act": "mish"}, "hidden_act='mish'"),
        ("mistral", {"sliding_window": 0}, "sliding_window=0"),
        ("gpt_neox", {"num_attention_heads": 5}, "hidden size is not divisible"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before=False"),
        ("olmo", {"clip_qkv": -8.0}, "clip_qkv=-8.0"),
        ("qwen3", {"attention_bias": True, "use_sliding_window": True}, "qk_norm='head'"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar=0"),
        ("gemma2", {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types='chunked_attention'"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
        ("gemma3_text", {"layer_types": ["sliding_attention"]}, "number of `layer_types` (1)"),
        ("falcon", {"alibi": True}, "alibi=True"),
        ("phi3", {"rope_parameters": {"rope_type": "longrope"}}, "'rope_type'='longrope'"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm=True"),
    ],
)
def test_settings_that_no_model_has_are_refused_by_name(
    tmp_path: Path, case: str, changes: dict[str, Any], message: str
) -> None:
    model = theirs(case)
    model.save_pretrained(tmp_path)
    write_json(tmp_path / "config.json", {**model.config.to_dict(), **changes, "dtype": None})
    with refused(message, error=CheckpointError):
        aotlens.load(tmp_path, "cpu")
