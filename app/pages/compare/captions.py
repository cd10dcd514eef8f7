"""Sentences of the Compare page."""

from __future__ import annotations

import numpy as np

from aotlens.plots import describe
from app.core.inference import PromptResult
from app.core.switches import HOWS
from app.pages.compare.address import Side
from app.pages.compare.service import HeadPair, Losses, Panes

#: The panes, as they are called.
SIDES: dict[Side, str] = {"left": "Left", "right": "Right"}
#: What stands in the place of a difference that is nowhere.
NO_DIFFERENCE = (
    "No entry differs: the pattern of a head depends on what earlier layers write, and there is no difference before "
    "this one."
)
_MEASURES = {"ov": "OV", "qk": "QK", "pattern": "pattern"}


def head_name(head: tuple[int, int]) -> str:
    """`1.3`."""
    return f"{head[0]}.{head[1]}"


def pane_name(result: PromptResult) -> str:
    """A checkpoint, and which of its heads are off."""
    if not result.off:
        return result.checkpoint
    heads = ", ".join(map(head_name, result.off))
    instead = "" if result.how == "zero" else f" ({HOWS[result.how]} instead)"
    return f"{result.checkpoint} without {heads}{instead}"


def losses_line(panes: Panes, losses: Losses) -> str:
    """Both losses, their difference, and where it is largest."""
    parts = []
    for result, values in ((panes.left, losses.left), (panes.right, losses.right)):
        known = values[np.isfinite(values)]
        parts.append(f"{pane_name(result)}: {known.mean():.3f} nats a token" if known.size else pane_name(result))
    line = "; ".join(parts) + "."
    if losses.difference is None:
        if not panes.one_text:
            return line
        sums = [float(np.nansum(values)) for values in (losses.left, losses.right)]
        return f"{line} The same text, over all its tokens: {sums[0]:.1f} and {sums[1]:.1f} nats."
    known = np.isfinite(losses.difference)
    if not known.any():
        return line
    change = losses.difference[known]
    if not change.any():
        return f"{line} Right − left: 0 on every token."
    largest = int(np.nanargmax(np.abs(losses.difference)))
    token = describe(panes.left.patterns.str_tokens[largest])
    return (
        f"{line} Right − left: {_signed(change.mean(), 3)} nats a token, the most at {token} (position {largest}), "
        f"{_signed(losses.difference[largest], 2)}."
    )


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def loss_tips(losses: Losses) -> list[str]:
    """What a token's tooltip says of it in both panes."""
    assert losses.difference is not None
    rows = zip(losses.left.tolist(), losses.right.tolist(), losses.difference.tolist(), strict=True)
    return [
        f"loss {left:.3f} at the left, {right:.3f} at the right, {_signed(change, 3)} nats"
        if change == change
        else "no loss"
        for left, right, change in rows
    ]


def pair_line(panes: Panes, pair: HeadPair, unmatched: str | None) -> str:
    """Which two heads stand beside each other, and why. `unmatched` says why heads can't be matched."""
    left, right = head_name(pair.left), head_name(pair.right)
    names = {"left": "It", "right": "It"} if pair.why == "same" else {"left": f"Head {left}", "right": f"Head {right}"}
    also = "".join(
        f" {names[side]} is switched off at the {side}."
        for side, result in panes.results.items()
        if getattr(pair, side) in result.off
    )
    if pair.why == "same":
        return f"Head {left} of both panes.{also}"
    if pair.why == "unmatched":
        return f"Head {left} beside head {right}, which need not be alike. {unmatched or ''}{also}"
    if not pair.cosines:
        return f"Head {left} beside head {right}, as chosen.{also}"
    measures = ", ".join(f"{_MEASURES[name]} {pair.cosines[name]:.2f}" for name in _MEASURES if name in pair.cosines)
    alike = f"similarity {pair.cosines['similarity']:.2f}: cosines of {measures}"
    if pair.why == "partner":
        assert pair.margin is not None
        beats = f"{abs(pair.margin):.2f} {'above' if pair.margin >= 0 else 'below'} the left head's best other one"
        margin = "" if pair.margin != pair.margin else f"; {beats}"
        return f"Head {left} is matched with head {right} ({alike}{margin}).{also}"
    if pair.why == "alike":
        return f"Head {left} has no partner of its own; most like it is head {right} ({alike}).{also}"
    return f"Head {left} beside head {right}, as chosen ({alike}).{also}"


def places_line(panes: Panes) -> str:
    """Which positions of two texts stand beside each other."""
    if panes.aligned:
        return ""
    left, right = panes.left.patterns, panes.right.patterns
    if left.n_pos == right.n_pos == len(panes.places):
        return f"Two texts of {left.n_pos} tokens: position by position."
    return (
        f"{len(panes.places)} tokens that both texts have in this order stand beside each other, of {left.n_pos} and "
        f"{right.n_pos}; rows and columns of the others are empty."
    )


def why_nothing_corresponds(panes: Panes) -> str:
    """Why the panes have no difference, entry by entry."""
    if not panes.one_text:
        return "The two texts have no token in common, so no position of one corresponds to one of the other."
    return why_not_aligned(panes)


def why_not_aligned(panes: Panes) -> str:
    """Why the panes have no difference, token by token."""
    if not panes.one_text:
        return "The panes have different texts, so a token's loss in one has none beside it in the other."
    left, right = panes.left, panes.right
    return (
        f"The two tokenizers cut this text in different pieces ({left.patterns.n_pos} tokens with {left.checkpoint}, "
        f"{right.patterns.n_pos} with {right.checkpoint}), so an entry of one map has none beside it in the other."
    )


def pairs_line(panes: Panes, pairs: list[HeadPair]) -> str:
    """How many are matched, and how well."""
    if panes.one_model:
        return (
            f"One checkpoint at both sides: each of its {len(pairs)} heads beside itself. Click a pair to see its maps."
        )
    clear = sum(pair.margin is not None and pair.margin > 0 for pair in pairs)
    mean = float(np.mean([pair.cosines["similarity"] for pair in pairs]))
    return (
        f"{len(pairs)} pairs, mean similarity {mean:.2f}; {clear} {'is' if clear == 1 else 'are'} the left head's best "
        "choice by itself. Click a pair to see its maps."
    )
