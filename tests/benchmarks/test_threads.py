"""No public function runs the hooks of another thread's call; the measurement mixes them, and sees what differs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import threads
from tests import model_kinds

OUTSIDE = ("paths.", "patching.", "heads.without", "heads.ablate", "trigrams.evidence")  # they call parts of a model


def test_no_function_runs_the_hooks_of_another_threads_call() -> None:
    calls = {name: call for name, call in {**model_kinds.CALLS, **threads.CALLS}.items() if name.startswith(OUTSIDE)}
    mixing = threads.Mixing.of(model_kinds.build("MHSA"), calls)
    points: list[str] = []

    def double(value: Tensor, hook: Any) -> Tensor:
        points.append(hook.name)
        return 2 * value

    differs = []
    with ThreadPoolExecutor(1) as pool, mixing.model.hooks(fwd_hooks=[(lambda name: True, double)]):
        for name, call in mixing.calls.items():
            found = pool.submit(call, mixing.model, mixing.prompts[0]).result(20)
            if not threads.equal(list(threads.numbers(found)), mixing.alone[name][0]):
                differs.append(name)
        assert (differs, points) == ([], [])
        mixing.model(mixing.prompts[0])
    assert len(mixing.calls) > 20 and points


def test_it_runs_quickly_and_counts_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    n_threads = torch.get_num_threads()
    try:
        assert threads.main(["--quick", "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(n_threads)
    assert " | 0 | 0 | " in capsys.readouterr().out.splitlines()[-1]
    one = [np.array([1.0, np.nan]), np.array(3)]
    assert threads.equal(one, [one[0] + 1e-12, one[1]])
    assert not threads.equal(one, [one[0] + 1e-6, one[1]]) and not threads.equal(one, [one[0], np.array(4)])
