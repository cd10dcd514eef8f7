"""Two runs side by side as views: two models, or one with heads ablated, on one text or on two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aotlens.conventions import ABLATIONS, FROM_OTHERS, HasHeads, Head, describe, head_name, minus
from aotlens.plots.attention import QUANTITIES
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call, make
from aotlens.views.family import Family, reads_text
from aotlens.views.kinds import Reading
from aotlens.views.parameters import Limit, OfCheckpoints, sizes_of
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.heads import ComparedLosses, ComparedMaps, HeadMatching

Side = Literal["left", "right"]

TEXT = "The captain bowed to the captain, and the captain of a ship danced."


@dataclass(frozen=True, kw_only=True)
class CompareParameters(OfCheckpoints):
    """Two panes, the same checkpoint on both sides if there is one only, and a head of each."""

    text: str = declare.text(TEXT, label="Text", most=50_000, lines=2)
    other: str = declare.text(label="Text at the right", most=50_000, lines=2, blank="the same")
    left: tuple[Head, ...] = declare.head(
        "Ablated at the left, as 0.1,1.0", several=1024, blank="no heads", cleared_by=("left_model",), key="left-off"
    )
    right: tuple[Head, ...] = declare.head(
        "Ablated at the right, as 0.1,1.0", several=1024, blank="no heads", cleared_by=("right_model",), key="right-off"
    )
    how: str = declare.choice(ABLATIONS, label="Replace head output with")
    corpus: Reading | None = declare.corpus("Taken from the text", blank="choose a text")
    head: Head = declare.head("Left head", listed=True)
    other_head: Head | None = declare.head("Right head", listed=True, blank="as matched", key="other-head")
    quantity: str = declare.choice(QUANTITIES, label="Quantity", key="view")
    first: str = declare.choice(
        {"show": "with position 0", "hide": "without"}, label="Attention to position 0", key="sink"
    )
    position: int | None = declare.row("Locked token", blank="none", page_only=True)
    other_position: int | None = declare.row(
        "Locked token at the right", blank="none", key="other-position", page_only=True
    )
    n_tokens: tuple[int | None, ...] = ()
    """The numbers of tokens of the left and the right text, where somebody has counted them, as the app does."""

    def info(self, side: Side) -> CheckpointInfo:
        """Return the card of a pane's checkpoint."""
        return self.infos[0 if side == "left" else -1]

    def text_of(self, side: Side) -> str:
        """Return a pane's text."""
        return self.other or self.text if side == "right" else self.text

    def limits(self) -> Mapping[str, Limit]:
        limits = {"corpus": Limit(hidden=self.how not in FROM_OTHERS)}
        for name, n_tokens in zip(("position", "other_position"), self.n_tokens, strict=False):
            if n_tokens is not None:
                words = f"the position of one of the text's {n_tokens:,} tokens, from 0 to {n_tokens - 1:,}"
                limits[name] = Limit(most=n_tokens - 1, words=words)
        if self.aligned:
            limits["other_position"] = Limit(off=True, words="none, since both panes have the same tokens")
        return limits

    def heads_of(self, name: str) -> HasHeads | None:
        return sizes_of(self.info("right" if name in ("right", "other_head") else "left").model)

    @property
    def without_first(self) -> bool:
        """Whether attention to position 0 is left out."""
        return self.first == "hide"

    @property
    def instead(self) -> str:
        """The replacement of an ablated head's output in words; empty for zero."""
        return "" if self.how == "zero" else ABLATIONS[self.how]

    @property
    def one_model(self) -> bool:
        """Whether both panes have one checkpoint: then each head is paired with itself."""
        return self.info("left").name == self.info("right").name

    @property
    def one_tokenizer(self) -> bool:
        """Whether both models cut texts into the same tokens."""
        left, right = self.info("left").tokenizer_sha256, self.info("right").tokenizer_sha256
        return self.one_model or left == right is not None

    @property
    def aligned(self) -> bool:
        """Whether both panes have the same tokens of one text."""
        return self.one_tokenizer and self.text_of("left") == self.text_of("right")

    def load(self, side: Side) -> Load:
        """Return the model of a pane."""
        return Load(self.info(side).name, side)

    def run(self, side: Side, *, losses: bool = False) -> Call:
        """Return the run of a pane."""
        text, ablated = self.text_of(side), getattr(self, side)
        options: dict[str, Any] = {}
        if ablated:
            options = {"ablated": list(map(head_name, ablated)), "how": self.how}
        if ablated and self.how in FROM_OTHERS and self.corpus is not None:
            options["reference"] = reference_windows(self.load(side), text, self.corpus).named(f"{side}_windows")
        if not losses and not self.info(side).model.get("causal", True):  # which takes a pass for each token
            options["losses"] = False
        return call("aotlens.heads.run_prompt", self.load(side), text, **options).named(f"{side}_run")

    def runs(self, *, losses: bool = False) -> Call:
        """Return both runs."""
        options = {} if self.one_tokenizer else {"one_tokenizer": False}
        runs = self.run("left", losses=losses), self.run("right", losses=losses)
        return make("aotlens.heads.compare_runs", *runs, **options).named("runs")

    def map(self, side: Side) -> Call:
        """Return the map of a pane's head."""
        head = head_name(self.head) if side == "left" else self.beside
        return self.run(side).method("map", head, self.quantity, without_first=self.without_first)

    @property
    def beside(self) -> Any:
        """The right head: the selected one, or the one that the left head is matched with."""
        head = self.head if self.other_head is None else self.other_head
        if self.one_model or self.other_head is not None or self.unmatched is not None:
            model = self.info("right").model
            return head_name(head if head[0] < model["n_layers"] and head[1] < model["n_heads"] else (0, 0))
        return self.matching.named("matching").method("beside", head_name(head))

    @property
    def matching(self) -> Call:
        """The matching of the heads of the two models: by their circuits and, on the same tokens, by their patterns."""
        left, right = self.load("left"), self.load("right")
        matched = call("aotlens.heads.match_heads", left, right)
        if not self.aligned:
            return matched
        tokens = Call(Part(left, "to_tokens"), [self.text], kept=False)
        return Call(Part(matched.named("by_circuits"), "on"), [left, right, tokens])

    @property
    def lacks_text(self) -> str | None:
        """What is missing if an ablated head's output is to be taken from a text that is not selected."""
        if self.how not in FROM_OTHERS or self.corpus is not None or not (self.left or self.right):
            return None
        return (
            f"To ablate by {ABLATIONS[self.how]} takes other texts: choose one. Without one, heads can be ablated by "
            "zero or by uniform attention."
        )

    @property
    def unmatched(self) -> str | None:
        """The reason why the heads of two models are not matched; None where they can be."""
        sizes = [str(info.model.get("d_vocab")) for info in (self.info("left"), self.info("right"))]
        if sizes[0] == sizes[1]:
            has_both = None not in (self.info("left").tokenizer_sha256, self.info("right").tokenizer_sha256)
            if self.one_tokenizer or not has_both:
                return None
            return "The heads of these two models can't be matched: their tokenizers are not the same."
        return (
            f"The heads of these two models can't be matched: they are compared by what they do to each token, and the "
            f"vocabularies have {' and '.join(sizes)} tokens."
        )


def reference_windows(model: Load, text: str, corpus: Reading) -> Call:
    """Return the windows of a corpus from which the outputs of heads that are ablated on a text are replaced."""
    return make("aotlens.heads.reference_windows", model, text, corpus.text.named("corpus"))


def _missing_matching(params: CompareParameters) -> str | None:
    if params.one_model:
        model = params.info("left").model
        n_heads = model["n_layers"] * model["n_heads"]
        return f"One checkpoint at both sides: each of its {n_heads} heads is next to itself."
    return params.unmatched


def _stem(params: CompareParameters) -> str:
    return f"{params.info('left').name}-{params.info('right').name}"


def _map_view(side: Side) -> View:
    return View(
        name=side,
        title=side.capitalize(),
        about="The map of one head of the pane, in the run with the pane’s ablations. Left and right have one colour "
        "scale. Point at an entry to see it in the other maps too, where the panes have the same tokens; click to lock "
        "it. An ablated head still has a pattern: it is its output that is replaced.",
        formula="A(i, j) = φ(score(i, j))",
        source="A Mathematical Framework for Transformer Circuits (2021); φ, MSSA: Attention-Only Transformers, Eq. 4",
        call=lambda params: params.map(side),
        caption=lambda params, result: f"{result.headline}, {params.info(side).name}.",
        file=lambda params: f"{params.info(side).name}-{side}-head-{params.quantity}",
        missing=lambda params: params.lacks_text,
    )


_MEASURES = {"ov": "OV", "qk": "QK", "pattern": "pattern"}


def pane_name(params: CompareParameters, side: Side) -> str:
    """Name a pane's checkpoint, and which of its heads are ablated."""
    name, ablated = params.info(side).name, getattr(params, side)
    if not ablated:
        return name
    instead = f" (replaced with {params.instead})" if params.instead else ""
    return f"{name} without {', '.join(map(head_name, ablated))}{instead}"


def _of_losses(params: CompareParameters, result: ComparedLosses) -> str:
    """Say both losses, their difference, and where it is largest."""
    parts = []
    sides: tuple[Side, Side] = ("left", "right")
    for side in sides:
        values = getattr(result, side)
        known, name = values[np.isfinite(values)], pane_name(params, side)
        parts.append(f"{name}: {known.mean():.3f} nats per token" if known.size else name)
    line, difference = "; ".join(parts) + ".", result.difference
    if difference is None:
        if params.text_of("left") != params.text_of("right"):
            return f"{line} The panes have different texts, so no losses correspond."
        sums = [float(np.nansum(values)) for values in (result.left, result.right)]
        return (
            f"{line} The panes have different tokens of this text, so no losses correspond. Over all its tokens: "
            f"{sums[0]:.1f} and {sums[1]:.1f} nats."
        )
    known = difference[np.isfinite(difference)]
    if not known.size:
        return line
    if not known.any():
        return f"{line} Right − left: 0 on every token."
    largest = int(np.nanargmax(np.abs(difference)))
    token = describe(result.left_tokens[largest])
    return (
        f"{line} Right − left: {minus(known.mean(), '+.3f')} nats per token, the most at {token} (position {largest}), "
        f"{minus(difference[largest], '+.2f')}."
    )


def _of_maps(params: CompareParameters, result: ComparedMaps) -> str:
    """Say which heads' maps are compared, and where they differ most."""
    heads = f"Head {head_name(result.right.head)} at the right − head {head_name(result.left.head)} at the left"
    return f"{heads}: {result.headline or 'no entry differs'}."


def each_pair(result: HeadMatching) -> Iterator[dict[str, Any]]:
    """Yield for each left head the right one that it is paired with, and a sentence that says why."""
    rows = {(row["left_layer"], row["left_head"]): row for row in result.to_frame().to_dict("records")}
    for place, left in enumerate(result.left):
        right = result.beside(left)
        column = result.right.index(right)
        measures = ", ".join(
            f"{_MEASURES[measure]} {getattr(result, measure)[place, column]:.2f}" for measure in result.measured
        )
        similarity = float(result.similarity[place, column])
        alike = f"similarity {similarity:.2f}: cosines of {measures}"
        names = head_name(left), head_name(right)
        sentence = f"Head {names[0]} has no partner of its own; most like it is head {names[1]} ({alike})."
        if left in rows:
            margin = float(rows[left]["margin"])
            beats = f"; {abs(margin):.2f} {'above' if margin >= 0 else 'below'} the left head's best other one"
            sentence = f"Head {names[0]} is matched with head {names[1]} ({alike}{'' if margin != margin else beats})."
        pair = {"left": list(left), "right": list(right), "matched": left in rows}
        yield {**pair, "says": sentence, "similarity": similarity}


RUNS = View(
    name="runs",
    title="Two panes",
    about="Two panes, each a checkpoint, a text and a set of ablated heads. Both have one text unless you give the "
    "right one its own. Means and other outputs that replace those of ablated heads are taken from 32 windows of a "
    "text, as long as this one. The address in your browser holds all of it: heads as 1.0,1.3, and of a text of more "
    "than 600 characters, which is then kept on this machine, its hash.",
    source="What an ablated head’s output is replaced with: docs/atlas.md and the library’s aotlens.heads.ablation",
    call=lambda params: params.runs(),
    file=_stem,
    missing=lambda params: params.lacks_text,
    pictured=False,
)
#: The left run by itself, whose maps a page fetches once.
PANE = View(
    name="pane",
    title="Left",
    about="",
    call=lambda params: params.run("left"),
    file=_stem,
    missing=lambda params: params.lacks_text,
    pictured=False,
)
LOSSES = View(
    name="losses",
    title="Loss per token",
    about="How much more a token costs at the right than at the left, in nats: blue where the right pane does worse, "
    "orange where it does better; the number is under the token, both losses are in its tooltip. Point at a token to "
    "mark its row in the maps, click to lock it. Where the panes have other tokens, each has a strip of its own, "
    "coloured by its loss.",
    formula="ℓᵢ = −log p(xᵢ | x₁ … xᵢ₋₁);  Δᵢ = ℓᵢ(right) − ℓᵢ(left)",
    source="A masked language model is asked for each token with a mask in its place",
    call=lambda params: params.runs(losses=True).method("losses"),
    caption=_of_losses,
    file=lambda params: f"{_stem(params)}-losses",
    missing=lambda params: params.lacks_text,
    pictured=False,
)
LEFT, RIGHT = _map_view("left"), _map_view("right")
DIFFERENCE = View(
    name="difference",
    title="Right − left",
    about="Right − left, entry by entry: blue where the right head attends more, orange where the left one does. Two "
    "texts with equally many tokens are compared position by position, others where they have the same tokens in the "
    "same order (a longest common subsequence), at the left text’s positions. A softmax does not see a constant along "
    "a row, so differences of scores are to be compared along rows only.",
    formula="D(i, j) = A_right(i, j) − A_left(i, j)",
    call=lambda params: params.runs().method(
        "maps", head_name(params.head), params.beside, params.quantity, without_first=params.without_first
    ),
    caption=_of_maps,
    file=lambda params: f"{_stem(params)}-head-{head_name(params.head)}-{params.quantity}",
    missing=lambda params: params.lacks_text,
)
PAIRS = View(
    name="pairs",
    title="Matched heads",
    about="Of one checkpoint, each head is next to itself. Heads of two checkpoints are matched by what they do to "
    "tokens, whatever the bases of their weights: the cosines of the OV circuits and of the QK circuits between "
    "tokens, and, where both panes have the same tokens, of the patterns on this text. The pairs have the largest sum "
    "of mean cosines; the margin is by how much a pair beats the left head’s best other one. The first matching of two "
    "checkpoints takes up to some seconds, and is kept. Ablated heads are matched as they are in the full model.",
    formula="⟨M, N⟩ = Σ pᵢ pⱼ M(i, j) N(i, j),  M = W_E W_OV W_U or W_E W_QK W_Eᵀ,  p: shares of the tokens",
    source="Assignment: Kuhn 1955; docs/atlas.md, The heads of two models",
    call=lambda params: params.matching,
    file=lambda params: f"{_stem(params)}-pairs",
    missing=_missing_matching,
)
SIMILARITY = replace(
    PAIRS,
    name="similarity",
    title="Similarity of all heads",
    about="How alike every left head is to every right one: the mean of the cosines. Click an entry to see these two "
    "heads.",
    formula="(cos OV + cos QK + cos pattern) / 3, of the available ones",
    source="docs/atlas.md, The heads of two models",
    caption=lambda params, result: f"Mean of the cosines of {', '.join(_MEASURES[name] for name in result.measured)}.",
    file=lambda params: f"{_stem(params)}-similarity",
    table="similarities",
)


FAMILY = Family(
    "compare",
    "What differs between two models, or one with and without some heads, on a text?",
    (LOSSES, DIFFERENCE, LEFT, RIGHT, PAIRS, SIMILARITY),
    CompareParameters,
    sides=("left", "right"),
    most=2,
    reads=reads_text,
)
