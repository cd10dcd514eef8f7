"""Evidence against naive loops over positions, against `ablate` and `attention_patterns`, and on planted text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import TokenFile, Tokenizer, open_corpus
from aotlens.heads import ablate, attention_patterns
from aotlens.trigrams import evidence, score_triples, skip_trigrams
from tests.messages import refused


@pytest.fixture
def text(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 8, 407)  # 8 of 23 tokens, so that triples recur; 45 windows of 9 and 2 left over


def random_rows(rng: np.random.Generator, n: int = 60) -> list[np.ndarray]:
    return [rng.integers(0, 9, n) for _ in range(3)]


def cut(text: np.ndarray, n_ctx: int) -> list[list[int]]:
    width = n_ctx - 1
    return [[0, *text[begin : begin + width].tolist()] for begin in range(0, len(text), width)]


def test_counts_are_those_of_a_double_loop(make, text, rng) -> None:
    model = make()
    table = score_triples(model, (0, 1), *random_rows(rng))
    found = evidence(model, table, text, batch_size=4)
    windows = cut(text, model.cfg.n_ctx)
    assert len(windows[-1]) < model.cfg.n_ctx
    for row in range(len(table)):
        s, d, o = int(table.source[row]), int(table.destination[row]), int(table.out[row])
        pair = pair_out = destination = destination_out = held = 0
        for window in windows:
            inside = np.zeros(4)
            for i in range(1, len(window) - 1):  # the start token is nobody's destination
                if window[i] != d:
                    continue
                follows, preceded = window[i + 1] == o, s in window[:i]
                inside += [follows and preceded, preceded, follows, 1]
            pair_out, pair, destination_out, destination = np.add(
                (pair_out, pair, destination_out, destination), inside
            )
            held += inside[1] > 0
        counts = found.counts
        assert (counts.pair[row], counts.pair_out[row]) == (pair, pair_out)
        assert (counts.destination[row], counts.destination_out[row]) == (destination, destination_out)
        assert counts.windows[row] == held
        if pair_out:
            assert found.association.lift[row] == pytest.approx((pair_out / pair) / (destination_out / destination))
    assert found.n_tokens == sum(len(window) - 1 for window in windows)
    assert (found.counts.pair_out > 0).sum() > 10


@pytest.mark.parametrize("side", ["left", "right", "list"])
def test_sequences_are_windows_as_they_are(make, text, rng, side: str) -> None:
    """The windows of a text as a batch of sequences, padded with token 3, and shuffled, are the text."""
    model = make(n_layers=2)
    table = score_triples(model, (1, 1), *random_rows(rng))
    expected, rows = evidence(model, table, text, batch_size=4), cut(text, model.cfg.n_ctx)
    rows = [rows[place] for place in rng.permutation(len(rows))]
    tokens, mask = torch.full((len(rows), model.cfg.n_ctx), 3), torch.zeros(len(rows), model.cfg.n_ctx)
    for row, ids in enumerate(rows):
        where = slice(-len(ids), None) if side == "left" else slice(0, len(ids))
        tokens[row, where], mask[row, where] = torch.tensor(ids), 1
    found = evidence(model, table, *((rows,) if side == "list" else (tokens,)), batch_size=5,
                     attention_mask=None if side == "list" else mask)  # fmt: skip
    for name in ("pair", "pair_out", "destination", "destination_out", "windows"):
        np.testing.assert_array_equal(getattr(found.counts, name), getattr(expected.counts, name))
    for name in ("attention", "direct_effect", "ablation_change"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-6)
    assert (found.n_tokens, found.n_documents) == (expected.n_tokens, len(rows))
    part = evidence(model, table, rows, max_tokens=sum(map(len, rows[:4])), run_model=False)
    assert part.n_documents == 4


def test_sequences_that_the_model_cannot_read_are_named(make, rng) -> None:
    model = make()
    table = score_triples(model, (0, 1), *random_rows(rng, 3))
    n_ctx = model.cfg.n_ctx
    for wrong in (torch.zeros(2, n_ctx + 1, dtype=torch.long), torch.full((2, 4), 23), [[1, 2], []]):
        with refused("sequence", f"1 to {n_ctx} token ids"):
            evidence(model, table, wrong)
    with refused("attention_mask", "[2, 4]", "[2, 3]"):
        evidence(model, table, torch.zeros(2, 4, dtype=torch.long), attention_mask=torch.ones(2, 3))
    with refused("attention_mask", "one text"):
        evidence(model, table, np.arange(4), attention_mask=torch.ones(4))


@pytest.mark.parametrize(
    "kind",
    [{"norm": None, "positions": "qk"}, {}, {"attention": "mssa"}, {"phi": "thresholded_softmax", "threshold": 0.2}],
)
@pytest.mark.parametrize("layer", [0, 1])
def test_what_the_head_does_is_what_the_model_does(make, text, rng, kind: dict, layer: int) -> None:
    model = make(n_layers=2, **kind)
    table = score_triples(model, (layer, 1), *random_rows(rng, 30))
    found = evidence(model, table, text, batch_size=7)
    attention, effect, change = ([[] for _ in range(30)] for _ in range(3))
    for window in cut(text, model.cfg.n_ctx):
        ids = torch.tensor([window])
        pattern = attention_patterns(model, ids).pattern[layer, 1]
        with torch.no_grad():
            logits, cache = model.run_with_cache(ids)
            no_bias = model.run_with_hooks(
                ids, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", lambda z, hook: z * torch.tensor([1.0, 0.0])[:, None])]
            )
            x = cache[f"blocks.{layer}.hook_resid_pre"][0]
            block = model.blocks[layer]
            if model.cfg.norm:
                x = block.ln1(x) - block.ln1.b
            written = x @ model.W_V[layer, 1] @ model.W_O[layer, 1]  # [pos, d_model]
            if model.cfg.norm:
                written = (written - written.mean(-1, keepdim=True)) * model.ln_final.w
            logits_written = written @ model.W_U
            logits_written = logits_written - logits_written.mean(-1, keepdim=True)
        clean, without = logits[0].log_softmax(-1), no_bias[0].log_softmax(-1)
        for row in range(30):
            s, d, o = int(table.source[row]), int(table.destination[row]), int(table.out[row])
            for i in range(len(window) - 1):
                copies = [j for j in range(i) if window[j] == s]
                if window[i] != d or not copies:
                    continue
                scale = cache["ln_final.hook_scale"][0, i, 0].item() if model.cfg.norm else 1.0
                attention[row].append(sum(pattern[i, j] for j in copies))
                effect[row].append(sum(pattern[i, j] * logits_written[j, o].item() for j in copies) / scale)
                change[row].append((without[i, o] - clean[i, o]).item())
    for row in range(30):
        if attention[row]:
            assert found.attention[row] == pytest.approx(np.mean(attention[row]), rel=1e-5, abs=1e-7)
            assert found.direct_effect[row] == pytest.approx(np.mean(effect[row]), rel=1e-5, abs=1e-7)
            assert found.ablation_change[row] == pytest.approx(np.mean(change[row]), rel=1e-7, abs=1e-9)
        else:
            assert np.isnan(found.attention[row])
    assert sum(map(bool, attention)) > 10


def test_the_ablation_is_that_of_heads(make) -> None:
    """A destination at every position but the last, its out always the same: the mean change is that of the loss."""
    model = make(n_ctx=8)
    text = np.array([5, 4, 4, 4, 4, 4, 4] * 3)
    table = score_triples(model, (0, 0), [5], [4], [4])
    found = evidence(model, table, text)
    tokens = torch.tensor([[0, 5, 4, 4, 4, 4, 4, 4]] * 3)
    lost = ablate(model, tokens, (0, 0))
    change = lost.ablated_loss_per_token[:, 2:] - lost.clean_loss_per_token[:, 2:]
    assert found.ablation_change[0] == pytest.approx(-change.mean().item())


def test_the_effect_of_an_exact_head_is_attention_times_ov(make, text) -> None:
    model = make(norm=None, positions="qk")
    found = evidence(model, skip_trigrams(model, (0, 0), k=50, destinations=range(8)), text)
    seen = found.counts.pair > 0
    np.testing.assert_allclose(found.direct_effect[seen], (found.attention * found.table.ov)[seen], rtol=1e-8)


def test_the_model_runs_only_where_it_is_asked(make, text) -> None:
    """Windows that hold a row, and logits of its destinations; the model is left as it was."""
    model = make()
    table = score_triples(model, (0, 0), [1, 1], [2, 2], [3, 4])
    seen: dict[str, int] = {"windows": 0, "logits": 0}
    counts = evidence(model, table, text, run_model=False).counts
    hooks = [
        model.embed.register_forward_hook(lambda module, args, out: seen.update(windows=seen["windows"] + len(out))),
        model.unembed.register_forward_hook(lambda module, args, out: seen.update(logits=seen["logits"] + len(out))),
    ]
    evidence(model, table, text, batch_size=45)
    for hook in hooks:
        hook.remove()
    assert 0 < counts.windows[0] < 40
    assert seen == {"windows": 2 * counts.windows[0], "logits": 2 * counts.pair[0]}
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 23)


def test_counts_need_no_model(make, text) -> None:
    model = make()
    table = skip_trigrams(model, (0, 0), k=50, destinations=range(8))
    whole = evidence(model, table, text)
    model.forward = None  # whatever runs it fails
    counted = evidence(model, table, text, run_model=False)
    assert counted.verdict == whole.verdict
    np.testing.assert_array_equal(counted.counts.pair_out, whole.counts.pair_out)
    assert np.isnan(counted.attention).all() and counted.examples == ()


def test_examples_are_where_they_say(make, text) -> None:
    model = make()
    table = skip_trigrams(model, (0, 1), k=300, sources=range(8), destinations=range(8), outs=range(8))
    found = evidence(model, table, text, n_examples=2, batch_size=3)
    by_row = {row: [e for e in found.examples if e.row == row] for row in range(300)}
    for row, examples in by_row.items():
        assert len(examples) == min(2, found.counts.pair[row])
        assert sum(e.follows for e in examples) == min(2, found.counts.pair_out[row])
        for e in examples:
            assert e.tokens[e.source_position] == table.source[row]
            assert e.tokens[e.destination_position] == table.destination[row]
            assert e.source_position < e.destination_position == len(e.tokens) - 2
            assert e.follows == (e.tokens[-1] == table.out[row])
            assert table.source[row] not in e.tokens[e.source_position + 1 : e.destination_position]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(make, text, dtype: torch.dtype) -> None:
    """What the head does, read in float32 from activations in half precision."""
    half, whole = make(dtype=dtype), make(dtype=dtype).float()
    table = skip_trigrams(half, (0, 1), k=50, destinations=range(8))
    found, expected = evidence(half, table, text), evidence(whole, table, text)
    seen = found.counts.pair > 0
    assert found.attention.dtype == np.float64 and seen.any()
    np.testing.assert_allclose(found.attention[seen], expected.attention[seen], atol=0.03)
    np.testing.assert_allclose(found.direct_effect[seen], expected.direct_effect[seen], atol=0.1)


def test_the_start_token_is_no_destination(make) -> None:
    """Token 0 begins every window; in the text it stands once a window."""
    model = make()
    text = np.array([5, 6, 7, 8, 9, 0, 3, 4, 5] * 4)
    counts = evidence(model, score_triples(model, (0, 0), [5], [0], [3]), text).counts
    assert (counts.destination[0], counts.destination_out[0], counts.pair[0]) == (4, 4, 4)


def test_sources_of_text_agree(make, text, tmp_path) -> None:
    words = "the cat sat on a mat and the dog ran to the cat " * 40
    (tmp_path / "a.txt").write_text(words)
    (tmp_path / "b.txt").write_text(words[::-1])
    corpus = open_corpus(f"dir:{tmp_path}")
    tokenizer = Tokenizer.train((d.text for d in corpus.documents()), 280)
    model = make(d_vocab=280)
    model.tokenizer = tokenizer
    file = TokenFile.build(corpus.documents(), tokenizer, tmp_path / "tokens.bin")
    ids = np.asarray(file.tokens)[1:]
    table = score_triples(model, (0, 0), *[np.unique(ids)[-20:]] * 3)
    assert table.source_token[0] == tokenizer.str_tokens([int(table.source[0])])[0]
    found = [evidence(model, table, form).counts.destination for form in (corpus, file, ids, torch.tensor(ids.copy()))]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    assert found[0].sum() > 0
    first = evidence(model, table, corpus, documents=["a"])
    assert first.n_tokens < evidence(model, table, corpus).n_tokens
    assert evidence(model, table, ids, max_tokens=100).n_tokens == 100


def test_tables_of_another_model_are_refused(make) -> None:
    table = score_triples(make(d_vocab=40, n_heads=3), (0, 2), [1], [39], [3])
    with refused("token 39", "0 to 22"):
        evidence(make(n_heads=3), table, np.array([1, 2]), run_model=False)
    with pytest.raises(ValueError, match=r"head 0\.2"):
        evidence(make(d_vocab=40), table, np.array([1, 2]), run_model=False)


@pytest.mark.parametrize(
    ("changes", "text", "arguments", "message"),
    [
        ({}, np.array([3, 99]), {}, "ids 0 to 22"),
        ({}, np.array([], dtype=int), {}, "expected text"),
        ({}, np.array([1, 2]), {"max_tokens": -5}, "max_tokens=-5: expected at least 1"),
        ({}, np.array([1, 2]), {"batch_size": -2}, "batch_size=-2"),
        ({}, np.array([1, 2]), {"batch_size": 0}, "batch_size=0"),
        ({"causal": False}, np.array([1, 2]), {}, "causal"),
        ({}, np.array([1, 2]), {"documents": ["a"]}, "named documents"),
    ],
)
def test_bad_input_is_named(make, changes, text, arguments, message) -> None:
    model = make(**changes)
    with pytest.raises(ValueError, match=message):
        evidence(model, score_triples(model, (0, 0), [1], [2], [3]), text, **arguments)
