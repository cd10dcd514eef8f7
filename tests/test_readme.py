"""What the pages say of the bundled checkpoints and recipes is what their files say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aotlens.checkpoints import bundled_folder, read_info
from aotlens.train import list_recipes, load_recipe

ROOT = Path(__file__).resolve().parents[1]
README, CHECKPOINTS, COMMANDS = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/checkpoints.md", "docs/commands.md")
)


pytestmark = pytest.mark.usefixtures("real_bundled_folder")


def test_the_table_has_every_bundled_checkpoint_with_its_own_figures() -> None:
    rows = {
        cells[0].strip("`"): cells
        for line in CHECKPOINTS.splitlines()
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
        assert [loss, bigram] == [f"{measured:.3f}" for measured in info.losses]
        if info.words.accuracy:
            assert f"{info.metrics[info.words.accuracy]:.2%}" in rows[name][5]


def test_the_recipe_is_one(tmp_path: Path) -> None:
    (recipe,) = re.findall(r"```toml\n(.*?)```", COMMANDS, re.DOTALL)
    path = tmp_path / "tiny.toml"
    path.write_text(recipe)
    assert load_recipe(path).model_config(512).attention == "mssa"


def test_the_commands_name_recipes_that_exist() -> None:
    named = re.findall(r"aotlens train ([a-z0-9-]+) ", COMMANDS)
    assert named and set(named) <= set(list_recipes())


def test_the_picture_is_there() -> None:
    (path,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    picture = Path(__file__).resolve().parents[1] / path
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and picture.stat().st_size < 300 * 1024
