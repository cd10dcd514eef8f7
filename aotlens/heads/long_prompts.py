"""The attention patterns of all heads on a long prompt, computed on demand, not stored.

All patterns of 12 layers × 4 heads on 4,096 tokens take 3.2 GB. Kept are the queries, the keys and the
lengths of the values of each head, `[pos, d_head]`, `[pos, d_head]` and `[pos]`; rows of a pattern are φ(scores) of
some queries with all keys, and a picture of a pattern is the largest entry in each block of entries.

    patterns = long_patterns(model, text)
    patterns.rows((1, 0), 100, 164)            # head 1.0, queries 100 to 163: [query, key], NaN where hidden
    patterns.maxima(16)                        # every head, the largest entry of each 16 × 16 block
    patterns.maxima(4, head=(1, 0), queries=(2048, 4096), keys=(0, 2048))      # a tile of one head

Time of all heads' maxima: 2 × layers × heads × pos² × d_head operations, and twice that where queries see all keys.
Memory beside what is kept: some 100 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Shaped
from torch import Tensor

from aotlens.conventions import HeadLike, Progress, all_heads, as_head, head_name, require_choice, require_whole
from aotlens.heads.patterns import QUANTITIES, input_names
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names, require_ours
from aotlens.models.attention import scores_of
from aotlens.models.phi import apply_phi
from aotlens.models.positions import PositionTerms, alibi_bias

#: Bytes of the rows of one head that are computed at a time.
_BAND_BYTES = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockMaxima:
    """The entry of the largest magnitude in each block of `block` × `block` entries, with its sign.

    Key 0 has a column of its own, since attention to position 0 often drowns the rest: column 0 of `rest` is of keys 1
    to `block` − 1 only. 0 stands where a block has no entry that is visible.
    """

    block: int
    first: Float32[np.ndarray, "*head first_row"]
    """The largest entries of key 0, over the queries of each block; none where the keys do not begin at 0."""
    rest: Float32[np.ndarray, "*head row column"]
    """The largest entries of all other keys, by block."""
    signed: bool
    """Whether an entry is negative, be it the largest of its block or not."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LongPatterns:
    """Queries, keys and value norms of every head on one prompt, and the rows of the patterns that they make."""

    cfg: ModelConfig
    tokens: Int[np.ndarray, " token"]
    str_tokens: tuple[str, ...]
    queries: tuple[Float[Tensor, "head pos d_head"], ...]
    """The queries of each layer, normalised and rotated as scores read them, on the model's device; none with a fixed
    pattern."""
    keys: tuple[Float[Tensor, "head pos d_head"], ...]
    value_norms: Float32[np.ndarray, "layer head key"]
    """‖v‖ at each key."""
    fixed: tuple[Float[Tensor, "head n_ctx n_ctx"], ...] = ()
    """The pattern of each layer where it is a tensor of the model, as the model has it."""

    @property
    def headline(self) -> str:
        """Say how many heads and tokens there are."""
        return f"{self.n_layers} layers × {self.n_heads} heads on {self.n_pos} tokens"

    @property
    def n_layers(self) -> int:
        """Return the number of layers."""
        return self.cfg.n_layers

    @property
    def n_heads(self) -> int:
        """Return the number of heads of a layer."""
        return self.cfg.n_heads

    @property
    def n_pos(self) -> int:
        """Return the number of tokens."""
        return self.value_norms.shape[-1]

    @property
    def window(self) -> int | None:
        """Return how many keys a query sees in the layer where it sees most; None for all keys, or all earlier ones."""
        windows = [self.cfg.window(layer) for layer in range(self.n_layers)]
        return None if None in windows else max(window for window in windows if window is not None)

    def rows(
        self, head: HeadLike, first: int, last: int, quantity: str = "attention"
    ) -> Float32[np.ndarray, "query key"]:
        """Return the rows of queries `first` to `last` − 1 of a head's `quantity`, NaN where a query sees no key.

        `quantity` is `"attention"`, `"weighted"` (attention · ‖v‖) or `"scores"` (nats). Raises `ValueError` for a head
        or queries that do not exist, and for the scores of a fixed pattern.
        """
        layer, number = as_head(head, self)
        _check_range("queries", first, last, self.n_pos)
        with torch.inference_mode():
            values, visible = self._band(layer, number, first, last, quantity)
            if visible is not None:
                values = values.masked_fill(~visible, float("nan"))
            filled = torch.full((last - first, self.n_pos), float("nan"))
            filled[:, : values.shape[1]] = values.cpu()
        return filled.numpy()

    def column(self, head: HeadLike, key: int, quantity: str = "attention") -> Float32[np.ndarray, " query"]:
        """Return a key's column of a head's `quantity`, NaN where the query does not see it; as `rows`."""
        layer, number = as_head(head, self)
        _check_range("key", key, key + 1, self.n_pos)
        column = torch.full((self.n_pos,), float("nan"))
        with torch.inference_mode():
            for first, last in self._bands(1):
                if self.cfg.causal and last <= key:
                    continue
                values, visible = self._band(layer, number, first, last, quantity)
                part = values[:, key]
                column[first:last] = part if visible is None else part.masked_fill(~visible[:, key], float("nan"))
        return column.numpy()

    def maxima(
        self,
        block: int,
        quantity: str = "attention",
        *,
        head: HeadLike | None = None,
        queries: tuple[int, int] | None = None,
        keys: tuple[int, int] | None = None,
        progress: Progress | None = None,
    ) -> BlockMaxima:
        """Return the largest entry in each block of every head `[layer, head, …]`, or of one `head`.

        `queries` and `keys`, (first, last + 1), are those of a tile; they begin at multiples of `block`. Raises
        `ValueError` as `rows`, for a block below 1, and for entries that are not finite.
        """
        n_pos = self.n_pos
        require_whole("block", block, 1)
        (first_query, last_query), (first_key, last_key) = queries or (0, n_pos), keys or (0, n_pos)
        for name, first, last in (("queries", first_query, last_query), ("keys", first_key, last_key)):
            _check_range(name, first, last, n_pos)
            if first % block:
                raise ValueError(f"maxima: expected {name} from a multiple of {block} on, got {first}.")
        n_rows, n_columns = -(-(last_query - first_query) // block), -(-(last_key - first_key) // block)
        wanted = all_heads(self) if head is None else [as_head(head, self)]
        first_column = np.zeros((len(wanted), n_rows if first_key == 0 else 0), np.float32)
        rest, signed = np.zeros((len(wanted), n_rows, n_columns), np.float32), False
        with torch.inference_mode():
            for place, (layer, number) in enumerate(wanted):
                for first, last in self._bands(block, first_query, last_query):
                    values, visible = self._band(layer, number, first, last, quantity)
                    values = values[:, first_key:last_key]
                    if not values.shape[1]:
                        continue  # only keys that come later than these queries
                    if visible is not None:
                        values = values.masked_fill(~visible[:, first_key:last_key], 0)
                    rows = slice((first - first_query) // block, -(-(last - first_query) // block))
                    signed |= bool((values < 0).any())
                    if first_key == 0:
                        first_column[place, rows] = _largest(values[:, :1], block)[:, 0]
                        values[:, 0] = 0
                    largest = _largest(values, block)
                    rest[place, rows, : largest.shape[1]] = largest
                if not (np.isfinite(rest[place]).all() and np.isfinite(first_column[place]).all()):
                    raise ValueError(
                        f"The {quantity} of head {head_name((layer, number))} is not finite on this prompt: some "
                        "weight or activation is NaN or too large. There are no maps of it."
                    )
                if progress is not None:
                    progress(place + 1, len(wanted))
        shape = (self.n_layers, self.n_heads) if head is None else ()
        return BlockMaxima(
            block=block, first=first_column.reshape(*shape, -1), rest=rest.reshape(*shape, n_rows, n_columns),
            signed=signed,
        )  # fmt: skip

    def _bands(self, block: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield the queries (first, last + 1) that are computed at a time: whole blocks."""
        last = self.n_pos if last is None else last
        most = max(1, _BAND_BYTES // (4 * self.n_pos) // block) * block
        for start in range(first, last, most):
            yield start, min(start + most, last)

    def _band(
        self, layer: int, head: int, first: int, last: int, quantity: str
    ) -> tuple[Float[Tensor, "query key"], Tensor | None]:
        """Return the rows of some queries, float32, without the keys after the last of them where the model is causal,
        and which of these keys they see (None: all)."""
        require_choice("quantity", quantity, QUANTITIES)
        end = last if self.cfg.causal else self.n_pos
        device = self.fixed[layer].device if self.fixed else self.keys[layer].device
        visible = self._visible(layer, first, last, end, device)
        if self.fixed:
            if quantity == "scores":
                raise ValueError("A fixed pattern has no queries, no keys and so no scores. Choose another quantity.")
            pattern = self.fixed[layer][head, first:last, :end]
            pattern = pattern.clone() if visible is None else pattern * visible
        else:
            q, k = self.queries[layer][head, first:last], self.keys[layer][head, :end]
            order = PositionTerms()
            if self.cfg.position_kind.biases:
                ids = torch.arange(self.n_pos, device=device)[None]
                order = PositionTerms(bias=alibi_bias(self.cfg, ids[:, first:last], ids[:, :end], q.dtype)[:, [head]])
            scores = scores_of(self.cfg, q[None, None], k[None, None], order)
            if quantity == "scores":
                return scores[0, 0].float(), visible
            if visible is not None:
                scores = scores.masked_fill_(~visible, float("-inf"))
            pattern = apply_phi(self.cfg, scores, visible)[0, 0]
        pattern = pattern.float()
        if quantity == "weighted":
            pattern = pattern * torch.from_numpy(self.value_norms[layer, head, :end]).to(device)
        return pattern, visible

    def _visible(self, layer: int, first: int, last: int, end: int, device: Any) -> Tensor | None:
        """Return which of the first `end` keys some queries see, bool `[query, key]`; None where they see all."""
        if not self.cfg.causal:
            return None
        behind = torch.arange(first, last, device=device)[:, None] - torch.arange(end, device=device)
        window = self.cfg.window(layer)
        return behind >= 0 if window is None else (behind >= 0) & (behind < window)


def long_patterns(model: AttentionOnlyTransformer, tokens: Shaped[Tensor, ...] | str | list[str]) -> LongPatterns:
    """Return what makes the patterns of one prompt of tokens: a text, or token ids `[pos]` or `[1, pos]`.

    Time: one forward pass, through `scaled_dot_product_attention` where the model's φ allows it (a thresholded softmax,
    linear attention and ALiBi take the memory of the patterns of a layer for a moment). Raises `ValueError` for a
    model that does not read tokens, one with a mask of its own (`attn_mask`), and as `attention_patterns`.
    """
    require_ours(model, "long_patterns")
    cfg = model.cfg
    if cfg.read_in != "tokens" or cfg.attn_mask is not None:
        raise ValueError(
            "long_patterns: expected a model that reads tokens, with no attn_mask of its own; call attention_patterns."
        )
    ids = model.to_prompt(tokens, "long_patterns")[0]
    rotated = cfg.position_kind.rotates
    names: tuple[str, ...] = (hook_names.ROT_Q, hook_names.ROT_K) if rotated else (hook_names.Q, hook_names.K)
    names = names if cfg.has_query_key else ()
    wanted = {hook_names.attn(layer, name) for layer in range(cfg.n_layers) for name in (*names, hook_names.V)}
    with torch.inference_mode():
        _, cache = model.run_with_cache(
            ids[None].to(model.device), names_filter=lambda name: name in wanted, return_cache_object=False,
            return_type=None,
        )  # fmt: skip

        def of_heads(layer: int, which: int) -> Tensor:
            """`[head, pos, d_head]`; with rotary positions the hook is after the norm, else before it."""
            part = cache.pop(hook_names.attn(layer, names[which]))
            if cfg.qk_norm is not None and not rotated:
                part = model.blocks[layer].attn.placed(part, "qk"[which], PositionTerms())
            return part[0].transpose(0, 1).contiguous()

        layers = range(cfg.n_layers)
        norms = [cache.pop(hook_names.attn(layer, hook_names.V))[0].float().norm(dim=-1).T.cpu() for layer in layers]
        return LongPatterns(
            cfg=cfg, tokens=ids.cpu().numpy().astype(np.int64), str_tokens=input_names(model, ids.cpu(), len(ids)),
            queries=tuple(of_heads(layer, 0) for layer in layers if names),
            keys=tuple(of_heads(layer, 1) for layer in layers if names), value_norms=torch.stack(norms).numpy(),
            fixed=() if names else tuple(model.blocks[layer].attn.fixed_pattern.detach() for layer in layers),
        )  # fmt: skip


def _largest(values: Float[Tensor, "query key"], block: int) -> Float32[np.ndarray, "row column"]:
    """Return the entry of the largest magnitude in each block; a block at an end may be smaller."""
    largest = _reduced(values, block, torch.amax)
    if block > 1 and bool((values < 0).any()):
        least = _reduced(values, block, torch.amin)
        largest = torch.where(largest >= -least, largest, least)
    return largest.cpu().numpy()


def _reduced(values: Tensor, block: int, reduce: Any) -> Tensor:
    """Reduce columns and then rows: padded with 0, which is never larger in magnitude than what there is."""
    for _ in range(2):
        padding = -values.shape[1] % block
        padded = torch.nn.functional.pad(values, (0, padding)) if padding else values
        values = reduce(padded.unflatten(1, (-1, block)), -1).T
    return values


def _check_range(what: str, first: int, last: int, n_pos: int) -> None:
    if not 0 <= first < last <= n_pos:
        raise ValueError(f"expected {what} within 0 to {n_pos - 1}, at least one, got {first} to {last - 1}.")
