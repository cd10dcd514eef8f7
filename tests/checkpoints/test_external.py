"""Models that others saved as checkpoints of ours, by the command that brings them in."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import aotlens
from aotlens.checkpoints import import_external, is_external, list_checkpoints, verify
from aotlens.cli import main
from app.core.cache import Memory
from app.core.catalog import Catalog
from app.core.settings import Settings
from tests.interop.external.conftest import TOKENS, NanoGPT, noisy, write_nanogpt
from tests.interop.test_legacy import legacy_logits, legacy_state, unsaid
from tests.messages import refused


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "checkpoints"


@pytest.fixture
def command(capsys, home):
    """`command("checkpoints", "list")`: its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(stopped.value.code or 0), printed.out, printed.err

    return run


def gpt2_folder(folder: Path) -> transformers.GPT2LMHeadModel:
    config = transformers.GPT2Config(n_layer=2, n_head=3, n_embd=12, n_positions=8, vocab_size=11)
    theirs = noisy(transformers.GPT2LMHeadModel(config))
    theirs.save_pretrained(folder)
    return theirs


def options(settings: dict[str, Any]) -> list[str]:
    """Settings as the command takes them."""
    return [part for name, value in settings.items() for part in ("--config", f"{name}={value}")]


def difference(printed: str) -> float:
    match = re.search(r"largest difference to the logits of \w+ is (\S+),", printed)
    assert match is not None, printed
    return float(match[1])


@torch.no_grad()
def test_gpt2_is_brought_in_and_compared(tmp_path, command, home):
    theirs = gpt2_folder(tmp_path / "gpt2")
    code, out, _ = command("checkpoints", "import", tmp_path / "gpt2", "--name", "small")
    n = sum(parameter.numel() for parameter in theirs.parameters())
    assert code == 0 and f"small: imported to {home / 'small'} (Hugging Face's GPT-2), {n:,} parameters." in out
    assert difference(out) < 1e-5
    assert verify(home / "small") == [] and "small" in command("checkpoints", "list")[1]
    torch.testing.assert_close(aotlens.load("small", "cpu")(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
    assert "Imported from gpt2 (Hugging Face's GPT-2)" in command("checkpoints", "show", "small")[1]
    loaded = Catalog(Settings(), Memory(2**30)).load("small")
    torch.testing.assert_close(loaded.model(TOKENS), theirs(TOKENS).logits, rtol=1e-5, atol=1e-5)
    code, _, err = command("checkpoints", "import", tmp_path / "gpt2", "--name", "small")
    assert code == 2 and "exists already. Give another name" in err


@torch.no_grad()
def test_a_difference_is_measured_not_assumed(tmp_path, home):
    """The comparison reads the source again: changed after it was opened, it shows."""
    from aotlens.interop import compare_with_source, open_external

    gpt2_folder(tmp_path / "gpt2")
    opened = open_external(tmp_path / "gpt2", device="cpu")
    assert (compare_with_source(opened).difference or 1) < 1e-5
    opened.model.blocks[0].attn.b_V += 0.1
    assert (compare_with_source(opened).difference or 0) > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
def test_transformer_lenses_old_format_is_brought_in_and_compared(tmp_path, command, home, norm):
    state = legacy_state(norm)
    torch.save(state, tmp_path / "toy.pth")
    said = options(unsaid(normalization_type=norm))
    code, out, err = command("checkpoints", "import", tmp_path / "toy.pth", *said)
    assert code == 0 and difference(out) < 1e-5, (out, err)
    assert "Left out: blocks.0.attn.IGNORE, blocks.0.attn.mask, blocks.1.attn.IGNORE, blocks.1.attn.mask." in out
    assert ("Not in the source, read as zero (gains as 1): blocks.0.ln1.b" in out) == (norm == "LNPre")
    expected = legacy_logits(state, TOKENS, norm=norm, shortformer=False)
    torch.testing.assert_close(aotlens.load("toy", "cpu")(TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_compared_says_why(tmp_path, command):
    torch.save(legacy_state("LN"), tmp_path / "toy.pth")
    said = options(unsaid(positional_embedding_type="shortformer"))
    _, out, _ = command("checkpoints", "import", tmp_path / "toy.pth", *said)
    assert "UNCHECKED: TransformerLens's native bridge has no shortformer positions" in out
    sizes: dict[str, Any] = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "vocab_size": 11, "bias": True}
    write_nanogpt(tmp_path / "ckpt.pt", NanoGPT(**sizes), **sizes)
    assert (
        "UNCHECKED: the code of nanoGPT is not installed." in command("checkpoints", "import", tmp_path / "ckpt.pt")[1]
    )


@torch.no_grad()
def test_any_names_by_a_map_in_a_file(tmp_path, command):
    state = {name.replace("blocks", "layer"): t for name, t in legacy_state(None).items()}
    torch.save(state, tmp_path / "other.pt")
    names = {
        f"layer.*.attn.{name}": f"blocks.*.attn.{name}" for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")
    }
    names |= {"layer.*.attn.b_O": "blocks.*.attn.b_O", "layer.*.attn.mask": None, "layer.*.attn.IGNORE": None}
    (tmp_path / "names.json").write_text(json.dumps(names))
    sizes = {
        "n_layers": 2,
        "d_model": 6,
        "n_heads": 2,
        "d_head": 4,
        "n_ctx": 7,
        "d_vocab": 9,
        "bias": True,
        "norm": None,
    }
    map_file = ("--key-map", tmp_path / "names.json")
    expected = legacy_logits(legacy_state(None), TOKENS, norm=None, shortformer=False)
    np.savez(tmp_path / "check.npz", tokens=TOKENS.numpy(), logits=expected.numpy())
    said = [tmp_path / "other.pt", *options(sizes), *map_file]
    code, out, err = command("checkpoints", "import", *said, "--check", tmp_path / "check.npz")
    assert code == 0 and "largest difference to the logits of the source is" in out, err
    code, out, err = command("checkpoints", "import", *said, "--name", "unchecked")
    assert code == 0 and "UNCHECKED: " in out and not err
    assert "UNCHECKED: " in command("checkpoints", "show", "unchecked")[1]
    np.savez(tmp_path / "check.npz", tokens=TOKENS.numpy(), logits=expected.numpy() + np.arange(9))
    code, out, err = command("checkpoints", "import", *said, "--check", tmp_path / "check.npz", "--name", "wrong")
    assert code == 2 and "largest difference" in err and "pos_embed.W_pos[2:]" in err
    torch.testing.assert_close(aotlens.load("other", "cpu")(TOKENS), expected, rtol=1e-5, atol=1e-5)
    (tmp_path / "names.json").write_text("[]")
    code, _, err = command("checkpoints", "import", tmp_path / "other.pt", "--key-map", tmp_path / "names.json")
    assert code == 2 and 'expected {"their name": "our name"}' in err
    assert command("checkpoints", "import", tmp_path / "other.pt", "--config", "n_layers")[0] == 2


def test_symbols_of_an_import(tmp_path, command):
    torch.save(legacy_state("LN"), tmp_path / "toy.pth")
    said = [*options(unsaid()), "--symbols", "0 1 2 3 4 5 6 + ="]
    assert command("checkpoints", "import", tmp_path / "toy.pth", *said, "--start", "=")[0] == 0
    assert aotlens.load("toy", "cpu").to_tokens("1+2").tolist() == [[8, 1, 7, 2]]
    code, _, err = command("checkpoints", "import", tmp_path / "toy.pth", *said[:-1], "0 1", "--name", "two")
    assert code == 2 and "expected as many tokens as the model's d_vocab=9, got 2" in err
    assert "expected --symbols, too" in command("checkpoints", "import", tmp_path / "toy.pth", "--start", "=")[2]


def test_the_characters_of_nanogpt(tmp_path):
    characters = "\n abcdefgh"
    meta = {"vocab_size": 11, "itos": dict(enumerate(characters)), "stoi": {c: i for i, c in enumerate(characters)}}
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(meta))
    sizes: dict[str, Any] = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "vocab_size": 10, "bias": True}
    write_nanogpt(tmp_path / "ckpt.pt", NanoGPT(**sizes), **sizes)
    model = aotlens.load(tmp_path, "cpu")
    assert model.to_tokens("a b\n").tolist() == [[2, 1, 3, 0]] and model.to_string([2, 1, 3]) == "a b"
    (tmp_path / "meta.pkl").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
    with pytest.warns(UserWarning, match=r"without a tokenizer: .*it calls os.system; nothing of it was run"):
        assert aotlens.load(tmp_path, "cpu").tokenizer is None


def test_a_bert_is_no_checkpoint(tmp_path, home):
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    with refused("BERT", "TransformerBridge", "aotlens.load"):
        import_external(tmp_path / "bert")
    assert not home.exists()


def test_nothing_is_left_of_what_is_refused(tmp_path, command, home):
    torch.save({**legacy_state("LN"), "embed.W_E": torch.full((9, 6), torch.nan)}, tmp_path / "toy.pth")
    code, _, err = command("checkpoints", "import", tmp_path / "toy.pth", *options(unsaid()))
    assert code == 2 and "embed.W_E holds numbers that are not finite" in err
    assert not home.exists() or list(home.iterdir()) == []


def test_what_is_external(tmp_path, home):
    gpt2_folder(tmp_path / "gpt2")
    import_external(tmp_path / "gpt2", name="ours")
    torch.save({}, tmp_path / "a.pt")
    assert is_external(tmp_path / "gpt2") and is_external(tmp_path / "a.pt") and is_external("hf:a/b")
    ours = home / "ours"
    assert not any(map(is_external, ("ours", ours, ours / "model.safetensors", "novels-2l-gpt", home, tmp_path / "no")))
    assert [info.name for info in list_checkpoints() if info.name == "ours"] == ["ours"]
