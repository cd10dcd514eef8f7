from __future__ import annotations

import copy
import json
import pickle
import re
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from aotlens.data import END_OF_TEXT, Tokenizer
from aotlens.data import tokenizer as tokenizer_module
from aotlens.data.tokenizer_kinds import byte_of_character, escape_invalid_utf8
from tests.messages import refused

SENTENCES = [
    "the cat sat on the mat and the other cat sat there too, then they slept.\n",
    'there is a theory that these things are the same; "isn\'t it?" they said.\n',
    "    indented code = [1, 22, 333]\n\n",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(SENTENCES * 20, 300)


def naive_bpe(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Byte-pair encoding of one ASCII word: merge the adjacent pair of the best rank until there is none."""
    symbols = list(word)
    while ranked := [(merges.index(pair), at) for at, pair in enumerate(pairwise(symbols)) if pair in merges]:
        _, at = min(ranked)
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
    return symbols


def test_encode_equals_naive_byte_pair_encoding(tokenizer: Tokenizer) -> None:
    model = json.loads(tokenizer.to_json())["model"]
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in model["merges"]]
    words = {"the", "theory", "these", "mat", "zebra", "otherwise", "slept", "xthethe"}
    for word in sorted(words):
        expected = naive_bpe(word, merges)
        assert [model["vocab"][symbol] for symbol in expected] == tokenizer.encode(word), word
        assert tokenizer.str_tokens(tokenizer.encode(word)) == expected


def test_byte_alphabet_is_that_of_the_tokenizers_library() -> None:
    table = byte_of_character()
    assert set(table) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(table.values()) == list(range(256))
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for code_point in [*range(0x800), *range(0x800, 0x110000, 0x3F1)]:
        if not 0xD800 <= code_point < 0xE000:
            [(written, _)] = cut.pre_tokenize_str(chr(code_point))
            assert bytes(table[character] for character in written) == chr(code_point).encode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "👩‍🔬 and 🇩🇪",
        "e\u0301 a\u0308\u0323",
        "nul \0 nul",
        "\ufffd \ufeff \u2028",
        "line\r\nline\ttab\x0b\x85",
        " " * 10_000,
        "x" * 10_000,
        "日本語 العربية",
        "<|endoftext|>",
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_text_comes_back_exactly(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()
    assert tokenizer.encode_batch([text, "x", text]) == [ids, tokenizer.encode("x"), ids]
    assert all(0 < index < tokenizer.d_vocab for index in ids)
    assert not any("\ufffd" in token for token in tokenizer.str_tokens(ids)) or "\ufffd" in text


@given(st.text())
def test_any_text_comes_back_exactly(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(index != tokenizer.eot_id for index in ids)


def test_special_token_typed_by_a_user_stays_text(tokenizer: Tokenizer) -> None:
    for again in (tokenizer, Tokenizer.from_json(tokenizer.to_json()), copy.deepcopy(tokenizer)):
        ids = again.encode(f"a{END_OF_TEXT}b")
        assert again.eot_id == 0 and 0 not in ids and len(ids) > 3
        assert again.encode_batch([END_OF_TEXT])[0] == again.encode(END_OF_TEXT) != [0]
    assert tokenizer.str_tokens([0]) == [END_OF_TEXT]
    assert tokenizer.decode([0, *tokenizer.encode("a"), 0]) == f"{END_OF_TEXT}a{END_OF_TEXT}"


def test_special_token_in_training_text_is_not_learnt() -> None:
    trained = Tokenizer.train([END_OF_TEXT * 500 + " the cat sat" * 20], 275)
    assert trained.str_tokens(range(275)).count(END_OF_TEXT) == 1
    assert 0 not in trained.encode(END_OF_TEXT * 3)


def test_parts_of_characters_are_shown_as_bytes(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("—")  # E2 80 94, a character that the training text lacks
    assert tokenizer.str_tokens(ids) == ["<0xE2>", "<0x80>", "<0x94>"]
    assert tokenizer.decode(ids[:2]) == "<0xE2><0x80>"
    assert len(tokenizer.str_tokens(range(tokenizer.d_vocab))) == tokenizer.d_vocab
    assert "\ufffd" not in "".join(tokenizer.str_tokens(range(tokenizer.d_vocab)))


@given(st.binary(max_size=12))
def test_escapes_equal_pythons_own_up_to_spelling(data: bytes) -> None:
    data = data.replace(b"\\", b"/")  # a backslash cannot be told from an escape in Python's spelling
    spelled = re.sub(r"\\x([0-9a-f]{2})", lambda m: f"<0x{m[1].upper()}>", data.decode("utf-8", "backslashreplace"))
    assert escape_invalid_utf8(data) == spelled


def test_lone_surrogate_names_its_position(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"U\+D83D at character 3: .*Remove it"):
        tokenizer.encode("ab \ud83d")
    with refused("text 1", "U+DC00", "character 0"):
        tokenizer.encode_batch(["ok", "\udc00"])
    with pytest.raises(ValueError, match="text 1 holds a lone surrogate"):
        Tokenizer.train(["ok", "\udc00"], 257)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, iter])
def test_ids_of_any_kind(tokenizer: Tokenizer, kind: type) -> None:
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode(kind(ids)) == "the cat"
    assert "".join(tokenizer.str_tokens(kind(ids))) == "the cat"


@pytest.mark.parametrize("bad", [-1, 300, 10**12])
def test_id_out_of_range(tokenizer: Tokenizer, bad: int) -> None:
    with refused("from 0 to 299", f"got {bad}", "position 1"):
        tokenizer.decode([5, bad])


@pytest.mark.parametrize("bad", [torch.zeros(2, 3, dtype=torch.long), torch.tensor(3)])
def test_a_batch_or_a_number_is_refused(tokenizer: Tokenizer, bad: torch.Tensor) -> None:
    with refused("one sequence"):
        tokenizer.str_tokens(bad)


def test_vocabulary_size(tokenizer: Tokenizer) -> None:
    assert tokenizer.d_vocab == 300
    assert Tokenizer.train([], 257).d_vocab == 257
    with pytest.raises(ValueError, match=r"d_vocab=256: .* from 257"):
        Tokenizer.train(SENTENCES, 256)
    # there is nothing to merge beyond "ab", "abc" and " abc", however often they occur
    with refused("260 tokens", "d_vocab=260"):
        Tokenizer.train(["abc " * 50], 1000)
    assert Tokenizer.train(["abc " * 50], 260).encode("abc abc") == [258, 259]


def test_training_is_deterministic(tokenizer: Tokenizer) -> None:
    assert Tokenizer.train(SENTENCES * 20, 300).to_json() == tokenizer.to_json()


def test_saved_and_read_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    text = "the theory — 😀 <|endoftext|>"
    for again in (Tokenizer.from_file(path), pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert again.encode(text) == tokenizer.encode(text)
        assert again.to_json() == tokenizer.to_json()
        assert repr(again) == "Tokenizer(d_vocab=300, eot_id=0)"
    theirs = tokenizers.Tokenizer.from_file(str(path))
    assert theirs.encode("the theory").ids == tokenizer.encode("the theory")
    assert theirs.decode(tokenizer.encode("the theory — 😀")) == "the theory — 😀"


def test_unusable_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": ')
    with refused("tokenizer.json", "JSON"):
        Tokenizer.from_file(path)
    bare = tokenizers.Tokenizer(models.BPE())
    with refused("at least one token"):
        Tokenizer(bare)
    bare.save(str(path))
    with refused("tokenizer.json", "at least one token"):
        Tokenizer.from_file(path)


def gpt2_files(tokenizer: Tokenizer, folder: Path) -> tuple[Path, Path]:
    """The same vocabulary as OpenAI published GPT-2's: bytes, then merges, then the separator last."""
    model = json.loads(tokenizer.to_json())["model"]
    vocabulary = {token: index - 1 for token, index in model["vocab"].items() if index > 0}
    vocabulary[END_OF_TEXT] = len(vocabulary)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    encoder, bpe = folder / "encoder.json", folder / "vocab.bpe"
    encoder.write_text(json.dumps(vocabulary))
    bpe.write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    return encoder, bpe


def test_gpt2_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    encoder, bpe = gpt2_files(tokenizer, tmp_path)
    gpt2 = Tokenizer.from_gpt2_files(encoder, bpe)
    assert (gpt2.d_vocab, gpt2.eot_id) == (300, 299)
    text = "the theory — 😀 <|endoftext|>\n"
    assert gpt2.encode(text) == [index - 1 for index in tokenizer.encode(text)]
    assert gpt2.decode([299, *gpt2.encode(text)]) == END_OF_TEXT + text


def test_broken_gpt2_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    encoder, bpe = gpt2_files(tokenizer, tmp_path)
    good = bpe.read_text(encoding="utf-8")
    for line in ("three parts here", "qqq zzz"):
        bpe.write_text(f"{good}{line}\n", encoding="utf-8")
        with refused("encoder.json", "vocab.bpe"):
            Tokenizer.from_gpt2_files(encoder, bpe)
    bpe.write_text("#version: 0.2\n", encoding="utf-8")
    encoder.write_text('{"a": 0}')
    with refused("encoder.json", "'<|endoftext|>'"):
        Tokenizer.from_gpt2_files(encoder, bpe)
    encoder.write_text("{")
    with refused("encoder.json", "vocab.bpe"):
        Tokenizer.from_gpt2_files(encoder, bpe)
    encoder.write_text(json.dumps({"a": 4 * 10**9, END_OF_TEXT: 1}))  # the library took 70 s for it
    with refused("encoder.json", "without gaps"):
        Tokenizer.from_gpt2_files(encoder, bpe)


@given(st.text(st.sampled_from("     \n\n\t\r\x1c\u00a0\u0301ab'sé1.,😀"), max_size=60))
@example("ab      ab\n     ab")
def test_pieces_encode_as_the_whole(tokenizer: Tokenizer, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "_PIECE_CHARACTERS", 3)
        pieces = tokenizer.pieces(text)
    assert "".join(pieces) == text
    assert list(chain.from_iterable(tokenizer.encode_batch(pieces))) == tokenizer.encode(text)


def test_text_is_cut_only_where_that_is_exact(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "_PIECE_CHARACTERS", 3)
    assert tokenizer.pieces("one two three") == ["one", " two", " three"]
    assert tokenizer.pieces("one  two") == ["one", "  two"]
    assert tokenizer.pieces("") == [""]
    saved = json.loads(tokenizer.to_json())
    digits = {"type": "Digits", "individual_digits": True}
    saved["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, saved["pre_tokenizer"]]}
    other = Tokenizer.from_json(json.dumps(saved))
    assert other.pieces("one two three") == ["one two three"]
    assert other.decode(other.encode("a 12")) == "a 12"
