"""The largest entries of QK and OV circuits, against the bare products and what one would write without us.

    python -m benchmarks.circuits [--quick] [--pairs 3] [--threads 2] [--json PATH]

V = 48,262 tokens, d_model 512, 8 heads of 64: the published 1-layer model's shape, with random weights whose token
rows have log-normal norms. Processor and memory bound what can be measured, so each comparison alternates:

- `per row`: `top_per_row(circuit, 10)` of every head's QK and OV circuit, after one head unmeasured, each against the
  same circuit's bare tiled float32 products (`torch.mm(..., out=buffer)`, at the fastest of several tiles here).
- `loop`: a `FactoredMatrix[rows].AB` for 1,024 rows at a time with `topk`, as a user of TransformerLens writes it.
- `small`: the same loop at V = 256, 1,024 and 2,048 and on a bundled checkpoint's head, where rows take the plain road
  (`--small` measures nothing else; aim: at most 1.1).
- `dense`: `.AB` and `topk` of the whole, at V = 16,000 (1 GB a circuit).
- `entries`: `top_entries(circuit, 1000)` against the bare products, on weights whose norms are alike, on the same
  with heavy-tailed norms (a synthetic stand-in for trained ones, and called so), and on a bundled checkpoint's head.
- `memory`: the peak of a fresh process that searches one circuit, minus its size before.

Indices must be those of the dense product where entries differ by more than rounding. Expected on 2 cores without
other work: per row ÷ bare at most 1.2; entries ÷ bare at most 1.1, and below 1 where norms vary; loop and dense ÷ ours
above 1; memory well below 1.2 GB. About 10 minutes; `--quick` takes seconds, and its ratios mean little.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import aotlens
from aotlens.circuits import FactoredMatrix, qk_circuit, search_entries, top_entries, top_per_row
from benchmarks import _common

D_MODEL, D_HEAD, N_HEADS = 512, 64, 8
TILES = ((256, 1024), (512, 1024), (512, 2048), (1024, 1024), (2048, 512))


def token_rows(d_vocab: int, d_model: int, spread: float, seed: int) -> Tensor:
    """Draw random directions; the logarithms of their norms have standard deviation `spread`."""
    generator = torch.Generator().manual_seed(seed)
    norms = torch.exp(spread * torch.randn(d_vocab, 1, generator=generator))
    return torch.randn(d_vocab, d_model, generator=generator) * norms


def circuits(
    d_vocab: int, n_heads: int, *, quick: bool, spread: float = 0.2
) -> Iterator[tuple[str, int, FactoredMatrix]]:
    """Yield QK (nats) and OV (logits) of each head, one in memory at a time."""
    d_model, d_head = (64, 16) if quick else (D_MODEL, D_HEAD)
    generator = torch.Generator().manual_seed(1)
    embed, unembed = token_rows(d_vocab, d_model, spread, 2), token_rows(d_vocab, d_model, spread, 3)
    for head in range(n_heads):
        q, k, v = (torch.randn(d_model, d_head, generator=generator) / d_model**0.5 for _ in range(3))
        o = torch.randn(d_head, d_model, generator=generator) / d_model**0.5
        yield "QK", head, FactoredMatrix(embed @ (q / d_head**0.5), (embed @ k).T)
        yield "OV", head, FactoredMatrix(embed @ v, o @ unembed.T)


def bare_products(circuit: FactoredMatrix, tile: tuple[int, int]) -> None:
    """Compute every tile of the product into one buffer."""
    buffer = torch.empty(tile[0] * tile[1])
    for c in range(0, circuit.rdim, tile[1]):
        right = circuit.B[:, c : c + tile[1]]
        for r in range(0, circuit.ldim, tile[0]):
            left = circuit.A[r : r + tile[0]]
            torch.mm(left, right, out=buffer[: len(left) * right.shape[1]].view(len(left), -1))


def fastest_tile(circuit: FactoredMatrix) -> tuple[int, int]:
    """Return the fastest of `TILES`, for the bare products of the circuit's first 4,096 rows."""
    part = FactoredMatrix(circuit.A[:4096], circuit.B)

    def seconds(tile: tuple[int, int]) -> float:
        start = time.process_time()
        bare_products(part, tile)
        return time.process_time() - start

    return min(TILES, key=lambda tile: min(seconds(tile) for _ in range(3)))


def loop_top(circuit: FactoredMatrix, k: int, rows: int = 1024) -> tuple[Tensor, Tensor]:
    """Search as a user of TransformerLens writes it for a vocabulary that is too large."""
    tops = [circuit[start : start + rows].AB.topk(k) for start in range(0, circuit.ldim, rows)]
    return torch.cat([top.values for top in tops]), torch.cat([top.indices for top in tops])


def check_rows(circuit: FactoredMatrix, k: int) -> None:
    """Check that our values of 64 rows are a float64 product's, and its indices ours where neighbours are far apart."""
    part = FactoredMatrix(circuit.A[:64].contiguous(), circuit.B)
    expected = (part.A.double() @ part.B.double()).topk(k + 1)
    values, indices = top_per_row(part, k)
    torch.testing.assert_close(values, expected.values[:, :k], rtol=1e-12, atol=1e-12)
    gaps = -expected.values.diff(dim=1)
    clear = (gaps > 1e-9) & torch.cat([torch.ones(64, 1, dtype=torch.bool), gaps[:, :-1] > 1e-9], dim=1)
    assert torch.equal(indices[clear], expected.indices[:, :k][clear])


def row(what: str, timing: _common.Timing, against: str, **more: Any) -> dict[str, Any]:
    return {
        "what": what,
        "against": against,
        **timing.row("ours", "theirs"),
        "skipped": more.get("skipped", 0.0),
        "ours (MB)": more.get("megabytes", ""),
    }


def per_row(d_vocab: int, n_heads: int, k: int, pairs: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Measure every head's circuits against bare products; the first one against the loop as well."""
    tile, timings = None, []
    for name, head, circuit in circuits(d_vocab, n_heads, quick=quick):
        if tile is None:
            tile = fastest_tile(circuit)
            check_rows(circuit, k)
            timing = _common.time_in_turn(lambda c=circuit: top_per_row(c, k), lambda c=circuit: loop_top(c, k), pairs)
            yield row(f"top {k} per row, {name} of head 0", timing, "loop of [rows].AB and topk")
        timings.append(
            _common.time_in_turn(
                lambda c=circuit: top_per_row(c, k), lambda c=circuit, t=tile: bare_products(c, t), pairs
            )
        )
        print(f"  {name} of head {head}: {timings[-1].ratio:.3f} of the bare products", file=sys.stderr, flush=True)
    whole = _common.Timing(
        first=sum(t.first for t in timings),
        second=sum(t.second for t in timings),
        ratio=statistics.median(t.ratio for t in timings),
        cpu_ratio=statistics.median(t.cpu_ratio for t in timings),
        pairs=sum(t.pairs for t in timings),
    )
    yield row(f"top {k} per row, QK and OV of {n_heads} heads", whole, f"bare products, {tile[0]} × {tile[1]}")


def small(k: int, pairs: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Measure small vocabularies against the loop: a product and a `topk`, and what makes the answer exact."""
    for d_vocab in (256,) if quick else (256, 1024, 2048):
        generator = torch.Generator().manual_seed(4)
        circuit = FactoredMatrix(
            torch.randn(d_vocab, 32, generator=generator), torch.randn(32, d_vocab, generator=generator)
        )
        timing = _common.time_in_turn(lambda c=circuit: top_per_row(c, k), lambda c=circuit: loop_top(c, k), 7 * pairs)
        yield row(f"top {k} per row, V = {d_vocab:,}, d_head 32", timing, "loop of [rows].AB and topk")
    trained = qk_circuit(aotlens.load("novels-2l-mhsa"), "1.0")
    check_rows(trained, k)
    timing = _common.time_in_turn(lambda: top_per_row(trained, k), lambda: loop_top(trained, k), 3 * pairs)
    yield row(f"top {k} per row, QK of novels-2l-mhsa 1.0, V = 4,096", timing, "loop of [rows].AB and topk")


def dense(d_vocab: int, k: int, pairs: int, *, quick: bool) -> dict[str, Any]:
    _, _, circuit = next(circuits(d_vocab, 1, quick=quick))
    timing = _common.time_in_turn(lambda: top_per_row(circuit, k), lambda: circuit.AB.topk(k), pairs)
    return row(f"top {k} per row, V = {d_vocab}", timing, ".AB and topk")


def entries(what: str, circuit: FactoredMatrix, k: int, pairs: int) -> dict[str, Any]:
    tile = fastest_tile(circuit)
    timing = _common.time_in_turn(lambda: top_entries(circuit, k), lambda: bare_products(circuit, tile), pairs)
    skipped = search_entries(circuit, k).share_skipped
    return row(f"top {k} entries, {what}", timing, f"bare products, {tile[0]} × {tile[1]}", skipped=skipped)


def prepared(d_vocab: int, k: int, quick: bool) -> Callable[[], Any]:
    """Return the call whose memory is measured."""
    _, _, circuit = next(circuits(d_vocab, 1, quick=quick))
    return lambda: top_per_row(circuit, k)


def measure(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    case = call()
    print(f"  {case['what']}: {case['ours ÷ theirs']:.3f}", file=sys.stderr, flush=True)
    return case


@torch.inference_mode()
def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--d-vocab", type=int, help="size of the vocabulary (default 48,262)")
    options.add_argument("--heads", type=int, default=N_HEADS, help="heads whose circuits are searched")
    options.add_argument("--small", action="store_true", help="measure small vocabularies only")
    arguments = options.parse_args(argv)
    quick, pairs = arguments.quick, arguments.pairs or (1 if arguments.quick else 3)
    d_vocab = arguments.d_vocab or (2000 if quick else 48_262)
    if arguments.small:
        _common.report("circuits, small", list(small(10, pairs, quick=quick)), arguments.json)
        return 0
    megabytes = _common.added_bytes(prepared, d_vocab, 10, quick) / 1e6
    rows = list(per_row(d_vocab, min(arguments.heads, 2) if quick else arguments.heads, 10, pairs, quick=quick))
    rows[-1]["ours (MB)"] = megabytes
    rows += small(10, pairs, quick=quick)
    rows.append(measure(lambda: dense(1500 if quick else 16_000, 10, pairs, quick=quick)))
    _, _, alike = next(circuits(d_vocab, 1, quick=quick, spread=0.0))
    rows.append(measure(lambda: entries("norms alike", alike, 1000, pairs)))
    _, _, varied = next(circuits(d_vocab, 1, quick=quick, spread=0.4))
    rows.append(measure(lambda: entries("heavy-tailed norms (synthetic)", varied, 1000, pairs)))
    trained = qk_circuit(aotlens.load("novels-2l-mhsa"), "1.0")
    rows.append(measure(lambda: entries("QK of novels-2l-mhsa 1.0, V = 4,096", trained, 1000, pairs)))
    _common.report("circuits", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
