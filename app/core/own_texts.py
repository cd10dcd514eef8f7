"""A person's own texts: uploaded or pasted, kept under the local folder by their hash, named, listed, deleted.

    $AOTLENS_HOME/texts/text-0123456789abcdef.txt    UTF-8, line ends as \\n
    $AOTLENS_HOME/texts/text-0123456789abcdef.json   {"name": …, "characters": …}
    $AOTLENS_HOME/texts/text-0123456789abcdef.typed  who typed it (a field in a tab), a line each

A text that was typed into a prompt, and not uploaded or used for a result, is replaced by the next version that is
typed there; the oldest are removed beyond `typed_texts`. They take no room from uploaded ones.

A text's key is its address. It is a hash of the content and nothing that a browser says becomes a path.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from aotlens.untrusted import boundary, read_regular, require_types, strict_json
from app.core.errors import RequestError
from app.core.settings import Settings

if TYPE_CHECKING:
    from aotlens.data import Corpus

_KEY = re.compile(r"text-[0-9a-f]{16}", re.ASCII)
_MAX_NAME = 60
_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "gzip", b"PK": "ZIP", b"%PDF": "PDF"}


@dataclass(frozen=True, kw_only=True)
class OwnText:
    """A text that is kept."""

    key: str
    name: str
    n_characters: int


def key_of(text: str) -> str:
    """Return the key of a text, kept or not."""
    return f"text-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def plain(text: str) -> str:
    """Return a text without a byte-order mark, line ends as one character, as corpora are read."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def is_key(name: object) -> bool:
    """Return whether something that a browser says has the form of a key."""
    return isinstance(name, str) and _KEY.fullmatch(name) is not None


class OwnTexts:
    """The texts below a folder. Raises RequestError for what a person can put right."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._counting = threading.Lock()
        self._remove_leftovers()

    @property
    def folder(self) -> Path:
        """Return the folder that they are in; looked up at each use, like the folder of checkpoints."""
        from aotlens.checkpoints import user_folder

        return user_folder("texts")

    def keep(self, name: str, content: bytes) -> OwnText:
        """Keep a file's content under a name; the same content again only gets the new name."""
        return self.keep_text(name, self._decoded(content))

    def keep_text(self, name: str, text: str) -> OwnText:
        """Keep a text under a name."""
        key = key_of(plain(text))
        with self._counting:
            others = self._keys(".txt") - self._keys(".typed") - {key}
            if len(others) >= self._settings.own_texts:
                raise RequestError(
                    f"{self._settings.own_texts} texts are kept here, and no more: delete one that you no longer need "
                    "(beside the choice of a text), and try again."
                )
            own = self._write(name, text)
            self._path(key, ".typed").unlink(missing_ok=True)
        return own

    def keep_typed(self, name: str, text: str, owner: str = "") -> OwnText:
        """Keep a text that is typed until `owner`, a field in a browser's tab, keeps another one; without an owner,
        until `typed_texts` newer ones are kept. A text that is kept for good stays so."""
        key = key_of(plain(text))
        with self._counting:
            own = self.get(key)
            if own is not None and not self._path(key, ".typed").exists():
                return own
            self._replace(self._path(key, ".typed"), "\n".join({*self._owners(key), owner}).encode())
            own = own or self._write(name, text)
            for other in self._keys(".typed") - {key}:
                if owner and owner in (owners := self._owners(other)):
                    if left := owners - {owner}:
                        self._replace(self._path(other, ".typed"), "\n".join(left).encode())
                    else:
                        self._remove(other)
            oldest = sorted(self._keys(".typed"), key=lambda typed: self._path(typed, ".typed").stat().st_mtime_ns)
            for other in oldest[: -self._settings.typed_texts]:
                self._remove(other)
        return own

    def _write(self, name: str, text: str) -> OwnText:
        text = plain(text)
        data = text.encode("utf-8", "replace")
        self._check(len(data), text)
        own = OwnText(key=key_of(text), name=plain_name(name), n_characters=len(text))
        label = json.dumps({"name": own.name, "characters": own.n_characters}, ensure_ascii=False)
        # The text first: what is listed can be read.
        self._replace(self._path(own.key, ".txt"), data)
        self._replace(self._path(own.key, ".json"), label.encode())
        return own

    @staticmethod
    def _replace(path: Path, content: bytes) -> None:
        from aotlens.files import replacing_file

        with replacing_file(path) as temporary:
            temporary.write_bytes(content)

    def _keys(self, suffix: str) -> set[str]:
        return {path.stem for path in self.folder.glob(f"text-*{suffix}") if is_key(path.stem)}

    def _owners(self, key: str) -> set[str]:
        path = self._path(key, ".typed")
        return (
            set(read_regular(path, kind="settings").decode("utf-8", "replace").split("\n")) if path.exists() else set()
        )

    def _remove(self, key: str) -> None:
        for suffix in (".json", ".txt", ".typed"):
            self._path(key, suffix).unlink(missing_ok=True)

    def _remove_leftovers(self) -> None:
        """Remove what a killed process left: unfinished files, and texts without a label, which nobody can choose."""
        from aotlens.files import remove_unfinished

        with suppress(OSError):
            remove_unfinished(self.folder, "text-*")
            labelled, texts = self._keys(".json"), self._keys(".txt")
            for key in (labelled ^ texts) | (self._keys(".typed") - texts):
                self._remove(key)

    def list(self) -> list[OwnText]:
        """Return the texts that are kept, by name."""
        texts = (self.get(path.stem) for path in self.folder.glob("text-*.json"))
        return sorted((each for each in texts if each is not None), key=lambda each: (each.name.casefold(), each.key))

    def get(self, key: str | None) -> OwnText | None:
        """Return the text of a key, if it is kept and whole."""
        if key is None or not is_key(key) or not self._path(key, ".txt").is_file():
            return None
        try:
            path = self._path(key, ".json")
            with boundary(path, "a text's label"):
                label = strict_json(read_regular(path, kind="settings"))
                require_types(OwnText, {"name": label["name"], "n_characters": label["characters"]}, "label")
                return OwnText(key=key, name=plain_name(label["name"]), n_characters=label["characters"])
        except ValueError:
            return None

    def text(self, own: OwnText) -> str:
        """Return the text itself."""
        return self._path(own.key, ".txt").read_bytes().decode("utf-8")

    def corpus(self, own: OwnText) -> Corpus:
        """Return the text as a corpus of one document."""
        from aotlens.data import open_corpus

        corpus = open_corpus(f"file:{self._path(own.key, '.txt')}")
        corpus.spec = own.name  # by which it is called where something is wrong with it
        return corpus

    def delete(self, key: str | None) -> OwnText:
        """Remove a text; what was made of it stays."""
        own = self.get(key)
        if own is None:
            raise RequestError("That text is not kept here, so there is nothing to delete.")
        self._remove(own.key)
        return own

    def _path(self, key: str, suffix: str) -> Path:
        assert is_key(key)
        return self.folder / f"{key}{suffix}"

    def _check(self, n_bytes: int, text: str) -> None:
        if n_bytes > self._settings.max_text_bytes:
            raise RequestError(too_large(n_bytes, self._settings))
        if "\x00" in text:
            raise RequestError(
                "This holds NUL bytes, so it is no plain text (or UTF-16 without a mark): save it as UTF-8."
            )
        if not text.strip():
            raise RequestError("This text is empty: there is nothing to read in it.")

    def _decoded(self, content: bytes) -> str:
        if len(content) > self._settings.max_text_bytes:
            raise RequestError(too_large(len(content), self._settings))
        for start, what in _ENCODINGS.items():
            if content.startswith(start):
                raise RequestError(f"This file is {what}, not plain text in UTF-8: save it as that and try again.")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(
                f"This file is not UTF-8: byte 0x{content[error.start]:02X} at offset {error.start:,} can't be read. "
                "Convert it, for instance with iconv -f latin1 -t utf-8."
            ) from error


def too_large(n_bytes: int, settings: Settings) -> str:
    """Write the message about a text over the limit."""
    return (
        f"This text has {n_bytes / 2**20:,.1f} MB, and at most {settings.max_text_bytes / 2**20:g} MB are taken here. "
        "Nothing was cut: take a part of it, or start the app with --corpus file:PATH."
    )


def plain_name(name: str) -> str:
    """Return the last part of a file's name, in one line."""
    last = PurePath(name.replace("\\", "/")).name
    plain = "".join(character if character.isprintable() else " " for character in last).strip()
    return plain[:_MAX_NAME] or "a text"
