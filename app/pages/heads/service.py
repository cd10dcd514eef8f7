"""The Heads page's account of a text: where its views are computed, and of which score the tab Why speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from aotlens.views.heads import HeadsParameters
from aotlens.views.paths import PathsParameters
from aotlens.views.scores import SCORE
from app.core import Core, head_maps
from app.core.address_values import dotted
from app.core.errors import RequestError
from app.core.runs import RunWorkshop
from app.pages.heads.address import HeadsState
from app.pages.heads.asking import ask, there
from app.pages.heads.continuations import Continuations


@dataclass(frozen=True, kw_only=True)
class WhyParameters(PathsParameters):
    """The score of an entry, and what is said of it."""

    reason: str = ""
    """The reason why it is compared with what nobody has chosen, a sentence."""
    said: str = ""
    """Which entry it is, where none is locked, a sentence."""


class Heads:
    """The page's choices. Raises RequestError for what can be put right."""

    def __init__(self, core: Core) -> None:
        self.core, self.workshop = core, RunWorkshop(core, core.settings.n_views)
        self.continuations = Continuations(core)

    def values(
        self, asked: Mapping[str, Any], head: Any = None, position: Any = None, view: str = "attention",
        hide_first: Any = False, off: Any = (), how: str = "zero", corpus: str | None = None,
    ) -> HeadsParameters:  # fmt: skip
        """Return what is shown of the text of `asked`, {prompt, …}: what it says itself comes before the rest."""
        prompt = asked["prompt"]
        loaded, tokens = self.core.inference.tokens(
            prompt.get("checkpoint"), prompt.get("text") or "", length=prompt.get("length")
        )
        head, position = asked.get("head", head), asked.get("position", position)
        off, how, corpus = asked.get("off", off), asked.get("how", how), asked.get("corpus", corpus)
        info, cfg = self.core.catalog.info(prompt.get("checkpoint")), loaded.model.cfg
        ablated = tuple(sorted(there(off, (cfg.n_layers, cfg.n_heads))))
        return HeadsParameters(
            checkpoint=info.name, model=cfg.to_dict(), text=prompt.get("text") or "", quantity=view,
            head=whole_numbers("a head", *(head or (0, 0))), first="hide" if hide_first else "show", ablated=ablated,
            position=None if position is None else whole_numbers("a position", position)[0], how=how,
            reference=self.workshop.windows(info, how, corpus, prompt.get("text") or "") if ablated else None,
            n_predictions=self.core.settings.n_predictions, n_tokens=len(tokens),
        )  # fmt: skip

    def of_address(self, state: HeadsState) -> HeadsParameters:
        """Return the choices that an address says."""
        choices = asdict(state)
        return self.values({"prompt": self.prompt_of(state), **choices}, view=state.view, hide_first=state.hide_first)

    def prompt_of(self, state: HeadsState) -> dict[str, Any]:
        """Return the text of an address, and its checkpoint."""
        checkpoint = state.checkpoint or self.core.catalog.default()
        return {"checkpoint": checkpoint, "text": self.core.inference.opening(checkpoint, state.text)}

    def score(self, asked: Mapping[str, Any]) -> WhyParameters:
        """Return the score that is asked for, {prompt, head, cell, position, direction, against}; where no entry is
        locked, of the key that the locked token, or the last one, attends to most; with the direction "from", of the
        query that attends to it most."""
        result, sentence = ask(self.core, asked["prompt"]), ""
        layer, number = whole_numbers("a head", *(asked["head"] or (0, 0)))
        head_maps.check_head(result, layer, number)
        cell, position = asked["cell"], asked["position"]
        if cell is None:
            if position is not None and not 0 <= whole_numbers("a position", position)[0] < result.patterns.n_pos:
                raise RequestError(f"Position {position} isn't in this text; choose one of the tokens.")
            pattern = result.patterns.pattern[layer, number]
            if position is not None and asked["direction"] == "from":
                cell = (int(pattern[:, position].argmax()), position)
                sentence = "No entry is locked: this is the query that attends most to the locked token."
            else:
                query = result.patterns.n_pos - 1 if position is None else position
                cell = (query, int(pattern[query].argmax()))
                token = "last" if position is None else "locked"
                sentence = f"No entry is locked: this is the key that the {token} token attends to most."
        query, key = whole_numbers("an entry", *cell)
        params = WhyParameters(
            checkpoint=result.checkpoint, text=asked["prompt"].get("text") or "", head=(layer, number), query=query,
            key=key, against="plain",
        )  # fmt: skip
        against, reason = self._contrast(params, asked["against"])
        off = there(asked.get("off"), (result.patterns.n_layers, result.patterns.n_heads))
        if off:
            sentence += f" This explains the full model, without the ablation of {', '.join(map(dotted, off))}."
        return replace(params, against=against, reason=reason, said=sentence.strip())

    def _contrast(self, params: WhyParameters, asked: Any) -> tuple[int | str, str]:
        """Return what a score is compared with, and the reason in a sentence; by default what is sensible for it."""
        from aotlens.paths.score.expansion import default_contrast

        if asked not in (None, "mean", "plain"):
            whole_numbers("the key that a score is compared with", asked)
        try:
            score = self.workshop.result(SCORE, params)
        except RequestError as error:  # a hidden key, a pattern without scores
            message = str(error).removeprefix("score: ")
            raise RequestError(f"This attention can't be explained: {message}") from error
        against, reason = default_contrast(score, replace(params, against=asked).compared)
        return "plain" if against is None else against, reason

    def score_of_address(self, state: HeadsState) -> WhyParameters:
        """Return the score that an address asks for."""
        return self.score({"prompt": self.prompt_of(state), **asdict(state)})


def whole_numbers(what: str, *values: Any) -> tuple[int, ...]:
    """Read what a browser sends as whole numbers. Raises RequestError for anything else."""
    if any(isinstance(value, bool) or not isinstance(value, int) for value in values):
        raise RequestError(f"Expected whole numbers for {what}, got {', '.join(map(repr, values))}.")
    return values
