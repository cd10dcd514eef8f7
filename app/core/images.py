"""Labelled images to look at: the digits that are always there, and what whoever started the server named.

A browser chooses among names; no name of its own ever becomes a path, and nothing is fetched that the command line did
not name.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from aotlens.views.kinds import LabelledImages
from app.core.cache import Cache, Memory
from app.core.errors import RequestError
from app.core.own_images import OwnImages
from app.core.settings import Settings

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.data.images import ImageData

#: Kinds of names that `open_images` reads, each with an argument.
_KINDS = ("npz", "folder", "openml", "hf")
#: The data sets that are always there.
_ALWAYS = ("digits", "fashion-sample")
#: Data sets, at the sizes of models, that are kept in memory.
_KEPT = 4


class Images:
    """The server's data sets by name, and a person's own images by key."""

    def __init__(self, settings: Settings, memory: Memory) -> None:
        """Raises ValueError for a name that `open_images` doesn't know and for a path where nothing is."""
        self.own = OwnImages(settings)
        self._specs: dict[str, str] = {name: name for name in _ALWAYS}
        self._opened: Cache[tuple[str, int], ImageData] = memory.cache(_KEPT)
        for spec in settings.images:
            _check(spec)
            self._specs[self._label(spec)] = spec

    def _label(self, spec: str) -> str:
        """The last part of a path: where it lies is nobody's business at the browser."""
        kind, _, argument = spec.partition(":")
        name = PurePath(argument).name if kind in ("npz", "folder") else argument
        label, number = name, 2
        while label in self._specs:
            label, number = f"{name} ({number})", number + 1
        return label

    @property
    def names(self) -> list[str]:
        """Return the names that may be chosen."""
        return list(self._specs)

    def spec(self, name: str) -> str:
        """Return what `open_images` takes, in Python: of a path its last part, which a browser may know."""
        kind, colon, argument = self._specs[name].partition(":")
        return f"{kind}{colon}{PurePath(argument).name if kind in ('npz', 'folder') else argument}"

    def fitting(self, trained_on: str, classes: tuple[str, ...], size: int) -> str:
        """Return the data set of a model: what it says that it was trained on, if that is at hand; else the first that
        the server was given; else what is always there and has its classes; else the digits."""
        named = [name for name in self._specs if self.is_called(name, trained_on)]
        alike = (name for name in _ALWAYS if not named and not self.given and self.open(name, size).classes == classes)
        return next(iter([*named, *self.given]), next(alike, _ALWAYS[0]))

    def labelled(self, name: str | None, info: CheckpointInfo) -> LabelledImages:
        """Return images for a model, by name; by default those that fit it. Raises RequestError if they can't be read.

        Their classes have the model's names if it was trained on them, and if they only number as many.
        """
        processor, size = info.image_processor or {}, int(info.model["image_size"])
        theirs, trained_on = tuple(processor.get("classes", ())), processor.get("data", "")
        if name not in self._specs:
            name = self.fitting(trained_on, theirs, size)
        opened = self.open(name, size)
        own, seen = opened.classes, self.is_called(name, trained_on)
        numbered = name in self.given and own == tuple(map(str, range(len(own))))
        same = (seen or numbered) and len(own) == len(theirs)
        return LabelledImages(
            name=name, spec=self.spec(name), stamp=self.names.index(name) + 1, classes=theirs if same else own,
            counts=tuple(opened.test.labels.bincount(minlength=len(own)).tolist()),
            has_model_classes=same or own == theirs, numbered=same and own != theirs and not seen,
        )  # fmt: skip

    def opened(self, stamp: int, size: int) -> ImageData:
        """Return the data set of a `labelled`, by the stamp of its call."""
        return self.open(self.names[stamp - 1], size)

    @property
    def given(self) -> list[str]:
        """Return the data sets that the server was given, beside what is always there."""
        return list(self._specs)[len(_ALWAYS) :]

    def is_called(self, name: str, trained_on: str) -> bool:
        """Return whether a data set is what a model says that it was trained on."""
        return trained_on in (name, self._specs[name])

    def open(self, name: str, size: int) -> ImageData:
        """Return a data set, its images scaled to squares of `size` pixels. Raises RequestError where it can't be
        read."""
        from aotlens.data.images import open_images

        if name not in self._specs:
            raise RequestError(f"No images are called {name!r} here. There are: {', '.join(self._specs)}.")
        try:
            return self._opened.get((name, size), lambda: open_images(self._specs[name], size=size))
        except ValueError as error:
            raise RequestError(f"The images {name} can't be opened. {error}") from error


def _check(spec: str) -> None:
    kind, _, argument = spec.partition(":")
    if kind not in _KINDS or not argument:
        expected = "'npz:PATH', 'folder:PATH', 'openml:NAME' or 'hf:NAME[:config[:field]]'"
        raise ValueError(f"{spec}: expected {expected}; the digits are there without being named.")
    if kind in ("npz", "folder"):
        path = Path(argument).expanduser()
        if not (path.is_file() if kind == "npz" else path.is_dir()):
            raise ValueError(f"{spec}: there is no such {'file' if kind == 'npz' else 'folder'}. Check the path.")
