"""``aotlens compare``: the heads of two checkpoints side by side."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotlens.commands.shared import (
    MOST_ROWS,
    Csv,
    Device,
    Folders,
    Force,
    check_csv,
    load_ours,
    print_text,
    table,
    write_csv,
)

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer


def compare_command(
    left: Annotated[str, typer.Argument(metavar="LEFT", help="A checkpoint.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="Another one with the same tokens.")],
    corpus: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Text on which patterns and losses are compared too.")
    ] = None,
    sequences: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Windows of it, spread over it.")
    ] = 8,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """Pair the heads of two checkpoints by what they do to tokens, and count what each model's heads are.

    Cosines of the OV and QK circuits between tokens, and with --corpus of the patterns on the same windows; the pairs
    have the largest sum. The margin is by how much a pair beats the left head's best other partner.
    """
    from aotlens.checkpoints import shared_held_out_windows
    from aotlens.heads import match_heads

    check_csv(csv, force)
    models = [load_ours("compare", name, device, folders) for name in (left, right)]
    windows, documents = (None, None) if corpus is None else shared_held_out_windows(models, corpus, sequences)
    matched = match_heads(models[0], models[1], windows)
    if csv is not None:
        write_csv(matched.to_frame(), csv)
        return
    summaries = [_summary(model, windows, documents) for model in models]
    lines: list[tuple[str, ...]] = [("", left, right)]
    lines += [(name, *(summary[name] for summary in summaries)) for name in summaries[0]]
    print_text(table(lines))
    rows: list[tuple[str, ...]] = [(left, right, *matched.measured, "mean", "margin")]
    for pair in matched.to_frame().to_dict("records"):
        heads = (f"{pair[f'{side}_layer']}.{pair[f'{side}_head']}" for side in ("left", "right"))
        cosines = (f"{pair[name]:.3f}" for name in (*matched.measured, "similarity"))
        rows.append((*heads, *cosines, f"{pair['margin']:+.3f}"))
    print_text(f"\n{table(rows)}")


def _summary(model: AttentionOnlyTransformer, windows: Any, documents: Any) -> dict[str, str]:
    """A line each of what a model's heads are."""
    from aotlens.evaluate import validation_loss
    from aotlens.heads import head_labels, motif_scores, subspaces

    cfg = model.cfg
    lines = {"attention": cfg.attention.upper() + ("" if cfg.attn_only else " and MLPs")}
    lines["heads"] = f"{cfg.n_layers} × {cfg.n_heads}"
    if windows is not None and not model.sees_later_keys:
        lines["loss, nats"] = f"{validation_loss(model, windows.to(model.device)):.3f}"
    names = head_labels(motif_scores(model), motif_scores(model, windows, clusters=documents)).names
    labels = Counter(label for row in names for label in row)
    lines["labels"] = ", ".join(f"{n} {label.replace('_', ' ')}" for label, n in labels.most_common())
    spans = subspaces(model, n_random=100)
    if spans.bases.shape[1] > 1:
        of_random, of_weights = spans.layer_ratios
        lines["overlap of subspaces ÷ random subspaces"] = f"{of_random:.2f}"
        lines["overlap of subspaces ÷ random weights behind the norms"] = f"{of_weights:.2f}"
    return lines
