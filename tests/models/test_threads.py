"""Threads that share a model get what one thread alone gets, and none waits for another."""

from __future__ import annotations

import contextvars
import copy
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer

PATTERN = "blocks.0.attn.hook_pattern"
SECONDS_UNTIL_STUCK = 60

pytestmark = pytest.mark.timeout(300)


def zero(value: Tensor, hook: Any) -> Tensor:
    return 0 * value


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


def test_no_call_runs_the_hooks_of_another_threads_call(model, tokens, threads) -> None:
    """Not even one of a part of the model, as the logit lens makes; and nobody waits for the hooks to end."""
    stream, order = torch.randn(2, 7, 12, dtype=torch.float64), model.order(7, 1)
    visible = model.visible_keys(7, None, model.device)
    calls = [
        partial(model, tokens),
        partial(model.run_with_hooks, tokens, fwd_hooks=[(PATTERN, zero)]),
        lambda: model.run_with_cache(tokens, incl_bwd=False)[1]["z", 1],
        lambda: model.ln_final(stream),
        lambda: model.blocks[1](stream, order, visible, True),
        lambda: torch.tensor(len(model.list_hooks()) + model.context_level + model.hook_embed.has_hooks()),
        lambda: copy.deepcopy(model)(tokens),
    ]
    alone = [call() for call in calls]
    points: list[str] = []

    def intrude(value: Tensor, hook: Any) -> Tensor:
        points.append(hook.name)
        return 2 * value

    with model.hooks(fwd_hooks=[(lambda name: True, intrude)]):
        found = [threads.submit(call).result(SECONDS_UNTIL_STUCK) for call in calls]
        assert points == []
        assert all(map(torch.equal, found, alone))
        inside = contextvars.copy_context()
        taken_along = threads.submit(inside.run, model, tokens).result(SECONDS_UNTIL_STUCK)
        assert points and torch.equal(taken_along, model(tokens))  # this thread's own calls run them, and its guests


def test_runs_with_hooks_are_in_the_model_at_the_same_time(model, tokens, threads) -> None:
    meeting = threading.Barrier(8)
    clean, silenced = model(tokens), model.run_with_hooks(tokens, fwd_hooks=[(PATTERN, zero)])

    def run(index: int) -> bool:
        def meet(stream: Tensor, hook: Any) -> None:
            meeting.wait(SECONDS_UNTIL_STUCK)

        hooks = [("blocks.0.hook_resid_pre", meet), *([(PATTERN, zero)] if index % 2 else [])]
        logits = model.run_with_hooks(tokens, fwd_hooks=[*hooks, ("blocks.1.hook_resid_pre", meet)])
        return torch.equal(logits, silenced if index % 2 else clean)

    assert all(threads.map(run, range(8)))


def test_hooks_that_a_thread_leaves_are_removed_by_none_but_itself(model, tokens, threads) -> None:
    """`add_hook`'s are the model's: every thread runs them."""
    clean = model(tokens)
    silenced = model.run_with_hooks(tokens, fwd_hooks=[(PATTERN, zero)], reset_hooks_end=False)
    assert torch.equal(threads.submit(model, tokens).result(SECONDS_UNTIL_STUCK), clean)
    threads.submit(model.reset_hooks).result(SECONDS_UNTIL_STUCK)
    threads.submit(model.run_with_cache, tokens).result(SECONDS_UNTIL_STUCK)
    assert torch.equal(model(tokens), silenced)
    model.reset_hooks()
    assert torch.equal(model(tokens), clean)
    model.add_hook(PATTERN, zero)
    assert torch.equal(threads.submit(model, tokens).result(SECONDS_UNTIL_STUCK), silenced)
    threads.submit(model.reset_hooks).result(SECONDS_UNTIL_STUCK)
    assert torch.equal(model(tokens), clean)


def test_a_block_is_computed_again_with_the_hooks_of_its_call(make, tokens) -> None:
    """The backward pass comes when the call, and its hooks, have ended; PyTorch's own hooks run too."""
    calls: list[str] = []
    gradients = []
    for recompute in (False, True):
        model = make(torch.float64)
        model.recompute_activations = recompute
        model.blocks[0].attn.register_forward_pre_hook(lambda module, inputs: calls.append("torch's"))
        loss = model.run_with_hooks(
            tokens, return_type="loss", fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: 2 * z)]
        )
        loss.backward()
        gradients.append(model.embed.W_E.grad)
    torch.testing.assert_close(*gradients)
    assert calls == 3 * ["torch's"]


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
def test_copies_and_pickles_have_hooks_of_their_own(model, tokens, duplicate) -> None:
    expected = model.run_with_cache(tokens)[1]["pattern", 0]
    with model.hooks(fwd_hooks=[(PATTERN, zero)]):
        other = duplicate(model)
        assert torch.equal(other.run_with_cache(tokens)[1]["pattern", 0], expected)
        assert torch.equal(copy.copy(model)(tokens), model(tokens))  # a shallow copy shares its hook points
    assert not other.list_hooks()
    with other.hooks(fwd_hooks=[(PATTERN, zero)]):
        assert torch.equal(other.run_with_cache(tokens)[1]["pattern", 0], torch.zeros_like(expected))
    assert not torch.equal(other.W_E.fill_(0), model.W_E)


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
torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="eager")(vectors), expected)
wrapped = torch.compile(model, backend="eager")
hooks = [(PATTERN, lambda pattern, hook: 0 * pattern)]
silenced = copy.deepcopy(model).run_with_hooks(vectors, fwd_hooks=hooks)
for owner, compiled in ((model, wrapped), (in_place, in_place)):
    torch.testing.assert_close(compiled(vectors), expected)
    with owner.hooks(fwd_hooks=hooks):
        torch.testing.assert_close(compiled(vectors), silenced)
        torch.testing.assert_close(threads.submit(compiled, vectors).result(60), expected)
    torch.testing.assert_close(compiled(vectors), expected)
    owner.add_hook(*hooks[0])
    torch.testing.assert_close(compiled(vectors), silenced)
    owner.reset_hooks()
    torch.testing.assert_close(compiled(vectors), expected)
around_it = torch.compile(lambda x: model(x).sum(), backend="eager")
with model.hooks(fwd_hooks=hooks):
    torch.testing.assert_close(around_it(vectors), silenced.sum())
    torch.testing.assert_close(threads.submit(around_it, vectors).result(60), expected.sum())
for function in (around, around_it):
    torch.testing.assert_close(function(vectors), expected.sum())
"""


@pytest.mark.minutes
@pytest.mark.parametrize("script", [DISTRIBUTED, COMPILED], ids=["distributed", "compiled"])
def test_distributed_and_compiled_models(script: str, tmp_path: Path) -> None:
    """Two processes train while a thread looks on; compiled models run the hooks of their call, else whole graphs."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + script, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert finished.returncode == 0, finished.stderr
