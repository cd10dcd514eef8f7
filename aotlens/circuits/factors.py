"""A factored matrix made ready for streaming: checked, in float32, scaled against overflow; its exact dot products.

The bound on the rounding error of a float32 product makes the streaming searches exact.

**Claim.** Let a and b be a row and a column of the factors, n their length, s their dot product as `dot_products`
computes it in float64, and p what a float32 matrix product gives for them after both were multiplied by powers of two
and rounded to float32 (`prepare`). In the scaled units, whatever the order of summation, with or without fused
multiply-add,

    |p − s| ≤ γ · ‖a‖ · ‖b‖ + UNDERFLOW · n,        γ = (1 + v)² (1 + m u / (1 − m u)) − 1,      m = n + 16,

with u = 2⁻²⁴ float32's unit roundoff, ‖·‖ Euclidean norms as computed in float64, and v the roundoff of the inputs
where the product rounds them first (0, unless TF32 or bf16 products were asked for: then u = 2⁻²², as tensor cores
may truncate when they add).

**Proof.** A term takes part in at most one multiplication and n − 1 additions, so p = Σ a_i b_i (1 + θ_i) with
|θ_i| ≤ nu / (1 − nu) (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, Eq. 3.3 and Lemma 3.1; a fused
operation rounds less), and Σ |a_i b_i| ≤ ‖a‖ ‖b‖ by Cauchy and Schwarz. Sixteen further units are more than enough for
what else is rounded: float64 factors made float32 (2 units), the float64 dot product and norms (n 2⁻⁵³ and less
each, under 1 unit for n < 2²⁸), and a threshold formed from such numbers in float32 (2 or 3 operations; none is larger
than ‖a‖ ‖b‖ (1 + γ) in size where it decides). Rounded inputs are off by v each, so their products by (1 + v)². Numbers
below 2⁻¹²⁶ may be flushed to zero, in the inputs or in between: after scaling no input exceeds 2³¹, so each of
the n terms and n sums loses less than 2 · 2³¹ · 2⁻¹²⁶ + 2 · 2⁻¹²⁶ < UNDERFLOW.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from aotlens.circuits.factored import FactoredMatrix

#: Float32's unit roundoff, half the distance from 1 to the next number.
UNIT = 2.0**-24
#: The most that flushing to zero can cost a term, in the scaled units.
UNDERFLOW = 2.0**-92
#: Roundings besides the product's own; see the proof.
SPARE_UNITS = 16
#: Roundoff of an input where products are allowed to shorten it, and of a tensor core's addition.
INPUT_UNITS = {"ieee": 0.0, "none": 0.0, "highest": 0.0, "tf32": 2.0**-10, "high": 2.0**-8, "bf16": 2.0**-8}
TENSOR_CORE_UNIT = 2.0**-22


def coefficient(inner: int, input_unit: float = 0.0) -> float:
    """Return γ of the claim for dot products of length `inner`; `ValueError` where it means nothing (inner > 2²⁰)."""
    if inner > 2**20:
        raise ValueError(f"expected factors with at most {2**20} inner dimensions, got {inner}.")
    units = (inner + SPARE_UNITS) * (TENSOR_CORE_UNIT if input_unit else UNIT)
    return (1 + input_unit) ** 2 * (1 + units / (1 - units)) - 1


def input_unit(device: torch.device) -> float:
    """Return the roundoff v of a float32 product's inputs on `device`, from PyTorch's settings (read, not changed)."""
    backend = torch.backends.cuda.matmul if device.type == "cuda" else getattr(torch.backends.mkldnn, "matmul", None)
    setting = getattr(backend, "fp32_precision", None)
    if setting is None:  # PyTorch before 2.9
        setting = torch.get_float32_matmul_precision()
    return INPUT_UNITS.get(str(setting), 2.0**-8)


#: A factor's largest number at most, and a row's largest at least unless it is 0: so that neither an entry, its square
#: nor a scaled one leaves float64's range. Float32 numbers are all within it.
LARGEST, SMALLEST = 1e70, 1e-70
#: Rows whose largest number is between 1 / ORDINARY and ORDINARY are not scaled.
ORDINARY = 2.0**30


@dataclass(frozen=True, kw_only=True, eq=False)
class Factors:
    """Row i and column j of a matrix are `rows[i]` and `columns[j]`; their entry is ± the dot product.

    `rows32` and `columns32` are the same times `row_scales` and `column_scale`, powers of two, rounded to float32 (the
    same memory where there is nothing to do), and `columns32` times the sign; the norms are theirs. In scaled units a
    float32 product is at most `error · row_norms[i] · column_norms[j] + floors[i]` from the entry.
    """

    rows: Tensor
    columns: Tensor
    rows32: Tensor
    columns32: Tensor
    row_scales: Tensor
    column_scale: float
    row_norms: Tensor
    column_norms: Tensor
    floors: Tensor
    error: float
    sign: int
    chunk_bytes: int
    """The bytes of float64 numbers held at once; there are three such arrays at most."""

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def inner(self) -> int:
        return self.rows.shape[1]

    @property
    def copied_bytes(self) -> int:
        """The bytes held here, and worked with, beyond the circuit's own factors (at most: views count as copies)."""
        by_address = {t.data_ptr(): t for t in (self.rows, self.columns, self.rows32, self.columns32)}
        vectors = (self.row_scales, self.row_norms, self.column_norms, self.floors)
        return sum(t.nbytes for t in (*by_address.values(), *vectors)) + 3 * self.chunk_bytes

    def entries(self, i: Tensor, j: Tensor) -> Tensor:
        """Return entries, float64, times the sign: larger is always better."""
        entries = dot_products(self.rows, self.columns, i, j, chunk_bytes=self.chunk_bytes)
        return entries if self.sign > 0 else entries.neg_().add_(0.0)

    def scaled(self, entries: Tensor, i: Tensor | int) -> Tensor:
        """Return entries of rows `i` in the units of the float32 products (exactly, being powers of two)."""
        return entries * self.row_scales[i] * self.column_scale


def check(circuit: FactoredMatrix) -> None:
    """Raise `ValueError` unless the circuit is a real, finite matrix with entries."""
    if circuit.A.ndim != 2 or circuit.B.ndim != 2:
        raise ValueError(
            f"expected a circuit of one matrix, [rows, columns]; got shape {list(circuit.shape)}. Index it first: "
            "circuit[layer, head]."
        )
    if 0 in circuit.A.shape or 0 in circuit.B.shape:
        raise ValueError(
            f"expected a circuit with entries; got factors of shapes {list(circuit.A.shape)} and "
            f"{list(circuit.B.shape)}."
        )
    for side, factor in (("left (A)", circuit.A), ("right (B)", circuit.B)):
        if not factor.dtype.is_floating_point:
            raise ValueError(f"expected real floating-point factors; the {side} one is {factor.dtype}.")
        if not all(torch.isfinite(extreme) for extreme in factor.aminmax()):
            wrong = factor.numel() - int(torch.isfinite(factor).sum())
            raise ValueError(
                f"expected finite factors; the {side} one has {wrong} entries that are not, of {factor.numel()}. "
                "Look for a diverged training run or a division by a norm of 0."
            )
        if factor.dtype == torch.float64:
            _check_range(side, factor if side == "left (A)" else factor.T)


def _check_range(side: str, rows: Tensor) -> None:
    largest = torch.maximum(rows.amax(1), -rows.amin(1))
    largest = largest[largest != 0]
    for extreme in (largest.amin(), largest.amax()) if len(largest) else ():
        if not SMALLEST <= extreme <= LARGEST:
            what = "rows" if side == "left (A)" else "columns"
            raise ValueError(
                f"expected {what} of the {side} factor whose largest number is 0 or between {SMALLEST:.0e} and "
                f"{LARGEST:.0e} in size, so that products stay within float64; got one with {float(extreme):.3g}. "
                "Scale the factors."
            )


def prepare(circuit: FactoredMatrix, max_bytes: int, *, largest: bool = True, by_row: bool = False) -> Factors:
    """Check and scale `circuit`, in chunks of 1/24 of `max_bytes`. With `by_row` every row has a scale of its own, so
    that small ones stay exact, and only entries of one row may be compared in scaled units."""
    check(circuit)
    # MPS has no float64, which the exact part needs: there the work is done on the CPU.
    device = torch.device("cpu") if circuit.A.device.type == "mps" else circuit.A.device
    rows, columns = _as_rows(circuit.A, device), _as_rows(circuit.B.T, device)
    largest_of_rows = torch.maximum(rows.amax(1), -rows.amin(1)).double()
    largest_of_columns = torch.maximum(columns.amax(), -columns.amin()).double()
    if not by_row:
        largest_of_rows = largest_of_rows.amax().expand(len(rows))
    row_scales = _scale(largest_of_rows)
    column_scale = float(_scale(largest_of_columns))
    chunk_bytes = max(8 * rows.shape[1], min(CHUNK_BYTES, max_bytes // 24))
    row_norms, column_norms = _norms(rows, row_scales, chunk_bytes), _norms(columns, column_scale, chunk_bytes)
    inner = rows.shape[1]
    return Factors(
        rows=rows,
        columns=columns,
        rows32=_float32(rows, row_scales, chunk_bytes),
        columns32=_float32(columns, column_scale if largest else -column_scale, chunk_bytes),
        row_scales=row_scales,
        column_scale=column_scale,
        row_norms=row_norms,
        column_norms=column_norms,
        # float64 underflows too: at 2⁻¹⁰⁷⁴, before scaling
        floors=inner * (UNDERFLOW + (2.0**-1073 * row_scales) * column_scale),
        error=coefficient(inner, input_unit(device)),
        sign=1 if largest else -1,
        chunk_bytes=chunk_bytes,
    )


def _as_rows(factor: Tensor, device: torch.device) -> Tensor:
    """Return the factor's rows, contiguous, in float32 or float64."""
    dtype = torch.float64 if factor.dtype == torch.float64 else torch.float32
    if factor.device != device:
        factor = factor.cpu()  # before a cast to float64, which not every device knows
    return factor.detach().to(dtype).contiguous()


def _scale(largest: Tensor) -> Tensor:
    """The power of two that brings `largest` to [1, 2), or 1 where it is ordinary or zero."""
    exponents = 1 - torch.frexp(largest).exponent
    scales = torch.ldexp(torch.ones_like(largest), exponents.clamp(-1000, 1000))
    ordinary = (largest == 0) | ((largest >= 1 / ORDINARY) & (largest <= ORDINARY))
    return torch.where(ordinary, torch.ones_like(scales), scales)


def _chunks(rows: Tensor, chunk_bytes: int) -> list[slice]:
    size = max(1, chunk_bytes // (8 * rows.shape[1]))
    return [slice(start, start + size) for start in range(0, len(rows), size)]


def _of(scales: Tensor | float, rows: slice) -> Tensor | float:
    return scales[rows, None] if isinstance(scales, Tensor) else scales


def _norms(rows: Tensor, scales: Tensor | float, chunk_bytes: int) -> Tensor:
    return torch.cat([(rows[part].double() * _of(scales, part)).norm(dim=1) for part in _chunks(rows, chunk_bytes)])


def _float32(rows: Tensor, scales: Tensor | float, chunk_bytes: int) -> Tensor:
    unscaled = bool((scales == 1).all()) if isinstance(scales, Tensor) else scales == 1
    if unscaled:
        return rows.float()  # no copy of float32
    scaled = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
    for part in _chunks(rows, chunk_bytes):
        scaled[part] = rows[part].double() * _of(scales, part)
    return scaled


#: Bytes of float64 terms at once: they stay in a core's cache.
CHUNK_BYTES = 2**20


def dot_products(left: Tensor, right: Tensor, i: Tensor, j: Tensor, *, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
    """Return `left[i] · right[j]` in float64 for each pair of `i` and `j`, summed in an order that is written here.

    `left` `[rows, inner]` and `right` `[columns, inner]` are real and of any dtype; `i` and `j` are int64 `[pairs]`.
    Terms are multiplied in float64, where products of float32 numbers are exact. Then the second half of the terms
    is added to the first (the middle one of an odd number waits) until one is left. Each step is an elementwise
    operation, rounded as IEEE 754 says, so no library's kernel, thread count or device decides about a bit. The error
    is at most (⌈log₂ inner⌉ + 1) 2⁻⁵³ Σ|terms| to first order. Never −0. Memory: thrice `chunk_bytes`, or one pair's.
    """
    result = torch.empty(len(i), dtype=torch.float64, device=left.device)
    chunk = max(1, chunk_bytes // (8 * left.shape[1]))
    for start in range(0, len(i), chunk):
        pairs = slice(start, start + chunk)
        terms = left.index_select(0, i[pairs]).double()
        result[pairs] = sum_of_terms(terms.mul_(right.index_select(0, j[pairs]).double()))
    return result


def sum_of_terms(terms: Tensor) -> Tensor:
    """Return Σ over the last dimension of float64 `[..., inner]`, in the order of `dot_products`; overwrites
    `terms`."""
    width = terms.shape[-1]
    while width > 1:
        half = (width + 1) // 2
        terms[..., : width - half].add_(terms[..., half:width])
        width = half
    return terms[..., 0] + 0.0  # −0 + 0 = 0
