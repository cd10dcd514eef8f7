"""The behaviour of a head where a table says it acts: attention, direct effect, the change when it is ablated;
examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.circuits import ov_circuit
from aotlens.conventions import Head
from aotlens.models import AttentionOnlyTransformer, hook_names, widened
from aotlens.models.phi import apply_phi
from aotlens.models.traits import require_without
from aotlens.results import Result
from aotlens.trigrams.counting import Occurrences


class Measured(NamedTuple):
    """One number an occurrence."""

    attention: Float64[np.ndarray, " n"]
    """The attention from the destination to all copies of the source before it, 0 to 1."""
    direct_effect: Float64[np.ndarray, " n"]
    """The contribution of this attention to the out's logit, above the mean over outs, logits."""
    change: Float64[np.ndarray, " n"]
    """The out's log-probability without the head minus with it, nats."""
    last_source: Int64[np.ndarray, " n"]
    """The position of the source's last copy before the destination."""


class HeadInText:
    """Runs a model twice on a batch, once without the head, and reads its attention and values."""

    def __init__(self, model: AttentionOnlyTransformer, head: Head, outs: np.ndarray) -> None:
        self.model = model
        self.layer, self.head = head
        writes = ov_circuit(model, head).B
        self._distinct, self._column = np.unique(outs, return_inverse=True)
        centred = writes - writes.mean(1, keepdim=True)
        self._writes = centred[:, torch.from_numpy(self._distinct).to(centred.device)]  # [d_head, distinct outs]
        self._bias = ov_circuit(model, head, "bias").A  # [1, d_head]

    @torch.no_grad()
    def measure(
        self, tokens: Int64[np.ndarray, "windows pos"], source: Int64[np.ndarray, " rows"], occurrences: Occurrences
    ) -> Measured:
        """Run two forward passes of the windows with an occurrence; steps: pairs of a destination and a copy of its
        source."""
        model = self.model
        held, among = np.unique(occurrences.window, return_inverse=True)
        tokens, occurrences = tokens[held], occurrences._replace(window=among)
        ids = torch.from_numpy(tokens).to(model.device)
        places, index = np.unique(among * tokens.shape[1] + occurrences.position, return_inverse=True)
        at_destinations = torch.zeros(ids.shape, dtype=torch.bool)
        at_destinations.view(-1)[torch.from_numpy(places)] = True
        place = torch.from_numpy(index).to(ids.device)
        activations: dict[str, Tensor] = {}
        rotates = model.cfg.position_kind.rotates
        require_without(model.cfg, "evidence", () if rotates else ("qk_norm",))  # no hook has them behind their norm
        parts = (hook_names.ROT_Q, hook_names.ROT_K) if rotates else (hook_names.Q, hook_names.K)
        names = [hook_names.attn(self.layer, part) for part in (*parts, hook_names.V)]
        if model.cfg.norm:
            names.append(hook_names.FINAL_SCALE)

        def keep(value: Tensor, hook: Any) -> None:
            activations[hook.name] = widened(value if hook.name == hook_names.FINAL_SCALE else value[:, :, self.head])

        outs = torch.from_numpy(self._distinct[self._column[occurrences.row]]).to(ids.device)

        def log_probability(hooks: list[tuple[str | Callable[..., Any], Callable[..., Any]]]) -> Tensor:
            logits = widened(model.run_with_hooks(ids, fwd_hooks=hooks, logits_at=at_destinations))
            normaliser = logits.logsumexp(-1)
            return (logits[place, outs] - normaliser[place]).cpu().double()

        clean = log_probability([(name, keep) for name in names])
        without = log_probability([(hook_names.attn(self.layer, hook_names.Z), self._ablated)])
        pattern = self._pattern(activations[names[0]], activations[names[1]])
        writes = (activations[names[2]] - self._bias) @ self._writes  # [windows, pos, distinct outs]
        scale = activations[hook_names.FINAL_SCALE][..., 0].cpu().double().numpy() if model.cfg.norm else None
        attention, effect, last = self._from_sources(
            tokens, source, occurrences, pattern.cpu().numpy(), writes.cpu().numpy()
        )
        if scale is not None:
            effect = effect / scale[occurrences.window, occurrences.position]
        return Measured(attention, effect, (without - clean).numpy(), last)

    def _pattern(self, q: Tensor, k: Tensor) -> Float[Tensor, "windows query key"]:
        """The head's pattern alone: the model itself need not leave its fast path for it."""
        cfg = self.model.cfg
        scores = (q * cfg.score_scale) @ k.transpose(1, 2)
        bias = self.model.order(q.shape[1], self.layer).bias
        if bias is not None:
            scores = scores + bias[:, self.head].to(scores)
        visible = self.model.visible_keys(q.shape[1], None, q.device, self.layer)
        if visible is not None:
            visible = visible[:, self.head if visible.shape[1] > 1 else 0]
            scores = scores.masked_fill(~visible, -torch.inf)
        return apply_phi(cfg, scores, visible)

    def _ablated(self, z: Tensor, hook: object) -> Tensor:
        z = z.clone()
        z[:, :, self.head] = 0.0
        return z

    def _from_sources(
        self,
        tokens: np.ndarray,
        source: np.ndarray,
        occurrences: Occurrences,
        pattern: np.ndarray,
        writes: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sum over the copies of the source before each destination."""
        n_windows, n_pos = tokens.shape
        d_vocab = self.model.cfg.d_vocab or 0
        # Sorted by window, token, position: the copies of a token before position i are one stretch.
        places = np.sort(((np.arange(n_windows)[:, None] * d_vocab + tokens) * n_pos + np.arange(n_pos)[None]).ravel())
        base = (occurrences.window * d_vocab + source[occurrences.row]) * n_pos
        first, end = np.searchsorted(places, base), np.searchsorted(places, base + occurrences.position)
        copies = end - first
        occurrence = np.repeat(np.arange(len(copies)), copies)
        key = (
            places[first[occurrence] + np.arange(len(occurrence)) - np.repeat(np.cumsum(copies) - copies, copies)]
            % n_pos
        )
        share = pattern[occurrences.window[occurrence], occurrences.position[occurrence], key].astype(np.float64)
        written = writes[occurrences.window[occurrence], key, self._column[occurrences.row[occurrence]]]
        n = len(copies)
        attention = np.bincount(occurrence, share, minlength=n)
        effect = np.bincount(occurrence, share * written, minlength=n)
        return attention, effect, places[end - 1] % n_pos


@dataclass(frozen=True, kw_only=True, eq=False)
class Example(Result):
    """One occurrence: the window's tokens up to the one that came next."""

    row: int
    """The row of the table, from 0."""
    tokens: Int64[np.ndarray, " pos"]
    """The tokens from the start token; the destination is the last but one."""
    source_position: int
    """The source's last copy."""
    destination_position: int
    follows: bool
    """Whether the last token is the row's out."""
    attention: float | int
    """The head's, from the destination to all copies of the source."""


class ExampleKeeper:
    """Keeps the first `limit` occurrences of every row that the out follows, and as many that it does not."""

    def __init__(self, n_rows: int, limit: int) -> None:
        self._limit = limit
        self._kept: dict[bool, list[list[Example]]] = {
            follows: [[] for _ in range(n_rows)] for follows in (True, False)
        }
        self._counts = {follows: np.zeros(n_rows, dtype=np.int64) for follows in (True, False)}

    def add(self, tokens: np.ndarray, occurrences: Occurrences, measured: Measured) -> None:
        for follows in (True, False):
            counts = self._counts[follows]
            wanted = np.flatnonzero((occurrences.follows == follows) & (counts[occurrences.row] < self._limit))
            wanted = wanted[np.argsort(occurrences.row[wanted], kind="stable")]
            row = occurrences.row[wanted]
            nth = np.arange(len(row)) - np.searchsorted(row, row)  # of its row, in this batch
            for i in wanted[nth < (self._limit - counts[row])]:
                window, position = int(occurrences.window[i]), int(occurrences.position[i])
                self._kept[follows][occurrences.row[i]].append(
                    Example(
                        row=int(occurrences.row[i]),
                        tokens=tokens[window, : position + 2].copy(),
                        source_position=int(measured.last_source[i]),
                        destination_position=position,
                        follows=follows,
                        attention=float(measured.attention[i]),
                    )
                )
                counts[occurrences.row[i]] += 1

    def examples(self) -> tuple[Example, ...]:
        """Return the examples by row; at most `limit` each, those that the out follows first."""
        rows = zip(self._kept[True], self._kept[False], strict=True)
        return tuple(example for true, false in rows for example in [*true, *false][: self._limit])
