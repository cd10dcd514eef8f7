"""The choice of two runs that stand side by side, and of a head of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from aotlens.conventions import ABLATIONS, HasHeads, Head, head_name
from aotlens.plots.attention import QUANTITIES
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call, make
from aotlens.views.parameters import OfCheckpoints, sizes_of

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo

Side = Literal["left", "right"]

TEXT = "The captain bowed to the captain, and the captain of a ship danced."
#: The replacements of an ablated head's output, where no corpus is read.
HOWS = {how: ABLATIONS[how] for how in ("zero", "uniform")}


@dataclass(frozen=True, kw_only=True)
class Pane:
    """One of the two runs."""

    checkpoint: str
    model: Mapping[str, Any]
    """The model's configuration."""
    tokenizer: str | None
    """The hash of its tokenizer."""
    text: str
    ablated: tuple[Head, ...] = ()
    reference: Call | None = None
    """Windows of a corpus from which an ablated head's output is replaced; None where it reads none."""


@dataclass(frozen=True, kw_only=True)
class CompareParameters(OfCheckpoints):
    """Two panes, the same checkpoint on both sides if there is one only, and a head of each."""

    panes: Mapping[Side, Pane] = field(default_factory=dict)
    text: str = declare.text(TEXT, label="Text", most=50_000, lines=3)
    other: str = declare.text(label="Text at the right", most=50_000, lines=3, blank="the same")
    left: tuple[Head, ...] = declare.head("Ablated at the left, as 0.1,1.0", several=1024, blank="no heads")
    right: tuple[Head, ...] = declare.head("Ablated at the right, as 0.1,1.0", several=1024, blank="no heads")
    how: str = declare.choice(HOWS, label="Replace head output with")
    head: Head = declare.head("Left head")
    other_head: Head | None = declare.head("Right head", blank="the one that the left head is matched with")
    quantity: str = declare.choice(QUANTITIES, label="Quantity")
    first: str = declare.choice({"show": "shown", "hide": "left out"}, label="Attention to position 0")

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **given: Any) -> Self:
        if len(infos) > 2:
            raise ValueError(f"compare: expected one checkpoint or two, got {len(infos)}.")
        params = super().of_infos(*infos, **given)
        sides: tuple[Side, Side] = ("left", "right")
        panes = {
            side: Pane(
                checkpoint=info.name, model=info.model, tokenizer=info.tokenizer_sha256, ablated=getattr(params, side),
                text=params.text if side == "left" else params.other or params.text,
            )
            for side, info in zip(sides, (infos[0], infos[-1]), strict=True)
        }  # fmt: skip
        return replace(params, panes=panes)

    def heads_of(self, name: str) -> HasHeads | None:
        return sizes_of(self.panes["right" if name in ("right", "other_head") else "left"].model)

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
        """Whether both panes have one checkpoint: then each head stands beside itself."""
        return self.panes["left"].checkpoint == self.panes["right"].checkpoint

    @property
    def one_tokenizer(self) -> bool:
        """Whether both models cut texts into the same tokens."""
        return self.one_model or self.panes["left"].tokenizer == self.panes["right"].tokenizer is not None

    @property
    def aligned(self) -> bool:
        """Whether both panes have the same tokens of one text."""
        return self.one_tokenizer and self.panes["left"].text == self.panes["right"].text

    def load(self, side: Side) -> Load:
        """Return the model of a pane."""
        return Load(self.panes[side].checkpoint, side)

    def run(self, side: Side, *, losses: bool = False) -> Call:
        """Return the run of a pane."""
        pane = self.panes[side]
        options: dict[str, Any] = {}
        if pane.ablated:
            options = {"ablated": list(map(head_name, pane.ablated)), "how": self.how}
        if pane.ablated and pane.reference is not None:
            options["reference"] = pane.reference.named(f"{side}_windows")
        if not losses and not pane.model.get("causal", True):  # which takes a pass for each token
            options["losses"] = False
        return call("aotlens.heads.run_prompt", self.load(side), pane.text, **options).named(f"{side}_run")

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
        """The right head: chosen, or the one that the left head is matched with."""
        head = self.head if self.other_head is None else self.other_head
        if self.one_model or self.other_head is not None or self.unmatched is not None:
            shape = self.panes["right"].model["n_layers"], self.panes["right"].model["n_heads"]
            return head_name(head if head[0] < shape[0] and head[1] < shape[1] else (0, 0))
        return self.matching.named("matching").method("beside", head_name(head))

    @property
    def matching(self) -> Call:
        """The matching of the heads of the two models: by their circuits and, on the same tokens, by their patterns."""
        left, right = self.load("left"), self.load("right")
        matched = call("aotlens.heads.match_heads", left, right)
        if not self.aligned:
            return matched
        tokens = Call(Part(left, "to_tokens"), [self.panes["left"].text], kept=False)
        return Call(Part(matched.named("by_circuits"), "on"), [left, right, tokens])

    @property
    def unmatched(self) -> str | None:
        """The reason why the heads of two models are not matched; None where they can be."""
        if self.panes["left"].model.get("d_vocab") == self.panes["right"].model.get("d_vocab"):
            return None
        sizes = " and ".join(str(pane.model.get("d_vocab")) for pane in self.panes.values())
        return (
            f"The heads of these two models can't be matched: they are compared by what they do to each token, and the "
            f"vocabularies have {sizes} tokens."
        )
