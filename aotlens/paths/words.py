"""A path in words: where it starts, and the logit where it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aotlens.models import AttentionOnlyTransformer
from aotlens.paths.path import Path


def token_name(model: AttentionOnlyTransformer, token: int) -> str:
    """A token in quotes, or its number without a tokenizer."""
    if model.tokenizer is None or model.cfg.read_out != "tokens":
        return f"output {token}"
    return _quoted(model.tokenizer.str_tokens([token])[0])


def source_words(path: Path, tokens: Sequence[int], str_tokens: Sequence[str]) -> str:
    """`" Mr"@3` for a token of the prompt whose position is told, `mlp_0@3` or `mlp_0` for other sources."""
    at = path.source_position
    if at is None:
        return path.start
    if path.source == "token":
        return f"{_quoted(str_tokens[at])}@{at}" if str_tokens else f"token {tokens[at]}@{at}"
    return f"{path.start}@{at}"


def end_words(model: AttentionOnlyTransformer, target: int | tuple[int, int] | None) -> str:
    """`logit " Darcy"`, a difference of two, or `logits` without a target."""
    if target is None:
        return "logits"
    if isinstance(target, tuple):
        return f"logit {token_name(model, target[0])} − {token_name(model, target[1])}"
    return f"logit {token_name(model, target)}"


def _quoted(token: str) -> str:
    """In quotes and on one line."""
    return json.dumps(token, ensure_ascii=False)
