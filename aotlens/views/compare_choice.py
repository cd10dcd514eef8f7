"""The parameters of two runs next to each other, and of a head of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aotlens.conventions import ABLATIONS, FROM_OTHERS, HasHeads, Head, head_name
from aotlens.plots.attention import QUANTITIES
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call, make
from aotlens.views.kinds import Reading
from aotlens.views.parameters import Limit, OfCheckpoints, sizes_of

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo

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
