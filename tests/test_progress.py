"""Long work says how far it is in one way: `progress(done, total)`, wherever a function takes it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import aotlens
from aotlens.conventions import Progress
from aotlens.data import Tokenizer, open_corpus
from aotlens.trigrams import evidence, skip_trigrams
from tests.small_models import SMALL, maker

TEXT = "the cat sat on the mat, the rat sat on the cat, and that was that "


def public_functions() -> Iterator[Callable[..., Any]]:
    """Every function that a module of the library defines, and every constructor, whose name does not begin with _."""
    for module_info in pkgutil.walk_packages(aotlens.__path__, "aotlens."):
        if module_info.name.endswith("__main__"):
            continue
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(value):
                yield value
            elif inspect.isclass(value):
                yield value.__init__


def test_every_progress_is_the_same_callback() -> None:
    takers = []
    for function in public_functions():
        parameter = inspect.signature(function).parameters.get("progress")
        if parameter is None:
            continue
        where = f"{function.__module__}.{function.__qualname__}"
        annotation = parameter.annotation
        if isinstance(annotation, str):
            annotation = eval(annotation, vars(importlib.import_module(function.__module__)))
        assert annotation == Progress | None, f"{where}: progress is {parameter.annotation}"
        assert parameter.default is None and parameter.kind is parameter.KEYWORD_ONLY, where
        takers.append(where)
    assert {"aotlens.train.loop.train", "aotlens.trigrams.evidence.evidence"} <= set(takers)


def test_a_text_that_ends_before_max_tokens_is_done_at_its_end(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train([TEXT], 270)
    model = maker({**SMALL, "d_vocab": 270, "n_ctx": 8})(tokenizer=tokenizer)
    table = skip_trigrams(model, "1.0", k=3, background=np.ones(270))
    for name, times in (("a", 9), ("b", 1)):
        (tmp_path / f"{name}.txt").write_text(TEXT * times, encoding="utf-8")
    corpus = open_corpus(f"dir:{tmp_path}")
    for text in (corpus, np.array(tokenizer.encode(TEXT * 9))):
        for max_tokens in (40, 10_000, None):
            calls: list[tuple[int, int]] = []
            result = evidence(
                model, table, text, max_tokens=max_tokens, run_model=False, batch_size=2,
                progress=lambda done, total, calls=calls: calls.append((done, total)),
            )  # fmt: skip
            done = [call[0] for call in calls]
            assert done == sorted(done) and all(0 < d <= total for d, total in calls)
            assert calls[-1] == (result.n_tokens, result.n_tokens)
            if max_tokens == 10_000:
                assert calls[0][1] == (max_tokens if text is corpus else len(text))
