"""Heads that recur in several models, as views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aotlens.conventions import head_name
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Node, call, make
from aotlens.views.family import Family, is_causal
from aotlens.views.parameters import OfCheckpoints, first_token
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.heads import Universality

#: Models that are compared at once, at most; windows of the text, and tokens of each.
MOST_MODELS, N_WINDOWS, LENGTH = 8, 32, 64
#: Groups that a caption names.
_N_NAMED = 4

TEXTS = {
    "novels": "English novels, held out",
    "stdlib": "Python’s standard library",
    "repeats": "repeated random tokens",
}
EVIDENCE = {
    "pattern, ov": "patterns, tested by OV circuits",
    "qk, ov": "QK circuits, tested by OV circuits",
    "ov, content": "OV circuits, tested by content of patterns",
    "ov, qk": "OV circuits, tested by QK circuits",
}


@dataclass(frozen=True, kw_only=True)
class UniversalityParameters(OfCheckpoints):
    """Models, the sequences that they read, and the evidence that their heads are matched and tested by."""

    text: str = declare.choice(TEXTS, label="Text")
    evidence: str = declare.choice(EVIDENCE, label="Heads matched by")
    seed: int = declare.whole(0, most=99, label="Permutations (seed)")

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        twice = [name for name, count in Counter(info.name for info in infos).items() if count > 1]
        if twice:
            raise ValueError(f"universality: expected different checkpoints, got {twice[0]} twice; take another one.")
        return super().of_infos(*infos, **values)

    @property
    def loaded(self) -> Mapping[str, Load]:
        """The models by their names, each with a variable of its own in Python."""
        return {info.name: Load(info.name, f"model_{place}") for place, info in enumerate(self.infos, start=1)}

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        names = "-".join(info.name for info in self.infos) if len(self.infos) < 4 else f"{len(self.infos)}-models"
        return f"universality-{names}-{self.text}-{self.evidence.replace(', ', '-')}-{what}"


def _missing(params: UniversalityParameters) -> str | None:
    first, *others = params.infos
    if not others:
        return f"Only {first.name} is selected, and heads are matched across models. Select two to eight."
    for other in others:
        if (other.model["d_vocab"], other.tokenizer_sha256) != (first.model["d_vocab"], first.tokenizer_sha256):
            return (
                f"{first.name} and {other.name} have different vocabularies, and heads are compared by what they do to "
                "each token. Choose models with one tokenizer."
            )
    return None


def _call(params: UniversalityParameters) -> Call:
    models = params.loaded
    tokens: Node
    clusters: dict[str, Node] = {}
    if params.text == "repeats":
        half = min(LENGTH // 2, *((int(info.model["n_ctx"]) - 1) // 2 for info in params.infos))
        first = params.infos[0]
        sizes = int(first.model["d_vocab"]), N_WINDOWS, half
        drawn = make("aotlens.data.repeated_random_tokens", *sizes, params.seed, eot_id=first_token(first))
        tokens = drawn.named("tokens")
    else:
        args = [*models.values()], params.text, N_WINDOWS, LENGTH
        windows = make("aotlens.checkpoints.shared_held_out_windows", *args).named("windows")
        tokens, clusters = windows.part("ids"), {"clusters": windows.part("documents")}
    matched, tested = params.evidence.split(", ")
    return call(
        "aotlens.heads.universality", models, tokens, grouped_by=(matched, tested), **clusters, seed=params.seed
    ).running()


def _says_groups(params: UniversalityParameters, result: Universality) -> str:
    n, tested = len(result.models), result.grouped_by[1]
    sizes = Counter(len(group.heads) for group in result.groups)
    counted = ", ".join(f"{sizes[size]} in {size} of {n} models" for size in sorted(sizes, reverse=True))
    named = "; ".join(
        f"{' = '.join(f'{name} {head_name(head)}' for name, head in group.heads)} ({tested} {group.tested:.2f}, "
        f"q = {group.q:.2g})"
        for group in result.groups[:_N_NAMED]
    )
    by_kind = f"{result.by_kind}. " if result.by_kind else ""
    sizes_of = "; ".join(map(_size_and_loss, params.infos))
    closed = f" Of chains through three models {result.closed:.0%} close." if n > 2 else ""
    beyond = f"{result.beyond_distance}. " if result.beyond_distance else ""
    return (
        f"{result.finding} {beyond}{by_kind}"
        f"Groups of heads assigned to each other: {counted}.{closed} "
        f"{'The largest: ' if len(result.groups) > _N_NAMED else ''}{named}. Models: {sizes_of}."
    )


def _size_and_loss(info: CheckpointInfo) -> str:
    """The size of a model and its loss on held-out data, by which it may differ from the others."""
    loss, _ = info.losses
    measured = f", loss {loss:.2f} {info.words.unit}" if isinstance(loss, int | float) else ""
    return f"{info.name}, {info.model['n_layers']} layers, d_model {info.model['d_model']}{measured}"


def _says_pairs(params: UniversalityParameters, result: Universality) -> str:
    frame = result.pairs_frame()
    (matched, tested), n = result.grouped_by, len(frame)
    pairs = frame.drop_duplicates(["left_model", "right_model"]).sort_values("p_models")
    by_models = "; ".join(
        f"{row.left_model} and {row.right_model}: {row.mean:.3f} (p = {row.p_models:.2g})"
        for row in pairs.head(_N_NAMED).itertuples()
    )
    return (
        f"{n} pairs of heads are assigned to each other by {matched}. Mean {tested} of the pairs of two models, next "
        f"to permuted heads of the same layers{', smallest p first' if len(pairs) > _N_NAMED else ''}: {by_models}."
    )


GROUPS = View(
    name="groups",
    title="Matched heads",
    about="The heads of every two models are matched by one kind of evidence, such as the similarity of their "
    "patterns, so that the sum over pairs is largest. The best match of unrelated heads is above the mean too, so "
    "matched heads are tested by other evidence, made from other weights, against heads permuted within the layers of "
    "each model (999 times). The difference from permuted heads is also given in their standard deviations: compare "
    "kinds of models by that, and with their losses and sizes in view. A group is a clique: heads of different models, "
    "each two of which are matched. q is a false discovery rate over groups, se the jackknife over models, text_se "
    "over documents of text. Surrogates whose models read different texts keep the distances and entropies of every "
    "head, and say whether heads are alike beyond them. The picture has the similarity by the first evidence, groups "
    "side by side.",
    formula="q: Benjamini and Hochberg over groups;  p = (1 + permutations with a mean as large) ÷ 1,000",
    source="docs/universality.md; Olah et al., Zoom In (2020): universality",
    call=_call,
    caption=_says_groups,
    file=lambda params: params.file("groups"),
    missing=_missing,
    slow="models and pairs of models",
    tall=True,
    listed=True,
)
PAIRS = View(
    name="pairs",
    title="Heads of every two models",
    about="All heads by all heads, model by model: the similarity by the evidence that heads are assigned by, and a "
    "square where two heads are assigned to each other. The table has every such pair with the similarity by the other "
    "evidence. Its p is the share of all pairs of heads of the same two layers that are as alike, so that with four "
    "heads a layer it cannot go below 1/16; p_models is of the mean over all heads of the two models, beside permuted "
    "heads.",
    source="docs/universality.md",
    call=_call,
    caption=_says_pairs,
    file=lambda params: params.file("pairs"),
    missing=_missing,
    drawn=lambda params: {"blocks": True},
    table="pairs_frame",
    slow="models and pairs of models",
    made_by="groups",
    tall=True,
    listed=True,
)

LAYERS = View(
    name="layers",
    title="Layer by layer",
    about="How alike assigned heads are by the evidence that they are tested on, less what permuted heads of the same "
    "layers give, averaged over the heads of each layer. Intervals are over models, by leaving out one at a time; with "
    "fewer than three models there are none. Heads of different layers may be assigned to each other: each counts in "
    "its own.",
    formula="excess = mean over a layer’s heads of (similarity − mean over all heads of the two layers)",
    source="docs/universality.md; Bali et al. 2602.16740: middle layers are the least stable",
    call=_call,
    caption=lambda params, result: result.layer_trend or "These models have one layer, and there is no trend.",
    file=lambda params: params.file("layers"),
    missing=_missing,
    drawn=lambda params: {"layers": True},
    table="layers_frame",
    slow="models and pairs of models",
    made_by="groups",
    listed=True,
)

FAMILY = Family(
    "universality",
    "Which heads of one model are heads of others, trained apart?",
    (GROUPS, PAIRS, LAYERS),
    UniversalityParameters,
    reads=is_causal,
    none="There is no model of text here whose heads could be compared.",
    most=MOST_MODELS,
)
