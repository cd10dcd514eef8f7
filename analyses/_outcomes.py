"""An analysis's findings, stored in the repository: `outcomes/NAME.json`, from which the pages of docs/ are written.

An outcome has the command that made it, its settings, seeds and versions, and its text as parts: claims with their
numbers, paragraphs, and tables. The part of a page between `<!-- NAME -->` and `<!-- /NAME -->` is `Outcome.section`,
and the evidence pages list `Outcome.claims` with their verdicts; a test compares both with what is stored.
It has no date and no machine, so that a second run writes the same file except for rounding and times.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from analyses._claims import Claim, Finding, Stated, Verdict, claims_table, markdown, restored, stored, verdicts_table
from aotlens.files import write_section

FOLDER = Path(__file__).parent / "outcomes"
ROOT = Path(__file__).parents[1]

#: The most rows of a table that a page shows.
LONGEST = 7

#: A paragraph, the claims of one table, or a table of anything else.
Part = str | tuple[Stated, ...] | tuple[list[str], list[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The findings of one run of an analysis."""

    name: str
    """The name of its file here and of its section of `page`."""
    command: str
    """The command that makes it again."""
    page: str
    """The page of the repository that has its section, as `docs/paths.md`."""
    parts: tuple[Part, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    longest: int = LONGEST
    """The most rows of a table that its page shows."""

    @property
    def claims(self) -> tuple[Stated, ...]:
        """All claims, in order."""
        return tuple(claim for part in self.parts if _is_claims(part) for claim in part)  # type: ignore[misc]

    @property
    def text(self) -> str:
        """Write all paragraphs, claims and tables as Markdown, as the analysis prints them."""
        return "\n\n".join(map(_part_text, self.parts))

    @property
    def section(self) -> str:
        """Write its section of the page: paragraphs and short tables, and where the claims and long tables are."""
        parts = [
            f"A table of {len(part[1])} rows ({', '.join(list(filter(None, part[0]))[:3])}, …) is in "  # type: ignore[arg-type]
            f"`analyses/outcomes/{self.name}.json`."
            if isinstance(part, tuple) and len(part[1]) > self.longest  # type: ignore[arg-type]
            else _part_text(part)
            for part in self.parts
            if not _is_claims(part)
        ]
        if self.claims:
            held = sum(claim.holds for claim in self.claims)
            parts.append(f"{held} of {len(self.claims)} claims hold: [Evidence](evidence/index.md).")
        return re.sub(r"(?<=`\.)\n\n(?=A table of )", "\n", "\n\n".join(parts))

    def save(self, folder: Path = FOLDER) -> Path:
        """Write it as JSON, and return where."""
        content: dict[str, Any] = {"name": self.name, "command": self.command, "page": self.page}
        content |= {"settings": dict(self.settings)} if self.settings else {}
        content |= {"seeds": list(self.seeds)} if self.seeds else {}
        content |= {"versions": dict(self.versions)} if self.versions else {}
        content |= {"longest": self.longest} if self.longest != LONGEST else {}
        content["parts"] = [_part_json(part) for part in self.parts]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=_json)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def publish(self, page: Path | None, *, store: bool) -> None:
        """Write its section into `page` where one is given, and store it where that is wanted."""
        if page is not None:
            write_section(page, self.name, self.section)
        if store:
            print(f"stored: {self.save().relative_to(ROOT)}")


def of_run(name: str, command: str, page: str, content: Sequence[str | Sequence[Stated]], **more: Any) -> Outcome:
    """Return an outcome of the run that is ending: claims as they are, Markdown cut into paragraphs and tables."""
    parts: list[Part] = []
    for piece in content:
        if isinstance(piece, str):
            parts += parse(piece)
        elif piece:
            parts.append(tuple(piece))
    return Outcome(name=name, command=command, page=page, parts=tuple(parts), versions=_versions(), **more)


def publish_run(options: Any, name: str, page: str, content: Sequence[str | Sequence[Stated]], **more: Any) -> None:
    """Write the section of the run that is ending into the page of `--docs`, and store it with `--store`."""
    of_run(name, f"python -m analyses {name}", page, content, **more).publish(options.docs, store=options.store)


def load(name: str, folder: Path = FOLDER) -> Outcome:
    """Return a stored outcome. Raises `ValueError` where there is none of that name."""
    path = folder / f"{name}.json"
    if not path.exists():
        raise ValueError(f"no outcome {name} is stored; there are {', '.join(names(folder))}.")
    content = json.loads(path.read_text(encoding="utf-8"))
    parts = tuple(_restored_part(part) for part in content.pop("parts"))
    return Outcome(**{**content, "seeds": tuple(content.get("seeds", ())), "parts": parts})


def names(folder: Path = FOLDER) -> list[str]:
    """Return the names of the outcomes that are stored."""
    return sorted(path.stem for path in folder.glob("*.json"))


def parse(text: str) -> Iterator[Part]:
    """Yield Markdown's paragraphs and tables (without outer bars, as `markdown` writes them, or with them)."""
    for block in re.split(r"\n\n+", text.strip()):
        lines = block.splitlines()
        if len(lines) >= 2 and re.fullmatch(r"\|?( *---+ *\|?)+", lines[1]):
            header, _, *rows = map(_cells, lines)
            yield header, rows
        else:
            yield block


def _is_claims(part: Part) -> bool:
    return isinstance(part, tuple) and isinstance(part[0], Claim | Finding | Verdict)


def _part_text(part: Part) -> str:
    if isinstance(part, str):
        return part
    if _is_claims(part):
        return verdicts_table(part) if isinstance(part[0], Verdict) else claims_table(part)  # type: ignore[arg-type]
    header, rows = part
    return markdown(header, rows)  # type: ignore[arg-type]


def _part_json(part: Part) -> Any:
    if isinstance(part, str):
        return part
    if _is_claims(part):
        return {"claims": [stored(claim) for claim in part]}  # type: ignore[arg-type]
    return {"header": part[0], "rows": part[1]}


def _restored_part(part: Any) -> Part:
    if isinstance(part, str):
        return part
    if "claims" in part:
        return tuple(restored(claim) for claim in part["claims"])
    return part["header"], part["rows"]


def _cells(line: str) -> list[str]:
    cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
    return cells[1:-1] if line.startswith("|") and line.endswith("|") else cells


def _versions() -> dict[str, str]:
    """Return the versions of what the numbers depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}}


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, range):
        return list(value)
    raise TypeError(f"{type(value).__name__} in an outcome")
