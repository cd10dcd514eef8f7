"""One label for each head, from all that is known of it; every page, table and command takes it from here.

On some sequences a head's label is by the rule of `aotlens.heads.label_rule` (`MotifScores.labels`). Of a text and of
random tokens together it is

    1  a motif that compares tokens (`Motif.classes`: induction, duplicate token), if the head has it on random tokens
       that come twice: text repeats with its context, and its topic, random tokens do not
    2  else the label on text (`MotifScores.labels`), where the first position, on which heads rest, is set aside
    3  else, without a text, the label on random tokens

Of sequences that the caller gave (ids, not a corpus) it is the label on these alone: a model of a task has seen no
random tokens. `resting` is read off the text, or off the random tokens where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64

from aotlens.conventions import HeadLike, as_head
from aotlens.heads.attention_to import MotifScores
from aotlens.heads.label_rule import MIXED
from aotlens.heads.motifs import MOTIFS
from aotlens.results import Result, table

if TYPE_CHECKING:
    import pandas as pd

#: The meaning that a label of the first layer cannot have.
OF_THE_FIRST_LAYER = (
    "A head of the first layer sees no token before a key: it does this by where keys stand, or by what else repeats."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadLabels(Result):
    """The label of every head, in a word."""

    names: tuple[tuple[str, ...], ...]
    """The motif's name, or "mixed", for each layer and head."""
    resting: Bool[np.ndarray, "layer head"]
    """Heads that do this with what they do not spend on the first position."""
    margins: Float64[np.ndarray, "layer head"]
    """The margin by which each label beats the next best, in the scores that it is from (`MotifScores.margins`)."""
    random: MotifScores | None
    """The scores on random tokens that come twice."""
    text: MotifScores | None
    from_random: Bool[np.ndarray, "layer head"]
    """Whether each head's label is from the random tokens."""

    @property
    def headline(self) -> str:
        names, counts = np.unique(np.ravel(self.names), return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return ", ".join(f"{counts[i]} {names[i]}" for i in order[:6])

    def source(self, head: HeadLike) -> MotifScores:
        """Return the scores that a head's label is from."""
        known = self.random if self.from_random[as_head(head)] else self.text
        assert known is not None
        return known

    def sentence(self, head: HeadLike) -> str:
        """Describe the head by its label, with its score and chance; and by what a label of its layer cannot mean."""
        layer, number = as_head(head)
        name, scores, index = self.names[layer][number], self.source(head), (layer, number)
        if name == MIXED:
            excess = np.nan_to_num(scores.excess[:, layer, number], nan=-np.inf)
            best = int(excess.argmax())
            closest = scores.motifs[best].replace("_", " ")
            return f"It has no one motif; most beyond chance is {closest} ({excess[best]:+.2f})."
        motif, place = MOTIFS.get(name), scores.motifs.index(name)
        of_keys = scores.chance is not None and (motif is None or motif.score is None)  # uniform attention is all alike
        chance = f" (chance {scores.chance[(place, *index)]:.2f})" if of_keys else ""  # type: ignore[index]
        where = " on random tokens that come twice" if scores is self.random and self.text is not None else ""
        sentence = f"{name.replace('_', ' ')}." if motif is None else motif.sentence
        offset = (
            f", {scores.best_offsets[index]:+d}" if name == "fixed_offset" and scores.best_offsets is not None else ""
        )
        sentence = f"{sentence[:-1]}{offset}{where}: {scores[name][index]:.2f}{chance}."
        if self.resting[index]:
            first = (self.text or scores)["first_token"][index]
            sentence += f" Otherwise it attends to the first token ({first:.2f})."
        if layer == 0 and name == "induction":
            sentence += f" {OF_THE_FIRST_LAYER}"
        return sentence

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head: layer, head, label, resting, margin."""
        return table(("layer", "head"), {"label": self.names, "resting": self.resting, "margin": self.margins})


def head_labels(
    random: MotifScores | None = None, text: MotifScores | None = None, *, threshold: float | None = None
) -> HeadLabels:
    """Label every head from its scores on random tokens that come twice (`motif_scores(model)`) and on text.

    The rule is at the head of this module; `threshold` as in `MotifScores.labels`. Raises `ValueError` if neither is
    given.
    """
    known = text if text is not None else random
    if known is None:
        raise ValueError("expected scores on random tokens, on text, or both; got neither.")
    names, resting = np.array(known.labels(threshold), dtype=object), known.resting(threshold)
    margins = known.margins(threshold)
    from_random = np.full(resting.shape, text is None)
    if random is not None and text is not None:
        repeats = np.array(random.labels(threshold), dtype=object)
        compares = np.vectorize(_compares_tokens, otypes=[bool])(repeats)
        names, from_random = np.where(compares, repeats, names), compares
        resting = np.where(compares, text.rests(threshold), resting)
        margins = np.where(compares, random.margins(threshold), margins)
    of_layers = tuple(map(tuple, names.tolist()))
    return HeadLabels(
        names=of_layers, resting=resting, margins=margins, random=random, text=text, from_random=from_random
    )


def label_words(label: str, resting: bool) -> str:
    """Write a label as tables show it: "induction, otherwise at the first token" for a head that does this with the
    attention that the first token does not get."""
    return label.replace("_", " ") + (", otherwise at the first token" if resting else "")


def _compares_tokens(name: str) -> bool:
    return name in MOTIFS and MOTIFS[name].classes is not None
