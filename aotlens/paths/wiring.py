"""A model as a graph of edges: who writes into the residual stream, who reads it, and what each reader gets from each.

    embed → 0.1.q      0.1 → 1.0.k      0.1 → mlp 0      1.0 → logits

Senders are what enters the first layer (`embed`), every head and every MLP; receivers are every head's queries, keys
and values, every MLP, and the read-out. An edge goes from a sender to a receiver that reads the stream after it. Every
receiver reads a stream of its own,

    Σ over senders s of  own(s)  where the edge is kept,  other(s)  where it is not,

own(s) being what s writes in *this* run, recomputed from what it read, and other(s) what it wrote in another one. With
all edges kept it is the model; with none the read-out reads the other run. Taking out one edge is path patching (Wang
et al. 2022; Goldowsky-Dill et al. 2023); keeping those of a circuit and taking all others from a corrupted prompt is
what a circuit's faithfulness is measured by (Conmy et al. 2023, ACDC; Hanna et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.paths.runs import Run

_SIDES = ("q", "k", "v")


class Edge(NamedTuple):
    """The edge from what writes into the stream to what reads it: ("0.1", "1.0.k")."""

    source: str
    destination: str

    def __str__(self) -> str:
        return f"{self.source} → {self.destination}"

    @property
    def receiver(self) -> tuple[str, str]:
        """The receiver, and the input by which it reads: ("1.0", "k"); ("logits", "") of what reads in one way."""
        name, side = self.destination, self.destination[-1]
        return (name[:-2], side) if name[-2:] in (".q", ".k", ".v") else (name, "")


#: An edge, or how it is written: "0.1 → 1.0.k", "0.1 -> 1.0.k", ("0.1", "1.0.k").
EdgeLike: TypeAlias = Edge | tuple[str, str] | str


@dataclass(frozen=True, kw_only=True)
class Wires:
    """All edges of a model: receivers by senders, either in the order in which they run."""

    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    exists: Bool[Tensor, "receiver sender"]
    n_layers: int
    joint_norm: bool = False
    """Whether one norm takes the queries (and keys) of all heads of a layer, so that each head reads those of all."""

    @classmethod
    def of(cls, model: AttentionOnlyTransformer) -> Wires:
        """Return the wires of a model; a φ without scores has no queries and keys.

        Raises `ValueError` for what is no model of ours.
        """
        require_ours(model, "Wires.of", without=("norm_after", "norm_output"))
        cfg = model.cfg
        sides = _SIDES if cfg.has_query_key else ("v",)
        senders, receivers, seen = ["embed"], [], []
        for layer in range(cfg.n_layers):
            heads, before = [f"{layer}.{head}" for head in range(cfg.n_heads)], len(senders)
            receivers += [f"{head}.{side}" for side in sides for head in heads]
            seen += [len(senders)] * len(sides) * len(heads)
            senders += heads
            if not cfg.attn_only:
                receivers.append(f"mlp {layer}")
                seen.append(before if cfg.parallel else len(senders))
                senders.append(f"mlp {layer}")
        receivers.append("logits")
        seen.append(len(senders))
        exists = torch.arange(len(senders)) < torch.tensor(seen)[:, None]
        return cls(senders=tuple(senders), receivers=tuple(receivers), exists=exists, n_layers=cfg.n_layers,
                   joint_norm=cfg.qk_norm == "layer")  # fmt: skip

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, by receiver."""
        return tuple(Edge(self.senders[s], self.receivers[r]) for r, s in self.exists.nonzero().tolist())

    def edge(self, written: EdgeLike) -> Edge:
        """Return an edge as it is called here. Raises `ValueError` for what is none."""
        parts = written.replace("->", "→").split("→") if isinstance(written, str) else written
        names = [" ".join(str(part).split()) for part in parts] if isinstance(parts, list | tuple) else []
        if len(names) == 2 and names[0] in self.senders and names[1] in self.receivers:
            edge = Edge(*names)
            if self.exists[self._place(edge)]:
                return edge
            raise ValueError(f"edge {edge}: {edge.source} writes after {edge.destination} has read.")
        raise ValueError(
            f"edge {written!r}: expected '{self.senders[1]} → {self.receivers[-1]}' or the like, from one of "
            f"{', '.join(self.senders[:3])}, … to one of {', '.join(self.receivers[:3])}, …, {self.receivers[-1]}."
        )

    def mask(self, edges: Iterable[EdgeLike]) -> Bool[Tensor, "receiver sender"]:
        """Return the mask of the edges that are meant. Raises `ValueError` as `edge`."""
        mask = torch.zeros_like(self.exists)
        for written in edges:
            mask[self._place(self.edge(written))] = True
        return mask

    def named(self, mask: Bool[Tensor, "receiver sender"]) -> tuple[Edge, ...]:
        """Return the edges of a mask, by receiver."""
        return tuple(Edge(self.senders[s], self.receivers[r]) for r, s in (mask & self.exists).nonzero().tolist())

    def connected(self, mask: Bool[Tensor, "receiver sender"]) -> Bool[Tensor, "receiver sender"]:
        """Return the edges of a mask on a way from `embed` to `logits` within it, since others change nothing; all of
        them with a `joint_norm`."""
        remaining = mask & self.exists
        while not self.joint_norm:
            reached = {"embed"} | {edge.receiver[0] for edge in self.named(remaining)}
            used = {self.senders[s] for s in remaining.any(0).nonzero()[:, 0].tolist()}
            senders = torch.tensor([name in reached for name in self.senders])
            read_by = [Edge("", name).receiver[0] for name in self.receivers]
            receivers = torch.tensor([name == "logits" or name in used for name in read_by])
            fewer = remaining & senders & receivers[:, None]
            if torch.equal(fewer, remaining):
                break
            remaining = fewer
        return remaining

    def _place(self, edge: Edge) -> tuple[int, int]:
        return self.receivers.index(edge.destination), self.senders.index(edge.source)


class Wired:
    """Runs of a model on pairs of prompts of one length, each reader of the stream with edges of its own; in a causal
    model, from the first position that differs."""

    def __init__(self, own: Run, other: Run) -> None:
        if own.x.shape != other.x.shape:
            raise ValueError(
                f"edges: expected two prompts of one length, got shapes {list(own.x.shape)} and {list(other.x.shape)}."
            )
        self.own, self.other, self.model = own, other, own.model
        self.wires = Wires.of(self.model)
        differs = (own.before(0) != other.before(0)).any(-1).any(0)
        first = int(differs.nonzero()[0]) if bool(differs.any()) else 0
        self.start = 0 if self.model.sees_later_keys else first

    @cached_property
    def differences(self) -> Float[Tensor, "sender pair pos d_model"]:
        """own(s) − other(s) of every sender, in the two runs as they are, from `start` on."""
        own, other = self.own, self.other
        parts = [(own.before(0) - other.before(0))[None, :, self.start :]]
        for layer, block in enumerate(self.model.blocks):
            z = own.attn(layer, hook_names.Z) - other.attn(layer, hook_names.Z)
            parts.append(torch.einsum("bphk,hkd->hbpd", z[:, self.start :], block.attn.W_O))
            if block.mlp is not None:
                mlp = hook_names.mlp_out(layer)
                parts.append((own.cache[mlp] - other.cache[mlp])[None, :, self.start :])
        return torch.cat(parts)

    def final(
        self,
        kept: Bool[Tensor, "group receiver sender"] | Bool[Tensor, "group receiver sender pos"],
        *,
        share: float = 1.0,
        reads: list[Tensor] | None = None,
    ) -> Float[Tensor, "group pair pos d_model"]:
        """Compute the read-out's input from `start` on, with these edges kept in each row, at all positions or at some.

        `reads` records gradients and collects the streams of receivers, `[group, receiver of the layer, pair, pos,
        d_model]`. `share` of the difference between the prompts enters.
        """
        model, other, start = self.model, self.other, self.start
        existing = self.wires.exists if kept.ndim == 3 else self.wires.exists[..., None]
        mask = (kept & existing).to(other.final.device, other.final.dtype)
        entering = share * (self.own.before(0) - other.before(0))[None, None, :, start:]
        if reads is not None:
            entering = entering.detach().requires_grad_()
        written = [entering.expand(len(kept), *entering.shape[1:])]  # own − other of each sender, as it runs
        place = 0

        def read(stream: Tensor, n: int) -> Tensor:
            """Return the input of the next n receivers: the other run's stream, and what kept edges bring instead."""
            nonlocal place
            rows = mask[:, place : place + n]
            place += n
            inputs = stream[None, None, :, start:].expand(len(kept), n, -1, -1, -1)
            first = 0
            for part in written:
                of_part = rows[:, :, first : first + part.shape[1]]
                subscripts = "grsp,gsbpd->grbpd" if of_part.ndim == 4 else "grs,gsbpd->grbpd"
                inputs = inputs + torch.einsum(subscripts, of_part, part)
                first += part.shape[1]
            if reads is not None:
                reads.append(inputs)
            return inputs

        for layer, block in enumerate(model.blocks):
            z = self._heads(layer, read)
            changed = z - other.attn(layer, hook_names.Z)[:, start:]
            written.append(torch.einsum("gbphk,hkd->ghbpd", changed, block.attn.W_O))
            if block.mlp is not None:
                stream = other.before(layer) if model.cfg.parallel else other.after(layer)
                out = block.mlp(block.ln2(read(stream, 1)))
                written.append(out - other.cache[hook_names.mlp_out(layer)][:, start:])
        return read(other.final, 1)[:, 0]

    def _heads(self, layer: int, read: Any) -> Float[Tensor, "group pair pos head d_head"]:
        """z of a layer's heads, of which each reads a stream of its own for queries, keys and values."""
        model, own, start = self.model, self.own, self.start
        cfg, block = model.cfg, model.blocks[layer]
        stream = self.other.before(layer)
        n_heads = cfg.n_heads
        vectors: dict[str, Tensor] = {}
        # At once for all sides: receivers are a layer's queries, keys and values, in this order.
        sides = _SIDES if cfg.has_query_key else ("v",)
        x = block.ln1(read(stream, len(sides) * n_heads)).unflatten(1, (len(sides), n_heads))
        for number, side in enumerate(sides):
            of_side = x[:, number]  # [group, head, pair, pos, d_model]
            if cfg.positions == "qk" and side != "v":
                of_side = of_side + model.W_pos[start : own.final.shape[1]]
            weight, bias = getattr(block.attn, f"W_{side.upper()}"), getattr(block.attn, f"b_{side.upper()}")
            projected = torch.einsum("ghbpd,hdk->gbphk", of_side, weight)
            (projected,) = block.attn.clipped(projected if bias is None else projected + bias)
            vectors[side] = projected.flatten(0, 1)
        z = own.attended(layer, vectors.get("q"), vectors.get("k"), vectors["v"], start)
        return z.unflatten(0, (-1, len(own.x)))
