"""A workshop of runs of prompts, expansions and scores that the app keeps itself, whichever page asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aotlens.conventions import Head, as_head
from aotlens.views import Call, Load, Part, make
from aotlens.views.calls import stamp_of
from app.core.scores import ScoreQuestion
from app.core.workshop import AppWorkshop

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from app.core import Core

_WINDOWS = "aotlens.data.spread_windows"


class RunWorkshop(AppWorkshop):
    """Runs are `Inference`'s, whose ablations are ready for any head; expansions and scores are asked by several pages;
    and a text that is too long is refused."""

    def __init__(self, core: Core, kept: int) -> None:
        super().__init__(core, kept)
        self._core = core
        self._corpora: dict[int, str] = {}
        """The corpus that windows are cut from, by their stamp."""

    def windows(self, info: CheckpointInfo, how: Any, corpus: str | None, length: int) -> Call | None:
        """Return the windows from which ablated heads are replaced; None where `how` reads none. Raises
        RequestError."""
        text = self._core.switches.text(info.name, how, corpus)
        if text is None:
            return None
        opened, model = self._core.corpora.opening(str(corpus)).named("corpus"), Load(info.name)
        names = opened.method("names")
        if text.documents is not None:
            names = make("aotlens.checkpoints.find_checkpoint", info.name).method("held_out", names)
        causal = not self._core.catalog.load(info.name).model.sees_later_keys
        encoding = make("aotlens.data.Encoding.of", Part(model, "tokenizer"), causal=causal)
        cut = make(_WINDOWS, opened, names, encoding, self._core.settings.reference_windows, length)
        stamp = stamp_of(text.key, cut.source)
        self._corpora[stamp] = str(corpus)
        return cut.stamped(stamp)

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """Return a run, an expansion, a score, or what has been kept of a call."""
        function = node.function
        if function == "aotlens.heads.run_prompt":
            return self._run(node)
        if function == "aotlens.paths.expand":
            return self._core.expansions.of(cast("Load", node.args[0]).checkpoint, node.args[1]).expansion
        if isinstance(function, Part) and isinstance(function.of, Call) and function.name == "score":
            load, text = function.of.args
            against = node.options["against"]
            return self._core.scores.explain(question_of(load.checkpoint, text, *node.args, against)).score
        return super().call(node, work)

    def _run(self, node: Call) -> Any:
        from aotlens.heads.runs import PromptRun

        (load, text), options, inference = node.args, node.options or {}, self._core.inference
        windows = options.get("reference")
        result = inference.analyse(
            load.checkpoint, text, off=tuple(map(as_head, options.get("ablated", ()))), how=options.get("how", "zero"),
            corpus=None if windows is None else self._corpora[windows.stamp],
        )  # fmt: skip
        return PromptRun(
            text=text, patterns=result.patterns, ablated=result.off,
            losses=inference.losses(result) if options.get("losses", True) else None,
            logits=result.logits if options.get("logits") else None,
        )  # fmt: skip


def question_of(
    checkpoint: str, text: str, head: Head, query: int, key: int, against: int | str | None
) -> ScoreQuestion:
    """Return a score as core/scores.py asks for it; `against` as the library has it."""
    plain = "plain" if against is None else against
    return ScoreQuestion(checkpoint=checkpoint, text=text, head=head, query=query, key=key, against=plain)
