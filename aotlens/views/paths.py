"""A logit as a sum over paths, and what is left without one of them, as views; scores.py has those of a score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.conventions import describe, head_name
from aotlens.views import scores
from aotlens.views.calls import Call, call, make
from aotlens.views.family import Family, reads_text
from aotlens.views.path_choice import BUDGET, LINKS, PathsParameters, percent, signed
from aotlens.views.view import About, View

if TYPE_CHECKING:
    from aotlens.paths import (
        LogitByHead,
        LogitByOrder,
        LogitBySource,
        RemovalEffect,
        Sankey,
        TopPaths,
    )

#: The names of rankings next to a bound.
SENSES = {"abs": "in size", "pos": "for it", "neg": "against it"}

_NOTHING = "Nothing is removed. Click “without” next to a path, or a head in the table of heads; or write it here."
_EXPANSION = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021), path expansion"


def summary(result: LogitBySource) -> str:
    """Say the logit, where it stands, how likely its token is, and what biases bring."""
    here = describe(result.str_tokens[result.position])
    sentence = (
        f"After {here} at position {result.position}: {result.end} = {signed(result.logit)}, "
        f"probability of {result.first} {percent(result.probability)}."
    )
    return f"{sentence} Of the logit, biases bring {signed(result.of_biases)}." if "bias" in result.names else sentence


def total(result: LogitBySource) -> str:
    """Say whether the paths add up."""
    all_of_them, here = result.residual, result.by_order.error
    verdict = (
        "" if all_of_them.within_tolerance else " This is above the tolerance: don't trust the paths of this text."
    )
    return (
        f"Sum of paths − model logit: {f'{here:+.1e}' if here else '0'} logits here; at most {all_of_them.largest:.1e} "
        f"over all positions and tokens (tolerance {all_of_them.tolerance:.1e}: rounding).{verdict}"
    ).replace("-", "−")


def _says_orders(params: PathsParameters, result: LogitByOrder) -> str:
    n = len(result.values) - 1
    return (
        f"{sum(result.counts):,} paths in all: {' + '.join(result.sources)}, at {result.n_pos} positions, through {n} "
        f"layer{'s' if n > 1 else ''} of {result.n_heads} heads."
    )


def _says_top(params: PathsParameters, result: TopPaths) -> str:
    """Say which ranks are proven, what is left, and how large a path that isn't listed can be."""
    n = len(result.paths)
    ranks = f"Exact top {n}" if result.complete else f"The top {result.n_proven} of {n} are exact"
    if not result.complete and not result.n_proven:
        ranks = f"None of these {n} is proven to be in the exact top {n}"
    which = "" if result.through is None else f" through head {head_name(result.through)}"
    several = f" among {result.n_paths:,} paths{which} ({result.n_evaluated:,} computed)"
    together = "" if result.through is None else f" All of them together: {signed(result.total)} {result.unit}."
    rest = result.n_paths - n
    if not rest:
        return f"{ranks}{several}: these are all paths there are.{together}"
    return (
        f"{ranks}{several}.{together} Listed: {signed(result.total - result.remainder)}; the other {rest:,} together: "
        f"{signed(result.remainder)} {result.unit}. No single one of them is more than {result.bound:.3f} "
        f"{SENSES[result.by]}."
    )


def _says_flow(params: PathsParameters, result: Sankey) -> str:
    n = len(result.values)
    return f"The {n} largest of {result.n_links:,} links, {result.shown:.0%} of the flow in size; the rest isn't drawn."


def _says_heads(params: PathsParameters, result: LogitByHead) -> str:
    return result.finding


def _says_effect(params: PathsParameters, effect: RemovalEffect) -> str:
    sentence = effect.finding
    if not effect.reversed:
        return sentence
    own, change = effect.clean[0] - effect.linear[0], effect.forward[0] - effect.clean[0]
    return (
        f"{sentence} It adds {signed(own)} itself, and without it the logit {'rises' if change > 0 else 'falls'} by "
        f"{abs(change):.3f} all the same: later heads look elsewhere without it, and norms rescale, which the linear "
        "estimate holds as they were."
    )


def _without(params: PathsParameters) -> Call:
    what = params.without.strip()
    removed = what if what[:1].isdecimal() else make("aotlens.paths.Path.named", what)
    effect = call("aotlens.paths.effect_without", params.expansion, removed, params.at, params.logit)
    return effect.running()


def _view(name: str, title: str, about: About, method: str, caption: Any, **rest: Any) -> View:
    """A view of one logit: what a method of the expansion gives at the position for the target."""
    usual = {
        "call": lambda params: params.method(method, params.at, params.logit),
        "file": lambda params: params.file_of_logit(name),
    }
    return View(name=name, title=title, about=about, caption=caption, **{**usual, **rest})


SOURCES = _view(
    "sources",
    "Text and target",
    About(
        text="A logit is a sum over paths: a token (or position, or bias) and the heads that carry it to the output, "
        "one after another. Attention patterns and norm scales are frozen as they are on this text. Click a token to "
        "explain what is predicted there. Shading: what all paths that start at a token add to the chosen logit "
        "(blue) or take from it (orange). The address in your browser holds everything you choose here.",
        formula="logits = Π (Id + Σₕ Aʰ ⊗ W_OVʰ) applied to the tokens, then W_U",
        source=_EXPANSION,
    ),
    "logit_by_source",
    lambda params, result: f"{summary(result)} {total(result)}",
    pictured=False,
)
ORDERS = _view(
    "orders",
    "By number of heads",
    About(text="All paths by the number of heads that they pass. The bars add up to the logit."),
    "logit_by_order",
    _says_orders,
)
TOP = _view(
    "top",
    "Largest paths",
    About(
        text="Single paths. Click a head to see its attention on this text, or “without” to run the model without the "
        "path. A path carries what is moved; where a head looks is frozen. So a head that only steers where a later "
        "one looks, as a previous-token head does for an induction head, is on no large path: take the head itself "
        "away to see it.",
        formula="A²(n, j) A¹(j, i) · x(i) W_OV¹ W_OV² W_U[target], for a path from token i through two heads",
        source=_EXPANSION,
    ),
    "top",
    _says_top,
    call=lambda params: params.method(
        "top", params.k, params.at, params.logit, params.by,
        **({} if params.through is None else {"through": head_name(params.through)}), budget=BUDGET,
    ),
    file=lambda params: params.file_of_logit(
        "top" if params.through is None else f"top-through-{head_name(params.through)}"
    ),
    pictured=False,
)  # fmt: skip
HEADS = _view(
    "heads",
    "Heads",
    About(
        text="Sums of paths by head. Click a head to run the model without it (again: with it), or its sum to list "
        "the paths through it; on the keyboard, arrow keys and Enter.",
    ),
    "logit_by_head",
    _says_heads,
    pictured=False,
)
FLOW = _view(
    "flow",
    "Flow",
    About(
        text="The same paths, joined: tokens on the left, heads by layer, the logit on the right. The width of a link "
        "is the size of all paths that use it; blue adds to the logit, orange takes away. Flows of both signs can "
        "cancel.",
    ),
    "sankey",
    _says_flow,
    call=lambda params: params.method("sankey", params.at, params.logit, max_links=LINKS),
)
WITHOUT = _view(
    "without",
    "Without a head or a path",
    About(
        text="The model is run again without the head (its output is zero at every position) or the path (each head "
        "on it reads the stream without it). This forward pass computes patterns and norm scales anew; the linear "
        "estimate keeps them frozen. Where the two differ, the effect goes through patterns (where heads look) and "
        "scales.",
    ),
    "",
    _says_effect,
    call=_without,
    file=lambda params: params.file_of_logit(f"without-{params.without.strip()}"),
    missing=lambda params: None if params.without.strip() else _NOTHING,
    pictured=False,
)


def notes(params: PathsParameters) -> str:
    """Say what is special about the model's paths, in sentences."""
    from aotlens.models import PHIS

    cfg, sentences = params.config, []
    if cfg.sees_later_keys:
        sentences.append("This model sees both sides: what it predicts at a token is that token, not the next one.")
    if not cfg.attn_only:
        sentences.append(
            f"This model has MLPs (d_mlp = {cfg.d_mlp}). What each writes on this text is a source of its own, mlp_0 "
            "for layer 0, held as it is: what it read from tokens and heads is hidden in it."
        )
    if cfg.n_layers == 1:
        sentences.append("This model has one layer: no path passes more than one head.")
    if not cfg.has_query_key:
        exact = (
            "the linear estimate is the forward pass"
            if not cfg.norm
            else "only the norms' scales make a forward pass differ from the linear estimate"
        )
        sentences.append(f"Its attention patterns are fixed: they don't depend on the text, and {exact}.")
    elif not PHIS[cfg.phi].rows_sum_to_one:
        sentences.append("Rows of its attention patterns don't sum to 1; paths carry them as they are.")
    return " ".join(sentences)


FAMILY = Family(
    "paths",
    "Which paths through heads a logit comes from, and which pairs of paths an attention score.",
    (SOURCES, ORDERS, TOP, HEADS, FLOW, WITHOUT, *scores.VIEWS),
    PathsParameters,
    reads=reads_text,
)
