"""What a copy keeps of hooks, and what is said of names, functions and options that cannot be."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.models.test_hooks_against_transformer_lens import NAMES, PATTERN, X, Z, ours, theirs


def test_a_copys_hooks_are_its_own() -> None:
    module = ours()
    points: list[Any] = []
    module.add_hook(PATTERN, lambda pattern, hook: points.append(hook), is_permanent=True)
    duplicate = copy.deepcopy(module)
    module.reset_hooks(including_permanent=True)
    module(X)
    duplicate(X)
    assert points == [duplicate.hook_dict[PATTERN]]
    assert [list(duplicate.list_hooks()), list(module.list_hooks())] == [[PATTERN], []]
    duplicate.reset_hooks(including_permanent=True)
    duplicate(X)
    assert len(points) == 1


def test_a_hook_point_knows_its_layer() -> None:
    module, other = ours(), theirs()
    assert module.hook_dict.keys() == other.hook_dict.keys() == set(NAMES)
    assert all(module.hook_dict[name].layer() == other.hook_dict[name].layer() for name in NAMES[1:-1])
    with pytest.raises(ValueError, match="hook_embed"):
        module.hook_embed.layer()


WRONG: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "name": (
        lambda module: module.run_with_hooks(X, fwd_hooks=[(Z, print), ("blocks.0.hook_pattern", print)]),
        ["'blocks.0.hook_pattern'", PATTERN],
    ),
    "backward name": (lambda module: module.run_with_hooks(X, bwd_hooks=[("embed", print)]), ["'embed'", "hook_embed"]),
    "a module": (lambda module: module.add_hook("blocks.0", print), ["'blocks.0'", "blocks.0.hook_resid_pre"]),
    "filter": (lambda module: module.run_with_cache(X, names_filter="hook_z"), ["names_filter", Z]),
    "filter's list": (lambda module: module.run_with_cache(X, names_filter=[Z, "hook_poled"]), ["'hook_poled'"]),
    "hook": (lambda module: module.run_with_hooks(X, fwd_hooks=[(Z, X)]), [Z, "function"]),
    "batch": (lambda module: module.run_with_cache(X.expand(3, -1, -1), remove_batch_dim=True), ["batch", "3 rows"]),
    "positions": (lambda module: module.run_with_cache(X, pos_slice=[0.5]), ["pos_slice", "0.5"]),
    "a word": (lambda module: module.run_with_cache(X, pos_slice="last"), ["pos_slice", "'last'"]),
    "no gradient": (
        lambda module: module.requires_grad_(False).run_with_cache(X, incl_bwd=True),
        ["incl_bwd", "gradient", "[]", "loss"],
    ),
    "device": (lambda module: module.run_with_cache(X, device="gpu"), ["gpu", "cuda"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_and_leaves_nothing(what: str) -> None:
    module, (ask, words) = ours(), WRONG[what]
    with pytest.raises(ValueError) as caught:
        ask(module)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not module.list_hooks() and module.context_level == 0


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (lambda module: module.run_with_hooks(X, fwd_hooks=[(("pattern", 0), print)]), "pattern"),
        (lambda module: module.add_hook(Z, print, dir="sideways"), "sideways"),
        (lambda module: module.hook_embed.has_hooks("sideways"), "sideways"),
        (lambda module: module.reset_hooks(direction="sideways"), "sideways"),
    ],
)
def test_a_wrong_type_is_named(ask: Callable[[Any], Any], word: str) -> None:
    with pytest.raises(Exception, match=word):  # by the function, or before it where types are checked
        ask(ours())
