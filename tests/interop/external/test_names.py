"""Names and folders as people have them: wrappers' prefixes, shards, adapters, pointers, files of another kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as T
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import aotlens
from aotlens.interop.external import open_external
from tests.interop.external.conftest import TOKENS, noisy, write_json
from tests.messages import refused

SIZES: dict[str, Any] = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}


def llama(**more: Any) -> Any:
    return noisy(T.LlamaForCausalLM(T.LlamaConfig(**SIZES, intermediate_size=20, **more)))


def neox() -> Any:
    return noisy(T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**SIZES, intermediate_size=20)))


def gpt2() -> Any:
    return noisy(T.GPT2LMHeadModel(T.GPT2Config(
        n_layer=2, n_head=3, n_embd=12, n_positions=8, vocab_size=11, bos_token_id=0, eos_token_id=1)))  # fmt: skip


def wrapped(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors in wrappers: before all names, or (`layers.0.…`) around one layer."""
    if not prefix.startswith(("layers.", "h.")):
        return {f"{prefix}{name}": tensor.clone() for name, tensor in state.items()}
    layer = prefix[: prefix.index("0.") + 2]
    return {name.replace(layer, prefix): tensor.clone() for name, tensor in state.items()}


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*UNCHECKED.*transformers misses")  # names that `transformers` itself cannot read
@pytest.mark.parametrize(
    ("make", "prefix"),
    [
        (llama, "_orig_mod."), (llama, "module.model."), (llama, "model._forward_module._orig_mod."),
        (llama, "layers.0._orig_mod."), (neox, "model."), (neox, "layers.0._fsdp_wrapped_module."),
        (gpt2, "model."), (gpt2, "_orig_mod.module.net."), (gpt2, "h.0.module._orig_mod."),
    ],
)  # fmt: skip
def test_what_wrappers_add_to_names_is_left_out(tmp_path: Path, make: Callable[[], Any], prefix: str) -> None:
    """In safetensors, and under Lightning's `state_dict` in a `*.ckpt` of a folder."""
    theirs = make()
    state = {
        name: tensor for name, tensor in wrapped(theirs.state_dict(), prefix).items() if tensor.is_floating_point()
    }
    for folder, save in (("safe", save_file), ("lightning", torch.save)):
        theirs.config.save_pretrained(tmp_path / folder)
        file = tmp_path / folder / ("model.safetensors" if folder == "safe" else "epoch=3-step=9.ckpt")
        save(state if folder == "safe" else {"state_dict": state, "epoch": 3, "hyper_parameters": {"lr": 1e-3}}, file)
        model = aotlens.load(tmp_path / folder, "cpu")
        torch.testing.assert_close(model(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)


compiled = partial(torch.compile, backend="eager")


class Wrapper(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


@torch.no_grad()
@pytest.mark.parametrize("wrap", [lambda m: m, Wrapper, compiled, lambda m: Wrapper(Wrapper(compiled(m)))])
def test_a_wrapped_model_in_memory_is_the_model(wrap: Callable[[Any], Any]) -> None:
    """GPT-NeoX's read-out is lm_head in memory since transformers 5.14, embed_out in files."""
    theirs = neox()
    torch.testing.assert_close(aotlens.load(wrap(theirs), "cpu")(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_key_map_and_our_own_names_in_wrappers(tmp_path: Path) -> None:
    source = noisy(aotlens.AttentionOnlyTransformer(aotlens.ModelConfig(
        n_layers=1, d_model=6, n_heads=2, d_head=3, n_ctx=7, d_vocab=9)))  # fmt: skip
    for prefix in ("", "_orig_mod.", "module.net."):
        torch.save(wrapped(source.state_dict(), prefix), tmp_path / "m.pt")
        model = aotlens.load(tmp_path / "m.pt", "cpu", config=source.cfg)
        torch.testing.assert_close(model(TOKENS), source(TOKENS))
    key_map: dict[str, str | None] = {"module.net.embed.W_E": "embed.W_E"}
    key_map |= {f"net.{name}": name for name in source.state_dict() if name != "embed.W_E"}
    check = (TOKENS, source(TOKENS))
    aotlens.load(tmp_path / "m.pt", "cpu", config=source.cfg, key_map=key_map, check=check)
    torch.save({"a.W_E": torch.ones(2), "module.a.W_E": torch.ones(2)}, tmp_path / "m.pt")
    with refused("a.W_E is given twice"):
        aotlens.load(tmp_path / "m.pt", config=source.cfg)


def save_shards(model: Any, folder: Path, kind: str) -> list[Path]:
    """The model in three files of a kind, with the index of Hugging Face's."""
    folder.mkdir(exist_ok=True)
    model.config.save_pretrained(folder)
    stem = "model" if kind == "safetensors" else "pytorch_model"
    names = [f"{stem}-{number:05}-of-00003.{kind}" for number in (1, 2, 3)]
    items = list(model.state_dict().items())
    for index, name in enumerate(names):
        part = {key: tensor.clone() for key, tensor in items[index::3]}
        (save_file if kind == "safetensors" else torch.save)(part, folder / name)
    where = {key: names[index % 3] for index, (key, _) in enumerate(items)}
    write_json(folder / f"{stem}.{kind}.index.json", {"metadata": {}, "weight_map": where})
    return [folder / name for name in names]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards_with_an_index_without_one_and_with_one_missing(tmp_path: Path, kind: str) -> None:
    theirs = llama()
    files = save_shards(theirs, tmp_path, kind)
    same = lambda model: torch.testing.assert_close(model(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)  # noqa: E731
    same(aotlens.load(tmp_path, "cpu"))
    index = next(tmp_path.glob("*.index.json"))
    same(aotlens.load(tmp_path, "cpu", weights=index.name))
    index.unlink()
    for source in (tmp_path, files[1]):
        same(aotlens.load(source, "cpu"))
    files[1].unlink()
    for source in (tmp_path, files[0]):
        with refused("of its 3 files", files[1].name, "Fetch"):
            aotlens.load(source)


@torch.no_grad()
def test_of_a_trainers_folder_the_model_is_meant_and_not_its_checkpoints(tmp_path: Path) -> None:
    theirs, earlier = gpt2(), gpt2()
    earlier.transformer.wte.weight += 1
    theirs.save_pretrained(tmp_path)
    earlier.save_pretrained(tmp_path / "checkpoint-500")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"step": 3}, tmp_path / name)
    torch.testing.assert_close(aotlens.load(tmp_path, "cpu")(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)


def test_a_pointer_of_git_lfs_is_called_one(tmp_path: Path) -> None:
    llama().config.save_pretrained(tmp_path)
    for name in ("model.safetensors", "pytorch_model.bin", "model.pt"):
        (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 98765\n")
        with refused(name, "Git LFS pointer", "git lfs pull"):
            aotlens.load(tmp_path)
        (tmp_path / name).unlink()


def test_adapters_name_their_model_and_what_to_do(tmp_path: Path) -> None:
    write_json(tmp_path / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "someone/base"})
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    for file, save in (("adapter_model.safetensors", save_file), ("adapter_model.bin", torch.save)):
        save({name: torch.ones(2, 4)}, tmp_path / file)
        with refused(file, "adapter", name, "someone/base", "merge_and_unload"):
            aotlens.load(tmp_path)
        (tmp_path / file).unlink()


@pytest.mark.parametrize("sign", ["config", "names"])
def test_quantised_weights_are_named_before_anything_else(tmp_path: Path, sign: str) -> None:
    llama().save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    save_file(
        {name.replace("_proj.weight", "_proj.qweight"): t for name, t in state.items()}, tmp_path / "model.safetensors"
    )
    if sign == "config":
        config = json.loads((tmp_path / "config.json").read_text())
        write_json(tmp_path / "config.json", {**config, "quantization_config": {"quant_method": "awq", "bits": 4}})
    with refused("quantised", "'awq'" if sign == "config" else ".qweight", "dequantize()"):
        aotlens.load(tmp_path)


def test_an_mlp_of_other_names_says_which_were_expected(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    save_file({name.replace(".mlp.", ".ffn."): t for name, t in state.items()}, tmp_path / "model.safetensors")
    with refused("layers.0.mlp.up_proj.weight", "'llama'", "found layers.0.ffn."):
        aotlens.load(tmp_path)


@torch.no_grad()
def test_a_bloom_whose_width_is_n_embed(tmp_path: Path) -> None:
    theirs = noisy(T.BloomForCausalLM(T.BloomConfig(vocab_size=31, hidden_size=24, n_layer=2, n_head=3)))
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {"n_embed": config.pop("hidden_size"), **config})
    opened = open_external(tmp_path, device="cpu")
    torch.testing.assert_close(opened.model(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
    assert opened.dropped == (), "the norm of the embedding is folded in, not left out"


ROPE = {"factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 512}
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: T.MambaForCausalLM(T.MambaConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, state_size=2)),
         ("'mamba'", "no layers of attention but recurrent ones", "A_log", "transformers runs it")),
        (lambda: T.XLNetLMHeadModel(T.XLNetConfig(vocab_size=11, d_model=8, n_layer=1, n_head=2, d_inner=8)),
         ("'xlnet'", "two streams", "rel_attn", "transformers runs it")),
        (lambda: T.LlamaForSequenceClassification(T.LlamaConfig(**SIZES, intermediate_size=20)),
         ("classification head", "score.weight", "read_out='classes'", "key_map")),
        (lambda: llama(rope_parameters={"rope_type": "yarn", **ROPE}, max_position_embeddings=2048),
         ("rope_type='yarn'", "boot_transformers(FOLDER)")),
        (lambda: llama(rope_parameters={**LONG, **ROPE}, max_position_embeddings=2048),
         ("rope_type='longrope'", "boot_transformers(FOLDER)")),
        (lambda: T.OPTForCausalLM(T.OPTConfig(
            **SIZES, ffn_dim=20, word_embed_proj_dim=12, do_layer_norm_before=False, max_position_embeddings=16)),
         ("word_embed_proj_dim=12", "do_layer_norm_before=False", "boot_transformers(FOLDER)")),
    ],
    ids=["mamba", "xlnet", "score", "yarn", "longrope", "opt-350m"],
)  # fmt: skip
def test_a_refusal_names_the_reason_and_the_next_step(make: Callable[[], Any], parts: tuple[str, ...]) -> None:
    with refused(*parts):
        aotlens.load(make())


@torch.no_grad()
def test_a_classifier_opens_as_its_refusal_says(tmp_path: Path) -> None:
    config = T.GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=8, vocab_size=11, num_labels=3, pad_token_id=10)
    theirs: Any = noisy(T.GPT2ForSequenceClassification(config))
    theirs.save_pretrained(tmp_path)
    with refused("score.weight", "d_out=3", "pooling='last'"):
        aotlens.load(tmp_path)
    layer = {
        "ln_1": "ln1.w ln1.b", "attn.c_attn": "attn.W_QKV attn.b_QKV", "attn.c_proj": "attn.W_O attn.b_O",
        "ln_2": "ln2.w ln2.b", "mlp.c_fc": "mlp.W_in mlp.b_in", "mlp.c_proj": "mlp.W_out mlp.b_out",
    }  # fmt: skip
    key_map: dict[str, str | None] = {
        "transformer.wte.weight": "embed.W_E", "transformer.wpe.weight": "pos_embed.W_pos",
        "transformer.ln_f.weight": "ln_final.w", "transformer.ln_f.bias": "ln_final.b", "score.weight": "unembed.W_U.T",
    }  # fmt: skip
    for part, ours in layer.items():
        for kind, name in zip(("weight", "bias"), ours.split(), strict=True):
            key_map[f"transformer.h.*.{part}.{kind}"] = f"blocks.*.{name}"
    cfg = {
        "n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 8, "d_vocab": 11, "d_mlp": 32, "bias": True,
        "act_fn": "gelu_new", "read_out": "classes", "d_out": 3, "pooling": "last", "read_out_bias": False,
    }  # fmt: skip
    model = aotlens.load(tmp_path, "cpu", config=cfg, key_map=key_map, check=(TOKENS, theirs(TOKENS).logits))
    torch.testing.assert_close(model(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
