"""*aot*, Figure 7: do heads look at the same part across images of a class? Paths, SNR and deletion beside it.

    python -m analyses.image_heads [--checkpoint NAME ...] [--data NAME] [--quick] [--out DIR]

For every checkpoint, on images that it was not trained on: by layer, the IoU of heads' regions within and between
classes beside permuted labels; the share of a logit that comes from outside the patches, by paths; insertion and
deletion by paths, rollout, attention and random order; and whether layers raise the SNR of patches in their heads'
subspaces. By default the bundled checkpoints of Fashion-MNIST, on `fashion-sample`; with --quick, the smallest of
them. Tables go to the terminal, figures to --out, among them
NAME-maps.png: images, and beneath them the maps of the most consistent heads. Some minutes; --quick, one.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import aotlens
from analyses._claims import Finding, claims_table, markdown, parser
from analyses._outcomes import of_run
from aotlens.conventions import head_name
from aotlens.data.images import ImageSet, open_images
from aotlens.denoise import DenoisingAudit, audit
from aotlens.heads import SemanticConsistency, image_maps, semantic_consistency
from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import PatchCurves, patch_contributions, patch_curves
from aotlens.plots import audit_curves, overlay_grid
from aotlens.plots.results import DISPLAY

#: Heads and images of the figure of maps.
_MOST_HEADS, _MOST_IMAGES = 8, 8
#: Heads of the picture, and the pixels of a side of each of its squares.
_ROWS, _CELL = 5, 64
#: The gap between them, and the colour that covers them.
_GAP, _BLUE = 2, np.array([0, 92, 170])


def by_layer(result: SemanticConsistency) -> list[list[object]]:
    """Return means over the heads of each layer, how many are beyond chance, and the most consistent one."""
    rows: list[list[object]] = []
    for layer in range(result.within.shape[0]):
        best = int(result.difference[layer].argmax())
        low, high = result.intervals[layer, best]
        rows.append(
            [
                layer, result.within[layer].mean(), result.between[layer].mean(), result.difference[layer].mean(),
                result.with_mean[layer].mean(),
                f"{int((result.adjusted_p[layer] <= 0.05).sum())} of {result.within.shape[1]}",
                f"{layer}.{best}: {result.difference[layer, best]:.3f} ({low:.3f} to {high:.3f})",
            ]
        )  # fmt: skip
    return rows


def snr_rows(audit: DenoisingAudit) -> list[list[object]]:
    """List by layer, of patches in the subspace that holds most of them: SNR before, after ÷ before, and its null."""
    frame = audit.to_frame()
    frame = frame[frame["grouping"] == "subspace"]
    place = audit.groupings.index("subspace")
    verdicts = ["rises" if up else "falls" if down else "as rotated writes" for up, down in zip(
        audit.rises[place].tolist(), audit.falls[place].tolist(), strict=True)]  # fmt: skip
    return [
        [row.layer, row.snr, row.ratio, f"{row.null_least:.3f} to {row.null_largest:.3f}", verdict]
        for row, verdict in zip(frame.itertuples(), verdicts, strict=True)
    ]


def curve_rows(curves: PatchCurves) -> list[list[object]]:
    """Return areas of each method, and how far they are from a random order's."""
    rows: list[list[object]] = []
    for row in curves.to_frame().itertuples():
        differences = [
            f"{difference:+.2f} ({low:+.2f} to {high:+.2f})"
            for difference, low, high in (
                (row.deletion_difference, row.deletion_low, row.deletion_high),
                (row.insertion_difference, row.insertion_low, row.insertion_high),
            )
        ]
        own = ["", ""] if row.method == "random" else differences
        rows.append([row.method, row.deletion, own[0], row.insertion, own[1]])
    return rows


def of_consistency(name: str, result: SemanticConsistency) -> Finding:
    """Measure Figure 7 for every head, against permuted labels."""
    beyond = (result.adjusted_p <= 0.05) & (result.difference > 0)
    return Finding(
        claim=f"{name}: share of the {beyond.size} heads that look at the same places within a class, beyond permuted "
        "labels",
        expected="heads look at the same part of an object across images",
        bounds=(0.5, 1),
        measured=(float(beyond.mean()),),
    )


def of_curves(name: str, curves: PatchCurves) -> Finding:
    """Measure whether the order of patches by paths finds what matters."""
    (row,) = (row for row in curves.to_frame().itertuples() if row.method == "paths")
    return Finding(
        claim=f"{name}: area under deletion by paths less a random order's, with its 95% interval (logits)",
        expected="below 0 (ours: the paper measures none)",
        bounds=(-np.inf, 0),
        measured=(row.deletion_low, row.deletion_difference, row.deletion_high),
    )


def of_snr(name: str, audit: DenoisingAudit) -> Finding:
    """Check *aot*, §3, in models of images."""
    rises = np.asarray(audit.rises[audit.groupings.index("subspace")])
    return Finding(
        claim=f"{name}: share of its {rises.size} layers that raise the SNR of patches beyond rotated writes",
        expected="every layer denoises (§3)",
        bounds=(1, 1),
        measured=(float(rises.mean()),),
    )


def sections(
    name: str, model: AttentionOnlyTransformer, images: Tensor, pixels: ImageSet, arguments: Any
) -> Iterator[tuple[str, Sequence[str], list[list[object]], dict[str, Any], list[Finding]]]:
    """Yield each table with its title, header, figures (of which bytes are a PNG) and findings."""
    accuracy = float((model(images).argmax(-1).cpu() == pixels.labels).double().mean())
    n_curves = 12 if arguments.quick else 64
    consistency = semantic_consistency(model, images, pixels.labels, n_permutations=200 if arguments.quick else 1000)
    header = ["layer", "within", "between", "difference", "IoU with mean map", "beyond chance", "most consistent head"]
    read = f"{len(images)} images (accuracy {accuracy:.1%}), query {consistency.query}"
    maps = image_maps(model, images[:_MOST_IMAGES])
    heads = consistency.ranking()[:_MOST_HEADS]
    attention = np.stack([maps.attention()[:, layer, head] for layer, head in heads], axis=1)
    classes = [pixels.classes[label] for label in pixels.labels[:_MOST_IMAGES].tolist()]
    pictures = pixels.images[:_MOST_IMAGES].permute(0, 2, 3, 1).numpy()
    titles = list(map(head_name, heads))
    figure = overlay_grid(pictures, attention, row_titles=classes, column_titles=titles)
    title = f"{name}: IoU of heads' regions on {read}"
    picture = picture_of_heads(model, images, pixels, consistency)
    figures = {"consistency": aotlens.plot(consistency), "maps": figure, "maps.png": picture}
    yield title, header, by_layer(consistency), figures, [of_consistency(name, consistency)]
    parts = patch_contributions(model, images[:n_curves])
    own = [parts.place(int(number)) for number in parts.predicted]
    of_class = np.arange(len(own)), own
    above = parts.above_mean
    largest = float(np.abs(parts.logit.total - parts.logit.logits).max())
    rows: list[list[object]] = [
        [
            len(own), above.logits[of_class].mean(), above.patches.sum((-2, -1))[of_class].mean(),
            above.class_token[of_class].mean(), above.positions[of_class].mean(),
            above.mlps[of_class].mean(), above.biases[of_class].mean(),
            float(np.nanmedian(above.share_outside[of_class])), f"{largest:.1g}",
        ]
    ]  # fmt: skip
    terms = ["images", "logit", "patches", "[CLS]", "positions", "MLPs", "biases"]
    header = [*terms, "share outside (median)", "sum − model"]
    yield f"{name}: the predicted class's logit above the mean over classes, by paths", header, rows, {}, []
    curves = patch_curves(model, images[:n_curves], reference=images)
    header = ["method", "deletion area", "less random's", "insertion area", "less random's"]
    title = f"{name}: insertion and deletion of {n_curves} images, baseline {curves.baseline} (logits)"
    yield title, header, curve_rows(curves), {"curves": aotlens.plot(curves)}, [of_curves(name, curves)]
    snr = audit(model, images[: 2 * n_curves], n_draws=5 if arguments.quick else 20)
    header = ["layer", "SNR before", "after ÷ before", "with rotated writes", "verdict"]
    title = f"{name}: SNR of patches in the subspaces of {snr.matrix}"
    yield title, header, snr_rows(snr), {"snr": audit_curves(snr)}, [of_snr(name, snr)]


def picture_of_heads(
    model: AttentionOnlyTransformer, images: Tensor, pixels: ImageSet, consistency: SemanticConsistency
) -> bytes:
    """Return a PNG: one image of each class as it is, and beneath it what each of the most consistent heads
    looks at."""
    first = pixels.by_turns()[: len(pixels.classes)]
    attention = image_maps(model, images[first]).attention()
    heads = [attention[:, layer, head] for layer, head in consistency.ranking()[:_ROWS]]
    rows = [np.zeros_like(heads[0]), *heads]
    sheet = Image.new("RGBA", (len(first) * (_CELL + _GAP) - _GAP, len(rows) * (_CELL + _GAP) - _GAP))
    for row, maps in enumerate(rows):
        for column, (image, attended) in enumerate(zip(pixels.images[first].numpy(), maps, strict=True)):
            sheet.paste(_overlaid(image[0], attended), (column * (_CELL + _GAP), row * (_CELL + _GAP)))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()


def _overlaid(grey: np.ndarray, attended: np.ndarray) -> Image.Image:
    """An image in middle greys, the bluer where more is attended to."""
    size = (_CELL, _CELL)
    base = 96 + 140 / 255 * np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.NEAREST), dtype=float)
    share = Image.fromarray((attended / (attended.max() or 1)).astype(np.float32)).resize(
        size, Image.Resampling.NEAREST
    )
    cover = 0.9 * np.asarray(share)[..., None]
    return Image.fromarray(np.rint((1 - cover) * base[..., None] + cover * _BLUE).astype(np.uint8))


def models(arguments: Any) -> Iterator[tuple[str, AttentionOnlyTransformer, Tensor, ImageSet]]:
    """Yield each model with test images as it reads them, and as they are."""
    bundled = [info.name for info in aotlens.list_checkpoints() if info.name.startswith("fashion-")]
    names = arguments.checkpoint or (["fashion-vit"] if arguments.quick else bundled)
    n_images = min(arguments.images, 60) if arguments.quick else arguments.images
    for name in names:
        model = aotlens.load(name, "cpu")
        data = open_images(arguments.data).test
        pixels = data.take(torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:n_images])
        yield name, model, model.to_images(pixels.images), pixels


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--checkpoint", nargs="+", help="bundled or local checkpoints, or their folders")
    options.add_argument("--data", default="fashion-sample", help="images as `open_images` names them")
    options.add_argument("--images", type=int, default=200, help="test images at most, drawn with a seed")
    options.add_argument("--out", type=Path, metavar="DIR", help="a folder for figures, as HTML")
    arguments = options.parse_args(argv)
    tables: list[str] = []
    findings: list[Finding] = []
    for name, model, images, pixels in models(arguments):
        for title, header, rows, figures, of_section in sections(name, model, images, pixels, arguments):
            tables.append(f"**{title}**\n\n{markdown(header, rows)}")
            findings += of_section
            print(f"\n{tables[-1]}", flush=True)
            for kind, figure in figures.items():
                if arguments.out is not None:
                    arguments.out.mkdir(parents=True, exist_ok=True)
                    if isinstance(figure, bytes):
                        (arguments.out / f"{name}-{kind}").write_bytes(figure)
                    else:
                        figure.write_html(arguments.out / f"{name}-{kind}.html", config=DISPLAY)
    print(f"\n{claims_table(findings)}")
    outcome = of_run("image_heads", "python -m analyses image_heads", "docs/images.md", [findings, *tables])
    outcome.publish(None, store=arguments.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
