"""Small tokenizers in the layouts that families publish, made by the library `tokenizers` itself."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = "the cat sat on the mat, the rat sat on the cat, and that was that's — 😀 don't 123 4567\n\n  indented\ttab"
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]
CONTRACTIONS, SPACES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
    rf"{CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
)
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + SPACES
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
KIMI = rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+{CONTRACTIONS}?|{SPACES}"
#: Regular expressions in published files.
PUBLISHED = [
    LLAMA3, QWEN2, GPT4O, DEEPSEEK, BLOOM, CLIP, KIMI,
    r"\s+", " {2,}", r"\s{2,}|[\n\r\t]", "^▁+$", " +▁", r"\n", r"[\n\r\t]",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "[0-9][0-9][0-9]", "[一-龥ぁ-ヿ]+",
    rf"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]++[\r\n]*|{SPACES}",
]  # fmt: skip


def bpe(tokens: list[str], *, alphabet: list[str] | None = None, size: int = 340, **settings: Any) -> models.BPE:
    """Merges of `TEXT`'s words behind some tokens: the pairs that a trainer finds."""
    byte_level = alphabet is None
    trained = tokenizers.Tokenizer(models.BPE())
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else metaspace
    suffix = settings.get("end_of_word_suffix") or ""
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*tokens, *(alphabet or [])], show_progress=False,
        initial_alphabet=BYTES if byte_level else [], end_of_word_suffix=suffix,
    )  # fmt: skip
    trained.train_from_iterator([TEXT], trainer)

    saved = json.loads(trained.to_str())["model"]
    vocabulary = dict(saved["vocab"])
    if suffix:
        for byte in BYTES:
            vocabulary.setdefault(byte + suffix, len(vocabulary))
    return models.BPE(vocab=vocabulary, merges=[tuple(pair) for pair in saved["merges"]], **settings)


def byte_level(
    tokens: list[str], *steps: Any, normalizer: Any = None, after: Any = None, use_regex: bool = True, **settings: Any
) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(bpe(tokens, **settings))
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    made.pre_tokenizer = pre_tokenizers.Sequence([*steps, last]) if steps else last
    made.decoder = decoders.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    if after is not None:
        made.post_processor = after
    made.add_special_tokens(tokens)
    return made


def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert)


def first(token: str, index: int, last: str = "") -> Any:
    single = f"{token} $A {last}".strip()
    return processors.TemplateProcessing(
        single=single, pair=f"{single} $B", special_tokens=[(token, index), *([(last, 3)] if last else [])]
    )


def sentencepiece(tokens: list[str], legacy: bool, start: str) -> tokenizers.Tokenizer:
    """Llama 2's and Mistral's: spaces as ▁, and bytes for what the vocabulary lacks."""
    made = tokenizers.Tokenizer(
        bpe(tokens, alphabet=FALLBACK, size=330, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    if legacy:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(steps)
    made.post_processor = first(start, 1)
    made.add_special_tokens(tokens)
    return made


def gemma() -> tokenizers.Tokenizer:
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    made = tokenizers.Tokenizer(
        bpe(tokens, alphabet=FALLBACK, size=330, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.post_processor = first("<bos>", 2)
    made.add_special_tokens(tokens)
    made.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("[multimodal]", normalized=False)])
    return made


def charsmap(*replaced: str) -> bytes:
    """A trie without a word, and the strings that SentencePiece replaces words by."""
    return struct.pack("<I", 1024) + bytes(1024) + b"".join(each.encode() + b"\0" for each in replaced)


def unigram(tokens: list[str], normalizer: Any, pre_tokenizer: Any, after: Any) -> tokenizers.Tokenizer:
    letters = sorted({"▁", *TEXT.replace(" ", "").replace("\n", "").replace("\t", "")} - {"😀"})
    words = {f"▁{word}" for word in TEXT.split()} | {"▁the", "at", "▁c", "ing"}
    pieces = [(token, 0.0) for token in tokens] + [(letter, -8.0) for letter in letters]
    pieces += [(word, -3.0 - len(word) / 9) for word in sorted(words - set(letters))]
    made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=tokens.index("<unk>"), byte_fallback=False))
    if normalizer is not None:
        made.normalizer = normalizer
    made.pre_tokenizer, made.decoder, made.post_processor = pre_tokenizer, decoders.Metaspace(), after
    made.add_special_tokens(tokens)
    return made


def t5() -> tokenizers.Tokenizer:
    cut = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    after = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return unigram(["<pad>", "</s>", "<unk>", "<extra_id_0>"], None, cut, after)


def albert() -> tokenizers.Tokenizer:
    steps = [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    steps += [normalizers.Precompiled(charsmap("y", "ﬁ")), normalizers.Replace(Regex(" {2,}"), " ")]
    cut = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokens = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    return unigram(tokens, normalizers.Sequence(steps), cut, first("[CLS]", 2, "[SEP]"))


def bert() -> tokenizers.Tokenizer:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted({*"abcdefghijklmnopqrstuvwxyz0123456789,.'!?—"})
    words = [*tokens, *letters, *(f"##{letter}" for letter in letters), "the", "cat", "##at", "don", "##ing"]
    vocabulary = {word: index for index, word in enumerate(words)}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder, made.post_processor = decoders.WordPiece(), first("[CLS]", 2, "[SEP]")
    made.add_special_tokens(tokens)
    return made


def clip() -> tokenizers.Tokenizer:
    tokens = ["<|startoftext|>", "<|endoftext|>"]
    steps = [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    after = processors.RobertaProcessing((tokens[1], 1), (tokens[0], 0), trim_offsets=False, add_prefix_space=False)
    made = byte_level(
        tokens, split(CLIP, "removed", True), normalizer=normalizers.Sequence(steps), after=after, size=700,
        end_of_word_suffix="</w>", unk_token="<|endoftext|>",
    )  # fmt: skip
    return made


def roberta() -> tokenizers.Tokenizer:
    tokens = ["<s>", "<pad>", "</s>", "<unk>"]
    after = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    made = byte_level(tokens, after=after)
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return made


def neox() -> tokenizers.Tokenizer:
    made = byte_level(["<|endoftext|>", "<|padding|>"], pre_tokenizers.Digits(True), normalizer=normalizers.NFC())
    made.add_tokens([AddedToken(" " * n, normalized=True) for n in (4, 3, 2)])
    return made


def phi() -> tokenizers.Tokenizer:
    made = byte_level(["<|endoftext|>"])
    made.add_tokens([AddedToken("\t" * n, normalized=False) for n in (3, 2)] + [AddedToken("<|im_end|>", rstrip=True)])
    return made


def falcon() -> tokenizers.Tokenizer:
    made = byte_level([">>TITLE<<", "<|endoftext|>"])
    steps: list[Any] = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(False)]
    steps += [pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")]
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return made


LAYOUTS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "GPT-2": lambda: byte_level(["<|endoftext|>"]),
    "GPT-NeoX": neox,
    "Phi": phi,
    "Falcon": falcon,
    "Llama 3": lambda: byte_level(
        ["<|begin_of_text|>", "<|end_of_text|>"], split(LLAMA3), use_regex=False, ignore_merges=True,
        after=processors.Sequence([processors.ByteLevel(), first("<|begin_of_text|>", 0)]),
    ),
    "Qwen 2": lambda: byte_level(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], split(QWEN2), normalizer=normalizers.NFC(), use_regex=False
    ),
    "GPT-4o": lambda: byte_level(["<|endoftext|>"], split(GPT4O), use_regex=False),
    "DeepSeek 3": lambda: byte_level(
        ["<｜begin▁of▁sentence｜>"], split(r"\p{N}{1,3}"), split("[一-龥ぁ-ヿ]+"), split(DEEPSEEK), use_regex=False,
        after=first("<｜begin▁of▁sentence｜>", 0),
    ),
    "BLOOM": lambda: byte_level(["<unk>", "<s>", "</s>", "<pad>"], split(BLOOM), use_regex=False),
    "RoBERTa": roberta,
    "CLIP": clip,
    "Llama 2": lambda: sentencepiece(["<unk>", "<s>", "</s>"], True, "<s>"),
    "Mistral": lambda: sentencepiece(["<unk>", "<s>", "</s>", "[INST]"], False, "<s>"),
    "Gemma": gemma,
    "T5": t5,
    "ALBERT": albert,
    "BERT": bert,
}  # fmt: skip
#: The layouts in which text does not come back: they lower it, and join spaces.
LOSSY = {"CLIP", "T5", "ALBERT", "BERT"}
#: The token that begins a text.
STARTS = {
    "Llama 3": "<|begin_of_text|>", "DeepSeek 3": "<｜begin▁of▁sentence｜>", "BLOOM": "<s>", "RoBERTa": "<s>",
    "CLIP": "<|startoftext|>", "Llama 2": "<s>", "Mistral": "<s>", "Gemma": "<bos>", "T5": "</s>", "ALBERT": "[CLS]",
    "BERT": "[CLS]",
}  # fmt: skip
