"""``aotlens evaluate``: losses and accuracies on data sets that no checkpoint was trained on."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from aotlens.commands.evaluate_images import evaluate_on_images
from aotlens.commands.shared import (
    MOST_ROWS,
    MOST_SEEDS,
    Csv,
    Device,
    Folders,
    Force,
    TokenBar,
    check_csv,
    load_ours,
    print_text,
    table,
    write_csv,
)

if TYPE_CHECKING:
    from aotlens.evaluate import ZeroShot

Source = Annotated[str | None, typer.Option(metavar="SOURCE", help="A file as published, or hf:NAME[:config].")]


def evaluate_command(
    checkpoints: Annotated[list[str], typer.Argument(metavar="CHECKPOINT...", help="One or several, side by side.")],
    suite: Annotated[Literal["zero-shot"], typer.Option(help="The suite of data sets.")] = "zero-shot",
    data: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Models of images: digits, npz:PATH, folder:PATH, openml:NAME or hf:NAME."),
    ] = None,
    split: Annotated[
        Literal["test", "validation", "training"], typer.Option(help="With --data: which of its images.")
    ] = "test",
    protocol: Annotated[
        Literal["usual", "aot"], typer.Option(help="The usual one, or that of Table 3 of the paper on AoT.")
    ] = "usual",
    lambada: Source = None,
    wikitext: Source = None,
    ptb: Source = None,
    cbt_cn: Source = None,
    cbt_ne: Source = None,
    straight_quotes: Annotated[
        bool, typer.Option("--straight-quotes", help="Write straight quotes for curly ones first.")
    ] = False,
    baselines: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="The text they were trained on: adds unigram and bigram models of it."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="The first N passages and questions.")
    ] = None,
    windows: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="With --protocol aot: windows a seed.")
    ] = 200,
    seeds: Annotated[
        int, typer.Option(min=3, max=MOST_SEEDS, metavar="N", help="With --protocol aot: seeds of the windows.")
    ] = 3,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """Measure losses and accuracies without training: LAMBADA, WikiText, PTB and CBT, with 95% intervals; or classes of
    images.

    Without a data set all five are read from the Hugging Face hub. Several checkpoints are compared in pairs on the
    same passages and questions: accuracies by McNemar's test, losses per word or byte with an interval.

    With --data, a model of images: accuracy with Wilson's 95% interval, a table by class, and calibration.
    """
    if data is not None:
        if any((lambada, wikitext, ptb, cbt_cn, cbt_ne, baselines, limit, straight_quotes)) or protocol != "usual":
            raise ValueError(f"--data {data}: evaluates models of images; leave the options of text out.")
        evaluate_on_images(checkpoints, data, split, csv, force, device, folders)
        return
    from aotlens.data import open_corpus
    from aotlens.data.zero_shot import ON_THE_HUB
    from aotlens.evaluate import evaluate_zero_shot
    from aotlens.evaluate.zero_shot import ModelScorer, Scorer, fit_baselines

    check_csv(csv, force)
    if not any((lambada, wikitext, ptb, cbt_cn, cbt_ne)):
        lambada, wikitext, ptb, cbt_cn, cbt_ne = ON_THE_HUB.values()
    models = {name: load_ours("evaluate", name, device, folders) for name in checkpoints}
    scorers: dict[str, Scorer] = {name: ModelScorer(model) for name, model in models.items()}
    if baselines is not None:
        scorers |= fit_baselines(models[checkpoints[0]], open_corpus(baselines))
    with TokenBar() as bar:
        result = evaluate_zero_shot(
            scorers,
            lambada=lambada,
            wikitext=wikitext,
            ptb=ptb,
            cbt_cn=cbt_cn,
            cbt_ne=cbt_ne,
            protocol=protocol,
            quotes="straight" if straight_quotes else "as_is",
            limit=limit,
            seeds=range(seeds),
            n_windows=windows,
            progress=bar,
        )
    if csv is not None:
        write_csv(result.to_frame(), csv)
        return
    print_text(_figures(result))
    if result.differences:
        print_text(f"\n{_differences(result)}")
    print_text("\n" + "\n".join(result.notes))


def _figures(result: ZeroShot) -> str:
    """A row a figure and model, the models of a figure below each other."""
    rows: list[tuple[str, ...]] = [("data", "measure", "unit", "model", "value", "95% interval", "over")]
    figures = dict.fromkeys((each.data, each.measure, each.unit) for each in result.measures)
    for figure in figures:
        for each in result.measures:
            if (each.data, each.measure, each.unit) != figure:
                continue
            share = each.unit == "share"
            value = _number(each.value, share)
            interval = f"{_number(each.low, share)} to {_number(each.high, share)}" if isfinite(each.low) else ""
            if isfinite(each.standard_error):
                interval = f"standard error {each.standard_error:.3f}"
            rows.append((*figure, each.model, value, interval, each.over))
    return table(rows)


def _differences(result: ZeroShot) -> str:
    """A row a pair of models and figure: the difference, with its interval or McNemar's p-value."""
    rows: list[tuple[str, ...]] = [
        ("data", "measure", "unit", "left", "right", "left − right", "", "right by one alone")
    ]
    for each in result.differences:
        share = each.unit == "share"
        interval = f"{each.low:+.3f} to {each.high:+.3f}" if isfinite(each.low) else ""
        if share:
            interval = f"McNemar's p = {each.p:.2g}"
        alone = f"{each.only_left} left, {each.only_right} right" if share else ""
        difference = f"{each.difference:+.2%}" if share else f"{each.difference:+.3f}"
        rows.append((each.data, each.measure, each.unit, each.left, each.right, difference, interval, alone))
    return table(rows)


def _number(value: float, share: bool) -> str:
    return f"{value:.2%}" if share else f"{value:.3f}"
