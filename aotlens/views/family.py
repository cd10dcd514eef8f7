"""Views of one kind of question, with the parameters that they share: what a page, a command and a sweep ask with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter as Argument
from inspect import Signature
from typing import TYPE_CHECKING, Any, TypeAlias

from aotlens.views.calls import Workshop
from aotlens.views.view import Parameter, Values, View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo


@dataclass(frozen=True)
class Choice:
    """One of a few: what it is called, and the words for each value; the first is taken unless told."""

    label: str
    options: Mapping[str, str]

    @property
    def first(self) -> str:
        """The value that is taken unless told."""
        return next(iter(self.options))

    def checked(self, name: str, value: Any) -> str:
        """Return the value, checked. Raises ValueError, with the parameter's name, for what is none of them."""
        if not isinstance(value, str) or value not in self.options:
            raise ValueError(f"{name}: expected one of {', '.join(self.options)}, got {value!r}.")
        return value


@dataclass(frozen=True)
class TextParameter:
    """A text that is written: what it is called, the first one, and how long it may be."""

    label: str
    first: str
    most: int = 600
    """The most characters that it may have."""
    lines: int = 1
    """The number of lines of the box that it is written in."""
    blank: str = ""
    """The meaning of none, where there may be none."""

    def checked(self, name: str, value: Any) -> str:
        """Return the value, checked. Raises ValueError, with the parameter's name, for no text, or one that is too
        long."""
        if not isinstance(value, str) or not (value or self.blank):
            raise ValueError(f"{name}: expected a text, got {value!r:.40}.")
        if len(value) > self.most:
            raise ValueError(f"{name}: expected at most {self.most} characters, got {len(value)}; shorten it.")
        return value


AnyParameter: TypeAlias = Parameter | Choice | TextParameter


@dataclass(frozen=True, kw_only=True)
class Family:
    """Views with the same parameters. What `chosen` gives is what each of them takes as `values`."""

    name: str
    """The name by which commands and sweeps call it: `aotlens view NAME`."""
    about: str
    """The question, in a sentence."""
    views: Sequence[View]
    values: Callable[..., Values]
    """`values(*infos, **parameters)` of the checkpoints' cards, every parameter given."""
    parameters: Mapping[str, AnyParameter] = field(default_factory=dict)
    reads: Callable[[CheckpointInfo], bool] | None = None
    """Whether it is of such a checkpoint; None where it is of none."""
    none: str = ""
    """The advice where there is no such checkpoint."""
    several: bool = False
    """Whether it is of several checkpoints, the first of which is inspected."""
    most: int = 64
    """The largest number of these."""

    def view(self, name: str) -> View:
        """Return the view of that name. Raises ValueError where there is none."""
        for view in self.views:
            if view.name == name:
                return view
        raise ValueError(
            f"{name!r}: expected a view of {self.name}, one of {', '.join(each.name for each in self.views)}"
        )

    def chosen(self, *checkpoints: str | CheckpointInfo, **parameters: Any) -> Values:
        """Return a choice for these checkpoints, by name or by their cards; parameters that are not given are as at
        first.

        Raises ValueError for checkpoints that it cannot be of, for a parameter that it has not, and for values out of
        bounds.
        """
        infos = [self._info(each) for each in checkpoints]
        least, most = (0, 0) if self.reads is None else (1, self.most if self.several else 1)
        if not least <= len(infos) <= most:
            wanted = ("no checkpoint", "a checkpoint")[least] if least == most else f"one to {most} checkpoints"
            raise ValueError(f"{self.name}: expected {wanted}, got {len(infos)}.")
        for info in infos:
            if self.reads is not None and not self.reads(info):
                raise ValueError(f"{self.name}: {info.name} is a checkpoint of another kind.")
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            known = ", ".join(self.parameters)
            raise ValueError(f"{self.name}: there is no parameter {', '.join(unknown)}; there are {known}.")
        given = {
            name: each.checked(name, parameters.get(name, each.first)) for name, each in self.parameters.items()
        }  # fmt: skip
        return self.values(*infos, **given)

    def analysis(self, view: View) -> Callable[..., Any]:
        """Return `analysis(model, **parameters)`: the view's result of a model in memory, as a sweep calls it.

        Raises ValueError where the view is of no checkpoint, and for a model that is not fit for it."""
        if self.reads is None:
            raise ValueError(f"{self.name}: is of no checkpoint, so there is nothing to do with a model.")

        def analysis(model: Any, **parameters: Any) -> Any:
            card = getattr(model, "card", None) or CheckpointInfo(name="model")
            return view.result(*self.of_model(model, replace(card, name="model"), **parameters))

        from aotlens.checkpoints import CheckpointInfo

        keyword = Argument.KEYWORD_ONLY
        given = [Argument(name, keyword, default=each.first) for name, each in self.parameters.items()]
        model = Argument("model", Argument.POSITIONAL_OR_KEYWORD)
        analysis.__signature__ = Signature([model, *given])  # type: ignore[attr-defined]
        return analysis

    def of_model(self, model: Any, card: CheckpointInfo, **parameters: Any) -> tuple[Values, Workshop]:
        """Return a choice for a model in memory, and where its calls are run. Raises ValueError as `chosen`."""
        from aotlens.models import require_ours

        require_ours(model, "Family.of_model")
        info = replace(card, model=model.cfg.to_dict(), **_of_tokenizer(model, card))
        return self.chosen(info, **parameters), _Given(model)

    @staticmethod
    def _info(checkpoint: str | CheckpointInfo) -> CheckpointInfo:
        from aotlens.checkpoints import find_checkpoint

        # Called as it was asked for, a path included: by that it is loaded.
        return replace(find_checkpoint(checkpoint), name=checkpoint) if isinstance(checkpoint, str) else checkpoint


def first_token(info: CheckpointInfo) -> int | None:
    """Return the token that texts of random tokens begin with, as `aotlens.data.windows.probe_start` has it: 0 where
    there is no tokenizer."""
    return 0 if info.tokenizer_sha256 is None and info.start_token is None else info.start_token


class _Given(Workshop):
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
