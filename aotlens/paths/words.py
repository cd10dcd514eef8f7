"""A path in words: where it starts, and the logit where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from aotlens.conventions import describe
from aotlens.models import AttentionOnlyTransformer
from aotlens.paths.path import Path


def token_name(model: AttentionOnlyTransformer, token: int) -> str:
    """Return a token in quotes, or its number without a tokenizer."""
    return describe(output_text(model, token)) if _named(model) else output_text(model, token)


def output_text(model: AttentionOnlyTransformer, token: int) -> str:
    """Return a token as it is, or its number without a tokenizer."""
    if not _named(model):
        return f"output {token}"
    text: str = model.tokenizer.str_tokens([token])[0]  # type: ignore[union-attr]
    return text


def _named(model: AttentionOnlyTransformer) -> bool:
    return model.tokenizer is not None and model.cfg.read_out == "tokens"


def place_words(str_tokens: Sequence[str], position: int) -> str:
    """Return a token and where it stands: `" Mr"@3`; `@3` without a tokenizer."""
    return f"{describe(str_tokens[position]) if str_tokens else ''}@{position}"


def source_words(path: Path, tokens: Sequence[int], str_tokens: Sequence[str]) -> str:
    """Return `" Mr"@3` for a token of the prompt whose position is told, `mlp_0@3` or `mlp_0` for other sources."""
    position = path.source_position
    if position is None:
        return path.start
    if path.source == "token":
        return place_words(str_tokens, position) if str_tokens else f"token {tokens[position]}@{position}"
    return f"{path.start}@{position}"


def end_words(model: AttentionOnlyTransformer, target: int | tuple[int, int] | None) -> str:
    """Return `logit " Darcy"`, a difference of two, or `logits` without a target."""
    if target is None:
        return "logits"
    if isinstance(target, tuple):
        return f"logit {token_name(model, target[0])} − {token_name(model, target[1])}"
    return f"logit {token_name(model, target)}"
