"""Threads that share a model get what one thread alone gets, and none waits for what it need not wait for."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer
from aotlens.models.run_lock import RunLock

PATTERN = "blocks.0.attn.hook_pattern"
SECONDS_UNTIL_STUCK = 60

pytestmark = pytest.mark.timeout(300)


def zero(value: Tensor, hook: Any) -> Tensor:
    return 0 * value


def waits(future: Future[Any], model: AttentionOnlyTransformer) -> bool:
    """Whether what runs in another thread stands in the queue of the model's lock rather than ending."""
    while not future.done():
        if model._run_lock._queue:
            return True
        time.sleep(0.001)
    return False


@pytest.fixture
def model(make) -> AttentionOnlyTransformer:
    return make(torch.float64).requires_grad_(False)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_eight_threads_get_the_caches_and_logits_of_one(model, threads) -> None:
    batches = [torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(seed)) for seed in range(8)]
    caches = [model.run_with_cache(batch, return_cache_object=False)[1] for batch in batches]
    logits = [model(batch) for batch in batches]
    silenced = [model.run_with_hooks(batch, fwd_hooks=[(PATTERN, zero)]) for batch in batches]

    def run(index: int) -> list[str]:
        wrong = []
        for _ in range(20):
            cache = model.run_with_cache(batches[index], return_cache_object=False)[1]
            if cache.keys() != caches[index].keys() or not all(
                torch.equal(value, caches[index][name]) for name, value in cache.items()
            ):
                wrong.append("cache")
            if not torch.equal(model(batches[index]), logits[index]):
                wrong.append("plain")
            with model.hooks(fwd_hooks=[(PATTERN, zero)]):
                if not torch.equal(model(batches[index]), silenced[index]):
                    wrong.append("hooked")
        return wrong

    assert [wrong for wrongs in threads.map(run, range(8)) for wrong in wrongs] == []
    assert not model.list_hooks() and model.context_level == 0


def test_plain_runs_are_in_the_model_at_the_same_time(model, tokens, threads) -> None:
    meeting = threading.Barrier(8)  # the runs end only if all eight are between two layers at once

    def meet(stream: Tensor, hook: Any) -> None:
        meeting.wait(SECONDS_UNTIL_STUCK)

    model.add_hook("blocks.1.hook_resid_pre", meet)
    for future in [threads.submit(model, tokens) for _ in range(8)]:
        future.result(SECONDS_UNTIL_STUCK)


def test_a_plain_run_waits_for_a_run_with_hooks_and_the_other_way_round(model, tokens, threads) -> None:
    clean = model(tokens)
    with model.hooks(fwd_hooks=[(PATTERN, zero)]):
        waiting = threads.submit(model, tokens)
        assert waits(waiting, model)
        assert not torch.allclose(model(tokens), clean)  # this thread's own calls pass
    assert torch.equal(waiting.result(SECONDS_UNTIL_STUCK), clean)

    inside, leave = threading.Event(), threading.Event()

    def stay(stream: Tensor, hook: Any) -> None:
        inside.set()
        leave.wait(SECONDS_UNTIL_STUCK)

    model.add_hook("blocks.0.hook_resid_pre", stay)
    plain = threads.submit(model, tokens)
    assert inside.wait(SECONDS_UNTIL_STUCK)
    hooked = threads.submit(model.run_with_hooks, tokens, fwd_hooks=[(PATTERN, zero)])
    assert waits(hooked, model)
    leave.set()
    assert torch.equal(plain.result(SECONDS_UNTIL_STUCK), clean)
    assert not torch.allclose(hooked.result(SECONDS_UNTIL_STUCK), clean)


def test_hooks_within_hooks_and_within_plain_runs_do_not_wait_for_themselves(model, tokens, threads) -> None:
    """Eight plain runs each ask for a run with hooks from inside a hook: they take turns, and none is disturbed."""
    clean = model(tokens)
    expected = model.run_with_cache(tokens)[1]["pattern", 0]
    ours = threading.local()
    meeting = threading.Barrier(8)

    def look_again(stream: Tensor, hook: Any) -> None:
        if getattr(ours, "inside", False):
            return
        ours.inside = True
        meeting.wait(SECONDS_UNTIL_STUCK)  # all eight are in a plain run
        with model.hooks(fwd_hooks=[(PATTERN, zero)]):
            ours.nested = model.run_with_hooks(tokens, fwd_hooks=[(PATTERN, zero)])
        ours.pattern = model.run_with_cache(tokens)[1]["pattern", 0]

    model.add_hook("blocks.0.hook_resid_pre", look_again)

    def run() -> tuple[Tensor, Tensor]:
        return model(tokens), ours.pattern

    for future in [threads.submit(run) for _ in range(8)]:
        logits, pattern = future.result(SECONDS_UNTIL_STUCK)
        assert torch.equal(logits, clean)
        torch.testing.assert_close(pattern, expected)


def test_requests_are_granted_in_the_order_of_arrival(threads) -> None:
    """A stream of plain runs does not keep a hooked one out, nor a stream of hooked runs a plain one."""
    lock = RunLock()
    granted: list[str] = []

    def request(kind: str) -> None:
        begin, end = (lock.begin_plain, lock.end_plain) if "plain" in kind else (lock.begin_hooked, lock.end_hooked)
        begin()
        granted.append(kind)
        end()

    order = ["hooked 1", "plain 1", "hooked 2", "plain 2"]
    lock.begin_plain()
    futures = []
    for position, kind in enumerate(order):
        futures.append(threads.submit(request, kind))
        while len(lock._queue) <= position:
            pass
    assert granted == []  # the plain ones too stand behind the hooked one that came first
    lock.end_plain()
    for future in futures:
        future.result(SECONDS_UNTIL_STUCK)
    assert granted == order


def test_a_run_that_fails_leaves_the_model_free(model, tokens, threads) -> None:
    def interrupt(stream: Tensor, hook: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(ValueError, match="token ids run from"):
        model(tokens + 100)
    with pytest.raises(ValueError, match="token ids run from"):
        model.run_with_cache(tokens + 100)
    with pytest.raises(KeyboardInterrupt):
        model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", interrupt)])
    model.add_hook("hook_embed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(tokens)
    model.reset_hooks()
    threads.submit(model.run_with_cache, tokens).result(SECONDS_UNTIL_STUCK)
    threads.submit(model, tokens).result(SECONDS_UNTIL_STUCK)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_and_pickles_have_a_lock_of_their_own(model, tokens, threads, duplicate) -> None:
    expected = model.run_with_cache(tokens)[1]["pattern", 0]
    with model.hooks():
        other = duplicate(model)
        cache = threads.submit(other.run_with_cache, tokens).result(SECONDS_UNTIL_STUCK)[1]
        assert waits(threads.submit(model, tokens), model)
    assert torch.equal(cache["pattern", 0], expected)
    assert torch.equal(other(tokens), model(tokens))
    with other.hooks(fwd_hooks=[(PATTERN, zero)]):
        assert torch.equal(other.run_with_cache(tokens)[1]["pattern", 0], torch.zeros_like(expected))
    assert not torch.equal(other.W_E.fill_(0), model.W_E)


def test_a_shallow_copy_shares_its_hooks_and_so_the_lock(model, tokens, threads) -> None:
    with model.hooks(fwd_hooks=[(PATTERN, zero)]):
        assert waits(threads.submit(copy.copy(model), tokens), model)


def test_a_deep_copy_does_not_keep_the_hooks_of_another_threads_run(model, tokens, threads) -> None:
    with model.hooks(fwd_hooks=[(PATTERN, zero)]):
        copying = threads.submit(copy.deepcopy, model)
        assert waits(copying, model)
    duplicate = copying.result(SECONDS_UNTIL_STUCK)
    assert not duplicate.list_hooks() and torch.equal(duplicate(tokens), model(tokens))


def test_joblib_takes_a_model_to_other_processes(model, tokens) -> None:
    run = joblib.delayed(AttentionOnlyTransformer.run_with_cache)
    expected = model.run_with_cache(tokens)[1]["pattern", 1]
    for _, cache in joblib.Parallel(n_jobs=2)(run(model, tokens, return_cache_object=False) for _ in range(2)):
        torch.testing.assert_close(cache["blocks.1.attn.hook_pattern"], expected)


# These two run in a fresh process: the tests' checks of every shape cannot be compiled, and a fork wants few threads.
PRELUDE = """
import copy, sys, time
from concurrent.futures import ThreadPoolExecutor
import torch
from aotlens.models import AttentionOnlyTransformer, ModelConfig

torch.set_num_threads(1)
SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 8}
PATTERN = "blocks.0.attn.hook_pattern"
threads = ThreadPoolExecutor(2)
"""

DISTRIBUTED = """
tokens = torch.randint(9, (2, 7), generator=torch.Generator().manual_seed(1))
model = AttentionOnlyTransformer(ModelConfig(**SIZES, d_vocab=9)).double()

def train(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    with ThreadPoolExecutor(1) as pool:
        caches = [pool.submit(model.run_with_cache, tokens) for _ in range(5)]
        wrapped(tokens[rank : rank + 1], return_type="loss").backward()
        patterns = [future.result()[1]["pattern", 0].detach() for future in caches]
    torch.save([model.embed.W_E.grad, *patterns], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()

torch.multiprocessing.start_processes(train, (sys.argv[1],), nprocs=2, start_method="fork")
model(tokens, return_type="loss").backward()
expected = model.run_with_cache(tokens)[1]["pattern", 0].detach()
for rank in range(2):
    gradient, *patterns = torch.load(f"{sys.argv[1]}/{rank}.pt")
    torch.testing.assert_close(gradient, model.embed.W_E.grad)
    for pattern in patterns:
        torch.testing.assert_close(pattern, expected)
"""

COMPILED = """
model = AttentionOnlyTransformer(ModelConfig(**SIZES, read_in="vectors", read_out="vectors")).requires_grad_(False)
vectors = torch.randn(2, 5, 12)
expected = model(vectors)
around = torch.compile(lambda x: model(x).sum(), fullgraph=True, backend="eager")
torch.testing.assert_close(around(vectors), expected.sum())
in_place = copy.deepcopy(model)
in_place.compile(fullgraph=True, backend="eager")
wrapped = torch.compile(model, fullgraph=True, backend="eager")
for owner, compiled in ((model, wrapped), (in_place, in_place)):
    torch.testing.assert_close(compiled(vectors), expected)
    with owner.hooks(fwd_hooks=[(PATTERN, lambda pattern, hook: 0 * pattern)]):
        waiting = threads.submit(compiled, vectors)
        while not owner._run_lock._queue:
            assert not waiting.done(), "A compiled call did not wait."
            time.sleep(0.001)
    torch.testing.assert_close(waiting.result(60), expected)
    torch.testing.assert_close(compiled(vectors), expected)
torch.testing.assert_close(around(vectors), expected.sum())
"""


@pytest.mark.long
@pytest.mark.parametrize("script", [DISTRIBUTED, COMPILED], ids=["distributed", "compiled"])
def test_distributed_and_compiled_models(script: str, tmp_path: Path) -> None:
    """Two processes train while a thread looks on; compiled models wait as others do, and stay whole graphs."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + script, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert finished.returncode == 0, finished.stderr
