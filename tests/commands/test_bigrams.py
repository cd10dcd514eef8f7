"""`aotlens bigrams` prints what the library finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.data import Tokenizer, open_corpus
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.trigrams import bigrams, zero_layer
from tests.commands.conftest import Run
from tests.messages import says

TEXT = "the cat sat on the mat, and the rat sat on the cat. " * 20


@pytest.fixture
def plain(home: Path, small: AttentionOnlyTransformer) -> str:
    """One layer without norms."""
    assert isinstance(small.tokenizer, Tokenizer)
    cfg = ModelConfig(
        n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=small.cfg.d_vocab, n_ctx=6, norm=None, positions="qk"
    )
    torch.manual_seed(0)
    model = AttentionOnlyTransformer(cfg, small.tokenizer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    save_checkpoint(home / "plain", model.eval(), CheckpointInfo(name="plain"), history=[])
    return "plain"


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "text.txt").write_text(TEXT)
    return f"file:{tmp_path / 'text.txt'}"


def test_the_largest_entries(run: Run, plain: str) -> None:
    code, out, err = run("bigrams", plain, "--k", "4")
    assert (code, err) == (0, "")
    title, empty, head, *rows = out.splitlines()
    assert (title, empty, head.split()) == ("W_E W_U", "", ["first", "second", "logit", "predicted"])
    best = bigrams(load(plain, "cpu"), 4)
    assert [row.split()[-2] for row in rows] == [f"{logit:.4g}" for logit in best.logit]
    assert rows[0].split()[-1] == f"{best.predicted[0]:.4g}"
    says(run("bigrams", "small", "--k", "1")[1], "Relative", "direct path", "norm")


def test_tokens_and_heads_beside_text(run: Run, plain: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    options = ("--token", " the", "--token", "#7", "--k", "3", "--head", "0.1", "--corpus", text, "--max-tokens", "200")
    code, out, err = run("bigrams", plain, *options)
    assert (code, err) == (0, "") and out.startswith("W_E W_U + head 0.1\n")
    says(out.splitlines()[2], "predicted", "probability", "count", "first kl")
    model, corpus = load(plain, "cpu"), open_corpus(text)
    held = zero_layer(model, corpus, heads=[(0, 1)], max_tokens=200)
    assert f"{held.mean_kl:.3f} nats per token" in out.splitlines()[-1]
    assert f"unigram frequencies are {held.unigram_kl:.3f}" in out.splitlines()[-1]
    code, out, err = run("bigrams", plain, *options, "--csv", str(file))
    assert (code, err) == (0, "") and out.splitlines()[0] == f"{file}: 6 rows"
    written = pd.read_csv(file, keep_default_na=False, na_values=[""])
    expected = bigrams(model, 3, tokens=[" the", 7], heads=[(0, 1)], corpus=corpus, max_tokens=200).to_frame()
    np.testing.assert_allclose(written.logit, expected.logit)
    np.testing.assert_array_equal(written["count"], expected["count"])
    np.testing.assert_allclose(written.first_kl, held.kl[expected.first_id])


def test_tokens_by_their_part_of_the_distance(run: Run, plain: str, text: str) -> None:
    code, out, err = run("bigrams", plain, "--kl", "--k", "5", "--corpus", text)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    frame = zero_layer(load(plain, "cpu"), open_corpus(text)).to_frame()
    assert [line.split()[-1] for line in lines[3:8]] == [f"{part:.4g}" for part in frame.part[:5]]
    only = run("bigrams", plain, "--kl", "--token", " the", "--corpus", text)[1].splitlines()
    assert len(only) == 6 and only[3].startswith('" the"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plain", "--kl"], "--kl: a distance from text needs one"),
        (["plain", "--document", "a"], "--document: names a part"),
        (["plain", "--head", "7"], "a layer and a head"),
        (["plain", "--head", "0.5"], "head 0.5"),
        (["small", "--head", "0.1"], "without norms"),
        (["plain", "--token", "the cat sat"], "expected one"),
        (["plain", "--corpus", "nowhere"], "expected a corpus"),
    ],
)
def test_mistakes(run: Run, plain: str, arguments: list[str], message: str) -> None:
    code, out, err = run("bigrams", *arguments)
    assert code == 2 and message in err and out == ""
