"""Tasks with so few inputs that a model can be tried on all of them.

    task = make_task("max-of-list", "0-9", "10 x 11 x 11 x 11 x 11 x 12")
    task = make_task(lambda items: items.amin(1), range(10), 5)      # a custom function

A task is a list of cases, which no input shares: the tokens that each position allows, the positions that are read, and
the answer there. `TASKS` has the known ones. An input consists of items, each one of the task's `values`; the layout
says where they stand among other tokens:

    a number    this token id
    x           an item
    y           an answer, which is read at the position before it. A model that continues a prompt reads the correct
                answers so far; behind the last one nothing follows, so that it is no part of the input

    "65 x x x x x 64 y y y y y"     sort five numbers: read at 64 and at the first four of the sorted numbers

Without `y`, a single answer is read at the last position, and an answer per item at that item.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

Ids = Sequence[int]
#: `answer(items)`: output ids `[input]` or `[input, answer]` of item tokens `[input, item]`.
Answer = Callable[[Tensor], Tensor]

_MOST_CASES = 100_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """All inputs that take an allowed token at each position, independently."""

    allowed: tuple[tuple[int, ...], ...]
    """The tokens of each position; none where the answer stands that is read one position earlier."""
    reads: tuple[int, ...]
    """The position where each answer is read."""
    answer: Callable[[Int[Tensor, "input pos"]], Int[Tensor, "input read"]]
    """The output that must be largest at each position read."""
    constant: bool = False
    """Whether all inputs have the same answer."""

    @property
    def n_inputs(self) -> int:
        """The number of inputs."""
        return math.prod(len(tokens) or 1 for tokens in self.allowed)

    def inputs(self, start: int = 0, stop: int | None = None) -> Int[Tensor, "input pos"]:
        """Return inputs `start` to `stop` in the order of `itertools.product`, the last position first to change."""
        index = torch.arange(start, self.n_inputs if stop is None else min(stop, self.n_inputs))
        tokens = torch.zeros(len(index), len(self.allowed), dtype=torch.long)
        for position, allowed in reversed(list(enumerate(self.allowed))):
            if allowed:
                tokens[:, position] = torch.tensor(allowed)[index % len(allowed)]
                index = index // len(allowed)
        if not all(self.allowed):
            answers = self.answer(tokens)
            for place, position in enumerate(self.reads):
                if not all(self.allowed[position + 1 : position + 2]):
                    tokens[:, position + 1] = answers[:, place]
        return tokens


@dataclass(frozen=True, kw_only=True)
class FiniteTask:
    """Inputs with their answers. Raises ValueError for cases of different lengths or numbers of answers."""

    name: str
    cases: tuple[Case, ...]
    outputs: tuple[int, ...] | None = None
    """The outputs of the model that compete for the answer; None: all of them."""

    def __post_init__(self) -> None:
        sizes = {(len(case.allowed), len(case.reads)) for case in self.cases}
        if len(sizes) != 1:
            raise ValueError(
                f"{self.name}: expected cases of one length and number of answers, got (length, answers) "
                f"{sorted(sizes) or 'of no case'}; pad shorter inputs, or make a task for each length."
            )

    @property
    def n_inputs(self) -> int:
        """The number of inputs of all cases."""
        return sum(case.n_inputs for case in self.cases)

    def batches(self, size: int) -> Iterator[tuple[Tensor, tuple[int, ...], Tensor]]:
        """Yield (inputs `[input, pos]`, positions read, answers `[input, read]`), at most `size` inputs at a time."""
        for case in self.cases:
            for start in range(0, case.n_inputs, size):
                inputs = case.inputs(start, start + size)
                yield inputs, case.reads, case.answer(inputs)


# Answers. Items are ranks `[input, item]`: 0 for the first of the task's k values. So are answers `[input, answer]`.


def _successor(ranks: Tensor, k: int) -> Tensor:
    """Return the item after the marker, the last of the values."""
    return ranks.gather(1, (ranks == k - 1).int().argmax(1, keepdim=True) + 1)


def _repetition(ranks: Tensor, k: int) -> Tensor:
    """Return the item after the earlier occurrence of the last one."""
    return ranks.gather(1, (ranks[:, :-1] == ranks[:, -1:]).int().argmax(1, keepdim=True) + 1)


def _balanced(ranks: Tensor, k: int) -> Tensor:
    """Return 1 where brackets, 0 to open and 1 to close, balance, else 0."""
    depth = (1 - 2 * ranks).cumsum(1)
    return ((depth >= 0).all(1) & (depth[:, -1] == 0)).long()[:, None]


def _longest_cycle(ranks: Tensor, k: int) -> Tensor:
    """Return the length, less 1, of the longest cycle of i → item i."""
    place = torch.arange(k).expand_as(ranks)
    for _ in range(k):  # now on a cycle, wherever it began
        place = ranks.gather(1, place)
    first, length = place, torch.zeros_like(ranks)
    for steps in range(1, k + 1):
        place = ranks.gather(1, place)
        length = torch.where((length == 0) & (place == first), steps, length)
    return length.amax(1, keepdim=True) - 1


# Inputs as products: for each case, the ranks that each of n items may have, of k values.


def _by_maximum(n: int, k: int) -> Iterator[list[range]]:
    """The maximum, and where it stands first."""
    for top in range(k):
        for first in range(n):
            yield [range(top if item == first else 0, top + (item >= first)) for item in range(n)]


def _by_marker(n: int, k: int) -> Iterator[list[range]]:
    """Where the marker stands, and what follows it."""
    for place in range(n - 1):
        for after in range(k - 1):
            fixed = {place: k - 1, place + 1: after}
            yield [range(fixed[item], fixed[item] + 1) if item in fixed else range(k - 1) for item in range(n)]


def _by_repetition(n: int, k: int) -> Iterator[list[Ids]]:
    """Where the last item occurred before, once, and which it is."""
    for place in range(n - 2):
        for token in range(k):
            others = [rank for rank in range(k) if rank != token]
            yield [[token] if item in (place, n - 1) else others for item in range(n)]


@dataclass(frozen=True, kw_only=True)
class KnownTask:
    """A task up to its values and its layout."""

    about: str
    solve: Callable[[Tensor, int], Tensor]
    """`solve(ranks [input, item], number of values)`: the ranks of the answers `[input, answer]`."""
    cases: Callable[[int, int], Iterator[Sequence[Ids]]] | None = None
    """`cases(number of items, number of values)`: the ranks of each item, for each case; None: one case of all."""
    constant: bool = False
    """Whether the inputs of a case have the same answer."""
    outputs: Callable[[int], Ids] | None = None
    """The outputs that stand for the ranks of the answers, by the number of items; None: the values."""
    values: int | None = None
    """The number of values that it needs, if any; −1: as many as items."""
    least: int = 1
    """The least number of items."""


def _verdicts(n: int) -> Ids:
    return (0, 1)


#: The known tasks. Answers are values, or outputs 0 (no) and 1 (yes), or a length.
TASKS: dict[str, KnownTask] = {
    "max-of-list": KnownTask(
        about="the largest item, of values in the order of size", cases=_by_maximum, constant=True,
        solve=lambda ranks, k: ranks.amax(1, keepdim=True),
    ),
    "sort": KnownTask(about="the items in order", solve=lambda ranks, k: ranks.sort(1).values),
    "reverse": KnownTask(about="the items, the last one first", solve=lambda ranks, k: ranks.flip(1)),
    "cyclic-shift": KnownTask(
        about="each item one place later, the last one first", solve=lambda ranks, k: ranks.roll(1, 1)
    ),
    "token-after-marker": KnownTask(
        about="the item after the marker, which is the last of the values and occurs once", solve=_successor,
        cases=_by_marker, constant=True, least=2,
    ),
    "induction": KnownTask(
        about="the item after the one earlier occurrence of the last item", solve=_repetition, cases=_by_repetition,
        least=3,
    ),
    "modular-addition": KnownTask(
        about="the sum of the items, 0 for the first value, modulo the number of values",
        solve=lambda ranks, k: ranks.sum(1, keepdim=True) % k,
    ),
    "bracket-balance": KnownTask(
        about="whether brackets balance; the values open and close", solve=_balanced, values=2, outputs=_verdicts
    ),
    "palindrome": KnownTask(
        about="whether the items read the same backwards", outputs=_verdicts,
        solve=lambda ranks, k: (ranks == ranks.flip(1)).all(1).long()[:, None],
    ),
    "longest-cycle": KnownTask(
        about="the length of the longest cycle of i → item i, a number of places from 0", solve=_longest_cycle,
        values=-1, outputs=lambda n: range(1, n + 1),
    ),
}  # fmt: skip


def make_task(
    task: str | Answer,
    values: Ids | str,
    layout: str | int,
    *,
    answers: Ids | str | None = None,
    outputs: Ids | str | None = None,
) -> FiniteTask:
    """Return a task of `TASKS` by its name, or of a function of item tokens `[input, item]` that returns output ids
    `[input]` or `[input, answer]`.

    `values` are the token ids that an item may be, in their order; `layout` places the items (the module's docstring),
    a number n being n items and nothing else. `answers` are the outputs that stand for the answers of a known task:
    the values themselves for most, no and yes for a verdict. Only `outputs` compete for the answer; None: all outputs
    of the model. Each may be a text, "0-9" or "3 4". Raises ValueError for an unknown task, a layout that cannot be
    parsed, too few items, or a function that returns something else.
    """
    ids = parse_ids("values", values)
    if len(set(ids)) != len(ids) or not ids:
        raise ValueError(f"values: expected at least one token id, each once, got {list(ids)[:20]}.")
    places = _places(layout)
    items = [position for position, place in enumerate(places) if place == "x"]
    if not items:
        raise ValueError(f"layout: expected at least one x, the place of an item, got {layout!r}.")
    name = task if isinstance(task, str) else getattr(task, "__name__", "task")
    if isinstance(task, str):
        solve, products, constant = _known(task, ids, len(items), answers)
    else:
        solve, products, constant = _of_function(task, ids, len(items), answers)
    n_answers = solve(torch.tensor([ids[:1] * len(items)])).shape[1]
    reads = _reads(places, items, n_answers, name)
    if places[-1] == "y":
        places = places[:-1]
    columns = torch.tensor(items)

    def answer(inputs: Tensor) -> Tensor:
        return solve(inputs[:, columns])

    cases: list[Case] = []
    for ranks in products:
        if len(cases) == _MOST_CASES:
            raise ValueError(f"{name}: expected at most {_MOST_CASES:,} cases, got more; give fewer values or items.")
        allowed: list[tuple[int, ...]] = [() if place in "xy" else (int(place),) for place in places]
        for position, item in zip(items, ranks, strict=True):
            allowed[position] = tuple(ids[rank] for rank in item)
        if all(allowed[position] for position in items):
            cases.append(Case(allowed=tuple(allowed), reads=reads, answer=answer, constant=constant))
    competing = None if outputs is None else tuple(parse_ids("outputs", outputs))
    return FiniteTask(name=name, cases=tuple(cases), outputs=competing)


def parse_ids(name: str, ids: Ids | str) -> list[int]:
    """Return whole numbers from 0, written as "0-9", "3 4" or both. Raises ValueError, with `name`, otherwise."""
    if not isinstance(ids, str):
        if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in ids):
            raise ValueError(f"{name}: expected ids of at least 0, got {list(ids)[:20]}.")
        return list(ids)
    numbers: list[int] = []
    for part in ids.replace(",", " ").split():
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part, re.ASCII)
        if match is None:
            raise ValueError(f"{name}: expected ids such as 0-9 or 3 4, got {part!r}.")
        numbers.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers


def _places(layout: str | int) -> list[str]:
    places = ["x"] * layout if isinstance(layout, int) else layout.split()
    wrong = [place for place in places if not re.fullmatch(r"x|y|\d{1,7}", place, re.ASCII)]
    if wrong:
        raise ValueError(f"layout: expected token ids, x for an item and y for an answer, got {wrong[0]!r:.40}.")
    return places


def _reads(places: list[str], items: list[int], n_answers: int, name: str) -> tuple[int, ...]:
    """Return the position at which each answer is read."""
    written = [position for position, place in enumerate(places) if place == "y"]
    if not written:
        return (len(places) - 1,) if n_answers == 1 else tuple(items)
    if len(written) != n_answers or written[0] < items[-1]:
        raise ValueError(
            f"layout: expected {n_answers} y, the answers of {name}, behind all x, or none, got {' '.join(places)!r}."
        )
    return tuple(position - 1 for position in written)


def _known(
    name: str, ids: list[int], n: int, answers: Ids | str | None
) -> tuple[Answer, Iterator[Sequence[Ids]], bool]:
    """Return answers from item tokens, the ranks of each item for each case, and whether a case has one answer."""
    known, k = TASKS.get(name), len(ids)
    if known is None:
        raise ValueError(f"{name!r}: expected a task, one of {', '.join(TASKS)}, or a function.")
    wanted = n if known.values == -1 else known.values
    if (wanted is not None and k != wanted) or n < known.least:
        expected = f"{wanted} values" if wanted is not None and k != wanted else f"at least {known.least} items"
        raise ValueError(f"{name}: expected {expected}, got {k} values and {n} items.")
    default = ids if known.outputs is None else known.outputs(n)
    meant = torch.tensor(parse_ids("answers", default if answers is None else answers))
    if len(meant) < len(default):
        raise ValueError(f"answers: expected {len(default)} outputs for {name}, got {meant.tolist()}.")
    rank_of = torch.zeros(max(ids) + 1, dtype=torch.long)
    rank_of[torch.tensor(ids)] = torch.arange(k)
    products = iter([[range(k)] * n]) if known.cases is None else known.cases(n, k)
    return lambda items: meant[known.solve(rank_of[items], k)], products, known.constant


def _of_function(
    function: Answer, ids: list[int], n: int, answers: Ids | str | None
) -> tuple[Answer, Iterator[Sequence[Ids]], bool]:
    """Return what `_known` returns, of a user's function."""
    if answers is not None:
        raise ValueError("answers: a function returns output ids itself; leave answers out.")

    def solve(items: Tensor) -> Tensor:
        result = function(items)
        fits = isinstance(result, Tensor) and not result.is_floating_point() and result.ndim in (1, 2)
        if not fits or len(result) != len(items):
            got = f"{list(result.shape)} {result.dtype}" if isinstance(result, Tensor) else type(result).__name__
            raise ValueError(f"the task's function: expected whole numbers [{len(items)}] or [{len(items)}, answers], "
                             f"got {got}.")  # fmt: skip
        return result.long().reshape(len(items), -1)

    return solve, iter([[range(len(ids))] * n]), False
