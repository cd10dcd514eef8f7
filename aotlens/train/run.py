"""A recipe from its name to its checkpoint, with a progress bar: what `aotlens train` calls."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from aotlens.checkpoints import home_folder
from aotlens.data.sources import portable_spec
from aotlens.train.loop import check_start, train
from aotlens.train.objectives import OBJECTIVES
from aotlens.train.recipe import Recipe, load_recipe


def run_recipe(
    name_or_path: str,
    *,
    corpus: str | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    seed: int | None = None,
    learning_rate: float | None = None,
    tokens: int | None = None,
    tokenizer: str | None = None,
    rows_at_once: int | None = None,
) -> Path:
    """Train a recipe; returns the checkpoint's folder (`$AOTLENS_HOME/checkpoints/NAME` unless `out` says otherwise).

    `corpus` replaces the recipe's corpus or images; `seed`, `learning_rate` (of the last stage), `tokens` (of the last
    stage, or what else the recipe counts), `tokenizer` (`gpt2_bpe:FOLDER`) and `rows_at_once` too, and the card records
    what was used. Raises `ValueError` with what to do for everything a user can get wrong.
    """
    recipe = changed_recipe(name_or_path, seed, learning_rate, tokens, tokenizer, rows_at_once)
    target = Path(out) if out is not None else home_folder() / recipe.name
    leads = os.environ.get("RANK", "0") == "0"
    if leads:
        check_start(target, resume)  # before the corpus is read
    data = OBJECTIVES[recipe.objective].prepare(recipe, corpus, announce=_say if leads else lambda message: None)
    command = command_of(
        name_or_path,
        recipe,
        corpus,
        seed=seed,
        learning_rate=learning_rate,
        tokens=tokens,
        tokenizer=tokenizer,
        rows_at_once=rows_at_once,
    )
    kind, _, _ = recipe.corpus.tokenizer.partition(":")  # a card names no local folder
    recipe = dataclasses.replace(recipe, corpus=dataclasses.replace(recipe.corpus, tokenizer=kind))
    with _Bar(recipe.name, recipe.total_tokens, enabled=leads, counted=recipe.counted) as bar:
        return train(
            recipe, data, target, device=device, resume=resume, command=command, progress=bar, on_loss=bar.say_loss
        )


def changed_recipe(
    name_or_path: str,
    seed: int | None = None,
    learning_rate: float | None = None,
    tokens: int | None = None,
    tokenizer: str | None = None,
    rows_at_once: int | None = None,
) -> Recipe:
    """Return the recipe with what the command gives in place of its own; None keeps the recipe's."""
    recipe = load_recipe(name_or_path)
    last = recipe.stages[-1]
    last = dataclasses.replace(
        last,
        learning_rate=last.learning_rate if learning_rate is None else learning_rate,
        tokens=last.tokens if tokens is None else tokens,
    )
    corpus = recipe.corpus if tokenizer is None else dataclasses.replace(recipe.corpus, tokenizer=tokenizer)
    return dataclasses.replace(
        recipe,
        seed=recipe.seed if seed is None else seed,
        stages=(*recipe.stages[:-1], last),
        corpus=corpus,
        rows_at_once=recipe.rows_at_once if rows_at_once is None else rows_at_once,
    )


def command_of(name_or_path: str, recipe: Recipe, corpus: str | None, **options: int | float | str | None) -> str:
    """Return the command that trains this again, a local folder named by its kind only; `options` are of
    `changed_recipe`."""
    words = ["aotlens train", name_or_path]
    if corpus is not None and corpus != recipe.data_section.spec:
        words.append(f"{'--corpus' if recipe.counted == 'tokens' else '--data'} {portable_spec(corpus)}")
    tokenizer = options.pop("tokenizer", None)
    if tokenizer is not None:
        words.append(f"--tokenizer {str(tokenizer).partition(':')[0]}:FOLDER")
    words += [f"--{name.replace('_', '-')} {value}" for name, value in options.items() if value is not None]
    return " ".join(words)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class _Bar:
    """A tqdm bar over tokens (or images), with loss, tokens a second and the time left."""

    def __init__(self, name: str, total: int, enabled: bool, counted: str = "tokens") -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            total=total,
            desc=name,
            unit="tok" if counted == "tokens" else f" {counted}",
            unit_scale=True,
            disable=not enabled,
            mininterval=0.5,
            maxinterval=30,
        )

    def say_loss(self, loss: float) -> None:
        """Show the loss when the bar is drawn next."""
        self._bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)

    def __call__(self, tokens: int, total_tokens: int) -> None:
        if self._bar.n == 0 and tokens:
            self._bar.initial = tokens  # a resumed run: the rate counts from here
            self._bar.n = self._bar.last_print_n = tokens
        self._bar.update(tokens - self._bar.n)
        if tokens >= total_tokens:
            self._bar.set_description(f"{self._bar.desc.removesuffix(': ')}, trained; measuring on what was held out")

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()
