"""What every public function that takes a model says to a bridge, to a name in a model's place, and to models whose
weights are NaN or on the meta device: JSON on stdout.

    python -m tests.interop.external.bridge_calls FOLDER_OF_A_BERT FOLDER_OF_TEXTS

It runs in a process of its own, without the tests' checks of types at run time, which would come before ours.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import aotlens
from aotlens.results.exports import exports

_A_MODEL = re.compile(r"\b(AttentionOnlyTransformer|TransformerBridge|Model|AnyModel)\b")


def takers() -> Iterator[tuple[str, Callable[..., Any], dict[str, str]]]:
    """Every public function, class and method of which a parameter is a model: its name, itself, those parameters."""
    seen: set[int] = set()
    for module in pkgutil.walk_packages(aotlens.__path__, "aotlens."):
        if not module.ispkg or module.name.startswith(("aotlens.commands", "aotlens.train")):
            continue  # words for people, and what a training hands to its own parts
        package = importlib.import_module(module.name)
        for name in exports()[module.name]:
            value = getattr(package, name)
            if not (inspect.isfunction(value) or inspect.isclass(value)) or id(value) in seen:
                continue
            seen.add(id(value))
            if not dataclasses.is_dataclass(value):  # which holds what it is given
                yield from _taker(name, value)
            if inspect.isclass(value) and value.__module__.startswith("aotlens") and not inspect.isabstract(value):
                for method, of_class in vars(value).items():
                    if not method.startswith("_") and isinstance(
                        of_class, types.FunctionType | classmethod | staticmethod
                    ):
                        yield from _taker(f"{name}.{method}", getattr(value.__new__(value), method))


def _taker(name: str, value: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any], dict[str, str]]]:
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):  # a class of Python's own
        return
    models = {
        each.name: str(each.annotation)
        for each in parameters.values()
        if _A_MODEL.search(str(each.annotation)) or (each.name == "model" and each.annotation == "Any")
    }
    if models:
        yield name, value, models


def said(call: Callable[[], Any]) -> str:
    """`ok`, or the error of a call."""
    try:
        made = call()
        if hasattr(made, "__enter__"):
            with made:
                pass
        return "ok"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def with_model(value: Callable[..., Any], models: dict[str, str], model: Any) -> Callable[[], Any]:
    """A call with `model` wherever one is taken, and None for everything else that must be given."""
    given: dict[str, Any] = {}
    for each in inspect.signature(value).parameters.values():
        if each.name in models:
            kind = models[each.name]
            given[each.name] = {"name": model} if "Mapping" in kind else [model] if "Sequence" in kind else model
        elif each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            given[each.name] = None
    return lambda: value(**given)


def working_calls(bridge: Any, texts: str) -> dict[str, Callable[[], Any]]:
    """A whole call of each function that takes a bridge."""
    from aotlens import distill, heads
    from aotlens.data import open_corpus

    tokens = torch.randint(30, (4, 8), generator=torch.Generator().manual_seed(0))
    targets = torch.ones(4, 8, 8, dtype=torch.bool)
    distilled = distill.distill_heads(bridge, (tokens, tokens.flip(1)), 0, seeds=1, neighbours=0)
    one = "0.0"
    return {
        "atlas": lambda: heads.atlas(bridge, tokens),
        "attention_by_place": lambda: heads.attention_by_place(bridge, tokens),
        "attention_to": lambda: heads.attention_to(bridge, tokens),
        "distill_heads": lambda: distilled,
        "held_out_windows": lambda: distill.held_out_windows(bridge, open_corpus(f"dir:{texts}"), 16),
        "motif_scores": lambda: heads.motif_scores(bridge, half_length=3),
        "head_scores": lambda: heads.head_scores(bridge, tokens),
        "inactive_heads": lambda: heads.inactive_heads(bridge, tokens),
        "pattern_consistency": lambda: heads.pattern_consistency(bridge, tokens),
        "record_distillation": lambda: distill.record_distillation(
            bridge, open_corpus(f"dir:{texts}"), 0, sequence_length=8, train_tokens=512, seeds=1
        ),
        "repeated_patterns": lambda: heads.repeated_patterns([bridge, bridge], tokens),
        "substitute": lambda: distill.substitute(bridge, distilled, one),
        "substitution_costs": lambda: distill.substitution_costs(bridge, distilled, tokens, n_random=1),
        "substitution_hooks": lambda: distill.substitution_hooks(bridge, distilled, one),
        "targeted_attention": lambda: heads.targeted_attention(bridge, tokens, targets),
        "text_errors": lambda: distill.text_errors(bridge, distilled, tokens[:1], one),
        "token_errors": lambda: distill.token_errors(bridge, distilled, tokens, one),
        "value_norms": lambda: heads.value_norms(bridge, [(tokens, torch.zeros_like(tokens))], ["text"]),
    }


def main(folder: str, texts: str) -> None:
    """Print {"bridge": …, "name": …, "nan": …, "meta": …, "works": …}, each what every function said."""
    warnings.simplefilter("ignore")
    bridge = aotlens.load(folder, "cpu")
    found = list(takers())
    cfg = aotlens.ModelConfig(n_layers=1, d_model=4, n_heads=2, d_head=2, n_ctx=8, d_vocab=6)
    nan, meta = aotlens.AttentionOnlyTransformer(cfg), aotlens.AttentionOnlyTransformer(cfg).to("meta")
    with torch.no_grad():
        nan.blocks[0].attn.W_V[0, 0, 0] = torch.nan
    works = working_calls(bridge, texts)
    print(
        json.dumps(
            {
                "bridge": {n: said(with_model(f, models, bridge)) for n, f, models in found if n not in works},
                "name": {n: said(with_model(f, models, "novels-2l-mhsa")) for n, f, models in found},
                "nan": {n: said(with_model(f, models, nan)) for n, f, models in found},
                "meta": {n: said(with_model(f, models, meta)) for n, f, models in found},
                "works": {n: said(call) for n, call in works.items()},
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
