"""Every column of the atlas against the function that gives it alone, its examples against all queries, its cache."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import Tensor

import aotlens
from aotlens.checkpoints import bundled_folder, find_checkpoint
from aotlens.circuits import all_compositions, copying_rate
from aotlens.heads import (
    AtlasRecord,
    ablate,
    ablated_tokens,
    atlas,
    attention_to,
    motif_scores,
    pattern_consistency,
    shapley_heads,
    stored_atlas,
)
from aotlens.heads.reader import HeadReader
from aotlens.results import load
from aotlens.results.stored_files import stored_folder
from tests.distill.heads.test_reading import BRIDGES, D_VOCAB
from tests.messages import refused
from tests.small_models import SMALL, maker, small_tokenizer

make = maker({**SMALL, "d_vocab": 270, "n_ctx": 16, "norm": "layernorm"})
HOWS = ("zero", "position_mean", "fixed_pattern")


@pytest.fixture(scope="module")
def model():
    return make(tokenizer=small_tokenizer())


@pytest.fixture(scope="module")
def tokens() -> Tensor:
    ids = small_tokenizer().encode("the cat sat on the mat, (the rat) sat on the cat, and that was that " * 12)
    rows = [[small_tokenizer().eot_id, *ids[11 * i : 11 * i + 15]] for i in range(9)]
    return torch.tensor(rows)


@pytest.fixture(scope="module")
def made(model, tokens):
    return atlas(model, tokens, hows=HOWS, n_ablated=6, cache=None, batch_size=4)


def test_columns_are_what_their_functions_give(model, tokens, made) -> None:
    alone = attention_to(model, tokens, others=True, intervals=True)
    np.testing.assert_allclose(made.motifs.values, alone.values, atol=1e-6)
    np.testing.assert_allclose(made.motifs.chance, alone.chance, atol=1e-6)
    np.testing.assert_allclose(made.motifs.intervals, alone.intervals, atol=1e-6)
    np.testing.assert_allclose(made.random["induction"], motif_scores(model)["induction"], atol=1e-6)
    consistency = pattern_consistency(model, tokens)
    np.testing.assert_allclose(made.pattern_consistency.values, consistency.values, atol=1e-6)
    _, cache = model.run_with_cache(tokens)
    for layer, head in made.heads:
        A = cache["pattern", layer][:, head, 1:].double()
        away = (torch.arange(1, 16)[:, None] - torch.arange(16)).abs()
        assert made.mean_distance[layer, head] == pytest.approx(float((A * away).sum(-1).mean()), abs=1e-5)
        assert made.entropy[layer, head] == pytest.approx(
            float(-(A * A.clamp(min=1e-30).log()).sum(-1).mean()), abs=1e-5
        )
        assert made.copying is not None
        assert made.copying[layer, head] == copying_rate(model, (layer, head)).top1
    ablated = tokens[torch.arange(6) * 9 // 6]
    for how in HOWS:
        each, together = made.ablations[how], made.together[how]
        for place, head in enumerate(made.heads):
            np.testing.assert_allclose(each.ablated[place], ablate(model, ablated, head, how).ablated, atol=1e-5)
        np.testing.assert_allclose(together.ablated, ablate(model, ablated, list(made.heads), how).ablated, atol=1e-5)
    z = all_compositions(model, data=ablated)
    best = max(((z[mode].z_signs[0, i, 1, 2], mode, i) for mode in "qkv" for i in range(3)), key=lambda each: each[0])
    partner = made.reads("1.2")[0]
    assert (partner.z, partner.mode, partner.head) == (pytest.approx(best[0]), best[1], (0, best[2]))
    assert made.reads("0.1") == () and made.feeds("1.1") == () and made.feeds((0, best[2]), 9)


def test_shapley_values_after_all_other_heads_are_the_losses_without_one(tokens, model, made) -> None:
    """On the windows that the atlas ablated: the others' Shapley sums against the ablation of all heads."""
    assert ablated_tokens(made).tolist() == tokens[torch.arange(6) * 9 // 6].tolist()
    found = shapley_heads(model, ablated_tokens(made), how="position_mean")
    np.testing.assert_allclose(found.last.ravel(), -made.ablations["position_mean"].changes, atol=1e-6)
    assert found.values.sum() == pytest.approx(-made.together["position_mean"].change, abs=1e-6)
    none = atlas(model, tokens, hows=(), cache=None, batch_size=4)
    with refused("no ablations", "hows=()"):
        ablated_tokens(none)


def test_the_table_and_the_sentences(made) -> None:
    distillation = SimpleNamespace(hidden=(0, 4, 16), heads=((0, 1),), mean_error=lambda width: np.array([4.0 / width]))
    fields = {**{name: getattr(made, name) for name in made.__dataclass_fields__}}
    given = type(made)(**{**fields, "distillation": distillation, "skip_trigrams": {(1, 0): ["a", "b"]}})
    frame = given.to_frame()
    assert len(frame) == 6 and list(frame["skip_trigrams"]) == [0, 0, 0, 2, 0, 0]
    assert frame["ffn_error"][1] == 0.25 and frame["ffn_error"].isna().sum() == 5
    for name in (
        "label",
        "x_punctuation",
        "pattern_consistency",
        "loss_zero",
        "loss_fixed_pattern_low",
        "reads",
        "offset",
    ):
        assert name in frame
    assert (frame["loss_zero_low"] <= frame["loss_zero"]).all() and "6 heads" in made.headline
    assert all(label in made.headline for row in made.motifs.labels() for label in row)
    for head in made.heads:
        said = made.sentence(head)
        assert "onsistency" in said and "loss changes by" in said and "nan" not in said
    assert not made.missing


def test_examples_lie_in_their_bins_and_few_bins_keep_all(model, tokens, made) -> None:
    _, cache = model.run_with_cache(tokens)
    found = atlas(model, tokens, hows=(), n_examples=200, cache=None, batch_size=5).examples
    for layer, head in made.heads:
        A = cache["pattern", layer][:, head]
        away = 1 - A[:, 2:, 0]
        bins = (away * 10).long().clamp(0, 9)
        for place in range(10):
            expected = {(int(s), int(q) + 2) for s, q in (bins == place).nonzero()}
            assert found.counts[layer, head, place] == len(expected)
            examples = found.of((layer, head), place)
            assert {(each.sequence, each.query) for each in examples} == expected
            for each in examples[:3]:
                row = A[each.sequence, each.query, 1:]
                weights, keys = row.topk(3)
                n = len(each.keys)
                assert each.keys == tuple((keys[:n] + 1).tolist()) and 0 < n <= 3
                assert each.weights == pytest.approx(weights[:n].tolist(), abs=1e-6)
                assert each.away == pytest.approx(float(away[each.sequence, each.query - 2]), abs=1e-6)
    assert len(found.of("0.0")) == 9 * 14 and len(found.to_frame()) == 6 * 9 * 14
    with pytest.raises(ValueError, match="bin=10"):
        found.of("0.0", 10)
    with pytest.raises(ValueError, match=r"head 2\.0"):
        found.of("2.0")


def test_which_examples_are_kept_depends_on_the_seed_alone(model, tokens, made) -> None:
    again = atlas(model, tokens, hows=(), cache=None, batch_size=1).examples
    for name in ("sequence", "query", "keys"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made.examples, name))
    other = atlas(model, tokens, hows=(), cache=None, seed=1).examples
    assert (other.sequence != again.sequence).any()
    assert (again.sequence.shape, again.keys.shape) == ((2, 3, 10, 4), (2, 3, 10, 4, 3))


def test_what_is_done_is_not_done_again(model, tokens, made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done > 9 + 14:
            raise Stopped

    options = {"hows": HOWS, "n_ablated": 6, "cache": tmp_path, "batch_size": 4}
    with pytest.raises(Stopped):
        atlas(model, tokens, progress=stop, **options)
    (file,) = tmp_path.iterdir()
    passes: list[int] = []
    listen = HeadReader.listen_to_patterns
    monkeypatch.setattr(
        HeadReader, "listen_to_patterns", lambda self, ids, add: (passes.append(len(ids)), listen(self, ids, add))[1]
    )
    steps: list[tuple[int, int]] = []
    resumed = atlas(model, tokens, progress=lambda done, total: steps.append((done, total)), **options)
    assert passes == [] and steps[-1] == (9 + 3 * 12, 9 + 3 * 12)
    assert steps == sorted(steps)
    assert resumed.to_frame().equals(made.to_frame()) or np.allclose(
        resumed.to_frame().select_dtypes("number"), made.to_frame().select_dtypes("number"), equal_nan=True
    )
    monkeypatch.setattr(sys.modules["aotlens.heads.atlas"], "ablate_each", None)  # now even the ablations are read
    again = atlas(model, tokens, **options)
    assert again.to_frame().equals(resumed.to_frame()) and again.random.start == resumed.random.start
    assert again.examples.of("0.1") == resumed.examples.of("0.1")
    file.write_bytes(file.read_bytes()[:-8] + b"\x00" * 8)
    with pytest.raises(ValueError, match="damaged"):
        atlas(model, tokens, **options)
    atlas(model, tokens[:6], hows=(), cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2, "another text is another file"


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_bridge_gives_what_patterns_show_and_the_reason_for_the_rest(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    bridge = BRIDGES[kind]()
    ids = torch.randint(0, D_VOCAB, (4, 12), generator=torch.Generator().manual_seed(0))
    found = atlas(bridge, ids, cache=tmp_path / "cache")
    assert set(found.missing) == {"circuits", "ablations"} and "TransformerLens" in found.missing["ablations"]
    assert found.copying is None and found.ablations == {} and found.reads("1.0") == ()
    frame = found.to_frame()
    assert len(frame) == 4 and not {"copying", "loss_zero", "reads"} & set(frame)
    assert np.isfinite(frame[["previous_token", "pattern_consistency", "entropy", "mean_distance"]].to_numpy()).all()
    assert ("next_token" in frame) == (kind == "bert")
    assert "onsistency" in found.sentence("1.1")


def test_a_model_that_sees_later_tokens_has_no_ablations(tokens) -> None:
    masked = make(causal=False, tokenizer=small_tokenizer())
    found = atlas(masked, tokens, cache=None)
    assert set(found.missing) == {"ablations"} and found.copying is not None
    assert "next_token" in found.to_frame() and "later tokens" in found.missing["ablations"]


def test_a_corpus_by_name(model, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("the cat sat on the mat, the rat sat on the cat. " * 60, encoding="utf-8")
    found = atlas(model, f"dir:{tmp_path}", n_tokens=160, hows=("zero",), n_ablated=4, cache=None)
    assert found.about == "10 windows of 16 tokens of 2 documents" and found.examples.tokens.shape == (10, 16)
    one = atlas(model, f"file:{tmp_path / 'a.txt'}", n_tokens=160, hows=("position_mean",), n_ablated=4, cache=None)
    assert one.about == "10 windows of 16 tokens of 1 document" and np.isnan(
        one.together["position_mean"].interval()[0]
    )
    assert "Without it the loss changes by " in one.sentence("0.0") and "nan" not in one.sentence("0.0")
    with pytest.raises(ValueError, match="'median'"):
        atlas(model, f"dir:{tmp_path}", hows=("median",), cache=None)


def padded_rows(lengths: tuple[int, ...], side: str) -> tuple[Tensor, Tensor, list[Tensor]]:
    rows = [
        torch.randint(0, 9, (length,), generator=torch.Generator().manual_seed(i)) for i, length in enumerate(lengths)
    ]
    ids, mask = torch.full((len(rows), 14), 5), torch.zeros(len(rows), 14, dtype=torch.long)
    for row, own in enumerate(rows):
        where = slice(14 - len(own), None) if side == "left" else slice(0, len(own))
        ids[row, where], mask[row, where] = own, 1
    return ids, mask, rows


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_rows_of_one_length_changes_nothing(side: str) -> None:
    model = make(tokenizer=small_tokenizer())
    ids, mask, rows = padded_rows((11,) * 5, side)
    alone, padded = (
        atlas(model, each, attention_mask=real, hows=("mean",), n_ablated=4, cache=None).to_frame()
        for each, real in ((torch.stack(rows), None), (ids, mask))
    )
    assert_frame_equal(alone, padded)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_atlas_has_the_numbers_of_its_rows_alone(side: str) -> None:
    model = make(tokenizer=small_tokenizer())
    ids, mask, rows = padded_rows((11, 7, 11, 9, 7), side)
    targets = torch.where(mask.bool(), ids.roll(-1, 1), -100)
    found = atlas(model, ids, attention_mask=mask, targets=targets, hows=HOWS, n_ablated=5, n_examples=99, cache=None)
    np.testing.assert_array_equal(found.lengths, [11, 7, 11, 9, 7])
    pooled = motif_scores(model, ids, attention_mask=mask)
    np.testing.assert_allclose(found.motifs.values, pooled.values, atol=1e-6)
    np.testing.assert_allclose(found.motifs.chance, pooled.chance, atol=1e-6)
    patterns = [model.run_with_cache(row[None])[1] for row in rows]
    for layer, head in found.heads:
        own = [cache["pattern", layer][0, head].double() for cache in patterns]
        away = torch.arange(14).sub(torch.arange(14)[:, None]).abs()
        distance = sum(float((A * away[: len(A), : len(A)])[1:].sum()) for A in own) / sum(len(A) - 1 for A in own)
        assert found.mean_distance[layer, head] == pytest.approx(distance, abs=1e-5)
        entropy = sum(float(-(A * A.clamp(min=1e-30).log())[1:].sum()) for A in own) / sum(len(A) - 1 for A in own)
        assert found.entropy[layer, head] == pytest.approx(entropy, abs=1e-5)
        others, uniform = 0.0, 0.0
        for query in range(1, 11):
            seen = torch.stack([A[query, : query + 1] for A in own if len(A) > query])
            if len(seen) < 2:
                continue
            mean = (seen.sum(0) - seen) / (len(seen) - 1)
            others += float((seen - mean).square().sum())
            uniform += float((seen - 1 / (query + 1)).square().sum())
        assert found.pattern_consistency.values[layer, head] == pytest.approx(1 - others / uniform, abs=1e-5)
        for example in found.examples.of((layer, head)):
            A = own[example.sequence]
            assert example.away == pytest.approx(1 - float(A[example.query, 0]), abs=1e-6)
        assert len(found.examples.of((layer, head))) == sum(len(row) - 2 for row in rows)
    for how in HOWS:
        expected = ablate(model, ids, "0.1", how, attention_mask=mask, targets=targets)
        np.testing.assert_allclose(found.ablations[how].ablated[1], expected.ablated, atol=1e-6)
    z = all_compositions(model, data=ids, attention_mask=mask)["q"].z_signs
    np.testing.assert_allclose(found.composition_z["q"], z, atol=1e-6)
    assert found.scores is None and found.missing.keys() >= {"scores", "resample"} and "7 to 11 tokens" in found.about
    with refused("several lengths"):
        ablated_tokens(found)


def test_a_text_of_one_window_says_what_to_do_before_it_is_read(model, tokens) -> None:
    with refused("mean output at each position", "two windows", "choose a longer text"):
        atlas(model, tokens[:1], hows=("zero", "position_mean"), cache=None, progress=lambda done, total: 1 / 0)


def test_a_mask_beside_a_corpus_or_of_another_shape_is_refused(model, tokens) -> None:
    with refused("attention_mask", "corpus"):
        atlas(model, "gpl-licenses", attention_mask=torch.ones(2, 3))
    with refused("attention_mask", "[9, 16]"):
        atlas(model, tokens, attention_mask=torch.ones(2, 3))


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
