"""Public functions that take a model, mixed in two threads that share it, against the same calls alone.

    python -m benchmarks.threads [--quick] [--pairs N] [--calls 20000] [--json PATH]

Each pair of functions, a function and itself too, runs in two threads that start together, on different prompts of one
small model, until both have been called twice (once, if a call takes more than 0.2 s); Python switches threads every
50 µs. One model has rotary positions and one learned ones, since some functions refuse the one and some the other.
Pairs are taken in turn until all were mixed and `--calls` were made. Every number of a result is compared with that of
the call alone: a float may differ by 1e-9 of the largest, all else not at all. Functions that train, and those of
images and vectors, are left out.

Expected: 0 that differ and 0 that raise, of 20,000 calls (else 1 as exit status); half an hour on one core. `--quick`
takes seconds.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from aotlens import circuits, dynamics, evaluate, heads, patching, paths, trigrams
from aotlens.data import PromptPairs
from aotlens.models import AttentionOnlyTransformer
from benchmarks import _common
from tests import model_kinds

Call = Callable[[AttentionOnlyTransformer, Tensor], Any]
Z = "blocks.0.attn.hook_z"
EDGES = ["embed → 1.0.v", "0.1 → 1.0.k", "1.0 → logits"]
ROUNDS, SLOW = 2, 0.2  # seconds
KINDS = ("MHSA", "learned")  # each takes functions that the other does not


def _without(model: AttentionOnlyTransformer, ids: Tensor) -> Tensor:
    with heads.without(model, ["0.1", "1.2"]):
        logits: Tensor = model(ids)
    return logits


def _pairs(model: AttentionOnlyTransformer) -> PromptPairs:
    return PromptPairs.induction(model, n=2, length=4)


def _triples(model: AttentionOnlyTransformer, ids: Tensor) -> trigrams.TrigramTable:
    first = ids[0].tolist()
    return trigrams.score_triples(model, "0.1", first[:3], first[1:4], first[2:5])


#: Beside those of `tests.model_kinds`.
CALLS: dict[str, Call] = {
    "model": lambda m, ids: m(ids),
    "model.loss_per_token": lambda m, ids: m.loss_per_token(ids),
    "model.run_with_cache": lambda m, ids: m.run_with_cache(ids, return_cache_object=False),
    "model.run_with_hooks": lambda m, ids: m.run_with_hooks(ids, fwd_hooks=[(Z, lambda z, hook: 2 * z)]),
    "heads.without": _without,
    "heads.attention_by_place": lambda m, ids: heads.attention_by_place(m, ids),
    "heads.attention_to": lambda m, ids: heads.attention_to(m, ids),
    "heads.inactive_heads": lambda m, ids: heads.inactive_heads(m, ids),
    "heads.long_patterns": lambda m, ids: heads.long_patterns(m, ids),
    "heads.run_prompt": lambda m, ids: heads.run_prompt(m, m.to_string(ids[0, 1:9]), ablated=["1.0"]),
    "heads.targeted_attention": lambda m, ids: heads.targeted_attention(
        m, ids, (ids[:, :, None] == ids[:, None]).tril()
    ),
    "circuits.composition": lambda m, ids: circuits.composition(m, "k"),
    "circuits.copying_scores": lambda m, ids: circuits.copying_scores(m),
    "evaluate.token_losses": lambda m, ids: evaluate.token_losses(m, ids[0]),
    "evaluate.repeat_losses": lambda m, ids: evaluate.repeat_losses(m, half_length=6, n_sequences=2),
    "evaluate.validation_loss": lambda m, ids: evaluate.validation_loss(m, ids),
    "trigrams.score_triples": lambda m, ids: _triples(m, ids),
    "trigrams.evidence": lambda m, ids: trigrams.evidence(m, _triples(m, ids), ids[0].repeat(3).numpy()),
    "trigrams.zero_layer": lambda m, ids: trigrams.zero_layer(m, ids[0].repeat(3).numpy()),
    "paths.patch_edges": lambda m, ids: paths.patch_edges(m, ids[0], [("0.0", "1.0"), ("0.1", "1.2")]),
    "patching.attribution": lambda m, ids: patching.attribution(m, _pairs(m), check=2),
    "patching.attribute_edges": lambda m, ids: patching.attribute_edges(m, _pairs(m), steps=2, check=2),
    "patching.path_patch": lambda m, ids: patching.path_patch(m, _pairs(m), EDGES),
    "patching.circuit_faithfulness": lambda m, ids: patching.circuit_faithfulness(m, _pairs(m), EDGES),
    "dynamics.measure_model": lambda m, ids: dynamics.measure_model(m, ids.repeat(2, 1), n_random=2),
}


def numbers(value: Any) -> Iterator[np.ndarray]:
    """Yield the arrays and numbers of a result, of its parts too."""
    if isinstance(value, nn.Module):
        value = value.state_dict()
    if isinstance(value, Tensor):
        yield value.detach().cpu().numpy()
    elif isinstance(value, np.ndarray | bool | int | float | np.generic):
        yield np.asarray(value)
    elif isinstance(value, pd.DataFrame):
        yield from numbers(value.to_dict("list"))
    elif isinstance(value, circuits.FactoredMatrix):
        yield from numbers([value.A, value.B])
    elif isinstance(value, Mapping):
        yield from itertools.chain.from_iterable(map(numbers, value.values()))
    elif isinstance(value, list | tuple):
        yield from itertools.chain.from_iterable(map(numbers, value))
    elif dataclasses.is_dataclass(value):
        yield from numbers([getattr(value, part.name) for part in dataclasses.fields(value) if part.name != "seconds"])


def equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """Whether two results have the same numbers."""
    return len(one) == len(other) and all(map(_alike, one, other))


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    finite = np.abs(other[np.isfinite(other)])
    return bool(np.allclose(one, other, rtol=0, atol=1e-9 * finite.max(initial=1.0), equal_nan=True))


@dataclasses.dataclass(kw_only=True)
class Mixing:
    """Functions, what each gives alone on two prompts, and how mixed calls differed."""

    model: AttentionOnlyTransformer
    calls: dict[str, Call]
    prompts: tuple[Tensor, Tensor]
    alone: dict[str, list[list[np.ndarray]]]
    rounds: dict[str, int]
    made: int = 0
    wrong: Counter[str] = dataclasses.field(default_factory=Counter)
    raised: Counter[str] = dataclasses.field(default_factory=Counter)

    @classmethod
    def of(cls, model: AttentionOnlyTransformer, calls: dict[str, Call]) -> Mixing:
        """Call each function alone, and leave out those that refuse the model."""
        ids = model_kinds.prompt(model)
        prompts, alone, rounds = (ids, ids.flip(1)), {}, {}
        for name, call in calls.items():
            began = time.process_time()
            try:
                alone[name] = [list(numbers(call(model, prompt))) for prompt in prompts]
            except ValueError:
                continue
            rounds[name] = 1 if time.process_time() - began > 2 * SLOW else ROUNDS
        empty = [name for name, results in alone.items() if not any(results)]
        assert not empty, f"nothing to compare: {empty}"
        return cls(
            model=model, calls={name: calls[name] for name in alone}, prompts=prompts, alone=alone, rounds=rounds
        )

    def mix(self, pool: ThreadPoolExecutor, pair: tuple[str, str]) -> None:
        """Call two functions in two threads, the faster one until the slower one has ended."""
        start, done, rounds = threading.Barrier(2), [0, 0], [self.rounds[name] for name in pair]

        def run(index: int) -> None:
            name = pair[index]
            start.wait()
            while done[index] < rounds[index] or (done[1 - index] < rounds[1 - index] and done[index] < 4 * ROUNDS):
                try:
                    found = list(numbers(self.calls[name](self.model, self.prompts[index])))
                    if not equal(found, self.alone[name][index]):
                        self.wrong[f"{name} beside {pair[1 - index]}"] += 1
                except Exception as error:  # whatever comes of threads
                    self.raised[f"{name} beside {pair[1 - index]}: {error!r}"[:300]] += 1
                done[index] += 1

        for future in [pool.submit(run, index) for index in (0, 1)]:
            future.result()
        self.made += sum(done)


def main(argv: list[str] | None = None) -> int:
    parser = _common.parser(__doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="calls to make at least (20,000)")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads or 1)
    warnings.simplefilter("ignore")
    calls = {**model_kinds.CALLS, **CALLS}
    del calls["distill.distill_heads"]  # trains
    if options.quick:
        calls = {name: calls[name] for name in ("model.run_with_cache", "paths.logit_lens", "paths.expand")}
    interval, began = sys.getswitchinterval(), time.time()
    mixings = [Mixing.of(model_kinds.build(kind), calls) for kind in KINDS[: 1 if options.quick else None]]
    jobs = [(mixing, pair) for mixing in mixings
            for pair in itertools.combinations_with_replacement(mixing.calls, 2)]  # fmt: skip
    jobs, least = jobs[: options.pairs], 0 if options.pairs or options.quick else options.calls
    sys.setswitchinterval(5e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            for mixing, pair in itertools.chain.from_iterable(itertools.repeat(jobs)):
                if mixing is jobs[0][0] and pair == jobs[0][1] and sum(each.made for each in mixings) >= max(least, 1):
                    break
                mixing.mix(pool, pair)
    finally:
        sys.setswitchinterval(interval)
    wrong, raised = (sum((getattr(each, what) for each in mixings), Counter()) for what in ("wrong", "raised"))
    for what in (*wrong, *raised):
        print(what)
    row = {
        "functions": len(set().union(*(mixing.calls for mixing in mixings))),
        "pairs": len({pair for _, pair in jobs}),
        "calls": sum(each.made for each in mixings),
        "differ": wrong.total(),
        "raise": raised.total(),
        "seconds": time.time() - began,
    }
    _common.report("threads", [row], options.json)
    return 1 if row["differ"] or row["raise"] else 0


if __name__ == "__main__":
    sys.exit(main())
