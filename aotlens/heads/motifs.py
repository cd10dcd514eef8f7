"""The motifs: where a head may look, each with the keys that it would look at.

    previous_token    i − 1
    current_token     i
    next_token        i + 1
    first_token       0, a start token or [CLS]
    last_token        n − 1, [SEP] where a sequence ends in one
    fixed_offset      i − δ > 0, for the δ from 2 on that gets most (and i + δ if later keys are visible)
    mirror            n − 1 − i + c > 0, for the c that gets most: the sequence reversed
    uniform_attention   all keys alike: the entropy of the row ÷ that of uniform attention
    induction         every j + 1 ≤ i where an earlier token t_j (1 ≤ j < i) equals t_i (Olsson et al. 2022)
    duplicate_token   every j < i with t_j = t_i, j ≥ 1
    separator         every special token after position 0
    punctuation       every token of punctuation marks alone
    open_bracket      the innermost bracket still open, in code
    same_indentation  the last line that begins as far in as the query's, in code
    same_word         the last earlier use of the query's word, whatever its case and the spaces around it
    retrieval         every j ≤ i with t_j = t_{i+1}, j ≥ 1: what comes next, where it stood before (Wu et al. 2024)

for a query at position i of n tokens t. Of an image, whose positions are [CLS], where there is one, and its patches in
reading order, current_token, first_token ([CLS]) and uniform_attention mean the same, and there are

    patch_above, patch_below, patch_left, patch_right    the neighbour of the query's patch
    border            every patch at the edge of the image
    foreground        every patch that stands out from the background (`aotlens.heads.source_code`)

Of a prompt of in-context regression, whose tokens x_1, y_1, x_2, y_2, …, x_N take turns, current_token means the same,
and there are (`of_positions`)

    own_input         from a label y_i to its input x_i, one position before
    all_labels        from an input, the query, to all labels before it
    all_inputs        from an input to all inputs before it
    last_label        from an input to the label before it

`aotlens.heads.attention_to` measures them: the attention that goes there, averaged over the queries that see such a key
(`Inputs.targets` says which count). A new motif is one more entry here; scores, commands, distillations and the app's
pages take it from `MOTIFS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.heads.inputs import Inputs, KeyClasses, Missing, Reads, Targets, distant_offsets, mirrors
from aotlens.heads.source_code import (
    border,
    foreground,
    last_bracket,
    last_same_word,
    line_before,
    neighbour,
    open_bracket,
    punctuation,
    same_indentation,
)

Mask: TypeAlias = Callable[[Inputs], Targets]
Classes: TypeAlias = Callable[[Inputs], KeyClasses]
PatternScore: TypeAlias = Callable[[Float[Tensor, "batch head query key"]], Float[Tensor, "batch head"]]
Offsets: TypeAlias = Callable[[Inputs], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Motif:
    """Something that a head may do, as a number from its attention patterns: give a `mask`, a `score` or `offsets`."""

    name: str
    """The name in code, files and addresses: lower-case letters, digits and underscores."""
    badge: str
    """The label of at most four letters, for a head's cell in a picture of all heads."""
    sentence: str
    """The behaviour of a head with a high score, in a sentence."""
    mask: Mask | None = None
    """The keys of each query, and the queries that count: the score is their mean attention to those keys."""
    classes: Classes | None = None
    """The classes in place of `mask`, for what compares tokens: the score is the mean attention to the class of keys
    that a query asks for, and chance what other classes of as many keys get from the same query."""
    score: PatternScore | None = None
    """The score of what the pattern alone shows: a number a sequence and head, averaged over sequences."""
    offsets: Offsets | None = None
    """Offsets (key − query) of which each head's best counts: the score is the mean attention to it."""
    mirrored: bool = False
    """Whether offsets are key − (n − 1 − query), from the query's mirror image."""
    asks: bool | None = None
    """Whether its keys are those of the query's token: whether the same-answer control (`aotlens.heads.same_answer`)
    must take attention away from them, or leave it. None: not known, without the control; no, if it is
    `by_position`."""
    yields_to: tuple[str, ...] = ()
    """Motifs that explain this one: of a head that has one of them as clearly, that one is the label."""
    place: bool = False
    """Whether it is one key, by position, which then has to get more attention than any other."""
    simpler: Mask | None = None
    """A simpler habit that has the same keys mostly: where it has others, attention has to stay with the motif's."""
    by_position: bool = False
    """Whether its keys depend on positions alone: chance is then uniform attention, and otherwise, without `classes`,
    what the head's mean pattern over other sequences would score."""
    reads: tuple[Reads, ...] = ("tokens",)
    """The kinds of inputs that it can be measured on."""
    on_text: bool = False
    """Whether it means nothing on random tokens, and is left out there unless it is named."""
    threshold: float = 0.4
    """The score from which a head may be labelled with it."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"name={self.name!r}: expected lower-case letters, digits and underscores.")
        if not 1 <= len(self.badge) <= 4:
            raise ValueError(f"{self.name}: badge={self.badge!r}: expected one to four letters.")
        kinds = [kind for kind in ("mask", "classes", "score", "offsets") if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(
                f"{self.name}: expected one of mask, classes, score and offsets, got "
                f"{' and '.join(kinds) or 'none of them'}."
            )

    def targets(self, inputs: Inputs) -> Targets | None:
        """Return the pairs of its `mask` or `classes`; None where it has neither. Raises `Missing`."""
        if self.classes is not None:
            return inputs.targets(self.classes(inputs).targets())
        return None if self.mask is None else self.mask(inputs)

    @property
    def asks_token(self) -> bool | None:
        """Whether its keys are those of the query's token, as `asks` says."""
        return False if self.by_position else self.asks

    @property
    def title(self) -> str:
        """The motif's name in words, for titles."""
        return self.name.replace("_", " ")


def offset(by: int) -> Mask:
    """Return the key `by` positions after the query (before it where negative)."""

    def mask(inputs: Inputs) -> Targets:
        position = torch.arange(inputs.n_pos)
        return inputs.targets(position - position[:, None] == by)

    return mask


def position(at: int) -> Mask:
    """Return the key at one position, counted from the end where negative; not the query itself."""

    def mask(inputs: Inputs) -> Targets:
        keys = torch.zeros(inputs.n_pos, inputs.n_pos, dtype=torch.bool)
        keys[:, at] = True
        keys.fill_diagonal_(False)
        return inputs.targets(keys)

    return mask


def first(inputs: Inputs) -> Targets:
    """Return the key at position 0, which of an image is [CLS]."""
    if inputs.grid is not None and not inputs.grid.n_before:
        raise Missing("this model has no [CLS]")
    return position(0)(inputs)


def by_token_before(inputs: Inputs) -> KeyClasses:
    """Return keys by the token that they follow, the start token aside; a query asks for those that followed its own
    token."""
    keys = torch.full_like(inputs.tokens, -1)
    keys[:, 2:] = inputs.tokens[:, 1:-1]
    return KeyClasses(keys=keys, queries=inputs.tokens, own=True)


def special(inputs: Inputs) -> Targets:
    """Return as targets the special tokens after the first position."""
    ids = torch.tensor(sorted(inputs.need(inputs.special_ids, "the ids of special tokens")))
    keys = torch.isin(inputs.tokens, ids)
    keys[:, 0] = False
    return inputs.targets(keys[:, None, :].expand(-1, inputs.n_pos, -1))


def by_token(inputs: Inputs) -> KeyClasses:
    """Return keys by their token, the start token aside; a query asks for the earlier ones of its own."""
    keys = inputs.tokens.clone()
    keys[:, 0] = -1
    return KeyClasses(keys=keys, queries=inputs.tokens, own=False)


def by_next_token(inputs: Inputs) -> KeyClasses:
    """Return keys by their token, the start token aside; a query asks for those of the token that comes next.

    The retrieval score of Wu et al. (2404.15574) counts how often a head's largest attention, while a needle from the
    context is being written, is on the token that is written; this is the mean attention there, on any text.
    """
    keys, queries = inputs.tokens.clone(), torch.full_like(inputs.tokens, -2)
    keys[:, 0] = -1
    queries[:, :-1] = inputs.tokens[:, 1:]
    return KeyClasses(keys=keys, queries=queries, own=True)


def of_strings(keys: Callable[[Sequence[str]], Bool[Tensor, "query key"]]) -> Mask:
    """Return the (query, key) pairs that `keys` gives of a sequence's strings, position 0 aside; special tokens are
    ""."""

    def mask(inputs: Inputs) -> Targets:
        strings = inputs.need(inputs.vocabulary, "the strings of tokens")
        special = inputs.special_ids or frozenset()
        rows = [["" if index in special else strings[index] for index in row] for row in inputs.tokens.tolist()]
        pairs = torch.stack([keys(row) for row in rows])
        pairs[:, :, 0] = False
        return inputs.targets(pairs)

    return mask


def evenness(pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head"]:
    """Return −Σ A ln A ÷ ln v over the rows of queries from the third on, averaged; v is i + 1, or all keys where any
    query attends to a later one."""
    n_pos = pattern.shape[-1]
    seen = torch.arange(1, n_pos + 1) if not bool(pattern.triu(1).any()) else torch.full((n_pos,), n_pos)
    return (row_entropy(pattern) / seen.clamp(min=2).log().to(pattern))[..., 2:].mean(-1)


def row_entropy(pattern: Float[Tensor, "*rows query key"]) -> Float[Tensor, "*rows query"]:
    """Return −Σ A ln A in nats. (`torch.special.entr` takes three times as long on a processor.)"""
    positive = pattern.clamp(min=torch.finfo(pattern.dtype).tiny)
    return -(positive * positive.log()).sum(-1)


def of_positions(keys: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Inputs], Targets]:
    """Return the (query, key) pairs, not after the query, for which `keys(query, key)` holds: inputs stand at even
    positions, labels at odd ones."""

    def mask(inputs: Inputs) -> Targets:
        position = torch.arange(inputs.n_pos)
        return inputs.targets(keys(position[:, None], position[None, :]))

    return mask


#: The target from a label to its own input.
own_input = of_positions(lambda query, key: (query % 2 == 1) & (key == query - 1))
#: The targets from an input to every label before it.
all_labels = of_positions(lambda query, key: (query % 2 == 0) & (key % 2 == 1) & (key < query))
#: The targets from an input to every input before it.
all_inputs = of_positions(lambda query, key: (query % 2 == 0) & (key % 2 == 0) & (key < query))
#: The target from an input to the label before it.
last_label = of_positions(lambda query, key: (query % 2 == 0) & (key == query - 1))


#: Every motif by its name; iterating gives names, whose order is that of colours in figures of labels.
MOTIFS: dict[str, Motif] = {
    motif.name: motif
    for motif in (
        Motif(
            name="previous_token", badge="prev", sentence="It attends to the token before.", mask=offset(-1),
            by_position=True, place=True,
        ),
        Motif(
            name="current_token", badge="self", sentence="It attends to the query's own token.", mask=offset(0),
            by_position=True, place=True, reads=("tokens", "images", "prompts"),
        ),
        Motif(
            name="next_token", badge="next", sentence="It attends to the token after.", mask=offset(1),
            by_position=True, place=True,
        ),
        Motif(
            name="first_token", badge="1st", sentence="It attends to the first position, mostly a start token.",
            mask=first, by_position=True, place=True, reads=("tokens", "images"),
        ),
        Motif(
            name="last_token", badge="last", sentence="It attends to the last position.", mask=position(-1),
            by_position=True,
        ),
        Motif(
            name="induction", badge="ind", classes=by_token_before, asks=True,
            sentence="It attends to what followed an earlier occurrence of the query's token.",
        ),
        Motif(
            name="separator", badge="sep", mask=special, asks=False,
            sentence="It attends to special tokens after the first position, such as those between texts.",
        ),
        Motif(
            name="fixed_offset", badge="off", sentence="It attends a fixed number of tokens back, two or more.",
            offsets=distant_offsets, by_position=True, place=True,
        ),
        Motif(
            name="uniform_attention", badge="all", sentence="It attends to all keys alike.", score=evenness,
            by_position=True, threshold=0.9, reads=("tokens", "images"),
        ),
        Motif(
            name="duplicate_token", badge="dup", classes=by_token, asks=True,
            sentence="It attends to earlier occurrences of the query's token.",
        ),
        Motif(
            name="punctuation", badge="pun", mask=of_strings(punctuation), on_text=True, asks=False,
            sentence="It attends to punctuation marks.",
        ),
        Motif(
            name="open_bracket", badge="brk", mask=of_strings(open_bracket), on_text=True,
            simpler=of_strings(last_bracket),
            sentence="It attends to the innermost bracket that is still open.",
        ),
        Motif(
            name="same_indentation", badge="tab", mask=of_strings(same_indentation), on_text=True,
            simpler=of_strings(line_before),
            sentence="It attends to the last line that begins as far in.",
        ),
        Motif(
            name="same_word", badge="word", mask=of_strings(last_same_word), on_text=True, asks=True,
            sentence="It attends to the last earlier use of the query's word.",
        ),
        Motif(
            name="retrieval", badge="find", classes=by_next_token, on_text=True, yields_to=("induction",),
            sentence="It attends to earlier occurrences of the token that comes next.",
        ),
        Motif(
            name="mirror", badge="mir", offsets=mirrors, mirrored=True, by_position=True, place=True,
            sentence="It attends to the query's mirror image: position n − 1 − i + c from position i of n.",
        ),
        Motif(
            name="patch_above", badge="↑", sentence="It attends to the patch above.", mask=neighbour(-1, 0),
            by_position=True, reads=("images",),
        ),
        Motif(
            name="patch_below", badge="↓", sentence="It attends to the patch below.", mask=neighbour(1, 0),
            by_position=True, reads=("images",),
        ),
        Motif(
            name="patch_left", badge="←", sentence="It attends to the patch on the left.", mask=neighbour(0, -1),
            by_position=True, reads=("images",),
        ),
        Motif(
            name="patch_right", badge="→", sentence="It attends to the patch on the right.", mask=neighbour(0, 1),
            by_position=True, reads=("images",),
        ),
        Motif(
            name="border", badge="edge", sentence="It attends to patches at the edge of the image.", mask=border,
            by_position=True, reads=("images",),
        ),
        Motif(
            name="foreground", badge="fore", mask=foreground, reads=("images",),
            sentence="It attends to patches that stand out from the background.",
        ),
        Motif(
            name="own_input", badge="x", sentence="It attends from a label to its input.", mask=own_input,
            by_position=True, reads=("prompts",),
        ),
        Motif(
            name="all_labels", badge="ys", sentence="It attends from an input to labels before it.",
            mask=all_labels, by_position=True, reads=("prompts",),
        ),
        Motif(
            name="all_inputs", badge="xs", sentence="It attends from an input to inputs before it.",
            mask=all_inputs, by_position=True, reads=("prompts",),
        ),
        Motif(
            name="last_label", badge="y", sentence="It attends from an input to the label before it.",
            mask=last_label, by_position=True, reads=("prompts",),
        ),
    )
}  # fmt: skip
#: The motifs of position, whatever the tokens: the patterns of *nonlinearity*, Figure 1 (after Clark et al. 2019).
PLACES = ("previous_token", "current_token", "next_token", "first_token", "last_token")


def motifs_of(reads: Reads) -> dict[str, Motif]:
    """Return the motifs that can be measured on tokens, on images or on prompts of in-context regression, by their
    names."""
    return {name: motif for name, motif in MOTIFS.items() if reads in motif.reads}


def as_motifs(motifs: Iterable[str | Motif] | str | Motif | None, reads: Reads = "tokens") -> tuple[Motif, ...]:
    """Return the motifs that were named or given; for None all of what is read. Raises `ValueError` for another name,
    or none."""
    if motifs is None:
        return tuple(motifs_of(reads).values())
    listed = [motifs] if isinstance(motifs, str | Motif) else list(motifs)
    unknown = [motif for motif in listed if not isinstance(motif, Motif) and motif not in MOTIFS]
    if unknown or not listed:
        what = f"no motif {unknown[0]!r}" if unknown else "expected at least one motif"
        raise ValueError(f"{what}; there are {', '.join(MOTIFS)}.")
    return tuple(motif if isinstance(motif, Motif) else MOTIFS[motif] for motif in listed)
