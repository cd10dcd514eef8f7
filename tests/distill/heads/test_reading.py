"""What heads read and write, from our models and from bridges; text as windows; kinds of token; where heads attend."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch import Tensor
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from aotlens.checkpoints import CheckpointInfo
from aotlens.data import Corpus, Document, Encoding, Tokenizer, windows_with_documents
from aotlens.distill import distill_heads, held_out_windows, substitute, substitution_costs, token_errors
from aotlens.distill.heads import CLASSES, attending
from aotlens.distill.heads.stream import classes_of
from aotlens.heads import motif_scores
from aotlens.heads.reader import HeadReader
from aotlens.interop import to_transformer_lens
from aotlens.statistics import ratio_intervals
from tests.cases import mostly_long
from tests.messages import refused

from .conftest import D_VOCAB, FAST, build, random_windows

SIZES = {"vocab_size": D_VOCAB, "bos_token_id": 0, "eos_token_id": 0}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "dog", ",", "7"]


def bert(attention: str = "eager") -> TransformerBridge:
    cfg = transformers.BertConfig(
        vocab_size=D_VOCAB, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, initializer_range=0.5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    cfg._attn_implementation = attention
    model = transformers.BertForMaskedLM(cfg).eval().requires_grad_(False)
    return build_bridge_from_module(model, "BertForMaskedLM", hf_config=cfg)


def gpt2() -> TransformerBridge:
    cfg = transformers.GPT2Config(
        **SIZES, n_embd=8, n_layer=2, n_head=2, n_positions=16, initializer_range=0.5, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(cfg).eval().requires_grad_(False)
    return build_bridge_from_module(model, "GPT2LMHeadModel", hf_config=cfg)


def native() -> TransformerBridge:
    cfg = TransformerBridgeConfig(
        n_layers=2, d_model=8, n_ctx=16, d_head=4, n_heads=2, d_vocab=D_VOCAB, attn_only=True, act_fn="gelu",
        device="cpu", seed=1,
    )  # fmt: skip
    return TransformerBridge.boot_native(cfg).requires_grad_(False)


BRIDGES = {"bert": bert, "gpt2": gpt2, "native": native}


@pytest.mark.parametrize("kind", BRIDGES)
def test_bridges_show_what_heads_read_and_write(kind):
    """x gives the values, and z W_O + b_O summed over heads what goes through the output projection."""
    torch.manual_seed(0)
    bridge = BRIDGES[kind]()
    reader, tokens = HeadReader.of(bridge), random_windows(3)
    assert reader.causal == (kind != "bert")
    _, cache = bridge.run_with_cache(tokens)
    for layer, (x, z) in reader.read(tokens, [0, 1]).items():
        attention = bridge.blocks[layer].attn
        v = torch.einsum("bpd,hdk->bphk", x, attention.W_V) + attention.b_V
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        torch.testing.assert_close(torch.einsum("bhqk,bkhd->bqhd", pattern, v), z)
        written = torch.einsum("bphk,hkd->bpd", z, reader.W_O(layer)) + attention.b_O
        torch.testing.assert_close(written, cache[f"blocks.{layer}.attn.o.hook_out"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_long(BRIDGES, ("gpt2",)))
def test_heads_of_bridges_distil_and_are_replaced(kind):
    torch.manual_seed(0)
    bridge, tokens = BRIDGES[kind](), random_windows(40, seed=2)
    before = bridge(tokens)
    found = distill_heads(bridge, (random_windows(200), random_windows(20, seed=1), tokens), [0, 4], seeds=2, **FAST)
    assert (found.error < 1.1).all() and (found.error > 0).all()
    error, scale = token_errors(bridge, found, tokens, (1, 1), width=4, seed=1)
    assert float(error.sum() / scale.sum()) == pytest.approx(found.error[3, 1, 1], rel=1e-3)
    copy = substitute(bridge, found, [(1, 1)], width=4)
    logits, cache = copy.run_with_cache(tokens)
    x = HeadReader.of(bridge).read(tokens, [1])[1][0]
    torch.testing.assert_close(cache["blocks.1.attn.hook_z"][:, :, 1], found.predict_z((1, 1), x, width=4))
    assert not torch.allclose(logits, before) and torch.equal(bridge(tokens), before)
    costs = substitution_costs(bridge, found, tokens[:4], width=4, n_random=1)
    assert costs.measure == ("kl" if kind == "bert" else "loss") and np.isfinite(costs.alone).all()


def test_a_bridge_distils_as_the_model_that_it_was_made_from():
    model = build(bias=True)
    text = random_windows(200), random_windows(20, seed=1), random_windows(40, seed=2)
    ours = distill_heads(model, text, [0, 4], seeds=2, **FAST)
    theirs = distill_heads(to_transformer_lens(model), text, [0, 4], seeds=2, **FAST)
    np.testing.assert_allclose(theirs.error, ours.error, atol=1e-5)
    np.testing.assert_allclose(theirs.attending.scores.values, ours.attending.scores.values, atol=1e-5)


def test_a_head_is_read_as_it_was_used():
    """With positions for queries and keys only, x is without them; with hooks, x is what they made of it."""
    model = build(positions="qk", bias=True)
    tokens = random_windows(2)
    (x, z), _ = HeadReader.of(model).read(tokens, [0, 1]).values()
    _, cache = model.run_with_cache(tokens)
    v = torch.einsum("bpd,hdk->bphk", x, model.W_V[0]) + model.b_V[0]
    torch.testing.assert_close(v, cache["v", 0])
    torch.testing.assert_close(z, cache["z", 0])
    assert not any(point.has_hooks() for point in model.hook_dict.values())


class Small(Corpus):
    """Three documents, the second short."""

    spec = "small"

    def __init__(self, **texts: str) -> None:
        self.texts = texts or {"one": "the cat sat. " * 60, "two": "dog", "three": "a b c d e f g h " * 40}

    def names(self) -> tuple[str, ...]:
        return tuple(self.texts)

    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        for name in self.texts if names is None else [name for name in self.texts if name in names]:
            yield Document(name, self.texts[name])


@pytest.fixture
def reading_model() -> Any:
    tokenizer = Tokenizer.train(Small().texts.values(), 270)
    model = build(d_vocab=270)
    model.tokenizer = tokenizer
    return model


def text_of(tokenizer: Tokenizer, window: Tensor) -> str:
    return tokenizer.decode(window[1:].tolist())


def test_windows_are_the_documents_own_text(reading_model):
    """Spread over the held-out document only, each from a space on, as the tokenizer has it."""
    windows = held_out_windows(reading_model, Small(), 60, held_out=["three"])
    assert windows.shape == (5, 12) and (windows[:, 0] == 0).all()
    for window in windows:
        assert text_of(reading_model.tokenizer, window) in Small().texts["three"]
    assert len({tuple(row) for row in windows.tolist()}) > 1
    found = distill_heads(reading_model, Small(), 4, held_out=["three"], held_out_tokens=60, **FAST)
    assert found.held_out_documents == ("three",) and found.held_out_tokens == 60
    assert found.class_counts[CLASSES.index("first")] == 5


def test_intervals_are_over_documents_where_three_are_held_out(reading_model):
    """The sums of each block are its document's, and the interval is the ratio's over documents."""
    names = ("three", "four", "five")
    corpus = Small(**Small().texts, four="the cat sat on a dog. " * 9, five="a b c the dog d e f " * 30)
    found = distill_heads(reading_model, corpus, 0, held_out=list(names), held_out_tokens=200, **{**FAST, "seeds": 1})
    assert found.blocks_are_documents and found.text_unit == "held-out documents"
    encoding = Encoding.of(reading_model.tokenizer)
    windows, document = windows_with_documents(corpus, names, encoding, -(-200 // 12), 12)
    (x, y), _ = HeadReader.of(reading_model).read(windows, [0, 1]).values()
    layer, head = found.heads[0]
    wrong = (found.predict_z((layer, head), x) - y[:, :, head]).double() @ reading_model.W_O[layer, head].double()
    expected = [float(wrong[torch.from_numpy(document == place)].square().sum()) for place in range(3)]
    np.testing.assert_allclose(found.block_error[0, 0, 0], expected, rtol=1e-5)
    blocks = (found.block_error[:, 0, 0], found.block_baseline, np.arange(3))
    np.testing.assert_allclose(found.interval(), np.maximum(ratio_intervals(*blocks), [0, -np.inf]), rtol=1e-9)
    few = distill_heads(reading_model, corpus, 0, held_out=["three", "four"], held_out_tokens=200, **FAST)
    assert not few.blocks_are_documents and few.text_unit == "stretches of the held-out text"


def test_a_window_runs_on_into_the_next_document(reading_model):
    from aotlens.data import spread_windows

    short = Small(**{f"document {i}": f"cat {i} sat" for i in range(40)})
    windows = spread_windows(short, short.names(), Encoding.of(reading_model.tokenizer), 10**6, 12)
    for window in windows:
        assert (window[1:] == 0).any()
        parts = text_of(reading_model.tokenizer, window).split("<|endoftext|>")
        assert all(part in short.texts.values() for part in parts[1:-1])
    assert 5 < len(windows) < 80, "without much overlap"
    with refused("12 tokens", "4 characters"):
        spread_windows(Small(), ("two",), Encoding.of(reading_model.tokenizer), 5, 12)


def test_held_out_documents_are_the_cards_own(reading_model):
    reading_model.card = CheckpointInfo(name="carded", corpus={"validation": ["two", "three"]})
    found = distill_heads(reading_model, Small(), 0, **{**FAST, "held_out_tokens": 100})
    assert found.held_out_documents == ("two", "three") and found.model_name == "carded"


def test_a_corpus_for_a_bridge_with_a_hugging_face_tokenizer():
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer = transformers.BertTokenizerFast(tokenizer_object=backend)
    torch.manual_seed(0)
    bridge = bert()
    bridge.tokenizer = tokenizer
    windows = held_out_windows(bridge, Small(), 100, held_out=["one"], sequence_length=10)
    assert windows.shape == (10, 10) and (windows[:, 0] == 2).all() and (windows[:, -1] == 3).all()
    assert {5, 6, 7} & set(windows.flatten().tolist())
    kinds = classes_of(HeadReader.of(bridge), torch.tensor([[2, 5, 8, 10, 11, 3]]))
    assert [CLASSES[kind] for kind in kinds[0]] == ["first", "word", "word part", "punctuation", "number", "separator"]


def test_kinds_of_our_tokens(reading_model):
    tokenizer = reading_model.tokenizer
    ids = [0, *tokenizer.encode(" 7.\na"), 0]
    kinds = classes_of(HeadReader.of(reading_model), torch.tensor([ids]))
    found = dict(zip([*tokenizer.str_tokens(ids)][1:], [CLASSES[kind] for kind in kinds[0]][1:], strict=True))
    assert found["."] == "punctuation" and found["\n"] == "newline" and found["7"] == "number"
    assert found["a"] == "word part" and found[" "] == "newline"
    assert CLASSES[kinds[0, 0]] == "first" and CLASSES[kinds[0, -1]] == "separator"


def test_attention_as_motif_scores_have_it(model):
    """Against `aotlens.heads`, on tokens that repeat."""
    tokens = random_windows(6, d_vocab=8)
    reader = HeadReader.of(model)
    found = attending(reader, reader.require_heads(None), tokens, batch_size=4)
    expected = motif_scores(model, tokens)
    for motif in ("first_token", "previous_token", "current_token", "induction"):
        np.testing.assert_allclose(found.to(motif), expected[motif].ravel(), atol=1e-6)
    assert np.isnan(found.to("next_token")).all() and np.isnan(found.to("no such motif")).all()


def test_pattern_consistency():
    tokens = random_windows(8)
    fixed = build(phi="fixed", fixed_pattern="given", pattern=torch.eye(12).expand(2, 2, 12, 12))
    reader = HeadReader.of(fixed)
    found = attending(reader, reader.require_heads([(0, 1), (1, 0)]), tokens)
    np.testing.assert_allclose(found.pattern_consistency, 1, atol=1e-6)
    assert found.attends == ("current_token", "current_token") and list(found.to_frame()["layer"]) == [0, 1]
    model = build(bias=True)
    reader = HeadReader.of(model)
    found = attending(reader, reader.require_heads(None), tokens)
    _, cache = model.run_with_cache(tokens)
    A = torch.stack([cache["pattern", 0], cache["pattern", 1]]).transpose(0, 1).flatten(1, 2)  # [batch, head, ...]
    others = (A.sum(0) - A) / 7  # the mean of the other seven
    even = torch.ones(12, 12).tril() / torch.arange(1, 13)[:, None]
    spread = (A - others).square()[:, :, 1:].sum((0, 2, 3)) / (A - even).square()[:, :, 1:].sum((0, 2, 3))
    np.testing.assert_allclose(found.pattern_consistency, 1 - spread.detach().numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="at least 2 windows"):
        attending(reader, reader.require_heads(None), tokens[:1])


def test_bridges_without_patterns_are_refused():
    with refused("layer 0", "attn_implementation='eager'"):
        distill_heads(bert("sdpa"), (random_windows(50), random_windows(9, seed=1)), 4, **FAST)


def test_other_models_are_refused():
    with refused("AttentionOnlyTransformer", "TransformerLens"):
        HeadReader.of(torch.nn.Linear(2, 2))
    with refused("text", "tokenizer"):
        distill_heads(build(), Small(), 4, **FAST)
