"""The atlas: a row a head with everything that is measured of it, from one pass over a text and some ablations.

    patterns     motifs beside chance, pattern consistency, distance and entropy, examples: one pass over all windows
    random       motifs on random tokens that come twice: the usual induction score
    circuits     how much each head copies, and with whom it composes, from the weights
    scores       the declared scores that need more than a pattern (`aotlens.heads.head_scores`)
    ablations    the loss without each head alone, and without all of them, for every kind of replacement

Each is a stage that is kept on disk once it is done (`aotlens.heads.atlas_stages`). A model of TransformerLens gives
what patterns show; `missing` says why the rest is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.checkpoints import user_folder
from aotlens.conventions import (
    ABLATIONS,
    FROM_OTHERS,
    Head,
    HeadLike,
    Progress,
    all_heads,
    as_head,
    require_choice,
    several,
)
from aotlens.data import Corpus
from aotlens.data.windows import spread
from aotlens.heads.ablation import Ablation, EachHead, ablate, ablate_each
from aotlens.heads.atlas_stages import AtlasText, Stage, Stages, Steps, circuits_stage, identity, patterns_stage
from aotlens.heads.attention_to import MotifScores
from aotlens.heads.examples import HeadExamples
from aotlens.heads.head_scores import HEAD_SCORES, HeadScores, head_scores
from aotlens.heads.head_search import rows_where
from aotlens.heads.labels import HeadLabels, head_labels
from aotlens.heads.motifs import motifs_of
from aotlens.heads.reader import HeadReader, Model
from aotlens.heads.replacement import HOWS
from aotlens.heads.same_patterns import PatternConsistency
from aotlens.heads.scores import motif_scores
from aotlens.results import Result
from aotlens.statistics import interval_text

if TYPE_CHECKING:
    import pandas as pd

#: Hidden units of the feed-forward network whose error stands in the table, where they were distilled.
_WIDTH = 16
BRIDGE = "weights and ablations are read from models of aotlens; this one is of TransformerLens"


class Partner(NamedTuple):
    """A head that another one reads or feeds."""

    head: Head
    mode: str
    """`q`, `k` or `v`: which input of the later head reads what the earlier one writes."""
    value: float
    """The composition score, of what the earlier head wrote on the text."""
    z: float
    """Standard deviations of its square above flipped signs of the text's stream (`aotlens.circuits.nulls`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Atlas(Result):
    """The measurements of every head of a model."""

    model: str
    about: str
    """The description of what was read."""
    motifs: MotifScores
    random: MotifScores
    """Motifs on random tokens that come twice."""
    pattern_consistency: PatternConsistency
    mean_distance: Float64[np.ndarray, "layer head"]
    """Tokens between query and key, weighted by attention, over all queries but the first."""
    entropy: Float64[np.ndarray, "layer head"]
    """Nats a query, over all queries but the first."""
    examples: HeadExamples
    copying: Float64[np.ndarray, "layer head"] | None
    """Share of tokens that raise their own logit most through the head (`aotlens.circuits.copying_rate`)."""
    copying_score: Float64[np.ndarray, "layer head"] | None
    """Σ λ ÷ Σ |λ| over the eigenvalues of tokens → logits (`aotlens.circuits.spectrum`)."""
    composition: Mapping[str, Float64[np.ndarray, "layer head layer head"]]
    """Scores by mode, indexed [earlier, later]: of what was written on the ablated windows."""
    composition_z: Mapping[str, Float64[np.ndarray, "layer head layer head"]]
    ablations: Mapping[str, EachHead]
    """The ablations by kind of replacement."""
    together: Mapping[str, Ablation]
    """The ablations with all heads replaced at once: with `fixed_pattern`, whether contextual patterns are needed at
    all."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """The parts that this model cannot give, and why."""
    distillation: Any = None
    """The caller's distillation: the heads' errors as feed-forward networks."""
    skip_trigrams: Any = None
    """The caller's skip-trigrams: tables by head."""
    scores: HeadScores | None = None
    """The declared scores, on the ablated windows; None in an atlas that was made before there were any."""
    lengths: Int64[np.ndarray, " sequence"] | None = None
    """The tokens of each sequence, if they have several lengths."""
    own_sequences: bool = False
    """Whether it was made of ids, whose labels are read off these alone, and not of a corpus."""
    threshold: float | None = None
    """The score from which a head may have a label; None: each motif's own."""

    @property
    def headline(self) -> str:
        return f"{several(len(self.heads), 'head')} of {self.model}: {self.labels.headline}"

    @property
    def labels(self) -> HeadLabels:
        """Every head's label: from the text and the random tokens together, or from given sequences alone."""
        return head_labels(None if self.own_sequences else self.random, self.motifs, threshold=self.threshold)

    @property
    def heads(self) -> tuple[Head, ...]:
        """All heads of the model, in order."""
        return tuple(np.ndindex(*self.entropy.shape))  # type: ignore[arg-type]

    def reads(self, head: HeadLike, n: int = 3) -> tuple[Partner, ...]:
        """Return the earlier heads whose output this one reads most beyond chance, by z; from all modes."""
        layer, number = as_head(head)
        return self._partners(n, lambda values: values[..., layer, number])

    def feeds(self, head: HeadLike, n: int = 3) -> tuple[Partner, ...]:
        """Return the later heads that read this one most beyond chance."""
        layer, number = as_head(head)
        return self._partners(n, lambda values: values[layer, number])

    def _partners(self, n: int, of: Callable[[np.ndarray], np.ndarray]) -> tuple[Partner, ...]:
        partners = [
            Partner(
                head=(int(index[0]), int(index[1])),
                mode=mode,
                value=float(of(self.composition[mode])[index]),
                z=float(z),
            )
            for mode, all_z in self.composition_z.items()
            for index, z in np.ndenumerate(of(all_z))
            if np.isfinite(z) and z > 0
        ]
        return tuple(sorted(partners, key=lambda partner: -partner.z)[:n])

    def sentence(self, head: HeadLike) -> str:
        """Describe a head from its scores: its label or strongest motif, chance, pattern consistency, and its cost."""
        layer, number = as_head(head)
        index, labels = (layer, number), self.labels
        sentences = [labels.sentence(index)]
        random, is_labelled = self.random, labels.names[layer][number] == "induction"
        if not is_labelled and "induction" in random.motifs and random.qualifies("induction", self.threshold)[index]:
            score = random["induction"][index]
            sentences.append(f"On random tokens that come twice it does induction ({score:.2f}).")
        consistency = self.pattern_consistency.values[index]
        sentences.append(
            "Its pattern is uniform." if np.isnan(consistency) else f"Pattern consistency {consistency:.2f}."
        )
        for how, result in self.ablations.items():
            if how == "position_mean":
                place = result.heads.index(index)
                interval = interval_text(result.intervals()[place], "+.3f", "")
                sentences.append(f"Without it the loss changes by {result.changes[place]:+.3f}{interval}.")
        sentences += [] if self.scores is None else self.scores.describe_head(index)
        return " ".join(sentences)

    def where(self, search: str) -> tuple[Head, ...]:
        """Return the heads that `search` finds in the table, as `induction_random > 0.4 and layer = 1` or `previous
        token`.

        `aotlens.heads.head_search` says what can be written. Raises `ValueError` for what cannot be read.
        """
        matches = rows_where(self.to_frame(), search)
        return tuple(head for head, is_found in zip(self.heads, matches, strict=True) if is_found)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head: label, whether it rests on the first token otherwise, and the margin on text, scores
        and their excess (`x_…`), shape, copying, declared scores and their excess, its first partner in each direction,
        the change of the loss by each replacement with its interval, and the error of a feed-forward network of 16
        hidden units (or of the most that were distilled) in its place."""
        import pandas as pd

        scores = self.motifs
        columns: dict[str, Any] = dict(self.labels.to_frame())
        for place, name in enumerate(scores.motifs):
            if name not in scores.reasons:
                columns |= {name: scores.values[place].ravel(), f"x_{name}": scores.excess[place].ravel()}
        if scores.best_offsets is not None:
            columns["offset"] = scores.best_offsets.ravel()
        if "induction" in self.random.motifs:
            columns["induction_random"] = self.random["induction"].ravel()
        columns |= {
            "class": np.ravel(scores.kovaleva()),
            "pattern_consistency": self.pattern_consistency.values.ravel(),
        }
        columns |= {"pattern_consistency_without_first": self.pattern_consistency.without_first.ravel()}
        columns |= {"mean_distance": self.mean_distance.ravel(), "entropy": self.entropy.ravel()}
        for name in ("copying", "copying_score"):
            values = getattr(self, name)
            columns |= {} if values is None else {name: values.ravel()}
        for name in () if self.scores is None else self.scores.measured:
            place = self.scores.scores.index(name)  # type: ignore[union-attr]
            excess = self.scores.excess[place]  # type: ignore[union-attr]
            columns |= {name: self.scores[name].ravel(), f"x_{name}": excess.ravel()}  # type: ignore[index]
        if self.composition:
            for name, of in (("reads", self.reads), ("feeds", self.feeds)):
                columns[name] = [" ".join(map(_named, of(head, 1))) for head in self.heads]
        for how, result in self.ablations.items():
            low, high = result.intervals().T
            columns |= {f"loss_{how}": result.changes, f"loss_{how}_low": low, f"loss_{how}_high": high}
        if self.distillation is not None:
            widths = self.distillation.hidden
            error = self.distillation.mean_error(_WIDTH if _WIDTH in widths else max(widths))
            errors = dict(zip(self.distillation.heads, error, strict=True))
            columns["ffn_error"] = [errors.get(head, np.nan) for head in self.heads]
        if self.skip_trigrams is not None:
            columns["skip_trigrams"] = [len(self.skip_trigrams.get(head, ())) for head in self.heads]
        return pd.DataFrame(columns)


def _named(partner: Partner) -> str:
    return f"{partner.head[0]}.{partner.head[1]} {partner.mode} z={partner.z:.0f}"


@torch.no_grad()
def atlas(
    model: Model,
    corpus: Corpus | str | Tensor,
    *,
    attention_mask: Tensor | None = None,
    clusters: Iterable[Hashable] | None = None,
    targets: Tensor | None = None,
    threshold: float | None = None,
    distillation: Any = None,
    skip_trigrams: Any = None,
    n_tokens: int = 200_000,
    length: int | None = None,
    hows: Sequence[str] = HOWS,
    n_ablated: int = 32,
    n_examples: int = 4,
    seed: int = 0,
    cache: str | Path | None = "home",
    batch_size: int = 8,
    progress: Progress | None = None,
) -> Atlas:
    """Measure every head of `model` on `n_tokens` of `corpus`, and leave heads out on `n_ablated` windows of them.

    `corpus` is a `Corpus`, its name as `open_corpus` takes it, or ids `[sequence, pos]`. Of a corpus, windows of
    `length` tokens (None: the context, at most 512) are spread over the documents that the model was not trained on,
    over all where it saw none of them. Intervals are over these documents, and of ids over their `clusters`, the
    document of each sequence, where these are given. Of ids, `targets` `[sequence, pos]` are the labels whose loss the
    ablations measure, in place of the next tokens (−100 is ignored), as in `ablate`: of prompts with a random part, the
    part that can be known. `threshold` is the score from which a head may have a label (None: each motif's own). Labels
    of ids are those of `attention_to` on them; of a corpus they are from random tokens, too. `distillation` (of
    `aotlens.distill`) and `skip_trigrams` (tables by head) are shown next to the rest. `hows` are the replacements
    (`aotlens.heads.ablation`; `()` for none), with means over the other windows.

    `attention_mask`, of the ids' shape, is True (or 1) at ids that are no padding. Numbers are those of the sequences
    without it, each of which counts with its own queries; examples have their positions. Of several lengths, motifs
    are those of `motif_scores` with a mask, without intervals, and there are no declared scores and no replacement by
    another sequence (`missing`).

    What is done is kept in the folder `cache` ("home": `$AOTLENS_HOME/atlases`; None: nowhere) under a hash of model,
    ids and settings; a second call reads it, and one after an interruption goes on with the stage that it was in.

    Time: two passes with patterns, about half a pass over the ablated windows a head and replacement. Memory, whatever
    the text: three patterns of every head in float64, one batch of a layer's patterns with a mask a motif, some numbers
    a head for at most 1,024 groups of sequences, and the ids that are read (`n_tokens`). `progress(done, total)` counts
    windows read and runs of a head on a batch.

    Raises `ValueError` for a model that does not read tokens or shows no patterns, for a text that is too short, and
    for another replacement.
    """
    reader = HeadReader.of(model, "an atlas")
    for how in hows:
        require_choice("hows", how, HOWS)
    text = AtlasText.of(reader, corpus, n_tokens, length, clusters, attention_mask, targets)
    tokens, documents = text.tokens, text.documents
    motifs = list(motifs_of("tokens"))
    settings = {"motifs": motifs, "hows": None, "n_ablated": n_ablated, "examples": n_examples, "seed": seed}
    settings["scores"] = list(HEAD_SCORES)
    settings["targets"] = None if text.targets is None else text.targets.tolist()
    settings |= {} if text.lengths is None else {"lengths": text.lengths.tolist()}
    settings["clusters"] = None if documents is None else documents.tolist()
    folder = None if cache is None else user_folder("atlases") if cache == "home" else Path(cache)
    stages = Stages(None if folder is None else folder / f"{identity(model, tokens, settings)}.safetensors")
    missing = _missing(reader)
    if text.lengths is not None:
        missing |= dict.fromkeys(("scores", "resample"), "sequences of several lengths were given")
    replacements = () if "ablations" in missing else tuple(how for how in hows if how not in missing)
    places = spread(len(tokens), n_ablated)
    ablated, theirs = tokens[places].to(reader.device), None if documents is None else documents[places.numpy()]
    labels, mask = (None if ids is None else ids[places].to(reader.device) for ids in (text.targets, text.mask))
    if len(ablated) < 2 and (means := [how for how in replacements if how in FROM_OTHERS]):
        words = " or ".join(ABLATIONS[how] for how in means)
        raise ValueError(
            f"To ablate heads by {words} takes two windows or more, and only one is read: choose a longer text, or "
            "read more of it."
        )
    runs = reader.n_layers * reader.n_heads * -(-len(ablated) // batch_size)
    steps = Steps(len(tokens) + len(replacements) * runs, progress=progress)

    patterns = stages.get(
        "patterns",
        lambda: patterns_stage(reader, text, n_examples, seed, batch_size, progress=steps.within(len(tokens))),
    )
    steps.done(len(tokens))
    random = stages.get("random", lambda: {"scores": motif_scores(model, seed=seed, batch_size=batch_size)})
    own: Any = model  # of aotlens, where there are circuits and anything to ablate
    circuits: Stage = {}
    if "circuits" not in missing:
        circuits = stages.get("circuits", lambda: circuits_stage(own, ablated, mask))
    scores: Stage = {"scores": None}
    if "scores" not in missing:
        scores = stages.get(
            "scores", lambda: {"scores": head_scores(model, tokens[places], clusters=theirs, seed=seed)}
        )
    ablations: dict[str, EachHead] = {}
    together: dict[str, Ablation] = {}
    for how in replacements:
        options: dict[str, Any] = {"targets": labels, "attention_mask": mask, "clusters": theirs, "seed": seed}
        each = stages.get(f"each {how}", lambda: {"each": ablate_each(
            own, ablated, how, **options, batch_size=batch_size, progress=steps.within(runs))})  # noqa: B023  # fmt: skip
        both = stages.get(f"together {how}", lambda: {"together": _without_tokens(
            ablate(own, ablated, all_heads(reader), how, **options, batch_size=batch_size))})  # noqa: B023  # fmt: skip
        ablations[how], together[how] = each["each"], both["together"]
        steps.done(runs)
    return Atlas(
        model=_name(model),
        about=text.about,
        motifs=patterns["motifs"],
        random=random["scores"],
        pattern_consistency=patterns["pattern_consistency"],
        mean_distance=patterns["mean_distance"],
        entropy=patterns["entropy"],
        examples=patterns["examples"],
        copying=circuits.get("copying"),
        copying_score=circuits.get("copying_score"),
        composition={mode: circuits[f"composition {mode}"] for mode in "qkv" if f"composition {mode}" in circuits},
        composition_z={mode: circuits[f"z {mode}"] for mode in "qkv" if f"z {mode}" in circuits},
        ablations=ablations,
        together=together,
        missing=missing,
        distillation=distillation,
        skip_trigrams=skip_trigrams,
        scores=scores["scores"],
        lengths=text.lengths,
        own_sequences=isinstance(corpus, Tensor),
        threshold=threshold,
    )


def _name(model: Any) -> str:
    card = getattr(model, "card", None)
    return str(card.name) if card is not None else str(getattr(model.cfg, "model_name", None) or "a model")


def _missing(reader: HeadReader) -> dict[str, str]:
    if reader.is_bridge:
        return dict.fromkeys(("circuits", "ablations"), BRIDGE)
    missing: dict[str, str] = {"circuits": reader.no_circuits} if reader.no_circuits else {}
    if reader.model.cfg.read_out != "tokens":
        missing |= dict.fromkeys(("circuits", "ablations"), f"the model writes {reader.model.cfg.read_out}, not tokens")
    elif reader.model.sees_later_keys:
        missing["ablations"] = "the model sees later tokens, so that it has no loss on its own next ones"
    return missing


def _without_tokens(result: Ablation) -> Ablation:
    return Ablation(
        heads=result.heads, how=result.how, unit=result.unit, clean=result.clean, ablated=result.ablated,
        clean_loss_per_token=None, ablated_loss_per_token=None, clusters=result.clusters,
    )  # fmt: skip
