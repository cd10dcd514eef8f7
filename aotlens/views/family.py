"""Views of one kind of question, with the parameters that they share: what a page, a command and a sweep ask with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from inspect import Parameter as Argument
from inspect import Signature
from typing import TYPE_CHECKING, Any

from aotlens.views.calls import Workshop
from aotlens.views.kinds import Parameter
from aotlens.views.parameters import OfCheckpoints, OfNone, declared
from aotlens.views.view import Values, View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo


@dataclass(frozen=True)
class Family:
    """Views with the same parameters."""

    name: str
    """The name by which commands and sweeps call it: `aotlens view NAME`."""
    about: str
    """The question, in a sentence."""
    views: Sequence[View]
    schema: type[OfNone]
    """The dataclass of its parameters. An instance of it is what each view takes as `values`."""
    _: KW_ONLY
    title: str = ""
    """The title of a page of all its views; empty if the app has no page of it, or arranges one (`app.pages`)."""
    reads: Callable[[CheckpointInfo], bool] | None = None
    """Whether the family accepts a checkpoint; None if it takes no checkpoint."""
    optional: bool = False
    """Whether some of its views take no checkpoint: the family can do without one."""
    none: str = ""
    """The advice if no checkpoint is accepted."""
    most: int = 64
    """The largest number of checkpoints, if it takes several."""
    sides: tuple[str, ...] = ()
    """The names of the sides, if it takes one checkpoint for each: the last ones default to the first. A page has a
    choice of a checkpoint for each, SIDE_model."""
    alike: Callable[[CheckpointInfo], int] | None = None
    """The number that checkpoints must share to be compared, as the width of their inputs; None for no such condition.
    A page then has a choice of that number, and of the inspected checkpoint."""
    alike_words: tuple[str, str] = ("", "{}")
    """The label of that choice, and the words for each number."""
    made: Mapping[str, View] = field(default_factory=dict)
    """Flags among the parameters, by name, that a page sets once the result of a view exists."""

    @property
    def several(self) -> bool:
        """Whether it takes several checkpoints, one of which is inspected: the first by default."""
        return issubclass(self.schema, OfCheckpoints)

    @cached_property
    def fields(self) -> dict[str, Parameter]:
        """All parameters by name, which a page has controls for."""
        return declared(self.schema)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters that commands and sweeps set, too."""
        return declared(self.schema, page_only=False)

    def view(self, name: str) -> View:
        """Return the view of that name. Raises ValueError for an unknown one."""
        for view in self.views:
            if view.name == name:
                return view
        raise ValueError(
            f"{name!r}: expected a view of {self.name}, one of {', '.join(view.name for view in self.views)}"
        )

    def parse(self, *checkpoints: str | CheckpointInfo, **parameters: Any) -> Values:
        """Return the parameters for these checkpoints, by name or by their cards; with defaults for those left out.

        Raises ValueError for checkpoints that the family does not accept, for an unknown parameter, and for values out
        of bounds or beyond a limit.
        """
        infos = [self._info(checkpoint) for checkpoint in checkpoints]
        least, most = (0, 0) if self.reads is None else (int(not self.optional), self.most if self.several else 1)
        if not least <= len(infos) <= most:
            wanted = ("no checkpoint", "a checkpoint")[least] if least == most else f"{least} to {most} checkpoints"
            raise ValueError(f"{self.name}: expected {wanted}, got {len(infos)}.")
        for info in infos:
            if self.reads is not None and not self.reads(info):
                raise ValueError(f"{self.name}: {info.name} is a checkpoint of another kind.")
        unknown = sorted(set(parameters) - set(self.fields))
        if unknown:
            known = ", ".join(self.fields)
            raise ValueError(f"{self.name}: there is no parameter {', '.join(unknown)}; there are {known}.")
        # None for a parameter whose default is None is left out: its field may have the type of what replaces None.
        default = {name for name, field in self.fields.items() if field.first is None}
        typed = self.typed(parameters).items()
        values = {name: value for name, value in typed if value is not None or name not in default}
        return self.schema.of_infos(*infos, **values).require_limits()

    def typed(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of these parameters with their types. Raises ValueError for an invalid one."""
        return {name: self.fields[name].parse(name, value) for name, value in parameters.items()}

    def analysis(self, view: View) -> Callable[..., Any]:
        """Return `analysis(model, **parameters)`: the view's result of a model in memory, as a sweep calls it.

        Raises ValueError if the view takes no model, or not this one."""
        if self.reads is None:
            raise ValueError(f"{self.name}: takes no model.")

        def analysis(model: Any, **parameters: Any) -> Any:
            card = getattr(model, "card", None) or CheckpointInfo(name="model")
            return view.result(*self.of_model(model, replace(card, name="model"), **parameters))

        from aotlens.checkpoints import CheckpointInfo

        keyword = Argument.KEYWORD_ONLY
        arguments = [Argument(name, keyword, default=parameter.first) for name, parameter in self.parameters.items()]
        model = Argument("model", Argument.POSITIONAL_OR_KEYWORD)
        analysis.__signature__ = Signature([model, *arguments])  # type: ignore[attr-defined]
        return analysis

    def of_model(self, model: Any, card: CheckpointInfo, **parameters: Any) -> tuple[Values, Workshop]:
        """Return the parameters for a model in memory, and where its calls are run. Raises ValueError as `parse`."""
        from aotlens.models import require_ours

        require_ours(model, "Family.of_model")
        has_counts = getattr(model, "unigram_counts", None) is not None
        info = replace(card, model=model.cfg.to_dict(), has_counts=has_counts, **_of_tokenizer(model, card))
        return self.parse(info, **parameters), _InMemory(model)

    @staticmethod
    def _info(checkpoint: str | CheckpointInfo) -> CheckpointInfo:
        from aotlens.checkpoints import find_checkpoint

        # Its name is what the user wrote, a path included: by that it is loaded.
        return replace(find_checkpoint(checkpoint), name=checkpoint) if isinstance(checkpoint, str) else checkpoint


def reads_tokens(info: CheckpointInfo) -> bool:
    """Whether the model reads tokens."""
    return info.model.get("read_in", "tokens") == "tokens"


def reads_text(info: CheckpointInfo) -> bool:
    """Whether the model reads and writes tokens."""
    return (info.model.get("read_in", "tokens"), info.model.get("read_out", "tokens")) == ("tokens", "tokens")


def is_causal(info: CheckpointInfo) -> bool:
    """Whether the model reads and writes tokens, and attends to earlier ones only."""
    return reads_text(info) and bool(info.model.get("causal", True))


class _InMemory(Workshop):
    """The runner of calls with one model that is there."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    def load(self, checkpoint: str) -> Any:
        """The model, whatever it is called."""
        return self._model


def _of_tokenizer(model: Any, card: CheckpointInfo) -> dict[str, Any]:
    """Return a card's facts about the tokenizer, of a model that may have none: its hash, and what texts begin with."""
    from aotlens.data.windows import start_id

    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None or card.tokenizer_sha256 is not None:
        return {}
    return {"tokenizer_sha256": "", "start_token": start_id(tokenizer)}
