"""The choice of a head's circuit, and of what of it is looked at; what its sides may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head
from aotlens.views.calls import Call, Load, Part, call

if TYPE_CHECKING:
    from aotlens.models import ModelConfig

#: Entries at either end that are listed, rows and columns of a map, blocks a side of an overview.
N_ENTRIES, N_LINES, N_BLOCKS = 100, 16, 256
#: Operations that copying rates of all heads may take; of a model with more, the chosen head's alone are measured.
MOST_COPYING = 2e11
#: The cost of a multiplication or addition of a streamed matrix product: they are some ten times as fast as those of a
#: model's pass.
_STREAMED = 0.1


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A circuit of a head, and what of it is looked at."""

    checkpoint: str
    model: ModelConfig
    head: Head
    kind: str
    left: str
    """The side of the rows: tokens, positions, bias, residual, or an earlier head, `0.3`."""
    right: str
    """The columns, likewise; of an OV circuit logits, residual, or a later head."""
    biases: bool = False
    """Whether the biases are in every entry of a QK circuit."""
    distance: int | None = None
    """The distance from source to destination, where a QK circuit depends on it; None: the mean over all distances."""
    rows: tuple[int | str, ...] = ()
    """The map's rows; none: those of the largest entries."""
    columns: tuple[int | str, ...] = ()
    row: int | str | None = None
    """The row that is listed; None: that of the largest entry."""
    column: int | str | None = None
    statistic: str = "extreme"
    block: tuple[int, int] | None = None
    """The block whose entries are listed; None: that of the largest entry."""
    z: float | int = 0
    """The least z of the pairs above their null that are drawn."""
    n_entries: int = N_ENTRIES
    n_lines: int = N_LINES
    n_blocks: int = N_BLOCKS

    @property
    def name(self) -> str:
        """The head as it is written."""
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
        given: Any = Part(self.entries, f"largest_{axis}") if which is None else which
        return call("aotlens.circuits.extreme_entries", self.circuit, self.n_entries, **{axis: given})

    @property
    def pairs_of_all(self) -> Call:
        """The composition of all pairs of heads."""
        return call("aotlens.circuits.all_compositions", Load(self.checkpoint), folded=True).named("compositions")

    @property
    def copied(self) -> tuple[Head, ...] | None:
        """The heads whose copying is measured, None for all: of a large model, the chosen one."""
        return None if self.copying_cost(self.model.n_layers * self.model.n_heads) <= MOST_COPYING else (self.head,)

    def copying_cost(self, n_heads: int) -> float:
        """Return the operations of copying rates, two products of tokens × logits a head."""
        return 4.0 * n_heads * float(self.model.d_vocab or 0) ** 2 * self.model.d_head * _STREAMED

    def products(self, n: int) -> float:
        """Return the operations of n times the product of the circuit's factors."""
        rows, columns = self._sizes()
        return 2.0 * n * rows * columns * self.model.d_head * _STREAMED

    @property
    def spectrum_cost(self) -> float:
        """Operations of two decompositions of factors."""
        return 20.0 * sum(self._sizes()) * float(self.model.d_head) ** 2

    def _sizes(self) -> list[int]:
        """Return the numbers of rows and columns."""
        sizes = {"positions": self.model.n_ctx, "bias": 1, "residual": self.model.d_model}
        return [sizes.get(side) or self.model.d_vocab or self.model.d_out or 1 for side in (self.left, self.right)]

    def file(self, *parts: str) -> str:
        """Name a file about the circuit."""
        distance = [] if self.distance is None else [f"at-{self.distance}"]
        return "-".join([f"{self.checkpoint}-head-{self.name}-{self.kind}-{self.left}-{self.right}", *distance, *parts])


def most_distance(model: ModelConfig, kind: str) -> int:
    """Return the largest distance that may be chosen; 0 where the circuit does not depend on it."""
    depends = kind == "qk" and (model.position_kind.rotates or model.position_kind.biases)
    return model.n_ctx - 1 if depends else 0


def left_sides(model: ModelConfig, layer: int, kind: str) -> dict[str, str]:
    """List the sides that the rows of a circuit of a head in this layer may be (and of QK the columns), with labels;
    the first is what they are unless told."""
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
