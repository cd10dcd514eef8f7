"""Long work on stderr: a bar on a terminal, and elsewhere nothing, or a line for each step where steps are long."""

from __future__ import annotations

import io
import sys

import pytest

from aotlens.commands.shared import TokenBar


class Terminal(io.StringIO):
    """What is written, by a stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def written(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, lines: bool) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with TokenBar("cells", lines=lines) as bar:
        bar.say("reading small\x1b")
        for done in (0, 2, 2, 3):
            bar(done, 3)
    return stream.getvalue()


def test_without_a_terminal_each_step_is_a_line_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(io.StringIO(), monkeypatch, lines=True) == "reading small\n2 of 3 cells\n3 of 3 cells\n"
    assert written(io.StringIO(), monkeypatch, lines=False) == "reading small\n"


def test_on_a_terminal_there_is_a_bar_and_what_is_said_stands_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(Terminal(), monkeypatch, lines=True)
    assert "reading small\n" in text and "3/3" not in text.partition("reading small")[0]
    assert "of 3 cells" not in text and "cells" in text and "\r" in text
