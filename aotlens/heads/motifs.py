"""The motifs: where a head may look, each with the keys that it would look at.

    previous_token    i − 1
    current_token     i
    next_token        i + 1
    first_token       0, a start token or [CLS]
    last_token        n − 1, [SEP] where a sequence ends in one
    induction         every j + 1 ≤ i where an earlier token t_j (1 ≤ j < i) equals t_i (Olsson et al. 2022)
    separator         every special token after position 0

for a query at position i of n tokens t. `aotlens.heads.attention_to` measures them: the attention that goes there,
averaged over the queries that see such a key (`Inputs.targets` says which count). A new motif is one more entry here;
scores, commands, distillations and the app's pages take it from `MOTIFS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.heads.inputs import Inputs, Targets

Mask: TypeAlias = Callable[[Inputs], Targets]
PatternScore: TypeAlias = Callable[[Float[Tensor, "batch head query key"]], Float[Tensor, "batch head"]]


@dataclass(frozen=True, kw_only=True)
class Motif:
    """Something that a head may do, as a number from its attention patterns: give either a `mask` or a `score`."""

    name: str
    """In code, files and addresses: lower-case letters, digits and underscores."""
    badge: str
    """At most four letters, for a head's cell in a picture of all heads."""
    sentence: str
    """What a head with a high score does."""
    mask: Mask | None = None
    """The keys of each query, and the queries that count: the score is their mean attention to those keys."""
    score: PatternScore | None = None
    """For what the pattern alone shows: a number a sequence and head, averaged over sequences."""
    threshold: float = 0.4
    """A head is labelled with its highest motif among those that reach theirs."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"name={self.name!r}: expected lower-case letters, digits and underscores.")
        if not 1 <= len(self.badge) <= 4:
            raise ValueError(f"{self.name}: badge={self.badge!r}: expected one to four letters.")
        if (self.mask is None) == (self.score is None):
            raise ValueError(
                f"{self.name}: expected either a mask or a score, got {'neither' if self.mask is None else 'both'}."
            )

    @property
    def title(self) -> str:
        """The motif's name in words, for titles."""
        return self.name.replace("_", " ")


def offset(by: int) -> Mask:
    """The key `by` positions after the query (before it where negative)."""

    def mask(inputs: Inputs) -> Targets:
        position = torch.arange(inputs.n_pos)
        return inputs.targets(position - position[:, None] == by)

    return mask


def position(at: int) -> Mask:
    """The key at one position, counted from the end where negative; not the query itself."""

    def mask(inputs: Inputs) -> Targets:
        keys = torch.zeros(inputs.n_pos, inputs.n_pos, dtype=torch.bool)
        keys[:, at] = True
        keys.fill_diagonal_(False)
        return inputs.targets(keys)

    return mask


def after_earlier(inputs: Inputs) -> Targets:
    """What followed each earlier occurrence of the query's token, the start token's aside."""
    same = (inputs.tokens[:, :, None] == inputs.tokens[:, None, :]).tril(-1)  # [batch, query, key]
    same[:, :, 0] = False
    return inputs.targets(torch.nn.functional.pad(same[:, :, :-1], (1, 0)))


def special(inputs: Inputs) -> Targets:
    """Special tokens after the first position."""
    ids = torch.tensor(sorted(inputs.need(inputs.special_ids, "the ids of special tokens")))
    keys = torch.isin(inputs.tokens, ids)
    keys[:, 0] = False
    return inputs.targets(keys[:, None, :].expand(-1, inputs.n_pos, -1))


#: Every motif by its name; iterating gives names.
MOTIFS: dict[str, Motif] = {
    motif.name: motif
    for motif in (
        Motif(
            name="previous_token", badge="prev", sentence="It attends to the token before.", mask=offset(-1)
        ),
        Motif(name="current_token", badge="self", sentence="It attends to the query's own token.", mask=offset(0)),
        Motif(name="next_token", badge="next", sentence="It attends to the token after.", mask=offset(1)),
        Motif(
            name="first_token", badge="1st", sentence="It attends to the first position, mostly a start token.",
            mask=position(0),
        ),
        Motif(name="last_token", badge="last", sentence="It attends to the last position.", mask=position(-1)),
        Motif(
            name="induction", badge="ind", mask=after_earlier,
            sentence="It attends to what followed an earlier occurrence of the query's token.",
        ),
        Motif(
            name="separator", badge="sep", mask=special,
            sentence="It attends to special tokens after the first position, such as those between texts.",
        ),
    )
}  # fmt: skip
#: The motifs of position, whatever the tokens: the patterns of *nonlinearity*, Figure 1 (after Clark et al. 2019).
PLACES = ("previous_token", "current_token", "next_token", "first_token", "last_token")


def as_motifs(motifs: Iterable[str | Motif] | str | Motif | None) -> tuple[Motif, ...]:
    """The motifs that were named or given; all for None. Raises `ValueError` for another name, or none."""
    if motifs is None:
        return tuple(MOTIFS.values())
    listed = [motifs] if isinstance(motifs, str | Motif) else list(motifs)
    unknown = [motif for motif in listed if not isinstance(motif, Motif) and motif not in MOTIFS]
    if unknown or not listed:
        what = f"no motif {unknown[0]!r}" if unknown else "expected at least one motif"
        raise ValueError(f"{what}; there are {', '.join(MOTIFS)}.")
    return tuple(motif if isinstance(motif, Motif) else MOTIFS[motif] for motif in listed)
