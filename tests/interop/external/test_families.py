"""The first 40 decoder families of `transformers` as folders: each opens as what was saved, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import aotlens
from aotlens.heads import motif_scores
from tests.interop.external.families import D_VOCAB, FIRST, model_of, outcome
from tests.messages import refused

pytestmark = pytest.mark.filterwarnings("ignore")  # of the families' own code
#: One of each kind: a reader's, an adapter of TransformerLens's, one of ours, and none.
QUICK = {"bloom": True, "cwm": True, "cohere2": True, "blenderbot": True, "dots1": True, "blt": False}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.long) for kind in FIRST]
)
def test_a_folder_opens_as_the_model_that_was_saved_or_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    numbers = (torch.bfloat16,) if kind in QUICK else (torch.float32, torch.bfloat16)
    for dtype in numbers:
        for sharded in (True,) if kind in QUICK else (True, False):
            for tied in (False,) if kind == "dbrx" else (True, False):  # its own code refuses a tied one
                row = outcome(tmp_path / "model", kind, tied, dtype, sharded)
                assert row.is_right and (row.error is not None) == (kind != "blt"), row
                assert "UNCHECKED" not in row.message, row


def opened(folder: Path, kind: str) -> tuple[Any, Any, torch.Tensor]:
    theirs = model_of(kind, True)
    theirs.save_pretrained(folder)
    tokens = torch.randint(2, D_VOCAB, (2, 12), generator=torch.Generator().manual_seed(3))
    return aotlens.load(folder, "cpu"), theirs, tokens


@torch.no_grad()
def test_heads_of_a_family_without_an_adapter_are_those_of_its_decoder(tmp_path: Path) -> None:
    """BART counts an encoder's heads (3) as its own, whose decoder has 6."""
    bridge, theirs, tokens = opened(tmp_path, "bart")
    theirs.set_attn_implementation("eager")
    expected = theirs(tokens, output_attentions=True).attentions[0]
    _, cache = bridge.run_with_cache(tokens)
    torch.testing.assert_close(cache["blocks.0.attn.hook_pattern"], expected, rtol=1e-4, atol=1e-5)
    assert len(motif_scores(bridge, tokens).to_frame()["head"]) == 12


@torch.no_grad()
def test_heads_whose_pattern_and_values_are_not_what_they_write_are_not_read(tmp_path: Path) -> None:
    """DiffLlama's heads subtract one pattern from another, and norm the outcome."""
    bridge, theirs, tokens = opened(tmp_path, "diffllama")
    torch.testing.assert_close(bridge(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-5)
    with refused("its heads cannot be read"):
        motif_scores(bridge, tokens)
