"""``aotlens evaluate``: losses and accuracies on data sets that no checkpoint was trained on, of text or of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from aotlens.commands import options
from aotlens.commands.shared import Context, Parts, TokenBar, command

if TYPE_CHECKING:
    pass

Split: TypeAlias = Literal["test", "validation", "training"]
Source = Annotated[str | None, options.word("A file as published, or hf:NAME[:config].", "SOURCE")]


@command("evaluate")
def evaluate_command(
    context: Context,
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="One or several, next to each other.")
    ],
    suite: Annotated[Literal["zero-shot"], typer.Option(help="The suite of data sets.")] = "zero-shot",
    data: Annotated[
        str | None, options.word("Models of images: digits, npz:PATH, folder:PATH, openml:NAME or hf:NAME.", "SPEC")
    ] = None,
    split: Annotated[Split, typer.Option(help="With --data: which of its images.")] = "test",
    protocol: Annotated[
        Literal["usual", "aot"], typer.Option(help="The usual one, or that of Table 3 of the paper on AoT.")
    ] = "usual",
    lambada: Source = None,
    wikitext: Source = None,
    ptb: Source = None,
    cbt_cn: Source = None,
    cbt_ne: Source = None,
    straight_quotes: Annotated[
        bool, options.flag("straight-quotes", "Write straight quotes for curly ones first.")
    ] = False,
    baselines: Annotated[
        str | None, options.word("The text they were trained on: adds unigram and bigram models of it.", "SPEC")
    ] = None,
    limit: Annotated[int | None, options.whole("The first N passages and questions.")] = None,
    windows: Annotated[int, options.whole("With --protocol aot: windows for each seed.")] = 200,
    seeds: Annotated[int, options.whole("With --protocol aot: seeds of the windows.", 3, options.MOST_SEEDS)] = 3,
) -> Parts:
    """Measure losses and accuracies without training: LAMBADA, WikiText, PTB and CBT, with 95% intervals; or classes of
    images.

    Without a data set all five are read from the Hugging Face hub. Several checkpoints are compared in pairs on the
    same passages and questions: accuracies by McNemar's test, losses per word or byte with an interval.

    With --data, a model of images: accuracy with Wilson's 95% interval, a table by class, and calibration.
    """
    import pandas as pd

    from aotlens.data import open_corpus
    from aotlens.data.zero_shot import ON_THE_HUB
    from aotlens.evaluate import evaluate_zero_shot
    from aotlens.evaluate.zero_shot import ModelScorer, Scorer, fit_baselines

    sources = {"lambada": lambada, "wikitext": wikitext, "ptb": ptb, "cbt_cn": cbt_cn, "cbt_ne": cbt_ne}
    if data is not None:
        if any((*sources.values(), baselines, limit, straight_quotes)) or protocol != "usual":
            raise ValueError(f"--data {data}: evaluates models of images; leave the options of text out.")
        yield from _images(context, checkpoints, data, split)
        return
    if not any(sources.values()):
        sources = dict(zip(sources, ON_THE_HUB.values(), strict=True))
    models = {name: context.model(name) for name in checkpoints}
    scorers: dict[str, Scorer] = {name: ModelScorer(model) for name, model in models.items()}
    if baselines is not None:
        scorers |= fit_baselines(models[checkpoints[0]], open_corpus(baselines))
    with TokenBar() as bar:
        result = evaluate_zero_shot(
            scorers,
            **sources,
            protocol=protocol,
            quotes="straight" if straight_quotes else "as_is",
            limit=limit,
            seeds=range(seeds),
            n_windows=windows,
            progress=bar,
        )
    context.write(result.to_frame())
    yield result.to_frame()
    if result.differences:
        yield pd.DataFrame(result.differences)
    yield "\n".join(result.notes)


def _images(context: Context, checkpoints: list[str], spec: str, split: Split) -> Parts:
    """Accuracy, loss, a table by class and calibration of each checkpoint on the images that `spec` names."""
    import pandas as pd

    from aotlens.data.images import open_images
    from aotlens.data.sources import portable_spec
    from aotlens.evaluate import evaluate_images, images_of

    models = {name: context.model(name) for name in checkpoints}
    for name, model in models.items():
        if model.cfg.read_in != "patches":
            raise ValueError(f"--data {spec}: expected models of images, but {name} reads {model.cfg.read_in}.")
    opened = {size: open_images(spec, size=size) for size in {model.cfg.image_size for model in models.values()}}
    frames = []
    for name, model in models.items():
        images = images_of(model, opened[model.cfg.image_size], split)
        with TokenBar("images") as bar:
            evaluation = evaluate_images(model, images, progress=bar)
        frames.append(evaluation.to_frame().assign(checkpoint=name))
        yield f"{name} on {portable_spec(spec)}, {split} images: {len(images):,}\n{evaluation.headline}"
        yield evaluation.to_frame()
        yield evaluation.calibration()
        yield f"Expected calibration error, over these bins: {evaluation.calibration_error:.2%}"
    context.write(pd.concat(frames, ignore_index=True))
