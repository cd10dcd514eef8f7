"""Text that rows are held against: corpora that whoever started the server named, and a person's own texts.

A browser chooses among names and keys; no name of its own ever becomes a path.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from aotlens.views import Call, make
from aotlens.views.calls import stamp_of
from aotlens.views.kinds import Reading
from app.core.errors import RequestError
from app.core.own_texts import OwnTexts, is_key, key_of, plain
from app.core.settings import TEXTS, Settings

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.data import Corpus

#: The name of a pasted text among corpora.
PASTED = "pasted text"
_MAX_PASTED = 8
_FOLDER = "aotlens.checkpoints.user_folder"


@dataclass(frozen=True, kw_only=True, eq=False)
class Text:
    """A text to read."""

    key: str
    label: str
    about: str
    """The part of it that is read, in words."""
    corpus: Corpus | None
    documents: tuple[str, ...] | None
    """The documents of the corpus that are read; None: all."""
    pasted: str = ""


class Corpora:
    """The server's corpora, opened by name, and the last pasted texts."""

    def __init__(self, settings: Settings) -> None:
        """Raises ValueError for a corpus that isn't there, or that isn't on this machine."""
        self._settings = settings
        self.own = OwnTexts(settings)
        """Texts that were uploaded, or pasted and used."""
        self._corpora: dict[str, Corpus | None] = {}
        """The corpora; None for one that is opened when first asked for, since the first takes seconds of imports."""
        self._pasted: OrderedDict[str, str] = OrderedDict()
        self._readings: dict[int, tuple[str, CheckpointInfo]] = {}
        for spec in settings.corpora:
            self._corpora[self._label(spec)] = None if spec in TEXTS else self._open(spec)

    @staticmethod
    def _open(spec: str) -> Corpus:
        from aotlens.data import open_corpus

        if spec not in TEXTS and not spec.startswith(("file:", "dir:")):
            raise ValueError(f"{spec}: expected 'novels', 'stdlib', 'file:PATH' or 'dir:PATH'.")
        corpus = open_corpus(spec)
        if spec not in TEXTS:
            corpus.spec = PurePath(spec.partition(":")[2]).name
        return corpus

    def _corpus(self, name: str) -> Corpus | None:
        if name in self._corpora and self._corpora[name] is None:
            self._corpora[name] = self._open(self.spec(name))
        return self._corpora.get(name)

    def spec(self, name: str | None) -> str:
        """Return the name that a corpus of the server's was given at the start; empty for another text."""
        return dict(zip(self._corpora, self._settings.corpora, strict=True)).get(name or "", "")

    def _label(self, spec: str) -> str:
        """The last part of a path: where it lies is nobody's business at the browser."""
        name = TEXTS.get(spec) or PurePath(spec.partition(":")[2]).name or spec
        label, number = name, 2
        while label in self._corpora or label == PASTED:
            label, number = f"{name} ({number})", number + 1
        return label

    @property
    def names(self) -> list[str]:
        """The names of the corpora, besides pasting."""
        return list(self._corpora)

    def choices(self) -> list[dict[str, str]]:
        """List the texts to choose from, for a menu: the server's corpora by name, a person's own texts by key."""
        named = [{"value": name, "label": name} for name in self.names]
        return [*named, *({"value": each.key, "label": f"{each.name} (yours)"} for each in self.own.list())]

    def available(self, name: str | None, info: CheckpointInfo | None = None) -> str | None:
        """Return the name (or key) if the text exists, else the first corpus with documents held out from the model's
        training, else the first; None without corpora."""
        if name in self._corpora or self.own.get(name) is not None:
            return name
        fitting = (each for each in self._corpora if info is not None and self._held_out(each, info))
        return next(fitting, next(iter(self._corpora), None))

    def _held_out(self, name: str, info: CheckpointInfo) -> tuple[str, ...]:
        corpus = self._corpus(name)
        return () if corpus is None else info.held_out(corpus.names())

    def text(self, name: str | None, info: CheckpointInfo) -> Text:
        """Return a corpus for a model: of its own training corpus only what was held out. A key gives the text it is
        of."""
        if is_key(name):
            return self._own(str(name))
        corpus = self._corpus(name or "")
        if name is None or corpus is None:
            known = ", ".join(self._corpora) or "none"
            raise RequestError(f"No text is called {name!r} here. There are: {known}. Choose one, or paste a text.")
        names = corpus.names()
        documents = info.held_out(names)
        if documents:
            return Text(
                key=f"{name}:held out",
                label=name,
                about=f"{_count(len(documents), 'document')} of {len(names)} in {name}, held out when {info.name} was "
                "trained",
                corpus=corpus,
                documents=documents,
            )
        return Text(
            key=name,
            label=name,
            about=f"{_count(len(names), 'document')} in {name}; {info.name} may have been trained on them",
            corpus=corpus,
            documents=None,
        )

    def opening(self, name: str) -> Call:
        """Return the call that opens a text, for Python.

        Of a path, it has the last part only, which a browser may know; a text of somebody's own is in the local folder.
        """
        if is_key(name):
            return make("aotlens.data.open_corpus", f"file:{name}.txt", root=make(_FOLDER, "texts"))
        kind, colon, path = self.spec(name).partition(":")
        return make("aotlens.data.open_corpus", f"{kind}{colon}{PurePath(path).name}")

    def reading(self, name: str, info: CheckpointInfo) -> Reading:
        """Return a text as a parameter of a view, whose call `opened` answers. Raises RequestError for one that does
        not exist."""
        text = self.text(name, info)
        is_local = self.spec(name).startswith(("file:", "dir:"))  # which may be another one tomorrow
        written = text.corpus.written() if is_local and text.corpus is not None else ()
        stamp = stamp_of(text.key, *written)
        self._readings[stamp] = name, info
        call = replace(self.opening(name), kept=True).stamped(stamp)
        return Reading(name=name, text=call, about=text.about, held_out=text.documents is not None)

    def name_of(self, stamp: int) -> str:
        """Return the name of the text of a `reading` by the stamp of its call."""
        return self._readings[stamp][0]

    def opened(self, stamp: int) -> Corpus | str:
        """Return the text of a `reading` by the stamp of its call, as the library reads it."""
        text = self.text(*self._readings[stamp])
        return text.pasted if text.corpus is None else text.corpus

    def keep(self, text: str) -> str:
        """Keep a pasted text under the local folder; its key. Raises RequestError as `paste`."""
        key = self.paste(text)
        self.keep_pasted(key)
        return key

    def paste(self, text: str) -> str:
        """Keep a text for a while; its key. Raises RequestError for one that is empty or too long."""
        most = self._settings.max_pasted
        if not text.strip():
            raise RequestError("There is no text to check against: paste some, or choose a corpus.")
        if len(text) > most:
            raise RequestError(
                f"This text has {len(text):,} characters, and at most {most:,} are taken here. Nothing was cut: "
                "shorten it, or start the app with --corpus file:PATH."
            )
        text = plain(text)
        key = key_of(text)
        self._pasted[key] = text
        self._pasted.move_to_end(key)
        while len(self._pasted) > _MAX_PASTED:
            self._pasted.popitem(last=False)
        return key

    def keep_pasted(self, key: str | None) -> None:
        """Keep a pasted text under the local folder, since something is made of it; others are kept already."""
        if key in self._pasted:
            self.own.keep_text(_name(self._pasted[key]), self._pasted[key])

    def addressed(self, text: str, owner: str = "") -> str:
        """Write a prompt as an address says it: the text itself, or the key under which a long one is kept until
        `owner`, a field in a browser's tab, has another one. Raises WriteError if it cannot be kept."""
        if len(text) <= self._settings.max_addressed or plain(text) != text or "\x00" in text or not text.strip():
            return text
        return self.own.keep_typed(_name(text), text, owner).key

    def prompt(self, addressed: str) -> str:
        """Return the text of what an address says; what is no key of a kept text is a text."""
        own = self.own.get(addressed)
        return addressed if own is None else self.own.text(own)

    def _own(self, key: str) -> Text:
        """A text by its key. Raises RequestError when it is gone."""
        own = self.own.get(key)
        if own is not None:
            about = f"your text ‹{own.name}› of {own.n_characters:,} characters"
            return Text(key=key, label=own.name, about=about, corpus=self.own.corpus(own), documents=None)
        if key not in self._pasted:
            raise RequestError("That text is no longer here: paste or upload it again.")
        text = self._pasted[key]
        return Text(
            key=key, label=PASTED, about=f"a pasted text of {len(text):,} characters", corpus=None, documents=None,
            pasted=text,
        )  # fmt: skip


def _name(text: str) -> str:
    return f"Pasted: {' '.join(text.replace('/', ' ').split()[:6])}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
