"""The novels that come with aotlens: small, held out, and cut where a sentence ends."""

from __future__ import annotations

import pytest

from aotlens.checkpoints import find_checkpoint
from aotlens.data import open_corpus
from aotlens.data.sources import BundledNovels
from tests.messages import refused


@pytest.mark.usefixtures("real_bundled_folder")
def test_they_were_held_out_from_the_bundled_models() -> None:
    novels = open_corpus("novels")
    for name in ("novels-1l-mhsa", "novels-2l-gpt", "novels-12l-mssa"):
        assert set(find_checkpoint(name).held_out(novels.names())) == set(novels.names())
    texts = {one.name: one.text for one in novels.documents()}
    assert list(texts) == list(novels.names()) and len(texts) == 5
    assert all(len(text) > 150_000 and text.rstrip('"\n')[-1] in ".!?" for text in texts.values())
    (one,) = novels.documents(["Gaskell_Ruth_1855"])
    assert one.text == texts["Gaskell_Ruth_1855"]
    with refused("no document", "'Emma'"):
        list(novels.documents(["Emma"]))
    assert BundledNovels._FILE.stat().st_size < 400_000
