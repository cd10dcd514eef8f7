"""What a hook cannot be put on, or a cache cannot hold, is named, and no hook is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.small_models import small_tokens

TOKENS = small_tokens()  # two sequences of 7
PATTERN, Z = "blocks.0.attn.hook_pattern", "blocks.1.attn.hook_z"
WRONG: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "name": (
        lambda model: model.run_with_hooks(TOKENS, fwd_hooks=[(Z, print), ("blocks.0.hook_pattern", print)]),
        ["'blocks.0.hook_pattern'", PATTERN],
    ),
    "backward name": (
        lambda model: model.run_with_hooks(TOKENS, bwd_hooks=[("embed", print)]),
        ["'embed'", "hook_embed"],
    ),
    "a module": (lambda model: model.add_hook("blocks.0", print), ["'blocks.0'", "blocks.0."]),
    "filter": (lambda model: model.run_with_cache(TOKENS, names_filter="attn.hook_z"), ["names_filter", Z]),
    "filter's list": (lambda model: model.run_with_cache(TOKENS, names_filter=[Z, "hook_emed"]), ["'hook_emed'"]),
    "hook": (lambda model: model.run_with_hooks(TOKENS, fwd_hooks=[(Z, TOKENS)]), [Z, "function"]),
    "batch": (lambda model: model.run_with_cache(TOKENS, remove_batch_dim=True), ["remove_batch_dim", "2 rows"]),
    "positions": (lambda model: model.run_with_cache(TOKENS, pos_slice=[0.5]), ["pos_slice", "0.5"]),
    "a word": (lambda model: model.run_with_cache(TOKENS, pos_slice="last"), ["pos_slice", "'last'"]),
    "no scalar": (lambda model: model.run_with_cache(TOKENS, incl_bwd=True), ["incl_bwd", "[2, 7, 11]", "'loss'"]),
    "no gradient": (
        lambda model: model.requires_grad_(False).run_with_cache(TOKENS, incl_bwd=True, return_type="loss"),
        ["incl_bwd", "gradient", "[]"],
    ),
    "device": (lambda model: model.run_with_cache(TOKENS, device="gpu"), ["gpu", "cuda"]),
    "layer": (lambda model: model.hook_embed.layer(), ["hook_embed", "blocks."]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_and_leaves_nothing(make: Any, what: str) -> None:
    model, (ask, words) = make(), WRONG[what]
    with pytest.raises(ValueError) as caught:
        ask(model)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not model.list_hooks() and model.context_level == 0


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (lambda model: model.run_with_hooks(TOKENS, fwd_hooks=[(("pattern", 0), print)]), "pattern"),
        (lambda model: model.add_hook(Z, print, dir="sideways"), "sideways"),
        (lambda model: model.hook_embed.has_hooks("sideways"), "sideways"),
        (lambda model: model.reset_hooks(direction="sideways"), "sideways"),
    ],
)
def test_a_wrong_type_is_named(make: Any, ask: Callable[[Any], Any], word: str) -> None:
    with pytest.raises(Exception, match=word):  # by the function, or before it where types are checked
        ask(make())
