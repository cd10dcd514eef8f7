"""The ablation of heads: the change of a model's loss on its next tokens or on labels, or of any measure of its logits,
without some heads together (`ablate`) and without each head alone (`ablate_each`).

A head writes z W_O with z = pattern · v. What replaces its z or its pattern:

    "zero"            z = 0: the head writes nothing
    "mean"            z's mean over all positions: the head writes a constant
    "position_mean"   z's mean at each position: what the head does whatever the sequence is
    "uniform"         each query's attention spread uniformly over the keys that it sees, values as computed
    "fixed_pattern"   the pattern's mean, values as computed: what the head does if its queries and keys have no say
    "resample"        the z that the head has on another sequence

Means and other sequences are those of `reference`. Without it they come from the sequences themselves, each left out
of its own mean, (n·mean − own)/(n − 1): a mean that the sequence is part of leaks. b_O stays. With heads in several
layers, later means are those of the clean run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, Progress, all_heads, as_heads
from aotlens.heads.inputs import Batch
from aotlens.heads.replacement import Replacement
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result
from aotlens.statistics import as_clusters, interval_text, mean_interval, ratio_intervals

if TYPE_CHECKING:
    import pandas as pd


#: Logits of a batch and its targets (None where there are none) → a number for each sequence.
Measure: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A `Measure` that declares its unit and which way is better, so that results can say which head is missed."""

    measure: Measure
    unit: str
    higher_is_better: bool

    def __call__(self, logits: Tensor, targets: Tensor | None) -> Tensor:
        return self.measure(logits, targets)


@dataclass(frozen=True, kw_only=True, eq=False)
class Ablation(Result):
    """A number for each sequence, with and without `heads`."""

    heads: tuple[Head, ...]
    """Every ablated head, all of them at once."""
    how: str
    unit: str
    """The unit of the numbers: `"nats"` (the loss), `"squared error"` (of a model of vectors), or the metric's."""
    clean: Float64[np.ndarray, " sequence"]
    """The measure of the full model. A loss is the mean over the sequence's targets that count."""
    ablated: Float64[np.ndarray, " sequence"]
    """The measure of the model without the heads."""
    clean_loss_per_token: Float[Tensor, "sequence ..."] | None
    """The loss of each target, a row a sequence, 0 where ignored or padding; None with a metric."""
    ablated_loss_per_token: Float[Tensor, "sequence ..."] | None
    clusters: Int64[np.ndarray, " sequence"] | None = None
    """The document of each sequence, or another cluster, numbered from 0; None where sequences are independent."""

    @property
    def clean_mean(self) -> float:
        """The mean of `clean`; every sequence counts once, however many targets it has."""
        return float(self.clean.mean())

    @property
    def ablated_mean(self) -> float:
        """The mean over sequences of what was measured without the heads."""
        return float(self.ablated.mean())

    @property
    def changes(self) -> Float64[np.ndarray, " sequence"]:
        """The change of each sequence's number by the ablation."""
        return self.ablated - self.clean

    @property
    def change(self) -> float:
        """The mean change by the ablation (of a loss, negative where the model does better without)."""
        return float(self.changes.mean())

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return (low, high) of `change`: of the paired differences, over clusters where they are known, else over
        sequences, which are then taken as independent; windows of one document are not
        (`aotlens.statistics.ratio_intervals`). NaN for one sequence, and for fewer than 3 clusters."""
        return mean_interval(self.changes, self.clusters, confidence=confidence)

    @property
    def headline(self) -> str:
        interval = interval_text(self.interval(), "+.4f")
        what = "the loss" if self.clean_loss_per_token is not None else "it"
        return f"{what} changes by {self.change:+.4f}{interval} {self.unit}, from {self.clean_mean:.3f}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a sequence: sequence, clean, ablated, change, and its cluster where that is known."""
        import pandas as pd

        columns = {"clean": self.clean, "ablated": self.ablated, "change": self.changes}
        columns |= {} if self.clusters is None else {"cluster": self.clusters}
        return pd.DataFrame({"sequence": range(len(self.clean)), **columns})


@torch.no_grad()
def ablate(
    model: AttentionOnlyTransformer,
    inputs: Tensor | str | list[str],
    heads: HeadLike | Iterable[HeadLike],
    how: str = "zero",
    *,
    targets: Tensor | None = None,
    metric: Metric | Measure | None = None,
    unit: str | None = None,
    attention_mask: Tensor | None = None,
    reference: Tensor | str | list[str] | None = None,
    clusters: Iterable[Hashable] | None = None,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> Ablation:
    """Run `model` with and without `heads` (one, (1, 0) or "1.0", or several at once) and compare them by sequence.

    `inputs` is what the model reads: a text or texts, ids `[pos]` or `[sequence, pos]`, vectors, images; texts of
    different lengths are padded, which `attention_mask` says of ids. A padded sequence's numbers are those that it has
    alone, and a metric sees it by itself, without its padding. `how` and `reference` (sequences of one length) are
    explained at the head of this module; `seed` chooses whose z a sequence gets by `"resample"`. `clusters` names the
    document of each sequence, so that the interval is over documents.

    Measured is the loss, as the model's own forward has it: of the next token, or of `targets`, labels in place of the
    next tokens: ids `[sequence, pos]` (−100 is ignored), classes `[sequence]`, or vectors. (They are not the `target`
    of `aotlens.paths`, one output whose logit is taken apart.) `metric(logits, targets)` measures another thing, a
    number for each sequence, in `unit` (by default its own, or the function's name), such as a difference of two
    logits:

        margin = Metric(measure=lambda logits, _: logits[:, -1, right] - logits[:, -1, wrong], unit="logits",
                        higher_is_better=True)
        ablate(model, tokens, "1.0", metric=margin)

    Cost: two forward passes, three where each sequence is left out of a mean, four with `"resample"` (less what the
    reference saves); memory: the logits and, of the heads' layers, z or patterns of `batch_size` sequences.

    Raises `ValueError` for a head that the model does not have, another `how`, a mean or another sequence of a single
    one, sequences of which no target counts, a metric of another shape, and where positions are compared for padding in
    the reference, or in a model that sees later tokens.
    """
    require_ours(model, "ablate")
    batch = Batch.of(model, inputs, attention_mask, targets)
    pairs, groups = as_heads(heads, model.cfg), as_clusters(clusters, len(batch))
    replacement = Replacement(model, pairs, how, batch, reference, seed=seed, batch_size=batch_size)
    numbers: list[list[np.ndarray]] = [[], []]
    losses: list[list[Tensor]] = [[], []]
    for rows, part in replacement.parts(progress):
        for run, logits in enumerate(replacement.run(part, rows)):
            per_sequence, per_token = measured(model, logits, part, rows.start, metric)
            numbers[run].append(per_sequence)
            losses[run] += [] if per_token is None else [per_token]
    clean, ablated = (np.concatenate(parts) for parts in numbers)
    clean_losses, ablated_losses = (torch.cat(parts) if parts else None for parts in losses)
    return Ablation(
        heads=pairs,
        how=how,
        unit=unit or unit_of(model, metric),
        clean=clean,
        ablated=ablated,
        clean_loss_per_token=clean_losses,
        ablated_loss_per_token=ablated_losses,
        clusters=groups,
    )


def unit_of(model: AttentionOnlyTransformer, metric: Metric | Measure | None) -> str:
    """Return the unit of the loss, or of a metric."""
    if metric is not None:
        return metric.unit if isinstance(metric, Metric) else getattr(metric, "__name__", "metric")
    return "squared error" if model.cfg.read_out == "vectors" else "nats"


def measured(
    model: AttentionOnlyTransformer, logits: Tensor, part: Batch, first: int, metric: Metric | Measure | None
) -> tuple[Float64[np.ndarray, " sequence"], Tensor | None]:
    """Return the loss, or the metric, of each sequence of `part`, whose first one has the number `first`; and the loss
    of each token, None with a metric. Raises `ValueError` as `ablate`."""
    return _losses(model, logits, part, first) if metric is None else (_by_metric(metric, logits, part), None)


def _losses(
    model: AttentionOnlyTransformer, logits: Tensor, part: Batch, first: int
) -> tuple[Float64[np.ndarray, " sequence"], Tensor]:
    """The model's own loss of each sequence, and unreduced."""

    def loss(rows: slice, per_token: bool) -> Tensor:
        own = part[rows]
        return model._loss(logits[rows], own.x, own.targets, own.attention_mask, per_token)

    if part.targets is None and part.attention_mask is None:  # every next token counts
        per_token = loss(slice(None), True)
        return per_token.mean(1).detach().cpu().double().numpy(), per_token
    means = []
    for row in range(len(part)):
        try:
            means.append(float(loss(slice(row, row + 1), False)))
        except ValueError as error:
            raise ValueError(f"sequence {first + row}: {error}") from None
    return np.array(means), loss(slice(None), True)


def _by_metric(metric: Metric | Measure, logits: Tensor, part: Batch) -> Float64[np.ndarray, " sequence"]:
    """The metric's number of each sequence; of padded ones, of each by itself and without its padding."""
    mask = part.attention_mask
    if mask is not None and part.is_padded and logits.shape[:2] == mask.shape:
        by_position = part.targets is not None and part.targets.shape[:2] == mask.shape
        rows = []
        for row, real in enumerate(mask):
            targets = None if part.targets is None else part.targets[row : row + 1]
            alone = Batch(
                x=part.x[row : row + 1], targets=targets[:, real] if targets is not None and by_position else targets
            )
            rows.append(_by_metric(metric, logits[row : row + 1, real], alone))
        return np.concatenate(rows)
    values: Any = metric(logits, part.targets)
    numbers = torch.as_tensor(values).detach().cpu().double().numpy()
    if numbers.shape != (len(part),) or not np.isfinite(numbers).all():
        raise ValueError(
            f"metric: expected {len(part)} finite numbers, one for each sequence, got "
            + (f"shape {list(numbers.shape)}." if numbers.shape != (len(part),) else "others among them.")
        )
    return numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class EachHead(Result):
    """A number for each sequence, with all heads and without each one alone."""

    heads: tuple[Head, ...]
    how: str
    """The replacement of a head's output (`aotlens.heads.ablation`)."""
    unit: str
    clean: Float64[np.ndarray, " sequence"]
    ablated: Float64[np.ndarray, "head sequence"]
    clusters: Int64[np.ndarray, " sequence"] | None = None
    """The clusters as in `Ablation`."""
    higher_is_better: bool | None = False
    """Whether the model does better the higher the numbers are; None for a measure that does not declare it
    (`aotlens.heads.ablation.Metric`)."""

    @property
    def changes(self) -> Float64[np.ndarray, " head"]:
        """The mean change by leaving out each head, every sequence counting once."""
        return (self.ablated - self.clean).mean(1)

    def intervals(self, confidence: float = 0.95) -> Float64[np.ndarray, "head 2"]:
        """Return the intervals of `changes`, as `Ablation.interval`."""
        differences = self.ablated - self.clean
        return ratio_intervals(differences, np.ones(differences.shape[1]), self.clusters, confidence=confidence)

    @property
    def harm(self) -> Float64[np.ndarray, " head"]:
        """`changes` signed so that the head that is missed most has the largest; their size, where no direction is
        declared."""
        return np.abs(self.changes) if self.higher_is_better is None else self.changes * (1 - 2 * self.higher_is_better)

    @property
    def headline(self) -> str:
        top = int(self.harm.argmax())
        layer, head = self.heads[top]
        what = "changes it most" if self.higher_is_better is None else "is missed most"
        return f"{self.how}: head {layer}.{head} {what} ({self.changes[top]:+.4f} {self.unit})"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head: layer, head, change, low, high."""
        import pandas as pd

        low, high = self.intervals().T
        layers, heads = np.array(self.heads).T
        return pd.DataFrame({"layer": layers, "head": heads, "change": self.changes, "low": low, "high": high})


@torch.no_grad()
def ablate_each(
    model: AttentionOnlyTransformer,
    inputs: Tensor | str | list[str],
    how: str = "zero",
    *,
    heads: HeadLike | Iterable[HeadLike] | None = None,
    targets: Tensor | None = None,
    metric: Metric | Measure | None = None,
    attention_mask: Tensor | None = None,
    reference: Tensor | str | list[str] | None = None,
    clusters: Iterable[Hashable] | None = None,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> EachHead:
    """Measure what `ablate` does for each of `heads` (None: all) alone, without computing earlier layers again.

    Arguments are those of `ablate`. Time: the clean passes of one `ablate`, and for each head a pass through the layers
    from its own on, from the stream that the clean pass left there. Memory: the stream before every layer, and the
    replacement of every head, of `batch_size` sequences. `progress(done, total)` counts runs of a head on a batch.
    Raises `ValueError` as `ablate`.
    """
    require_ours(model, "ablate_each")
    batch = Batch.of(model, inputs, attention_mask, targets)
    groups = as_clusters(clusters, len(batch))
    pairs = all_heads(model.cfg) if heads is None else tuple(sorted(as_heads(heads, model.cfg)))
    replacement = Replacement(model, pairs, how, batch, reference, seed=seed, batch_size=batch_size)
    clean: list[np.ndarray] = []
    ablated: list[list[np.ndarray]] = [[] for _ in pairs]
    done, total = 0, len(pairs) * -(-len(batch) // batch_size)
    for rows, part in replacement.parts():
        logits, stand_ins, streams = replacement.clean(part, rows, streams=True)
        clean.append(measured(model, logits, part, rows.start, metric)[0])
        for place, head in enumerate(pairs):
            logits = replacement.replaced(part, stand_ins, (head,), start=(head[0], streams[head[0]]))
            ablated[place].append(measured(model, logits, part, rows.start, metric)[0])
            done += 1
            if progress is not None:
                progress(done, total)
    return EachHead(
        heads=pairs,
        how=how,
        unit=unit_of(model, metric),
        clean=np.concatenate(clean),
        ablated=np.stack([np.concatenate(parts) for parts in ablated]),
        clusters=groups,
        higher_is_better=False if metric is None else getattr(metric, "higher_is_better", None),
    )
