"""What a ``tokenizer.json`` must have: a string for each id, special tokens, and steps whose cost is bounded.

Whatever the library `tokenizers` loads is read, of any kind. The format holds whole programs, though: padding to 10⁹
tokens, dropout, chains of replacements that double a text, and regular expressions. Those that lose tokens are refused,
and the others are bounded:

- A regular expression is an alternation of characters, classes and short groups in a row, where at most one repeated
  part has to give characters back for what follows, no group is repeated and nothing refers back. So it takes at most
  n² steps for n characters. GPT-2's, Llama 3's, Qwen 2's, BLOOM's and GPT-4o's are of this form. (A list of them by
  value would refuse the next family's; the library cannot stop an expression that runs.)
- No more than 32 steps, which make a text at most 8 times as long. SentencePiece's normalizer may, of a rare character,
  make 33: where one can do more (1,000 times at most), what it makes of a text is measured before that is encoded.
- Few added tokens, and no longer tokens and words than published ones, since Unigram tries each length at each place.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from math import ceil, prod
from typing import Any

from aotlens.untrusted import check_name, excerpt

#: The most characters of a token, of one of a Unigram model, and of a word of which WordPiece tries every part.
_LONGEST, _LONGEST_PIECE, _LONGEST_WORD = 1024, 128, 200
_MOST_ADDED, _MOST_STEPS = 20_000, 32
#: How many times as long a text may become; the larger bound is of a normalizer, on a part of a text.
MOST_GROWTH, _MOST_OF_PART = 8, 1000
#: How many times as long the steps of a kind make a text of the longest kind of characters.
_GROWTH = {"ByteLevel": 2, "Metaspace": 2, "BertNormalizer": 4, "NFC": 4, "NFD": 4, "NFKC": 4, "NFKD": 4}
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_KEYS = {"version", "truncation", "padding", "added_tokens", "post_processor", "model", *_PARTS}
#: Tokens that begin texts or end them, best first, where the file does not say which does.
_STARTS = ("<|endoftext|>", "<|begin_of_text|>", "<|startoftext|>", "<bos>", "<s>", "[CLS]", "<cls>", "</s>", "<eos>")

_ESCAPE = r"\\(?:[pP]\{\^?\w{1,30}\}|[^0-9A-Za-z]|[sSdDwWrntfvbB]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})"
_CLASS = rf"\[(?:{_ESCAPE}|\[(?:{_ESCAPE}|[^\[\]\\])*\]|[^\[\]\\])+\]"
_GROUP = rf"\((?:\?(?:i?:|<?[=!]))?(?:{_ESCAPE}|[^()\\*+?{{}}])*\)"
_PIECE = re.compile(
    rf"(?P<group>{_GROUP})(?P<optional>\?)?"
    rf"|(?:{_ESCAPE}|{_CLASS}|[^\\\[\](){{}}*+?|])(?P<repeats>[?*+]|\{{\d{{1,3}}(?:,\d{{0,3}})?\}})?[+?]?"
)


def check_tokenizer(saved: Any) -> bool:
    """Return whether the normalizer of a ``tokenizer.json`` (as JSON) can make a text more than 8 times as long.

    Raises `ValueError` for one without a vocabulary, or with what is not bounded.
    """
    if not isinstance(saved, dict) or not isinstance(model := saved.get("model"), dict):
        raise ValueError("expected a tokenizer's JSON with a model, found none.")
    if unknown := sorted(set(saved) - _KEYS):
        raise ValueError(f"tokenizer: unknown settings {excerpt(unknown)}; known are {', '.join(sorted(_KEYS))}.")
    for key in ("truncation", "padding"):
        if saved.get(key) is not None:
            raise ValueError(f"{key}: expected null, found {excerpt(saved[key])}, which changes or drops tokens.")
    if model.get("dropout"):
        raise ValueError(f"model.dropout: expected null, found {excerpt(model['dropout'])}, which is random.")
    if not isinstance(longest := model.get("max_input_chars_per_word", 0), int) or longest > _LONGEST_WORD:
        raise ValueError(f"max_input_chars_per_word: expected at most {_LONGEST_WORD}, found {excerpt(longest)}.")
    kinds: set[str] = set()
    growth = {}
    for part in _PARTS:
        steps = list(_steps(saved.get(part)))
        growth[part] = prod(_growth(part, step) for step in steps)
        most = _MOST_OF_PART if part == "normalizer" else MOST_GROWTH
        if len(steps) > _MOST_STEPS or growth[part] > most:
            raise ValueError(
                f"{part}: expected at most {_MOST_STEPS} steps that make a text at most {most:,} times as long, found "
                f"{len(steps)} steps, {growth[part]:,} times."
            )
        kinds |= {str(step.get("type")) for step in steps if part != "decoder"}
    ids = _ids(model, saved.get("added_tokens") or [])
    missing = sorted(byte_of_character().keys() - ids.keys())
    if missing and "ByteLevel" in kinds and model.get("type", "BPE") == "BPE" and model.get("unk_token") is None:
        raise ValueError(f"model.vocab: expected all 256 bytes, found none of {excerpt(missing)}: they would vanish.")
    return growth["normalizer"] > MOST_GROWTH


def special_start(saved: dict[str, Any], *names: str | None) -> str | None:
    """Return the token that begins a text: what the file puts first, else the first of `names` and of the usual ones
    that the vocabulary has."""
    ids = _ids(saved["model"], saved.get("added_tokens") or [])
    put_first = [name for step in _steps(saved.get("post_processor")) for name in _put_first(step)]
    return next((name for name in (*put_first, *names, *_STARTS) if isinstance(name, str) and name in ids), None)


def _put_first(step: dict[str, Any]) -> list[Any]:
    single, cls = step.get("single"), step.get("cls")
    first = single[0] if isinstance(single, list) and single else None
    special = first.get("SpecialToken") if isinstance(first, dict) else None
    return [special.get("id")] if isinstance(special, dict) else cls[:1] if isinstance(cls, list) else []


def without_habits(saved: Any, *names: str | None) -> Any:
    """Return a tokenizer as it is kept: without what a call left behind (padding, truncation), with ids 0, 1, … (those
    that no token has become ``<|unused 17|>``), and with the start token (`special_start`) as what it puts first."""
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        return saved
    saved = {**saved, "padding": None, "truncation": None, "added_tokens": saved.get("added_tokens") or []}
    model, added = saved["model"], saved["added_tokens"]
    ids = _ids(model, added)
    gaps = set(range(max(ids.values(), default=0))) - set(ids.values())
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    if len(gaps) > _MOST_ADDED:
        raise ValueError(f"expected token ids without many gaps, found {len(gaps):,}.")
    added = added + [{"id": index, "content": f"<|unused {index}|>", **plain} for index in gaps]
    saved["added_tokens"] = sorted(added, key=lambda token: token["id"])
    if isinstance(vocab := model.get("vocab"), dict):
        # The library numbers the tokens that the vocabulary lacks anew, behind it.
        below = {token["content"]: token["id"] for token in added if token["id"] < max(vocab.values(), default=0)}
        saved["model"] = {**model, "vocab": {**vocab, **below}}
    start = special_start(saved, *names)
    saved["post_processor"] = None
    if start is not None and start != special_start(saved):
        tokens = {start: {"id": start, "ids": [ids[start]], "tokens": [start]}}
        begin, text = {"SpecialToken": {"id": start, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
        pair = [begin, text, {"Sequence": {"id": "B", "type_id": 1}}]
        saved["post_processor"] = {"type": "TemplateProcessing", "single": [begin, text], "pair": pair}
        saved["post_processor"]["special_tokens"] = tokens
    return saved


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        nested = [step for value in part.values() if isinstance(value, list) for step in value]
        yield from (step for inner in nested for step in _steps(inner)) if part.get("type") == "Sequence" else [part]


def _growth(part: str, step: dict[str, Any]) -> int:
    """How many times as long a step makes a text, at most. Raises `ValueError` for an unbounded regular expression."""
    pattern, content = step.get("pattern"), step.get("content")
    length = len(content) if isinstance(content, str) and step.get("type") == "Replace" else 0
    if isinstance(pattern, dict) and isinstance(regex := pattern.get("Regex"), str):
        check_regex(f"{part}.pattern", regex)
        return 1 + length
    if isinstance(pattern, dict) and isinstance(string := pattern.get("String"), str):
        return max(1, ceil(length / len(string))) if string else 1 + length
    if isinstance(before := step.get("prepend"), str):
        return 1 + len(before)
    if isinstance(table := step.get("precompiled_charsmap"), str):
        data = base64.b64decode(table)  # the size of a trie, the trie, and what it replaces by
        return max(map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0"))) + 1
    return _GROWTH.get(str(step.get("type")), 1)


def check_regex(where: str, regex: str) -> None:
    """Raise `ValueError` for a regular expression that may take more than n² steps on a text of n characters."""
    place, choices, gives_back, waiting = 0, 0, 0, 0
    while place < len(regex) <= _LONGEST:
        if regex[place] == "|":
            place, choices, gives_back, waiting = place + 1, 0, 0, 0
            continue
        if (piece := _PIECE.match(regex, place)) is None:
            break
        place, repeats = piece.end(), piece["repeats"] or piece["optional"]
        choices += 3 if piece["group"] else bool(repeats)
        if repeats not in ("?", "*"):  # what must match makes all that repeats before it give back
            gives_back, waiting = gives_back + waiting, 0
        waiting += repeats not in (None, "?")
        if choices > 6 or gives_back > 1:
            break
    if place < len(regex) or choices > 6 or gives_back > 1:
        raise ValueError(
            f"{where}: expected a regular expression without repeated groups, references, or repeats that a text can "
            f"make it try again and again, found {excerpt(regex)} (from character {place})."
        )


def _ids(model: dict[str, Any], added: Any) -> dict[str, int]:
    """The id of each token. Raises `ValueError` for invalid ones: the largest id takes room."""
    vocab = model.get("vocab")
    if isinstance(vocab, list):  # of a Unigram model, with the score of each
        vocab = {piece[0]: place for place, piece in enumerate(vocab) if isinstance(piece, list) and len(piece) == 2}
    if not isinstance(vocab, dict) or not isinstance(added, list):
        raise ValueError("model.vocab: expected an id by token, and added_tokens a list.")
    if len(added) > _MOST_ADDED:
        raise ValueError(f"added_tokens: expected at most {_MOST_ADDED:,}, found {len(added):,}.")
    ids = dict(vocab)
    for token in added:
        if not isinstance(token, dict) or not isinstance(content := token.get("content"), str) or not content:
            raise ValueError(f"added_tokens: expected tokens with their text, found {excerpt(token)}.")
        check_name(re.sub(r"[\t\n\r]", " ", content), f"added token {excerpt(content)}")
        if ids.setdefault(content, token.get("id")) != token.get("id"):
            raise ValueError(f"added_tokens: expected the vocabulary's ids, found others for {excerpt(content)}.")
    if not ids or not all(isinstance(token, str) and type(index) is int and index >= 0 for token, index in ids.items()):
        raise ValueError("model.vocab: expected at least one token, and whole numbers from 0 for ids.")
    if max(map(len, ids)) > (longest := _LONGEST_PIECE if isinstance(model.get("vocab"), list) else _LONGEST):
        raise ValueError(f"model.vocab: expected tokens of at most {longest} characters, found a longer one.")
    if len(set(ids.values())) < len(ids) or max(ids.values()) > 2 * len(ids) + 1000:
        raise ValueError(
            f"expected token ids from 0 without large gaps, each once, got {len(ids):,} tokens with "
            f"{len(set(ids.values())):,} ids up to {max(ids.values()):,}"
        )
    return ids


def byte_of_character() -> dict[str, int]:
    """Map each of the 256 characters of the byte alphabet to its byte.

    GPT-2's tokenizer writes each byte as one printable character: the 188 bytes that are printable Latin-1 and no space
    stand for themselves, the other 68 are U+0100, U+0101, … in order (a space is "Ġ", a newline "Ċ").
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + rank): byte for rank, byte in enumerate(others)})
    return table


def escape_invalid_utf8(data: bytes) -> str:
    """Decode UTF-8; each byte that belongs to no whole character becomes an escape such as ``<0xE2>``."""
    pieces: list[str] = []
    while data:
        try:
            pieces.append(data.decode("utf-8"))
            break
        except UnicodeDecodeError as error:
            pieces.append(data[: error.start].decode("utf-8"))
            pieces.extend(f"<0x{byte:02X}>" for byte in data[error.start : error.end])
            data = data[error.end :]
    return "".join(pieces)


def require_utf8(text: str, *, what: str = "text") -> None:
    """Raise ValueError, with the position and the remedy, if ``text`` holds a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} holds a lone surrogate, U+{ord(text[error.start]):04X} at character {error.start}: half "
            "of a character, which has no UTF-8 form. Remove it, or repair the text with "
            "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')."
        ) from None
