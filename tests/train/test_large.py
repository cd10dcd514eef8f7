"""What large models need: gradients added up over passes, activations computed again, GPT-2's tokens, a dry run."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import read_info
from aotlens.cli import main
from aotlens.data import Document, TokenFile, Tokenizer
from aotlens.data.corpus import is_held_out
from aotlens.models import ModelConfig, count_parameters, presets
from aotlens.train import (
    CorpusRecipe,
    Recipe,
    Stage,
    TrainingData,
    dry_run,
    load_recipe,
    prepare,
    run_recipe,
    train,
)
from aotlens.train.loop import add_gradients
from aotlens.train.objectives import NextToken
from tests.messages import refused, says
from tests.small_models import maker

TABLE_4 = ("aot-mssa-l-base", "aot-mssa-l-medium", "aot-mhsa-l-base", "gpt2-base")
SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 2, "d_head": 6, "n_ctx": 16}


def _recipe(**changes: object) -> Recipe:
    stage = Stage(tokens=1000, batch_size=7, sequence_length=16)
    return Recipe(**{"name": "x", "model": SIZES, "stages": (stage,), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("at_once", [1, 3, 7, 20])
def test_gradients_of_passes_add_up_to_those_of_the_batch(at_once: int):
    rows = torch.randint(11, (7, 8), generator=torch.Generator().manual_seed(3))
    whole, parts = (maker()(torch.float64, d_mlp=9) for _ in range(2))
    expected = whole(rows, return_type="loss")
    expected.backward()
    loss = add_gradients(parts, rows, None, _recipe(rows_at_once=at_once))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    for (name, ours), theirs in zip(parts.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name, rtol=1e-10, atol=1e-12)


def test_a_run_in_passes_ends_with_the_same_weights(recipe_path: Path, data: TrainingData, tmp_path: Path):
    recipe = load_recipe(recipe_path)
    stage = dataclasses.replace(recipe.stages[1], tokens=1024)
    recipe = dataclasses.replace(recipe, stages=(stage,), log_tokens=10**9, evaluate_tokens=10**9, save_tokens=10**9)
    folders = [
        train(dataclasses.replace(recipe, rows_at_once=n), data, tmp_path / str(n), device="cpu", stop_after_steps=3)
        for n in (None, 3)
    ]  # stopped before the end, where much would be measured
    one, several = (aotlens.load(folder, device="cpu").state_dict() for folder in folders)
    for name, weights in one.items():
        torch.testing.assert_close(several[name], weights, msg=name, rtol=1e-4, atol=1e-5)
    assert "rows_at_once" not in read_info(folders[0]).recipe and read_info(folders[1]).recipe["rows_at_once"] == 3


@pytest.mark.parametrize("changes", [{}, {"attention": "mssa", "positions": "qk"}, {"d_mlp": 9}])
def test_activations_computed_again_give_the_same_gradients(changes: dict[str, object]):
    rows = torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(3))
    model = maker()(torch.float64, **changes)
    losses, gradients, calls = [], [], []
    model.blocks[0].register_forward_pre_hook(lambda *_: calls.append(None))
    for again in (False, True):
        model.recompute_activations = again
        model.zero_grad()
        losses.append(model(rows, return_type="loss"))
        losses[-1].backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    assert len(calls) == 3, "the block ran again in the second backward pass, or nothing was tested"
    torch.testing.assert_close(losses[1], losses[0], rtol=0, atol=0)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


def _gpt2_files(folder: Path) -> Path:
    """A small vocabulary in the two files of GPT-2's: token to id, and merges, best first."""
    folder.mkdir()
    trained = json.loads(Tokenizer.train(["the cat sat on the mat, the rat sat on the cat " * 3], 265).to_json())
    vocabulary = trained["model"]["vocab"] | {"<|endoftext|>": 0}
    (folder / "encoder.json").write_text(json.dumps(vocabulary))
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in trained["model"]["merges"]]
    (folder / "vocab.bpe").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    return folder


def test_gpt2s_tokens_are_used_as_they_are(corpus: str, tmp_path: Path):
    files = _gpt2_files(tmp_path / "bpe")
    recipe = CorpusRecipe(tokenizer=f"gpt2_bpe:{files}", d_vocab=265, validation=("c",))
    data = prepare(recipe, corpus, home=tmp_path)
    expected = Tokenizer.from_gpt2_files(files / "encoder.json", files / "vocab.bpe")
    assert data.tokenizer.to_json() == expected.to_json()
    text = expected.decode(data.train.tokens[1:200].tolist())
    assert text.startswith("The grey cat number 0 ran. The red fox")
    (files / "encoder.json").rename(files / "vocab.json")
    (files / "vocab.bpe").rename(files / "merges.txt")  # the names on the hub
    assert prepare(recipe, corpus, home=tmp_path).train.path == data.train.path
    for tokenizer, d_vocab, message in (
        ("gpt2_bpe", 265, "give it with --tokenizer"),
        ("bert:x", 265, "expected gpt2_bpe:FOLDER"),
        (f"gpt2_bpe:{tmp_path}", 265, "found neither pair"),
        (f"gpt2_bpe:{files}", 300, "has 265 tokens, but the recipe's .* d_vocab = 300"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(CorpusRecipe(tokenizer=tokenizer, d_vocab=d_vocab), corpus, home=tmp_path)


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set of 40 rows, which `datasets` streams from a folder as it would from the hub."""
    pytest.importorskip("datasets", reason="needs datasets: pip install 'aotlens[hf]'")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "stream"
    folder.mkdir()
    rows = [{"text": f"the cat number {n} sat on the mat"} for n in range(40)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return f"hf:{folder}"


def test_a_stream_is_read_once(stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    passes: list[None] = []
    rows = aotlens.data.sources.dataset_rows

    def counted(*args: object):
        passes.append(None)
        return rows(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("aotlens.data.sources.dataset_rows", counted)
    files = _gpt2_files(tmp_path / "bpe")
    recipe = CorpusRecipe(tokenizer=f"gpt2_bpe:{files}", d_vocab=265, validation=0.2, n_documents=30)
    data = prepare(recipe, stream, home=tmp_path)
    names = [str(n) for n in range(30)]
    assert data.validation.document_names == tuple(name for name in names if is_held_out(name, 0.2))
    assert data.train.document_names == tuple(name for name in names if not is_held_out(name, 0.2))
    documents = [Document(name, f"the cat number {name} sat on the mat") for name in data.train.document_names]
    built = TokenFile.build(documents, data.tokenizer, tmp_path / "one.bin")
    np.testing.assert_array_equal(built.tokens, data.train.tokens)
    assert len(passes) == 1 and prepare(recipe, stream, home=tmp_path).sha256 == data.sha256 and len(passes) == 1
    assert sorted(path.name for path in data.train.path.parent.iterdir()) == [
        "tokenizer.json",
        "train.bin",
        "validation.bin",
    ]


def test_a_stream_that_leaves_a_side_empty_writes_nothing(stream: str, tmp_path: Path):
    files = _gpt2_files(tmp_path / "bpe")
    recipe = CorpusRecipe(tokenizer=f"gpt2_bpe:{files}", d_vocab=265, validation=("99",))
    with refused("documents", "none"):
        prepare(recipe, stream, home=tmp_path)
    assert not list((tmp_path / "tokens").rglob("*.bin*"))
    with refused("beginning"):
        prepare(CorpusRecipe(n_documents=3), f"file:{files / 'vocab.bpe'}", home=tmp_path)


def test_a_card_names_no_folder(corpus: str, tmp_path: Path, recipe_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(NextToken, "final_metrics", lambda *of: {})  # which take longer than the rest
    files = _gpt2_files(tmp_path / "secret")
    path = tmp_path / "tiny.toml"
    path.write_text(recipe_path.read_text().replace("d_vocab = 280", "d_vocab = 265"))
    folder = run_recipe(
        str(path), corpus=corpus, out=tmp_path / "out", device="cpu", tokens=256, tokenizer=f"gpt2_bpe:{files}",
        rows_at_once=4,
    )  # fmt: skip
    assert "secret" not in (folder / "config.json").read_text() + (folder / "card.md").read_text()
    info = read_info(folder)
    assert info.recipe["corpus"]["tokenizer"] == "gpt2_bpe"
    assert info.command.endswith("--tokenizer gpt2_bpe:FOLDER --tokens 256 --rows-at-once 4")


@pytest.mark.parametrize("name", TABLE_4)
def test_table_4s_recipes_are_its_models(name: str):
    """The paper's models, but for the rows of padding in the token table."""
    recipe = load_recipe(name)
    padded = ModelConfig.from_dict({**recipe.model_config(50_257).to_dict(), "d_vocab": 50_304})
    assert padded == presets.config(name)
    assert recipe.corpus.d_vocab == 50_257 and recipe.stages[0].batch_size * 1024 == 491_520
    padding = 47 * padded.d_model
    assert count_parameters(recipe.model_config(50_257), "table_4") == presets.count_parameters(name) - padding


@pytest.mark.parametrize("changes", [{}, {"recompute_activations": True}])
def test_a_dry_run_counts_and_measures(changes: dict[str, object]):
    recipe = _recipe(corpus=CorpusRecipe(d_vocab=300), rows_at_once=4, **changes)
    run = dry_run(recipe, device="cpu")
    assert run.parameters == count_parameters(recipe.model_config(300))
    assert run.state_bytes == 16 * run.parameters and run.rows_of_a_pass == run.rows_measured == 4
    assert run.tokens_per_second == pytest.approx(recipe.total_tokens / run.seconds)
    per_pass = run.pass_seconds / (4 * 16)
    assert run.seconds == pytest.approx(recipe.total_tokens * per_pass + recipe.n_steps * run.optimiser_seconds)
    logits = 4 * 15 * 300 * 4  # kept for the loss, float32
    assert run.activation_bytes > logits
    says(run.text, "2 passes of up to 4", "tokens a second", "days")
    if changes:
        assert run.activation_bytes < dry_run(_recipe(corpus=recipe.corpus, rows_at_once=4)).activation_bytes


def test_a_dry_run_of_a_model_without_room_is_refused_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys.modules[dry_run.__module__], "memory_bytes", lambda device: 24 * 2**30)
    model = {"n_layers": 96, "d_model": 6144, "n_heads": 96, "d_head": 64, "n_ctx": 1024}
    stage = Stage(tokens=10_000, batch_size=1, sequence_length=1024)
    recipe = _recipe(corpus=CorpusRecipe(d_vocab=256_000), model=model, stages=(stage,))
    parameters = count_parameters(recipe.model_config(256_000))
    with refused("x: ", f"{parameters:,} parameters take 26", "24.0 GiB", "larger machine"):
        dry_run(recipe, device="cpu")


def test_a_dry_run_of_a_masked_model(tmp_path: Path):
    model = {**SIZES, "causal": False}
    run = dry_run(_recipe(corpus=CorpusRecipe(d_vocab=300), model=model, objective="masked"), device="cpu")
    assert run.parameters == count_parameters(ModelConfig(**SIZES, causal=False, d_vocab=301))


def test_rows_at_once_is_at_least_one():
    with refused("rows_at_once=0", "from 1"):
        _recipe(rows_at_once=0)


def test_the_command_prints_a_dry_run_and_trains_nothing(
    recipe_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(recipe_path), "--dry-run", "--device", "cpu", "--rows-at-once", "2"])
    out = capsys.readouterr().out
    assert not stopped.value.code and not (tmp_path / "home").exists()
    says(out, "tiny on CPU", "parameters: ", "4 passes of up to 2")
