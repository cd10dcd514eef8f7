"""The circuit of a head that is asked for, with what the model has in the place of what it has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from aotlens.views.circuit_choice import Chosen, left_sides, most_distance, right_sides
from aotlens.views.circuits import CIRCUIT
from app.core import Core
from app.core.errors import RequestError
from app.core.labels import Labels, labels_of
from app.core.workshop import AppWorkshop
from app.pages.circuits.address import ADDRESS, FIRST_Z, CircuitsState

if TYPE_CHECKING:
    from aotlens.circuits import Circuit

#: Lines that are chosen, by the names of the address: which side they are of, and whether several are.
LINES = {"rows": (0, True), "columns": (1, True), "row": (0, False), "column": (1, False)}


@dataclass(frozen=True, kw_only=True)
class CircuitRequest(Chosen):
    """A circuit that the model has, and what else the page says of it."""

    problem: str
    """The reason why there is no such circuit, or nothing."""
    said: tuple[str, ...] = ()
    """A sentence for each thing that the address named and this circuit has not."""
    block_said: str = ""
    """The same of the block."""
    spaces: tuple[tuple[str, str, int], ...] = ()
    """The kinds of the rows and the columns, and their numbers: lines that are chosen stay while this does."""
    before: Mapping[str, Any] | None = None
    """The values that were shown when this was asked for."""


class Circuits:
    """Circuits of all checkpoints."""

    def __init__(self, core: Core) -> None:
        # A head that is looked at has some eight results, and people go back and forth between heads.
        self.core, self.workshop = core, AppWorkshop(core, 8 * core.settings.n_views)
        self._labels = core.memory.cache(2 * core.settings.max_models)

    def values(
        self, form: Mapping[str, Any], rows: Any = None, columns: Any = None, row: Any = None, column: Any = None,
        statistic: str = "extreme", block: Any = None, z: Any = None, *, asked: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
    ) -> CircuitRequest:  # fmt: skip
        """Return what the page shows for its form. What the address named (`asked`) counts with nothing shown `before`.

        Raises RequestError for a checkpoint that isn't there or can't be opened.
        """
        chosen = self._circuit(form)
        if chosen.problem:
            return replace(chosen, before=before)
        sides = self.labels(chosen)
        spaces = tuple((chosen.checkpoint, side.of, side.n) for side in sides)
        wanted = {"rows": rows, "columns": columns, "row": row, "column": column}
        sentences = []
        if before is None and asked is not None:
            wanted = {name: asked[name] for name in LINES}
            for name in ("left", "right"):
                if asked[name] not in (None, getattr(chosen, name)):
                    instead = "a side of this circuit", getattr(chosen, name)
                    sentences.append(ADDRESS.sentence(name, asked[name], *instead))
        elif before is not None:
            same = [tuple(space) for space in before["spaces"] or [(), ()]]
            wanted = {name: wanted[name] if same[side] == spaces[side] else None for name, (side, _) in LINES.items()}
        lines: dict[str, Any] = {}
        for name, (side, several) in LINES.items():
            labels, indices = sides[side], _indices(wanted[name])
            there = tuple(index for index in indices if 0 <= index < labels.n)
            lines[name] = there if several else next(iter(there), None)
            if there != indices and before is None:
                written = ADDRESS.written(name, indices if several else indices[0])
                expected = f"{labels.plural} from 0 to {labels.n - 1:,}"
                sentences.append(ADDRESS.sentence(name, written, expected, there if several and there else None))
        block, block_said = self._block(block, sides)
        return replace(
            chosen, **lines, statistic=statistic, block=block, z=z if isinstance(z, int | float) else FIRST_Z,
            said=tuple(sentences), block_said=block_said, spaces=spaces, before=before,
        )  # fmt: skip

    def of_address(self, state: CircuitsState) -> CircuitRequest:
        """Return the request that an address says."""
        values = {field.name: getattr(state, field.name) for field in fields(state)}
        form = {name: values[name] for name in ("checkpoint", "head", "kind", "left", "right", "biases", "distance")}
        return self.values(form, statistic=state.statistic, block=state.block, z=state.z, asked=values)

    def around(self, form: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the form with each head that an arrow key leads to."""
        asked = self._circuit(form)
        layer, head = asked.head
        for there in ((layer, head + 1), (layer, head - 1), (layer + 1, head), (layer - 1, head)):
            if 0 <= there[0] < asked.model.n_layers and 0 <= there[1] < asked.model.n_heads:
                yield {**form, "head": list(there)}

    def circuit(self, chosen: Chosen) -> Circuit:
        """Return the circuit itself, factored. Raises RequestError where the library refuses it."""
        circuit: Circuit = self.workshop.result(CIRCUIT, chosen)
        return circuit

    def labels(self, chosen: Chosen) -> tuple[Labels, Labels]:
        """Return the labels of the circuit's rows and its columns, for people."""
        circuit, loaded = self.circuit(chosen), self.core.catalog.load(chosen.checkpoint)
        left, right = (
            self._labels.get((loaded.key, side, n), lambda side=side, n=n: labels_of(side, n, loaded.model))
            for side, n in zip((circuit.left, circuit.right), circuit.shape, strict=True)
        )
        return left, right

    def labels_shown(self, of_columns: bool, shown: Any) -> Labels | None:
        """Return the labels of the rows or columns of what the store `shown` says; None where nothing is."""
        if not shown or shown.get("problem"):
            return None
        return self.labels(self._circuit(shown["form"]))[of_columns]

    def _circuit(self, form: Mapping[str, Any]) -> CircuitRequest:
        """The circuit that a form names; a head or a side that there isn't is the first there is."""
        name = form["checkpoint"] or self.core.catalog.default()
        model, settings = self.core.catalog.load(name).model.cfg, self.core.settings
        layer, head = map(int, form["head"] or (0, 0))
        if not (0 <= layer < model.n_layers and 0 <= head < model.n_heads):
            layer, head = 0, 0
        kind = "ov" if form["kind"] == "ov" else "qk"
        sides = {}
        for side, offered in (("left", left_sides), ("right", right_sides)):
            there = offered(model, layer, kind)
            sides[side] = form[side] if form[side] in there else next(iter(there))
        most, distance = most_distance(model, kind), form["distance"]
        asked = CircuitRequest(
            checkpoint=str(name), model=model, head=(layer, head), kind=kind, **sides,
            biases=bool(form["biases"]) and has_biases(model, kind),
            distance=min(int(distance), most) if most and distance is not None else None, n_entries=settings.n_entries,
            n_lines=settings.map_tokens, n_blocks=settings.overview_blocks, problem="",
        )  # fmt: skip
        problem = CIRCUIT.missing(asked)
        try:
            problem or self.circuit(asked)
        except RequestError as error:
            problem = str(error)
        return replace(asked, problem=problem or "")

    def _block(self, block: Any, sides: tuple[Labels, Labels]) -> tuple[tuple[int, int] | None, str]:
        """The block of that place; None for none, and, for one that there isn't, with a sentence."""
        if block is None:
            return None, ""
        most = self.core.settings.overview_blocks
        counts = [-(-side.n // -(-side.n // most)) for side in sides]
        row, column = map(int, block)
        if 0 <= row < counts[0] and 0 <= column < counts[1]:
            return (row, column), ""
        whole = " × ".join(map(str, counts))
        return None, ADDRESS.sentence("block", ADDRESS.written("block", (row, column)), f"one of {whole} blocks", None)


def has_biases(model: Any, kind: str) -> bool:
    """Return whether there are biases that a circuit can have in every entry."""
    return kind == "qk" and model.has_query_key and bool(model.bias or model.norm)


def _indices(wanted: Any) -> tuple[int, ...]:
    """The lines of a choice: a list or a single one, of texts or numbers, or nothing."""
    if wanted is None:
        return ()
    return tuple(dict.fromkeys(map(int, wanted if isinstance(wanted, list | tuple) else [wanted])))
