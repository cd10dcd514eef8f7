"""The behaviour of every head of a checkpoint, as views: all heads, one of them closely, an induction circuit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head
from aotlens.views.calls import Call, Load, Part, call, make
from aotlens.views.sufficient import says_hidden
from aotlens.views.view import About, View

if TYPE_CHECKING:
    from aotlens.heads import ShapleyValues

#: Kinds of replacement that an atlas measures, and on how many windows.
HOWS, N_ABLATED = ("position_mean", "fixed_pattern"), 32
#: The scores that are shown first: what a head does wherever texts repeat, against how much its pattern depends on the
#: text.
FIRST_X, FIRST_Y = "induction_random", "pattern_consistency_without_first"

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"


@dataclass(frozen=True, kw_only=True)
class AtlasParameters:
    """An atlas, the heads that are searched for in it, two scores, and the head that is looked at."""

    checkpoint: str
    corpus: Call | None = None
    """The text that it is of; None for the atlas that is stored with the checkpoint."""
    tokens: int = 0
    """The number of tokens of the text that were to be read."""
    distillation: str | None = None
    """The distillation whose errors stand beside the stored atlas, as `aotlens.distill.named_record` finds it."""
    stamp: int = 0
    """The mark that tells this atlas from another that is written alike, of other weights."""
    where: str = ""
    """The search, as it was written."""
    readable: str = ""
    """The search that the picture shows, which stays while a search is put right: empty for one that cannot be read."""
    x: str = FIRST_X
    y: str = FIRST_Y
    head: Head | None = None
    """None before one is chosen: the summary is the first one's, and no point has a ring."""
    bin: int | None = None
    """The bin whose examples are given, by tenths of attention away from key 0; None for the highest that has some."""

    @property
    def name(self) -> str:
        """The head that is looked at."""
        layer, number = self.head or (0, 0)
        return f"{layer}.{number}"

    @property
    def atlas(self) -> Call | Part:
        """The atlas itself."""
        if self.corpus is not None:
            atlas = call(
                "aotlens.heads.atlas", Load(self.checkpoint), self.corpus.named("text"), n_tokens=self.tokens,
                hows=HOWS, n_ablated=N_ABLATED,
            )  # fmt: skip
            return atlas.stamped(self.stamp).named("made")
        return self.record.part("atlas")

    @property
    def record(self) -> Call:
        """The atlas that is stored with the checkpoint, with its origin."""
        beside = {}
        if self.distillation is not None:
            beside["distillation"] = call("aotlens.distill.named_record", self.distillation).part("distillation")
        return call("aotlens.heads.stored_atlas", self.checkpoint, **beside).stamped(self.stamp).named("record")

    def file(self, *parts: str) -> str:
        """Name a file about the atlas."""
        return "-".join(["atlas", self.checkpoint, *parts])


def _found(chosen: AtlasParameters) -> Call:
    return make("aotlens.heads.find_heads", chosen.atlas, *([chosen.where] if chosen.where else []))


def _summary(chosen: AtlasParameters, **bin: int) -> Call:
    return make("aotlens.heads.head_summary", chosen.atlas, chosen.head or (0, 0), **bin)


def _headline(chosen: AtlasParameters, result: Any) -> str:
    return str(result.headline)


def _shapley(chosen: AtlasParameters) -> Call:
    tokens = make("aotlens.heads.ablated_tokens", chosen.atlas).named("tokens")
    clusters = chosen.atlas.part("ablations").item(HOWS[0]).part("clusters")
    return call("aotlens.heads.shapley_heads", Load(chosen.checkpoint), tokens, how=HOWS[0], clusters=clusters)


def _says_shapley(chosen: AtlasParameters, result: ShapleyValues) -> str:
    drawn = f"{result.n_permutations} drawn orders" if result.n_permutations else "all orders"
    return (
        f"{result.headline}. Measured: the loss, outputs replaced by their means at each position; {drawn}, "
        f"{result.n_runs:,} sets of heads, {result.n_sequences} windows.{says_hidden(result)}"
    )


def _table(name: str, title: str, about: About, **rest: Any) -> View:
    """A table without a figure: of the summary of the head that is looked at, if not otherwise said."""
    usual = {"call": _summary, "caption": _headline, "file": lambda chosen: chosen.file(chosen.name, name)}
    return View(name=name, title=title, about=about, pictured=False, **{**usual, **rest})


HEADS = _table(
    "heads",
    "All heads",
    About(
        text="A row a head. Click a column’s name to sort, a head for its summary. “does” is the motif that its "
        "attention exceeds chance by most; chance is uniform attention for motifs of position, and the head’s mean "
        "pattern over other texts for motifs of content. In the search line, compare columns with numbers and join "
        "with and, or: induction_random > 0.4 and layer = 1; or write a part of a label: previous token. Columns that "
        "you name are listed too; in the file all are.",
        formula="excess = attention to the motif’s keys − chance;  pattern consistency = 1 − Σ(A − Ā)² ÷ Σ(A − 1/v)²",
        source="Motifs: Olsson et al. 2022, Kovaleva et al. 2019; consistency: Non-linearity in attention, Figure 1",
    ),
    call=_found,
    file=lambda chosen: chosen.file(),
)
SCORES = View(
    name="scores",
    title="Two scores",
    about=About(
        text="Any two scores against each other, a point a head: colour and shape say what it does. Heads that the "
        "search does not find are faint. Click a point for the head’s summary.",
    ),
    call=lambda chosen: _found(replace(chosen, where=chosen.readable)),
    caption=_headline,
    file=lambda chosen: chosen.file(chosen.x, chosen.y),
    drawn=lambda chosen: {"x": chosen.x, "y": chosen.y} | ({"head": chosen.head} if chosen.head else {}),
)
SUMMARY = _table(
    "summary",
    "One head",
    About(
        text="Its behaviour in a sentence made from its scores: the motif, its share of the attention beside "
        "chance, the pattern consistency over texts, and what the loss rises by without it, with the 95% interval "
        "over documents.",
    ),
)
EXAMPLES = _table(
    "examples",
    "In the text",
    About(
        text="Of every query, what its attention has away from the start token (key 0) is cut in ten equal bins. Of "
        "each bin four queries are kept, each as likely as any other. The framed token is the query; shaded ones are "
        "where it attends, with the share of its attention; what stands behind the query is what the model should say "
        "next. … leaves text out.",
        formula="away = 1 − A(query, 0)",
        source="A seeded reservoir a bin, one pass over the text (aotlens.heads.examples)",
    ),
    call=lambda chosen: _summary(chosen, **({} if chosen.bin is None else {"bin": chosen.bin})),
    caption=lambda chosen, result: result.examples_headline,
    table="example_frame",
)
MOTIFS = _table(
    "motifs",
    "Motifs beside chance",
    About(
        text="Attention to each motif’s keys, mean over queries that have such a key, beside chance; the interval is "
        "that of the difference, over documents. Beside induction and duplicate tokens stands what other tokens that "
        "occurred as often get from the same query.",
    ),
)
WEIGHTS = _table(
    "weights",
    "In the weights",
    About(
        text="Read from the weights alone. Among the 512 most frequent tokens, those rows of the head’s full circuits "
        "whose largest entry stands out most, and these entries. Looks for: which keys a query token scores highest, "
        "above the level of its row. Through another head: the same where keys (or queries) are what that head "
        "writes; it is shown where the head reads one beyond flipped signs (z ≥ 3). Writes: which next tokens "
        "attending to a token makes likelier.",
        formula="QK: W_E W_QK W_Eᵀ − log-mean-exp of the row, nats;  OV: W_E W_OV W_U − mean of the row, logits",
        source=_FRAMEWORK,
    ),
    call=lambda chosen: call(
        "aotlens.heads.sharpest_circuits", Load(chosen.checkpoint), chosen.atlas, chosen.head or (0, 0)
    ),
)
LOSSES = _table(
    "losses",
    "Without it",
    About(
        text="Δ loss, in nats a token, with this head’s output or pattern replaced, all other heads "
        "as they are; 95% interval over documents (CR2; over windows where they are not known). Beside it: all heads "
        "at once. A head whose mean pattern costs nothing does the same on every text.",
        source="aotlens.heads.ablate_each; the practical test of where contextual patterns are needed: Non-linearity "
        "in attention, §5",
    ),
    table="loss_frame",
)
SHAPLEY = View(
    name="shapley",
    title="Shapley values",
    about=About(
        text="The loss without one head alone misses what other heads do in its place. A Shapley value is what a head "
        "adds to the loss on average over all orders in which heads could be added to a model without any; the values "
        "of all heads add up to what all heads do, and a negative one lowers the loss. Beside it: what the head adds "
        "before all others (first) and after all others (last), which is minus the loss without it. A head is hidden "
        "where ablating it alone shows less than half of its Shapley value. Measured on the windows on which the atlas "
        "ablates heads, outputs replaced by their means at each position over the other windows. Of up to 12 heads all "
        "sets are tried; of more, 128 orders are drawn, each with its reverse, which takes long. Intervals (95% for "
        "all heads at once) are over documents, and wider by what the drawing adds.",
        formula="φ_h = Σ_{S ∌ h} |S|! (n − |S| − 1)! ÷ n! · (m(S ∪ h) − m(S))",
        source="Shapley, A Value for n-Person Games (1953)",
    ),
    call=_shapley,
    caption=_says_shapley,
    file=lambda chosen: chosen.file("shapley"),
    slow="sets of heads",
)
PARTNERS = _table(
    "partners",
    "Input and output composition",
    About(
        text="The previous heads whose output this one reads, by its queries, keys or values, and the next ones that "
        "read it: by how many standard deviations the composition lies above flipped signs (z). "
        "Click a head for its summary.",
        formula="‖W_first W_second‖ ÷ (‖W_first‖ ‖W_second‖), Frobenius norms",
        source=_FRAMEWORK,
    ),
    table="partner_frame",
)
CIRCUIT = _table(
    "circuit",
    "Verdict",
    About(
        text="Five claims that an induction circuit makes, and what was measured of each. Losses are on 16 sequences "
        "of the start token and twice the same 50 random tokens, with heads replaced by their means at each position.",
        formula="gain = loss on the first half − loss on the second;  lost = rise without the heads ÷ gain",
        source="aotlens.heads.induction_circuit",
    ),
    call=lambda chosen: call("aotlens.heads.induction_circuit", Load(chosen.checkpoint), chosen.atlas),
    file=lambda chosen: f"induction-{chosen.checkpoint}",
)
