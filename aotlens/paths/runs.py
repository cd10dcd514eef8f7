"""A batch of prompts as a model runs them, and the same from one layer and one position on.

What is put into the stream at position p before layer l changes nothing in earlier layers and, in a causal model,
nothing at earlier positions: keys and values of these are those of the run that is there. So only positions from p on
run again, through the layers from l on, a row each; rows that enter at different layers join in the layer where they
enter. Of the last stream only what the read-out reads becomes logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.models.attention import attended, scores_of, uses_sdpa
from aotlens.models.phi import apply_phi
from aotlens.models.positions import PositionTerms

#: The place where rows enter: before a layer, or between its attention and its MLP (after its attention).
Place: TypeAlias = Literal["before", "after"]
#: Rows `[group, pair, pos, d_model]` of one layer and place, from the position on that all of them share.
Entering: TypeAlias = Mapping[tuple[int, Place], Float[Tensor, "_ pair pos d_model"]]


class Probes(dict[str, Tensor | None]):
    """Zeros added to activations, by hook name: a gradient with respect to a zero is that of the activation."""

    @classmethod
    def at(cls, names: Iterable[str]) -> Probes:
        """Make the probes of hooks by their names."""
        return cls((name, None) for name in names)

    def hooks(self) -> list[tuple[str | Callable[..., Any], Callable[..., Any]]]:
        """Return the hooks that add the probes."""
        return [(name, partial(self._add, name)) for name in self]

    def _add(self, name: str, x: Tensor, hook: object) -> Tensor:
        zeros = self[name] = torch.zeros_like(x, requires_grad=True)
        return x + zeros

    def gradients(self, total: Tensor) -> list[Tensor]:
        """Return the gradient of a number by each probe, zeros if independent; `ValueError` for a number without a
        gradient."""
        if not total.requires_grad:
            raise ValueError("attribution: the metric has no gradient, so it cannot be estimated; patch instead.")
        held = [zeros for zeros in self.values() if zeros is not None]
        gradients = torch.autograd.grad(total, held, allow_unused=True)
        return [
            torch.zeros_like(zeros) if each is None else each.detach()
            for zeros, each in zip(held, gradients, strict=True)
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A batch of prompts of one length, run whole: `cache` holds what was asked for, by the hook's name."""

    model: AttentionOnlyTransformer
    x: Tensor
    cache: dict[str, Tensor]
    final: Float[Tensor, "pair pos d_model"]
    """The stream after the last layer."""

    @classmethod
    def of(
        cls, model: AttentionOnlyTransformer, x: Tensor, names: Sequence[str] = (), probes: Probes | None = None
    ) -> Run:
        """Run a batch; streams, keys, values and `names` of each layer are kept, with gradients if there are
        `probes`."""
        hooks: set[str] = set()
        for layer in range(model.cfg.n_layers):
            hooks |= {
                hook_names.resid_pre(layer),
                hook_names.block(layer, "hook_attn_out"),
                hook_names.resid_post(layer),
            }
            hooks |= {hook_names.attn(layer, name) for name in (hook_names.K, hook_names.V, *names)}
            hooks |= set() if model.cfg.attn_only else {hook_names.resid_mid(layer), hook_names.mlp_out(layer)}
        with torch.set_grad_enabled(bool(probes)), model.hooks(fwd_hooks=probes.hooks() if probes else []):
            final, cache = model.run_with_cache(
                x, stop_at_layer=model.cfg.n_layers, names_filter=lambda name: name in hooks, return_cache_object=False
            )
        return cls(model=model, x=x, cache=cache, final=final)

    def attn(self, layer: int, name: str) -> Tensor:
        """Return the activation of a layer's attention at a hook."""
        return self.cache[hook_names.attn(layer, name)]

    def before(self, layer: int) -> Float[Tensor, "pair pos d_model"]:
        """Return the stream before a layer; n_layers: after the last."""
        return self.final if layer == self.model.cfg.n_layers else self.cache[hook_names.resid_pre(layer)]

    def after(self, layer: int) -> Float[Tensor, "pair pos d_model"]:
        """Return the stream after a layer's attention, before its MLP."""
        return self.before(layer) + self.cache[hook_names.block(layer, "hook_attn_out")]

    def rows(self, pairs: slice) -> Run:
        """Return the run of some of the prompts."""
        part = {name: value[pairs] for name, value in self.cache.items()}
        return Run(model=self.model, x=self.x[pairs], cache=part, final=self.final[pairs])

    def later(self, entering: Entering, start: int) -> Float[Tensor, "group pair pos d_model"]:
        """Return the last stream of rows that enter, in the order of `entering`, from position `start` on."""
        blocks, n_layers = self.model.blocks, self.model.cfg.n_layers
        order = sorted(entering, key=lambda place: (place[0], place[1] == "after"))
        if list(entering) != order:
            raise ValueError("later: expected rows in the order of layers.")
        stream = self.final.new_zeros(0, *self.final[:, start:].shape)
        for layer in range(n_layers + 1):
            stream = torch.cat([stream, *(entering[place] for place in order if place == (layer, "before"))])
            if layer == n_layers:
                return stream
            mlp, beside = blocks[layer].mlp, stream
            if len(stream):
                stream = stream + self._attention(layer, stream, start)
            after = [entering[place] for place in order if place == (layer, "after")]
            if mlp is not None and self.model.cfg.parallel:
                # What enters after attention changes nothing that the MLP reads.
                written = [mlp(blocks[layer].ln2(beside))] if len(beside) else []
                own = self.cache[hook_names.mlp_out(layer)][:, start:]
                stream = torch.cat([stream, *after])
                written += [own.expand(len(rows), *own.shape) for rows in after]
                stream = stream + torch.cat(written) if written else stream
                continue
            stream = torch.cat([stream, *after])
            if mlp is not None and len(stream):
                stream = stream + mlp(blocks[layer].ln2(stream))
        raise AssertionError("unreachable")

    def _attention(self, layer: int, stream: Float[Tensor, "group pair pos d_model"], start: int) -> Tensor:
        """Return a layer's attention's output for rows of which the positions before `start` are those of this run."""
        model, cfg = self.model, self.model.cfg
        block, (n, pairs) = model.blocks[layer], stream.shape[:2]
        x = block.ln1(stream).flatten(0, 1)
        x_qk = x + model.W_pos[start : self.final.shape[1]] if cfg.positions == "qk" else x
        q, k, v = block.attn.clipped(*block.attn.project(x, x_qk))
        z = self.attended(layer, q, k, v, start)
        written = F.linear(z.flatten(2), block.attn.W_O.flatten(0, 1).T, block.attn.b_O)
        return written.unflatten(0, (n, pairs))

    def attended(
        self, layer: int, q: Tensor | None, k: Tensor | None, v: Float[Tensor, "row pos head d_head"], start: int
    ) -> Float[Tensor, "row pos head d_head"]:
        """Return z of queries, keys and values from `start` on; keys and values at earlier positions are those of this
        run."""
        n = len(v) // len(self.x)

        def whole(part: Tensor, name: str) -> Tensor:
            """Keys or values of all positions, `[row, head, pos, d_head]`."""
            if start:
                known = self.attn(layer, name)[:, :start]
                part = torch.cat([known.expand(n, *known.shape).flatten(0, 1), part], 1)
            return part.transpose(1, 2)

        attn, order = self.model.blocks[layer].attn, self.model.order(self.final.shape[1], layer)
        values = whole(v, hook_names.V)
        if q is None or k is None:
            z = self._fixed(layer, start) @ values
        else:
            keys = attn.placed(whole(k, hook_names.K).transpose(1, 2), "k", order).transpose(1, 2)
            z = self._scored(layer, attn.placed(q, "q", order, start).transpose(1, 2), keys, values, order, start)
        return z.transpose(1, 2)

    def _fixed(self, layer: int, start: int) -> Tensor:
        n_pos = self.final.shape[1]
        pattern = self.model.blocks[layer].attn.fixed_pattern[None, :, start:n_pos, :n_pos]
        visible = self.visible(layer, start)
        return pattern if visible is None else pattern * visible

    def visible(self, layer: int, start: int = 0) -> Tensor | None:
        """Return the keys that a layer's queries from `start` on see, `[1, 1 or head, query, key]`; None for all."""
        visible = self.model.visible_keys(self.final.shape[1], None, self.final.device, layer)
        return None if visible is None else visible[:, :, start:]

    def _scored(self, layer: int, q: Tensor, k: Tensor, v: Tensor, order: PositionTerms, start: int) -> Tensor:
        cfg, visible = self.model.cfg, self.visible(layer, start)
        if uses_sdpa(cfg):
            return attended(cfg, q, k, v, order, visible, start=start)
        return self.pattern_of(layer, scores_of(cfg, q, k, order, start), start) @ v

    def pattern_of(self, layer: int, scores: Tensor, start: int = 0, head: int | None = None) -> Tensor:
        """Return φ of masked scores `[row, head, query, key]` from query `start` on; with `head`, under that head's
        mask."""
        visible = self.visible(layer, start)
        if visible is not None:
            visible = visible if head is None or visible.shape[1] == 1 else visible[:, head : head + 1]
            scores = scores.masked_fill(~visible, float("-inf"))
        return apply_phi(self.model.cfg, scores, visible)

    def read_out(
        self, final: Float[Tensor, "*group pair pos d_model"], columns: Float[Tensor, "pair d_model"] | None = None
    ) -> Tensor:
        """Return logits `[*group, pair, out]` of what the read-out reads of the last stream, whose last position is the
        prompt's; positions before its first, which pooling reads too, are those of this run. With `columns`, a
        direction of the read-out each pair, what the logits are along it, `[*group, pair]`.
        """
        model = self.model
        if model.cfg.read_out == "classes" and model.cfg.pooling is not None:
            before = self.final[:, : self.final.shape[1] - final.shape[-2]]
            final = torch.cat([before.expand(*final.shape[:-3], *before.shape), final], -2)
            stream = model.ln_final(final)
            flat = stream.flatten(0, -3)
            read = model.unembed.pool(flat, None).unflatten(0, stream.shape[:-2])
        else:
            read = model.ln_final(final[..., -1, :])
        if columns is not None:
            return (read * columns).sum(-1)
        return model.unembed(read, tied=model.embed.W_E if model.cfg.tied_embeddings else None)


def require_bare(model: AttentionOnlyTransformer, purpose: str) -> None:
    """Raise `ValueError` for a model that somebody listens to: what runs from a layer on calls no hooks."""
    hooked = [name for name, point in model.hook_dict.items() if point.has_hooks()]
    if hooked:
        raise ValueError(
            f"{purpose}: expected a model without hooks, found some at {', '.join(hooked[:3])}; take them off with "
            "model.reset_hooks(), or use model.run_with_hooks for what they do together."
        )
