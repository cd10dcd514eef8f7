"""The output of ``aotlens evaluate CHECKPOINT --data NAME`` for models of images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aotlens.commands.shared import TokenBar, check_csv, load_ours, print_text, table, write_csv

if TYPE_CHECKING:
    from aotlens.evaluate import ImageEvaluation


def evaluate_on_images(
    checkpoints: list[str],
    spec: str,
    split: Literal["test", "validation", "training"],
    csv: Path | None,
    force: bool,
    device: str,
    folders: list[Path],
) -> None:
    """Print accuracy, loss, a table by class and calibration of each checkpoint on the images that `spec` names."""
    import pandas as pd

    from aotlens.data.images import open_images
    from aotlens.data.sources import portable_spec
    from aotlens.evaluate import evaluate_images, images_of

    check_csv(csv, force)
    models = {name: load_ours("evaluate", name, device, folders) for name in checkpoints}
    for name, model in models.items():
        if model.cfg.read_in != "patches":
            raise ValueError(f"--data {spec}: expected models of images, but {name} reads {model.cfg.read_in}.")
    sizes = {model.cfg.image_size for model in models.values()}
    opened = {size: open_images(spec, size=size) for size in sizes}
    frames = []
    for number, (name, model) in enumerate(models.items()):
        images = images_of(model, opened[model.cfg.image_size], split)
        with TokenBar("images") as bar:
            evaluation = evaluate_images(model, images, progress=bar)
        frames.append(evaluation.to_frame().assign(checkpoint=name))
        if csv is None:
            print_text(
                f"{'' if number == 0 else chr(10)}{name} on {portable_spec(spec)}, {split} images: {len(images):,}"
            )
            print_text(_figures(evaluation))
    if csv is not None:
        write_csv(pd.concat(frames, ignore_index=True), csv)


def _figures(evaluation: ImageEvaluation) -> str:
    """The headline, a row a class and a row a bin of confidence."""
    rows: list[tuple[str, ...]] = [("class", "images", "right", "95% interval", "of those taken for it", "most often")]
    for name, images, recall, low, high, precision, worst in evaluation.to_frame().itertuples(index=False, name=None):
        rows.append(
            (str(name), f"{images:,}", f"{recall:.1%}", f"{low:.1%} to {high:.1%}", f"{precision:.1%}", str(worst))
        )
    bins: list[tuple[str, ...]] = [("confidence", "images", "mean", "right", "95% interval")]
    for each in evaluation.calibration().to_dict("records"):
        bins.append(
            (
                f"{each['from']:.1f} to {each['to']:.1f}",
                f"{each['images']:,}",
                f"{each['confidence']:.1%}",
                f"{each['accuracy']:.1%}",
                f"{each['low']:.1%} to {each['high']:.1%}",
            )
        )
    calibration = f"Expected calibration error, over these bins: {evaluation.calibration_error:.2%}"
    return "\n".join([evaluation.headline, "", table(rows), "", table(bins), calibration])
