"""The rounding error of a float32 product against the float64 one: the bound that makes the streaming searches exact.

**Claim.** Let a and b be a row and a column of the factors, n their length, s their dot product as `dot_products`
computes it in float64, and p what a float32 matrix product gives for them after both were multiplied by powers of two
and rounded to float32 (`factors.py`). In the scaled units, whatever the order of summation, with or without fused
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

import torch

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
    """Return the roundoff v of a float32 product's inputs on `device`, from PyTorch's settings; the coarsest if
    unknown.

    Read, not changed: the settings belong to the whole process, and other threads may be at work.
    """
    backend = torch.backends.cuda.matmul if device.type == "cuda" else getattr(torch.backends.mkldnn, "matmul", None)
    setting = getattr(backend, "fp32_precision", None)
    if setting is None:  # PyTorch before 2.9
        setting = torch.get_float32_matmul_precision()
    return INPUT_UNITS.get(str(setting), 2.0**-8)
