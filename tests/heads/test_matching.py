"""Heads are found again in a copy that computes the same from other weights; cosines are those of dense matrices."""

from __future__ import annotations

import copy
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.circuits import ov_circuit, qk_circuit
from aotlens.data import Tokenizer, repeated_random_tokens
from aotlens.heads import MotifScores, attention_to, match_heads
from aotlens.heads.label_rule import LEAST_CONTROLS, lost
from aotlens.models import AttentionOnlyTransformer
from tests.heads.hand_built import induction, repeated
from tests.heads.impostors import N, V, matching, patterned, sequences
from tests.messages import refused
from tests.small_models import SMALL, maker

make = maker({**SMALL, "n_heads": 4, "norm": "layernorm", "bias": True, "n_ctx": 12}, dtype=torch.float64)
TOKENS = torch.randint(SMALL["d_vocab"], (3, 9), generator=torch.Generator().manual_seed(4))


def turned(
    model: AttentionOnlyTransformer, orders: list[list[int]], *, orthogonal: bool = False
) -> AttentionOnlyTransformer:
    """A copy whose head `orders[layer][i]` is the model's head i, in other bases of queries and keys and of values."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(9)
    size = model.cfg.d_head

    def invertible() -> Tensor:
        G = torch.randn(size, size, generator=generator, dtype=torch.float64) + 2 * torch.eye(size).double()
        return torch.linalg.qr(G).Q if orthogonal else G

    with torch.no_grad():
        for block, mine, order in zip(other.blocks, model.blocks, orders, strict=True):
            new, old = block.attn, mine.attn
            for i, place in enumerate(order):
                G, H = invertible(), invertible()
                if orthogonal:  # MSSA: one matrix
                    new.U[place] = old.U[i] @ G
                    if old.b_Q is not None:
                        new.b_Q[place] = old.b_Q[i] @ G
                    new.W_O[place] = G.T @ old.W_O[i]
                    continue
                new.W_Q[place], new.W_K[place] = old.W_Q[i] @ G, old.W_K[i] @ torch.linalg.inv(G).T
                new.b_Q[place], new.b_K[place] = old.b_Q[i] @ G, old.b_K[i] @ torch.linalg.inv(G).T
                new.W_V[place], new.W_O[place] = old.W_V[i] @ H, torch.linalg.inv(H) @ old.W_O[i]
                new.b_V[place] = old.b_V[i] @ H
    return other


def folded(model: AttentionOnlyTransformer) -> AttentionOnlyTransformer:
    """A copy whose norms have gain 1 and bias 0: both are in the maps behind them."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for block in other.blocks:
            gain, bias = block.ln1.w.clone(), block.ln1.b.clone()
            for name in "QKV":
                weight = getattr(block.attn, f"W_{name}")
                getattr(block.attn, f"b_{name}").add_(torch.einsum("d,hde->he", bias, weight))
                weight.mul_(gain[:, None])
            block.ln1.w.fill_(1.0)
            block.ln1.b.fill_(0.0)
        gain, bias = other.ln_final.w.clone(), other.ln_final.b.clone()
        other.unembed.b_U.add_(bias @ other.unembed.W_U)
        other.unembed.W_U.mul_(gain[:, None])
        other.ln_final.w.fill_(1.0)
        other.ln_final.b.fill_(0.0)
    return other


@pytest.mark.parametrize("counts", [None, torch.arange(1, SMALL["d_vocab"] + 1)], ids=["even", "unigram counts"])
@pytest.mark.parametrize("how", ["turned", "folded", "both"])
def test_a_copy_in_other_bases_is_matched_head_by_head(how: str, counts: Tensor | None) -> None:
    model = make()
    model.unigram_counts = counts
    orders = [[2, 0, 3, 1], [1, 3, 2, 0]] if how != "folded" else [[0, 1, 2, 3]] * 2
    other = turned(model, orders) if how != "folded" else model
    other = folded(other) if how != "turned" else other
    torch.testing.assert_close(other(TOKENS), model(TOKENS))  # the oracle: it is the same function
    found = match_heads(model, other, TOKENS)
    assert found.pairs == tuple(((layer, i), (layer, orders[layer][i])) for layer in range(2) for i in range(4))
    frame = found.to_frame()
    assert (frame[["ov", "qk", "pattern"]].to_numpy() >= 1 - 1e-5).all() and (found.margins > 0.01).all()
    assert found.partner((1, 2)) == (1, orders[1][2]) and found.partner((5, 0)) is None
    backwards = match_heads(other, model, TOKENS)
    np.testing.assert_allclose(backwards.similarity, found.similarity.T, atol=1e-6)


def test_an_mssa_head_is_known_after_a_turn_of_its_one_matrix() -> None:
    model = make(attention="mssa")
    other = turned(model, [[2, 0, 3, 1], [0, 1, 3, 2]], orthogonal=True)
    torch.testing.assert_close(other(TOKENS), model(TOKENS))
    found = match_heads(model, other)
    assert found.pattern is None and found.measured == ("ov", "qk")
    assert [b for _, b in found.pairs] == [(0, 2), (0, 0), (0, 3), (0, 1), (1, 0), (1, 1), (1, 3), (1, 2)]
    assert (found.to_frame()["similarity"] >= 1 - 1e-5).all()


def test_cosines_are_those_of_the_dense_circuits() -> None:
    a, b = make(), maker({**SMALL, "n_heads": 2, "norm": "layernorm"}, dtype=torch.float64, seed=5)()
    p = torch.arange(1.0, SMALL["d_vocab"] + 1).double()
    a.unigram_counts, b.unigram_counts = p * 3, None
    p = p / p.sum()
    found = match_heads(a, b)
    assert found.ov.shape == (8, 4) and len(found.pairs) == 4

    def dense(model: AttentionOnlyTransformer, head: tuple[int, int], kind: str) -> Tensor:
        circuit = ov_circuit(model, head) if kind == "ov" else qk_circuit(model, head)
        rows = circuit.AB.double()
        return (rows - (rows @ p)[:, None]) * (p[:, None] * p).sqrt()

    for kind, values in (("ov", found.ov), ("qk", found.qk)):
        assert values is not None
        for i, left in enumerate(found.left):
            for j, right in enumerate(found.right):
                M, N = dense(a, left, kind), dense(b, right, kind)
                assert values[i, j] == pytest.approx(float((M * N).sum() / M.norm() / N.norm()), abs=1e-5)
    best = max(  # the assignment, by trying all
        sum(found.similarity[i, j] for j, i in enumerate(rows)) for rows in permutations(range(8), 4)
    )
    assert found.to_frame()["similarity"].sum() == pytest.approx(best)


def test_patterns_are_compared_beyond_even_attention() -> None:
    a, b = make(), make(seed=3)
    found = match_heads(a, b, TOKENS, batch_size=2)
    even = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]
    deviations = []
    for model in (a, b):
        _, cache = model.run_with_cache(TOKENS)
        deviations.append(
            torch.cat([cache["pattern", layer] - even for layer in range(2)], 1).transpose(0, 1).flatten(1)
        )
    left, right = (rows / rows.norm(dim=1, keepdim=True) for rows in deviations)
    np.testing.assert_allclose(found.pattern, (left @ right.T).detach().numpy(), atol=1e-6)


def test_a_matching_goes_on_to_another_text_without_its_circuits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = make(), make(seed=3)
    whole, by_function = match_heads(a, b, TOKENS), match_heads(a, b)
    monkeypatch.delattr("aotlens.heads.matching.cosines")
    found = by_function.on(a, b, TOKENS)
    assert found.pairs == whole.pairs and found.measured == whole.measured
    np.testing.assert_array_equal(found.similarity, whole.similarity)
    other = by_function.on(a, b, TOKENS.flip(1))
    assert not np.array_equal(other.similarity, whole.similarity)
    with refused("8 and 8 heads", "2 layers of 2"):
        by_function.on(a, make(n_heads=2), TOKENS)


def test_models_of_other_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="vocabularies of 11 and 12"):
        match_heads(make(), make(d_vocab=12))
    words = [Tokenizer.train([text * 4], 260) for text in ("the cat sat", "one two two")]
    models = [make(d_vocab=260, tokenizer=each) for each in words]
    with pytest.raises(ValueError, match="other words"):
        match_heads(*models)
    classes = make(read_out="classes", d_out=3)
    with refused("tokens", "3 classes"):
        match_heads(make(), classes)
    with refused("3 classes", "4 classes"):
        match_heads(classes, make(read_out="classes", d_out=4))


def test_heads_of_classifiers_are_compared_by_what_they_write_to_the_classes() -> None:
    options = {"read_out": "classes", "d_out": 3, "pooling": "mean"}
    a, b = make(**options), maker({**SMALL, "n_heads": 2, "norm": "layernorm"}, dtype=torch.float64, seed=5)(**options)
    p = torch.arange(1.0, SMALL["d_vocab"] + 1).double()
    a.unigram_counts, p = p * 3, p / p.sum()
    found = match_heads(a, b, TOKENS[:, :8])
    for i, left in enumerate(found.left):
        for j, right in enumerate(found.right):
            M, N = (ov_circuit(m, head).AB.double() for m, head in ((a, left), (b, right)))
            M, N = ((rows - rows.mean(1, keepdim=True)) * p[:, None].sqrt() for rows in (M, N))
            assert found.ov[i, j] == pytest.approx(float((M * N).sum() / M.norm() / N.norm()), abs=1e-5)
    orders = [[2, 0, 3, 1], [1, 3, 0, 2]]
    again = match_heads(a, turned(a, orders), TOKENS[:, :8])
    assert again.pairs == tuple(((layer, i), (layer, orders[layer][i])) for layer in range(2) for i in range(4))


def test_without_queries_and_keys_only_ov_is_compared() -> None:
    model = make(phi="fixed", fixed_pattern="random")
    found = match_heads(model, make())
    assert found.qk is None and found.measured == ("ov",) and "pairs" in found.headline


#: Impostors whose patterns compare several tokens, or earlier ones, and rest on the first position: on their own token,
#: or a fixed distance back, if no other one matches. By the labels whose scores they earn.
COMPARING = {
    "matches t[i−2] = t[j−2]": ("current_token", matching((2, 2))),
    "matches t[i−4] = t[j−4]": ("current_token", matching((4, 4))),
    "matches its own token and the one before": ("current_token", matching((0, 0), (1, 1))),
    "matches two tokens before": ("current_token", matching((1, 1), (2, 2))),
    "finds what followed its last two tokens": ("fixed_offset", matching((0, 1), (1, 2))),
    "finds what followed two tokens before": ("fixed_offset", matching((1, 2), (2, 3))),
    "finds two tokens before": ("fixed_offset", matching((1, 1), (2, 2), own=False)),
    "always attends to the frequent token": (
        "retrieval",
        lambda tokens: (tokens == 3)[:, None].expand(-1, tokens.shape[1], -1),
    ),
}


@pytest.fixture(scope="module")
def comparing() -> dict[str, MotifScores]:
    """The scores of these heads, and last of true ones that share their attention with all keys."""
    diffuse = [lambda tokens, of=of: of(tokens) / of(tokens).sum(-1, keepdim=True) + 0.6 / N for of in (
        matching((0, 1)), matching((0, 0), own=False))]  # fmt: skip
    model = patterned(*(pattern for _, pattern in COMPARING.values()), *diffuse, n_pos=N, d_vocab=V)
    of_few = {f"{n} symbols": repeated_random_tokens(n + 1, 12, 19, 0, distances=True) for n in (2, 3)}
    return {name: attention_to(model, tokens) for name, tokens in (sequences() | of_few).items()}


@pytest.mark.parametrize("place", range(len(COMPARING)), ids=list(COMPARING))
def test_a_head_that_compares_other_tokens_looks_at_no_place(place: int, comparing: dict[str, MotifScores]) -> None:
    label = list(COMPARING.values())[place][0]
    labels = {where: scores.labels()[0][place] for where, scores in comparing.items()}
    assert not set(labels.values()) & {label, "current_token", "previous_token", "fixed_offset", "mirror"}, labels
    assert max(scores[label][0, place] for scores in comparing.values()) > 0.4, "it would be no impostor"


def test_two_sequences_have_the_control_of_a_fixed_distance_as_of_other_places() -> None:
    """What counts are the queries with another token: a head that finds two tokens before looks at no place."""
    finds = COMPARING["finds two tokens before"][1]
    scores = attention_to(patterned(finds, n_pos=N, d_vocab=V), next(iter(sequences().values()))[:2])
    place = scores.motifs.index("fixed_offset")
    assert scores.n_controls[place] >= LEAST_CONTROLS > 2
    assert lost(scores)[place, 0, 0] > 0.5 and scores.labels()[0][0] != "fixed_offset"


def test_diffuse_heads_keep_their_labels_though_one_token_is_frequent(comparing: dict[str, MotifScores]) -> None:
    assert {tuple(scores.labels()[0][-2:]) for scores in comparing.values()} == {("induction", "duplicate_token")}


def test_heads_that_attend_to_a_place_at_some_tokens_only_keep_its_label() -> None:
    """To their own token or the one before at half to nine tenths of all tokens, and else to the first position."""

    def attends(back: int, tokens: frozenset[int]):
        def pattern(ids: Tensor) -> Tensor:
            key = torch.arange(ids.shape[1])
            return torch.where(
                torch.isin(ids, torch.tensor([*tokens]))[..., None], key[:, None] - back == key, key == 0
            )

        return pattern

    rng, heads = np.random.default_rng(0), []
    for back, name in enumerate(("current_token", "previous_token")):
        for share in (0.5, 0.6, 0.75, 0.9) * 3:
            some = frozenset(rng.choice(np.arange(1, V), size=round(share * (V - 1)), replace=False).tolist())
            heads.append((name, attends(back, some)))
    model, kept, total = patterned(*(pattern for _, pattern in heads), n_pos=N, d_vocab=V), 0, 0
    for tokens in (sequences()[name] for name in ("one distance", "many distances", "words")):
        scores = attention_to(model, tokens)
        for place, (name, _) in enumerate(heads):
            if scores[name][0, place] > 0.45:
                total += 1
                kept += scores.labels()[0][place] == name
    assert total > 50 and kept >= 0.95 * total, f"{kept} of {total}"


@pytest.mark.parametrize("half", [4, 8, 12])
def test_induction_keeps_its_label_on_short_sequences_that_repeat_at_one_distance(half: int) -> None:
    """The control has queries whose key, at that distance, has no replaced token near it."""
    tokens, _ = repeated(half, 6)
    scores = attention_to(induction(half, 8.0), tokens)
    assert scores.labels() == [["previous_token"], ["induction"]]
