"""Counts and seeds of every public function: of another kind, or past all bounds, they are refused before any work."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlens
from aotlens.conventions import MOST_DRAWS, require_seed, require_whole
from aotlens.results.exports import exports
from tests.messages import refused

ROOT = Path(aotlens.__file__).parent
PACKAGES = ("circuits", "denoise", "distill", "evaluate", "heads", "patching", "paths", "trigrams")
#: Names of counts that only cost time: nothing else would stop 10¹² of them.
COUNTS = frozenset(
    ("n_random", "n_draws", "n_bootstrap", "n_permutations", "n_weights", "n_sequences", "n_prompts", "n_steps",
     "n_context", "n_layers")
)  # fmt: skip


def functions() -> Iterator[tuple[str, Any]]:
    for name in PACKAGES:
        package = importlib.import_module(f"aotlens.{name}")
        for each in exports()[f"aotlens.{name}"]:
            value = getattr(package, each)
            if inspect.isfunction(inspect.unwrap(value)):
                yield f"{name}.{each}", inspect.unwrap(value)


def test_every_count_is_held_to_its_bounds_where_it_is_given() -> None:
    found, missing = 0, []
    for name, function in functions():
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in COUNTS and str(parameter.annotation) in ("int", "int | None"):
                found += 1
                if f'require_whole("{parameter.name}", {parameter.name}, ' not in inspect.getsource(function):
                    missing.append(f"{name}({parameter.name}=…)")
    assert found > 20 and not missing, missing


@pytest.mark.long
def test_every_seed_is_one() -> None:
    """No generator is made from what a caller says without a look at it."""
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef):
                continue
            text = ast.get_source_segment(source, node) or ""
            taken = re.search(r"(manual_seed|default_rng)\(seed\)", text)
            if taken and "require_seed(seed)" not in text and path.name != "child.py":
                wrong.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert not wrong, wrong


@pytest.mark.unchecked
@pytest.mark.parametrize("value", [10**12, -1, 1.5, "1", None, True, [1], np.array([1, 2]), float("nan"), 10**400])
def test_what_is_no_count(value: Any) -> None:
    with refused("n_draws=", "expected a whole number from 0 to 1,000,000"):
        require_whole("n_draws", value)
    if not (isinstance(value, int) and value == 10**12):
        with refused("seed=", "expected a whole number from 0"):
            require_seed(value)
    assert require_whole("n_draws", np.int64(7)) == 7 and require_whole("n_draws", MOST_DRAWS) == MOST_DRAWS


@pytest.mark.unchecked
def test_calls_with_what_is_none() -> None:
    """Some of those that were left to PyTorch's or NumPy's own words, or to an end that never came."""
    import torch

    from aotlens import circuits, denoise, heads
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

    model: Any = AttentionOnlyTransformer(ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, n_ctx=16, d_vocab=20))
    tokens = torch.randint(0, 20, (4, 8))
    for call, name in (
        (lambda n: circuits.composition(model, "k", n_random=n), "n_random"),
        (lambda n: heads.subspaces(model, n_random=n), "n_random"),
        (lambda n: heads.subspaces(model, n_weights=n), "n_weights"),
        (lambda n: denoise.audit(model, tokens, n_draws=n), "n_draws"),
        (lambda n: heads.motif_scores(model, n_sequences=n), "n_sequences"),
    ):
        for value in (10**12, "3", 2.5):
            with refused(f"{name}=", "expected a whole number"):
                call(value)
    for seeded in (
        lambda seed: heads.motif_scores(model, seed=seed),
        lambda seed: heads.sufficient_heads(model, tokens, seed=seed),
        lambda seed: heads.shapley_heads(model, tokens, seed=seed),
        lambda seed: circuits.composition(model, "k", n_random=3, seed=seed),
    ):
        for value in ([1], 1.5, -1, 2**70):
            with refused("seed=", "expected a whole number"):
                seeded(value)
