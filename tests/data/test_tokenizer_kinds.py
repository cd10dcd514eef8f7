"""Only tokenizers of known kinds are read; the hostile ones here once loaded, and lied or crashed."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from aotlens.data import SymbolTokenizer, Tokenizer, tokenizer_from_json
from aotlens.data.tokenizer import END_OF_TEXT

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


REGEX = {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False}
PADDING = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
           "pad_type_id": 0, "pad_token": END_OF_TEXT}  # fmt: skip
TRUNCATION = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
HOSTILE: dict[str, tuple[Callable[[Saved], Any], str]] = {
    "padding to 10⁹": (lambda s: s.update(padding=PADDING), "padding: expected null"),
    "truncation to 1": (lambda s: s.update(truncation=TRUNCATION), "truncation: expected null"),
    "dropout": (lambda s: s["model"].update(dropout=0.5), r"model\.dropout: expected None, found 0\.5"),
    "no dropout, as a number": (lambda s: s["model"].update(dropout=0), r"model\.dropout: expected None, found 0"),
    "a prefix": (lambda s: s["model"].update(continuing_subword_prefix="##"), "continuing_subword_prefix: expected"),
    "a suffix": (lambda s: s["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix: expected"),
    "an unknown token": (lambda s: s["model"].update(unk_token="!"), "unk_token: expected None"),
    "whole words": (lambda s: s["model"].update(ignore_merges=True), "ignore_merges: expected False"),
    "a regular expression": (lambda s: s.update(pre_tokenizer=REGEX), "expected a byte-level BPE tokenizer"),
    "one beside bytes": (
        lambda s: s.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [REGEX, s["pre_tokenizer"]]}),
        "expected a byte-level BPE tokenizer, got model 'BPE' with pre-tokenizers",
    ),
    "no cutting": (lambda s: s["pre_tokenizer"].update(use_regex=False), r"pre_tokenizer\.use_regex: expected True"),
    "a space before": (lambda s: s["pre_tokenizer"].update(add_prefix_space=True), "add_prefix_space: expected False"),
    "replacement": (
        lambda s: s.update(normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "b"}),
        "normalizer: unknown settings",
    ),
    "lower case": (lambda s: s.update(normalizer={"type": "Lowercase"}), r"normalizer\.type: expected 'NFC'"),
    "no decoder": (lambda s: s.update(decoder=None), "decoder: expected an object"),
    "a template": (
        lambda s: s.update(post_processor={"type": "TemplateProcessing", "single": [], "pair": []}),
        "post_processor: unknown settings",
    ),
    "no merges": (lambda s: s["model"].update(merges=[]), r"model\.merges: expected one for every token, found none"),
    "merges the other way round": (lambda s: s["model"]["merges"].reverse(), "expected parts that earlier merges make"),
    "a merge twice": (
        lambda s: s["model"]["merges"].append(s["model"]["merges"][0]), "expected each token to be made once"
    ),
    "a merge less": (lambda s: s["model"]["merges"].pop(), "found none for 1, such as"),
    "a merge more": (lambda s: s["model"]["merges"].append(["q", "q"]), "expected what the merges make, found no"),
    "merges that are none": (lambda s: s["model"].update(merges=[["a"]]), "merge 0: expected two tokens"),
    "a byte less": (lambda s: s["model"]["vocab"].pop("q"), "expected all 256 bytes, found none of"),
    "a gap in the ids": (lambda s: s["model"]["vocab"].update(q=10**6), "without gaps"),
    "an id twice": (lambda s: s["model"]["vocab"].update(q=7), "without gaps"),
    "a token that cuts words": (
        lambda s: s["added_tokens"].append(added("the", special=False)), "any other would cut words apart"
    ),
    "a token that eats spaces": (
        lambda s: s["added_tokens"].append(added("<|mask|>", special=False, lstrip=True)), r"lstrip: expected False"
    ),
    "a special token that is text": (
        lambda s: s["added_tokens"].append(added("t", s["model"]["vocab"]["t"])), "expected none of the text's"
    ),
    "escape codes": (lambda s: s["added_tokens"].append(added("\x1b[2J")), "without control characters"),
    "a moved separator": (lambda s: swap(s, END_OF_TEXT, "!"), "expected the vocabulary's ids"),
    "a script": (lambda s: s.update(script="boom"), "tokenizer: unknown settings"),
    "another model": (lambda s: s.update(model={"type": "WordLevel", "vocab": {}, "unk_token": "a"}), "got model"),
    "no model": (lambda s: s.pop("model"), "found none"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_settings_are_refused_by_name(tokenizer: Tokenizer, kind: str) -> None:
    saved = json.loads(tokenizer.to_json())
    change, message = HOSTILE[kind]
    change(saved)
    with pytest.raises(ValueError, match=message):
        tokenizer_from_json(json.dumps(saved))


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
