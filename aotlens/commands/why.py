"""The output of `aotlens paths` on an attention score: pairs of paths (--score), the cells behind it (--trace)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.commands.shared import print_text, several, table, write_csv
from aotlens.files import replacing_file

if TYPE_CHECKING:
    from aotlens.paths import ScoreExpansion, Trace

_ENDINGS = (".json", ".svg", ".html")


def compared_with(text: str) -> int | str | None:
    """Return a key's position, None for "none", or the word itself."""
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError:
        return text


def print_score(score: ScoreExpansion, k: int, by: str, budget: int, csv: Path | None) -> None:
    """Print the products by order, the largest pairs of paths and what is proven of them; or the pairs as a file."""
    best = score.top(k, by, budget=budget)
    if csv is not None:
        write_csv(best.to_frame(), csv)
        return
    print_text(f"{score.headline[0].upper()}{score.headline[1:]} (nats)\n")
    orders = score.by_pair_of_orders().values.tolist()
    head = ("query \\ key heads", *(str(order) for order in range(len(orders))))
    print_text(table([head, *((str(i), *(f"{value:+.4f}" for value in row)) for i, row in enumerate(orders))]))
    print_text("")
    lines: list[tuple[str, ...]] = [("rank", "nats", "", "to the query × to the keys")]
    for i, (value, sentence) in enumerate(zip(best.values, best.formulas, strict=True)):
        lines.append((str(i + 1), f"{value:+.4f}", "" if i < best.n_proven else "not proven", sentence))
    print_text(table(lines))
    print_text(
        f"\n{best.n_proven} of {len(best.pairs)} ranks proven among {best.n_pairs:,} pairs of paths; no other is "
        f"above {best.bound:.4f}.\nThe others together: {best.remainder:+.4f}.\nAll pairs: {score.residual()}."
    )


def check_trace_file(out: Path | None, force: bool, *, wanted: bool) -> None:
    """Raise ValueError, before any work, for an --out that no trace is written to, or that it would overwrite."""
    if out is None:
        return
    if not wanted:
        raise ValueError(f"--out {out}: expected --trace, which is what it writes, and no --csv.")
    if out.suffix not in _ENDINGS:
        raise ValueError(f"--out {out}: expected a name that ends in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}.")
    if out.exists() and not force:
        raise ValueError(f"{out}: exists already. Choose another file, or overwrite it with --force.")


def print_trace(trace: Trace, csv: Path | None, out: Path | None) -> None:
    """Print every cell with the largest terms of its query side and of its key side; or the trace as a file."""
    if csv is not None:
        write_csv(trace.to_frame(), csv)
        return
    if out is not None:
        content = {".json": trace.to_json, ".svg": trace.to_svg, ".html": trace.to_html}[out.suffix]()
        with replacing_file(out) as unfinished:
            unfinished.write_text(content, encoding="utf-8")
        print_text(f"{out}: {several(len(trace.nodes), 'cell')}")
        return
    print_text(f"{trace.finding} Terms in nats; shares are within one side of a cell.")
    for node in trace.nodes:
        softmax = ", of the softmax before the threshold" if node.before_threshold else ""
        query, key = node.cancellation
        print_text(
            f"\n{trace.name(node)}: score {node.score:+.3f}, contrast {node.contrast:+.3f}{softmax}; Σ|term| ÷ "
            f"|Σ term| is {query:.2f} of the query side, {key:.2f} of the key side"
        )
        lines = [("", "nats", "share", "term")]
        for edge in node.edges:
            count = f" ({edge.n_terms:,} terms)" if edge.n_terms > 1 else ""
            lines.append((edge.side, f"{edge.nats:+.4f}", f"{edge.share:.1%}", f"{trace.name(edge)}{count}"))
        print_text(table(lines))
    if trace.n_not_followed:
        print_text(f"\n{several(trace.n_not_followed, 'cell')} more were not followed.")
