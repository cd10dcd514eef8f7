"""Continuations of a text, with and without the heads that are switched off, token by token in the background."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.core import Core
from app.core.cache import Cache
from app.core.inference import Heads, PromptResult
from app.core.jobs import Job, Jobs, Report

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.models import AttentionOnlyTransformer

_KEPT = 32


@dataclass(frozen=True, kw_only=True)
class Draws:
    """The settings by which the next tokens are drawn."""

    new: int
    temperature: float
    top_k: int
    seed: int
    stop: str | None


@dataclass(kw_only=True)
class Continued:
    """A text and what came after it so far; only the job's thread writes the tokens."""

    of: PromptResult
    """The view that it belongs to: checkpoint, prompt, heads that are off."""
    draws: Draws
    runs: list[list[int]] = field(default_factory=list)
    """Ids of the whole sequence so far: of the full model, and then of the model without the heads."""
    fills: bool = False
    """Whether masks of the text were filled: this model sees both sides."""

    @property
    def prompt(self) -> list[int]:
        return [int(token) for token in self.of.patterns.tokens]


class Continuations:
    """Each continuation is made once, in the background, and kept for a while."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.jobs = Jobs(kept=_KEPT, memory=core.memory, seconds=core.settings.job_seconds)
        self._made: Cache[str, Continued] = core.memory.cache(_KEPT)

    def start(self, result: PromptResult, draws: Draws, session: str) -> Job:
        """Continue the prompt of `result` with its heads and, where some are off, without. ValueErrors end the job."""
        key = hashlib.sha256(f"{result.key}:{draws}".encode()).hexdigest()[:24]
        fills = self._core.catalog.load(result.checkpoint).model.sees_later_keys
        continued = self._made.get(key, lambda: Continued(of=result, draws=draws, fills=fills))
        label = "Filling the masks" if fills else "Continuing the text"
        return self.jobs.start(key, label, lambda report: self._run(continued, report), session=session)

    def so_far(self, job: Job) -> Continued | None:
        """Return what a job has made until now; None where it is forgotten."""
        return self._made.known(job.key)

    def text(self, continued: Continued, run: int) -> str:
        """Return the whole text of a run so far, as `aotlens.models.generate` and `fill` give it."""
        model, ids = self._core.catalog.load(continued.of.checkpoint).model, continued.runs[run]
        return str(model.to_string(ids[1:]))

    def pieces(self, continued: Continued, run: int) -> list[tuple[str, bool]]:
        """Return the text of a run so far in pieces, and of each whether it is new."""
        model = self._core.catalog.load(continued.of.checkpoint).model
        ids, prompt = continued.runs[run], continued.prompt
        pieces: list[tuple[list[int], bool]] = []
        for place, token in enumerate(ids[1:], start=1):
            is_new = place >= len(prompt) or prompt[place] != token
            if not pieces or pieces[-1][1] != is_new:
                pieces.append(([], is_new))
            pieces[-1][0].append(token)
        before: list[list[int]] = [[], *([part[-1]] for part, _ in pieces)]
        return [(str(model.to_string(part, last)), is_new) for (part, is_new), last in zip(pieces, before)]  # noqa: B905

    def _run(self, continued: Continued, report: Report) -> Continued:
        import torch

        from aotlens.heads.replacement import reference_length

        result, core = continued.of, self._core
        loaded = core.catalog.load(result.checkpoint)
        ways: list[Heads] = [()] if not result.off else [(), result.off]
        read = core.switches.text(result.checkpoint, result.how, result.corpus) if result.off else None
        prompt, draws = torch.from_numpy(result.patterns.tokens)[None].to(loaded.model.device), continued.draws
        length = reference_length(result.how, prompt.shape[1], 0 if continued.fills else draws.new)
        continued.runs = [continued.prompt for _ in ways]
        total = int((prompt == _mask_id(loaded.model)).sum()) if continued.fills else draws.new
        steps = [_steps(loaded.model, prompt, draws) for _ in ways]
        running = set(range(len(ways)))
        for done in range(total + 1):
            for run in sorted(running):
                with core.inference.switched(loaded, ways[run], result.how, read, length):
                    following = next(steps[run], None)
                if following is None:
                    running.discard(run)
                else:
                    continued.runs[run] = following[0].tolist()
            report(min(done + 1, total), total, "token by token")
            if not running:
                break
        return continued


def _steps(model: AttentionOnlyTransformer, prompt: Tensor, draws: Draws) -> Iterator[Tensor]:
    """The sequence after each token, of a model that is whole or not at that step."""
    from aotlens.models.generation import continued, filled

    drawn: dict[str, Any] = {"temperature": draws.temperature, "top_k": draws.top_k, "seed": draws.seed}
    if model.sees_later_keys:
        return filled(model, prompt, **drawn)
    return continued(model, prompt, draws.new, stop_token=draws.stop, **drawn)


def _mask_id(model: AttentionOnlyTransformer) -> int:
    return int(getattr(model.tokenizer, "mask_id", None) or -1)


def _whole(value: Any, otherwise: int, least: int, most: int) -> int:
    return min(max(int(value), least), most) if isinstance(value, int | float) else otherwise


def draws_of(new: Any, temperature: Any, top_k: Any, seed: Any, stop: Any) -> Draws:
    """Read the settings that boxes of a page hold, within bounds; an empty one has its first value."""
    warmth = float(temperature) if isinstance(temperature, int | float) else 0.8
    return Draws(
        new=_whole(new, 40, 1, 400), temperature=min(max(warmth, 0.0), 10.0),
        top_k=_whole(top_k, 40, 1, 100_000), seed=_whole(seed, 0, 0, 999_999),
        stop=str(stop) if stop else None,
    )  # fmt: skip
