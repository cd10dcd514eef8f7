"""What a circuit is made of and what surrounds it: singular pairs, composition, copying, as records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import Head
from aotlens.plots import Edge
from app.core.errors import RequestError
from app.pages.circuits.service import Circuits, Shown

if TYPE_CHECKING:
    from aotlens.circuits import Composition, Spectrum

#: Lines that a picture of composition has at most; the strongest stay.
MAX_EDGES = 60

#: How a later head reads an earlier one.
MODES = {"q": "queries (q)", "k": "keys (k)", "qk": "queries and keys (q = k)", "v": "values (v)"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Around:
    """What surrounds a head."""

    edges: list[Edge]
    """Every pair that the head is in, the highest score first."""
    above_null: list[Edge]
    """Those of them that lie above their null (`Composition.edges`)."""
    compositions: Mapping[str, Composition]
    mssa: bool


def around(circuits: Circuits, checkpoint: str, head: Head) -> Around:
    """The composition of a head with every head of other layers."""
    found = circuits.composition(checkpoint)
    cfg = circuits.config(checkpoint)
    mssa = cfg.attention == "mssa" and not cfg.position_kind.rotates  # q and k are then one number
    edges = all_edges(found, head, one_matrix=mssa)
    above_null = [edge for edge in edges if _in(found, edge).edges[(*edge.earlier, *edge.later)]]
    return Around(edges=edges, above_null=above_null, compositions=found, mssa=mssa)


def singular_pairs(shown: Shown, found: Spectrum, n_labels: int = 8) -> list[dict[str, Any]]:
    """Two records a pair, one a sign: rows and columns of the same record raise each other's entry."""
    records = []
    size = float((found.singular_values**2).sum())
    for pair in range(len(found.left.highest)):
        for sign, rows, columns in (
            ("+", found.left.highest[pair], found.right.highest[pair]),
            ("−", found.left.lowest[pair], found.right.lowest[pair]),
        ):
            records.append(
                {
                    "pair": pair + 1,
                    "sign": sign,
                    "value": float(found.singular_values[pair]),
                    "share": float(found.singular_values[pair] ** 2) / size if size else 0.0,
                    "rows": [shown.rows.short(int(row)) for row in rows[:n_labels]],
                    "columns": [shown.columns.short(int(column)) for column in columns[:n_labels]],
                }
            )
    return records


def all_edges(compositions: Mapping[str, Composition], head: Head, *, one_matrix: bool) -> list[Edge]:
    """Every pair that a head is in, the highest score first.

    `one_matrix`: an MSSA model, whose q and k composition are one number, told once.
    """
    edges = []
    for mode, found in compositions.items():
        if one_matrix and mode == "k":
            continue
        name = "qk" if one_matrix and mode == "q" else mode
        n_layers, n_heads = found.values.shape[:2]
        for layer in range(n_layers):
            if layer == head[0]:
                continue
            for index in range(n_heads):
                earlier, later = ((layer, index), head) if layer < head[0] else (head, (layer, index))
                pair = (*earlier, *later)
                value, z, rank = float(found.values[pair]), float(found.z_signs[pair]), int(found.rank[pair])
                edges.append(Edge(earlier=earlier, later=later, mode=name, value=value, z=z, rank=rank))
    return sorted(edges, key=lambda edge: -edge.value)


def _in(compositions: Mapping[str, Composition], edge: Edge) -> Composition:
    """The composition that an edge is of."""
    return compositions["q" if edge.mode == "qk" else edge.mode]


def through(edge: Edge) -> dict[str, Any]:
    """The later head's circuit through the earlier one, as the page asks for it: QK for q and k composition, OV for v.

    Where queries and keys are one matrix (qk), the keys' side.
    """
    earlier, (layer, head) = f"{edge.earlier[0]}.{edge.earlier[1]}", edge.later
    side = "right" if edge.mode in ("k", "qk") else "left"
    sides = {"left": None, "right": None, side: earlier}
    return {"layer": layer, "head": head, "kind": "ov" if edge.mode == "v" else "qk", **sides}


def above(edges: list[Edge], z: float) -> list[Edge]:
    """Those at or above a z-score, the strongest at most `MAX_EDGES`."""
    return [edge for edge in edges if edge.z >= z][:MAX_EDGES]


def edge_records(edges: list[Edge], head: Head, compositions: Mapping[str, Composition]) -> list[dict[str, Any]]:
    """One record an edge, in the order given."""
    records = []
    for place, edge in enumerate(edges, start=1):
        other = edge.earlier if edge.later == head else edge.later
        found, pair = _in(compositions, edge), (*edge.earlier, *edge.later)
        records.append(
            {
                "key": str(place),
                "relation": "reads" if edge.later == head else "is read by",
                "head": f"{other[0]}.{other[1]}",
                "goto": list(other),
                "mode": MODES[edge.mode],
                "through": through(edge),
                "value": edge.value,
                "rank": edge.rank,
                "above_null": "yes" if found.edges[pair] else "no",
                "z": edge.z if math.isfinite(edge.z) else None,
                "z_turned": float(found.z[pair]) if math.isfinite(found.z[pair]) else None,
                "norm": float(found.norms[pair]),
                "random_mean": float(found.random_mean[pair]),
                "random_std": float(found.random_std[pair]) if math.isfinite(found.random_std[pair]) else None,
                "turned": f"{found.random_mean[pair]:.3g} ± {np.nan_to_num(found.random_std[pair]):.2g}",
            }
        )
    return records


def copying(circuits: Circuits, checkpoint: str, head: Head) -> tuple[list[dict[str, Any]], str]:
    """One record a head, and what to say where some or all have none.

    Rates take a pass over all entries, so that a large model gets only the chosen head's.
    """
    cfg = circuits.config(checkpoint)
    if cfg.read_in != "tokens" or cfg.read_out != "tokens":
        return [], "Copying is from tokens to the same tokens: this model doesn't both read and write tokens."
    assert cfg.d_vocab is not None
    heads = [(layer, index) for layer in range(cfg.n_layers) for index in range(cfg.n_heads)]
    too_many = cfg.d_vocab**2 * cfg.d_head * len(heads) > circuits.settings.max_copying_products
    records = []
    for rank, (layer, index) in enumerate([head] if too_many else heads, start=1):
        try:
            copies = circuits.copying(checkpoint, (layer, index))
        except RequestError as error:
            return [], str(error)
        records.append(
            {
                "key": str(rank),
                "rank": rank,
                "head": f"{layer}.{index}",
                "goto": [layer, index],
                "chosen": (layer, index) == head,
                **asdict(copies),
            }
        )
    only = " Only the chosen head's: all heads of a model of this size would take long." if too_many else ""
    return records, f"Over {cfg.d_vocab:,} tokens, tokens × logits.{only}"
