"""Block maxima of a product that is never written: one Triton kernel for CUDA.

Imported only for tensors on a CUDA device; PyTorch's CUDA builds for Linux bring Triton along. Products are IEEE
float32 (no TF32), so `bounds.py` holds with its smallest unit. Where it was tried: in Triton's interpreter on a CPU,
against the PyTorch path; never yet on a GPU, whose tests are marked `gpu`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotlens.circuits.tiles import block_maxima

#: Rows and columns of the product that one program holds.
TILE_ROWS, TILE_COLUMNS = 64, 128
#: Terms of the dot products that are multiplied at once.
TILE_INNER = 32


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    left,
    right,
    out,
    n_rows,
    n_columns,
    inner,
    n_blocks,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`left` [n_rows, inner], `right` [n_columns, inner], `out` [n_rows, n_blocks]: all contiguous."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    term = tl.arange(0, INNER)
    product = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, inner, INNER):
        at = start + term
        a = tl.load(
            left + row[:, None].to(tl.int64) * inner + at[None, :],
            mask=(row[:, None] < n_rows) & (at[None, :] < inner),
            other=0.0,
        )
        b = tl.load(
            right + column[None, :].to(tl.int64) * inner + at[:, None],
            mask=(column[None, :] < n_columns) & (at[:, None] < inner),
            other=0.0,
        )
        product = tl.dot(a, b, product, input_precision="ieee")
    product = tl.where(column[None, :] < n_columns, product, float("-inf"))
    maxima = tl.max(tl.reshape(product, (ROWS, COLUMNS // BLOCK, BLOCK)), axis=2)
    block = tl.program_id(1) * (COLUMNS // BLOCK) + tl.arange(0, COLUMNS // BLOCK)
    tl.store(
        out + row[:, None].to(tl.int64) * n_blocks + block[None, :],
        maxima,
        mask=(row[:, None] < n_rows) & (block[None, :] < n_blocks),
    )


def fused_block_maxima(left: Tensor, right: Tensor, block: int) -> Tensor:
    """`tiles.block_maxima(left @ right.T, block)` without the product: float32 `[rows, blocks]`.

    `left` `[rows, inner]` and `right` `[columns, inner]` are float32 and contiguous. Blocks above 128 columns, or that
    are no power of two, are made of smaller ones.
    """
    part = min(block & -block, TILE_COLUMNS)  # the largest power of two that divides the block
    n_rows, n_columns = len(left), len(right)
    n_parts = -(-n_columns // part)
    out = torch.empty(n_rows, n_parts, dtype=torch.float32, device=left.device)
    # A full program must not read a row or write a block that is not there: the masks see to it.
    grid = (triton.cdiv(n_rows, TILE_ROWS), triton.cdiv(n_columns, TILE_COLUMNS))
    _kernel[grid](
        left, right, out, n_rows, n_columns, left.shape[1], n_parts,
        ROWS=TILE_ROWS, COLUMNS=TILE_COLUMNS, INNER=TILE_INNER, BLOCK=part,
    )  # fmt: skip
    if part == block:
        return out
    return block_maxima(out, block // part)
