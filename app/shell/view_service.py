"""The computing part of a page that is made of views: its checkpoints, its parameters and its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from aotlens.checkpoints import CheckpointInfo
from aotlens.views import Family, OfPrompt, OfResult, Values
from aotlens.views.kinds import CorpusParameter, ImagesParameter, OwnImagesParameter, Reading
from app.core import Core
from app.core.catalog import NO_CHECKPOINT
from app.core.errors import RequestError
from app.core.jobs import Jobs
from app.core.runs import RunWorkshop
from app.shell.fields import is_typed


class Views:
    """The computing part of the page: views' results, and the work that takes long."""

    def __init__(self, core: Core, family: Family) -> None:
        self.core, self.family = core, family
        self.workshop = RunWorkshop(core, max(2, len(family.views)) * core.settings.n_views)
        self.jobs = Jobs(core.settings.n_views, memory=core.memory, seconds=core.settings.job_seconds)

    def fitting(self) -> list[str]:
        """Return the checkpoints that the family accepts."""
        return fitting(self.core, self.family)

    def groups(self) -> dict[str, list[str]]:
        """Return the accepted checkpoints by what those that are compared must share (`Family.alike`)."""
        alike = self.family.alike
        if alike is None:
            return {}
        shared = {name: alike(self.core.catalog.info(name)) for name in self.fitting()}
        return {str(each): [name for name in shared if shared[name] == each] for each in sorted(set(shared.values()))}

    def selected(self, shown: Mapping[str, Any]) -> tuple[list[str], str | None]:
        """Return the checkpoints of a choice, and the inspected one; the first ones for those that it leaves out."""
        family, available = self.family, self.fitting()
        if family.reads is None:
            return [], None
        if not family.several:
            first = _first(self.core, available)
            return [name for name in [shown.get("checkpoint") or first] if name is not None], None
        if family.sides:
            named = [shown.get(f"{side}_model") for side in family.sides]
            first = named[0] or _first(self.core, available)
            return [name or first for name in named if name or first], None
        models, inspected = list(shown.get("models") or ()), shown.get("checkpoint")
        if family.alike is None:
            return models or first_several(self.core, available), None
        groups = list(self.groups().values())
        named = inspected or next(iter(models), None)
        group = next((each for each in groups if named in each), next(iter(groups), []))
        models = [name for name in models if name in group] or group
        return models, inspected if inspected in group else next(iter(models), None)

    def of_address(self, state: Any, *, made: bool = True) -> Values:
        """Return the parameters of an address, with the first checkpoints if it names none; `values`, or if not `made`
        `within_limits`. Raises RequestError as these."""
        choices = dataclasses.asdict(state)
        choices["models"] = self.selected(choices)[0]
        return self.values(choices) if made else self.within_limits(choices)

    def values(self, shown: Mapping[str, Any]) -> Values:
        """Return the parameters of a choice, within their limits, with what was made for them (`Family.made`). Raises
        RequestError as `within_limits`."""
        params = self.within_limits(shown)
        made = {fact: self.workshop.known(view, params) for fact, view in self.family.made.items()}
        return dataclasses.replace(params, **made) if made else params

    def within_limits(self, shown: Mapping[str, Any]) -> Values:
        """Return the parameters of a choice, within their limits. Raises RequestError for what the family refuses,
        and for a typed value beyond its limit, which its writer puts right."""
        family = self.family
        models, inspected = self.selected(shown)
        emptied = family.several and family.alike is None and not shown.get("models", True)
        if family.reads is not None and not family.optional and (emptied or not models):
            raise RequestError(family.none or NO_CHECKPOINT)
        if not all(isinstance(name, str) for name in [*models, inspected or ""]):
            raise RequestError("Expected the name of a checkpoint; choose one.")
        infos = [self.core.catalog.info(name) for name in models]
        compared = {} if inspected is None else {"inspected": self.core.catalog.info(inspected)}
        files = {"files": self.core.settings.distillations} if issubclass(family.schema, OfResult) else {}
        for info in (*infos, *compared.values()):
            if family.reads is not None and not family.reads(info):
                raise RequestError(f"{info.name} is a checkpoint of another kind; choose one of those in the list.")
        fields = {name: value for name, value in shown.items() if name in family.fields and value is not None}
        for name, parameter in family.fields.items():
            if isinstance(parameter, CorpusParameter) and (parameter.usual or name in fields):
                fields[name] = self._reading(fields.get(name), infos)
            elif isinstance(parameter, ImagesParameter):
                fields[name] = self.core.images.labelled(fields.get(name), infos[0])
            elif isinstance(parameter, OwnImagesParameter):
                fields[name] = [key for key in fields.get(name, ()) if self.core.images.own.known(key)]
        try:
            params = family.schema.of_infos(*infos, **family.typed(fields), **compared, **files)
            if isinstance(params, OfPrompt):
                n_tokens = self.core.inference.n_tokens(params.checkpoint, params.text)  # type: ignore[attr-defined]
                params = dataclasses.replace(params, n_tokens=n_tokens)
            elif family.sides:
                texts = [(params.info(side).name, params.text_of(side)) for side in family.sides]
                counts = tuple(self.core.inference.n_tokens(*text) for text in texts)
                params = dataclasses.replace(params, n_tokens=counts)
            params.require_limits("", *(name for name, each in family.fields.items() if is_typed(each)))
        except ValueError as error:
            raise RequestError(str(error)) from error
        fitted: Values = params.fitted()[0]
        return fitted

    def _reading(self, text: str | None, infos: Sequence[CheckpointInfo]) -> Reading | None:
        """A text, by default the usual one, as the first of these checkpoints reads it."""
        corpora = self.core.corpora
        name = corpora.available(None, infos[0]) if infos and text is None else text
        return corpora.reading(name, infos[0]) if infos and name is not None else None


def fitting(core: Core, family: Family) -> list[str]:
    """Return the checkpoints here that a family accepts."""
    reads = family.reads
    return [] if reads is None else [i.name for i in core.catalog.list() if i.problem is None and reads(i)]


def first_of(core: Core, family: Family, available: list[str]) -> str | None:
    return next(iter(available), None) if family.alike is not None else _first(core, available)


def _first(core: Core, available: list[str]) -> str | None:
    preferred = core.catalog.default()
    return preferred if preferred in available else next(iter(available), None)


def first_several(core: Core, available: list[str]) -> list[str]:
    """Return the first checkpoint, and up to two with its tokenizer and its number of layers that are not of the same
    training, as snapshots are."""
    first = _first(core, available)
    if first is None:
        return []
    own = core.catalog.info(first)

    def is_comparable(other: CheckpointInfo) -> bool:
        shapes = [(info.tokenizer_sha256, info.model["n_layers"]) for info in (own, other)]
        trainings = [(info.seed, info.model, info.recipe.get("stages")) for info in (own, other)]
        return shapes[0] == shapes[1] and (not other.recipe or trainings[0] != trainings[1])

    return [first, *(name for name in available if name != first and is_comparable(core.catalog.info(name)))][:3]
