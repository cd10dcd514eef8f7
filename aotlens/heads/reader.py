"""The reads and writes of a head, layer by layer, from a model of ours or any TransformerLens bridge.

A model reads tokens, or images as patches (`PatchGrid`): a function says which it can take.

    x   `[batch, pos, d_model]`       the attention layer's input: the residual stream after its norm, without what is
                                      added to queries and keys only (a post-norm model's stream is normalised already)
    z   `[batch, pos, head, d_head]`  pattern · v, so that the head writes y = z W_O

Both come from hook points, so they are what the model really used, other hooks' changes included.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from aotlens.conventions import Head, HeadLike, all_heads, as_heads
from aotlens.data.windows import Encoding
from aotlens.heads.patch_grid import PatchGrid
from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names
from aotlens.models.ours import require_weights
from aotlens.models.text import unequal_lengths
from aotlens.models.traits import refusal

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    #: Any model whose heads can be read.
    Model: TypeAlias = AttentionOnlyTransformer | TransformerBridge
else:  # importing the bridge takes longer than PyTorch, and only who has one needs it
    Model: TypeAlias = nn.Module
Hooks: TypeAlias = list[tuple[str, Callable[..., Any]]]
#: Sequences of one length, without padding: ids `[batch, pos]`, or `[pos]` of one; a text, or texts of equally many
#: tokens, for a model with a tokenizer.
TokenSequences: TypeAlias = Int[Tensor, "*batch pos"] | str | list[str]
#: The inputs of a run: ids, the images of a model that reads patches, or the vectors of one that reads vectors.
Rows: TypeAlias = Int[Tensor, "batch pos"] | Float[Tensor, "batch channel height width"] | Float[Tensor, "batch pos d"]


#: The locks of bridges.
_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()


class _Done(Exception):
    """All requested activations are recorded; stop the forward pass."""


def _is_bridge(model: Any) -> bool:
    bridges = sys.modules.get("transformer_lens.model_bridge")  # who has one has imported it
    return bridges is not None and isinstance(model, bridges.TransformerBridge)


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadReader:
    """One face for both kinds of model. Make it with `HeadReader.of`."""

    model: Any
    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    n_ctx: int
    d_vocab: int
    """0 for a model of images."""
    causal: bool
    is_bridge: bool
    grid: PatchGrid | None = None
    """The patches of a model of images; None for a model of tokens."""

    @classmethod
    def of(cls, model: Any, purpose: str = "reading heads", *, images: bool | None = False) -> HeadReader:
        """Read `model`'s heads, for `purpose` (named in errors), which takes tokens, `images`, or (None) either.

        Raises `ValueError` for a model that is neither kind, has weights that are not finite, reads something else, or
        has no heads to hook.
        """
        cfg = getattr(model, "cfg", None)
        if isinstance(model, AttentionOnlyTransformer):
            reads = model.cfg.read_in
            causal, is_bridge = not model.sees_later_keys, False
        elif _is_bridge(model):
            reads = "patches" if getattr(cfg, "is_visual_model", False) else "tokens"
            causal, is_bridge = reads == "tokens" and getattr(cfg, "attention_dir", "causal") == "causal", True
        else:
            raise ValueError(
                f"{purpose}: expected an AttentionOnlyTransformer or a TransformerLens TransformerBridge, got "
                f"{type(model).__name__}."
            )
        require_weights(model, purpose)
        if (images is not None and reads != ("patches" if images else "tokens")) or reads == "vectors":
            expected = {True: "images", False: "tokens", None: "tokens or images"}[images]
            raise ValueError(f"{purpose}: expected a model of {expected}; this one reads {reads}.")
        assert cfg is not None
        grid = PatchGrid.of(model, is_bridge) if reads == "patches" else None
        reader = cls(
            model=model,
            n_layers=int(cfg.n_layers),
            n_heads=int(cfg.n_heads),
            d_model=int(cfg.d_model),
            d_head=int(cfg.d_head),
            n_ctx=int(cfg.n_ctx) if grid is None else grid.n_pos,
            d_vocab=int(cfg.d_vocab) if grid is None else 0,
            causal=causal,
            is_bridge=is_bridge,
            grid=grid,
        )
        missing = [name for name in (reader.input_name(0), reader.z_name(0)) if name not in model.hook_dict]
        if missing:
            raise ValueError(f"this {type(model).__name__} has no {', '.join(missing)}: its heads cannot be read.")
        return reader

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def n_alike(self) -> int:
        """The number of positions up to which all layers see the same keys: the context, or their shortest window."""
        return self.n_ctx if self.is_bridge else min(self.n_ctx, self.model.cfg.shortest_window)

    @property
    def no_circuits(self) -> str:
        """The reason why composition on a text or copying is not defined for a model of ours; empty where they are."""
        return refusal(self.model.cfg, "circuits", ("norm_after", "norm_output", "clip_qkv"))

    def input_name(self, layer: int) -> str:
        """Return the hook point from which `as_input` makes x."""
        if self.is_bridge:
            return hook_names.attn(layer, "hook_in")
        return (
            hook_names.block(layer, "ln1.hook_normalized")
            if self.model.cfg.reads_normed
            else hook_names.resid_pre(layer)
        )

    def z_name(self, layer: int) -> str:
        return hook_names.attn(layer, hook_names.Z)

    def pattern_name(self, layer: int) -> str:
        return hook_names.attn(layer, hook_names.PATTERN)

    def as_input(self, layer: int, hooked: Tensor) -> Float[Tensor, "batch pos d_model"]:
        """Return x, from what `input_name`'s hook point shows: our norm's comes before its gain and bias."""
        if self.is_bridge or not self.model.cfg.reads_normed:
            return hooked
        norm = folded_norm(self.model, layer)
        return norm.gained(hooked) + norm.bias.to(hooked)

    def visible_keys(self, n_pos: int) -> Bool[Tensor, "mask query key"]:
        """Return the keys that a query sees, on the CPU: one mask for all heads, or one a head."""
        if not self.is_bridge:
            visible = self.model.visible_keys(n_pos, None, torch.device("cpu"))
            return torch.ones(1, n_pos, n_pos, dtype=torch.bool) if visible is None else visible[0]
        everything = torch.ones(1, n_pos, n_pos, dtype=torch.bool)
        return everything.tril() if self.causal else everything

    def W_O(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        return self.model.blocks[layer].attn.W_O.detach()

    def require_heads(self, heads: HeadLike | Iterable[HeadLike] | None) -> tuple[Head, ...]:
        """Return the heads in order of layer and head; all of them for None. Raises `ValueError` for one it lacks."""
        return all_heads(self) if heads is None else tuple(sorted(as_heads(heads, self)))

    def require_ids(
        self, tokens: Tensor | str | list[str], name: str = "tokens", at_least: int = 1
    ) -> Int64[Tensor, "batch pos"]:
        """Return the ids of `tokens` on the CPU; texts get the start token, and a bridge's that sees later tokens its
        end.

        Raises `ValueError` for ids that are not the model's or exceed its context, and for texts of different lengths:
        padding would count among the positions that are averaged over.
        """
        if not isinstance(tokens, Tensor):
            tokens = self._encoded(tokens, name)
        elif tokens.ndim == 1:
            tokens = tokens[None]
        if tokens.ndim != 2 or not len(tokens) or tokens.is_floating_point():
            raise ValueError(f"{name}: expected token ids [batch, pos], got {tokens.dtype} {list(tokens.shape)}.")
        if self.n_ctx < at_least:
            raise ValueError(
                f"{name}: expected a model of {at_least} positions or more, got one of {self.n_ctx} (n_ctx)."
            )
        if not at_least <= tokens.shape[1] <= self.n_ctx:
            raise ValueError(f"{name}: expected {at_least} to {self.n_ctx} positions (n_ctx), got {tokens.shape[1]}.")
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= self.d_vocab:
            raise ValueError(f"{name}: expected token ids 0 to {self.d_vocab - 1}, got {low} to {high}.")
        return tokens.cpu().long()

    def require_images(self, images: Tensor, name: str = "images") -> Tensor:
        """Return a batch of images, or one, as the model takes them: floats `[image, channel, height, width]`.

        Raises `ValueError` for another shape or type, and for none.
        """
        assert self.grid is not None
        if not isinstance(images, Tensor):
            raise ValueError(f"{name}: expected a tensor {self.grid.expected}, got {type(images).__name__}.")
        batch = self.model.to_rows(images, name) if not self.is_bridge else images if images.ndim == 4 else images[None]
        fits = batch.ndim == 4 and len(batch) and tuple(batch.shape[1:]) == self.grid.image
        if not fits or not batch.is_floating_point():
            raise ValueError(f"{name}: expected {self.grid.expected}, got {list(images.shape)} {images.dtype}.")
        return batch.detach()

    def _encoded(self, texts: str | list[str], name: str) -> Int64[Tensor, "batch pos"]:
        encoding = Encoding.of(self.model.tokenizer, causal=self.causal)
        end = [] if encoding.end is None else [encoding.end]
        texts = [texts] if isinstance(texts, str) else list(texts)
        rows = [[encoding.start, *encoding.encode(text), *end] for text in texts]
        if not rows:
            raise ValueError(f"{name}: expected a text or a list of at least one text, got an empty list.")
        if len({len(row) for row in rows}) > 1:
            raise unequal_lengths(name, [len(row) for row in rows])
        return torch.tensor(rows)

    def listen(
        self,
        tokens: Rows,
        name: Callable[[int], str],
        listener: Callable[[int, Tensor], None],
    ) -> None:
        """Run `tokens`, without padding, and call `listener(layer, activation)` with `name(layer)`'s in each layer."""

        def hook_of(layer: int) -> Callable[..., None]:
            def hook(activation: Tensor, hook: object) -> None:
                listener(layer, activation)

            return hook

        self.run(tokens, [(name(layer), hook_of(layer)) for layer in range(self.n_layers)])

    def listen_to_patterns(
        self, tokens: Rows, listener: Callable[[int, Float[Tensor, "batch head query key"]], None]
    ) -> None:
        """Run `tokens` and call `listener(layer, pattern)` with each layer's attention patterns, in float32 or float64.

        Raises `ValueError` for a bridge whose attention computes no patterns.
        """
        layers: set[int] = set()

        def widen(layer: int, pattern: Tensor) -> None:
            layers.add(layer)
            listener(layer, pattern if pattern.dtype == torch.float64 else pattern.float())  # MPS has no float64

        self.listen(tokens, self.pattern_name, widen)
        for layer in range(self.n_layers):
            if layer not in layers:
                raise ValueError(
                    f"layer {layer} shows no attention pattern at {self.pattern_name(layer)}; load the Hugging Face "
                    "model with attn_implementation='eager'."
                )

    @torch.no_grad()
    def read(
        self, tokens: Rows, layers: Collection[int]
    ) -> dict[int, tuple[Float[Tensor, "batch pos d_model"], Float[Tensor, "batch pos head d_head"]]]:
        """Read (x, z) of each of `layers`, in one forward pass as far as the last of them."""
        seen: dict[int, tuple[Tensor, Tensor]] = {}
        inputs: dict[int, Tensor] = {}
        last = max(layers)

        def hooks() -> Iterator[tuple[str, Callable[..., Any]]]:
            for layer in layers:

                def take_input(value: Tensor, hook: object, layer: int = layer) -> None:
                    inputs[layer] = self.as_input(layer, value)

                def take_z(value: Tensor, hook: object, layer: int = layer) -> None:
                    seen[layer] = (inputs.pop(layer), value)
                    if layer == last and not self.is_bridge:
                        raise _Done

                yield self.input_name(layer), take_input
                yield self.z_name(layer), take_z

        self.run(tokens, list(hooks()))
        return seen

    @torch.no_grad()
    def run(self, tokens: Rows, hooks: Hooks, return_type: str | None = None) -> Any:
        """Run a forward pass with hooks, which are gone afterwards; logits with `return_type="logits"`.

        A bridge keeps its hooks itself, so its runs take turns; those of a model of ours never wait.
        """
        with _LOCKS.setdefault(self.model, threading.RLock()) if self.is_bridge else nullcontext():
            try:
                return self.model.run_with_hooks(tokens.to(self.device), return_type=return_type, fwd_hooks=hooks)
            except _Done:
                return None
