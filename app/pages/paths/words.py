"""What the Paths page says of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.pages.paths.address import Ranking
from app.pages.paths.service import Effect, Expanded, Paths, Question

if TYPE_CHECKING:
    from aotlens.paths import Sankey, TopPaths

#: How a ranking is named, where a bound stands.
SENSES: dict[Ranking, str] = {"abs": "in size", "pos": "for it", "neg": "against it"}

#: The rows of the table of an intervention.
QUANTITIES = {
    "logit": "{logit}",
    "probability": "probability of {target}",
    "loss": "loss on {next}, which came",
    "mean_loss": "mean loss of the whole text",
}


def quantity(question: Question) -> str:
    """What a contribution is measured in."""
    return "logits" if question.versus is None else "logits of difference"


def listed(question: Question) -> str:
    """The title of the table of paths."""
    return "Largest paths" if question.through is None else f"Largest paths through {question.through}"


def target(paths: Paths, expanded: Expanded, question: Question) -> str:
    """`" Darcy"`, or `" Darcy" − " Elton"`."""
    name = paths.quoted(expanded, question.target)
    return name if question.versus is None else f"{name} − {paths.quoted(expanded, question.versus)}"


def logit(paths: Paths, expanded: Expanded, question: Question) -> str:
    """The logit on the page, by name."""
    return f"logit {target(paths, expanded, question)}"


def summary(paths: Paths, expanded: Expanded, question: Question) -> str:
    """The logit, where it stands, and how likely its token is."""
    expansion = expanded.expansion
    value = expansion.logit(question.position, question.logit)
    share = paths.probability(expanded, question.position, question.target)
    here = paths.quoted(expanded, expansion.tokens[question.position])
    return (
        f"After {here} at position {question.position}: {logit(paths, expanded, question)} = {signed(value)}, "
        f"probability of {paths.quoted(expanded, question.target)} {percent(share)}."
    )


def total(paths: Paths, expanded: Expanded, question: Question) -> str:
    """Whether the paths add up, always on the page."""
    found = expanded.residual
    verdict = "" if found.within_tolerance else " This is above the tolerance: don't trust the paths of this text."
    here = paths.total_error(question)
    return (
        f"Sum of paths − model logit: {f'{here:+.1e}' if here else '0'} logits here; at most {found.largest:.1e} over "
        f"all positions and tokens (tolerance {found.tolerance:.1e}: rounding).{verdict}"
    )


def orders(expanded: Expanded, counts: list[int]) -> str:
    """How many paths there are."""
    shape = f"{expanded.expansion.n_layers} layer{'s' if expanded.expansion.n_layers > 1 else ''}"
    return (
        f"{sum(counts):,} paths in all: {' + '.join(expanded.expansion.source_names)}, at {expanded.expansion.n_pos} "
        f"positions, through {shape} of {expanded.expansion.n_heads} heads."
    )


def proof(found: TopPaths, question: Question) -> str:
    """Which ranks are proven, what is left, and how large a path that isn't here can be."""
    n, unit = len(found.paths), quantity(question)
    ranks = f"All {n} ranks are proven" if found.complete else f"The first {found.n_proven} of {n} ranks are proven"
    if not found.complete and not found.n_proven:
        ranks = f"None of the {n} ranks is proven"
    which = "" if found.through is None else f" through head {question.through}"
    several = f" among {found.n_paths:,} paths{which} ({found.n_evaluated:,} computed)"
    together = "" if found.through is None else f" All of them together: {signed(found.total)} {unit}."
    rest = found.n_paths - n
    if not rest:
        return f"{ranks}{several}: these are all paths there are.{together}"
    return (
        f"{ranks}{several}.{together} Listed: {signed(found.total - found.remainder)}; the other {rest:,} together: "
        f"{signed(found.remainder)} {unit}. No single one of them is more than {found.bound:.3f} {SENSES[question.by]}."
    )


def flow(found: Sankey) -> str:
    """How much of the flow is drawn."""
    n = len(found.values)
    return f"The {n} largest of {found.n_links:,} links, {found.shown:.0%} of the flow in size; the rest isn't drawn."


def rows(paths: Paths, expanded: Expanded, question: Question, effect: Effect) -> list[dict[str, object]]:
    """The table of an intervention: each quantity with everything, and without it two ways."""
    names = {
        "logit": logit(paths, expanded, question),
        "target": paths.quoted(expanded, question.target),
        "next": effect.next_token or "",
    }
    return [
        {
            "quantity": str(name),
            "name": QUANTITIES[str(name)].format(**names),
            "unit": row["unit"],
            "clean": float(row["clean"]),
            "forward": float(row["forward"]),
            "linear": float(row["linear"]),
        }
        for name, row in effect.frame.iterrows()
    ]


def signed(value: float, digits: int = 3) -> str:
    """With its sign, a minus as long as a plus: `+1.840`, `−0.400`; what rounds to nothing is `+0.000`."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """A probability for people."""
    if share >= 0.01:
        return f"{share:.1%}"
    return f"{share:.2g}" if share < 1e-5 else f"{100 * share:.2g}%"
