"""Distillations side by side: errors of all heads at one width, of one head in detail and along a text, and what
replacing heads costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.conventions import Head, HeadLike, as_head, require_choice, several
from aotlens.distill.heads import Distillation, token_errors
from aotlens.distill.records import Record
from aotlens.heads import MOTIFS, motifs_of
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedDistillations(Result):
    """Records by name at one width, and one of their heads in detail."""

    records: dict[str, Record]
    width: int
    """Hidden units of the FFNs; 0 is the linear map."""
    of: str
    """The name of the head's record."""
    head: Head
    across: str
    """The motif whose attention errors are compared with."""

    @property
    def found(self) -> Distillation:
        """The head's distillation."""
        return self.records[self.of].distillation

    @property
    def place(self) -> int:
        """The index of the head among those of `found`."""
        return self.found.place(self.head)

    @property
    def widths(self) -> list[int]:
        """The widths of all records."""
        return sorted({width for record in self.records.values() for width in record.distillation.hidden})

    @property
    def kinds(self) -> list[str]:
        """The targets that heads may attend to, in words, in the order of motifs; `mixed` at the end."""
        named = [motif.title for motif in motifs_of("tokens").values()]
        seen = {
            label.replace("_", " ")
            for record in self.records.values()
            for label in record.distillation.attending.attends
        }
        return [*named, *sorted(seen - {*named, "mixed"}), "mixed"]

    @property
    def headline(self) -> str:
        parts = []
        for name, record in self.records.items():
            distillation = record.distillation
            mean = f"{name} {distillation.mean_error(self.width).mean():.3f}"
            if len(distillation.heads) > 1:
                _, low, high = distillation.over_heads(self.width)
                mean = f"{mean} ({max(low, 0):.3f} to {high:.3f})"
            parts.append(mean)
        return f"mean error, {units(self.width)} (95% over heads): {'; '.join(parts)}"

    @property
    def answer(self) -> str:
        """Whether FFNs of this width do what the heads do, in sentences; and the narrowest FFNs of all records."""
        common = set.intersection(*(set(record.distillation.hidden) for record in self.records.values()))
        narrow = min((width for width in common if 0 < width < self.width), default=None)
        shares = {width: self._explained(width) for width in (self.width, narrow) if width is not None}
        wide = ", ".join(f"{share} of {name}" for share, name in zip(shares[self.width], self.records, strict=True))
        share = "from a token’s own vector this share of what a head writes beyond a constant"
        sentence = f"On average over heads, {_ffn(self.width)} explains {share}: {wide}"
        if narrow is not None:
            sentence += f"; {_ffn(narrow)} {', '.join(shares[narrow])}"
        return f"{sentence} (in brackets, of what the best predictor found explains)."

    def _explained(self, width: int) -> list[str]:
        distillations = [record.distillation for record in self.records.values()]
        shares = []
        for distillation in distillations:
            of_best = distillation.share_of_best(width)
            in_brackets = "none beats the constant" if np.isnan(of_best) else f"{of_best:.0%}"
            shares.append(f"{1 - distillation.mean_error(width).mean():.0%} ({in_brackets})")
        return shares

    def to_frame(self) -> pd.DataFrame:
        """Return one row per head of every record: result, layer, head, its error at the width with its interval (low,
        high), its baselines, what it attends to, attention to every motif, and what it costs to replace it alone."""
        return data_frame([row for name in self.records for row in self._rows(name)])

    def _rows(self, name: str) -> list[dict[str, Any]]:
        record = self.records[name]
        distillation, scores = record.distillation, record.distillation.attending.scores
        means, intervals = distillation.mean_error(self.width), distillation.interval(self.width)
        rows = []
        for place, (layer, head) in enumerate(distillation.heads):
            row: dict[str, Any] = {
                "result": name, "layer": layer, "head": head, "error": means[place], "low": intervals[place, 0],
                "high": intervals[place, 1],
                "linear": None if distillation.linear_error is None else distillation.linear_error[place],
                "position": distillation.position_error[place],
                "neighbours": None if distillation.neighbour_error is None else distillation.neighbour_error[place],
                "wide": None if distillation.wide_error is None else distillation.wide_error[place],
                "floor": distillation.floor[place], "attends": distillation.attending.attends[place].replace("_", " "),
                "pattern_consistency": distillation.attending.pattern_consistency[place],
            }  # fmt: skip
            row |= {motif: scores[motif][layer, head] for motif in scores.motifs}
            if record.costs is not None:
                row |= {f"cost_{kind}": record.costs.alone[place, k] for k, kind in enumerate(("ffn", "mean", "zero"))}
            rows.append(row)
        return rows

    def origin_frame(self) -> pd.DataFrame:
        """Return one row per record: its checkpoint, text, training and held-out tokens, seeds and command; and the
        mean error over its heads at the width, with the 95% interval (low, high; NaN for one head)."""
        rows = []
        for name, record in self.records.items():
            distillation, settings = record.distillation, record.distillation.settings
            n_layers, n_heads = distillation.attending.scores.values.shape[1:]
            _, low, high = distillation.over_heads(self.width) if len(distillation.heads) > 1 else [float("nan")] * 3
            rows.append(
                {"result": name, "checkpoint": record.checkpoint, "n_layers": n_layers, "n_heads": n_heads,
                 "distilled": len(distillation.heads), "error": float(distillation.mean_error(self.width).mean()),
                 "low": max(low, 0.0), "high": high, "corpus": record.corpus,
                 "train_tokens": distillation.train_tokens, "held_out_tokens": distillation.held_out_tokens,
                 "held_out_documents": len(distillation.held_out_documents), "seeds": settings.seeds,
                 "first_seed": settings.seed, "command": record.command}
            )  # fmt: skip
        return data_frame(rows)

    def width_frame(self) -> pd.DataFrame:
        """Return one row per head, width and seed of every record, with the head's baselines."""
        return self._joined({name: record.distillation.to_frame() for name, record in self.records.items()})

    def attention_frame(self) -> pd.DataFrame:
        """Return one row per head of every record: its error, the attention to the motif `across`, its pattern
        consistency."""
        frames = {}
        for name, record in self.records.items():
            distillation = record.distillation
            layers, heads = zip(*distillation.heads, strict=True)
            frames[name] = data_frame(
                {"layer": layers, "head": heads, "error": distillation.mean_error(self.width),
                 self.across: distillation.attending.to(self.across),
                 "pattern_consistency": distillation.attending.pattern_consistency}
            )  # fmt: skip
        return self._joined(frames)

    def cost_frame(self) -> pd.DataFrame:
        """Return one row per order, kind and number of heads replaced, of every record that has costs. Raises
        `ValueError` where none has."""
        costs = {name: record.costs for name, record in self.records.items() if record.costs is not None}
        if not costs:
            raise ValueError("Nothing was replaced in any of these results, so there are no costs.")
        frame = self._joined({name: cost.curve_frame() for name, cost in costs.items()})
        return frame.assign(width=frame["result"].map({name: cost.width for name, cost in costs.items()}))

    def class_frame(self) -> pd.DataFrame:
        """Return one row per kind of token: the head's error among them, and their share of tokens and of its squared
        error."""
        frame = self.found.class_frame()
        layer, head = self.head
        here = (frame["layer"] == layer) & (frame["head"] == head) & (frame["hidden"] == self.width)
        return frame[here].reset_index(drop=True)

    def curve_frame(self) -> pd.DataFrame:
        """Return one row per measurement on validation text while the head's FFNs trained: tokens, and the error of
        each seed.

        Raises `ValueError` for the linear map, which is not trained, and where no curves were kept.
        """
        if not self.width:
            raise ValueError("The linear map is a closed form: it has no learning curve. Choose FFNs.")
        if not len(self.found.curve_tokens):
            raise ValueError(f"{self.of} has kept no learning curves.")
        column = self.found.settings.trained.index(self.width)
        first = self.found.settings.seed
        seeds = {f"seed_{first + k}": self.found.curve[:, self.place, column, k] for k in range(self.found.n_seeds)}
        return data_frame({"tokens": np.asarray(self.found.curve_tokens), **seeds})

    @staticmethod
    def _joined(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        import pandas as pd

        return pd.concat([frame.assign(result=name) for name, frame in frames.items()], ignore_index=True)


def compare_distillations(
    records: Mapping[str, Record],
    width: int | None = None,
    head: HeadLike | None = None,
    *,
    of: str | None = None,
    across: str = "first_token",
) -> ComparedDistillations:
    """Put records side by side at one width (None: the widest that all have), and one head of the record `of` (None: of
    the first, its most FFN-like head).

    Raises `ValueError` for no records, for a width that one of them has not, a head that was not distilled, and a
    record or motif that is not there.
    """
    if not records:
        raise ValueError("compare_distillations: expected at least one record.")
    widths = set.intersection(*(set(record.distillation.hidden) for record in records.values()))
    if not widths or width not in {None, *widths}:
        known = ", ".join(map(str, sorted(widths))) or "none"
        raise ValueError(f"width={width}: expected hidden units that all results have, of which there are: {known}.")
    width = max(widths) if width is None else width
    of = next(iter(records)) if of is None else of
    distillation = records[require_choice("of", of, records)].distillation
    require_choice("across", across, MOTIFS)
    own = distillation.order(width)[0] if head is None else as_head(head)
    distillation.place(own)
    return ComparedDistillations(records=dict(records), width=width, of=of, head=own, across=across)


def _ffn(width: int) -> str:
    return "a linear map" if width == 0 else f"an FFN of {units(width)}"


def units(width: int) -> str:
    """Say how many hidden units there are: `16 hidden units`."""
    return several(width, "hidden unit") if width else "linear map"


@dataclass(frozen=True, kw_only=True, eq=False)
class TextErrors(Result):
    """The errors of one head's FFN at each token of a text, over the mean ‖y − ȳ‖² of a held-out token."""

    tokens: Int64[np.ndarray, " pos"]
    str_tokens: tuple[str, ...]
    """The tokens as text; empty for a model without a tokenizer."""
    relative: Float64[np.ndarray, " pos"]
    """0: the FFN does what the head does; 1: as far off as a constant is on average."""
    movement: Float64[np.ndarray, " pos"]
    """The distance of the head from its mean here: the error of a constant."""

    @property
    def headline(self) -> str:
        return f"error {self.error:.3f} on {len(self.relative)} tokens"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per token: position, token_id, token, error (`relative`), movement."""
        n = len(self.tokens)
        return data_frame(
            {"position": range(n), "token_id": self.tokens, "token": self.str_tokens or [""] * n,
             "error": self.relative, "movement": self.movement}
        )  # fmt: skip

    @property
    def error(self) -> float:
        """The error over the whole text, Σ‖y − ŷ‖² / Σ‖y − ȳ‖²."""
        total = float(self.movement.sum())
        return float(self.relative.sum()) / total if total > 0 else 0.0


def text_errors(
    model: Model, distillation: Distillation, tokens: TokenSequences, head: HeadLike, *, width: int | None = None
) -> TextErrors:
    """Compute the errors of one head's FFN (of `width`, its best seed) at every token of one text, or of ids `[pos]`.

    Raises `ValueError` for several texts, and for a head or width whose FFN is not there. Time: one pass of the model.
    """
    tokens = HeadReader.of(model).require_ids(tokens)
    error, scale = token_errors(model, distillation, tokens, head, width=width)
    if len(error) != 1:
        raise ValueError(f"text_errors: expected one text, got {len(error)}; token_errors takes several.")
    typical = float(distillation.baseline[distillation.place(head)].sum()) / max(
        int(distillation.class_counts.sum()), 1
    )
    typical = typical if typical > 0 else 1.0
    ids = tokens[0].tolist()
    names = getattr(model.tokenizer, "str_tokens", lambda ids: ())(ids)
    return TextErrors(
        tokens=np.array(ids, dtype=np.int64), str_tokens=tuple(names), relative=error[0].double().numpy() / typical,
        movement=scale[0].double().numpy() / typical,
    )  # fmt: skip
