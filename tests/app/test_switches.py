"""Prompts with heads switched off: against `ablate`, against other weights; what is refused; the address of a set."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from aotlens.conventions import FROM_OTHERS
from app.core import Core, address
from app.core.address import Address
from app.core.errors import RequestError
from app.core.settings import Settings
from app.core.switches import HOWS, How
from app.shell.tables import chips
from tests.app.conftest import TEXT as PARAGRAPH
from tests.messages import refused, says

TEXT = "The captain bowed to the captain."
OFF = ((0, 1), (1, 2))


@pytest.fixture(scope="module")
def core(settings: Settings, services: Core, tmp_path_factory: pytest.TempPathFactory) -> Core:
    """With a corpus, whose windows stand in for heads."""
    book = tmp_path_factory.mktemp("corpus") / "book.txt"
    book.write_text(PARAGRAPH * 40, encoding="utf-8")
    return Core.start(Settings(checkpoints=settings.checkpoints, device="cpu", corpora=(f"file:{book}",)))


@pytest.mark.parametrize("how", HOWS)
def test_losses_and_predictions_are_those_of_ablate(core: Core, how: How):
    from aotlens.data import Encoding, open_corpus, spread_windows
    from aotlens.heads import ablate

    model = core.catalog.load("tiny-mhsa").model
    tokens = model.to_tokens(TEXT)
    corpus = open_corpus(core.settings.corpora[0])
    windows = spread_windows(corpus, corpus.names(), Encoding.of(model.tokenizer), 32, tokens.shape[1])
    expected = ablate(model, tokens, OFF, how, reference=windows)
    result = core.inference.analyse("tiny-mhsa", TEXT, off=OFF, how=how, corpus="book.txt")
    losses = core.inference.losses(result)
    assert np.isnan(losses[0])
    np.testing.assert_allclose(losses[1:], expected.ablated_loss_per_token[0], rtol=1e-5)
    assert abs(expected.change) > 1e-5
    assert float(-result.logits[4].log_softmax(-1)[tokens[0, 5]]) == pytest.approx(losses[5], rel=1e-5)


def test_maps_are_those_of_the_model_without_the_heads(core: Core):
    from aotlens.heads import attention_patterns

    lesser = copy.deepcopy(core.catalog.load("tiny-mhsa").model)
    with torch.no_grad():
        for layer, head in OFF:
            lesser.blocks[layer].attn.W_O[head] = 0.0
    result = core.inference.analyse("tiny-mhsa", TEXT, off=OFF[::-1])
    np.testing.assert_allclose(result.patterns.pattern, attention_patterns(lesser, TEXT).pattern, atol=1e-6)
    torch.testing.assert_close(result.logits, lesser(lesser.to_tokens(TEXT))[0].detach())
    whole = core.inference.analyse("tiny-mhsa", TEXT)
    assert whole.key != result.key and not np.allclose(whole.patterns.pattern[1], result.patterns.pattern[1])
    assert core.inference.analyse("tiny-mhsa", TEXT, off=OFF) is result
    assert core.inference.analyse("tiny-mhsa", TEXT, how="uniform") is whole


def test_another_set_reads_the_corpus_no_more(core: Core, monkeypatch: pytest.MonkeyPatch):
    core.inference.analyse("tiny-mhsa", TEXT, off=OFF, how="mean", corpus="book.txt")
    monkeypatch.setattr("aotlens.data.spread_windows", None)
    monkeypatch.setattr("aotlens.heads.HeadSwitches", None)
    core.inference.analyse("tiny-mhsa", TEXT, off=OFF[:1], how="mean", corpus="book.txt")


def test_a_model_that_was_let_go_and_loaded_again_is_switched_too(settings: Settings, services: Core):
    core = Core.start(Settings(checkpoints=settings.checkpoints, device="cpu", max_models=1))
    first = core.catalog.load("tiny-mhsa").model
    core.inference.analyse("tiny-mhsa", TEXT, off=OFF[:1])
    core.inference.analyse("tiny-mssa", TEXT)
    assert core.catalog.load("tiny-mhsa").model is not first
    again = core.inference.analyse("tiny-mhsa", TEXT, off=OFF).logits
    torch.testing.assert_close(again, services.inference.analyse("tiny-mhsa", TEXT, off=OFF).logits)
    assert not torch.allclose(again, services.inference.analyse("tiny-mhsa", TEXT).logits)


def test_what_cannot_be_is_refused(core: Core):
    with refused("head 2.0", error=RequestError):
        core.inference.analyse("tiny-mhsa", TEXT, off=((2, 0),))
    for how in FROM_OTHERS:
        with pytest.raises(RequestError, match="choose a corpus"):
            core.inference.analyse("tiny-mhsa", TEXT, off=OFF, how=how)
    with refused("'nowhere'", error=RequestError):
        core.inference.analyse("tiny-mhsa", TEXT, off=OFF, how="mean", corpus="nowhere")


def test_a_corpus_without_such_a_window_is_named(settings: Settings, services: Core, tmp_path: Path):
    (tmp_path / "short.txt").write_text("captain", encoding="utf-8")
    core = Core.start(
        Settings(checkpoints=settings.checkpoints, device="cpu", corpora=(f"file:{tmp_path / 'short.txt'}",))
    )
    with refused("short.txt", "no window", error=RequestError):
        core.inference.analyse("tiny-mhsa", PARAGRAPH[:60], off=OFF, how="mean", corpus="short.txt")


@dataclass(frozen=True, kw_only=True)
class TwoSides:
    left: str | None = address.checkpoint()
    off: tuple[tuple[int, int], ...] = address.heads("left")


def test_a_set_of_heads_stands_in_an_address(services: Core):
    declared = Address("compare", TwoSides)
    state = TwoSides(left="tiny-mhsa", off=((0, 2), (1, 0)))
    assert declared.format(state) == "/compare?left=tiny-mhsa&off=0.2%2C1.0"
    assert declared.parse("?left=tiny-mhsa&off=1.0,0.2,1.0") == state
    assert declared.browser()["off"]["inner"] == "."
    assert declared.parse("?off=1.0,x").off == () and declared.parse("?off=").off == ()
    found, said = declared.read("?left=tiny-mhsa&off=1.0,2.0", services)
    assert found.off == ((1, 0),)
    (sentence,) = said
    says(sentence, "off=1.0,2.0", "2 layers of 3 heads", "1.0 was taken")


def test_tokens_are_shaded_by_their_losses():
    tokens = chips(["a", " ", "b"], [float("nan"), -1.0, 4.0], ["", "less", "more"], token_ids=[5, 6, 7])["chips"]
    assert [(chip["value"], chip["heat"]) for chip in tokens] == [("", 0), ("−1.00", 25.0), ("4.00", 100.0)]
    assert "chip-negative" in tokens[1]["class"] and tokens[2]["title"].endswith("id 7 · position 2 · more")
