"""The common parts of the analyses of *nonlinearity*: findings over seeds, and where they are written.

Each writes NAME.json (findings, settings, seeds, command, seconds, curves), NAME.md (what it prints) and its plots into
--out, and, with --page, its section of a page; what --store keeps is written by `python -m analyses.evidence`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analyses._claims import Finding, markdown, parser, plain
from analyses._outcomes import Outcome, of_run
from aotlens.plots.results import DISPLAY

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, kw_only=True)
class Results:
    """The findings of an analysis."""

    name: str
    findings: Sequence[Finding]
    settings: Mapping[str, Any]
    seeds: Sequence[int]
    data: Mapping[str, Any] = field(default_factory=dict)
    """The numbers behind the plot."""
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]] = field(default_factory=dict)
    """Title → header and rows, printed and put into the page after the findings."""
    plots: Mapping[str, go.Figure] = field(default_factory=dict)
    """File name → figure."""
    page: str = "docs/nonlinearity.md"
    """The page that has its section."""

    def outcome(self, command: str, seconds: float) -> Outcome:
        """Return findings and tables, with the command and settings that made them."""
        settings = ", ".join(f"{key} {plain(value)}" for key, value in self.settings.items())
        parts: list[str | Sequence[Finding]] = [
            f"`{command}` ({_duration(seconds)}). {settings}. Seeds {plain(self.seeds)}.",
            self.findings,
        ]
        for title, (header, rows) in self.tables.items():
            parts += [f"{title}:", markdown(header, rows)]
        return of_run(self.name, command, self.page, parts, settings=self.settings, seeds=tuple(self.seeds))


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the options that every analysis of this paper has."""
    added = parser(description)
    added.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="where JSON and plots go (out)")
    added.add_argument("--page", type=Path, metavar="FILE", help="a page whose section of this analysis to write anew")
    return added


def text_options(description: str | None) -> argparse.ArgumentParser:
    """Add to those the options of an analysis that reads text with checkpoints of ours, and with a BERT where asked."""
    added = options(description)
    added.add_argument("--corpus", required=True, metavar="SPEC", help="dir:PATH, file:PATH, stdlib or hf:NAME")
    added.add_argument("--bert", metavar="NAME", help="bert-base-uncased, say, or a folder with a BERT")
    return added


def publish_on_text(results: Results, arguments: argparse.Namespace, seconds: float) -> int:
    """Publish as `publish`, with the command as `text_options` has its words."""
    more = ["--corpus …", *([f"--bert {arguments.bert}"] if arguments.bert else [])]
    return publish(results, arguments, command_of(results.name, arguments, *more), seconds)


def plot_name(analysis: str, model: str) -> str:
    """Return the file of a model's plot; `model` is a name, or a path, of which the last part counts."""
    return f"{analysis}-{model.strip('/').rsplit('/', 1)[-1]}"


def kept(arguments: argparse.Namespace, work: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    """Return `work` with its results kept in --out/parts, so that a run that was killed goes on where it was."""
    from joblib import Memory

    remembered = Memory(arguments.out / "parts", verbose=0).cache(work)

    def call(*args: Any, **kwargs: Any) -> Any:
        known = remembered.check_call_in_cache(*args, **kwargs)
        result = remembered.call_and_shelve(*args, **kwargs)
        if known:
            clock.add(result.duration)
        return result.get()

    return call


class Clock:
    """Seconds since it was made, those of an earlier run whose results are read included; lines on stderr."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self._start

    def add(self, seconds: float) -> None:
        """Add the time that a result that is read took when it was made."""
        self._start -= seconds

    def say(self, message: str) -> None:
        print(f"[{self():.0f} s] {message}", file=sys.stderr, flush=True)


def publish(results: Results, arguments: argparse.Namespace, command: str, seconds: float) -> int:
    """Print, write JSON and plots, and the page's section. 0 also where a claim does not hold: that is a finding."""
    outcome = results.outcome(command, seconds)
    text = outcome.text
    print(text)
    failed = sum(not finding.holds for finding in results.findings)
    if failed:
        print(f"{failed} of {len(results.findings)} claims do not reproduce.", file=sys.stderr)
    arguments.out.mkdir(parents=True, exist_ok=True)
    content = {
        "analysis": results.name,
        "command": command,
        "seconds": round(seconds, 1),
        "seeds": list(results.seeds),
        "settings": dict(results.settings),
        "findings": [
            {"claim": f.claim, "expected": f.expected, "bounds": [_finite(b) for b in f.bounds],
             "measured": list(f.measured), "holds": f.holds}
            for f in results.findings
        ],
        "data": results.data,
    }  # fmt: skip
    path = arguments.out / f"{results.name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=_json, allow_nan=False), encoding="utf-8")
    (arguments.out / f"{results.name}.md").write_text(text + "\n", encoding="utf-8")
    for name, figure in results.plots.items():
        figure.update_layout(
            paper_bgcolor="#ffffff", plot_bgcolor="#ffffff", margin={"l": 60, "r": 20, "t": 60, "b": 50}
        )
        figure.write_html(arguments.out / f"{name}.html", config=DISPLAY)
    outcome.publish(arguments.page, store=arguments.store)
    return 0


def command_of(name: str, arguments: argparse.Namespace, *more: str) -> str:
    """Return the command that makes these results again."""
    return " ".join([f"python -m analyses.{name}", *(["--quick"] if arguments.quick else []), *more])


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [None if isinstance(v, float) and math.isnan(v) else v for v in value.tolist()] if value.ndim == 1 else [
            _json(row) for row in value]  # fmt: skip
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} in results")
