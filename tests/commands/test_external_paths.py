"""A path that another program wrote stands wherever a checkpoint's name does; a bridge is taken or refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from aotlens import results
from aotlens.checkpoints import load
from aotlens.distill import load_record
from aotlens.models import AttentionOnlyTransformer
from tests.commands.conftest import Run
from tests.interop.external.conftest import noisy
from tests.messages import says

SENTENCE = "the cat sat on the mat, the rat sat on the cat, and that was that "


@pytest.fixture
def gpt2(tmp_path: Path, small: AttentionOnlyTransformer) -> str:
    """A folder of Hugging Face's, with a tokenizer."""
    folder = tmp_path / "theirs"
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, n_positions=8, vocab_size=small.cfg.d_vocab)
    noisy(transformers.GPT2LMHeadModel(config)).save_pretrained(folder)
    assert small.tokenizer is not None
    (folder / "tokenizer.json").write_text(small.tokenizer.to_json(), encoding="utf-8")  # type: ignore[attr-defined]
    return str(folder)


@pytest.fixture
def spec(tmp_path: Path) -> str:
    for name in "abc":
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{name} {SENTENCE}" * 40, encoding="utf-8")
    return f"dir:{tmp_path / 'texts'}"


def test_what_is_kept_of_an_external_model_says_whose_it_is(run: Run, gpt2: str, spec: str, tmp_path: Path) -> None:
    """The record's name is the folder's, and no path of the machine is in it."""
    sizes = ("--tokens", "60", "--draws", "2")
    code, _, err = run("audit", gpt2, "--corpus", spec, *sizes, "--out", str(tmp_path / "a.safetensors"))
    assert code == 0, err
    audit = results.load(tmp_path / "a.safetensors")
    assert audit.checkpoint == "theirs" and str(tmp_path) not in audit.command and audit.weights_sha256 == ""
    small = ("--hidden", "0", "--tokens", "600", "--held-out-tokens", "80", "--seeds", "1", "--wide", "0")
    out = tmp_path / "d.safetensors"
    code, _, err = run(
        "distill", gpt2, "--corpus", spec, *small, "--neighbours", "0", "--replace", "20", "--out", str(out)
    )
    assert code == 0, err
    record = load_record(out)
    assert record.checkpoint == "theirs" and str(tmp_path) not in record.command


def test_ids_are_a_prompt(run: Run, gpt2: str) -> None:
    model = load(gpt2, "cpu")
    ids = torch.tensor([[3, 4, 1]])
    code, out, err = run("generate", gpt2, "--ids", "3 4 1", "--tokens", "2", "--temperature", "0")
    assert (code, out) == (0, f"{model.to_string(model.generate(ids, 2, temperature=0)[0])}\n"), err
    assert run("ablate", gpt2, "--ids", "3 4 1", "--head", "0.1")[0] == 0
    assert "got both" in run("generate", gpt2, "--ids", "3", "--text", "the")[2]
    says(run("generate", gpt2)[2], "--text", "--ids")
    assert "--ids 'x': expected whole numbers" in run("generate", gpt2, "--ids", "x")[2]


def test_a_model_without_a_tokenizer_answers_in_ids(run: Run, gpt2: str, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(gpt2, bare)
    (bare / "tokenizer.json").unlink()
    expected = load(bare, "cpu").generate(torch.tensor([[3, 4, 1]]), 2, temperature=0)[0].tolist()
    for given in (("--ids", "3 4 1"), ("--text", "[3 4 1]")):
        code, out, err = run("generate", str(bare), *given, "--tokens", "2", "--temperature", "0")
        assert (code, out) == (0, f"[{' '.join(map(str, expected))}]\n"), err


SCRIPT = """
import contextlib, io, json, sys, traceback, warnings
from aotlens.cli import main

warnings.simplefilter("ignore")
folder, spec, lambada = sys.argv[1:]
said = {}
for words in (
    "ablate F --text cat", "atlas F --corpus S --tokens 60 --sequences 2 --fresh", "audit F --corpus S", "bigrams F",
    "circuits F --head 0.0", "spectrum F --head 0.0", "compare F F", "composition F", "evaluate F --lambada L",
    "generate F --text cat", "motifs F --half-length 3", "paths F --text cat", "subspaces F", "trigrams F --head 0.0",
    "distill F --corpus S --hidden 0 --tokens 600 --held-out-tokens 80 --seeds 1 --wide 0 --neighbours 0"
    " --sequence-length 8",
    "checkpoints import F --name mine",
):
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            main([{"F": folder, "S": spec, "L": lambada}.get(word, word) for word in words.split()])
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            code = traceback.format_exc()
    said[words.split()[0]] = [code, errors.getvalue().strip().splitlines()[-1:]]
print(json.dumps(said))
"""


@pytest.mark.minutes
def test_every_command_takes_a_bridge_or_refuses_it_by_name(tmp_path: Path, spec: str) -> None:
    """In a process of its own, where the tests' checks of types do not come before ours."""
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    words = [f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")]
    words += dict.fromkeys(SENTENCE.replace(",", "").split())
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(words + [f"w{i}" for i in range(30 - len(words))]))
    (tmp_path / "lambada.jsonl").write_text('{"text": "the cat sat"}\n')
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "bert"), spec, str(tmp_path / "lambada.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    for name in ("atlas", "motifs", "distill"):
        code, errors = said.pop(name)
        assert code in (0, None), (name, errors)
    assert "is read by aotlens.load only" in said.pop("checkpoints")[1][0]
    for name, (code, errors) in said.items():
        assert code == 2, (name, code)
        assert errors[0].startswith(f"aotlens: aotlens {name}: expected a model of aotlens, got a TransformerBridge"), (
            errors
        )


def test_a_folder_of_another_tool_is_to_be_imported(run: Run, gpt2: str) -> None:
    code, _, error = run("checkpoints", "show", gpt2)
    assert code == 2 and "emove" not in error
    says(error, "another tool", f"`aotlens checkpoints import {gpt2}`")
