"""A head's circuits: which one is asked for, its entries, spectra and neighbours, each computed once.

Weights are read only, which needs no exclusive use of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from app.services.cache import Cache
from app.services.catalog import Catalog, LoadedModel
from app.services.errors import RequestError
from app.services.sides import Labels, Option, labels_of, left_options, right_options, spec
from app.settings import Settings
from app.urlstate import CircuitsState, Kind, Statistic

if TYPE_CHECKING:
    import numpy as np

    from aotlens.circuits import Circuit, Composition, CopyingRate, Overview, RowStatistics, Spectrum, TopEntries
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

    @property
    def name(self) -> str:
        """For titles and file names."""
        return f"{self.checkpoint} · head {self.layer}.{self.head} · {self.kind.upper()} {self.left} × {self.right}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Described:
    """A choice that the model can answer, and what else it offers."""

    choice: Choice
    n_layers: int
    n_heads: int
    left_options: list[Option]
    right_options: list[Option]
    can_have_biases: bool
    reads_text: bool
    """Whether the Heads page can show the model."""
    problem: str
    """Why there is no such circuit, or nothing."""
    notes: list[str]
    """What to know before reading its numbers: why they are relative, and what is left out."""


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

    @property
    def n_bytes(self) -> int:
        A, B = self.circuit.A, self.circuit.B
        return A.numel() * A.element_size() + B.numel() * B.element_size()


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


class Circuits:
    """Circuits of all checkpoints, remembered."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self.settings = settings
        self._catalog = catalog
        self._shown: Cache[str, Shown] = Cache(settings.circuit_cache_bytes, lambda kept: kept.n_bytes)
        self._overviews: Cache[tuple[str, Statistic], Overview] = Cache(128)
        self._ends: Cache[tuple[Any, ...], Ends] = Cache(1024)
        self._spectra: Cache[str, Spectrum] = Cache(64)
        self._compositions: Cache[str, dict[str, Composition]] = Cache(32)
        self._copying: Cache[tuple[str, int, int], CopyingRate] = Cache(1024)

    def describe(self, state: CircuitsState) -> Described:
        """The circuit that a state asks for; what the model doesn't have is replaced by what it has.

        Raises RequestError for a checkpoint that isn't there or can't be opened.
        """
        name = state.checkpoint or self._catalog.default()
        loaded = self._catalog.load(name)
        cfg = loaded.model.cfg
        layer, head = state.head or (0, 0)
        if layer >= cfg.n_layers or head >= cfg.n_heads:
            layer, head = 0, 0
        lefts, rights = left_options(cfg, layer, state.kind), right_options(cfg, layer, state.kind)
        biases = state.kind == "qk" and cfg.has_query_key and bool(cfg.bias or cfg.norm)
        choice = Choice(
            checkpoint=str(name),
            layer=layer,
            head=head,
            kind=state.kind,
            left=_offered(state.left, lefts),
            right=_offered(state.right, rights),
            biases=state.biases and biases,
        )
        problem, notes = self._check(choice, loaded)
        return Described(
            choice=choice,
            n_layers=cfg.n_layers,
            n_heads=cfg.n_heads,
            left_options=lefts,
            right_options=rights,
            can_have_biases=biases,
            reads_text=self._catalog.reads_text(self._catalog.info(name)),
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
        notes = [shown.circuit.relative] if shown.circuit.relative else []
        if cfg.d_mlp:
            notes.append(
                "This model also has an MLP after each attention layer. A circuit is the direct path only: what an MLP "
                "makes of a head's output, or gives a head to read, is not in it."
            )
        return "", notes

    def circuit(self, choice: Choice) -> Shown:
        """The circuit itself, factored, with labels."""
        loaded = self._catalog.load(choice.checkpoint)
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
        from aotlens.circuits import composition

        loaded = self._catalog.load(checkpoint)
        modes = ("q", "k", "v") if loaded.model.cfg.has_query_key else ("v",)
        return self._compositions.get(
            loaded.key, lambda: {mode: composition(loaded.model, mode, folded=True) for mode in modes}
        )

    def copying_rate(self, checkpoint: str, head: tuple[int, int]) -> CopyingRate:
        """How often a token's own logit is the largest, or among the five largest, of its row."""
        from aotlens.circuits import copying_rate

        loaded = self._catalog.load(checkpoint)
        return self._copying.get((loaded.key, *head), lambda: copying_rate(loaded.model, *head))

    def config(self, checkpoint: str) -> ModelConfig:
        """The model's configuration."""
        return self._catalog.load(checkpoint).model.cfg

    def _both_ends(self, shown: Shown, rows: Sequence[int], columns: Sequence[int]) -> Ends:
        import torch
        from transformer_lens import FactoredMatrix

        from aotlens.circuits import above_row_level, top_entries

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

    model, at = loaded.model, (choice.layer, choice.head)
    try:
        if choice.kind == "qk":
            circuit = qk_circuit(model, *at, spec(choice.left), spec(choice.right), biases=choice.biases)
        else:
            circuit = ov_circuit(model, *at, spec(choice.left), spec(choice.right))
    except ValueError as error:
        raise RequestError(str(error)) from error
    rows, columns = (
        labels_of(side, n, model) for side, n in zip((circuit.left, circuit.right), circuit.shape, strict=True)
    )
    causal = model.cfg.causal and model.cfg.attn_mask is None
    return Shown(key=key, choice=choice, circuit=circuit, rows=rows, columns=columns, causal=causal)


def _statistics(shown: Shown, rows: Sequence[int]) -> RowStatistics:
    import torch
    from transformer_lens import FactoredMatrix

    from aotlens.circuits import row_statistics

    A = shown.circuit.A
    return row_statistics(FactoredMatrix(A[torch.tensor(list(rows)).to(A.device)], shown.circuit.B))


def _offered(wanted: str | None, options: list[Option]) -> str:
    values = [option.value for option in options]
    return wanted if wanted in values else values[0]


def _check_index(index: int, labels: Labels) -> None:
    if not 0 <= index < labels.n:
        raise RequestError(f"There is no {labels.of} {index} here: they go from 0 to {labels.n - 1}. Choose another.")
