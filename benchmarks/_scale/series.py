"""The list of points, those of them that are skipped, and the file that a run goes on from."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aotlens
from aotlens.checkpoints import find_checkpoint
from aotlens.files import replacing_file
from benchmarks import _common
from benchmarks._scale.headline import HEADLINES, Headline
from benchmarks._scale.point import Figures, measure
from benchmarks._scale.shapes import Shape

#: The analyses measured on trained checkpoints too, beside an untrained model of the shape: what weights can shorten.
TRAINED = {
    "novels-2l-mhsa": ("circuits", "entries", "trigrams", "path_sums", "path_top", "composition"),
    "novels-12l-mssa": ("entries", "path_sums", "path_top"),
}
#: All axes at once, to hold the fits against: nothing here is on any series.
CORNER = Shape(vocabulary=2000, layers=6, heads=6, width=768, tokens=192)


@dataclass(kw_only=True)
class Points:
    """Figures by point, and what they were measured with; a file has the same as JSON."""

    about: dict[str, Any]
    figures: dict[str, Figures] = field(default_factory=dict)
    path: Path | None = None

    @classmethod
    def open(cls, path: Path | None, about: dict[str, Any]) -> Points:
        """Open the points of a file, where there is one already, to go on with.

        Raises `ValueError` where the file was measured with something else than `about` says.
        """
        points = cls(about=about, path=path)
        if path is not None and path.exists():
            stored = cls.read(path)
            different = sorted(name for name in about if stored.about.get(name) != about[name])
            if different:
                was, now = ({name: where.get(name) for name in different} for where in (stored.about, about))
                raise ValueError(
                    f"{path}: its points were measured with {was}, this run has {now}; give another --out, or the same "
                    "settings."
                )
            points.figures = stored.figures
        return points

    @classmethod
    def read(cls, path: Path) -> Points:
        """Read the points of a file. Raises `ValueError` where it is no such file."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return cls(about=stored["about"], figures=stored["points"], path=path)
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: expected a file of `python -m benchmarks scale --out`; got {error}.") from error

    def add(self, key: str, figures: Figures) -> None:
        self.figures[key] = figures
        if self.path is not None:
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in self.figures.items())
            about = json.dumps(self.about)
            with replacing_file(self.path) as temporary:
                temporary.write_text(f'{{"about": {about},\n "points": {{\n{lines}\n}}}}\n', encoding="utf-8")

    @property
    def clock(self) -> str:
        """The figure that is fitted: processor time, but wall time on a GPU."""
        return "cpu" if self.about["device"] == "cpu" else "wall"

    def measured(self, key: str) -> Figures | None:
        """Return the figures of a point that was measured."""
        figures = self.figures.get(key)
        return figures if figures is not None and self.clock in figures else None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits of a point, and of a whole run."""

    seconds: float
    memory_bytes: float
    until: float = float("inf")
    """The time from which no more points are begun, on `time.monotonic`."""


def about(device: str, threads: int, quick: bool) -> dict[str, Any]:
    """Return what points must share to stand in one file."""
    machine = _common.machine()
    versions = {name: machine[name] for name in ("processor", "torch")}
    return {"aotlens": aotlens.__version__, **versions, "device": device, "threads": threads, "quick": quick}


def key_of(name: str, where: Shape | str) -> str:
    """Return a point's name: the analysis, and the untrained shape or the checkpoint."""
    return f"{name} {where}"


@functools.lru_cache
def shape_of(checkpoint: str, tokens: int = 128) -> Shape:
    """Return the shape of a bundled checkpoint, on a prompt of so many tokens."""
    cfg = find_checkpoint(checkpoint).model
    return Shape(
        vocabulary=cfg["d_vocab"], layers=cfg["n_layers"], heads=cfg["n_heads"], width=cfg["d_model"],
        d_head=cfg["d_head"], tokens=min(tokens, cfg["n_ctx"]),
    )  # fmt: skip


def wanted(names: list[str], quick: bool) -> Iterator[tuple[str, list[Shape | str]]]:
    """Yield analyses and the points of one series each, smallest first; then corner, refusals, and what was trained.

    With `quick` the first axis of each analysis alone.
    """
    for name in names:
        headline = HEADLINES[name]
        for axis in headline.axes[:1] if quick else headline.axes:
            yield name, [*headline.series(axis, quick)]
    if quick:
        return
    for name in names:
        if HEADLINES[name].axes:
            yield name, [HEADLINES[name].middle, CORNER]
        elif (refused := HEADLINES[name].refused) is not None:
            yield name, [refused]
    for checkpoint, analyses in TRAINED.items():
        for name in analyses:
            if name in names:
                yield name, [shape_of(checkpoint), checkpoint]


def run(points: Points, names: list[str], bounds: Bounds, say: Callable[[str], None]) -> bool:
    """Measure what is missing; whether everything was looked at before the time was over."""
    for name, shapes in wanted(names, points.about["quick"]):
        last: tuple[Shape, Figures] | None = None
        for where in shapes:
            key = key_of(name, where)
            if points.measured(key) is None and "failed" not in points.figures.get(key, {}):
                shape = where if isinstance(where, Shape) else shape_of(where)
                why = too_large(HEADLINES[name], shape, last, points.clock, bounds)
                if why is None and time.monotonic() > bounds.until:
                    return False
                figures = {"skipped": why} if why else _measure(name, where, shape, points, bounds)
                points.add(key, figures)
                say(f"{key}: {figures}")
            if (known := points.measured(key)) is not None and isinstance(where, Shape):
                last = where, known
    return True


def _measure(name: str, where: Shape | str, shape: Shape, points: Points, bounds: Bounds) -> Figures:
    return measure(
        name,
        shape,
        checkpoint=None if isinstance(where, Shape) else where,
        device=points.about["device"],
        threads=points.about["threads"],
        seconds=bounds.seconds,
        memory_bytes=bounds.memory_bytes,
    )


def too_large(
    headline: Headline, shape: Shape, last: tuple[Shape, Figures] | None, clock: str, bounds: Bounds
) -> str | None:
    """Say why a point is not measured, by the law from the last one of its series, or None."""
    memory = 4.0 * shape.n_weights
    if last is not None:
        before, figures = last
        seconds = figures[clock] * headline.operations(shape) / headline.operations(before)
        if seconds > bounds.seconds:
            return f"predicted {seconds:.0f} s, above {bounds.seconds:.0f} s"
        memory += figures["bytes"] * headline.bytes(shape) / headline.bytes(before)
    if memory > bounds.memory_bytes:
        return f"predicted {memory / 1e9:.1f} GB, above {bounds.memory_bytes / 1e9:.1f} GB"
    return None
