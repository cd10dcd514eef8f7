"""The attention-only transformer: one class for every model of the papers.

    stream = read_in(x) + positions
    stream ← stream + Σ_heads pattern_h norm(stream) W_V^h W_O^h    for each layer (baselines add an MLP)
    output = norm(stream) W_U + b_U

Shapes: stream `[batch, pos, d_model]`; see `aotlens.conventions` for the translation from the papers, which
write tokens as columns. Hook names are TransformerLens's (`aotlens.models.hook_names`).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from aotlens.conventions import IGNORED
from aotlens.models import hook_names, loss
from aotlens.models.cache import ActivationCache
from aotlens.models.config import ModelConfig
from aotlens.models.generation import generate
from aotlens.models.hook_points import HookPoint, bound_to_call
from aotlens.models.layers import Block, PositionEmbedding, Unembed, make_embedding
from aotlens.models.norms import Norm
from aotlens.models.ours import OwnModel
from aotlens.models.phi import require_right_padding, visible_keys
from aotlens.models.positions import PositionTerms
from aotlens.models.text import TextTokenizer
from aotlens.models.weights import initialise

ReturnType = Literal["logits", "loss", "both"]
_ALL_BUT_THE_LAST = (slice(None), slice(None, -1))
_NOWHERE = (slice(None), slice(0))


class AttentionOnlyTransformer(OwnModel):
    """A hooked transformer described by a `ModelConfig`.

    `tokenizer` turns text into ids (optional); `pattern [n_layers, n_heads, n_ctx, n_ctx]` (or what
    broadcasts to it) is needed for `fixed_pattern="given"` and refused elsewhere. Weights are a function of
    `cfg.seed`. Threads may share a model: see `HookedRootModule`.
    """

    card: Any = None
    recompute_activations: bool = False
    """Whether a backward pass computes each block again instead of keeping what is inside it: less memory, and a third
    more time. The gradients are the same."""
    unigram_counts: Tensor | None = None
    attn_mask: Tensor | None  # [n_heads or 1, n_ctx, n_ctx], the configuration's

    def __init__(
        self, cfg: ModelConfig, tokenizer: TextTokenizer | None = None, *, pattern: Tensor | None = None
    ) -> None:
        super().__init__()
        self.cfg = cfg.of_model(self)
        self.tokenizer = tokenizer
        self.embed = make_embedding(cfg)
        self.hook_embed = HookPoint()
        self.pos_embed = PositionEmbedding(cfg) if cfg.position_kind.table else None
        if cfg.positions == "learned":
            self.hook_pos_embed = HookPoint()
        elif cfg.positions == "qk":
            self.hook_qk_pos_embed = HookPoint()
        self.blocks = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layers)])
        self.ln_final = Norm(cfg) if cfg.has_final_norm else nn.Identity()
        self.unembed = Unembed(cfg)
        self.sees_later_keys = cfg.sees_later_keys  # a walk over the mask: once
        mask = None if cfg.attn_mask is None else torch.tensor(cfg.attn_mask, device="cpu")
        self.register_buffer("attn_mask", mask, persistent=False)
        if (cfg.fixed_pattern == "given") != (pattern is not None):
            got = "no pattern" if pattern is None else "a pattern"
            raise ValueError(f"fixed_pattern={cfg.fixed_pattern!r}, got {got}: give one exactly when it is 'given'.")
        initialise(self)
        if pattern is not None:
            self._set_pattern(pattern)
        self.setup()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy's configuration tells of the copy's weights."""
        super().__setstate__(state)
        self.cfg = self.cfg.of_model(self)

    def _set_pattern(self, pattern: Tensor) -> None:
        shape = (self.cfg.n_layers, self.cfg.n_heads, self.cfg.n_ctx, self.cfg.n_ctx)
        try:
            patterns = pattern.expand(shape)
        except RuntimeError as error:
            got = list(pattern.shape)
            raise ValueError(f"pattern: expected what broadcasts to {list(shape)}, got {got}.") from error
        if not pattern.is_meta and not pattern.isfinite().all():
            raise ValueError("pattern: expected finite entries.")
        visible = None if pattern.is_meta else self.visible_keys(self.cfg.n_ctx, None, pattern.device)
        if visible is not None and (patterns * ~visible).any():
            raise ValueError(
                "pattern: expected 0 where the model's mask hides the key, got other values there; set them to 0, "
                "or use causal=False or an attn_mask that shows those keys."
            )
        for block, layer_pattern in zip(self.blocks, patterns, strict=True):
            block.attn.fixed_pattern = layer_pattern.to(self.device, self.dtype, copy=True)

    @property
    def device(self) -> torch.device:
        """The device on which the weights are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' floating-point type."""
        return next(self.parameters()).dtype

    # Running

    def forward(
        self,
        x: Tensor | str | list[str],
        return_type: ReturnType | None = "logits",
        *,
        targets: Tensor | None = None,
        attention_mask: Tensor | None = None,
        loss_per_token: bool = False,
        label_smoothing: float = 0.0,
        start_at_layer: int = 0,
        resid_pre: Tensor | None = None,
        logits_at: Tensor | None = None,
        stop_at_layer: int | None = None,
    ) -> Any:
        """Return logits `[batch, pos, d_vocab]` (classes: `[batch, d_out]`, without pooling `[batch, pos, d_out]`;
        vectors: `[batch, pos, width]`) or loss.

        `return_type` chooses logits, loss, or both as a tuple; None runs for the hooks alone, without logits of tokens.

        `x` is token ids `[batch, pos]` (or text, with a tokenizer), images `[batch, channel, height, width]` (or uint8
        pixels, with an image processor), or vectors `[batch, pos, d_in]`. `attention_mask [batch, pos]` is True (or 1)
        at real positions: padding is never attended to, and positions are counted from the first real one, so a padded
        row equals the row alone.

        The loss is the mean cross-entropy in nats of the next token, of `targets` (−100 ignored; ids
        `[batch, pos]` or classes, one for each logit row), or for vectors the mean squared error to `targets` (NaN
        ignored). `loss_per_token=True` gives it unreduced (`[batch, pos − 1]` for next tokens; 0 where padded or
        ignored). A non-causal model of tokens needs `targets`: its next tokens are visible to it. With
        `label_smoothing` ε the target distribution is (1 − ε) of the target and ε / n of each of the n outputs (Szegedy
        et al. 2016).

        With `resid_pre`, the stream `[batch, pos, d_model]` before layer `start_at_layer`, the embedding and earlier
        layers are not computed again; `x` then gives positions and next tokens only.

        `logits_at`, bool `[batch, pos]`, asks for the logits of these positions alone, row by row: `[n, d_vocab]`. The
        others are never computed, which in a small model with a large vocabulary is most of the work.

        With `stop_at_layer` the output is the stream `[batch, pos, d_model]` before that layer, whatever `return_type`:
        −1 is before the last layer, `n_layers` after it. Neither that layer nor what follows runs.

        Raises `ValueError` for ids out of range, sequences longer than `n_ctx`, wrong shapes, another floating-point
        type than the weights', or empty input.
        """
        if return_type not in ("logits", "loss", "both", None):
            raise ValueError(f"return_type={return_type!r}: expected 'logits', 'loss', 'both' or None.")
        if isinstance(x, Tensor):
            inputs = self._as_input(x)
        else:
            inputs, text_mask = self.to_tokens(x, return_mask=True)
            if attention_mask is None and not bool(text_mask.all()):
                attention_mask = text_mask
        self.embed.check(inputs)
        self._check_dtype(inputs)
        start = None if resid_pre is None else (start_at_layer, resid_pre)
        if not 0 <= start_at_layer < self.cfg.n_layers or (start_at_layer > 0 and start is None):
            raise ValueError(
                f"start_at_layer={start_at_layer}: expected a layer from 0 to {self.cfg.n_layers - 1}, with the stream "
                "before it as resid_pre."
            )
        if attention_mask is not None:
            attention_mask = attention_mask.to(device=inputs.device, dtype=torch.bool)
        if stop_at_layer is not None:
            return self._stream(inputs, attention_mask, start, self._last_layer(stop_at_layer, start_at_layer))
        if logits_at is not None:
            self._check_logits_at(inputs, logits_at, return_type)
            return self._logits(inputs, attention_mask, logits_at.to(inputs.device), start)
        if return_type == "loss" and targets is not None and not loss_per_token:
            wanted = self._wanted(inputs, targets, attention_mask)
            if wanted is not None:  # most logits of a masked language model would be thrown away
                logits = self._logits(inputs, attention_mask, wanted, start)
                return self._loss(logits, inputs, targets[wanted], None, False, label_smoothing)
        predicting: tuple[slice, slice] | None = None
        if return_type == "loss" and targets is None and self._predicts_its_input and inputs.shape[1] > 1:
            predicting = (
                _ALL_BUT_THE_LAST  # nothing follows the last position; cutting its logits off would copy them all
            )
        if return_type is None and self.cfg.read_out == "tokens":
            predicting = _NOWHERE
        logits = self._logits(inputs, attention_mask, predicting, start)
        if return_type in ("logits", None):
            return logits if return_type else None
        losses = self._loss(logits, inputs, targets, attention_mask, loss_per_token, label_smoothing)
        return losses if return_type == "loss" else (logits, losses)

    def _last_layer(self, stop_at_layer: int, start_at_layer: int) -> int:
        """`stop_at_layer` counted from the front."""
        n_layers = self.cfg.n_layers
        layer = stop_at_layer + n_layers if stop_at_layer < 0 else stop_at_layer
        if not start_at_layer <= layer <= n_layers:
            raise ValueError(
                f"stop_at_layer={stop_at_layer}: expected a layer from {start_at_layer} to {n_layers}, or from "
                f"{start_at_layer - n_layers} to -1 counted from the end."
            )
        return layer

    def _check_dtype(self, x: Tensor) -> None:
        """Vectors and images have the weights' type; autocast converts by itself."""
        if x.is_floating_point() and x.dtype != self.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(
                f"expected {self.cfg.read_in} of {self.dtype}, the type of the model's weights, got {x.dtype}; convert "
                f"one of them: x.to(model.dtype), or model.to({x.dtype})."
            )

    def _check_logits_at(self, x: Tensor, logits_at: Tensor, return_type: ReturnType | None) -> None:
        if return_type != "logits" or (self.cfg.read_in, self.cfg.read_out) != ("tokens", "tokens"):
            raise ValueError(
                "logits_at chooses positions of the logits of a model that reads and writes tokens; got "
                f"return_type={return_type!r} and a model from {self.cfg.read_in} to {self.cfg.read_out}."
            )
        if logits_at.dtype != torch.bool or logits_at.shape != x.shape:
            raise ValueError(
                f"logits_at: expected bool {list(x.shape)}, as the tokens, got {list(logits_at.shape)} "
                f"{logits_at.dtype}."
            )

    @property
    def _predicts_its_input(self) -> bool:
        """Whether its next tokens are those that it reads, and hidden from it."""
        return self.cfg.read_in == "tokens" and self.cfg.read_out == "tokens" and not self.sees_later_keys

    def _wanted(self, x: Tensor, targets: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """Return the targets that count, bool `[batch, pos]`, where leaving out the others saves logits; else None."""
        if self.cfg.read_in != "tokens" or self.cfg.read_out != "tokens" or targets.shape != x.shape or x.is_meta:
            return None
        wanted = targets != IGNORED
        return wanted if attention_mask is None else wanted & attention_mask

    def _logits(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        wanted: Tensor | tuple[slice, slice] | None = None,
        start: tuple[int, Tensor] | None = None,
    ) -> Tensor:
        stream = self.ln_final(self._stream(x, attention_mask, start, self.cfg.n_layers))
        if self.cfg.read_out == "classes":
            stream = self.unembed.pool(stream, attention_mask)
        if wanted is not None:
            stream = stream[wanted]  # [wanted positions, d_model], or [batch, pos − 1, d_model]
        return self.unembed(stream, tied=self.embed.W_E if self.cfg.tied_embeddings else None)

    def _stream(self, x: Tensor, attention_mask: Tensor | None, start: tuple[int, Tensor] | None, stop: int) -> Tensor:
        """The residual stream `[batch, pos, d_model]` before layer `stop`."""
        first, stream = (0, self.embed(x)) if start is None else start
        if stream is x and self.hook_embed.has_hooks():
            stream = x.clone()  # vectors read as they are: an in-place hook would edit the caller's
        if start is None:
            stream = self.hook_embed(stream)
        batch, n_pos = stream.shape[:2]
        if not 1 <= n_pos <= self.cfg.n_ctx:
            raise ValueError(f"got {n_pos} positions, but this model takes 1 to {self.cfg.n_ctx} (n_ctx).")
        if attention_mask is not None and attention_mask.shape != (batch, n_pos):
            raise ValueError(f"attention_mask: expected [{batch}, {n_pos}], got {list(attention_mask.shape)}.")
        if attention_mask is not None and self._counts_absolutely():
            require_right_padding(attention_mask)
        positioned, orders = self._add_positions(stream, attention_mask)
        stream = positioned if start is None else stream
        unmasked = self.cfg.causal and self.cfg.attn_mask is None and attention_mask is None
        needed = not unmasked or any(block.attn._needs_pattern() for block in self.blocks)
        visible: dict[int | None, Tensor | None] = {}
        for layer, block in enumerate(self.blocks[first:stop], first):
            window, order = self.cfg.window(layer), orders[self.cfg.is_local(layer)]
            causal_only = unmasked and (window is None or window >= n_pos)
            if (needed or not causal_only or order.bias is not None) and window not in visible:
                visible[window] = self.visible_keys(n_pos, attention_mask, stream.device, layer)
            arguments = (stream, order, visible.get(window), causal_only)
            if self.recompute_activations and torch.is_grad_enabled():
                stream = checkpoint(bound_to_call(block), *arguments, use_reentrant=False, preserve_rng_state=False)
            else:
                stream = block(*arguments)
        return stream

    def _add_positions(
        self, stream: Tensor, attention_mask: Tensor | None
    ) -> tuple[Tensor, tuple[PositionTerms, PositionTerms]]:
        """The stream with positions added, and what positions do inside the layers, and inside those with a window."""
        if self.cfg.positions is None:
            return stream, (PositionTerms(), PositionTerms())
        if attention_mask is None:
            ids = torch.arange(stream.shape[1], device=stream.device)[None]
        else:
            ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
        if self.pos_embed is None:
            terms = PositionTerms.of(self.cfg, ids, stream.dtype)
            local = next((layer for layer in range(self.cfg.n_layers) if self.cfg.is_local(layer)), None)
            own = terms if local is None else PositionTerms.of(self.cfg.at_layer(local), ids, stream.dtype)
            return stream, (terms, own)
        positions = self.pos_embed(ids).expand(stream.shape[0], -1, -1)
        in_stream = self.cfg.position_kind.in_stream
        hook = self.hook_pos_embed if in_stream else self.hook_qk_pos_embed
        if hook.has_hooks():
            positions = hook(positions.clone())  # one row, expanded: an in-place hook needs all of them
        terms = PositionTerms() if in_stream else PositionTerms(added=positions)
        return stream + positions if in_stream else stream, (terms, terms)

    def order(self, n_pos: int, layer: int) -> PositionTerms:
        """Return the terms of positions inside a layer on a sequence of `n_pos` positions without padding."""
        ids = torch.arange(n_pos, device=self.device)[None]
        if self.cfg.positions == "qk":
            return PositionTerms(added=self.W_pos[:n_pos][None])
        return PositionTerms.of(self.cfg.at_layer(layer), ids, self.dtype)

    def _counts_absolutely(self) -> bool:
        """Whether a mask, pattern or read-out names positions by number, so that a row cannot be shifted."""
        first = self.cfg.read_out == "classes" and self.cfg.pooling == "first"
        return first or self.attn_mask is not None or not self.cfg.has_query_key

    def visible_keys(
        self, n_pos: int, attention_mask: Tensor | None, device: torch.device, layer: int | None = None
    ) -> Tensor | None:
        """Return the keys that a query sees, bool `[1 or batch, 1 or n_heads, query, key]`; None where it sees all.

        Layers may have windows: raises `ValueError` where `layer` is not given and they do not see the same.
        """
        if layer is None and n_pos > self.cfg.shortest_window:
            raise ValueError(
                f"this analysis has one mask for all layers, and those of this model have windows={self.cfg.windows}: "
                f"give at most {self.cfg.shortest_window} positions, got {n_pos}."
            )
        mask = None if self.attn_mask is None else self.attn_mask.to(device)
        window = None if layer is None else self.cfg.window(layer)
        return visible_keys(self.cfg, mask, n_pos, attention_mask, device, window)

    def _loss(
        self,
        logits: Tensor,
        x: Tensor,
        targets: Tensor | None,
        attention_mask: Tensor | None,
        per_token: bool,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        if not 0 <= label_smoothing < 1 or (label_smoothing and self.cfg.read_out == "vectors"):
            raise ValueError(
                f"label_smoothing={label_smoothing}: expected from 0 to below 1, and 0 for a model that writes vectors."
            )
        if self.cfg.read_out == "vectors":
            return loss.squared_errors(logits, targets, attention_mask, per_token)
        if targets is None:
            if not self._predicts_its_input:
                raise ValueError(
                    "this model's loss needs targets: only a causal model of tokens predicts its own input."
                )
            targets = loss.next_token_targets(x, attention_mask)
            logits, attention_mask = logits[:, : targets.shape[1]], None
        return loss.cross_entropy(logits, targets, attention_mask, per_token, label_smoothing)

    def loss_per_token(self, x: Tensor | str | list[str], **kwargs: Any) -> Tensor:
        """Return the loss in nats at every position, unreduced: `[batch, pos − 1]` for next tokens."""
        return self(x, return_type="loss", loss_per_token=True, **kwargs)

    def run_with_cache(self, *args: Any, return_cache_object: bool = True, **kwargs: Any) -> Any:
        """Return the output and an `ActivationCache` (or a dict, with `return_cache_object=False`), read as
        `cache["pattern", 0]`.

        Takes the arguments of `HookedRootModule.run_with_cache`. Without a `names_filter` everything is cached but
        `hook_result` `[batch, pos, head, d_model]`, the one that costs n_heads residual streams a layer:
        `cache.to_transformer_lens().stack_head_results()` computes it, a `names_filter` caches it.
        """
        if kwargs.get("names_filter") is None:
            kwargs["names_filter"] = lambda name: not name.endswith(hook_names.RESULT)
        out, cache = super().run_with_cache(*args, **kwargs)
        if not return_cache_object:
            return out, cache
        return out, ActivationCache(cache, self, has_batch_dim=not kwargs.get("remove_batch_dim", False))

    generate = generate

    # The methods that TransformerLens's ActivationCache asks of a model

    def tokens_to_residual_directions(self, tokens: str | int | Tensor) -> Tensor:
        """Return the column of W_U of a token, or one for each of a tensor of tokens: `[..., d_model]`."""
        if isinstance(tokens, str):
            tokens = self.to_single_token(tokens)
        return self.W_U.T[tokens]

    def accumulated_bias(self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True) -> Tensor:
        """Return Σ b_O (and b_out) of the layers before `layer`, `[d_model]`; `mlp_input` adds `layer`'s own b_O."""
        total = self.b_O[: layer + mlp_input].sum(0)
        if include_mlp_biases and not self.cfg.attn_only:
            total = total + self.b_out[:layer].sum(0)
        return total
