"""One bound for all that is kept between requests: what counts, what goes, and that nothing is kept beside it."""

from __future__ import annotations

import gc
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from app.core import Core
from app.core.cache import Cache, Memory
from app.core.settings import Settings
from app.core.sizes import Held, held_by, size_of
from app.factory import create_app
from tests.app.test_app import analyse

# ── what a value holds ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Result:
    pattern: Any
    rest: Any = None


@dataclass(frozen=True, slots=True)
class Slotted:
    pattern: Any


def test_arrays_and_tables_count_with_all_that_they_keep_in_memory():
    array, tensor = np.zeros((100, 1000)), torch.zeros(50, 1000)
    for holder in (Result(array), Slotted(array), [array], {"a": (array,)}, Result(array[:2]), Result(array.T, array)):
        assert 800_000 <= size_of(holder) < 801_500, holder
    assert 200_000 <= size_of(Result(tensor[0], tensor.T)) < 201_500
    assert size_of(tensor) == 200_000 and size_of(array) == 800_000
    frame = pd.DataFrame({"token": ["the captain"] * 1000, "value": np.zeros(1000)})
    assert size_of(Result(frame)) >= frame.memory_usage(deep=True).sum() > 8000
    assert size_of("x" * 10_000) >= 10_000 and size_of([str(n) for n in range(1000)]) > 50_000


def test_a_model_counts_beside_what_refers_to_it():
    model = torch.nn.Linear(100, 100)
    n_bytes = 4 * (100 * 100 + 100)
    held = held_by(Result(model, {"again": model}))
    assert held.models == {id(model): n_bytes} and held.n_bytes < 1000
    assert size_of(Result(model)) == held_by(Result(model)).n_bytes + n_bytes


def test_what_refers_to_itself_is_counted_once():
    loop: list[Any] = [b"x" * 1000]
    loop.append(loop)
    assert 1000 < size_of(loop) < 1500


ROOT = Path(__file__).resolve().parents[2]
WORDS = ("the", "captain", "bowed", "and", "smiled", "at", "Mrs", "Pendlebury")

# ── the bound ────────────────────────────────────────────────────────────────────────────────────────────────


def test_caches_share_one_bound_and_the_least_recently_used_of_any_goes():
    memory = Memory(100)
    first, second = memory.cache(cost=len), memory.cache(cost=len)
    first.get("a", lambda: bytes(40))
    second.get("a", lambda: bytes(40))
    first.get("a", lambda: bytes(0))
    first.get("b", lambda: bytes(40))
    assert (first.known("a"), second.known("a"), first.known("b")) == (bytes(40), None, bytes(40))
    assert memory.n_bytes == 80
    second.get("large", lambda: bytes(1000))
    assert len(first) == 0 and len(second) == 1 and memory.n_bytes == 1000  # the newest stays, however large
    second.get("small", lambda: bytes(1))
    assert len(second) == 1 and memory.n_bytes == 1


def test_a_cache_of_few_values_frees_what_it_drops():
    memory = Memory(1000)
    few = memory.cache(2, len)
    for number in range(5):
        few.get(number, lambda: bytes(10))
    assert len(few) == 2 and memory.n_bytes == 20 and few.known(4) is not None


def test_weights_count_once_for_as_long_as_anything_refers_to_them():
    memory = Memory(2000)
    models, results = memory.cache(1), memory.cache()
    weights = 4 * 10 * 10
    first = models.get("first", lambda: Result(torch.nn.Linear(10, 10, bias=False)))
    alone = memory.n_bytes
    results.get("of first", lambda: first)
    assert alone + weights < 2 * alone == memory.n_bytes + weights
    models.get("second", lambda: b"")
    assert models.known("first") is None and memory.n_bytes > weights  # a result still refers to them
    results.get("large", lambda: bytes(1900))
    assert results.known("of first") is None and memory.n_bytes == size_of(b"") + size_of(bytes(1900))


def test_values_that_grow_are_measured_again():
    memory = Memory(10_000)
    grows, others = memory.cache(grows=True), memory.cache(cost=len)
    value = grows.get("a", lambda: [b""])
    others.get("b", lambda: bytes(5000))
    before = memory.n_bytes
    value.append(bytes(3000))
    assert memory.n_bytes == before
    grows.get("another", lambda: [])
    assert before + 3000 < memory.n_bytes < before + 3200
    grows.get("a", lambda: [])
    value.append(bytes(4000))
    grows.get("another", lambda: [])
    assert others.known("b") is None and 7000 < memory.n_bytes < 7400


def test_the_count_is_right_after_many_threads():
    memory = Memory(50_000)
    caches = [memory.cache(most, len) for most in (None, 7, 30)]

    def use(seed: int) -> None:
        drawn = random.Random(seed)
        for _ in range(500):
            cache, key = drawn.choice(caches), drawn.randrange(40)
            value = cache.get(key, lambda key=key: bytes(200 + 97 * key))
            assert len(value) == 200 + 97 * key

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    kept = [value for cache in caches for key in range(40) if (value := cache.known(key)) is not None]
    assert memory.n_bytes == sum(map(len, kept)) <= 50_000 and len(kept) == sum(map(len, caches))


def test_whatever_the_app_keeps_is_within_its_memory():
    """A cache or jobs made elsewhere would keep values that nobody counts."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        for line in path.read_text("utf-8").splitlines():
            made = path.name != "cache.py" and re.search(r"[^.\w]Cache\(|\bJobs\((?!.*memory=)", line)
            assert not made, f"{path.name}: {line.strip()}: expected memory.cache(…), or memory=core.memory"


def measured_anew(memory: Memory) -> int:
    """What the caches of a memory hold, each model once."""
    caches = [one for one in gc.get_objects() if type(one) is Cache and one._memory is memory]
    values: list[Held] = [cache._held(value) for cache in caches for value in cache._values.values()]
    models = {model: n_bytes for held in values for model, n_bytes in held.models.items()}
    return sum(held.n_bytes for held in values) + sum(models.values())


def test_an_app_keeps_within_its_bound_and_counts_all_that_it_keeps(settings: Settings, checkpoints: Path):
    """Twenty users, each with texts of their own: some MB of patterns through 1 MB."""
    given = replace(settings, memory_bytes=2**20)
    core = Core.start(given)
    app = create_app(given, core)
    largest = 0

    def ask(user: int) -> None:
        nonlocal largest
        drawn = random.Random(user)
        for _ in range(2):
            words = " ".join(drawn.choices(WORDS, k=8))
            checkpoint = drawn.choice(["tiny-mhsa", "tiny-mssa", "tiny-fixed"])
            assert analyse(app, {"checkpoint": checkpoint, "text": words})
            largest = max(largest, core.memory.n_bytes)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(ask, range(20)))
    assert largest <= 2**20
    assert core.memory.n_bytes > 2**19  # it was full, so that much has gone
    assert core.memory.n_bytes == measured_anew(core.memory)
