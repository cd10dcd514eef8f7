"""Catalog, inference, cache and exports, without a browser."""

from __future__ import annotations

import csv
import io
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aotlens.checkpoints import load_folder
from aotlens.checkpoints.snapshots import SnapshotWriter, snapshots_folder
from aotlens.heads import attention_patterns
from app.core import Core
from app.core import head_maps as views
from app.core.cache import Cache, Memory
from app.core.errors import RequestError
from app.core.examples import FIRST
from app.pages.heads.callbacks import all_heads_npz
from app.pages.heads.ids import VIEWS, ids
from app.pages.heads.service import Heads
from app.shell.prompt import checkpoint_choice
from app.shell.views import record, table
from tests.messages import refused

# ── cache ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_cache_forgets_what_was_used_least_recently():
    cache: Cache[str, int] = Memory(10).cache(cost=lambda value: value)
    made = []

    def make(name: str, size: int) -> int:
        return cache.get(name, lambda: made.append(name) or size)

    make("a", 4), make("b", 4), make("a", 4), make("c", 4)
    make("a", 4)
    assert made == ["a", "b", "c"]
    make("b", 4)
    assert made == ["a", "b", "c", "b"]


def test_a_value_larger_than_the_cache_is_kept_alone():
    cache: Cache[str, int] = Memory(10).cache(cost=lambda value: value)
    cache.get("a", lambda: 3)
    cache.get("b", lambda: 100)
    assert len(cache) == 1
    assert cache.get("b", lambda: pytest.fail("made twice")) == 100


def test_threads_that_ask_together_share_one_value():
    cache: Cache[str, object] = Memory(10**6).cache()
    barrier, made = threading.Barrier(8), []

    def make() -> object:
        made.append(1)
        return object()

    def ask(_: int) -> object:
        barrier.wait()
        return cache.get("key", make)

    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(ask, range(8)))
    assert len(made) == 1
    assert all(value is values[0] for value in values)


def test_a_failure_is_not_kept():
    cache: Cache[str, int] = Memory(10**6).cache()
    with pytest.raises(RequestError):
        cache.get("key", lambda: (_ for _ in ()).throw(RequestError("no")))
    assert cache.get("key", lambda: 7) == 7


# ── catalog ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_snapshot_is_found_by_its_step(services: Core):
    """NAME@STEP in an address: its own weights, the run's shape, and the choice of a page shows it."""
    known = services.catalog.info("tiny-mhsa")
    state = {name: 2 * tensor for name, tensor in services.catalog.load("tiny-mhsa").model.state_dict().items()}
    assert known.path is not None
    SnapshotWriter(known.path, 0).add(5, 50, state)
    try:
        loaded = services.catalog.load("tiny-mhsa@5")
        assert torch.equal(loaded.model.W_E, state["embed.W_E"]) and loaded.model.card.tokens_seen == 50
        assert services.catalog.shape("tiny-mhsa@5") == services.catalog.shape("tiny-mhsa")
        chosen = checkpoint_choice("id", services.catalog, "tiny-mhsa@5")
        assert [entry["value"] for entry in chosen.data].count("tiny-mhsa@5") == 1
        with refused("tiny-mhsa@6", "nearest are 5", error=RequestError) as told:
            services.catalog.load("tiny-mhsa@6")
        assert str(known.path.parent) not in str(told.value)
        assert checkpoint_choice("id", services.catalog, "tiny-mhsa@6").data
        for name in ("tiny-mhsa@../x", "tiny-mhsa@", "@5", "none@5"):
            with refused("No checkpoint", error=RequestError):
                services.catalog.load(name)
    finally:
        shutil.rmtree(snapshots_folder(known.path))


def test_the_catalog_lists_broken_ones_last(services: Core):
    names = [info.name for info in services.catalog.list()]
    assert names == ["tiny-fixed", "tiny-mhsa", "tiny-mssa", "broken"]
    assert services.catalog.default() == "tiny-fixed"


def test_a_name_is_never_a_path(services: Core, checkpoints):
    for name in (str(checkpoints / "tiny-mhsa"), "../tiny-mhsa", "./tiny-mhsa", ""):
        with pytest.raises(RequestError, match="tiny-mhsa"):
            services.catalog.load(name)
    with pytest.raises(RequestError, match="No checkpoint here fits this page"):
        services.catalog.load(None)


def test_a_broken_checkpoint_says_why(services: Core):
    with pytest.raises(RequestError, match=r"model\.safetensors"):
        services.catalog.load("broken")


def test_a_model_is_loaded_once(services: Core):
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda _: services.catalog.load("tiny-mhsa"), range(8)))
    assert len({id(one.model) for one in loaded}) == 1


# ── inference ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_every_cache_of_four_threads_equals_the_serial_one(services: Core, checkpoints):
    """The reason for the lock: hooks are module state, and without it the caches mix."""
    fresh = Core.start(services.settings)
    prompts = [f"{number} captains danced, {number * number} bowed" for number in range(200)]
    alone = load_folder(checkpoints / "tiny-mhsa", "cpu")
    expected = {prompt: attention_patterns(alone, alone.to_tokens(prompt)).pattern for prompt in prompts}

    def run(thread: int) -> dict[str, np.ndarray]:
        mine = prompts[thread::4]
        return {prompt: fresh.inference.analyse("tiny-mhsa", prompt).patterns.pattern for prompt in mine}

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(run, thread) for thread in range(4)]
        results = {prompt: pattern for one in found for prompt, pattern in one.result().items()}
    wrong = [prompt for prompt in prompts if not np.array_equal(results[prompt], expected[prompt])]
    assert not wrong, f"{len(wrong)} of {len(prompts)} caches differ"


def test_the_start_token_comes_first(services: Core):
    patterns = services.inference.analyse("tiny-mhsa", "The captain").patterns
    assert patterns.tokens[0] == 0
    assert patterns.str_tokens[0] == "<|endoftext|>"
    assert "".join(patterns.str_tokens[1:]) == "The captain"


def test_the_same_prompt_is_run_once(services: Core):
    first = services.inference.analyse("tiny-mhsa", "once")
    assert services.inference.analyse("tiny-mhsa", "once") is first


@pytest.mark.parametrize(
    "text",
    ["", "🙂🙂", "e\u0301 n\u0303", "a\0b", "<|endoftext|>", "\t\n\r ", "東京", "\u200b\u202e", "\ufeff"],
    ids=["empty", "emoji", "combining", "nul", "special", "whitespace", "cjk", "invisible", "bom"],
)
def test_any_text_is_read(services: Core, text: str):
    result = services.inference.analyse("tiny-mhsa", text)
    tokenizer = services.catalog.load("tiny-mhsa").model.tokenizer
    assert tokenizer is not None
    assert tokenizer.decode(result.patterns.tokens[1:].tolist()) == text
    assert (result.patterns.tokens[1:] != 0).all()


def test_a_lone_surrogate_is_refused_with_its_position(services: Core):
    with refused("can't be tokenised", 2, error=RequestError):
        services.inference.analyse("tiny-mhsa", "ab\ud800c")


def test_too_long_a_text_is_refused_with_count_and_limit(services: Core):
    model = services.catalog.load("tiny-mhsa").model
    text = " " * 10_000
    n_tokens = model.to_tokens(text).shape[1]
    with refused(f"{n_tokens:,} tokens", "at most 48", f"{n_tokens - 48:,} tokens", error=RequestError):
        services.inference.analyse("tiny-mhsa", text)


def test_a_page_opens_on_as_much_of_the_example_as_the_model_takes(services: Core):
    inference = services.inference
    limit = inference.token_limit(services.catalog.load("tiny-mhsa"))
    opening = inference.opening("tiny-mhsa", None)
    assert FIRST.startswith(f"{opening} ") and inference.n_tokens("tiny-mhsa", opening) <= limit
    longer = FIRST[: FIRST.index(" ", len(opening) + 1)]
    assert inference.n_tokens("tiny-mhsa", longer) is None  # one word more is too long
    assert inference.opening("tiny-mhsa", "my own " * 100) == "my own " * 100  # which is refused, and not cut
    assert inference.opening(None, None) == FIRST


def test_more_characters_than_the_limit_are_refused_unread(services: Core):
    with refused("1,000,000 characters", "20,000", error=RequestError):
        services.inference.analyse("tiny-mhsa", "", length=1_000_000)


def test_many_heads_shorten_the_limit(services: Core, settings):
    small = Core.start(replace(settings, max_result_bytes=8 * 2 * 3 * 20 * 20))
    assert small.inference.token_limit(small.catalog.load("tiny-mhsa")) == 20
    with pytest.raises(RequestError, match="at most 20"):
        small.inference.analyse("tiny-mhsa", "The captain bowed, and Mrs. Pendlebury smiled at the captain.")


def predicted(services: Core, checkpoint: str, text: str, position: int | None) -> Any:
    """What the page Heads lists."""
    heads = Heads(services)
    chosen = heads.values({"prompt": {"checkpoint": checkpoint, "text": text}, "position": position})
    return heads.workshop.result(VIEWS[ids.NEXT], chosen)


def test_predictions_are_the_models_own(services: Core):
    text = "The captain bowed"
    found = predicted(services, "tiny-mhsa", text, None)
    model = services.catalog.load("tiny-mhsa").model
    logits = model(model.to_tokens(text))[0, -1]
    best = logits.softmax(-1).topk(len(found.token_ids))
    np.testing.assert_array_equal(found.token_ids, best.indices.numpy())
    np.testing.assert_allclose(found.probabilities, best.values.detach().numpy(), rtol=1e-5)


def test_a_position_outside_the_text_is_refused(services: Core):
    with pytest.raises(RequestError, match="position=99"):
        predicted(services, "tiny-mhsa", "The captain", 99)


# ── views and exports ────────────────────────────────────────────────────────────────────────────────────────


def test_a_tokens_numbers_are_those_of_the_head(services: Core):
    result = services.inference.analyse("tiny-mhsa", "The captain bowed")
    patterns, n = result.patterns, result.patterns.n_pos
    row, column = np.frombuffer(views.line_bytes(result, 1, 2, "attention", 3), "<f4").reshape(2, n)
    np.testing.assert_array_equal(row, np.where(np.arange(n) <= 3, patterns.pattern[1, 2, 3], np.nan))
    np.testing.assert_array_equal(column, np.where(np.arange(n) >= 3, patterns.pattern[1, 2, :, 3], np.nan))
    weighted = np.frombuffer(views.line_bytes(result, 1, 2, "weighted", 3), "<f4")
    np.testing.assert_allclose(weighted[2], patterns.pattern[1, 2, 3, 2] * patterns.value_norms[1, 2, 2])


def test_a_fixed_pattern_has_no_scores(services: Core):
    result = services.inference.analyse("tiny-fixed", "The captain bowed")
    with pytest.raises(RequestError, match="no queries, no keys"):
        views.packed_maps(result, "scores", "")
    with pytest.raises(RequestError, match="no queries, no keys"):
        views.line_bytes(result, 0, 0, "scores", 1)
    assert views.packed_maps(result, "attention", "")


def test_a_head_that_is_not_there(services: Core):
    result = services.inference.analyse("tiny-mhsa", "The captain bowed")
    with pytest.raises(RequestError, match=r"no head 2\.0"):
        views.line_bytes(result, 2, 0, "attention", 0)


def test_exports_hold_what_is_shown(services: Core):
    text = 'The "captain",\nbowed'
    heads, result = Heads(services), services.inference.analyse("tiny-mhsa", text)
    shown = result.patterns.of_head((0, 1), "attention")
    chosen = heads.values({"prompt": {"checkpoint": "tiny-mhsa", "text": text}}, head=[0, 1], position=2)
    file = table(heads.workshop, VIEWS[ids.MAP], chosen)
    rows = list(csv.DictReader(io.StringIO(file.content.decode())))
    assert len(rows) == int(np.isfinite(shown).sum())
    for row in rows:
        assert float(row["attention"]) == pytest.approx(float(shown[int(row["query"]), int(row["key"])]), rel=1e-6)
        assert row["key_token"] == result.patterns.str_tokens[int(row["key"])]
    content = json.loads(record(heads.workshop, VIEWS[ids.MAP], chosen).content)
    assert content["str_tokens"] == list(result.patterns.str_tokens) and len(content["rows"]) == len(rows)
    arrays = np.load(io.BytesIO(all_heads_npz(result, 10**8).content))
    np.testing.assert_array_equal(arrays["pattern"], result.patterns.pattern)
    with pytest.raises(RequestError, match="MB"):
        all_heads_npz(result, 10)
    predictions = predicted(services, "tiny-mhsa", text, 2)
    rows = list(csv.DictReader(io.StringIO(table(heads.workshop, VIEWS[ids.NEXT], chosen).content.decode())))
    assert [int(row["token_id"]) for row in rows] == predictions.token_ids.tolist()
    assert json.loads(record(heads.workshop, VIEWS[ids.NEXT], chosen).content)["position"] == 2
