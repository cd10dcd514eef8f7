"""Prompts of in-context regression through models, remembered: what the page's views and maps are of. No Dash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotlens.views.regression import N_SHOWN, PARAMETERS, Chosen, sizes
from app.core import Core
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.core.workshop import AppWorkshop
from app.pages.regression.address import ADDRESS, RegressionState, names

if TYPE_CHECKING:
    from aotlens.data import RegressionPrompts

NO_MODEL = (
    "No checkpoint here regresses in context. Train one (aotlens train regression-5d-mhsa), or start the app with "
    "--checkpoints DIR, a folder that has one."
)


class Regressions:
    """The requests as they can be met, and prompts through models. Raises RequestError for what can be put right."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.workshop = AppWorkshop(core, core.settings.n_regressions)

    def by_width(self) -> dict[int, tuple[str, ...]]:
        """Return the models of regression by the width of the inputs that they read."""
        known = names(self.core)
        return {d: tuple(name for name in known if known[name] == d) for d in sorted(set(known.values()))}

    def chosen(self, state: RegressionState, d: int | None = None) -> Chosen:
        """Return what a state asks for: models of the width `d`, or of those that are named, else the narrowest; all of
        them where none is named.

        Of the state, `dims` and `nonzero` are None where the inputs are as wide as the models read, or all weights
        count.
        """
        by_width, known = self.by_width(), names(self.core)
        if not by_width:
            raise RequestError(NO_MODEL)
        named = next((known[name] for name in (state.checkpoint, *state.models) if name in known), next(iter(by_width)))
        d = d if d in by_width else named
        models = tuple(name for name in state.models if name in by_width[d]) or by_width[d]
        checkpoint = state.checkpoint if state.checkpoint in by_width[d] else models[0]
        dims = _below(state.dims, d)
        contexts = {name: self.core.catalog.config(name)["n_ctx"] for name in {*models, checkpoint}}
        return Chosen(
            models=models, checkpoint=str(checkpoint), d=d, dims=dims, nonzero=_below(state.nonzero, dims or d),
            points={name: (n_ctx + 1) // 2 for name, n_ctx in contexts.items()}, how=state.how,
            log=state.axis == "log", **sizes(*(self.core.catalog.info(name) for name in (str(checkpoint), *models))),
            **{name: getattr(state, name) for name in PARAMETERS},
        )  # fmt: skip

    def values(self, shown: Mapping[str, Any], **also: Any) -> Chosen:
        """Return what the page says that it shows, by fields of its address."""
        return self.chosen(ADDRESS.state({**shown, **also}))

    def prompts(self, chosen: Chosen) -> RegressionPrompts:
        """Return the first prompts of the task, which can be looked at one by one."""
        prompts: RegressionPrompts = chosen.prompts(N_SHOWN).run()
        return prompts

    def prompt(self, chosen: Chosen, number: int) -> PromptResult:
        """Return one of the first prompts through the checkpoint: its positions are called x1, y1, x2, …"""
        from aotlens.heads.patterns import patterns_and_logits

        number = min(max(number, 0), N_SHOWN - 1)
        tokens = chosen.prompts(N_SHOWN).part("tokens")
        loaded = self.core.catalog.load(chosen.checkpoint)
        named = f"{loaded.key}:{tokens.source}:{number}"

        def run() -> PromptResult:
            ids = tokens.run()[number]
            with loaded.exclusive:
                patterns, estimates = patterns_and_logits(loaded.model, ids)
            return PromptResult(
                key=hashlib.sha256(named.encode()).hexdigest()[:24], checkpoint=chosen.checkpoint,
                patterns=replace(patterns, str_tokens=position_names(len(ids))), logits=estimates,
            )  # fmt: skip

        result: PromptResult = self.workshop.keep(("prompt", named), run)
        return result


def position_names(n_pos: int) -> tuple[str, ...]:
    """Name x1, y1, x2, y2, …: what stands at each position of a prompt."""
    return tuple(f"{'xy'[position % 2]}{position // 2 + 1}" for position in range(n_pos))


def _below(value: int | None, most: int) -> int | None:
    """A slider's whole number; None at its upper end, or where there is none."""
    return value if value is not None and 1 <= value < most else None
