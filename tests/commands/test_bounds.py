"""Numbers that would fill the memory are refused before any work; nothing is made that nobody asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aotlens.train.state import save_state

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


def test_no_folders_that_nobody_asked_for(run: Run, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "typo" / "heads.safetensors"
    code, _, error = run("distill", "small", "--corpus", "stdlib", "--out", str(out))
    assert code == 2 and "expected a folder that is there, found none" in error
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.skipif(sys.platform == "win32", reason="a folder that nobody may write to; run it on Linux or macOS")
def test_the_last_saved_state_is_whole_only_where_one_was(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.Adam(model.parameters())
    path = tmp_path / "state.safetensors"
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="none had been saved before"):
        save_state(tmp_path / "file" / "state.safetensors", model, optimiser, {}, {})
    save_state(path, model, optimiser, {}, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", refuse)
        with pytest.raises(ValueError, match="the last saved one is whole"):
            save_state(path, model, optimiser, {}, {})


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_escape_codes_do_not_reach_the_terminal_by_an_error(run: Run) -> None:
    code, _, error = run("checkpoints", "show", "a\x1b[2Jb")
    assert code == 2 and "\x1b" not in error
