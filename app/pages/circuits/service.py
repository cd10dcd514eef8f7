"""A head's circuits: which one is asked for, its entries, spectra and neighbours, each computed once.

Weights are read only, which needs no exclusive use of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from app.core import Core
from app.core.cache import Cache
from app.core.catalog import LoadedModel
from app.core.errors import RequestError
from app.core.labels import Labels, labels_of
from app.pages.circuits.address import CircuitsState, Kind, Statistic
from app.pages.circuits.service_sides import Option, left_options, right_options

if TYPE_CHECKING:
    import numpy as np

    from aotlens.circuits import Circuit, Composition, Overview, RowStatistics, Spectrum, TopEntries
    from aotlens.models import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which circuit of which head."""

    checkpoint: str
    layer: int
    head: int
    kind: Kind
    left: str
    right: str
    biases: bool
    distance: int | None = None
    """From source to destination, where the model's scores depend on it."""

    @property
    def name(self) -> str:
        """For titles and file names."""
        at = "" if self.distance is None else f" · distance {self.distance}"
        sides = f"{self.left} × {self.right}"
        return f"{self.checkpoint} · head {self.layer}.{self.head} · {self.kind.upper()} {sides}{at}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Described:
    """A choice that the model can answer, and what else it offers."""

    choice: Choice
    n_layers: int
    n_heads: int
    left_options: list[Option]
    """What the rows may be; the first is what they are unless told."""
    right_options: list[Option]
    can_have_biases: bool
    most_distance: int
    """The largest distance that may be chosen; 0 where the circuit does not depend on it."""
    reads_text: bool
    """Whether the Heads page can show the model."""
    problem: str
    """Why there is no such circuit, or nothing."""
    notes: list[str]
    """What to know before reading its numbers: why they are relative, and what is left out."""

    @property
    def named(self) -> dict[str, str | None]:
        """The sides as an address names them: None for what a side is unless told."""
        sides = {"left": (self.choice.left, self.left_options), "right": (self.choice.right, self.right_options)}
        return {name: None if side == offered[0].value else side for name, (side, offered) in sides.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """A circuit with the names of its rows and columns."""

    key: str
    choice: Choice
    circuit: Circuit
    rows: Labels
    columns: Labels
    causal: bool = False
    """Whether a source after its destination is never looked at."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends:
    """The largest and the smallest entries of a circuit, or of one row or column of it."""

    largest: TopEntries
    smallest: TopEntries
    largest_relative: np.ndarray
    """QK: entry − log-mean-exp of its row. OV: entry − mean of its row."""
    smallest_relative: np.ndarray
    row_statistics: RowStatistics | None = None
    """Of the one row."""


@dataclass(frozen=True, kw_only=True)
class Copying:
    """How much attending to a token promotes that same token."""

    score: float | None
    """Σ Re λ / Σ |λ| of the OV circuit's eigenvalues; None where there is none."""
    by_construction: bool
    top1: float
    """Share of tokens whose own logit is the largest of its row."""
    top5: float
    """Share of tokens whose own logit is among the five largest."""


class Circuits:
    """Circuits of all checkpoints, remembered."""

    def __init__(self, core: Core) -> None:
        self.core, self.settings = core, core.settings
        self._shown: Cache[str, Shown] = core.memory.cache()
        self._overviews: Cache[tuple[str, Statistic], Overview] = core.memory.cache(128)
        self._ends: Cache[tuple[Any, ...], Ends] = core.memory.cache(1024)
        self._spectra: Cache[str, Spectrum] = core.memory.cache(64)
        self._compositions: Cache[str, dict[str, Composition]] = core.memory.cache(32)
        self._copying: Cache[tuple[str, int, int], Copying] = core.memory.cache(1024)

    def describe(self, state: CircuitsState) -> Described:
        """The circuit that a state asks for; what the model doesn't have is replaced by what it has.

        Raises RequestError for a checkpoint that isn't there or can't be opened.
        """
        name = state.checkpoint or self.core.catalog.default()
        loaded = self.core.catalog.load(name)
        cfg = loaded.model.cfg
        layer, head = state.head or (0, 0)
        if layer >= cfg.n_layers or head >= cfg.n_heads:
            layer, head = 0, 0
        lefts, rights = left_options(cfg, layer, state.kind), right_options(cfg, layer, state.kind)
        biases = state.kind == "qk" and cfg.has_query_key and bool(cfg.bias or cfg.norm)
        depends = state.kind == "qk" and (cfg.position_kind.rotates or cfg.position_kind.biases)
        most = cfg.n_ctx - 1 if depends else 0
        choice = Choice(
            checkpoint=str(name),
            layer=layer,
            head=head,
            kind=state.kind,
            left=_offered(state.left, lefts),
            right=_offered(state.right, rights),
            biases=state.biases and biases,
            distance=min(state.distance, most) if depends and state.distance is not None else None,
        )
        problem, notes = self._check(choice, loaded)
        return Described(
            choice=choice,
            n_layers=cfg.n_layers,
            n_heads=cfg.n_heads,
            left_options=lefts,
            right_options=rights,
            can_have_biases=biases,
            most_distance=most,
            reads_text=self.core.catalog.reads_text(self.core.catalog.info(name)),
            problem=problem,
            notes=notes,
        )

    def _check(self, choice: Choice, loaded: LoadedModel) -> tuple[str, list[str]]:
        cfg = loaded.model.cfg
        if choice.kind == "qk" and not cfg.has_query_key:
            return (
                f"{choice.checkpoint} has a fixed attention pattern: its heads have no queries and no keys, so there "
                "is no QK circuit. What they write is there: choose OV above.",
                [],
            )
        try:
            shown = self.circuit(choice)
        except RequestError as error:
            return str(error), []
        return "", [*shown.circuit.reasons]

    def circuit(self, choice: Choice) -> Shown:
        """The circuit itself, factored, with labels."""
        loaded = self.core.catalog.load(choice.checkpoint)
        key = f"{loaded.key}:{choice}"
        return self._shown.get(key, lambda: _make(key, choice, loaded))

    def overview(self, choice: Choice, statistic: Statistic) -> Overview:
        """The whole matrix in blocks."""
        from aotlens.circuits import block_overview

        shown, n = self.circuit(choice), self.settings.overview_blocks
        return self._overviews.get((shown.key, statistic), lambda: block_overview(shown.circuit, n, statistic))

    def top(self, choice: Choice) -> Ends:
        """Both ends of the whole matrix."""
        shown = self.circuit(choice)
        return self._ends.get((shown.key,), lambda: self._both_ends(shown, range(shown.rows.n), range(shown.columns.n)))

    def row(self, choice: Choice, index: int) -> Ends:
        """Both ends of one row, and its statistics."""
        shown = self.circuit(choice)
        _check_index(index, shown.rows)

        def make() -> Ends:
            ends = self._both_ends(shown, [index], range(shown.columns.n))
            return replace(ends, row_statistics=_statistics(shown, [index]))

        return self._ends.get((shown.key, "row", index), make)

    def column(self, choice: Choice, index: int) -> Ends:
        """Both ends of one column."""
        shown = self.circuit(choice)
        _check_index(index, shown.columns)
        return self._ends.get(
            (shown.key, "column", index), lambda: self._both_ends(shown, range(shown.rows.n), [index])
        )

    def block(self, choice: Choice, rows: Sequence[int], columns: Sequence[int]) -> Ends:
        """Both ends of a block of the matrix."""
        shown = self.circuit(choice)
        key = (shown.key, "block", rows[0], rows[-1], columns[0], columns[-1])
        return self._ends.get(key, lambda: self._both_ends(shown, rows, columns))

    def values(self, choice: Choice, rows: Sequence[int], columns: Sequence[int]) -> np.ndarray:
        """Exact entries of the given rows and columns, float64."""
        import torch

        from aotlens.circuits import exact_block

        circuit = self.circuit(choice).circuit
        return exact_block(circuit, torch.tensor(list(rows)), torch.tensor(list(columns)))

    def spectrum(self, choice: Choice) -> Spectrum:
        """Eigenvalues and singular pairs."""
        from aotlens.circuits import spectrum

        shown = self.circuit(choice)
        return self._spectra.get(shown.key, lambda: spectrum(shown.circuit))

    def composition(self, checkpoint: str) -> dict[str, Composition]:
        """Of every pair of heads in different layers, by mode; without queries and keys only `v`."""
        from aotlens.circuits import all_compositions

        loaded = self.core.catalog.load(checkpoint)
        return self._compositions.get(loaded.key, lambda: {**all_compositions(loaded.model, folded=True)})

    def copying(self, checkpoint: str, head: tuple[int, int]) -> Copying:
        """A head's copying of tokens; what all heads of a model share is computed once for all of its views."""
        from aotlens.circuits import copying_rate, spectrum

        loaded = self.core.catalog.load(checkpoint)

        def make() -> Copying:
            # Neither its circuit nor its spectrum is kept: those of all heads would push out what is looked at.
            layer, index = head
            choice = Choice(
                checkpoint=checkpoint, layer=layer, head=index, kind="ov", left="tokens", right="logits", biases=False
            )
            of_head, rate = spectrum(_make("", choice, loaded).circuit), copying_rate(loaded.model, head)
            return Copying(
                score=of_head.copying_score,
                by_construction=of_head.by_construction,
                top1=float(rate.top1),
                top5=float(rate.top5),
            )

        return self._copying.get((loaded.key, *head), make)

    def config(self, checkpoint: str) -> ModelConfig:
        """The model's configuration."""
        return self.core.catalog.load(checkpoint).model.cfg

    def _both_ends(self, shown: Shown, rows: Sequence[int], columns: Sequence[int]) -> Ends:
        import torch

        from aotlens.circuits import FactoredMatrix, above_row_level, top_entries

        circuit = shown.circuit
        device = circuit.A.device
        at_rows, at_columns = torch.tensor(list(rows)), torch.tensor(list(columns))
        whole = len(rows) == shown.rows.n and len(columns) == shown.columns.n
        part = circuit if whole else FactoredMatrix(circuit.A[at_rows.to(device)], circuit.B[:, at_columns.to(device)])
        k = min(self.settings.n_entries, len(rows) * len(columns))
        found = []
        for largest in (True, False):
            top = top_entries(part, k, largest=largest)
            found.append(top._replace(rows=at_rows[top.rows], columns=at_columns[top.columns]))
        return Ends(
            largest=found[0],
            smallest=found[1],
            largest_relative=above_row_level(circuit, found[0].rows, found[0].values).numpy(),
            smallest_relative=above_row_level(circuit, found[1].rows, found[1].values).numpy(),
        )


def _make(key: str, choice: Choice, loaded: LoadedModel) -> Shown:
    from aotlens.circuits import ov_circuit, qk_circuit

    model, head = loaded.model, (choice.layer, choice.head)
    try:
        if choice.kind == "qk":
            circuit = qk_circuit(model, head, choice.left, choice.right, biases=choice.biases, distance=choice.distance)
        else:
            circuit = ov_circuit(model, head, choice.left, choice.right)
    except ValueError as error:
        raise RequestError(str(error)) from error
    rows, columns = (
        labels_of(side, n, model) for side, n in zip((circuit.left, circuit.right), circuit.shape, strict=True)
    )
    causal = model.cfg.causal and model.cfg.attn_mask is None
    return Shown(key=key, choice=choice, circuit=circuit, rows=rows, columns=columns, causal=causal)


def _statistics(shown: Shown, rows: Sequence[int]) -> RowStatistics:
    import torch

    from aotlens.circuits import FactoredMatrix, row_statistics

    A = shown.circuit.A
    return row_statistics(FactoredMatrix(A[torch.tensor(list(rows)).to(A.device)], shown.circuit.B))


def _offered(wanted: str | None, options: list[Option]) -> str:
    values = [option.value for option in options]
    return wanted if wanted in values else values[0]


def _check_index(index: int, labels: Labels) -> None:
    if not 0 <= index < labels.n:
        raise RequestError(f"There is no {labels.of} {index} here: they go from 0 to {labels.n - 1}. Choose another.")
