"""The finding that the start page shows: the induction circuit of the first checkpoint, at work on one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aotlens.checkpoints import CheckpointError
from aotlens.plots import glyphs
from app.core import Core
from app.core.errors import RequestError

if TYPE_CHECKING:
    from aotlens.conventions import Head
    from aotlens.heads import Atlas

#: A name comes twice, and the second time it is not finished.
TEXT = "The captain bowed, and Mrs. Pendlebury laughed. Then Mrs. Pend"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A map of `[row, column]` with the tokens along both sides, and the sentence that it bears out."""

    title: str
    sentence: str
    values: np.ndarray
    tokens: tuple[str, ...]
    marked: tuple[int, int]
    """The entry that the sentence speaks of: row and column."""
    link: str
    """The address of the page where it can be looked into."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding of what a model does on `TEXT`, in a sentence and three maps."""

    checkpoint: str
    sentence: str
    pictures: tuple[Picture, Picture, Picture]


class Findings:
    """The finding of the checkpoint that the app opens on, made once."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._kept: dict[str, Finding | None] = {}

    def finding(self) -> Finding | None:
        """Return the finding; None where the checkpoint has no stored atlas, or no induction circuit is in it."""
        checkpoint = self.core.catalog.default()
        if checkpoint is None:
            return None
        if checkpoint not in self._kept:
            try:
                self._kept[checkpoint] = self._find(checkpoint)
            except (RequestError, CheckpointError, ValueError):
                self._kept[checkpoint] = None
        return self._kept[checkpoint]

    def _find(self, checkpoint: str) -> Finding:
        import torch

        from aotlens.circuits import above_row_level, ov_circuit
        from aotlens.heads import induction_pairs
        from aotlens.heads.induction import strongest_repeat
        from aotlens.results import find_stored

        record = find_stored("atlas", self.core.catalog.info(checkpoint))
        if record is None:
            raise ValueError("no atlas of these weights is stored")
        head, earlier = _clearest(record.atlas, induction_pairs(record.atlas))
        whole = self.core.inference.analyse(checkpoint, TEXT)
        patterns, links = whole.patterns, self.core.links
        query, key, attention = strongest_repeat(patterns, head)
        if query != patterns.n_pos - 1:
            raise ValueError("the head does not attend from the unfinished name")
        without, without_earlier = (
            self.core.inference.analyse(checkpoint, TEXT, off=(each,)) for each in (head, earlier)
        )
        tokens = tuple(glyphs(token) for token in patterns.str_tokens)
        circuit = ov_circuit(self.core.catalog.load(checkpoint).model, head)
        ids = [int(token) for token in patterns.tokens]
        first = [place for place, token in enumerate(ids) if ids.index(token) == place]
        words = [place for place in first if tokens[place].strip("·").isalpha()]
        rows = torch.tensor([ids[place] for place in words])
        entries = circuit[rows, rows].AB.double().flatten()
        written = above_row_level(circuit, rows.repeat_interleave(len(rows)), entries).reshape(len(rows), -1).numpy()
        copied = words.index(key)
        name, before = f"{head[0]}.{head[1]}", f"{earlier[0]}.{earlier[1]}"
        asked, copy, prior = (f"“{tokens[place]}”" for place in (query, key, key - 1))
        moved, raised = float(patterns.pattern[(*earlier, key, key - 1)]), float(written[copied, copied])
        runs = (whole, without, without_earlier)
        likely, unlikely, unmoved = (float(run.logits[-1].softmax(-1)[ids[key]]) for run in runs)
        previous_token = Picture(
            title=f"{before} moves each token into the next one’s key",
            sentence=f"At {copy} head {before} gives {moved:.2f} of its attention to the token before, {prior}: a "
            "previous-token head.",
            values=patterns.pattern[earlier],
            tokens=tokens,
            marked=(key, key - 1),
            link=links.to("heads", text=TEXT, head=earlier, position=key),
        )
        induction = Picture(
            title=f"{name} finds what followed the first {asked}",
            sentence=f"From the second {asked} head {name} gives {attention:.2f} of its attention to {copy}: an "
            "induction head.",
            values=patterns.pattern[head],
            tokens=tokens,
            marked=(query, key),
            link=links.to("heads", text=TEXT, head=head, position=query),
        )
        copying = Picture(
            title=f"{name} promotes the token that it attends to",
            sentence=f"Attended to through {name}, {copy} raises its own logit by {raised:.1f} above the mean over the "
            "vocabulary: the diagonal of the OV circuit, here between the words of the sentence.",
            values=written,
            tokens=tuple(tokens[place] for place in words),
            marked=(copied, copied),
            link=links.to("circuits", head=head, kind="ov"),
        )
        return Finding(
            checkpoint=checkpoint,
            sentence=f"At the last token, {asked}, {checkpoint} gives {copy} a probability of {likely:.0%}; with head "
            f"{name} ablated, {unlikely:.1%}; with {before} ablated, {unmoved:.1%}. How the two work together:",
            pictures=(previous_token, induction, copying),
        )


def _clearest(atlas: Atlas, pairs: tuple[tuple[Head, Head, float], ...]) -> tuple[Head, Head]:
    """The pair whose induction head has the highest score on random tokens."""
    head, earlier, _ = max(pairs, key=lambda pair: float(atlas.random["induction"][pair[0]]))
    return head, earlier
