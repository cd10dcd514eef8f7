"""The guided path: six views that find the induction circuit of a checkpoint, with what is measured of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.plots import glyphs
from app.core.errors import RequestError
from app.core.examples import EXAMPLES
from app.pages.atlas import captions
from app.pages.atlas.address import ADDRESS
from app.pages.atlas.service import Atlases, AtlasResult

if TYPE_CHECKING:
    from aotlens.heads import InductionCircuit

#: A text in which words come again.
_TEXT = EXAMPLES["A repeated list (copying)"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A view of the path."""

    title: str
    look: str
    """The thing to look at there."""
    means: str
    """The meaning of it, with its numbers."""
    links: tuple[tuple[str, str], ...]
    """(text, address), the view itself first."""


def steps(service: Atlases, result: AtlasResult, circuit: InductionCircuit) -> list[Step]:
    """Return the six views, in order, for the heads of an atlas and their circuit. Raises RequestError where the text
    cannot be read by this model, or nothing comes twice in it."""
    from aotlens.heads.induction import strongest_repeat
    from aotlens.heads.motifs import MOTIFS

    checkpoint = result.chosen.checkpoint
    links, model = service.core.links, {"checkpoint": checkpoint}
    here = {**model, "corpus": result.corpus}
    best = int(circuit.induction.argmax())
    head, earlier = circuit.heads[best], circuit.previous[best]
    name, before = captions.name(head), captions.name(earlier)
    threshold = MOTIFS["induction"].threshold
    scores = [
        f"{captions.name(which)} ({score:.2f})" for which, score in zip(circuit.heads, circuit.induction, strict=True)
    ]
    patterns = service.core.inference.analyse(checkpoint, _TEXT).patterns
    try:
        query, key, attention = strongest_repeat(patterns, head)
    except ValueError as error:
        raise RequestError(f"The text of the second step: {error}") from error
    tokens = [f"‹{glyphs(text)}›" for text in patterns.str_tokens]
    place = result.atlas.motifs.motifs.index("previous_token")
    chance = result.atlas.motifs.chance
    by_chance = "" if chance is None else f" (chance {chance[(place, *earlier)]:.2f})"
    on_text = result.atlas.motifs["induction"][head]
    each, n_tokens = circuit.each, int(service.core.catalog.config(checkpoint)["d_vocab"])
    beside = [
        f" Without {captions.name(lost)}, of the same layer, by {change:.2f}."
        for lost, change in zip(each.heads, each.changes, strict=True)
        if lost[0] == head[0] and lost not in circuit.heads
    ]
    return [
        Step(
            title="Find the heads that repeat",
            look=f"The points at the right: heads whose induction score on random tokens is {threshold} or more.",
            means=f"{len(circuit.heads)} of {len(result.atlas.heads)} heads attend, on random tokens that come twice, "
            f"to what followed the first occurrence: {', '.join(scores)}. On {result.about} the same score of {name} "
            f"is {on_text:.2f}.",
            links=(("Open the scatter", ADDRESS.to(**here, where=f"induction_random >= {threshold}", y="copying")),),
        ),
        Step(
            title="Watch one at work",
            look=f"The locked token {tokens[query]} in the second line, and the token that it attends to.",
            means=f"Head {name} gives {attention:.0%} of its attention to {tokens[key]}, which followed "
            f"{tokens[query]} the first time. Nothing but the first line tells what comes next.",
            links=(("Open the text", links.to("heads", **model, text=_TEXT, head=head, position=query)),),
        ),
        Step(
            title="What it writes",
            look=f"Head {name} in the table: how many tokens raise their own logit most.",
            means=f"Through {name}, {circuit.copying[best]:.1%} of all {n_tokens:,} tokens make themselves the "
            "likeliest next token: it copies what it attends to. Attending to what came next and copying it "
            "continues the text.",
            links=(("Open its copying", links.to("circuits", **model, head=head, kind="ov", beside="copying")),),
        ),
        Step(
            title="How does it know where to look?",
            look=f"The lines into {name}, and the strongest of them.",
            means=f"Its keys read head {before}, {circuit.z[best]:.0f} standard deviations beyond flipped signs; "
            f"and {before} gives {circuit.previous_token[best]:.2f} of its attention to the token before{by_chance}. "
            "So each key tells which token stood before it.",
            links=(
                ("Open the composition", links.to("circuits", **model, head=head, view="composition")),
                (f"The summary of {before}", ADDRESS.to(**here, head=earlier, tab="head")),
            ),
        ),
        Step(
            title="Do the weights match?",
            look=f"QK of {name} with keys through {before}: the largest entries pair a token with itself.",
            means=f"For {circuit.matching[best]:.1%} of all tokens as query, the key that scores highest is the place "
            f"behind that same token. Without {before} in between it is {circuit.directly[best]:.1%}.",
            links=(("Open the circuit", links.to("circuits", **model, head=head, kind="qk", right=before)),),
        ),
        Step(
            title="Take it away",
            look=f"The loss beneath the second line’s tokens without {_names(circuit.heads)}, and with all heads.",
            means=f"On random tokens that come again, the loss rises from {circuit.without_heads.clean_mean:.2f} by "
            f"{circuit.without_heads.change:.2f} nats without {_names(circuit.heads)}, and by "
            f"{circuit.without_previous.change:.2f} without {_names(circuit.previous)}."
            + "".join(beside),
            links=(
                ("Switch them off", links.to("heads", **model, text=_TEXT, head=head, off=circuit.heads, tab="loss")),
                ("Open the paths", links.to("paths", **model, without=name, through=head, beside="without")),
            ),
        ),
    ]  # fmt: skip


def _names(heads: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(captions.name(each) for each in sorted(set(heads)))
