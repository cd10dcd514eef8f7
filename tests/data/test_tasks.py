"""Tasks with all their inputs, against answers in plain Python on `itertools.product`."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from aotlens.data import TASKS, make_task
from tests.messages import refused


def longest_cycle(items: tuple[int, ...]) -> int:
    lengths = []
    for start in range(len(items)):
        path, at = [], start
        while at not in path:
            path.append(at)
            at = items[at]
        lengths.append(len(path) - path.index(at))
    return max(lengths)


def balanced(items: tuple[int, ...]) -> bool:
    text, before = "".join("()"[item] for item in items), ""
    while text != before:
        text, before = text.replace("()", ""), text
    return not text


def after(items: tuple[int, ...], token: int) -> list[int] | None:
    """What follows the only occurrence of a token, which must not be the last; None where it is not so."""
    return [items[items.index(token) + 1]] if items.count(token) == 1 and items[-1] != token else None


#: The answers of an input, None for one that the task does not have; and the number of values and items.
ORACLES = {
    "max-of-list": (lambda x: [max(x)], 3, 4),
    "sort": (lambda x: sorted(x), 3, 4),
    "reverse": (lambda x: x[::-1], 3, 3),
    "cyclic-shift": (lambda x: [x[-1], *x[:-1]], 3, 3),
    "token-after-marker": (lambda x: after(x, 3), 4, 4),
    "induction": (lambda x: after((*x[:-1], -1), x[-1]) if x[-2] != x[-1] else None, 3, 4),
    "modular-addition": (lambda x: [sum(x) % 5], 5, 2),
    "bracket-balance": (lambda x: [balanced(x)], 2, 6),
    "palindrome": (lambda x: [x == x[::-1]], 3, 5),
    "longest-cycle": (lambda x: [longest_cycle(x)], 4, 4),
}


@pytest.mark.parametrize("name", TASKS)
def test_inputs_and_answers_are_those_of_plain_python(name: str) -> None:
    oracle, k, n = ORACLES[name]
    expected = {x: list(map(int, answers)) for x in product(range(k), repeat=n) if (answers := oracle(x)) is not None}
    task = make_task(name, range(k), n)
    actual: dict[tuple[int, ...], list[int]] = {}
    for inputs, reads, answers in task.batches(7):
        assert reads == ((n - 1,) if answers.shape[1] == 1 else tuple(range(n)))
        for row, answer in zip(inputs.tolist(), answers.tolist(), strict=True):
            assert tuple(row) not in actual, "no input belongs to two cases"
            actual[tuple(row)] = answer
    assert actual == expected and task.n_inputs == len(expected)
    for case in task.cases:
        assert not case.constant or len(case.answer(case.inputs()).unique(dim=0)) == 1


def test_a_layout_places_items_and_answers_among_other_tokens() -> None:
    task = make_task("sort", "3-5", "9 x x 8 x 7 y y 6 y")
    (inputs, reads, answers), *rest = task.batches(100)
    assert not rest and reads == (5, 6, 8) and len(inputs) == 27
    row = inputs.tolist().index([9, 5, 3, 8, 4, 7, 3, 4, 6])  # the last y is read, and no part of the input
    assert answers[row].tolist() == [3, 4, 5]
    maximum = make_task("max-of-list", "2 1 0", "10 x 11 x 12", answers="20 21 22", outputs="20-22")
    batches = list(maximum.batches(9))
    inputs, answers = torch.cat([x for x, _, _ in batches]), torch.cat([y for _, _, y in batches])
    rows = {tuple(x): y for x, y in zip(inputs.tolist(), answers.tolist(), strict=True)}
    assert rows[10, 1, 11, 2, 12] == [21] and rows[10, 1, 11, 0, 12] == [22] and len(rows) == 9
    assert maximum.outputs == (20, 21, 22) and {case.reads for case in maximum.cases} == {(4,)}


def test_a_function_of_ones_own() -> None:
    task = make_task(lambda items: (items[:, 0] * items[:, 1]) % 7, "1 4 6", "x x 0")
    inputs, reads, answers = next(task.batches(9))
    assert reads == (2,) and answers[:, 0].tolist() == [a * b % 7 for a, b, _ in inputs.tolist()]


def test_what_is_no_task_is_refused() -> None:
    for arguments, words in (
        (("max", "0-9", 3), ("'max'", "max-of-list")),
        (("sort", "0-9", "x z"), ("layout", "'z'")),
        (("sort", "0-9", "1 2"), ("at least one x",)),
        (("sort", "0-9", "x x 5 y"), ("2 y", "sort")),
        (("sort", "0-9", "x y x y"), ("behind all x",)),
        (("sort", "0-x", 2), ("values", "'0-x'")),
        (("sort", "1 1", 2), ("each once",)),
        (("sort", [True, -1], 2), ("values",)),
        (("bracket-balance", "0-2", 4), ("2 values", "3 values")),
        (("longest-cycle", "0-2", 4), ("4 values",)),
        (("induction", "0-2", 2), ("at least 3 items",)),
        ((lambda items: items.float(), "0-2", 2), ("whole numbers", "float32")),
        ((lambda items: 3, "0-2", 2), ("int",)),
    ):
        with refused(*words):
            make_task(*arguments)
    with refused("answers", "2 outputs"):
        make_task("palindrome", "0-2", 3, answers="4")
    with refused("function", "leave answers out"):
        make_task(torch.clone, "0-2", 3, answers="4")
