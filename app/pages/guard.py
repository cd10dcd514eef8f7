"""What a callback does with an error: a clear message in its panel, never a traceback in the browser."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from dash.exceptions import PreventUpdate

from aotlens.checkpoints import CheckpointError
from app.components.notices import defect, problem
from app.services.errors import RequestError

log = logging.getLogger("aotlens.app")


def guarded(*empty: Any) -> Callable[[Callable[..., tuple[Any, ...]]], Callable[..., tuple[Any, ...]]]:
    """Adds the panel's notice as a last output: None, or what went wrong, with `empty` for the other outputs."""

    def decorate(callback: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        @wraps(callback)
        def answer(*args: Any) -> tuple[Any, ...]:
            try:
                return (*callback(*args), None)
            except PreventUpdate:
                raise
            except (RequestError, CheckpointError) as error:
                return (*empty, problem(str(error)))
            except Exception as error:
                log.exception("%s failed", callback.__name__)
                return (*empty, defect(error))

        return answer

    return decorate
