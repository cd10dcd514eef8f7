"""Hook points and the hooked base class against TransformerLens's: the same module on both, through the same calls.

Every sequence notes what each hook was called with, in which order, and what is left on the hook points after every
step; the two notes are equal.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import torch
import transformer_lens
import transformer_lens.hook_points
from torch import Tensor, nn

from aotlens.models import hooks

NAMES = [
    "hook_embed",
    *(
        f"blocks.{layer}.{name}"
        for layer in range(2)
        for name in ("hook_resid_pre", "attn.hook_z", "attn.hook_pattern")
    ),
    "hook_pooled",
]


def twin(base: type[nn.Module], point: type[nn.Module]) -> Any:
    """A small module with hooks of every layout, on our classes or on TransformerLens's."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hook_z, self.hook_pattern = point(), point()

        def forward(self, x: Tensor) -> Tensor:
            pattern = self.hook_pattern((x @ x.mT).softmax(-1)[:, None].expand(-1, 2, -1, -1).clone())
            z = self.hook_z(x.unflatten(-1, (2, 3)))  # [batch, pos, head, d_head]
            return (pattern @ z.transpose(1, 2)).transpose(1, 2).flatten(2)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hook_resid_pre = point()
            self.attn = Attention()

        def forward(self, x: Tensor) -> Tensor:
            x = self.hook_resid_pre(x)
            return x + self.attn(x)

    class Twin(base):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(0)
            self.W_E = nn.Parameter(torch.randn(6, 6, generator=generator, dtype=torch.float64))
            self.hook_embed, self.hook_pooled = point(), point()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.setup()

        def forward(self, x: Tensor) -> Tensor:
            stream = self.hook_embed(x @ self.W_E)
            for block in self.blocks:
                stream = block(stream)
            return self.hook_pooled(stream.square().mean((1, 2))).sum()  # [batch], then a scalar

    return Twin()


def ours() -> Any:
    return twin(hooks.HookedRootModule, hooks.HookPoint)


def theirs() -> Any:
    return twin(transformer_lens.HookedRootModule, transformer_lens.hook_points.HookPoint)


X = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Player:
    """One twin, the hooks that it was given by number, and what they noted."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.notes: list[Any] = []
        self.contexts: list[ExitStack] = []
        self.serial = itertools.count()

    def hook(self, kind: str) -> Callable[..., Any]:
        """A hook that notes what it gets, and looks, scales (`tuple`: as a backward hook may say it), or raises."""
        number = next(self.serial)

        def called(tensor: Tensor, hook: Any) -> Any:
            hook.ctx[number] = hook.ctx.get(number, 0) + 1
            self.notes.append((number, hook.name, tensor.detach().clone()))
            if kind == "raise":
                raise ZeroDivisionError
            scaled = tensor * (1 + number / 7)
            return {"look": None, "scale": scaled, "tuple": (scaled,)}[kind]

        called.number = number  # type: ignore[attr-defined]
        return called

    def pairs(self, where: list[tuple[Any, str]]) -> list[tuple[Any, Callable[..., Any]]]:
        return [(name, self.hook(kind)) for name, kind in where]

    def play(self, step: str, *args: Any, **kwargs: Any) -> None:
        try:
            getattr(self, step)(*args, **kwargs)
        except ZeroDivisionError:
            self.notes.append("raised")
        self.note_state()

    def note_state(self) -> None:
        points = self.module.hook_dict
        for direction in ("fwd", "bwd"):
            for name, handles in self.module.list_hooks(dir=direction).items():
                for handle in handles:
                    number = getattr(handle.user_hook, "number", "of a cache")
                    self.notes.append((name, direction, number, handle.is_permanent, handle.context_level))
        self.notes.append({name: dict(point.ctx) for name, point in points.items()})
        self.notes.append(
            [
                point.has_hooks(direction, permanent, level)
                for point in points.values()
                for direction in ("fwd", "bwd", "both")
                for permanent in (True, False)
                for level in (None, 1, 2)
            ]
        )
        self.notes.append(self.module.context_level)

    # The steps

    def run(self) -> None:
        self.module.zero_grad()
        output = self.module(X)
        output.backward()
        self.notes.extend([output.detach(), self.module.W_E.grad.clone()])

    def add(self, name: Any, kind: str, **kwargs: Any) -> None:
        self.module.add_hook(name, self.hook(kind), **kwargs)

    def reset(self, **kwargs: Any) -> None:
        self.module.reset_hooks(**kwargs)

    def remove_at(self, name: str, **kwargs: Any) -> None:
        self.module.hook_dict[name].remove_hooks(**kwargs)

    def enter(self, forward: list[tuple[Any, str]], backward: list[tuple[Any, str]], **kwargs: Any) -> None:
        stack = ExitStack()
        stack.enter_context(self.module.hooks(self.pairs(forward), self.pairs(backward), **kwargs))
        self.contexts.append(stack)

    def leave(self) -> None:
        if self.contexts:
            self.contexts.pop().close()

    def hooked(self, forward: list[tuple[Any, str]], backward: list[tuple[Any, str]], **kwargs: Any) -> None:
        given = {"fwd_hooks": self.pairs(forward), "bwd_hooks": self.pairs(backward), **kwargs}
        output = self.module.run_with_hooks(X, **given)
        output.backward()
        self.notes.append(output.detach())

    def cached(self, **kwargs: Any) -> None:
        output, cache = self.module.run_with_cache(X, **kwargs)
        self.notes.extend([output.detach(), cache])


Step = tuple[str, tuple[Any, ...], dict[str, Any]]


def step(name: str, *args: Any, **kwargs: Any) -> Step:
    return name, args, kwargs


def play_both(steps: list[Step]) -> None:
    """Take each step with both; what they noted of it is the same."""
    players = [Player(ours()), Player(theirs())]
    for name, args, kwargs in steps:
        for player in players:
            player.notes.clear()
            player.play(name, *args, **kwargs)
        assert_same(players[0].notes, players[1].notes, f"{name} {args} {kwargs}")


def assert_same(found: Any, expected: Any, where: str) -> None:
    assert type(found) is type(expected), where
    if isinstance(expected, Tensor):
        assert torch.equal(found, expected), f"{where}: {found} is not {expected}"
        assert found.requires_grad == expected.requires_grad, where
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for name in expected:
            assert_same(found[name], expected[name], f"{where}: {name}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for ours_is, theirs_is in zip(found, expected, strict=True):
            assert_same(ours_is, theirs_is, where)
    else:
        assert found == expected, where


def of_layer_1(name: str) -> bool:
    return name.startswith("blocks.1.")


def heads(name: str) -> bool:
    return name.endswith(("hook_z", "hook_pattern"))


PATTERN, Z = "blocks.0.attn.hook_pattern", "blocks.1.attn.hook_z"
SEQUENCES: dict[str, list[Step]] = {
    "nested contexts": [
        step("add", PATTERN, "scale"),
        step("enter", [(PATTERN, "scale"), (of_layer_1, "look")], [(Z, "scale")]),
        step("enter", [(PATTERN, "scale")], [("hook_embed", "look")]),
        step("add", Z, "scale"),  # of no level: it stays
        step("run"),
        step("hooked", [(Z, "scale")], []),
        step("leave"),
        step("run"),
        step("leave"),
        step("run"),
    ],
    "what raises leaves nothing": [
        step("add", "hook_embed", "look"),
        step("add", PATTERN, "scale", is_permanent=True),
        step("hooked", [(Z, "scale"), ("blocks.1.hook_resid_pre", "raise"), ("hook_pooled", "scale")], [(Z, "look")]),
        step("run"),
        step("enter", [(Z, "scale")], []),
        step("hooked", [(PATTERN, "raise")], []),
        step("run"),
        step("add", "hook_pooled", "raise", level=1),
        step("run"),
        step("cached"),
        step("leave"),
        step("run"),
    ],
    "permanent hooks": [
        step("add", heads, "scale", is_permanent=True),
        step("add", heads, "scale"),
        step("add", Z, "look", dir="bwd", is_permanent=True),
        step("reset"),
        step("run"),
        step("reset", direction="fwd", including_permanent=True),
        step("run"),
        step("reset", including_permanent=True, clear_contexts=False),
        step("run"),
    ],
    "prepended hooks": [
        step("add", PATTERN, "scale"),
        step("add", PATTERN, "look", prepend=True),
        step("add", PATTERN, "scale", dir="bwd"),
        step("add", PATTERN, "tuple", dir="bwd", prepend=True),
        step("hooked", [(PATTERN, "look")], [], reset_hooks_end=False),
        step("run"),
    ],
    "levels": [
        step("add", PATTERN, "scale", level=1),
        step("add", PATTERN, "scale", level=2),
        step("reset", level=2, clear_contexts=False),
        step("hooked", [], []),  # its end takes away all of level 1
        step("hooked", [(Z, "scale")], [(Z, "scale")], reset_hooks_end=False),
        step("run"),
        step("enter", [], [], clear_contexts=True),
        step("leave"),
        step("run"),
    ],
    "backward hooks": [
        step("hooked", [], [(PATTERN, "scale"), (of_layer_1, "look"), (heads, "tuple")], reset_hooks_end=False),
        step("remove_at", PATTERN, dir="bwd"),
        step("run"),
        step("remove_at", Z),
        step("reset", direction="bwd"),
        step("run"),
    ],
    "caches": [
        step("add", PATTERN, "scale"),
        step("cached"),
        step("cached", names_filter=Z),
        step("cached", names_filter=[PATTERN, Z, "hook_pooled"], incl_bwd=True),
        step("cached", names_filter=heads, incl_bwd=True, remove_batch_dim=True),
        step("cached", incl_bwd=True, device="cpu", reset_hooks_end=False, clear_contexts=True),
        step("run"),
        *(step("cached", pos_slice=where) for where in (1, -1, (2,), (1, 3), (0, 4, 2), slice(1, None), [0, 2])),
        step("cached", pos_slice=torch.tensor([3, 0]), remove_batch_dim=True, incl_bwd=True),
        step("cached", pos_slice=torch.tensor([True, False, True, True])),
        step("cached", pos_slice=torch.tensor([0, 2]).numpy()),
    ],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_call_and_what_is_left_are_the_same(name: str) -> None:
    play_both(SEQUENCES[name])


def random_step(draw: random.Random) -> Step:
    def pairs(kinds: list[str]) -> list[tuple[Any, str]]:
        return [(draw.choice([*NAMES, of_layer_1, heads]), draw.choice(kinds)) for _ in range(draw.randrange(3))]

    forward, backward = ["look", "scale", "scale", "scale", "raise"], ["look", "scale", "tuple", "scale", "raise"]
    directions = draw.choice(["fwd", "bwd", "both"])
    level, yes, maybe = draw.choice([None, 1, 2]), draw.random() < 0.5, draw.random() < 0.2
    direction = draw.choice(["fwd", "bwd"])
    choices = [
        step("run"),
        step("add", draw.choice([*NAMES, heads]), draw.choice(["look", "scale"]), dir=direction, is_permanent=maybe,
             level=level, prepend=yes),
        step("reset", clear_contexts=yes, direction=directions, including_permanent=maybe, level=level),
        step("remove_at", draw.choice(NAMES), dir=directions, including_permanent=maybe, level=level),
        step("enter", pairs(forward[:4]), pairs(backward[:4]), reset_hooks_end=not maybe, clear_contexts=yes),
        step("leave"),
        step("hooked", pairs(forward), pairs(backward), reset_hooks_end=not maybe, clear_contexts=yes),
        step("cached", names_filter=draw.choice([None, Z, [PATTERN, Z], heads]), incl_bwd=yes, reset_hooks_end=yes),
    ]  # fmt: skip
    return draw.choice(choices)


@pytest.mark.parametrize("seed", range(20))
def test_random_sequences_of_calls(seed: int) -> None:
    draw = random.Random(seed)
    play_both([random_step(draw) for _ in range(20)])


def test_threads_get_what_transformer_lens_gives_to_one() -> None:
    """Four threads hook one module at once; TransformerLens's, which no two threads can share, is asked by one."""

    def ask(module: Any, number: int) -> list[Any]:
        x, factor = X * (1 + number), 1 / (2 + number)
        with module.hooks([(PATTERN, lambda pattern, hook: pattern * factor)]):
            nested = module.run_with_hooks(x, fwd_hooks=[(heads, lambda tensor, hook: tensor * factor)])
        _, cache = module.run_with_cache(x, names_filter=heads)
        return [nested.detach(), cache, module(x).detach()]

    expected = [ask(theirs(), number) for number in range(4)]
    module = ours()
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            found = list(threads.map(ask, [module] * 4, range(4)))
            assert_same(found, expected, "threads")
    assert not module.list_hooks() and module.context_level == 0


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
