"""What README.md says of the bundled checkpoints is what their cards say, and its example runs."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from aotlens.checkpoints import bundled_folder, read_info
from aotlens.train import list_recipes, load_recipe

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


pytestmark = pytest.mark.usefixtures("real_bundled_folder")


def test_the_table_has_every_bundled_checkpoint_with_its_own_figures() -> None:
    rows = {
        cells[0].strip("`"): cells
        for line in README.splitlines()
        if line.startswith("| `")
        for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    }
    names = {path.parent.name for path in bundled_folder().glob("*/config.json")}
    assert names <= set(rows)
    for name in names:
        info = read_info(bundled_folder() / name)
        _, shape, tokens, loss, bigram, *_ = rows[name]
        assert shape.startswith(f"{info.model['n_layers']} × {info.model['n_heads']}, ")
        assert tokens == f"{info.tokens_seen / 1e6:.1f}M"
        measures = (
            ("masked_loss", "unigram_loss") if "masked_loss" in info.metrics else ("validation_loss", "bigram_loss")
        )
        assert [loss, bigram] == [f"{info.metrics[measure]:.3f}" for measure in measures]


def test_the_examples_run() -> None:
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) >= 2
    printed = io.StringIO()
    namespace: dict[str, object] = {}
    with contextlib.redirect_stdout(printed):
        for example in examples:  # each goes on from the one before
            exec(compile(example, "README.md", "exec"), namespace)
    assert "induction" in printed.getvalue() and "nan" not in printed.getvalue().lower()


def test_the_recipe_is_one(tmp_path: Path) -> None:
    (recipe,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "tiny.toml"
    path.write_text(recipe)
    assert load_recipe(path).model_config(512).attention == "mssa"


def test_the_commands_name_recipes_that_exist() -> None:
    named = re.findall(r"aotlens train ([a-z0-9-]+) ", README)
    assert named and set(named) <= set(list_recipes())


def test_the_picture_is_there() -> None:
    (path,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    picture = Path(__file__).resolve().parents[1] / path
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and picture.stat().st_size < 300 * 1024
