"""What is listed, what a name means, and what an unknown one is answered with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aotlens
from aotlens.checkpoints import (
    CheckpointError,
    CheckpointInfo,
    bundled_folder,
    find_checkpoint,
    home_folder,
    list_checkpoints,
    shared_held_out_windows,
    verify,
)
from aotlens.models import AttentionOnlyTransformer
from tests.messages import refused
from tests.small_models import SMALL, maker, small_tokenizer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def places(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A bundled folder and a home with two checkpoints each, one name in common, and an empty working folder."""
    bundled, home, work = tmp_path / "bundled", tmp_path / "home", tmp_path / "work"
    for parent, names in ((bundled, ("alpha", "common")), (home / "checkpoints", ("beta", "common"))):
        for name in names:
            shutil.copytree(saved, parent / name)
    work.mkdir()
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: bundled)
    monkeypatch.setenv("AOTLENS_HOME", str(home))
    monkeypatch.chdir(work)
    return {"bundled": bundled, "home": home / "checkpoints", "work": work}


def test_places_in_order_and_later_ones_win(places: dict[str, Path]) -> None:
    infos = list_checkpoints()
    assert [info.name for info in infos] == ["alpha", "beta", "common"]
    common = infos[-1]
    assert common.path == places["home"] / "common"
    assert common.note is not None and str(places["bundled"] / "common") in common.note
    assert infos[0].note == "saved under the name 'small'" and infos[0].n_weights and "# small" in infos[0].card
    assert aotlens.load("common").card.note == common.note


def test_given_folders_hold_checkpoints_or_are_one(places: dict[str, Path], saved: Path) -> None:
    shutil.copytree(saved, places["work"] / "runs" / "alpha")
    shutil.copytree(saved, places["work"] / "single")
    (places["work"] / "runs" / "notes").mkdir()
    (places["work"] / "runs" / ".hidden").mkdir()
    infos = list_checkpoints([places["work"] / "runs", "single"])
    assert [info.name for info in infos] == ["beta", "common", "alpha", "single"]
    assert infos[2].path == places["work"] / "runs" / "alpha"
    assert infos[2].note is not None and "hides" in infos[2].note
    again = list_checkpoints([places["home"], places["home"]])
    assert [info.note for info in again if info.name == "beta"] == ["saved under the name 'small'"], "not its own rival"


def test_broken_ones_are_listed_with_their_problem(places: dict[str, Path]) -> None:
    (places["home"] / "beta" / "config.json").unlink()
    (places["bundled"] / "alpha" / "tokenizer.json").unlink()
    weights = places["home"] / "common" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    problems = {info.name: info.problem for info in list_checkpoints()}
    assert [
        file in str(problems[name])
        for name, file in {
            "alpha": "tokenizer.json",
            "beta": "config.json",
            "common": "model.safetensors: expected a whole",
        }.items()
    ] == [True, True, True]
    for name in problems:
        with pytest.raises(CheckpointError, match="found"):
            aotlens.load(name)


def test_a_name_beats_a_folder_and_a_path_is_a_path(places: dict[str, Path], saved: Path) -> None:
    shutil.copytree(saved, places["work"] / "alpha")
    assert find_checkpoint("alpha").path == places["bundled"] / "alpha"
    assert find_checkpoint("./alpha").path == Path("alpha")
    assert find_checkpoint(Path("alpha")).path == Path("alpha")
    assert find_checkpoint(saved).path == saved
    (places["work"] / "gamma").symlink_to(saved)
    assert find_checkpoint("gamma").path == Path("gamma")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alhpa", "Did you mean alpha?"),
        (
            "nothing-like-it",
            "no checkpoint or folder is called 'nothing-like-it'. Checkpoints here: alpha, beta, common.",
        ),
        ("", "a folder without config.json"),
        (".", "a folder without config.json"),
        ("../bundled", "It holds the checkpoints alpha, common"),
        ("../bundled/alpha/config.json", "found a file. Give ../bundled/alpha/"),
        ("../bundled/zzz", "no checkpoint or folder"),
        ("a" * 5000, "no checkpoint or folder"),
        ("nul\0byte", "no checkpoint or folder"),
    ],
)
def test_unknown_names(places: dict[str, Path], name: str, expected: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        aotlens.load(name)
    assert expected in str(caught.value)


def test_a_given_folder_that_does_not_exist(places: dict[str, Path]) -> None:
    with refused("nowhere", "folder of checkpoints", error=CheckpointError):
        list_checkpoints([places["work"] / "nowhere"])


def test_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    assert home_folder() == tmp_path / "checkpoints"
    monkeypatch.delenv("AOTLENS_HOME")
    assert home_folder() == Path.home() / ".cache" / "aotlens" / "checkpoints"


def test_listing_imports_no_torch(saved: Path) -> None:
    code = (
        "import sys, aotlens\n"
        "assert aotlens.list_checkpoints([sys.argv[1]])[-1].metrics\n"
        "assert {'torch', 'transformer_lens', 'numpy'}.isdisjoint(sys.modules), 'too much for a listing'"
    )
    subprocess.run([sys.executable, "-c", code, str(saved)], check=True, cwd=ROOT)


def test_the_package_gives_its_names_when_asked() -> None:
    assert set(aotlens.__all__) <= set(dir(aotlens))
    assert aotlens.ModelConfig.__module__.startswith("aotlens.models")
    assert aotlens.AttentionOnlyTransformer.__module__.startswith("aotlens.models")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        aotlens.nonsense  # noqa: B018


BUNDLED = sorted(path.parent for path in bundled_folder().glob("*/config.json"))


@pytest.mark.parametrize("folder", BUNDLED, ids=[path.name for path in BUNDLED])
def test_bundled_checkpoints_are_whole(folder: Path) -> None:
    assert verify(folder) == []
    info = find_checkpoint(folder)
    assert info.note is None, "its folder has its name"
    assert (
        info.description and info.command and info.corpus["sha256"] and info.corpus["source"] and info.seed is not None
    )


def test_bundled_checkpoints_are_small_enough_for_a_repository() -> None:
    size = sum(path.stat().st_size for folder in BUNDLED for path in folder.rglob("*"))
    assert size <= 40e6


make = maker({**SMALL, "d_vocab": 270, "n_ctx": 16})


def model(*held_out: str, n_ctx: int = 16) -> AttentionOnlyTransformer:
    made: AttentionOnlyTransformer = make(tokenizer=small_tokenizer(), n_ctx=n_ctx)
    made.card = CheckpointInfo(name="one", corpus={"validation": list(held_out)})
    return made


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    for name, word in (("a.txt", "cat"), ("b.txt", "rat"), ("c.txt", "mat")):
        (tmp_path / name).write_text(f"the {word} sat. " * 60, encoding="utf-8")
    return f"dir:{tmp_path}"


def test_windows_are_of_documents_that_all_models_held_out(corpus: str) -> None:
    models = [model("a", "b"), model("b", "c", n_ctx=12), model("x")]
    windows = shared_held_out_windows(models, corpus, 3).ids
    assert windows.shape == (3, 12)
    text = small_tokenizer().decode(windows[:, 1:].flatten().tolist())
    assert "rat" in text and "cat" not in text and "mat" not in text
    assert shared_held_out_windows(models, corpus, 3, 8).ids.shape == (3, 8)


def test_where_each_document_was_training_text_of_one_it_is_refused(corpus: str) -> None:
    with refused("none of the models was trained on", "found none"):
        shared_held_out_windows([model("a"), model("b")], corpus, 3)
