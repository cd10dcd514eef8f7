"""What README and docs show is run: every Python example, every command, with small files in the place of a user's."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from PIL import Image

import aotlens
from aotlens.checkpoints import bundled_folder
from aotlens.cli import main
from aotlens.sweeps import load_sweep
from aotlens.train import list_recipes
from tests.test_structure import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "analyses" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "docs" / "reference" / "index.md",
]
COMMAND = re.compile(
    r"^(?:aotlens|aotlens-app|make|(?:\.venv/bin/)?python3? -m (?:aotlens|app|analyses|benchmarks)\S*)(?: |$)"
)

#: Pages whose examples take a minute or more: `make test-long` runs them.
SLOW_PAGES = {"atlas", "circuits", "distillation", "heads"}
#: Commands that train: their options are checked, and test-long trains the smallest recipe.
TRAINING = ("aotlens train ", "aotlens distill ")
#: Commands that take every head away over a corpus: their options are checked, and test-long runs them.
EVERY_HEAD = ("aotlens atlas ", "aotlens ablate ")

SENTENCES = "Mr. Darnay bowed to the lady, and the lady bowed to Mr. Darnay. It was the best of times, said he.\n"

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


def blocks(page: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def commands() -> Iterator[str]:
    """Those in blocks of commands, and those in a table's cells."""
    lines = {
        line.partition(" #")[0].strip()
        for page in PAGES
        for line in (
            *(line for block in blocks(page, "", "sh") for line in block.splitlines()),
            *re.findall(r"\| `(python -m [^`]+)` \|", page.read_text(encoding="utf-8")),
        )
    }
    yield from sorted(line for line in lines if COMMAND.match(line))


ALL = list(commands())
OURS = [command for command in ALL if command.startswith("aotlens ")]
#: Of these the first example of a page is run, and test-long runs the others, whose options are checked.
DEAR = ("aotlens audit ", "aotlens report ", "aotlens evaluate novels", "aotlens subspaces ")
LONG = [c for c in OURS if (c.startswith(EVERY_HEAD) and "--corpus" in c) or c.startswith("aotlens sweep ")]
LONG += [
    c for c in OURS if "--evidence novels" in c or "dir:PATH" in c or "--outputs 400" in c or "view sufficient" in c
]
LONG += [c for start in DEAR for c in [c for c in OURS if c.startswith(start)][1:]]
SLOW = [c for c in OURS if (c.startswith(TRAINING) or c in LONG) and not c.startswith("aotlens view ")]


def example_page(page: Path) -> Any:
    """A page as a parameter, by its name."""
    marks = [pytest.mark.long] * (page.stem in SLOW_PAGES)
    return pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


def test_the_pages_show_commands() -> None:
    assert len(OURS) > 12 and any(command.startswith("make ") for command in ALL)


@pytest.mark.parametrize("page", [example_page(page) for page in PAGES])
@pytest.mark.slow
def test_the_examples_run(page: Path, files: Path) -> None:
    """Each example goes on from the one before it."""
    namespace: dict[str, Any] = {"__name__": page.stem, **_given(page)}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for example in blocks(page, "python"):
            example = example.replace("dir:PATH", f"dir:{files / 'PATH'}")
            exec(compile(example, str(page), "exec", dont_inherit=True), namespace)
    if page == ROOT / "README.md":
        (stated,) = blocks(page, "text")
        number = re.compile(r"\d+(?:\.\d+)?")
        assert number.sub("#", printed.getvalue()) == number.sub("#", stated)
        figures = [[float(found) for found in number.findall(text)] for text in (printed.getvalue(), stated)]
        assert figures[0] == pytest.approx(figures[1], rel=0.02)


def _given(page: Path) -> dict[str, Any]:
    """What the text around a page's examples gives."""
    if page.stem == "compiling":
        from tests.distill.masked.sequences import masked_sequences

        X, y, _, _ = masked_sequences(7, length=4, d=3, vocabulary=12)
        x = torch.randn(7, 3, dtype=torch.float64)
        return {"X": X, "y": y.double(), "x": x, "v": torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0])}
    if page.stem == "CONTRIBUTING":  # the last example is a line of aotlens/cli.py
        namespace: dict[str, Any] = {"app": typer.Typer()}
        namespace["repeats"] = SimpleNamespace(repeats_command=lambda: None)
        return namespace
    return {}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all commands, so that an atlas is made once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def files(named: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that the commands name, and they run there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTLENS_HOME", str(home))
    return Path(shutil.copytree(named, tmp_path, dirs_exist_ok=True))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands name: a novel, a corpus with held-out documents, a network, a recipe."""
    from safetensors.torch import save_file

    tmp_path = tmp_path_factory.mktemp("named")
    (tmp_path / "NOVEL.txt").write_text(SENTENCES * 60, encoding="utf-8")
    folder = tmp_path / "PATH"
    folder.mkdir()
    held_out = aotlens.checkpoints.read_info(bundled_folder() / "novels-1l-mhsa").recipe["corpus"]["validation"]
    for name in (*held_out, "Another Novel"):
        (folder / f"{name}.txt").write_text(SENTENCES * 400, encoding="utf-8")
    (tmp_path / "lambada_test.jsonl").write_text('{"text": "Mr. Darnay bowed to the lady"}\n' * 3, encoding="utf-8")
    (tmp_path / "wiki.test.raw").write_text(f" \n = Darnay = \n \n {SENTENCES} \n", encoding="utf-8")
    Image.new("L", (40, 28), 90).save(tmp_path / "boot.png")
    _others_models(tmp_path)
    linear = {
        "0.weight": torch.randn(5, 3),
        "0.bias": torch.zeros(5),
        "2.weight": torch.randn(2, 5),
        "2.bias": torch.zeros(2),
    }
    save_file(linear, tmp_path / "FFN.safetensors")
    written = []
    for block in (block for page in PAGES for block in blocks(page, "toml")):
        named = re.match(r"# (\S+\.toml)\n", block)
        if named:
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
        else:
            written.append(block)
    (recipe,) = (block for block in written if "[[stages]]" in block)
    (sweep,) = (block for block in written if "[[analyses]]" in block)
    (tmp_path / "SWEEP.toml").write_text(sweep, encoding="utf-8")
    for name in ("my-recipe.toml", "tiny.toml"):
        (tmp_path / name).write_text(recipe, encoding="utf-8")
    return tmp_path


def _others_models(folder: Path) -> None:
    """A GPT-2 as Hugging Face saves it, and a state dict by TransformerLens's names."""
    import transformers

    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=8, vocab_size=11)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder / "GPT2_FOLDER")
    cfg = aotlens.ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, n_ctx=8, d_vocab=6, bias=True)
    state = aotlens.models.AttentionOnlyTransformer(cfg).state_dict()
    torch.save(state, folder / "sums.pth")


def _words(command: str) -> list[str]:
    return shlex.split(command, comments=True)[1:]


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[pytest.mark.long] * (c in LONG)) for c in OURS if not c.startswith(TRAINING)],
)
@pytest.mark.slow
def test_commands_run(command: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(_words(command))
    captured = capsys.readouterr()
    assert not stopped.value.code, captured.err
    assert captured.out


@pytest.mark.parametrize("command", SLOW)
def test_slow_commands_name_what_there_is(command: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, what, *options = _words(command)
    with pytest.raises(SystemExit):
        main([name, "--help"])
    text = capsys.readouterr().out
    assert all(option in text for option in options if option.startswith("--"))
    assert what in {path.name for path in bundled_folder().iterdir()} | set(list_recipes()) or Path(what).is_file()


def test_the_sweeps_shown_are_sweeps(files: Path) -> None:
    shown = [path for path in files.glob("*.toml") if "[[analyses]]" in path.read_text(encoding="utf-8")]
    assert {load_sweep(path).n_cells for path in shown} >= {3, 9, 16} and len(shown) >= 3


@pytest.mark.long
@pytest.mark.parametrize("command", ["aotlens train tiny.toml --out tiny"])
def test_a_recipe_trains(command: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(_words(command))
    assert not stopped.value.code and aotlens.checkpoints.verify(files / "tiny") == []


@pytest.mark.parametrize("command", [c for c in ALL if not c.startswith("aotlens ")])
def test_other_commands_name_what_there_is(command: str) -> None:
    words = _words(command)
    if command.startswith("make"):
        target = re.compile(rf"^{re.escape(words[0])}:", re.MULTILINE)
        assert target.search((ROOT / "Makefile").read_text(encoding="utf-8"))
        return
    module, *arguments = words[1:] if words[:1] == ["-m"] else ("app", *words)
    options = [word for word in arguments if word.startswith("--")]
    if module in ("analyses", "benchmarks") and arguments and not arguments[0].startswith("-"):
        module = f"{module}.{arguments[0]}"
    assert importlib.util.find_spec(module) is not None, module
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / module.partition(".")[0]).glob("*.py")]
    assert all(any(f'"{option}"' in source for source in sources) for option in options), command


def docstring_examples() -> Iterator[Any]:
    """The docstrings of the library that show a session (`>>>`)."""
    for path in sorted((ROOT / "aotlens").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ">>>" in (
                ast.get_docstring(node) or ""
            ):
                name = f"{path.relative_to(ROOT)}:{getattr(node, 'name', '')}"
                yield pytest.param(ast.get_docstring(node), id=name)


@pytest.mark.parametrize("docstring", list(docstring_examples()))
def test_sessions_in_docstrings_print_what_they_show(docstring: str) -> None:
    names = {"aotlens": aotlens, "model": aotlens.load("novels-2l-mhsa")}
    session = doctest.DocTestParser().get_doctest(docstring, names, "docstring", None, None)
    assert session.examples
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session).failed == 0


def test_pages_link_to_files_that_are_there() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not missing


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110
