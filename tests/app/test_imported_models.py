"""Models that others saved, in the app: ids as a prompt, and what is said of a model with MLPs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from playwright.sync_api import expect

from aotlens.checkpoints import import_external
from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views import family
from aotlens.views.circuits import CIRCUIT
from aotlens.views.paths import SOURCES, notes
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.factory import create_app
from app.pages.checkpoints.address import ADDRESS as CHECKPOINTS
from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.paths import PAGE as PATHS
from app.shell.view_service import Views
from tests.app.conftest import TEXT, serve
from tests.data.layouts import LAYOUTS
from tests.interop.external.conftest import noisy
from tests.messages import says

#: What the Heads page calls the tokens of "the Cat", by the layout of the tokenizer's file.
LAYOUTS_SHOWN = {
    "Llama 2": ("<s>", " the", " ", "C", "at"),
    "Qwen 2": ("<|endoftext|>", "the", " ", "C", "at"),
    "BERT": ("[CLS]", " the", " cat"),
    "ALBERT": ("[CLS]", " the", " cat"),
}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    """`task`, of ids without a tokenizer, and `gpt2`, with MLPs; nothing is bundled."""
    folder, home = tmp_path_factory.mktemp("theirs"), tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(home))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, n_ctx=16, d_vocab=20, bias=True)
        torch.save(AttentionOnlyTransformer(cfg).state_dict(), folder / "task.pt")
        said = {"positional_embedding_type": "standard", "attention_dir": "causal"}
        import_external(folder / "task.pt", name="task", config=said)
        sizes = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=48, vocab_size=300)
        noisy(transformers.GPT2LMHeadModel(sizes)).save_pretrained(folder / "gpt2")
        (folder / "gpt2" / "tokenizer.json").write_text(Tokenizer.train([TEXT * 3], 300).to_json(), encoding="utf-8")
        import_external(folder / "gpt2", name="gpt2")
        for name in LAYOUTS_SHOWN:
            sizes = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=32, vocab_size=340)
            noisy(transformers.GPT2LMHeadModel(sizes)).save_pretrained(folder / name)
            (folder / name / "tokenizer.json").write_text(LAYOUTS[name]().to_str(), encoding="utf-8")
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the tokenizer is lossy")
                import_external(folder / name, name=name.replace(" ", "-"))
        torch.save(AttentionOnlyTransformer(cfg).state_dict(), folder / "mapped.pt")
        import_external(folder / "mapped.pt", name="mapped", config=cfg, key_map={})
        yield Core.start(Settings(device="cpu"))


@pytest.fixture(scope="module")
def address(services: Core) -> Iterator[str]:
    with serve(create_app(Settings(device="cpu"), services)) as address:
        yield address


def test_ids_are_a_prompt(services: Core) -> None:
    result = services.inference.analyse("task", "[12 7 7 3]")
    assert result.patterns.tokens.tolist() == [12, 7, 7, 3]
    assert result.patterns.str_tokens == ("12", "7", "7", "3")
    model = services.catalog.load("task").model
    np.testing.assert_allclose(result.logits, model(torch.tensor([[12, 7, 7, 3]]))[0].detach(), atol=1e-6)
    for text in ("[12 20]", "the cat"):
        with pytest.raises(RequestError):
            services.inference.analyse("task", text)


@pytest.mark.parametrize("name", LAYOUTS_SHOWN)
def test_tokens_have_labels_in_other_layouts(services: Core, name: str) -> None:
    patterns = services.inference.analyse(name.replace(" ", "-"), "the Cat").patterns
    assert patterns.str_tokens == LAYOUTS_SHOWN[name]


def test_a_model_that_reads_no_words_opens_on_its_own_tokens_twice(services: Core) -> None:
    tokens = services.inference.analyse("task", services.inference.opening("task", None)).patterns.tokens.tolist()
    half = len(tokens) // 2
    assert half > 1 and tokens[:half] == tokens[half:] and len(set(tokens)) > 1


def test_what_a_model_with_mlps_leaves_out_is_said(services: Core) -> None:
    paths = Views(services, family("paths"))
    params = paths.values({"checkpoint": "gpt2", "text": "The captain bowed"})
    sources = paths.workshop.result(SOURCES, params)
    assert sources.residual.within_tolerance and sources.names[2:4] == ("mlp_0", "mlp_1")
    says(notes(params), "MLPs (d_mlp = 64)")
    circuits = Views(services, family("circuits"))
    circuit = circuits.workshop.result(CIRCUIT, circuits.values({"checkpoint": "gpt2", "head": [1, 0]}))
    says(circuit.relative, "MLP", "layer 1")


def test_an_import_that_nothing_was_compared_with_says_so_in_the_browser(open_page) -> None:
    page = open_page(CHECKPOINTS.to(checkpoint="mapped"))
    expect(page.locator("body")).to_contain_text("UNCHECKED: ")
    page = open_page(CHECKPOINTS.to(checkpoint="gpt2"))
    expect(page.locator("body")).to_contain_text("largest difference to the logits of transformers")


def test_ids_in_the_browser(open_page) -> None:
    page = open_page(HEADS.format(HeadsState(checkpoint="task", text="[12 7 7 3]")))
    expect(page.locator("#heads-strip .chip")).to_have_text(["12", "7", "7", "3"])


def test_labels_of_a_sentencepiece_tokenizer_in_the_browser(open_page) -> None:
    page = open_page(HEADS.format(HeadsState(checkpoint="Llama-2", text="the Cat")))
    expect(page.locator("#heads-strip .chip")).to_have_text(["<s>", "·the", "·", "C", "at"])


def test_paths_of_a_model_with_mlps_in_the_browser(open_page) -> None:
    page = open_page(PATHS.address.to(checkpoint="gpt2", text="The captain bowed"))
    expect(page.locator("body")).to_contain_text("This model has MLPs (d_mlp = 64)")
    expect(page.locator("body")).to_contain_text("token + position + mlp_0 + mlp_1 + bias")
