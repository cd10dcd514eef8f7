"""The ``tokenizer.json`` files that are read: a closed list of settings, and a vocabulary that its merges make.

The format holds whole programs: padding to 10⁹ tokens, truncation to one, dropout, regular expressions, scripts of
replacements. Each changes every result without a word, or takes the process down. So every setting must be one of those
written here by name: byte-level BPE as `Tokenizer.train` writes it, GPT-2's, and GPT-NeoX's (NFC, digits apart, runs of
spaces as tokens). Another kind is another line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotlens.data.byte_level import byte_of_character
from aotlens.untrusted import check_name, shown

#: The longest special token, in characters.
_LONGEST_SPECIAL = 100

_BYTE_LEVEL = {
    "type": ("ByteLevel",),
    "add_prefix_space": (False, True),
    "trim_offsets": (False, True),
    "use_regex": (True,),
}
_SPLIT_BYTE_LEVEL = {**_BYTE_LEVEL, "add_prefix_space": (False,)}  # a space of its own before each text is another text
_DIGITS = {"type": ("Digits",), "individual_digits": (False, True)}
_MODEL = {
    "type": ("BPE",),
    "dropout": (None,),
    "unk_token": (None,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "fuse_unk": (False,),
    "byte_fallback": (False,),
    "ignore_merges": (False,),
}
_ADDED = {"single_word": (False,), "lstrip": (False,), "rstrip": (False,), "normalized": (False, True)}
_KEYS = ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")


def check_byte_level(saved: Any, ordinary: tuple[str, ...]) -> None:
    """Raise `ValueError` for a ``tokenizer.json`` (as JSON) that is not byte-level BPE of one of the known kinds.

    `ordinary` are tokens beside the vocabulary that users may type, such as the mask; so may runs of spaces.
    """
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        raise ValueError("expected a tokenizer's JSON with a model, found none.")
    _check_kind(saved)
    _check_keys("tokenizer", saved, {*_KEYS, "model"})
    for key in ("truncation", "padding"):
        if saved.get(key) is not None:
            raise ValueError(f"{key}: expected null, found {shown(saved[key])}, which changes or drops tokens.")
    if saved.get("normalizer") is not None:
        _check("normalizer", saved["normalizer"], {"type": ("NFC",)})
    if saved.get("post_processor") is not None:
        _check("post_processor", saved["post_processor"], _BYTE_LEVEL)
    _check("decoder", saved.get("decoder"), _BYTE_LEVEL)
    for step in _steps(saved):
        digits = isinstance(step, dict) and step.get("type") == "Digits"
        _check("pre_tokenizer", step, _DIGITS if digits else _SPLIT_BYTE_LEVEL)
    model = saved["model"]
    _check("model", {key: value for key, value in model.items() if key not in ("vocab", "merges")}, _MODEL)
    specials = _special_tokens(saved.get("added_tokens"), ordinary)
    _check_vocabulary(model.get("vocab"), model.get("merges"), specials)


def _check_kind(saved: dict[str, Any]) -> None:
    """Everything here reads tokens through the byte alphabet, so refuse vocabularies written in another."""
    kind = saved["model"].get("type", "BPE")
    kinds = [step.get("type") if isinstance(step, dict) else None for step in _steps(saved)]
    if kind != "BPE" or kinds not in (["ByteLevel"], ["Digits", "ByteLevel"]):
        raise ValueError(
            f"expected a byte-level BPE tokenizer, got model {shown(kind)} with pre-tokenizers {shown(kinds)}"
        )


def _steps(saved: dict[str, Any]) -> list[Any]:
    """Return the steps that cut a text into words, in order."""
    step = saved.get("pre_tokenizer")
    if isinstance(step, dict) and step.get("type") == "Sequence":
        _check_keys("pre_tokenizer", step, {"type", "pretokenizers"})
        steps = step.get("pretokenizers")
        return steps if isinstance(steps, list) else []
    return [step]


def _check(where: str, value: Any, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    """Every setting is one of those allowed; one left out is as the library reads it, which is checked again."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object with a type, found {shown(value)}.")
    _check_keys(where, value, set(allowed))
    for key, item in value.items():
        if not any(item is choice or (isinstance(choice, str) and item == choice) for choice in allowed[key]):
            choices = " or ".join(map(repr, allowed[key]))
            raise ValueError(f"{where}.{key}: expected {choices}, found {shown(item)}.")


def _check_keys(where: str, value: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(f"{where}: unknown settings {shown(unknown)}; known are {', '.join(sorted(known))}.")


def _special_tokens(added: Any, ordinary: tuple[str, ...]) -> dict[str, int]:
    """Ids of the tokens beside the vocabulary, by text."""
    if not isinstance(added, list):
        raise ValueError(f"added_tokens: expected a list, found {shown(added)}.")
    specials: dict[str, int] = {}
    for token in added:
        if not isinstance(token, dict) or not isinstance(content := token.get("content"), str) or not content:
            raise ValueError(f"added_tokens: expected tokens with their text, found {shown(token)}.")
        where = f"added token {shown(content)}"
        check_name(content, where)
        _check_keys(where, token, {*_ADDED, "id", "content", "special"})
        _check(where, {key: value for key, value in token.items() if key in _ADDED}, _ADDED)
        typed = content in ordinary or not content.strip(" ")
        if len(content) > _LONGEST_SPECIAL or token.get("special") is not (not typed):
            raise ValueError(
                f"{where}: expected a special token of at most {_LONGEST_SPECIAL} characters, {' or '.join(ordinary)}, "
                "or spaces; any other would cut words apart."
            )
        if type(token.get("id")) is not int or content in specials:
            raise ValueError(f"{where}: expected it once, with a whole number for its id.")
        specials[content] = token["id"]
    return specials


def _check_vocabulary(vocabulary: Any, merges: Any, specials: dict[str, int]) -> None:
    """Ids are 0, 1, … without gaps; every entry is a byte, a special token, or made by exactly one merge, whose parts
    are there before it."""
    if not isinstance(vocabulary, dict) or not all(type(index) is int for index in vocabulary.values()):
        raise ValueError("model.vocab: expected an id by token.")
    if not isinstance(merges, list):
        raise ValueError(f"model.merges: expected a list of pairs, found {shown(merges)}.")
    tokens = set(byte_of_character())
    if missing := sorted(tokens - vocabulary.keys()):
        raise ValueError(f"model.vocab: expected all 256 bytes, found none of {shown(missing)}: they would vanish.")
    for rank, merge in enumerate(merges):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"merge {rank}: expected two tokens, found {shown(merge)}.")
        if not tokens.issuperset(parts):
            raise ValueError(f"merge {rank}: expected parts that earlier merges make, found {shown(parts)}.")
        token = "".join(parts)
        if token in tokens:
            raise ValueError(f"merge {rank}: expected each token to be made once, found {shown(token)} again.")
        tokens.add(token)
    if unmade := vocabulary.keys() - tokens - specials.keys():
        some = shown(sorted(unmade)[:6])
        raise ValueError(f"model.merges: expected one for every token, found none for {len(unmade)}, such as {some}.")
    if lost := tokens - vocabulary.keys():
        raise ValueError(f"model.vocab: expected what the merges make, found no {shown(sorted(lost)[:6])}.")
    if both := tokens & specials.keys():
        raise ValueError(f"added_tokens: expected none of the text's own, found {shown(sorted(both)[:6])}.")
    if other := {token for token in specials.keys() & vocabulary.keys() if specials[token] != vocabulary[token]}:
        raise ValueError(f"added_tokens: expected the vocabulary's ids, found others for {shown(sorted(other)[:6])}.")
    ids = sorted({**vocabulary, **specials}.values())
    if ids != list(range(len(ids))):
        raise ValueError(f"expected token ids 0 to {len(ids) - 1} without gaps, got others")
