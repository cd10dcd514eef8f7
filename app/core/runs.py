"""A workshop of runs of prompts and expansions that the app keeps itself, whichever page asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aotlens.conventions import as_head
from aotlens.views import Call, Load
from aotlens.views.compare import reference_windows
from app.core.errors import RequestError
from app.core.workshop import AppWorkshop

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from app.core import Core


class RunWorkshop(AppWorkshop):
    """Runs are `Inference`'s, whose ablations are ready for any head; expansions are asked by several pages; and a text
    that is too long is refused."""

    def __init__(self, core: Core, kept: int) -> None:
        super().__init__(core, kept)
        self._core = core

    def windows(self, info: CheckpointInfo, how: Any, corpus: str | None, text: str) -> Call | None:
        """Return the windows from which ablated heads are replaced; None where `how` reads none. Raises
        RequestError."""
        if self._core.switches.text(info.name, how, corpus) is None:
            return None
        return reference_windows(Load(info.name), text, self._core.corpora.reading(str(corpus), info))

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """Return a run, an expansion, or what has been kept of a call."""
        function = node.function
        if function == "aotlens.heads.run_prompt":
            return self._run(node)
        if function == "aotlens.paths.expand":
            return self._core.expansions.of(cast("Load", node.args[0]).checkpoint, node.args[1]).expansion
        return super().call(node, work)

    def _run(self, node: Call) -> Any:
        from aotlens.heads.runs import PromptRun

        (load, text), options, inference = node.args, node.options or {}, self._core.inference
        windows = options.get("reference")
        corpus = None if windows is None else self._core.corpora.name_of(windows.stamps[0])
        off, how = tuple(map(as_head, options.get("ablated", ()))), options.get("how", "zero")
        try:
            result = inference.analyse(load.checkpoint, text, off=off, how=how, corpus=corpus)
        except RequestError as error:
            raise RequestError(f"At the {load.called}: {error}" if load.called else str(error)) from error
        return PromptRun(
            text=text, patterns=result.patterns, ablated=result.off,
            losses=inference.losses(result) if options.get("losses", True) else None,
            logits=result.logits if options.get("logits") else None,
        )  # fmt: skip
