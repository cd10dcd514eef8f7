"""card.md says in words what config.json says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from aotlens.checkpoints import CheckpointInfo, read_info, render_card


def cells(card: str) -> dict[str, str]:
    """The tables' rows, first column to second."""
    rows = [line.strip("|").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    return {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}


def test_the_card_of_a_saved_model(saved: Path) -> None:
    card = (saved / "card.md").read_text(encoding="utf-8")
    assert card == read_info(saved).card and card.startswith("# small\n\nA model for tests.\n")
    rows = cells(card)
    assert rows["layers"] == "2" and rows["attention"] == "mhsa" and rows["d_vocab"] == "270"
    assert rows["validation loss"] == "4.25" and rows["bigram loss"] == "4.5"
    assert "0.25 nats below a smoothed bigram model's" in card
    assert rows["held out for validation"] == "`rats`" and rows["license"] == "CC0" and rows["sha256"] == "0" * 64
    assert rows["tokens"] == "1,234" and rows["seed"] == "3" and rows["device"] == "a CPU"
    assert rows["stored as"] == "float32" and "torch" in rows["versions"]
    assert "```\naotlens train small\n```" in card and rows["learning_rate"] == "0.001"


def test_which_documents_were_held_out() -> None:
    info = CheckpointInfo(name="a", corpus={"validation": ["rats", "cats"]})
    assert info.held_out(["dogs", "rats", "cats"]) == ("rats", "cats")
    assert info.held_out(["dogs"]) == CheckpointInfo(name="b").held_out(["rats"]) == ()


def test_a_model_worse_than_bigrams_says_so() -> None:
    info = CheckpointInfo(name="m", metrics={"validation_loss": 5.0, "bigram_loss": 4.5})
    assert "0.50 nats above" in render_card(info)


def test_what_is_not_known_is_left_out() -> None:
    card = render_card(CheckpointInfo(name="bare"))
    assert card.startswith("# bare\n\n## Training") and "## Corpus" not in card and "## Figures" not in card


def test_nested_settings_are_readable() -> None:
    recipe = {"stages": [{"tokens": 5, "rate": 0.1}, {"tokens": 6}], "model": {"d_model": 8}, "words": []}
    rows = cells(render_card(CheckpointInfo(name="m", recipe=recipe)))
    assert rows["stages: 1"] == "tokens 5, rate 0.1" and rows["stages: 2"] == "tokens 6"
    assert rows["model: d_model"] == "8" and rows["words"] == "none"


def test_text_does_not_break_the_tables(saved: Path) -> None:
    info = dataclasses.replace(read_info(saved), device="a | b\n\n# c")
    assert "| device | a \\| b # c |" in render_card(info).splitlines()
