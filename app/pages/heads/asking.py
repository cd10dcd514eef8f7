"""The models that run for a view of the Heads page: the full model, or the same with heads ablated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.core import Core
from app.core.address_values import dotted
from app.core.inference import PromptResult
from app.core.switches import HOWS, How


def ask(core: Core, prompt: dict[str, Any], *, long: bool = False) -> PromptResult:
    """Return the result for a submitted prompt, from memory unless it is new; `long` as `Inference.analyse` has it."""
    return core.inference.analyse(
        prompt.get("checkpoint"), prompt.get("text") or "", length=prompt.get("length"), long=long
    )  # fmt: skip


def ask_without(
    core: Core, prompt: dict[str, Any], off: Sequence[Any] | None, how: How, corpus: str | None, *, long: bool = False
) -> PromptResult:
    """Return the result of `ask` without those of the heads `off` that the checkpoint has; of the full model where
    there is none."""
    return core.inference.analyse(
        prompt.get("checkpoint"), prompt.get("text") or "", length=prompt.get("length"),
        off=there(off, core.catalog.shape(prompt.get("checkpoint"))), how=how, corpus=corpus, long=long,
    )  # fmt: skip


def there(off: Sequence[Any] | None, shape: Sequence[int] | None) -> tuple[tuple[int, int], ...]:
    """Return the heads that the browser sends, those that a model of so many layers and heads has."""
    heads = ((int(layer), int(head)) for layer, head in off or ())
    return tuple(head for head in heads if shape is None or (head[0] < shape[0] and head[1] < shape[1]))


def says_ablated(result: PromptResult) -> str:
    """Say which heads are ablated in a result, and by what."""
    return f"{', '.join(map(dotted, result.off))} ablated by {HOWS[result.how]}"
