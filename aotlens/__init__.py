"""aotlens: a workbench for the interpretability of attention-only transformers.

    import aotlens

    for info in aotlens.list_checkpoints():
        print(info.name, info.metrics)
    model = aotlens.load("novels-2l-mhsa")

The names below are resolved on first use (PEP 562). Importing TransformerLens costs some two seconds, and
``import aotlens.plots`` or a listing of checkpoints must not pay them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotlens.checkpoints import list_checkpoints, load
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

__version__ = "0.1.0"

__all__ = ["AttentionOnlyTransformer", "ModelConfig", "__version__", "list_checkpoints", "load"]

_HOME = {
    "AttentionOnlyTransformer": "aotlens.models",
    "ModelConfig": "aotlens.models",
    "list_checkpoints": "aotlens.checkpoints",
    "load": "aotlens.checkpoints",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'aotlens' has no attribute {name!r}; it has {', '.join(sorted(_HOME))}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
