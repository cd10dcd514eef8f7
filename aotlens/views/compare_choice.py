"""The choice of two runs that stand side by side, and of a head of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aotlens.conventions import Head, head_name
from aotlens.views.calls import Call, Load, Part, call, make

Side = Literal["left", "right"]


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
class Chosen:
    """Two panes, and a head of each."""

    left: Pane
    right: Pane
    how: str
    """The replacement of an ablated head's output."""
    instead: str = ""
    """The replacement in words; empty for zero."""
    head: Head = (0, 0)
    other_head: Head | None = None
    """The right head; None for the one that the left head is matched with."""
    view: str = "attention"
    without_first: bool = False

    @property
    def one_model(self) -> bool:
        """Whether both panes have one checkpoint: then each head stands beside itself."""
        return self.left.checkpoint == self.right.checkpoint

    @property
    def one_tokenizer(self) -> bool:
        """Whether both models cut texts into the same tokens."""
        return self.one_model or self.left.tokenizer == self.right.tokenizer is not None

    @property
    def aligned(self) -> bool:
        """Whether both panes have the same tokens of one text."""
        return self.one_tokenizer and self.left.text == self.right.text

    def load(self, side: Side) -> Load:
        """Return the model of a pane."""
        return Load(getattr(self, side).checkpoint, side)

    def run(self, side: Side, *, losses: bool = False) -> Call:
        """Return the run of a pane."""
        pane: Pane = getattr(self, side)
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
        return self.run(side).method("map", head, self.view, without_first=self.without_first)

    @property
    def beside(self) -> Any:
        """The right head: chosen, or the one that the left head is matched with."""
        head = self.head if self.other_head is None else self.other_head
        if self.one_model or self.other_head is not None or self.unmatched is not None:
            shape = self.right.model["n_layers"], self.right.model["n_heads"]
            return head_name(head if head[0] < shape[0] and head[1] < shape[1] else (0, 0))
        return self.matching.named("matching").method("beside", head_name(head))

    @property
    def matching(self) -> Call:
        """The matching of the heads of the two models: by their circuits and, on the same tokens, by their patterns."""
        left, right = self.load("left"), self.load("right")
        matched = call("aotlens.heads.match_heads", left, right)
        if not self.aligned:
            return matched
        tokens = Call(Part(left, "to_tokens"), [self.left.text], kept=False)
        return Call(Part(matched.named("by_circuits"), "on"), [left, right, tokens])

    @property
    def unmatched(self) -> str | None:
        """The reason why the heads of two models are not matched; None where they can be."""
        if self.left.model.get("d_vocab") == self.right.model.get("d_vocab"):
            return None
        sizes = " and ".join(str(pane.model.get("d_vocab")) for pane in (self.left, self.right))
        return (
            f"The heads of these two models can't be matched: they are compared by what they do to each token, and the "
            f"vocabularies have {sizes} tokens."
        )
