"""The choice of a head's circuit, and of what of it is looked at; what its sides may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call
from aotlens.views.parameters import Limit, OfCheckpoint

if TYPE_CHECKING:
    from aotlens.models import ModelConfig

#: Entries at either end that are listed, rows and columns of a map, blocks a side of an overview.
N_ENTRIES, N_LINES, N_BLOCKS = 100, 16, 256
#: Operations that copying rates of all heads may take; of a model with more, those of the one head alone are measured.
MOST_COPYING = 2e11
#: The cost of a multiplication or addition of a streamed matrix product: they are some ten times as fast as those of a
#: model's pass.
_STREAMED = 0.1

KINDS = {"qk": "QK: what it attends to", "ov": "OV: what it writes"}
STATISTICS = {"extreme": "largest in size", "mean": "mean"}
_LARGEST, _ALL_LARGEST = "that of the largest entry", "those of the largest entries"
#: Parameters that change what the rows, and the columns, are.
_ROWS, _COLUMNS = ("checkpoint", "left"), ("checkpoint", "kind", "right")


@dataclass(frozen=True, kw_only=True)
class CircuitsParameters(OfCheckpoint):
    """A circuit of a head, and the part of it that is looked at."""

    head: Head = declare.head("Head, as layer.head")
    kind: str = declare.choice(KINDS, label="Circuit")
    left: str = declare.option("Rows", blank="tokens, where the model reads them")
    """The side of the rows: tokens, positions, bias, residual, or an earlier head, `0.3`; None is the
    default, and replaced by it."""
    right: str = declare.option("Columns", blank="tokens (QK) or logits (OV), where the model has them")
    """The columns, likewise; of an OV circuit logits, residual, or a later head."""
    biases: bool = declare.flag("Biases in the QK circuit", word="with")
    distance: int | None = declare.whole(None, most=10**6, label="Distance back", blank="mean")
    """The distance from source to destination, where a QK circuit depends on it (rotary positions, ALiBi); None: the
    mean over all distances."""
    rows: tuple[int | str, ...] = declare.row(
        "Rows of the map", several=48, blank=_ALL_LARGEST, searched=True, cleared_by=_ROWS, page_only=True
    )
    columns: tuple[int | str, ...] = declare.row(
        "Columns of the map", several=48, blank=_ALL_LARGEST, searched=True, cleared_by=_COLUMNS, page_only=True
    )
    row: int | str | None = declare.row("Row, a token or an id", blank=_LARGEST, searched=True, cleared_by=_ROWS)
    column: int | str | None = declare.row(
        "Column, a token or an id", blank=_LARGEST, searched=True, cleared_by=_COLUMNS
    )
    statistic: str = declare.choice(STATISTICS, label="Summary of a block", key="blocks")
    block: tuple[int, int] | None = declare.pair("Block, as row.column", blank=_LARGEST)
    z: int = declare.whole(0, most=999, label="Composition: least z drawn")
    n_entries: int = N_ENTRIES
    n_lines: int = N_LINES
    n_blocks: int = N_BLOCKS

    def __post_init__(self) -> None:
        for name, sides in zip(("left", "right"), self.sides(), strict=True):
            object.__setattr__(self, name, getattr(self, name) or next(iter(sides)))

    def limits(self) -> Mapping[str, Limit]:
        left, right = self.sides()
        distance, axes = most_distance(self.config, self.kind), self.axes()
        rows, columns = (Limit(most=n - 1, words=f"{lines} from 0 to {n - 1:,}") for lines, n in axes)
        blocks = [-(-n // -(-n // self.n_blocks)) for _, n in axes]
        shape = SimpleNamespace(n_layers=blocks[0], n_heads=blocks[1])
        return {
            "left": Limit(options=left),
            "right": Limit(options=right),
            "biases": Limit(off=not has_biases(self.config, self.kind)),
            "distance": Limit(most=distance, off=not distance, hidden=not distance),
            "rows": rows, "row": rows, "columns": columns, "column": columns,
            "block": Limit(shape=shape, words=f"one of {blocks[0]} × {blocks[1]} blocks"),
        }  # fmt: skip

    def sides(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the possible rows and columns of the circuit, with labels."""
        return tuple(sides(self.config, self.head[0], self.kind) for sides in (left_sides, right_sides))  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """The head's name."""
        return f"{self.head[0]}.{self.head[1]}"

    @property
    def circuit(self) -> Call:
        """The circuit itself, factored."""
        options: dict[str, Any] = {"biases": True} if self.biases else {}
        if self.distance is not None:
            options["distance"] = self.distance
        sides = Load(self.checkpoint), self.head, self.left, self.right
        return call(f"aotlens.circuits.{self.kind}_circuit", *sides, **options).named("circuit")

    @property
    def entries(self) -> Call:
        """Both ends of the whole matrix."""
        return call("aotlens.circuits.extreme_entries", self.circuit, self.n_entries).named("entries")

    def overview(self, statistic: str) -> Call:
        """Return the whole matrix in blocks."""
        return call("aotlens.circuits.block_overview", self.circuit, self.n_blocks, statistic).named("overview")

    def line(self, axis: str) -> Call:
        """Return both ends of the row, or of the column, that is listed."""
        which = getattr(self, axis)
        value: Any = Part(self.entries, f"largest_{axis}") if which is None else which
        return call("aotlens.circuits.extreme_entries", self.circuit, self.n_entries, **{axis: value})

    @property
    def pairs_of_all(self) -> Call:
        """The composition of all pairs of heads."""
        return call("aotlens.circuits.all_compositions", Load(self.checkpoint), folded=True).named("compositions")

    @property
    def copied(self) -> tuple[Head, ...] | None:
        """The heads whose copying is measured, None for all: of a large model, the one head."""
        return None if self.copying_cost(self.config.n_layers * self.config.n_heads) <= MOST_COPYING else (self.head,)

    def copying_cost(self, n_heads: int) -> float:
        """Return the operations of copying rates, two products of tokens × logits a head."""
        return 4.0 * n_heads * float(self.config.d_vocab or 0) ** 2 * self.config.d_head * _STREAMED

    def products(self, n: int) -> float:
        """Return the operations of n times the product of the circuit's factors."""
        (_, rows), (_, columns) = self.axes()
        return 2.0 * n * rows * columns * self.config.d_head * _STREAMED

    @property
    def spectrum_cost(self) -> float:
        """Operations of two decompositions of factors."""
        return 20.0 * sum(n for _, n in self.axes()) * float(self.config.d_head) ** 2

    def axes(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Return what the rows and the columns are, in the plural, and how many there are."""
        model = self.config
        sizes = {"positions": ("positions", model.n_ctx), "bias": ("biases", 1)}
        sizes["residual"] = ("directions", model.d_model)
        tokens = ("tokens", model.d_vocab or 1)
        outputs = ("classes", model.d_out or 1) if model.read_out == "classes" else tokens
        return sizes.get(self.left, tokens), sizes.get(self.right, outputs if self.kind == "ov" else tokens)

    def file(self, *parts: str) -> str:
        """Name a file about the circuit."""
        distance = [] if self.distance is None else [f"at-{self.distance}"]
        return "-".join([f"{self.checkpoint}-head-{self.name}-{self.kind}-{self.left}-{self.right}", *distance, *parts])


def has_biases(model: ModelConfig, kind: str) -> bool:
    """Return whether the model has biases that a circuit can have in every entry."""
    return kind == "qk" and model.has_query_key and bool(model.bias or model.norm)


def most_distance(model: ModelConfig, kind: str) -> int:
    """Return the largest distance; 0 if the circuit does not depend on it."""
    depends = kind == "qk" and (model.position_kind.rotates or model.position_kind.biases)
    return model.n_ctx - 1 if depends else 0


def left_sides(model: ModelConfig, layer: int, kind: str) -> dict[str, str]:
    """List the sides that the rows of a circuit of a head in this layer may be (and of QK the columns), with labels;
    the first is the default."""
    sides = {"tokens": "tokens"} if model.read_in == "tokens" else {}
    if model.positions == "learned" or (model.positions == "qk" and kind == "qk"):
        undivided = model.positions == "learned" and model.norm
        sides["positions"] = "positions (undivided)" if undivided else "positions"
    sides |= {"bias": "bias", "residual": "residual stream"}
    earlier = range(layer if model.read_in == "tokens" else 0)
    return sides | {
        f"{place}.{head}": f"tokens through {place}.{head}" for place in earlier for head in range(model.n_heads)
    }


def right_sides(model: ModelConfig, layer: int, kind: str) -> dict[str, str]:
    """List the sides that the columns may be, likewise."""
    if kind == "qk":
        return left_sides(model, layer, kind)
    sides = {}
    if model.read_out in ("tokens", "classes"):
        later = range(layer + 1, model.n_layers)
        through = {
            f"{place}.{head}": f"logits through {place}.{head}" for place in later for head in range(model.n_heads)
        }
        sides = {"logits": "logits", **through}
    return {**sides, "residual": "residual stream"}
