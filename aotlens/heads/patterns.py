"""The attention patterns of all heads, on one prompt.

For layer l and head h, `pattern[l, h, query, key]` is φ(scores): how much of key's value vector the head moves to
query. A head can attend strongly to a key whose value vector is small, and then moves little; `value_weighted`
is therefore pattern · ‖v‖, with ‖v‖ the Euclidean norm of the value vector `[d_head]` at the key.

Shapes as in `aotlens.conventions` (queries are rows; the papers' pattern is this one or its transpose). Scores are in
nats, as the model applies them (scaled, before φ).

    patterns = attention_patterns(model, model.to_tokens("The cat sat on the mat"))
    patterns.pattern[1, 3]        # layer 1, head 3: [query, key]

Time: one forward pass on the hooked path. Memory: 8 bytes × layers × heads × pos².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Shaped
from torch import Tensor

from aotlens.conventions import HeadLike, as_head
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.results import Result


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionPatterns(Result):
    """Patterns, scores and value norms of every head on one prompt, on the CPU in float32."""

    tokens: Int[np.ndarray, " token"]
    """Token ids; none for a model of images or vectors."""
    str_tokens: tuple[str, ...]
    """One string a token, `()` for a model without a tokenizer; of images and vectors what each position is: `[CLS]`,
    `0, 2` (a patch's row and column), `5` (a vector's number)."""
    pattern: Float[np.ndarray, "layer head query key"]
    """φ(scores); 0 where hidden. Rows sum to 1 for softmax only."""
    scores: Float[np.ndarray, "layer head query key"] | None
    """Nats; −∞ where hidden. None for a fixed pattern, which has no queries and keys."""
    value_norms: Float[np.ndarray, "layer head key"]
    """‖v‖ at each key."""
    visible: Bool[np.ndarray, "mask query key"]
    """The keys that a query may see: one mask for all heads, or one per head."""

    @property
    def headline(self) -> str:
        noun = ("token" if len(self.tokens) else "position") + ("s" if self.n_pos != 1 else "")
        return f"{self.n_layers} layers × {self.n_heads} heads on {self.n_pos} {noun}"

    @property
    def n_layers(self) -> int:
        return self.pattern.shape[0]

    @property
    def n_heads(self) -> int:
        return self.pattern.shape[1]

    @property
    def n_pos(self) -> int:
        return self.pattern.shape[-1]

    @property
    def n_bytes(self) -> int:
        """The memory of the arrays, in bytes."""
        arrays = (self.pattern, self.scores, self.value_norms, self.visible, self.tokens)
        return sum(array.nbytes for array in arrays if array is not None)

    def value_weighted(self) -> Float[np.ndarray, "layer head query key"]:
        """Return pattern · ‖v‖: the norm of what each key alone would add to the head's z at a query (d_head units)."""
        return self.pattern * self.value_norms[:, :, None, :]

    def quantity(self, name: str) -> Float[np.ndarray, "layer head query key"]:
        """Return `"attention"` (`pattern`), `"weighted"` (`value_weighted()`) or `"scores"`.

        Raises `ValueError` for another name, and for the scores of a fixed pattern.
        """
        if name not in ("attention", "weighted", "scores"):
            raise ValueError(f"quantity {name!r}: expected 'attention', 'weighted' or 'scores'.")
        if name == "scores" and self.scores is None:
            raise ValueError("A fixed pattern has no queries, no keys and so no scores. Choose another quantity.")
        quantity = {"attention": self.pattern, "scores": self.scores}.get(name)
        return self.value_weighted() if quantity is None else quantity

    def seen(self, *, without_first: bool = False) -> Bool[np.ndarray, "mask query key"]:
        """Return `visible`; `without_first` leaves out position 0 as a key."""
        return self.visible & (np.arange(self.n_pos) > 0) if without_first else self.visible

    def of_head(
        self, head: HeadLike, quantity: str = "attention", *, without_first: bool = False
    ) -> Float32[np.ndarray, "query key"]:
        """Return one head's `quantity`, NaN where a query does not see the key.

        Raises `ValueError` for a head that there is not, and as `quantity`.
        """
        layer, number = as_head(head, self)
        seen = self.seen(without_first=without_first)
        return np.where(
            seen[number if len(seen) > 1 else 0], self.quantity(quantity)[layer, number], np.float32(np.nan)
        )


def attention_patterns(
    model: AttentionOnlyTransformer, tokens: Shaped[Tensor, ...] | str | list[str]
) -> AttentionPatterns:
    """Compute the patterns of one prompt: a text, or token ids `[pos]` or `[1, pos]`; or of one image or sequence of
    vectors.

    An image is `[channel, height, width]` (or a batch of one), floats as the model reads them, or uint8 pixels for a
    model with an image processor; vectors are `[pos, d_in]`. Raises `ValueError` for a batch, for what the model does
    not read, and for a prompt longer than the model's context.
    """
    return patterns_and_logits(model, tokens)[0]


def patterns_and_logits(
    model: AttentionOnlyTransformer, tokens: Shaped[Tensor, ...] | str | list[str]
) -> tuple[AttentionPatterns, Float[Tensor, "*pos outputs"]]:
    """Compute `attention_patterns` and, in one forward pass, the model's output at each position (or once): on its
    device.

    `predictions_of_logits` and `token_losses` of `aotlens.evaluate` read them, without another pass.
    """
    require_ours(model, "attention_patterns")
    tokens = model.to_prompt(tokens, "attention_patterns")[0]
    cfg = model.cfg
    names = {hook_names.attn(layer, name) for layer in range(cfg.n_layers) for name in _HOOKS}
    with torch.inference_mode():
        logits, cache = model.run_with_cache(
            tokens[None].to(model.device), names_filter=lambda name: name in names, return_cache_object=False
        )
        n_pos = cache[hook_names.attn(0, hook_names.V)].shape[1]
        widest = max(range(cfg.n_layers), key=lambda layer: cfg.window(layer) or cfg.n_ctx)
        visible = model.visible_keys(n_pos, None, model.device, widest)

        def stack(name: str) -> Tensor:
            return torch.stack([cache[hook_names.attn(layer, name)][0] for layer in range(cfg.n_layers)])

        seen = np.ones((1, n_pos, n_pos), dtype=bool) if visible is None else visible[0].cpu().numpy()
        ids = tokens.cpu() if cfg.read_in == "tokens" else torch.empty(0, dtype=torch.long)
        patterns = AttentionPatterns(
            tokens=ids.numpy().astype(np.int64),
            str_tokens=input_names(model, ids, n_pos),
            pattern=_float32(stack(hook_names.PATTERN)),
            scores=_float32(stack(hook_names.SCORES)) if cfg.has_query_key else None,
            value_norms=_float32(stack(hook_names.V).float().norm(dim=-1).transpose(1, 2)),
            visible=seen,
        )
        return patterns, logits[0]


def input_names(model: AttentionOnlyTransformer, ids: Tensor, n_pos: int) -> tuple[str, ...]:
    """Name the input at each position."""
    cfg = model.cfg
    if cfg.read_in == "tokens":
        return () if model.tokenizer is None else tuple(model.tokenizer.str_tokens(ids.tolist()))
    numbers = range(n_pos - cfg.n_before)
    columns = (cfg.image_size or 0) // (cfg.patch_size or 1)
    names = [f"{i // columns}, {i % columns}" if cfg.read_in == "patches" else str(i) for i in numbers]
    return (*("[CLS]", "[distillation]")[: cfg.n_before], *names)


_HOOKS = (hook_names.PATTERN, hook_names.SCORES, hook_names.V)


def _float32(values: Tensor) -> np.ndarray:
    return values.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()
