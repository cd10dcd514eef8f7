"""Attention patterns against formulas, the clearest head, attention by place and norms of values, in our models and
BERT."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from analyses.mask_similarity import mask_similarity
from aotlens.heads import PLACES, AttentionPatterns, attention_by_place, attention_patterns, value_norms
from aotlens.heads.patterns import clearest_head
from aotlens.heads.reader import HeadReader
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused


def tiny(**rest) -> AttentionOnlyTransformer:
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "d_vocab": 20, "n_ctx": 9}
    return AttentionOnlyTransformer(ModelConfig(**{**sizes, **rest}))


TOKENS = torch.tensor([0, 7, 7, 3, 19, 1])


@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_the_first_layer_is_the_formula(attention: str):
    """Scores x W_Q (x W_K)ᵀ / √d_head, softmax over visible keys, ‖x W_V‖: one head and one query at a time."""
    model = tiny(attention=attention, norm=None)
    found = attention_patterns(model, TOKENS)
    x = (model.W_E[TOKENS] + model.W_pos[: len(TOKENS)]).detach().double().numpy()
    W_Q, W_K, W_V = (weight[0].detach().double().numpy() for weight in (model.W_Q, model.W_K, model.W_V))
    for head in range(3):
        q, k, v = x @ W_Q[head], x @ W_K[head], x @ W_V[head]
        np.testing.assert_allclose(found.value_norms[0, head], np.sqrt((v**2).sum(-1)), rtol=1e-4)
        for query in range(len(TOKENS)):
            scores = [float(q[query] @ k[key]) / math.sqrt(4) for key in range(query + 1)]
            np.testing.assert_allclose(found.scores[0, head, query, : query + 1], scores, rtol=1e-3, atol=1e-5)
            weights = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(found.pattern[0, head, query, : query + 1], weights, rtol=1e-3, atol=1e-5)
            assert (found.pattern[0, head, query, query + 1 :] == 0).all()
            assert np.isneginf(found.scores[0, head, query, query + 1 :]).all()


def test_value_weighted_is_what_a_key_alone_adds():
    """The norm of each term of z = Σ_key pattern · v."""
    model = tiny()
    found = attention_patterns(model, TOKENS)
    _, cache = model.run_with_cache(TOKENS[None])
    v = cache["v", 1][0].detach()  # [pos, head, d_head]
    terms = torch.from_numpy(found.pattern[1])[..., None] * v.transpose(0, 1)[:, None]
    np.testing.assert_allclose(found.value_weighted()[1], terms.norm(dim=-1).numpy(), rtol=1e-4, atol=1e-6)


def test_what_is_visible():
    causal = attention_patterns(tiny(), TOKENS)
    np.testing.assert_array_equal(causal.visible, np.tril(np.ones((1, 6, 6), dtype=bool)))
    both = attention_patterns(tiny(causal=False), TOKENS)
    assert both.visible.all() and both.visible.shape == (1, 6, 6)
    mask = torch.eye(9, dtype=torch.bool).repeat(3, 1, 1)
    mask[1] = True
    own = attention_patterns(tiny(attn_mask=mask), TOKENS)
    np.testing.assert_array_equal(own.visible, mask[:, :6, :6].numpy())
    assert (own.pattern[:, 0] == np.eye(6)).all()


def test_a_fixed_pattern_has_no_scores():
    found = attention_patterns(tiny(phi="fixed", fixed_pattern="random"), TOKENS)
    assert found.scores is None
    assert found.n_bytes == found.pattern.nbytes + found.value_norms.nbytes + found.visible.nbytes + found.tokens.nbytes


def test_shapes_and_a_batch_of_one():
    model = tiny()
    found = attention_patterns(model, TOKENS[None])
    assert (found.n_layers, found.n_heads, found.n_pos) == (2, 3, 6)
    assert found.str_tokens == ()
    np.testing.assert_array_equal(found.pattern, attention_patterns(model, TOKENS).pattern)
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())


@pytest.mark.parametrize("tokens", [torch.zeros(2, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)])
def test_what_is_not_one_prompt_is_refused(tokens: torch.Tensor):
    with pytest.raises(ValueError, match="one prompt"):
        attention_patterns(tiny(), tokens)


def test_half_precision_comes_out_as_float32():
    model = tiny().to(torch.bfloat16)
    assert attention_patterns(model, TOKENS).pattern.dtype == np.float32


@pytest.mark.parametrize("class_token", [True, False])
def test_of_an_image_the_positions_are_its_patches(class_token: bool):
    """The first layer's formula on patches cut out by hand, [CLS] before them."""
    model = tiny(
        read_in="patches", image_size=6, patch_size=2, n_channels=3, class_token=class_token, n_ctx=9 + class_token,
        read_out="classes", d_out=4, causal=False, norm=None, d_vocab=None, pooling="mean",
    )  # fmt: skip
    torch.manual_seed(0)
    image = torch.randn(3, 6, 6)
    found = attention_patterns(model, image)
    patches = [
        image[:, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].flatten() @ model.embed.W for r in range(3) for c in range(3)
    ]
    x = torch.stack([*([model.embed.cls] if class_token else []), *patches]) + model.W_pos
    scores = (x @ model.W_Q[0, 1]) @ (x @ model.W_K[0, 1]).T / 2
    np.testing.assert_allclose(found.pattern[0, 1], scores.softmax(-1).detach().numpy(), rtol=1e-3, atol=1e-5)
    assert found.n_pos == 9 + class_token and found.tokens.size == 0 and "positions" in found.headline
    names = [f"{row}, {column}" for row in range(3) for column in range(3)]
    assert found.str_tokens == (("[CLS]", *names) if class_token else tuple(names))
    with refused("one prompt", "patches"):
        attention_patterns(model, torch.stack([image, image]))


def test_of_vectors_the_positions_are_numbered():
    model = tiny(read_in="vectors", d_in=5, read_out="vectors", d_out=2, norm=None, d_vocab=None).double()
    vectors = torch.randn(7, 5, dtype=torch.float64)
    found = attention_patterns(model, vectors)
    x = vectors @ model.embed.W + model.W_pos[:7]
    scores = ((x @ model.W_Q[0, 0]) @ (x @ model.W_K[0, 0]).T / 2).masked_fill(
        torch.ones(7, 7).triu(1).bool(), -math.inf
    )
    np.testing.assert_allclose(found.pattern[0, 0], scores.softmax(-1).detach().numpy(), rtol=1e-5)
    assert found.str_tokens == tuple("0123456")
    with refused("torch.float64"):
        attention_patterns(model, vectors.float())


#: A start token, then "a b c d" twice: queries 5 to 8 repeat, and 2 to 5 followed what they repeat.
TWICE = [0, 1, 2, 3, 4, 1, 2, 3, 4]
WORDS = ("<s>", " a", " b", " c", " d", " a", " b", " c", " d")


def patterns(*heads: np.ndarray) -> AttentionPatterns:
    n_pos = len(TWICE)
    return AttentionPatterns(
        tokens=np.array(TWICE), str_tokens=WORDS, pattern=np.stack(heads).astype(np.float32)[None], scores=None,
        value_norms=np.ones((1, len(heads), n_pos), dtype=np.float32),
        visible=np.tril(np.ones((1, n_pos, n_pos), dtype=bool)),
    )  # fmt: skip


def attending(keys: dict[int, int], share: float = 1.0) -> np.ndarray:
    """A head that puts `share` of each query's attention on the key that is named, and the rest on position 0."""
    pattern = np.zeros((len(TWICE), len(TWICE)))
    pattern[:, 0] = 1.0
    for query, key in keys.items():
        pattern[query] = 0
        pattern[query, key] = share
        pattern[query, 0] += 1 - share
    return pattern


RESTS = attending({})
PREVIOUS = attending({query: query - 1 for query in range(2, 9)})
INDUCTION = attending({5: 2, 6: 3, 7: 4, 8: 5}, share=0.75)
UNIFORM = np.tril(np.ones((9, 9))) / np.arange(1, 10)[:, None]


def test_induction_comes_before_what_depends_on_positions():
    found = clearest_head(patterns(RESTS, PREVIOUS, INDUCTION))
    assert found is not None
    assert (found.head, found.motif, found.n_queries) == ((0, 2), "induction", 4)
    assert found.score == pytest.approx(0.75)
    assert found.sentence == (
        '0.2 attends to what followed an earlier occurrence of the query\'s token, such as " a": induction, 0.75 of '
        "its attention on this text, on average over 4 repeated tokens."
    )


def test_a_head_of_position_where_nothing_repeats_is_told():
    found = clearest_head(patterns(RESTS, PREVIOUS))
    assert found is not None and (found.head, found.motif, found.token) == ((0, 1), "previous_token", None)
    assert found.sentence.startswith("0.1 attends to the token before: previous token, ")


def test_where_a_text_alternates_a_previous_token_head_does_no_induction():
    """ "a b a b …": the token before is what followed the earlier one."""
    tokens = [0, *[1, 2] * 4]
    words = ("<s>", *[" a", " b"] * 4)
    made = patterns(RESTS, PREVIOUS)
    found = clearest_head(replace(made, tokens=np.array(tokens), str_tokens=words))
    assert found is not None and (found.head, found.motif) == ((0, 1), "previous_token")


@pytest.mark.parametrize("heads", [(RESTS,), (UNIFORM,), (RESTS, attending({5: 2, 6: 3, 7: 4, 8: 5}, share=0.3))])
def test_no_head_is_clear(heads):
    assert clearest_head(patterns(*heads)) is None


CFG = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=8, d_vocab=20, seed=2, causal=False)
ROWS = torch.from_numpy(np.random.default_rng(0).integers(0, 20, (5, 8)))


def test_norms_are_the_patterns_value_norms() -> None:
    model = AttentionOnlyTransformer(CFG)
    kinds = torch.zeros_like(ROWS)
    kinds[:, 1:3], kinds[:, 5:] = 1, -1
    found = value_norms(model, [(ROWS[:2], kinds[:2]), (ROWS[2:], kinds[2:])], ("rest", "two", "none"))
    expected = np.stack([attention_patterns(model, row).value_norms for row in ROWS], 2)  # [layer, head, row, key]
    np.testing.assert_allclose(found.norms[..., 1], expected[..., 1:3].mean((2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found.norms[..., 0], expected[..., [0, 3, 4]].mean((2, 3)), rtol=1e-5)
    assert np.isnan(found.norms[..., 2]).all() and found.counts.tolist() == [15, 10, 0]
    np.testing.assert_allclose(found.relative("two", "rest"), found.norms[..., 1] / found.norms[..., 0])
    np.testing.assert_allclose(found.by_layer()[:, :2], found.norms[..., :2].mean(1))
    assert list(found.to_frame().columns) == ["layer", "head", "rest", "two", "none"] and len(found.to_frame()) == 6
    with pytest.raises(ValueError, match="class='third'"):
        found.relative("third", "rest")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [(torch.zeros(5, 7, dtype=torch.long), "for each of"), (torch.full((5, 8), 2), "from 2 to 2"),
     (torch.full((5, 8), -1), "at least one token")],
)  # fmt: skip
def test_classes_that_do_not_fit_are_refused(kinds: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value_norms(AttentionOnlyTransformer(CFG), [(ROWS, kinds)], ("a", "b"))


def test_mask_similarity_is_the_cosine_of_streams() -> None:
    model = AttentionOnlyTransformer(CFG)
    one, other = ROWS.clone(), ROWS.roll(1, 0)
    one[:, 2] = other[:, 2] = 19
    other[0] = one[0]
    cosine = mask_similarity(model, one, other, 2, batch_size=2)
    caches = [model.run_with_cache(rows)[1] for rows in (one, other)]
    for depth in range(3):
        names = ("resid_pre", 0) if depth == 0 else ("resid_post", depth - 1)
        u, v = (cache[names][:, 2].detach().double().numpy() for cache in caches)
        expected = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
        np.testing.assert_allclose(cosine[depth], expected, atol=1e-6)
    np.testing.assert_allclose(cosine[0], 1, atol=1e-6)
    np.testing.assert_allclose(cosine[:, 0], 1, atol=1e-6)
    assert (cosine[1, 1:] < 1 - 1e-4).all()
    for wrong in ((one, other[:2], 2), (one, other, 3)):
        with pytest.raises(ValueError, match="the same token"):
            mask_similarity(model, *wrong)


def test_bert_through_a_bridge_is_as_hugging_face_has_it(tiny_bert: Path) -> None:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import BertForMaskedLM

    bridge = TransformerBridge.boot_transformers(str(tiny_bert), device="cpu")
    theirs = BertForMaskedLM.from_pretrained(tiny_bert, attn_implementation="eager").eval()
    tokens = torch.randint(5, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    tokens[:, 0], tokens[:, -1], tokens[:, 1] = 2, 3, 4
    with torch.no_grad():
        out = theirs(tokens, output_hidden_states=True, output_attentions=True)
        values = [
            layer.attention.self.value(hidden).view(3, 9, 2, 12)
            for layer, hidden in zip(theirs.bert.encoder.layer, out.hidden_states, strict=False)
        ]
    kinds = torch.full_like(tokens, 2)
    kinds[:, 0], kinds[:, -1] = 0, 1
    found = value_norms(bridge, [(tokens, kinds)], ("[CLS]", "[SEP]", "other"))
    for layer, value in enumerate(values):
        norms = value.norm(dim=-1)  # [batch, pos, head]
        np.testing.assert_allclose(found.norms[layer, :, 0], norms[:, 0].mean(0), rtol=1e-4)
        np.testing.assert_allclose(found.norms[layer, :, 2], norms[:, 1:-1].mean((0, 1)), rtol=1e-4)
    similarity = mask_similarity(bridge, tokens[:1], tokens[1:2], 1)
    for depth, hidden in enumerate(out.hidden_states):
        expected = torch.nn.functional.cosine_similarity(hidden[0, 1], hidden[1, 1], dim=0)
        assert similarity[depth, 0] == pytest.approx(float(expected), abs=1e-5)
    places = attention_by_place(bridge, tokens)
    expected_first = torch.stack(out.attentions)[:, :, :, 2:-2, 0].mean((1, 3))
    np.testing.assert_allclose(places["first_token"], expected_first, rtol=1e-4)


def test_other_objects_are_refused() -> None:
    with refused("value norms", "AttentionOnlyTransformer", "TransformerBridge", "Linear"):
        HeadReader.of(torch.nn.Linear(2, 2), "value norms")


N_POS = 9
SMALL = {"d_model": 8, "d_head": 4, "n_ctx": N_POS, "d_vocab": 13, "causal": False}
PLACED = torch.from_numpy(np.random.default_rng(0).integers(0, 13, (5, N_POS)))


def test_heads_that_look_at_one_place_are_found() -> None:
    positions = torch.arange(N_POS)
    keys = [
        (positions - 1).clamp(min=0), positions, (positions + 1).clamp(max=N_POS - 1),
        torch.zeros_like(positions), torch.full_like(positions, N_POS - 1),
    ]  # fmt: skip
    pattern = torch.stack([torch.nn.functional.one_hot(key, N_POS).float() for key in keys])
    pattern = torch.cat([pattern, torch.full((1, N_POS, N_POS), 1 / N_POS)])
    cfg = ModelConfig(n_layers=1, n_heads=6, phi="fixed", fixed_pattern="given", **SMALL)
    found = attention_by_place(AttentionOnlyTransformer(cfg, pattern=pattern[None]), PLACED, batch_size=2)
    np.testing.assert_allclose(found.values[:, 0, :5], np.eye(5))
    np.testing.assert_allclose(found.values[:, 0, 5], 1 / N_POS, rtol=1e-6)
    assert found.labels() == [[*PLACES, "mixed"]]
    frame = found.to_frame()
    assert list(frame.columns) == ["layer", "head", *PLACES] and len(frame) == 6
    with pytest.raises(KeyError, match="previous_token"):
        found["nowhere"]


def test_shares_are_those_of_a_loop() -> None:
    model = AttentionOnlyTransformer(ModelConfig(n_layers=2, n_heads=3, **SMALL, seed=1))
    found = attention_by_place(model, PLACED, batch_size=3)
    expected = np.zeros((len(PLACES), 2, 3))
    for row in PLACED:
        pattern = attention_patterns(model, row).pattern
        for query in range(2, N_POS - 2):
            for place, key in enumerate((query - 1, query, query + 1, 0, N_POS - 1)):
                expected[place] += pattern[:, :, query, key] / (5 * (N_POS - 4))
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)


def test_too_short_is_refused() -> None:
    model = AttentionOnlyTransformer(ModelConfig(n_layers=1, n_heads=1, **SMALL))
    for tokens in (PLACED[:, :4], PLACED[:0]):
        with pytest.raises(ValueError, match=r"5 tokens or more|expected token ids"):
            attention_by_place(model, tokens)
    vectors = ModelConfig(n_layers=1, n_heads=1, **{**SMALL, "d_vocab": None}, read_in="vectors", read_out="vectors")
    with pytest.raises(ValueError, match="a model of tokens"):
        attention_by_place(AttentionOnlyTransformer(vectors), PLACED)
