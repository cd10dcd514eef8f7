"""The behaviour of every head of a checkpoint, as views: all heads, one of them closely, an induction circuit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from aotlens.conventions import Head, head_name
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Node, call, make
from aotlens.views.family import Family, reads_tokens
from aotlens.views.kinds import Reading
from aotlens.views.parameters import Limit, OfCheckpoint
from aotlens.views.view import FRAMEWORK, View

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.checkpoints import CheckpointInfo
    from aotlens.heads import HeadSummary

#: Kinds of replacement that an atlas measures, and on how many windows.
HOWS, N_ABLATED = ("position_mean", "fixed_pattern"), 32
#: The scores that are shown first: what a head does wherever texts repeat, against how much its pattern depends on the
#: text.
FIRST_X, FIRST_Y = "induction_random", "pattern_consistency_without_first"
#: A prompt in which words occur again, and one for models without a tokenizer.
TEXT, IDS = "\n".join(["green seven window apple river stone paper"] * 3), "[1 3 2 4 1 3 2 4]"
#: Columns by what older addresses call them.
RENAMED = {
    "constancy": "pattern_consistency",
    "constancy_without_first": "pattern_consistency_without_first",
}
#: Motifs that are listed for a head.
N_MOTIFS = 6
BINS = {"top": "the highest with examples", **{str(n): f"{n / 10:.1f} to {(n + 1) / 10:.1f}" for n in range(9, -1, -1)}}


@dataclass(frozen=True, kw_only=True)
class AtlasParameters(OfCheckpoint):
    """An atlas, the heads that are searched for in it, two scores, a head, and which of its examples are shown."""

    distillation: str | None = None
    """The distillation whose errors are shown next to the stored atlas, as `aotlens.distill.named_record` finds it."""
    corpus: Reading | None = declare.corpus("Text", blank="the stored atlas")
    tokens: int = declare.whole(16_384, least=1, most=200_000, label="Tokens of the text, at most")
    head: Head = declare.head("Head")
    where: str = declare.text(label="Heads where", most=300, blank="all heads", renamed=RENAMED)
    x: str | None = declare.option("Head score, horizontal axis", blank="", searched=True, renamed=RENAMED)
    y: str | None = declare.option("Head score, vertical axis", blank="", searched=True, renamed=RENAMED)
    bin: str = declare.choice(BINS, label="Attention away from key 0")

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        return super().of_infos(*infos, distillation=_distillation(infos[0]), **values)

    def limits(self) -> Mapping[str, Limit]:
        axes = {"x": FIRST_X, "y": FIRST_Y}
        options = {name: Limit(options={first: "", **_scores()} | _scores()) for name, first in axes.items()}
        return {"tokens": Limit(hidden=self.corpus is None), **options}

    @property
    def name(self) -> str:
        """The head's name."""
        return head_name(self.head)

    @property
    def text(self) -> str:
        """The prompt of the tutorial."""
        return IDS if self.info is not None and self.info.tokenizer_sha256 is None else TEXT

    @property
    def atlas(self) -> Node:
        """The atlas: the stored one, or that of the text."""
        if self.corpus is None:
            also = {}
            if self.distillation is not None:
                also["distillation"] = call("aotlens.distill.named_record", self.distillation).part("distillation")
            return call("aotlens.heads.stored_atlas", self.checkpoint, **also).named("record").part("atlas")
        return call(
            "aotlens.heads.atlas", Load(self.checkpoint), self.corpus.text.named("text"), n_tokens=self.tokens,
            hows=HOWS, n_ablated=N_ABLATED,
        ).named("atlas")  # fmt: skip

    def file(self, *parts: str) -> str:
        """Name a file about the atlas."""
        return "-".join(["atlas", self.checkpoint, *parts])


@lru_cache(maxsize=1)
def _scores() -> dict[str, str]:
    """Return the scores that an atlas of text may have, with their titles."""
    from aotlens.heads import HEAD_SCORES, motifs_of
    from aotlens.plots.atlas import column_title

    excess = [f"{prefix}{name}" for name in (*motifs_of("tokens"), *HEAD_SCORES) for prefix in ("", "x_")]
    others = ("margin", "offset", FIRST_X, "pattern_consistency", FIRST_Y, "mean_distance", "entropy", "copying",
              "copying_score", *(f"loss_{how}" for how in HOWS), "ffn_error")  # fmt: skip
    return {name: column_title(name) for name in (*others, *excess)}


def _distillation(info: CheckpointInfo) -> str | None:
    """Return the name of a checkpoint's bundled distillation; None if there is none of its weights."""
    from aotlens.distill import record_paths
    from aotlens.results import find_stored, stored_path

    if find_stored("distillation", info) is None:
        return None
    return next(name for name, path in record_paths().items() if path == stored_path("distillation", info.name))


def _missing(params: AtlasParameters) -> str | None:
    from aotlens.results import find_stored

    if params.corpus is not None:
        return None
    try:
        stored = None if params.info is None else find_stored("atlas", params.info)
    except ValueError as error:
        return str(error)
    if stored is not None:
        return None
    return f"No atlas of {params.checkpoint} is stored. Choose a text, and press Run."


# ── captions ────────────────────────────────────────────────────────────────────────────────────────────────────


def _of_head(params: AtlasParameters, summary: HeadSummary) -> str:
    """Describe the head, and the atlas that this is read from."""
    atlas = summary.atlas
    sentences = [f"{atlas.headline.replace('_', ' ')}.", f"Read: {_read(params, atlas.examples.tokens.size)}."]
    reasons: dict[str, list[str]] = {}
    for part, why in atlas.missing.items():
        reasons.setdefault(why, []).append(part)
    sentences += [f"Not measured: {' and '.join(parts)}; {why}." for why, parts in reasons.items()]
    if params.model.get("d_mlp"):
        sentences.append(
            f"{params.checkpoint} has MLPs (d_mlp = {params.model['d_mlp']}): they run in every loss and every "
            "ablation, and copying, which reads a head's weights alone, leaves them out."
        )
    return f"Head {summary.name}: {summary.headline}\n{' '.join(sentences)}"


def _read(params: AtlasParameters, n_tokens: int) -> str:
    from aotlens.conventions import several
    from aotlens.heads import stored_atlas

    if params.corpus is not None:
        return f"{params.corpus.about}, {n_tokens:,} tokens"
    record = stored_atlas(params.checkpoint)
    documents = f"{several(len(record.documents), 'held-out document')} of " if record.documents else ""
    return f"{documents}{record.corpus}, {n_tokens:,} tokens (stored)"


def strongest_motifs(summary: HeadSummary) -> pd.DataFrame:
    """Return the rows of the head's table for the motifs that it exceeds chance by most."""
    frame = summary.to_frame().dropna(subset="excess")
    return frame.sort_values("excess", ascending=False, kind="stable").head(N_MOTIFS)


def _of_motifs(params: AtlasParameters, summary: HeadSummary) -> str:
    frame = strongest_motifs(summary)
    if frame.empty:
        return "No motif can be scored on this text."
    first = frame.iloc[0]
    return (
        f"Most above chance: {first['motif'].replace('_', ' ')} ({first['score']:.2f}, chance {first['chance']:.2f})."
    )


def _of_losses(params: AtlasParameters, summary: HeadSummary) -> str:
    frame = summary.loss_frame()
    if frame.empty:
        return f"Not measured: {summary.atlas.missing.get('ablations', 'the atlas was made without')}."
    return f"Loss in nats per token, {frame['clean'][0]:.3f} without ablation; {frame['n'][0]} windows."


def _of_partners(params: AtlasParameters, summary: HeadSummary) -> str:
    if "circuits" in summary.atlas.missing:
        return f"Not measured: {summary.atlas.missing['circuits']}."
    frame = summary.partner_frame()
    if frame.empty:
        return "It composes with no other head above the null of flipped signs."
    first = frame.loc[frame["z"].idxmax()]
    return f"Strongest: it {first['relation']} head {first['layer']}.{first['head']} (z = {first['z']:.1f})."


# ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _heads(params: AtlasParameters) -> Call:
    return make("aotlens.heads.find_heads", params.atlas, *([params.where] if params.where else []))


def _summary(params: AtlasParameters, **options: Any) -> Call:
    return make("aotlens.heads.head_summary", params.atlas, params.head, **options)


def _examples(params: AtlasParameters) -> Call:
    return _summary(params, **({} if params.bin == "top" else {"bin": int(params.bin)}), model=Load(params.checkpoint))


def _circuit(params: AtlasParameters) -> Call:
    return call("aotlens.heads.induction_circuit", Load(params.checkpoint), params.atlas)


def _steps(params: AtlasParameters) -> Call:
    patterns = call("aotlens.heads.attention_patterns", Load(params.checkpoint), params.text).named("patterns")
    return make("aotlens.heads.induction_steps", _circuit(params).named("circuit"), params.atlas, patterns)


def _view(name: str, title: str, **rest: Any) -> View:
    """A view of the atlas: by default a table of the head's summary. The summary's view makes the atlas of a text."""
    usual = {
        "call": _summary, "file": lambda params: params.file(params.name, name),
        "missing": _missing, "pictured": False, "slow": "steps", "slow_part": lambda params: params.atlas,
        "cost": lambda params: float(params.corpus is None), "made_by": "summary",
    }  # fmt: skip
    return View(name=name, title=title, **{**usual, **rest})


HEADS = _view(
    "heads",
    "All heads",
    about="One row per head. Click a column’s name to sort, a head for its summary. “does” is the motif whose "
    "attention exceeds chance by most; chance is uniform attention for motifs of position, and the head’s mean pattern "
    "over other texts for motifs of content. In the search line, compare columns with numbers and join with and, or: "
    "induction_random > 0.4 and layer = 1; or write a part of a label: previous token. Columns that you name are "
    "listed too; the file has all of them.",
    formula="excess = attention to the motif’s keys − chance;  pattern consistency = 1 − Σ(A − Ā)² ÷ Σ(A − 1/v)²",
    source="Motifs: Olsson et al. 2022, Kovaleva et al. 2019; consistency: Non-linearity in attention, Figure 1",
    call=_heads,
    file=lambda params: params.file(),
)
SCORES = _view(
    "scores",
    "Two scores",
    about="Any two scores against each other, one point per head: colour and shape say what it does. Heads that the "
    "search does not find are faint. Click a point to select its head.",
    call=_heads,
    file=lambda params: params.file(params.x or FIRST_X, params.y or FIRST_Y),
    drawn=lambda params: {"x": params.x or FIRST_X, "y": params.y or FIRST_Y, "head": params.head},
    picks="head = customdata",
    pictured=True,
)
SUMMARY = _view(
    "summary",
    "What every head does",
    about="Everything that is measured of every head of a checkpoint, from one pass over windows spread over a text, "
    "the weights, and runs without each head. Of training text only the documents that were held out are read. The "
    "atlases of the bundled checkpoints are stored with aotlens; of another text one is made in the background, and "
    "what is done is kept on disk. Of one head: its motif, its share of the attention compared with chance, the "
    "pattern consistency over texts, and what the loss rises by without it, with the 95% interval over documents.",
    source="aotlens.heads.atlas; docs/atlas.md",
    caption=_of_head,
    made_by="",
)
EXAMPLES = _view(
    "examples",
    "Examples in the text",
    about="The attention of each query away from the start token (key 0) is cut into ten equal bins. Of each bin four "
    "queries are kept, each with the same probability. The framed token is the query; shaded ones are where it "
    "attends, with the share of its attention; the token behind the query is the one to be predicted. … leaves text "
    "out.",
    formula="away = 1 − A(query, 0)",
    source="A seeded reservoir per bin, one pass over the text (aotlens.heads.examples)",
    call=_examples,
    caption=lambda params, result: result.examples_headline,
    table="example_frame",
)
MOTIFS = _view(
    "motifs",
    "Attention-pattern scores vs baseline",
    about="Attention to each motif’s keys, mean over queries that have such a key, compared with chance; the interval "
    "is that of the difference, over documents. For induction and duplicate tokens, chance is what other tokens that "
    "occurred as often get from the same query.",
    caption=_of_motifs,
)
WEIGHTS = _view(
    "weights",
    "In the weights",
    about="Read from the weights alone. Among the 512 most frequent tokens, those rows of the head’s full circuits "
    "whose largest entry stands out most, and these entries. Looks for: which keys a query token scores highest, above "
    "the level of its row. Through another head: the same where keys (or queries) are what that head writes; it is "
    "shown if the head reads one above the null of flipped signs (z ≥ 3). Writes: which next tokens attending to a "
    "token makes likelier.",
    formula="QK: W_E W_QK W_Eᵀ − log-mean-exp of the row, nats;  OV: W_E W_OV W_U − mean of the row, logits",
    source=FRAMEWORK,
    call=lambda params: call("aotlens.heads.sharpest_circuits", Load(params.checkpoint), params.atlas, params.head),
)
LOSSES = _view(
    "losses",
    "Ablation",
    about="Change of the loss, in nats per token, with this head’s output or pattern replaced and all other heads as "
    "they are; 95% interval over documents (CR2; over windows if they are not known). Next to it: all heads at once. A "
    "head whose mean pattern costs nothing does the same on every text.",
    source="aotlens.heads.ablate_each; the practical test of where contextual patterns are needed: Non-linearity in "
    "attention, §5",
    caption=_of_losses,
    table="loss_frame",
)
PARTNERS = _view(
    "partners",
    "Input and output composition",
    about="The earlier heads whose output this one reads, by its queries, keys or values, and the later ones that read "
    "it: by how many standard deviations the composition lies above a null of flipped signs (z). Click a head for its "
    "summary.",
    formula="‖W_first W_second‖ ÷ (‖W_first‖ ‖W_second‖), Frobenius norms",
    source=FRAMEWORK,
    caption=_of_partners,
    table="partner_frame",
)
TUTORIAL = _view(
    "tutorial",
    "An induction circuit in six steps",
    about="Six views, in order, that find the circuit by which a small model continues what it has read before. Every "
    "number is measured: from the atlas, from the text that the step opens, or from runs without the heads.",
    source="In-context Learning and Induction Heads (Olsson et al. 2022)",
    call=_steps,
    file=lambda params: f"induction-{params.checkpoint}-steps",
)
CIRCUIT = _view(
    "circuit",
    "Verdict",
    about="Five claims that an induction circuit makes, and what was measured of each. Losses are on 16 sequences of "
    "the start token and twice the same 50 random tokens, with heads replaced by their means at each position.",
    formula="gain = loss on the first half − loss on the second;  lost = rise without the heads ÷ gain",
    source="aotlens.heads.induction_circuit",
    call=_circuit,
    file=lambda params: f"induction-{params.checkpoint}",
)

FAMILY = Family(
    "atlas",
    "What does every head of a model do?",
    (HEADS, SCORES, SUMMARY, EXAMPLES, MOTIFS, WEIGHTS, LOSSES, PARTNERS, CIRCUIT, TUTORIAL),
    AtlasParameters,
    reads=reads_tokens,
)
