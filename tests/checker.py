"""What `--check-shapes` checks annotations with: as for mypy, a whole number is a `float`, too.

jaxtyping's own decorator compiles two functions for each function of the library at import, and again for an inner
function whenever its outer one is called: test runs took three to four times as long. Here a check is compiled when its
function is first called, once for all closures of the same code.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))
_jaxtyped = jaxtyping.jaxtyped
#: Within it, an axis has one length.
_CALL = _jaxtyped("context")
#: id of a function's code → the code, and two functions that check: one takes the parameters, one what is returned.
_checks: dict[int, tuple[types.CodeType, Any, Any]] = {}


def install() -> None:
    """Check what is imported of the library from now on: the decorator that jaxtyping's import hook inserts is ours."""
    jaxtyping.install_import_hook("aotlens", None)
    jaxtyping.jaxtyped = lambda *args, **kwargs: _jaxtyped(*args, **kwargs) if args else checked


def checked(target: Any) -> Any:
    """A function with its parameters and what it returns checked; a dataclass with its fields checked."""
    if isinstance(target, type):
        unchecked = getattr(target, "__no_type_check__", False) or hasattr(target.__init__, "__wrapped__")
        if hasattr(target, "__dataclass_fields__") and not unchecked:
            target.__init__ = checked(target.__init__)
        return target

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return target(*args, **kwargs)
        _, parameters, output = _checks.get(id(target.__code__)) or _compile(target)
        with _CALL:
            parameters(*args, **kwargs)
            return output(target(*args, **kwargs))

    return call


def _compile(function: Any) -> tuple[types.CodeType, Any, Any]:
    """Not checked: what only type checkers import, and `Self`, which beartype knows in decorated classes alone."""
    hints = {name: _resolved(hint, function.__globals__) for name, hint in function.__annotations__.items()}
    hints = {name: hint for name, hint in hints.items() if not re.search(r"\bSelf\b", str(hint))}
    bare = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else None)
        for each in inspect.signature(function).parameters.values()
    ]
    made: dict[str, Any] = {}
    exec(f"def parameters{inspect.Signature(bare)}: pass\ndef output(value): return value", made)
    made["output"].__annotations__ = {"return": hints.pop("return", Any)}
    made["parameters"].__annotations__ = hints
    for name in ("parameters", "output"):
        functools.update_wrapper(made[name], function, ("__module__", "__name__", "__qualname__"), ())
        del made[name].__wrapped__
    checks = function.__code__, _beartype(made["parameters"]), _beartype(made["output"])
    return _checks.setdefault(id(function.__code__), checks)


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"hint": hint})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["hint"]
    except Exception:  # NameError, or jaxtyping's ValueError
        return Any
