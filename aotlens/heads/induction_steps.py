"""The induction circuit of a model in six steps, from the heads that repeat to the loss without them, each measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.conventions import Head, describe, head_name
from aotlens.heads.atlas import Atlas
from aotlens.heads.induction import InductionCircuit, strongest_repeat
from aotlens.heads.patterns import AttentionPatterns
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class InductionSteps(Result):
    """An induction circuit, and a prompt on which its clearest head attends behind an earlier occurrence of a token."""

    circuit: InductionCircuit
    atlas: Atlas
    tokens: tuple[str, ...]
    """The prompt's tokens."""
    query: int
    key: int
    attention: float
    """The attention of `head` from `query` to `key`, the largest one of its kind on the prompt."""

    @property
    def head(self) -> Head:
        """The induction head with the highest score."""
        return self.circuit.heads[self.circuit.clearest]

    @property
    def previous(self) -> Head:
        """The earlier head that its keys read."""
        return self.circuit.previous[self.circuit.clearest]

    @property
    def headline(self) -> str:
        return self.circuit.headline

    def to_frame(self) -> pd.DataFrame:
        """Return one row per step: step, look at, finding."""
        import pandas as pd

        circuit, place, motifs = self.circuit, self.circuit.clearest, self.atlas.motifs
        name, before = head_name(self.head), head_name(self.previous)
        query, key = (describe(self.tokens[position]) for position in (self.query, self.key))
        scores = ", ".join(
            f"{head_name(head)} ({score:.2f})" for head, score in zip(circuit.heads, circuit.induction, strict=True)
        )
        chance = ""
        if motifs.chance is not None:
            chance = f" (chance {motifs.chance[(motifs.motifs.index('previous_token'), *self.previous)]:.2f})"
        others = "".join(
            f" Without {head_name(head)}, of the same layer, it rises by {change:.2f}."
            for head, change in zip(circuit.each.heads, circuit.each.changes, strict=True)
            if head[0] == self.head[0] and head not in circuit.heads
        )
        all_heads, all_previous = (_names(heads) for heads in (circuit.heads, circuit.previous))
        without = circuit.without_heads
        steps = [
            (
                "Find the heads that repeat",
                f"The heads whose induction score on random tokens is {circuit.threshold} or more.",
                f"{len(circuit.heads)} of {len(self.atlas.heads)} heads attend, on random tokens that occur twice, to "
                f"what followed the first occurrence: {scores}. On the atlas's text the same score of {name} is "
                f"{motifs['induction'][self.head]:.2f}.",
            ),
            (
                "Watch one at work",
                f"The locked token {query} in the second line, and the token that it attends to.",
                f"Head {name} gives {self.attention:.0%} of its attention to {key}, which followed {query} "
                "the first time. Only the first line tells what comes next.",
            ),
            (
                "What it writes",
                f"Head {name} in the table: how many tokens raise their own logit most.",
                f"Through {name}, {circuit.copying[place]:.1%} of all tokens make themselves the likeliest next token: "
                "it copies what it attends to. Attending to what came next and copying it continues the text.",
            ),
            (
                "How does it know where to look?",
                f"The composition of {name} with earlier heads, and the strongest of them.",
                f"Its keys read head {before}, {circuit.z[place]:.0f} standard deviations above the null of flipped "
                f"signs; {before} gives {circuit.previous_token[place]:.2f} of its attention to the token "
                f"before{chance}. So each key carries the token before it.",
            ),
            (
                "Do the weights match?",
                f"QK of {name} with keys through {before}: the largest entries pair a token with itself.",
                f"For {circuit.matching[place]:.1%} of all tokens as query, the key that scores highest is the "
                f"position behind that same token. Without {before} in between it is {circuit.directly[place]:.1%}.",
            ),
            (
                "Ablate it",
                f"The loss on the second line's tokens without {all_heads}, and with all heads.",
                f"On random tokens that occur again, the loss rises from {without.clean_mean:.2f} by "
                f"{without.change:.2f} nats without {all_heads}, and by {circuit.without_previous.change:.2f} without "
                f"{all_previous}.{others}",
            ),
        ]
        return pd.DataFrame(steps, columns=["step", "look at", "finding"])


def induction_steps(circuit: InductionCircuit, atlas: Atlas, patterns: AttentionPatterns) -> InductionSteps:
    """Show an induction circuit of the model of an `atlas` in six steps, one of them on a prompt with these `patterns`.

    Raises `ValueError` for a prompt in which no token occurs twice with another one between.
    """
    query, key, attention = strongest_repeat(patterns, circuit.heads[circuit.clearest])
    tokens = tuple(patterns.str_tokens or map(str, patterns.tokens))
    return InductionSteps(circuit=circuit, atlas=atlas, tokens=tokens, query=query, key=key, attention=attention)


def _names(heads: tuple[Head, ...]) -> str:
    return ", ".join(map(head_name, sorted(set(heads))))
