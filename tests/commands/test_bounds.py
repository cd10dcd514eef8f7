"""Numbers that would fill the memory are refused before any work; nothing is made that nobody asked for."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from aotlens.cli import app
from aotlens.train.state import save_state
from tests.messages import refused, says

from .conftest import Run

MANY = "99999999999"


@pytest.mark.parametrize(
    "arguments",
    [
        ("trigrams", "small", "--head", "0.0", "--k", MANY),
        ("trigrams", "small", "--head", "0.0", "--fold", "source", "--depth", MANY),
        ("bigrams", "small", "--k", MANY),
        ("circuits", "small", "--head", "0.0", "--top", MANY),
        ("distill", "small", "--corpus", "stdlib", "--hidden", MANY),
        ("distill", "small", "--corpus", "stdlib", "--hidden", "-1,4"),
        ("distill", "small", "--corpus", "stdlib", "--tokens", MANY),
        ("distill", "small", "--corpus", "stdlib", "--wide", MANY),
        ("distill", "small", "--corpus", "stdlib", "--seeds", MANY),
        ("motifs", "small", "--sequences", MANY),
        ("generate", "small", "--text", "the", "--tokens", MANY),
    ],
)
def test_numbers_beyond_all_use(run: Run, arguments: tuple[str, ...]) -> None:
    code, text, error = run(*arguments)
    assert code == 2 and text == "" and arguments[-2] in error


def commands(group: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    """Every command of `aotlens` by the words that call it."""
    for one in group.registered_commands:
        assert one.callback is not None
        yield (*path, one.name or one.callback.__name__), one.callback
    for one in group.registered_groups:
        assert one.typer_instance is not None
        yield from commands(one.typer_instance, (*path, str(one.name or one.typer_instance.info.name)))


def numbers(kind: type) -> list[tuple[tuple[str, ...], str, Any]]:
    """Command, option, and what Typer knows of it, for every option that is one number of a kind."""
    return [
        (path, f"--{name.replace('_', '-')}", annotation.__metadata__[0])
        for path, callback in commands(app)
        for name, annotation in typing.get_type_hints(callback, include_extras=True).items()
        if typing.get_origin(annotation) is typing.Annotated
        and kind in (annotation.__origin__, *typing.get_args(annotation.__origin__))
        and isinstance(annotation.__metadata__[0], typer.models.OptionInfo)
    ]


@pytest.mark.slow
def test_every_whole_number_has_a_limit(run: Run) -> None:
    found = numbers(int)
    assert len(found) > 40 and {"--limit", "--k", "--seed", "--rows-at-once"} <= {option for _, option, _ in found}
    for path, option, known in found:
        assert known.max is not None, f"aotlens {' '.join(path)} {option} takes any number: give it a max"
        code, text, error = run(*path, option, str(known.max + 1))
        assert code == 2 and text == "" and option in error and str(known.max) in error, (path, option, error)
    code, text, error = run(*path, option, str(10**400))
    assert code == 2 and text == "" and option in error


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "small", "--text", "the", "--temperature", "nan"),
        ("generate", "small", "--text", "the", "--temperature", "inf"),
        ("compile", "none.safetensors", "--tolerance", "1", "--bound", "nan"),
        ("compile", "none.safetensors", "--bound", "1", "--tolerance", "inf"),
        ("checkpoints", "compress", "small", "out", "--error", "nan"),
        ("train", "novels-2l-mhsa", "--dry-run", "--learning-rate", "nan"),
        ("influence", "small", "--corpus", "stdlib", "--measure", "loss", "--remove", "nan"),
        ("influence", "small", "--corpus", "stdlib", "--measure", "loss", "--eps-root", "nan"),
    ],
)
def test_numbers_that_are_none(run: Run, arguments: tuple[str, ...]) -> None:
    code, text, error = run(*arguments)
    assert code == 2 and text == "" and arguments[-2].strip("-").replace("-", "_") in error.replace("-", "_"), error
    options = "--temperature --bound --tolerance --learning-rate --error --remove --eps-root"
    assert {option for _, option, _ in numbers(float)} == set(options.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("circuits", "small", "--head", "0.0", "--token-id", MANY),
        ("paths", "small", "--text", "the", "--target-id", MANY),
        ("paths", "small", "--text", "the", "--versus-id", MANY),
        ("paths", "small", "--text", "the", "--position", MANY),
        ("paths", "small", "--text", "the", "--position", f"-{MANY}"),
        ("paths", "small", "--text", "the", "--score", "0.0", MANY, "0"),
        ("generate", "small", "--tokens", "2", "--ids", MANY),
        ("motifs", "small", "--start", MANY),
    ],
)
def test_ids_and_positions_that_there_are_not(run: Run, arguments: tuple[str, ...]) -> None:
    code, text, error = run(*arguments)
    assert code == 2 and text == "" and MANY in error.replace(",", ""), error


def test_no_folders_that_nobody_asked_for(run: Run, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "typo" / "heads.safetensors"
    code, _, error = run("distill", "small", "--corpus", "stdlib", "--out", str(out))
    assert code == 2
    says(error, out.parent)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.skipif(sys.platform == "win32", reason="a folder that nobody may write to; run it on Linux or macOS")
def test_the_last_saved_state_is_whole_only_where_one_was(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.Adam(model.parameters())
    path = tmp_path / "state.safetensors"
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file" / "state.safetensors", "none had been saved"):
        save_state(tmp_path / "file" / "state.safetensors", model, optimiser, {}, {})
    save_state(path, model, optimiser, {}, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", refuse)
        with refused(path, "No space left", "last saved one is whole"):
            save_state(path, model, optimiser, {}, {})


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_escape_codes_do_not_reach_the_terminal_by_an_error(run: Run) -> None:
    code, _, error = run("checkpoints", "show", "a\x1b[2Jb")
    assert code == 2 and "\x1b" not in error
