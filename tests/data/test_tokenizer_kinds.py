"""Any tokenizer is read whose cost is bounded; the hostile ones here once loaded, and lied or crashed."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import random
import struct
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import pre_tokenizers

from aotlens.data import SymbolTokenizer, Tokenizer, tokenizer_from_json
from aotlens.data.tokenizer import END_OF_TEXT
from aotlens.data.tokenizer_kinds import check_regex
from tests.data.layouts import LAYOUTS, PUBLISHED

TEXT = "the cat sat on the mat, the rat sat on the cat, and that was that — 😀 " * 3
Saved = dict[str, Any]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT], 280)


def swap(saved: Saved, one: str, other: str) -> None:
    vocabulary = saved["model"]["vocab"]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


def added(content: str, index: int = 280, **settings: Any) -> Saved:
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **token, **settings}


def split(regex: str) -> Saved:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def replace(pattern: Saved, content: str) -> Saved:
    return {"type": "Replace", "pattern": pattern, "content": content}


def chain(*steps: Saved) -> Saved:
    return {"type": "Sequence", "normalizers": list(steps)}


PADDING = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
           "pad_type_id": 0, "pad_token": END_OF_TEXT}  # fmt: skip
TRUNCATION = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
#: Regular expressions that take exponential or cubic time, or refer back.
EXPLOSIVE = [
    "(a|aa)+$", "(a+)+b", "(a*)*b", "(?:a|a)*b", r"\s*\s*x", "a*a*a*b", "a*b*c", r"(a)\1", r"(?<x>a)\g<x>",
    "a?" * 30 + "a" * 30, "(a|aa)" * 30 + "b", "a{1,9}a{1,9}a{1,9}b", "(?=(a+)+b)", "(?#", "[a", "a" * 2000,
    r"\X*\X*y", "((a))", "(?i)a", "[^a]*[^b]*x",
]  # fmt: skip
HOSTILE: dict[str, tuple[Callable[[Saved], Any], str]] = {
    "padding to 10⁹": (lambda s: s.update(padding=PADDING), "padding: expected null"),
    "truncation to 1": (lambda s: s.update(truncation=TRUNCATION), "truncation: expected null"),
    "dropout": (lambda s: s["model"].update(dropout=0.5), r"model\.dropout: expected null, found 0\.5"),
    "words of any length": (
        lambda s: s["model"].update(max_input_chars_per_word=10**9), "max_input_chars_per_word: expected at most 200"
    ),
    "a regular expression": (lambda s: s.update(pre_tokenizer=split("(a|aa)+$")), "expected a regular expression"),
    "one beside bytes": (
        lambda s: s.update(
            pre_tokenizer={"type": "Sequence", "pretokenizers": [split("(a|aa)+$"), s["pre_tokenizer"]]}
        ),
        "expected a regular expression without repeated groups",
    ),
    "one that replaces": (
        lambda s: s.update(normalizer=replace({"Regex": "(a+)+b"}, "b")), "normalizer.pattern: expected a regular"
    ),
    "one in the decoder": (
        lambda s: s.update(decoder=replace({"Regex": "(a+)+b"}, "b")), "decoder.pattern: expected a regular"
    ),
    "doubling": (
        lambda s: s.update(normalizer=chain(*[replace({"String": "a"}, "aa")] * 30)), "make a text at most 1,000 times"
    ),
    "a long replacement": (lambda s: s.update(normalizer=replace({"String": "a"}, "b" * 10**6)), "1,000,000 times"),
    "a long prefix": (lambda s: s.update(normalizer={"type": "Prepend", "prepend": "b" * 10**6}), "1,000,001 times"),
    "bytes of bytes": (
        lambda s: s.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [s["pre_tokenizer"]] * 20}), "20 steps"
    ),
    "many steps": (lambda s: s.update(normalizer=chain(*[{"type": "Lowercase"}] * 10**4)), "10000 steps"),
    "long strings of SentencePiece": (
        lambda s: s.update(normalizer={"type": "Precompiled", "precompiled_charsmap": PRECOMPILED}), "10,001 times"
    ),
    "a long token": (lambda s: s["model"]["vocab"].update({"a" * 2000: 280}), "tokens of at most 1024 characters"),
    "merges that are none": (lambda s: s["model"].update(merges=[["a"]]), "expected a tokenizer's JSON"),
    "a merge more": (lambda s: s["model"]["merges"].append(["q", "q"]), "expected a tokenizer's JSON"),
    "a prefix that merges lack": (
        lambda s: s["model"].update(continuing_subword_prefix="##"), "expected a tokenizer's JSON .*: slice index"
    ),
    "a byte less": (lambda s: s["model"]["vocab"].pop("q"), "expected all 256 bytes, found none of"),
    "a huge id": (lambda s: s["model"]["vocab"].update(q=4 * 10**9), "without large gaps"),
    "a huge id beside": (lambda s: s["added_tokens"].append(added("q q", 10**9)), "without large gaps"),
    "an id twice": (lambda s: s["model"]["vocab"].update(q=7), "each once"),
    "a negative id": (lambda s: s["model"]["vocab"].update(q=-1), "whole numbers from 0"),
    "an id that is none": (lambda s: s["added_tokens"].append(added("q q", "x")), "whole numbers from 0"),
    "escape codes": (lambda s: s["added_tokens"].append(added("\x1b[2J")), "without control characters"),
    "a moved separator": (lambda s: swap(s, END_OF_TEXT, "!"), "expected the vocabulary's ids"),
    "a script": (lambda s: s.update(script="boom"), "tokenizer: unknown settings"),
    "an unknown step": (lambda s: s.update(normalizer={"type": "Script"}), "expected a tokenizer's JSON"),
    "another model": (lambda s: s.update(model={"type": "Model", "vocab": {"a": 1}}), "expected a tokenizer's JSON"),
    "no model": (lambda s: s.pop("model"), "found none"),
    "no tokens": (lambda s: s["model"].update(vocab={}), "model.vocab: expected"),
}  # fmt: skip
PRECOMPILED = base64.b64encode(struct.pack("<I", 0) + b"a" * 10**4).decode()
#: Settings that change what is read, of which the library's own reading is what is read.
READ: dict[str, Callable[[Saved], Any]] = {
    "an unknown token": lambda s: s["model"].update(unk_token="!"),
    "whole words": lambda s: s["model"].update(ignore_merges=True),
    "no cutting": lambda s: s["pre_tokenizer"].update(use_regex=False),
    "a space before": lambda s: s["pre_tokenizer"].update(add_prefix_space=True),
    "replacement": lambda s: s.update(normalizer=replace({"String": "a"}, "b")),
    "lower case": lambda s: s.update(normalizer={"type": "Lowercase"}),
    "no decoder": lambda s: s.update(decoder=None),
    "no merges": lambda s: s["model"].update(merges=[]),
    "merges the other way round": lambda s: s["model"]["merges"].reverse(),
    "a merge less": lambda s: s["model"]["merges"].pop(),
    "a token that cuts words": lambda s: s["added_tokens"].append(added("the", special=False)),
    "a token that eats spaces": lambda s: s["added_tokens"].append(added("<m>", special=False, lstrip=True)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_settings_are_refused_by_name(tokenizer: Tokenizer, kind: str) -> None:
    saved = json.loads(tokenizer.to_json())
    change, message = HOSTILE[kind]
    change(saved)
    with pytest.raises(ValueError, match=message):
        tokenizer_from_json(json.dumps(saved))


@pytest.mark.parametrize("kind", READ)
def test_other_settings_are_read_as_the_library_reads_them(tokenizer: Tokenizer, kind: str) -> None:
    saved = json.loads(tokenizer.to_json())
    READ[kind](saved)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(saved))
    theirs.encode_special_tokens = True
    read = Tokenizer.from_json(json.dumps(saved))
    for text in (TEXT, "The  <m>theatre"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert read.encode(text) == [index for piece in read.pieces(text) for index in read.encode(piece)] == ids
        assert all(isinstance(token, str) for token in read.str_tokens(ids))


@pytest.mark.parametrize("regex", EXPLOSIVE)
def test_regular_expressions_without_a_bound_are_refused(regex: str) -> None:
    with pytest.raises(ValueError, match=r"pre_tokenizer: expected a regular expression without"):
        check_regex("pre_tokenizer", regex)


@pytest.mark.parametrize("regex", [*PUBLISHED, "[^ab]*x", "a+b*c?", "(?:ab|a)(?:ab|a)c"])
def test_those_of_published_files_are_read_and_end_soon(regex: str) -> None:
    """On what makes them try most: 10⁴ characters that never let a match end."""
    check_regex("pre_tokenizer", regex)
    step = pre_tokenizers.Split(tokenizers.Regex(regex), "isolated")
    for text in ("a" * 10**4, " " * 10**4, "1" * 10**4, "A" * 10**4 + "!", "\u0301" * 10**4, "'" * 10**4):
        seconds = time.process_time()
        step.pre_tokenize_str(text)
        assert time.process_time() - seconds < 3


def mutate(value: Any, draw: random.Random) -> None:
    """Change one of the values somewhere within `value`, or drop it."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = draw.choice(list(keys))
    if isinstance(value[key], dict | list) and value[key] and draw.random() < 0.8:
        mutate(value[key], draw)
    elif isinstance(value, dict) and draw.random() < 0.3:
        del value[key]
    else:
        value[key] = draw.choice([None, 0, -1, 10**12, "", "x", True, 0.5, [], {}, [[]], {"type": "x"}])


def test_damaged_files_are_read_or_refused(capfd: pytest.CaptureFixture[str]) -> None:
    draw, n_read = random.Random(0), 0
    files = [make().to_str() for make in LAYOUTS.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(120):
            saved = json.loads(draw.choice(files))
            mutate(saved, draw)
            try:
                read = Tokenizer.of(json.dumps(saved))
            except ValueError:
                continue
            assert len(read.str_tokens(read.encode(TEXT))) and Tokenizer.from_json(read.to_json()).eot_id == read.eot_id
            n_read += 1
    capfd.readouterr()  # the library prints its panics
    assert 20 < n_read < 100


def test_what_a_normalizer_makes_of_a_text_is_bounded(tokenizer: Tokenizer) -> None:
    saved = json.loads(tokenizer.to_json())
    saved["normalizer"] = replace({"String": "a"}, "b" * 900)
    read = Tokenizer.from_json(json.dumps(saved))
    for encode in (read.encode, lambda text: read.encode_batch([text])):
        assert encode("the c")
        with pytest.raises(ValueError, match="at most 8 times as long"):
            encode("the cat " * 1000)


def test_a_key_twice_and_depth_are_refused(tokenizer: Tokenizer) -> None:
    text = tokenizer.to_json()
    with pytest.raises(ValueError, match="a key is given twice"):
        Tokenizer.from_json(text.replace('"!":', '"!":3,"!":', 1))
    with pytest.raises(ValueError, match="expected at most 64 lists"):
        Tokenizer.from_json("[" * 200 + "]" * 200)


def test_settings_of_gpt2_and_gpt_neox_are_read(tokenizer: Tokenizer) -> None:
    """Their files' settings, as published, around a small vocabulary."""
    plain = json.loads(tokenizer.to_json())
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    gpt2 = copy.deepcopy(plain)
    gpt2.update(post_processor=byte_level, decoder=byte_level, pre_tokenizer=byte_level)
    gpt2["model"].update(continuing_subword_prefix="", end_of_word_suffix="")
    gpt2["model"]["merges"] = [" ".join(pair) for pair in gpt2["model"]["merges"]]
    neox = copy.deepcopy(gpt2)
    digits = {"type": "Digits", "individual_digits": True}
    neox.update(normalizer={"type": "NFC"}, pre_tokenizer={"type": "Sequence", "pretokenizers": [digits, byte_level]})
    neox["added_tokens"] += [added("<|padding|>"), added("    ", 281, special=False, normalized=True)]
    ids = tokenizer.encode(TEXT)
    assert Tokenizer.from_json(json.dumps(gpt2)).encode(TEXT) == ids
    read = Tokenizer.from_json(json.dumps(neox))
    assert read.encode(TEXT) == ids and read.d_vocab == 282 and 281 in read.encode("a    b")
    again = Tokenizer.from_json(read.to_json())
    assert again.to_json() == read.to_json()


def test_what_training_writes_is_read_again() -> None:
    """No text makes the trainer write a vocabulary that is refused: many, over few letters, where merges collide."""
    draw = random.Random(0)
    for letters, d_vocab in itertools.product(("a", "ab", "abc", " a", "\n  a"), (260, 270)):
        text = " ".join("".join(draw.choices(letters, k=draw.randint(1, 12))) for _ in range(300))
        try:
            tokenizer = Tokenizer.train([text], d_vocab)
        except ValueError as error:
            assert "enough different words" in str(error)
            continue
        assert Tokenizer.from_json(tokenizer.with_mask().padded(300).to_json()).encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": 3}, "symbols: unknown settings"),
        ({"start": ["a"]}, "start: expected a symbol's name or null"),
        ({"names": ["a", ["b"]]}, "expected a list of names"),
        ({"names": "ab"}, "expected a list of names"),
        ({"names": ["a", "\ud800"]}, "symbol .* holds a lone surrogate"),
    ],
)
def test_hostile_symbols(changes: Saved, message: str) -> None:
    saved = json.loads(SymbolTokenizer(["a", "b"], "a").to_json()) | changes
    with pytest.raises(ValueError, match=message):
        tokenizer_from_json(json.dumps(saved))
