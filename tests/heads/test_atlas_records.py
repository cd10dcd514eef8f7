"""Atlases in files: what comes back is what was kept; the bundled ones are of the bundled weights, measured again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import aotlens
from aotlens.checkpoints import bundled_folder, find_checkpoint
from aotlens.heads import AtlasRecord, ablate, atlas, attention_to, motif_scores, stored_atlas
from aotlens.results import load
from aotlens.results.stored_files import stored_folder
from tests.messages import refused
from tests.small_models import SMALL, maker, small_tokenizer

make = maker({**SMALL, "d_vocab": 270, "n_ctx": 16, "norm": "layernorm"})


@pytest.fixture(scope="module")
def record() -> AtlasRecord:
    tokens = torch.randint(0, 270, (6, 12), generator=torch.Generator().manual_seed(0))
    made = atlas(make(tokenizer=small_tokenizer()), tokens, hows=("zero",), n_ablated=4, cache=None)
    return AtlasRecord(
        atlas=made, checkpoint="small", weights_sha256="0" * 64, corpus="numbers", documents=("a",), command="by hand"
    )


def test_what_is_read_is_what_was_kept(record: AtlasRecord, tmp_path: Path) -> None:
    path = tmp_path / "small.safetensors"
    record.save(path, compact=True)
    read = load(path, AtlasRecord)
    pd.testing.assert_frame_equal(read.atlas.to_frame(), record.atlas.to_frame(), rtol=1e-6, atol=1e-6)
    assert [read.atlas.sentence(head) for head in read.atlas.heads] == [
        record.atlas.sentence(head) for head in record.atlas.heads
    ]
    np.testing.assert_array_equal(read.atlas.examples.tokens, record.atlas.examples.tokens)
    assert read.atlas.examples.of("1.1") == record.atlas.examples.of("1.1")
    for name in ("tokens", "counts", "sequence"):
        assert getattr(read.atlas.examples, name).dtype == np.int64
    assert read.atlas.reads("1.0")[0].head == record.atlas.reads("1.0")[0].head
    assert read.atlas.random.start == record.atlas.random.start and read.atlas.missing == {}
    assert (read.checkpoint, read.documents, read.command) == ("small", ("a",), "by hand")
    read.save(path, compact=True)  # an atlas may be written over by another one


@pytest.mark.usefixtures("real_bundled_folder")
def test_what_is_not_bundled_is_refused() -> None:
    with refused("'small'", "code-2l-mhsa, novels-12l-mssa"):
        stored_atlas("small")


@pytest.mark.usefixtures("real_bundled_folder")
def test_every_bundled_checkpoint_of_text_has_an_atlas_of_its_weights_and_they_are_small() -> None:
    names = {path.parent.name for path in bundled_folder().glob("*/config.json")}
    names = {name for name in names if find_checkpoint(name).words.counted == "tokens" and not name.endswith("-run")}
    files = list(stored_folder("atlas").glob("*.safetensors"))
    assert {file.stem for file in files} == names
    assert sum(file.stat().st_size for file in files) < 1_850_000
    for name in names:
        kept = stored_atlas(name)
        assert kept.belongs_to(find_checkpoint(name)) and kept.documents and kept.atlas.model == name
        assert kept.command.startswith(f"aotlens atlas {name} --corpus ") and "--tokens 65536" in kept.command
        assert kept.atlas.examples.tokens.size == 65536


@pytest.mark.usefixtures("real_bundled_folder")
def test_a_bundled_atlas_is_measured_again_on_its_own_windows() -> None:
    kept, model = stored_atlas("novels-1l-mhsa").atlas, aotlens.load("novels-1l-mhsa", device="cpu")
    tokens = torch.from_numpy(kept.examples.tokens)
    motifs = ("previous_token", "current_token", "induction")
    own = kept.motifs
    few = attention_to(model, tokens[:64], motifs)  # a quarter of the windows: near, and not the same
    for name in motifs:
        np.testing.assert_allclose(own[name], few[name], atol=0.02)
    np.testing.assert_allclose(
        kept.random["previous_token"], motif_scores(model, motifs="previous_token")["previous_token"], atol=1e-5
    )
    each = kept.ablations["fixed_pattern"]
    ablated = tokens[torch.arange(32) * 256 // 32]
    expected = ablate(model, ablated, "0.1", "fixed_pattern")
    np.testing.assert_allclose(each.ablated[each.heads.index((0, 1))], expected.ablated, atol=1e-4)
