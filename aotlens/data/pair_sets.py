"""Pairs of prompts of the tasks that bundled models were trained for: names, code, images, regression.

    repeated_names        a name that was said with "Mr." comes again after "Mr."           models of novels
    matching_brackets     what was opened is closed: ( by ), [ by ]                         models of code
    deeper_indentation    after a colon a line begins one step deeper                       models of code
    image_pairs           an image of one class, and one of another                         models of images
    negated_labels        the same examples with all labels negated                         models of regression

Random tokens of which one comes again are `PromptPairs.induction`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from aotlens.conventions import require_seed, require_whole
from aotlens.data.pairs import FIELDS, PromptPairs
from aotlens.data.regression import RegressionPrompts
from aotlens.models import require_ours

#: Names of English novels, and names in Python code.
_NAMES = """
    Adam Alice Andrew Ann Anna Anne Arthur Audley Ayala Bishop Brown Castlewood Charles Charlotte Christian
    Cynthia Dan Darrell David Deronda Dick Edward Elizabeth Emma Esmond Evelyn Fanny Frank George Gibson
    Gwendolen Hal Harley Harriet Harry Helen Henry Hetty Jack James Jane John Joseph Julia Kate Ken Kenelm Kitty
    Laura Leon Leonard Lesbia Lucy Margaret Maria Marian Mary Maulevrier Molly Nick Oliver Pendennis Percival
    Peter Philip Phineas Randal Richard Robert Roger Rowland Sam Strether Sylvia Tess Thomas Tom Violet Walter
    Warrington William Wood
""".split()  # noqa: SIM905
_WORDS = """
    args array count data index item key line list model name node offset other out path result row self size start
    state text value
""".split()  # noqa: SIM905
#: Spaces of a step.
_STEP = 4


def repeated_names(model: Any, *, n: int = 32, seed: int = 0) -> PromptPairs:
    """Return pairs such as "Mr. {A} was there with {B}. Then Mr." → A, not B; corrupted, A and B are exchanged.

    Of 82 names those that are one token each. Raises `ValueError` where fewer than `n` pairs can be made.
    """
    require_ours(model, "repeated_names")
    return PromptPairs.from_template(
        model, "Mr. {A} was there with {B}. Then Mr.", answer=" {A}", wrong=" {B}", words=_NAMES, n=n, seed=seed
    )


def matching_brackets(model: Any, *, n: int = 32, seed: int = 0) -> PromptPairs:
    """Return pairs such as `name = function(argument` → `)`, not `]`; corrupted, `name = function[argument`.

    Words are one token each; pairs with one argument, which matters most, are a cluster. Raises `ValueError` where
    fewer than `n` pairs can be made.
    """
    require_ours(model, "matching_brackets")
    return _of_words(model, lambda a, b, c: (f"{a} = {b}({c}", f"{a} = {b}[{c}", ")", "]"), n, seed)


def deeper_indentation(model: Any, *, n: int = 32, seed: int = 0) -> PromptPairs:
    """Return pairs in which a line after a colon at 8 spaces begins with 12; corrupted, all lines stand 4 spaces to the
    left.

    Words are one token each; pairs with one condition, which matters most, are a cluster. Raises `ValueError` where
    fewer than `n` pairs can be made, and for a tokenizer in which the beginnings of a line are not one token each.
    """
    require_ours(model, "deeper_indentation")

    def line(steps: int) -> str:
        return "\n" + " " * (_STEP * steps - 1)  # the last space is the next word's

    return _of_words(
        model,
        lambda a, b, c: (f"{a}.{b}{line(2)} if {c}:", f"{a}.{b}{line(1)} if {c}:", line(3), line(2)),
        n,
        seed,
    )


def image_pairs(
    model: Any,
    images: Shaped[Tensor, "image channel height width"],
    labels: Int[Tensor, " image"] | Int[np.ndarray, " image"],
    classes: tuple[int, int],
    *,
    n: int = 32,
    seed: int = 0,
) -> PromptPairs:
    """Return pairs of an image of the first class and one of the second: positions are patches, the answers the
    classes.

    Drawn without repetition. Raises `ValueError` for one class twice, and where a class has fewer than `n` images.
    """
    require_ours(model, "image_pairs")
    require_whole("n", n, 1)
    rng, sides = np.random.default_rng(require_seed(seed)), []
    for number in classes:
        rows = np.flatnonzero(np.asarray(labels) == number)
        if len(rows) < n:
            raise ValueError(f"image_pairs: expected {n} images of class {number} or more, got {len(rows)}.")
        sides.append(images[torch.from_numpy(rng.permutation(rows)[:n])])
    clean, corrupted = sides
    return PromptPairs.of_inputs(model, clean, corrupted, [classes[0]] * n, [classes[1]] * n)


def negated_labels(model: Any, prompts: RegressionPrompts) -> PromptPairs:
    """Return prompts of in-context regression up to the last input, and the same with all labels negated, which turns
    the sign of every linear function: clean is the one whose last label is positive. To be measured by the metric
    "output", the estimate of that label.

    Raises `ValueError` for a model that reads or writes something else.
    """
    require_ours(model, "negated_labels")
    if (model.cfg.read_in, model.cfg.read_out) != ("vectors", "vectors"):
        raise ValueError(
            f"negated_labels: expected a model that reads and writes vectors, got one that reads {model.cfg.read_in} "
            f"and writes {model.cfg.read_out}."
        )
    tokens = prompts.tokens  # they end with the last input
    negated = tokens.clone()
    negated[:, 1::2] *= -1
    positive = prompts.labels[:, -1, None, None] > 0
    clean, corrupted = torch.where(positive, tokens, negated), torch.where(positive, negated, tokens)
    return PromptPairs.of_inputs(model, clean, corrupted, [0] * len(clean), [0] * len(clean))


def _of_words(
    model: Any, texts: Callable[[str, str, str], tuple[str, str, str, str]], n: int, seed: int
) -> PromptPairs:
    """Make `n` pairs of three different one-token words, no three twice; the last word is the cluster."""
    require_whole("n", n, 1)
    encode = model.tokenizer.encode
    known = [word for word in _WORDS if len(encode(word)) == len(encode(f" {word}")) == 1]
    drawn = list(permutations(known, 3))
    if n > len(drawn):
        raise ValueError(
            f"expected {n} rows of 3 words, got {len(drawn)}: of {len(_WORDS)} words {len(known)} are one token each "
            "for this tokenizer; ask for fewer, or give texts of your own (PromptPairs.from_texts)."
        )
    rows = [drawn[place] for place in np.random.default_rng(require_seed(seed)).permutation(len(drawn))[:n]]
    return PromptPairs.from_texts(
        model, [{**dict(zip(FIELDS, texts(*words), strict=True)), "cluster": words[-1]} for words in rows]
    )
