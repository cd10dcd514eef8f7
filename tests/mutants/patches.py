"""Where a patch of one hunk belongs in code that has moved since, and the file's text with it applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.draw import Mutant

CONTEXT = 3  # lines before and after the change, as in the patches


@dataclass(frozen=True, kw_only=True)
class Change:
    """A mutant applied: `lines` (from 1) of the file as it is are changed, and `text` is the file with the change."""

    file: str
    lines: range
    text: str


def locate(root: Path, mutant: Mutant, others: Iterable[Path] = ()) -> Change | None:
    """Where the patch's lines are now: in its file, with as much of its context as is still there; else, with all of
    it, in one of the `others`. None where the code is gone, or is there several times with nothing to tell which."""
    for context in range(CONTEXT, -1, -1):
        place = _locate_in(root / mutant.file, root, mutant, context)
        if place is not None:
            return place
    places = [_locate_in(path, root, mutant, CONTEXT) for path in others]
    found = [place for place in places if place is not None]
    return found[0] if len(found) == 1 else None


def _locate_in(path: Path, root: Path, mutant: Mutant, context: int) -> Change | None:
    if not path.is_file():
        return None
    _, _, header, *hunk = mutant.patch.splitlines()
    changed = [index for index, line in enumerate(hunk) if not line.startswith(" ")]
    hunk = hunk[max(0, changed[0] - context) : changed[-1] + 1 + context]
    before = [line[1:] for line in hunk if not line.startswith("+")]
    after = [line[1:] for line in hunk if not line.startswith("-")]
    lines = path.read_text("utf-8").splitlines()
    starts = [start for start in range(len(lines) - len(before) + 1) if lines[start : start + len(before)] == before]
    if len(starts) > 1:  # the nearest, as `patch` does; with one line of context or none only if it is alone
        old_start = int(header.split()[1].split(",")[0].lstrip("-"))
        starts = sorted(starts, key=lambda start: abs(start - old_start))[: 1 if context > 1 else 0]
    if not starts:
        return None
    start = starts[0]
    removed = [index for index, line in enumerate(line for line in hunk if not line.startswith("+")) if line[0] == "-"]
    if not removed:  # lines are only added
        removed = [next(index for index, line in enumerate(hunk) if line.startswith("+")) - 1]
    text = "\n".join([*lines[:start], *after, *lines[start + len(before) :]]) + "\n"
    return Change(
        file=path.relative_to(root).as_posix(), lines=range(start + 1 + removed[0], start + 2 + removed[-1]), text=text
    )
