"""Prompts of in-context regression through models, and what stands beside them: `aotlens`, remembered. No Dash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.core.switches import How
from app.pages.regression.address import N_SHOWN, PARAMETERS, RegressionState, names

if TYPE_CHECKING:
    from aotlens.data import RegressionPrompts, RegressionTask
    from aotlens.denoise.regression import LayerReadings, SupportScores
    from aotlens.evaluate import RegressionErrors
    from aotlens.heads import EachHead, MotifScores

T = TypeVar("T")
#: Prompts over which errors are averaged; on which layers are read off, and as many others that the probes are fitted
#: on; on which heads are left out and motifs are measured; of the support's scores.
N_PROMPTS, N_READ, N_HEADS, N_SUPPORT = 320, 200, 128, 256
NO_MODEL = (
    "No checkpoint here regresses in context. Train one (aotlens train regression-5d-mhsa), or start the app with "
    "--checkpoints DIR, a folder that has one."
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Models that read equally many numbers, the one that is looked into, and the task."""

    models: tuple[str, ...]
    checkpoint: str
    d: int
    dims: int | None
    nonzero: int | None
    noise: float
    scale: float
    mean: float
    skew: float
    seed: int

    @property
    def task(self) -> RegressionTask:
        """What the prompts are drawn from."""
        from aotlens.data import RegressionTask

        return RegressionTask(
            d=self.d, n_nonzero=self.nonzero, noise_std=self.noise, input_scale=self.scale, input_mean=self.mean,
            input_skew=self.skew, n_dims=self.dims,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """For the browser."""
        return {**asdict(self), "models": list(self.models)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Asked:
        """What `to_dict` made, whatever else is with it."""
        fields = {name: data[name] for name in cls.__dataclass_fields__}
        return cls(**{**fields, "models": tuple(data["models"])})


class Regressions:
    """The page's results, each made once and kept for a while. Raises RequestError for what can be put right."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._kept: Cache[tuple[Any, ...], Any] = core.memory.cache(core.settings.n_regressions)

    def by_width(self) -> dict[int, tuple[str, ...]]:
        """The models of regression by the width of the inputs that they read."""
        known = names(self.core)
        return {d: tuple(name for name in known if known[name] == d) for d in sorted(set(known.values()))}

    def asked(self, models: tuple[str, ...], checkpoint: str | None, d: int | None, **form: Any) -> Asked:
        """A choice, as it can be met: models of the width `d`, or of those that are named, else the narrowest; all of
        them where none is named.

        Of `form`, `dims` and `nonzero` are None where the inputs are as wide as the models read, or all weights count.
        """
        by_width = self.by_width()
        if not by_width:
            raise RequestError(NO_MODEL)
        known = names(self.core)
        named = next((known[name] for name in (checkpoint, *models) if name in known), next(iter(by_width)))
        d = d if d in by_width else named
        models = tuple(name for name in models if name in by_width[d]) or by_width[d]
        if checkpoint is None or checkpoint not in by_width[d]:
            checkpoint = models[0]
        within = {name: parameter.within(form.get(name)) for name, parameter in PARAMETERS.items()}
        dims = _below(form.get("dims"), d)
        nonzero = _below(form.get("nonzero"), dims or d)
        return Asked(models=models, checkpoint=checkpoint, d=d, dims=dims, nonzero=nonzero, **within)

    def asked_of(self, state: RegressionState) -> Asked:
        """What an address asks for."""
        form = {name: getattr(state, name) for name in ("dims", "nonzero", *PARAMETERS)}
        return self.asked(state.models, state.checkpoint, None, **form)

    # ── errors ──────────────────────────────────────────────────────────────────────────────────────────────

    def errors(self, asked: Asked) -> list[RegressionErrors]:
        """Of each model, then of each baseline, on the same prompts."""
        from aotlens.denoise.regression import baseline_errors, shown_baselines

        n_points = max(self.n_points(name) for name in asked.models)
        baselines = [
            self._get(
                ("baseline", name, asked.task, n_points, asked.seed),
                lambda name=name: baseline_errors(
                    name, asked.task, n_prompts=N_PROMPTS, n_points=n_points, seed=asked.seed
                ),
            )
            for name in shown_baselines(asked.task)
        ]  # fmt: skip
        return [*(self.error(asked, name) for name in asked.models), *baselines]

    def error(self, asked: Asked, name: str) -> RegressionErrors:
        """One model's."""
        from aotlens.evaluate import regression_errors

        return self._of_model(
            "errors", asked, name,
            lambda model: regression_errors(model, asked.task, n_prompts=N_PROMPTS, seed=asked.seed, name=name),
        )  # fmt: skip

    def n_points(self, name: str) -> int:
        """Points of the longest prompt that a model reads."""
        from aotlens.evaluate import points_of

        return points_of(self.core.catalog.load(name).model)

    # ── one model ───────────────────────────────────────────────────────────────────────────────────────────

    def readings(self, asked: Asked) -> LayerReadings:
        """The answer read off after each layer, beside algorithms."""
        from aotlens.denoise.regression import read_layers

        return self._of_model(
            "layers", asked, asked.checkpoint,
            lambda model: read_layers(model, asked.task, n_prompts=N_READ, seed=asked.seed),
        )  # fmt: skip

    def prompts(self, asked: Asked, n_prompts: int) -> RegressionPrompts:
        """The first prompts of the task, as long as the checkpoint reads them."""
        return asked.task.sample(n_prompts, self.n_points(asked.checkpoint), asked.seed)

    def prompt(self, asked: Asked, number: int) -> PromptResult:
        """One of the first prompts through the checkpoint: its positions are called x1, y1, x2, …"""
        from aotlens.heads.patterns import patterns_and_logits

        number = min(max(number, 0), N_SHOWN - 1)
        loaded = self.core.catalog.load(asked.checkpoint)
        named = f"{loaded.key}:{asked.task}:{asked.seed}:{number}"
        key = hashlib.sha256(named.encode()).hexdigest()[:24]

        def run(model: Any) -> PromptResult:
            tokens = self.prompts(asked, N_SHOWN).tokens[number]
            patterns, estimates = patterns_and_logits(model, tokens)
            patterns = replace(patterns, str_tokens=position_names(len(tokens)))
            return PromptResult(key=key, checkpoint=asked.checkpoint, patterns=patterns, logits=estimates)

        return self._of_model(f"prompt {number}", asked, asked.checkpoint, run)

    def without(self, asked: Asked, how: How) -> EachHead:
        """The squared error without each head alone."""
        from aotlens.heads import ablate_each

        prompts = self.prompts(asked, N_HEADS)
        return self._of_model(
            f"without {how}", asked, asked.checkpoint,
            lambda model: ablate_each(model, prompts.tokens, how=how, targets=prompts.targets, batch_size=64),
        )  # fmt: skip

    def motifs(self, asked: Asked) -> MotifScores:
        """Every head's mean attention to the motifs of prompts."""
        from aotlens.heads.prompts import attention_in_prompts

        prompts = self.prompts(asked, N_HEADS)
        return self._of_model(
            "motifs", asked, asked.checkpoint, lambda model: attention_in_prompts(model, prompts.tokens)
        )

    def support(self, asked: Asked) -> SupportScores:
        """Whether heads' scores go with the coordinates on which labels depend."""
        from aotlens.denoise.regression import support_scores

        if asked.nonzero is None:
            raise RequestError(
                "Labels depend on every coordinate here. Set Nonzero weights below the dimension to see whether a "
                "head's scores single out those that count."
            )
        return self._of_model(
            "support", asked, asked.checkpoint,
            lambda model: support_scores(model, asked.task, n_prompts=N_SUPPORT, seed=asked.seed),
        )  # fmt: skip

    def _of_model(self, what: str, asked: Asked, name: str, work: Callable[[Any], T]) -> T:
        """What `work` makes of a model that it has to itself."""
        loaded = self.core.catalog.load(name)

        def run() -> T:
            with loaded.exclusive:
                return work(loaded.model)

        return self._get((what, loaded.key, asked.task, asked.seed), run)

    def _get(self, key: tuple[Any, ...], work: Callable[[], T]) -> T:
        def said() -> T:
            try:
                return work()
            except ValueError as error:
                raise RequestError(str(error)) from error

        made: T = self._kept.get(key, said)
        return made


def position_names(n_pos: int) -> tuple[str, ...]:
    """x1, y1, x2, y2, …: what stands at each position of a prompt."""
    return tuple(f"{'xy'[position % 2]}{position // 2 + 1}" for position in range(n_pos))


def _below(value: Any, most: int) -> int | None:
    """A slider's whole number; None at its upper end, or where there is none."""
    return int(value) if isinstance(value, int | float) and 1 <= value < most else None
