"""What is saved comes back bit for bit, for every family of models; the files say what they should."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import aotlens
from aotlens.checkpoints import (
    CheckpointError,
    CheckpointInfo,
    load_folder,
    read_info,
    render_card,
    save_checkpoint,
    verify,
)
from aotlens.data.images import ImageProcessor
from aotlens.data.tokenizer import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

SIZES: dict[str, Any] = dict(n_layers=2, d_model=8, n_heads=2, d_head=4, d_vocab=270, n_ctx=5)
MASK = tuple(tuple(tuple(abs(q - k) < 2 for k in range(5)) for q in range(5)) for _ in range(2))

FAMILIES: dict[str, dict[str, Any]] = {
    "mhsa": {},
    "mssa": {"attention": "mssa"},
    "mssa tied": {"attention": "mssa", "tied_output": True, "step_size": 0.1, "attn_scale": 1.0},
    "no norm": {"norm": None},
    "mlp": {"d_mlp": 16, "act_fn": "gelu_new"},
    "qk positions": {"positions": "qk", "norm": None},
    "no positions": {"positions": None},
    "bias": {"bias": True},
    "mssa bias": {"attention": "mssa", "bias": True},
    "tied embeddings": {"tied_embeddings": True},
    "thresholded": {"phi": "thresholded_softmax", "threshold": 0.3},
    "linear": {"phi": "linear"},
    "not causal": {"causal": False},
    "mask": {"attn_mask": MASK},
    "fixed given": {"phi": "fixed", "fixed_pattern": "given"},
    "fixed random": {"phi": "fixed", "fixed_pattern": "random"},
    "fixed learned": {"phi": "fixed", "fixed_pattern": "learned", "attention": "mssa"},
    "vectors": {"read_in": "vectors", "read_out": "vectors", "d_vocab": None},
    "wide vectors": {"read_in": "vectors", "read_out": "vectors", "d_in": 3, "d_out": 2, "bias": True},
    "images": {
        "read_in": "patches",
        "read_out": "classes",
        "d_out": 3,
        "image_size": 4,
        "patch_size": 2,
        "class_token": True,
        "causal": False,
        "d_vocab": None,
    },
}


def build(changes: dict[str, Any], seed: int = 5) -> AttentionOnlyTransformer:
    cfg = ModelConfig(**(SIZES | changes), seed=seed)
    pattern = torch.rand(2, 2, 5, 5).tril() if cfg.fixed_pattern == "given" else None
    return AttentionOnlyTransformer(cfg, pattern=pattern)


def example(cfg: ModelConfig) -> torch.Tensor:
    if cfg.read_in == "tokens":
        return torch.tensor([[0, 3, 269, 3, 1]])
    return torch.randn(2, 1, 4, 4) if cfg.read_in == "patches" else torch.randn(2, 4, cfg.d_in or cfg.d_model)


@pytest.mark.parametrize("changes", FAMILIES.values(), ids=FAMILIES.keys())
def test_every_family_comes_back_bit_for_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    model = build(changes).eval()
    save_checkpoint(tmp_path / "m", model, CheckpointInfo(name="m"))
    loaded = load_folder(tmp_path / "m", device="cpu")
    assert loaded.cfg == model.cfg
    state, expected = loaded.state_dict(), model.state_dict()
    assert list(state) == list(expected)
    for name, tensor in expected.items():
        assert state[name].dtype == torch.float32
        np.testing.assert_array_equal(state[name].numpy().view(np.int32), tensor.numpy().view(np.int32))
    assert not any(tensor.is_meta for tensor in [*loaded.parameters(), *loaded.buffers()])
    assert [name for name, _ in loaded.named_parameters()] == [name for name, _ in model.named_parameters()]
    x = example(model.cfg)
    # Not bit for bit: where weights lie in memory can change the order in which a product is summed.
    torch.testing.assert_close(loaded(x), model(x), atol=1e-6, rtol=1e-6)


def test_a_loaded_model_is_ready_to_be_read(saved: Path, model: AttentionOnlyTransformer, tokenizer: Tokenizer) -> None:
    loaded = aotlens.load(saved)
    assert not loaded.training and not any(p.requires_grad for p in loaded.parameters())
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.encode("the cat that sat") == tokenizer.encode("the cat that sat")
    assert loaded.unigram_counts is not None and torch.equal(loaded.unigram_counts.cpu(), torch.arange(270))
    assert loaded.card.tokens_seen == 1234 and loaded.card.path == saved and loaded.card.problem is None
    assert loaded.card.history() == [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.5}]
    loaded.requires_grad_(True)  # and to be trained on
    loaded(torch.tensor([[0, 1, 2]]), return_type="loss").backward()
    assert all(p.grad is not None for p in loaded.parameters())


def test_loading_draws_no_random_numbers(saved: Path) -> None:
    before = torch.get_rng_state()
    load_folder(saved, device="cpu")
    assert torch.equal(before, torch.get_rng_state())


def test_the_files_read_without_aotlens(saved: Path, model: AttentionOnlyTransformer) -> None:
    assert sorted(path.name for path in saved.iterdir()) == [
        "card.md",
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "tokenizer.json",
    ]
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    assert config["schema_version"] == 1 and config["model"] == json.loads(json.dumps(model.cfg.to_dict()))
    assert config["corpus"]["validation"] == ["rats"] and config["metrics"]["validation_loss"] == 4.25
    assert config["weights_dtype"] == "float32" and config["versions"]["torch"] == torch.__version__
    for key, file in (("weights_sha256", "model.safetensors"), ("tokenizer_sha256", "tokenizer.json")):
        assert config[key] == hashlib.sha256((saved / file).read_bytes()).hexdigest()
    with safe_open(saved / "model.safetensors", framework="numpy") as weights:
        assert set(weights.keys()) == {*model.state_dict(), "unigram_counts"}
        assert weights.get_tensor("unigram_counts").dtype == np.int64
        np.testing.assert_array_equal(weights.get_tensor("embed.W_E"), model.W_E.detach().numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once_and_loaded_as_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model = build({})
    written = save_checkpoint(tmp_path / "m", model, CheckpointInfo(name="m"), weights_dtype=dtype)
    loaded = load_folder(tmp_path / "m", device="cpu")
    assert written.weights_dtype == loaded.card.weights_dtype == str(dtype).removeprefix("torch.")
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.to(dtype).float())
    again = save_checkpoint(tmp_path / "n", loaded, CheckpointInfo(name="n"), weights_dtype=dtype)
    assert again.weights_sha256 == written.weights_sha256


def test_models_on_other_dtypes_are_stored_as_asked(tmp_path: Path) -> None:
    model = build({})
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_checkpoint(tmp_path / "m", model.double(), CheckpointInfo(name="m"))
    assert model.dtype == torch.float64, "saving must leave the model alone"
    loaded = load_folder(tmp_path / "m", device="cpu").state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())


def test_what_a_save_returns_is_what_is_read(
    model: AttentionOnlyTransformer, info: CheckpointInfo, tmp_path: Path
) -> None:
    written = save_checkpoint(tmp_path / "small", model, info)
    assert read_info(tmp_path / "small") == written
    assert written.n_weights == sum(p.numel() for p in model.parameters())


def test_saving_again_replaces_everything_of_ours_and_nothing_else(
    copy: Path, tmp_path: Path, info: CheckpointInfo
) -> None:
    (copy / "state.bin").write_bytes(b"the training loop's")
    other = build({}, seed=9)  # without a tokenizer
    save_checkpoint(copy, other, info, history=[{"step": 9}])
    loaded = load_folder(copy, device="cpu")
    assert torch.equal(loaded.W_E, other.W_E) and loaded.tokenizer is None and loaded.unigram_counts is None
    assert loaded.card.history() == [{"step": 9}] and verify(copy) == []
    assert (copy / "state.bin").read_bytes() == b"the training loop's"
    assert not [path for path in copy.iterdir() if path.name.startswith(".")]


def test_figures_that_json_lacks_become_null(tmp_path: Path) -> None:
    info = CheckpointInfo(name="m", metrics={"loss": math.nan, "scores": [np.float32(0.5), torch.tensor(math.inf)]})
    save_checkpoint(tmp_path / "m", build({}), info, history=[{"step": np.int64(3), "loss": math.inf}])
    read = read_info(tmp_path / "m")
    assert read.metrics == {"loss": None, "scores": [0.5, None]}
    assert read.history() == [{"step": 3, "loss": None}]


def test_weights_that_are_not_finite_are_not_saved(copy: Path, info: CheckpointInfo) -> None:
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    broken = build({})
    broken.embed.W_E.data[3, 3] = math.nan
    with pytest.raises(CheckpointError, match=r"embed\.W_E.*NaN"):
        save_checkpoint(copy, broken, info)
    large = build({})
    large.embed.W_E.data[3, 3] = 1e30
    with refused("float16", "float32", error=CheckpointError):
        save_checkpoint(copy, large, info, weights_dtype=torch.float16)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name: expected str"),
        ({"seed": True}, "seed: expected int or null"),
        ({"metrics": [1]}, "metrics: expected dict"),
        ({"versions": {"torch": 2}}, "versions"),
        ({"corpus": {"nmae": "x"}}, "corpus: unknown keys 'nmae'"),
        ({"seconds": math.inf}, "seconds"),
        ({"seconds": 10**400}, "seconds"),
        ({"tokens_seen": -1}, "tokens_seen"),
    ],
)
def test_wrong_facts_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        CheckpointInfo.from_config(CheckpointInfo(name="m").to_config() | changes)


def test_how_a_model_of_images_is_fed_comes_back(tmp_path: Path) -> None:
    model = build(FAMILIES["images"])
    processor = ImageProcessor(mean=(0.5,), deviation=(0.1 + 0.2,), classes=("é", "b", "c"), data="made up")
    model.image_processor = processor
    info = save_checkpoint(tmp_path / "m", model, CheckpointInfo(name="m"))
    assert load_folder(tmp_path / "m", "cpu").image_processor == processor
    assert "| classes | é, b, c |" in info.card and "| mean of pixels | 0.5 |" in info.card
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    for change, message in (
        ({"classes": ["a", "b"]}, "1 channels and 3 classes of the model, found 1 and 2"),
        ({"deviation": [0]}, "positive deviations"),
        ({"mean": "x"}, "lists of numbers"),
    ):
        path.write_text(json.dumps(config | {"image_processor": config["image_processor"] | change}))
        with pytest.raises(CheckpointError, match=message):
            load_folder(tmp_path / "m", "cpu")
    del config["image_processor"]
    path.write_text(json.dumps(config))  # as older checkpoints are
    assert load_folder(tmp_path / "m", "cpu").image_processor is None
    text = build({})
    text.image_processor = processor
    with pytest.raises(CheckpointError, match="image_processor: expected an"):
        save_checkpoint(tmp_path / "n", text, CheckpointInfo(name="n"))


def test_what_cannot_be_stored_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    model = build({})
    with pytest.raises(CheckpointError, match="Path"):
        save_checkpoint(tmp_path / "m", model, CheckpointInfo(name="m", recipe={"out": tmp_path}))
    with pytest.raises(CheckpointError, match=r"weights_dtype.*float64"):
        save_checkpoint(tmp_path / "m", model, CheckpointInfo(name="m"), weights_dtype=torch.float64)
    model.unigram_counts = torch.arange(3)
    with pytest.raises(CheckpointError, match=r"unigram_counts.*270"):
        save_checkpoint(tmp_path / "m", model, CheckpointInfo(name="m"))
    other = build({"d_vocab": 300})
    other.tokenizer = tokenizer
    with pytest.raises(CheckpointError, match=r"d_vocab=300.*270"):
        save_checkpoint(tmp_path / "m", other, CheckpointInfo(name="m"))
    assert not (tmp_path / "m").exists()


def test_other_programs_files_are_not_replaced(tmp_path: Path) -> None:
    model = build({})
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text('{"architectures": ["GPT2"]}')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "model.safetensors").write_bytes(b"precious")
    (tmp_path / "c").write_text("a file")
    for name in "abc":
        with pytest.raises(CheckpointError, match=r"expected .* folder"):
            save_checkpoint(tmp_path / name, model, CheckpointInfo(name="m"))
    assert (tmp_path / "b" / "model.safetensors").read_bytes() == b"precious"
    assert len(list((tmp_path / "a").iterdir())) == len(list((tmp_path / "b").iterdir())) == 1


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
