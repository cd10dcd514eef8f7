"""Prompts without a BPE: symbols and ids, in the library, in checkpoints, in the commands, and in the app."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.cli import main
from aotlens.data import Encoding, SymbolTokenizer, Tokenizer, tokenizer_from_json
from aotlens.data.windows import start_id
from aotlens.heads import attention_patterns, motif_scores
from aotlens.models import AttentionOnlyTransformer
from app.core import Core
from app.core.settings import Settings
from tests.messages import refused
from tests.small_models import maker, small_tokenizer

DIGITS = SymbolTokenizer([*"0123456789", "+", "="], start="=")
NAMES = SymbolTokenizer(["BOS", "open", "close", "a", "b"])


def model_of(tokenizer: SymbolTokenizer | Tokenizer | None, d_vocab: int = 11) -> AttentionOnlyTransformer:
    return maker()(d_vocab=tokenizer.d_vocab if tokenizer else d_vocab, n_ctx=12, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("tokenizer", "text", "ids"),
    [
        (DIGITS, "7 + 5 =", [7, 10, 5, 11]),
        (DIGITS, "12+3", [1, 2, 10, 3]),
        (DIGITS, "[11 7 7 3]", [11, 7, 7, 3]),
        (DIGITS, " [11, 7,7\n3 ] ", [11, 7, 7, 3]),
        (NAMES, "open a  b close", [1, 3, 4, 2]),
        (NAMES, "ab", [3, 4]),
        (NAMES, "", []),
        (SymbolTokenizer(["a", " ", "\n"]), "a a\n", [0, 1, 0, 2]),
        (SymbolTokenizer.numbers(113), "112 7", [112, 7]),
    ],
)
def test_text_as_symbols(tokenizer, text, ids):
    assert tokenizer.encode(text) == ids
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert [tokenizer.names.index(name) for name in tokenizer.str_tokens(torch.tensor(ids).long())] == ids
    for again in (tokenizer_from_json(tokenizer.to_json()), pickle.loads(pickle.dumps(tokenizer))):
        assert again.names == tokenizer.names and again.start == tokenizer.start


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NAMES.encode("opne a"), r"'opne' is none of the 5 symbols BOS, open, .*; did you mean open\?"),
        (lambda: NAMES.encode("[1 9]"), "id=9: expected a whole number from 0 to 4"),
        (lambda: NAMES.str_tokens([-1]), "id=-1: expected a whole number from 0 to 4"),
        (lambda: SymbolTokenizer(["a", "b", "a"]), "expected different names, got 'a' twice"),
        (lambda: SymbolTokenizer(["a", ""]), "none that is empty"),
        (lambda: SymbolTokenizer(["a", "b c"]), "expected names without spaces"),
        (lambda: SymbolTokenizer(["a"], start="b"), "start 'b': expected one of the symbols, a"),
        (lambda: tokenizer_from_json('{"format": "aotlens symbols"}'), "expected a list of names"),
        (lambda: tokenizer_from_json("["), "expected a tokenizer's JSON"),
    ],
)
def test_what_is_no_symbol(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_start_token_is_the_checkpoints_own_or_none():
    with_start, without = model_of(DIGITS), model_of(NAMES)
    assert with_start.to_tokens("1+2").tolist() == [[11, 1, 10, 2]] and without.to_tokens("ab").tolist() == [[3, 4]]
    assert with_start.to_tokens("[1 10 2]").tolist() == [[1, 10, 2]], "ids are what the model is given"
    assert start_id(DIGITS) == 11 and start_id(NAMES) is None
    _, mask = without.to_tokens(["a", "a b a"], return_mask=True)
    assert mask.tolist() == [[True, False, False], [True] * 3]
    assert motif_scores(without, half_length=4).start is None and motif_scores(with_start, half_length=4).start == 11
    assert Encoding.of(DIGITS).start == 11
    with refused("no start", "token ids"):
        Encoding.of(NAMES)


def test_a_model_without_a_tokenizer_says_what_to_do():
    model = model_of(None)
    with refused("no tokenizer", "pass ids"):
        model.to_tokens("1 2")
    assert model.to_tokens("[1 2]").tolist() == [[1, 2]]
    torch.testing.assert_close(model("[1 2]"), model(torch.tensor([[1, 2]])))


def test_symbols_are_saved_with_the_checkpoint(tmp_path):
    model = model_of(DIGITS)
    save_checkpoint(tmp_path / "m", model, CheckpointInfo(name="m"))
    again = aotlens.load(tmp_path / "m", "cpu")
    assert isinstance(again.tokenizer, SymbolTokenizer) and again.tokenizer.names == DIGITS.names
    torch.testing.assert_close(again("1+2"), model("1+2"))
    assert attention_patterns(again, again.to_tokens("1+2")[0]).str_tokens == ("=", "1", "+", "2")
    assert copy.deepcopy(again).to_tokens("1").tolist() == [[11, 1]]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Checkpoints with symbols, with a byte-level BPE, and with no tokenizer."""
    for name, tokenizer in (("symbols", DIGITS), ("bpe", small_tokenizer()), ("ids", None)):
        save_checkpoint(tmp_path / name, model_of(tokenizer), CheckpointInfo(name=name))
    return tmp_path


@pytest.mark.parametrize("name", ["symbols", "bpe", "ids"])
@pytest.mark.parametrize("command", [["paths"], ["ablate", "--head", "1.0"]])
def test_ids_as_a_prompt_of_a_command(folder, capsys, name, command):
    """What is printed is of these ids and of no start token beside them."""
    path = str(folder / name)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([command[0], path, *command[1:], *arguments])
        out, err = capsys.readouterr()
        return out if stopped.value.code in (0, None) else f"code {stopped.value.code}: {err}"

    printed = run("--ids", "10 7 7 3")
    assert printed == run("--ids", "[10, 7, 7, 3]") and "code" not in printed
    if name == "symbols":
        assert printed == run("--text", "[10 7 7 3]") != run("--text", "+773")
    model = aotlens.load(path, "cpu")
    tokens = torch.tensor([[10, 7, 7, 3]])
    if command[0] == "paths":
        assert f"{float(model(tokens)[0, -1].max()):.3f}" in printed
    else:
        assert f"{float(model(tokens, return_type='loss')):.4f}" in printed
    assert "expected whole numbers" in run("--ids", "10 x")
    assert "code 2" in run("--ids", "1 2", "--text", "1") and "code 2" in run()
    assert "code 2" in run("--ids", "100000 1")


@pytest.mark.parametrize("name", ["symbols", "ids"])
def test_ids_as_a_prompt_in_the_app(folder, name):
    settings = Settings(checkpoints=(folder,))
    result = Core.start(settings).inference.analyse(name, "[10 7 7 3]")
    assert result.patterns.tokens.tolist() == [10, 7, 7, 3]
    assert result.patterns.str_tokens == (("+", "7", "7", "3") if name == "symbols" else ("10", "7", "7", "3"))
