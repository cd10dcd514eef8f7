"""`aotlens generate` against the library."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.data import Encoding, Tokenizer, open_corpus, spread_windows
from aotlens.heads import without
from aotlens.models import AttentionOnlyTransformer, ModelConfig, fill
from tests.commands.conftest import Run
from tests.messages import says
from tests.small_models import randomise

TEXT = "th"
SENTENCE = "the cat sat on the mat, the rat sat on the cat, and that was that. "


def printed(text: object) -> str:
    """Without control characters, which no command prints."""
    return "".join(c for c in str(text) if c in "\n\t" or c.isprintable())


def test_a_text_goes_on_as_in_the_library(run: Run) -> None:
    code, out, _ = run("generate", "small", "--text", TEXT, "--tokens", "3", "--top-k", "5", "--seed", "4")
    assert code == 0 and out == printed(load("small", "cpu").generate(TEXT, 3, top_k=5, seed=4)) + "\n"
    code, out, _ = run("generate", "small", "--text", TEXT, "--tokens", "3", "--temperature", "0")
    assert code == 0 and out == printed(load("small", "cpu").generate(TEXT, 3, temperature=0)) + "\n"


@pytest.mark.parametrize("how", ["zero", "position_mean"])
def test_beside_it_without_heads(run: Run, tmp_path: Path, how: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text(SENTENCE * 20)
    corpus = f"file:{path}"
    arguments = ("--text", TEXT, "--tokens", "3", "--without", "1.0,0.1", "--how", how, "--corpus", corpus)
    code, out, _ = run("generate", "small", *arguments)
    model, text = load("small", "cpu"), open_corpus(corpus)
    length = len(model.to_tokens(TEXT)[0]) + 3
    windows = spread_windows(text, text.names(), Encoding.of(model.tokenizer), 32, length)
    with without(model, ["1.0", "0.1"], how, reference=windows):
        lesser = model.generate(TEXT, 3, seed=0)
    whole = model.generate(TEXT, 3, seed=0)
    assert code == 0
    assert out == printed(f"Full model:\n{whole}\n\nWithout 1.0, 0.1 ({how}):\n{lesser}\n")


def test_masks_are_filled(run: Run, home: Path) -> None:
    tokenizer = Tokenizer.train([SENTENCE * 3], 265).with_mask()
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=266, n_ctx=12, causal=False)
    model = randomise(AttentionOnlyTransformer(cfg, tokenizer)).eval()
    save_checkpoint(home / "masked", model, CheckpointInfo(name="masked"), history=[])
    code, out, _ = run("generate", "masked", "--text", "the <|mask|> sat", "--without", "0.1")
    with without(model, "0.1"):
        lesser = fill(model, "the <|mask|> sat")
    assert code == 0 and printed(lesser) in out and printed(fill(model, "the <|mask|> sat")) in out
    code, _, error = run("generate", "masked", "--text", "the <|mask|> sat", "--tokens", "4")
    assert code == 2
    says(error, "--tokens", "--stop")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--text", TEXT, "--without", "9.9"), "head 9.9: this model has layers 0 to 1"),
        (("--text", TEXT, "--tokens", "2", "--without", "0.0", "--how", "mean"), "expected reference="),
        (("--text", TEXT, "--tokens", "99"), "exceed the context of 6"),
        (("--text", TEXT, "--tokens", "2", "--stop", "the cat"), "expected one"),
    ],
)
def test_errors_are_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, _, error = run("generate", "small", *arguments)
    assert code == 2 and message in error and error.count("\n") == 1


@pytest.mark.parametrize("command", ["generate", "ablate", "paths"])
def test_a_text_without_its_option_is_told_which(run: Run, command: str) -> None:
    code, _, error = run(command, "small", "the cat")
    assert code == 2
    says(error, "behind small", "--text 'the cat'")
