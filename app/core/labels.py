"""Labels of the rows and columns of a matrix, for people: labels of indices, and search among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.plots import glyphs

if TYPE_CHECKING:
    from aotlens.circuits import Side
    from aotlens.models import AttentionOnlyTransformer


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """The label of each row (or column)."""

    of: str
    """The kind of what is labelled: token, position, bias, direction or class."""
    texts: Sequence[str] | None
    """The tokens' texts, where the rows are tokens and there is a tokenizer."""
    n: int
    through: str = ""
    """The other head that the side goes through, as `layer.head`."""
    first: Sequence[int] = ()
    """The indices that are offered before anybody types; by default the lowest."""

    def text(self, index: int) -> str:
        """Return the token as it is, or what the index counts."""
        if self.texts is not None:
            return self.texts[index]
        return "bias" if self.of == "bias" else f"{self.of} {index}"

    def shown(self, index: int) -> str:
        """Return the text with every character visible."""
        return glyphs(self.text(index)) if self.texts is not None else self.text(index)

    def short(self, index: int) -> str:
        """Write an index as `shown`, where what it counts is said already: `221` rather than `position 221`."""
        return str(index) if self.texts is None and self.of != "bias" else self.shown(index)

    def search(self, wanted: str, n: int) -> list[int]:
        """Return the first `n` indices whose text has `wanted` in it, exact ones first, then those that begin with it.

        `·the`, ` the` and `262` are all ways to find the token ` the`.
        """
        if not wanted:
            return [*self.first] or list(range(min(n, self.n)))
        written = glyphs(wanted).casefold()
        hits: list[tuple[int, int, int]] = []
        for index in range(self.n):
            here = self.shown(index).casefold()
            if str(index) == wanted or here == written:
                hits.append((0, len(here), index))
            elif written in here:
                hits.append((1 if here.lstrip("·").startswith(written) else 2, len(here), index))
        return [index for *_, index in sorted(hits)[:n]]

    @property
    def plural(self) -> str:
        """Return the plural: tokens, positions, biases, directions or classes."""
        return {"bias": "biases", "class": "classes"}.get(self.of, f"{self.of}s")


def labels_of(side: Side, n: int, model: AttentionOnlyTransformer) -> Labels:
    """Return the labels of a circuit's side with `n` rows."""
    texts = _texts(n, model) if side.index == "token" else None
    through = "" if side.through is None else f"{side.through[0]}.{side.through[1]}"
    return Labels(of=side.index, texts=texts, n=n, through=through)


def token_labels(model: AttentionOnlyTransformer) -> Labels:
    """Return the labels of a model's vocabulary."""
    n = model.cfg.d_vocab or 0
    return Labels(of="token", texts=_texts(n, model), n=n)


def _texts(n: int, model: AttentionOnlyTransformer) -> list[str] | None:
    """The first `n` tokens; None without a tokenizer. A vocabulary may be padded beyond its tokenizer."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return None
    known = min(n, tokenizer.d_vocab)
    return [*tokenizer.str_tokens(range(known)), *(f"<unused {index}>" for index in range(known, n))]
