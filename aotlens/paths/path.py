"""A path's name: where it starts, and which heads it passes; a path in words, and the logit where it ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from aotlens.conventions import HasHeads, HeadLike, as_head, describe, head_name
from aotlens.models import AttentionOnlyTransformer

#: The sources of the residual stream: "token" embeddings (for other models "input"), learned "position"s, what the MLP
#: of a layer writes ("mlp_0"), and "bias"es.
SourceName: TypeAlias = str

_MLP = re.compile(r"mlp_(\d+)", re.ASCII)
_KEY = re.compile(r"(token|input|position|mlp_\d+|bias)(?:@(\d+))?((?:-\d+\.\d+)*)", re.ASCII)


@dataclass(frozen=True)
class Path:
    """A source term and the heads that carry it to the output, in increasing layers.

    `source_position` is the position where the source stands, or None for all of them together. An MLP's output is a
    source of its layer: `Path("mlp_0")` is `Path("mlp", source_layer=0)`.

    Raises `ValueError` for an MLP without its layer, and for a layer of anything else.
    """

    source: SourceName
    """token, input, position, mlp or bias."""
    heads: tuple[HeadLike, ...] = ()
    source_position: int | None = None
    source_layer: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(map(as_head, self.heads)))
        if (layer := mlp_layer(self.source)) is not None:
            object.__setattr__(self, "source", "mlp")
            object.__setattr__(self, "source_layer", layer)
        if (self.source == "mlp") != (self.source_layer is not None):
            raise ValueError(
                f"path: expected a source_layer for source 'mlp' and for no other (or 'mlp_0', the MLP of layer 0), "
                f"got source={self.source!r}, source_layer={self.source_layer}."
            )

    @property
    def order(self) -> int:
        """The number of heads that the path passes."""
        return len(self.heads)

    @property
    def start(self) -> str:
        """The source's name among `source_names`: "token", or "mlp_0" for the MLP of layer 0."""
        return self.source if self.source_layer is None else mlp_name(self.source_layer)

    @property
    def key(self) -> str:
        """The path in one word, as addresses and files have it: `token@4-0.2-1.3`."""
        return "-".join(self._steps)

    @classmethod
    def named(cls, key: str) -> Path:
        """Return the path that has this `key`. Raises `ValueError` for anything else."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise ValueError(f"path {key!r:.60}: expected where it starts and its heads, as token@4-0.2-1.3.")
        source, position, heads = match.groups()
        return cls(source, tuple(heads.split("-")[1:]), None if position is None else int(position))

    def __str__(self) -> str:
        return " → ".join([*self._steps, "logits"])

    @property
    def _steps(self) -> list[str]:
        start = self.start if self.source_position is None else f"{self.start}@{self.source_position}"
        return [start, *map(head_name, self.heads)]


#: A path to the query of a score, and one to the keys.
PathPair: TypeAlias = tuple[Path, Path]


def mlp_name(layer: int) -> str:
    """Name the output of a layer's MLP among sources."""
    return f"mlp_{layer}"


def mlp_layer(name: str) -> int | None:
    """Return the layer of a source that is an MLP's output; None for any other source."""
    match = _MLP.fullmatch(name)
    return None if match is None else int(match.group(1))


def check_heads(heads: Iterable[HeadLike], sizes: HasHeads) -> None:
    """Raise `ValueError` for heads that the model does not have, or that are not in increasing layers."""
    for (earlier, _), (later, _) in pairwise(as_head(head, sizes) for head in heads):
        if earlier >= later:
            raise ValueError(f"path: expected heads in increasing layers, got layer {earlier} before layer {later}.")


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
    """Return `" Mr"@3` for a token of the prompt with a position, `mlp_0@3` or `mlp_0` for other sources."""
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
