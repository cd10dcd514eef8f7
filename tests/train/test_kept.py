"""No training is lost: data are checked before it, and whatever fails after it, the weights are kept. Any corpus of the
user's trains a bundled recipe."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import aotlens
from aotlens.checkpoints import list_checkpoints, verify
from aotlens.cli import main
from aotlens.train import (
    OBJECTIVES,
    Recipe,
    TrainingData,
    TrainingError,
    list_recipes,
    load_recipe,
    loop,
    prepare,
    run_recipe,
    train,
)
from aotlens.train.objectives import NextToken, language
from tests.cases import mostly_long
from tests.messages import refused

from .conftest import N_STEPS

_SENTENCES = [f"The {animal} number {i} ran to the wood. " for i in range(50) for animal in ("cat", "fox")]
_DOCS = Path(__file__).parents[2] / "docs"


def _no_step(*args: object) -> torch.Tensor:
    raise AssertionError("a step was made")


def _docs_recipe(folder: Path) -> Path:
    """The recipe `tiny` of the page on commands."""
    path = folder / "tiny.toml"
    path.write_text((_DOCS / "commands.md").read_text("utf-8").split("```toml\n")[1].split("```")[0])
    return path


def test_three_thousand_characters_become_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    (tmp_path / "own.txt").write_text("".join(_SENTENCES)[:3000])
    corpus = f"file:{tmp_path / 'own.txt'}"
    folder = run_recipe(str(_docs_recipe(tmp_path)), corpus=corpus, device="cpu", tokens=4096)
    model = aotlens.load(folder, "cpu")
    with (folder / "metrics.jsonl").open() as lines:
        assert "validation_loss" in list(lines)[-1]
    data = NextToken.prepare(load_recipe(tmp_path / "tiny.toml"), corpus)
    held_out = torch.as_tensor(data.validation.tokens[:].astype(int))  # fewer than a row of 128
    assert model.card.metrics["validation_tokens"] == len(held_out) - 1 < 127
    with torch.no_grad():
        logits = model(held_out[None])
    own = torch.nn.functional.cross_entropy(logits[0, :-1].double(), held_out[1:])
    assert model.card.metrics["validation_loss"] == pytest.approx(float(own), abs=1e-6)


_LATE = {
    "the last validation": (NextToken, "running_metrics"),
    "the final figures": (NextToken, "final_metrics"),
    "the bigram model": (language.BigramModel, "fit"),
    "repeated tokens": (language, "repeat_losses"),
    "the best heads": (language, "_best_heads"),
}


@pytest.mark.parametrize("stage", mostly_long([*_LATE, "the card", "the bar"], ("the final figures", "the bar")))
def test_whatever_fails_after_training_the_weights_are_kept(
    stage: str, recipe_path: Path, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = dataclasses.replace(load_recipe(recipe_path), evaluate_tokens=10**9, save_tokens=10**9)
    out = tmp_path / "tiny"

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("out of memory")

    def fails_for_figures(*args: Any) -> Any:
        if "bigram_loss" in args[-1]:
            raise RuntimeError("out of memory")
        return info(*args)

    def ends(done: int, total: int) -> None:
        if done == total:
            raise BrokenPipeError("out of memory")

    info = loop.make_info
    with monkeypatch.context() as patch, refused("out of memory", out, "--resume", error=TrainingError):
        if stage in _LATE:
            patch.setattr(*_LATE[stage], fails)
        elif stage == "the card":
            patch.setattr(loop, "make_info", fails_for_figures)
        train(recipe, data, out, device="cpu", progress=ends if stage == "the bar" else None)
    kept = aotlens.load(out, "cpu")
    assert verify(out) == [] and kept.card.tokens_seen == N_STEPS * 256
    weights = kept.state_dict()
    assert not any(torch.equal(weights[name], value) for name, value in _initial(recipe, data).items())
    monkeypatch.setattr(loop, "_update", _no_step)
    train(recipe, data, out, device="cpu", resume=True)  # which has nothing left but to measure
    model = aotlens.load(out, "cpu")
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert {"validation_loss", "bigram_loss", "heads"} <= set(model.card.metrics)
    assert [line["step"] for line in model.card.history()] == list(range(1, N_STEPS + 1))
    assert "validation_loss" in model.card.history()[-1]


def _initial(recipe: Recipe, data: TrainingData) -> dict[str, torch.Tensor]:
    return {name: value for name, value in NextToken(recipe, data).make_model().state_dict().items() if "W_" in name}


def test_what_fails_midway_keeps_the_weights_of_that_step(
    recipe_path: Path, data: TrainingData, tmp_path: Path
) -> None:
    def fails(done: int, total: int) -> None:
        if done == 6 * 256:
            raise BrokenPipeError("the terminal is gone")

    with refused("step 6", "the terminal is gone", error=TrainingError):
        train(load_recipe(recipe_path), data, tmp_path / "tiny", device="cpu", progress=fails)
    assert aotlens.load(tmp_path / "tiny", "cpu").card.tokens_seen == 6 * 256


def test_what_cannot_be_kept_or_measured_is_refused_before_training(
    recipe_path: Path, corpus: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_update", _no_step)
    recipe = load_recipe(recipe_path)
    (tmp_path / "file").write_text("")
    data = prepare(recipe.corpus, corpus, home=home)
    with refused("file", "could not be written"):
        train(recipe, data, tmp_path / "file" / "tiny", device="cpu")
    (tmp_path / "texts").mkdir()
    for name in ("a", "c", "d\x1b[31m"):
        (tmp_path / "texts" / f"{name}.txt").write_text("".join(_SENTENCES))
    for held_out, text, parts in (
        ("d\x1b[31m", "".join(_SENTENCES), ("control characters", "001B")),  # which a card can't hold
        ("c", "", ("validation.bin", "at least 2 tokens")),
    ):
        (tmp_path / "texts" / f"{held_out}.txt").write_text(text or "\ufeff")
        path = tmp_path / "own.toml"
        path.write_text(recipe_path.read_text().replace('["c"]', f'["{held_out}"]'.replace("\x1b", "\\u001b")))
        own = load_recipe(path)
        with refused(*parts):
            train(own, prepare(own.corpus, f"dir:{tmp_path / 'texts'}", home=home), tmp_path / "out", device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "own.toml", "texts"]


@pytest.fixture
def own_texts(tmp_path: Path) -> Path:
    folder = tmp_path / "MINE"
    folder.mkdir()
    for name in "xyz":
        (folder / f"{name}.txt").write_text(f"About {name}. " + "\n".join(_SENTENCES))
    return folder


def test_any_text_trains_a_bundled_recipe_and_the_app_lists_it(
    own_texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a word of the novels that the recipe was written for."""
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    out = tmp_path / "checkpoints" / "mine"
    with pytest.raises(SystemExit) as ended:
        main(["train", "novels-1l-mhsa", "--corpus", f"dir:{own_texts}", "--tokens", "4096", "--out", str(out)])
    assert not ended.value.code and "not the recipe's own" in capsys.readouterr().err
    [info] = [info for info in list_checkpoints([out.parent]) if info.name == "mine"]
    assert info.problem is None and info.corpus["validation"] == ["x (end)", "y (end)", "z (end)"]
    assert (info.corpus["name"], info.corpus["source"], info.corpus["license"]) == ("dir:PATH", "", "")
    text = (out / "config.json").read_text() + (out / "card.md").read_text()
    for absent in ("English", "Shirley", "public domain", "MINE"):
        assert absent not in text
    model = aotlens.load(out, "cpu")
    assert model.cfg.d_vocab == model.tokenizer.d_vocab == info.recipe["corpus"]["d_vocab"] < 4096
    again = prepare(Recipe.from_dict(info.recipe).corpus, f"dir:{own_texts}")  # from the card alone
    assert again.sha256 == info.corpus["sha256"] and again.tokenizer.to_json() == model.tokenizer.to_json()
    assert list(again.validation.document_names) == info.corpus["validation"]


@pytest.mark.parametrize("name", [name for name in list_recipes() if load_recipe(name).objective == "next_token"])
def test_every_bundled_recipe_of_text_takes_other_texts(name: str, own_texts: Path, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    if recipe.corpus.tokenizer:
        pytest.skip("GPT-2's own tokenizer does not come with aotlens")
    data = prepare(recipe.corpus, f"dir:{own_texts}", home=tmp_path)
    assert len(data.validation) >= 100 and len(data.train) > 15 * len(data.validation)
    OBJECTIVES["next_token"](recipe, data).check_data()


def test_named_documents_are_held_out_as_far_as_the_corpus_has_them(own_texts: Path, tmp_path: Path) -> None:
    recipe, said = load_recipe("novels-1l-mhsa").corpus, []
    (own_texts / "Woolf_Night_1919.txt").write_text("\n".join(_SENTENCES))
    data = prepare(recipe, f"dir:{own_texts}", home=tmp_path, announce=said.append)
    assert data.validation.document_names == ("Woolf_Night_1919",) and data.corpus.source == recipe.source
    assert any("Hardy_Madding_1874" in line for line in said)
    novels = prepare(recipe, "novels", home=tmp_path)  # the held-out ones and no other
    assert len(novels.train.document_names) == 5 and len(novels.validation) < len(novels.train) / 10
    spelled = Recipe.from_dict(load_recipe("code-2l-mhsa").to_dict()).corpus
    assert prepare(spelled, "novels", home=tmp_path).corpus.name == "novels"
