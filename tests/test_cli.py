"""The `aotlens` command: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.cli import main
from tests.messages import says

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cfg = aotlens.ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=50, n_ctx=5)
    info = CheckpointInfo(
        name="tiny",
        description="Tiny \x1b[31mred\x1b[0m.",
        metrics={"validation_loss": 4.25, "bigram_loss": 4.5},
        seed=1,
    )
    folder = tmp_path_factory.mktemp("saved") / "tiny"
    save_checkpoint(folder, aotlens.AttentionOnlyTransformer(cfg), info, history=[{"step": 1, "loss": 5.0}])
    return folder


@pytest.fixture
def home(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the one checkpoint `tiny`, and nothing bundled."""
    folder = tmp_path / "home" / "checkpoints"
    shutil.copytree(saved, folder / "tiny")
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: tmp_path / "none")
    return folder


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err and "\x1b" not in captured.out + captured.err
    return int(stopped.value.code or 0), captured.out, captured.err


def test_list(home: Path, capsys: Any) -> None:
    code, out, err = run(capsys, "checkpoints", "list")
    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.split() == ["name", "model", "weights", "loss", "baseline"]
    weights = 2 * 50 * 8 + 5 * 8 + 4 * 2 * 8 * 4 + 2 * 2 * 8  # embeddings, positions, heads, norms
    assert weights == 1128
    assert row == f"tiny  1 layer × 2 heads, mhsa  {weights:,}    4.250  4.500"
    config = home / "tiny" / "config.json"
    measured = json.loads(config.read_text())
    config.write_text(json.dumps({**measured, "metrics": {"masked_loss": 4.8, "unigram_loss": 6.5}}))
    assert run(capsys, "checkpoints", "list")[1].splitlines()[1].endswith("  4.800 masked  6.500 unigram")
    (home / "tiny" / "model.safetensors").write_bytes(b"")
    code, out, _ = run(capsys, "checkpoints", "list")
    assert code == 0 and "damaged" in out and "tiny: can't be loaded: " in out
    shutil.rmtree(home)
    assert "No checkpoints" in run(capsys, "checkpoints", "list")[1]


def test_list_and_show_as_json(home: Path, capsys: Any) -> None:
    (entry,) = json.loads(run(capsys, "checkpoints", "list", "--json")[1])
    assert entry["name"] == "tiny" and entry["path"] == str(home / "tiny") and entry["problem"] is None
    shown = json.loads(run(capsys, "checkpoints", "show", "tiny", "--json")[1])
    assert shown == entry | {"history": [{"step": 1, "loss": 5.0}]}


def test_show_keeps_control_characters_from_the_terminal(home: Path, capsys: Any) -> None:
    code, out, _ = run(capsys, "checkpoints", "show", "tiny")
    assert code == 0 and out.startswith("# tiny\n\nTiny [31mred[0m.\n") and str(home / "tiny") in out


def test_verify(home: Path, capsys: Any) -> None:
    assert run(capsys, "checkpoints", "verify") == (0, "tiny: ok\n", "")
    (home / "tiny" / "config.json").write_text("{}")
    code, out, _ = run(capsys, "checkpoints", "verify", "tiny")
    assert code == 1 and "config.json: missing keys" in out


def test_export_and_import(home: Path, tmp_path: Path, capsys: Any) -> None:
    archive = str(tmp_path / "tiny.zip")
    code, out, _ = run(capsys, "checkpoints", "export", "tiny", archive)
    assert (code, out) == (0, f"tiny: exported to {archive}\n")
    code, out, _ = run(capsys, "checkpoints", "import", archive, "--name", "twin")
    assert (code, out) == (0, f"twin: imported to {home / 'twin'}\n")
    code, _, err = run(capsys, "checkpoints", "import", archive)
    assert code == 2 and "exists already" in err
    run(capsys, "checkpoints", "import", archive, "--into", str(tmp_path / "more"))
    code, out, _ = run(capsys, "checkpoints", "list", "--checkpoints", str(tmp_path / "more"))
    says(out, "tiny: hides", "same name")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["checkpoints", "show", "tniy"], "Did you mean tiny?"),
        (["checkpoints", "verify", "nope"], "no checkpoint or folder is called 'nope'"),
        (["checkpoints", "list", "--checkpoints", "/nowhere"], "/nowhere: expected a checkpoint or a folder"),
        (["checkpoints", "import", "/nowhere.tar"], "/nowhere.tar: expected an archive"),
        (["checkpoints", "import", "/" + "a" * 3000], "can't be read: File name too long"),
        (["train", "no-such-recipe"], "no-such-recipe"),
    ],
)
def test_errors_are_one_line(home: Path, arguments: list[str], expected: str, capsys: Any) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "") and err.startswith("aotlens: ") and expected in err
    assert err.count("\n") == 1 and err.endswith("\n")


@pytest.mark.parametrize("arguments", [["nonsense"], ["checkpoints", "show"], ["checkpoints", "list", "--nope"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Any) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "") and "--help" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["checkpoints", "train", "--version"]),
        (["checkpoints"], ["list", "show", "verify", "import", "export"]),
        (["checkpoints", "list"], ["--json", "--checkpoints DIR", "AOTLENS_HOME"]),
        (["checkpoints", "import"], ["--name", "--into", ".tar.gz"]),
        (["train"], ["--device", "--resume", "--corpus", "--out", "--seed", "torchrun"]),
    ],
)
def test_help(arguments: list[str], expected: list[str], capsys: Any) -> None:
    code, out, err = run(capsys, *arguments, "--help")
    assert (code, err) == (0, "") and all(word in out for word in expected)
    assert out.isascii(), "no boxes"


def test_train_hands_its_options_on(home: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, Any] = {}

    def run_recipe(recipe: str, **options: Any) -> Path:
        called.update(options, recipe=recipe)
        return Path("out/x")

    monkeypatch.setattr("aotlens.train.run_recipe", run_recipe)
    options = "--corpus dir:x --out o --device cpu --resume --seed 3 --tokens 9 --tokenizer gpt2_bpe:y --rows-at-once 4"
    code, out, _ = run(capsys, "train", "a.toml", *options.split(), "--learning-rate", "0.1")
    assert (code, out) == (0, f"x: saved in {Path('out/x')}\n")
    assert called == {
        "recipe": "a.toml",
        "corpus": "dir:x",
        "out": Path("o"),
        "device": "cpu",
        "resume": True,
        "seed": 3,
        "tokens": 9,
        "learning_rate": 0.1,
        "tokenizer": "gpt2_bpe:y",
        "rows_at_once": 4,
    }


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aotlens", *arguments],
        text=True,
        capture_output=True,
        cwd=ROOT,
        check=False,
        **options,
    )


def test_as_a_module() -> None:
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"aotlens {aotlens.__version__}\n", "")


def test_a_terminal_without_these_letters(home: Path) -> None:
    done = command("checkpoints", "list", env=os.environ | {"PYTHONIOENCODING": "iso8859-5"})
    assert done.returncode == 0 and "1 layer \\xd7 2 heads" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_a_reader_that_leaves_early(home: Path) -> None:
    for i in range(40):  # more than a pipe holds
        shutil.copytree(home / "tiny", home / f"twin{i}")
    script = f"'{sys.executable}' -m aotlens checkpoints list --json | head -c 10 && echo .left"
    done = subprocess.run(["sh", "-c", script], text=True, capture_output=True, cwd=ROOT, check=False)
    assert done.stdout.endswith(".left\n") and done.stderr == ""
