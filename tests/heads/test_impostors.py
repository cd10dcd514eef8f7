"""The table label × impostor: a head that earns a label's score in another way does not get it, and true heads do.

One rule decides (`aotlens.heads.label_rule`), and scores, atlas and induction circuit answer alike.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.data import PromptPairs, Tokenizer, repeated_random_tokens
from aotlens.heads import (
    HEAD_SCORES,
    MOTIFS,
    MotifScores,
    atlas,
    attention_to,
    head_scores,
    induction_circuit,
    motif_scores,
    stored_atlas,
)
from aotlens.heads.inputs import Inputs
from aotlens.heads.reader import HeadReader
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.heads.hand_built import induction, repeated
from tests.heads.impostors import Reads, V, always, back, built, matching, patterned, sequences
from tests.image_models import make as make_of_images
from tests.image_models import random_images
from tests.messages import refused

#: Heads of tokens by the label that they deserve.
TRUE = {
    "induction": Reads("token", "before"),
    "duplicate_token": Reads("token", "token"),
    "previous_token": back(1),
    "current_token": back(0),
    "fixed_offset": back(7),
    "first_token": always("position", 0),
    "uniform_attention": None,
}
#: Impostors: the labels whose scores they earn on some of the sequences below, and what they read.
IMPOSTORS = {
    "matches the tokens before: t[i−1] = t[j−2]": (("induction",), Reads("before", "two_before")),
    "matches the tokens before: t[i−1] = t[j−1]": (("duplicate_token", "current_token"), Reads("before", "before")),
    "finds the key two after its token": (("induction",), Reads("token", "two_before")),
    "looks as far back as tokens repeat": (("duplicate_token", "retrieval"), back(19)),
    "looks that far back, less one": (("induction", "retrieval"), back(18)),
    "always attends to one token": (("duplicate_token",), always("token", 3)),
    "always attends to what follows one token": (("induction",), always("before", 3)),
    "always attends to one position": (("fixed_offset", "previous_token", "mirror"), always("position", 3)),
    "attends to all keys alike": (("induction", "duplicate_token", "retrieval"), None),
}


@pytest.fixture(scope="module")
def tables() -> dict[str, MotifScores]:
    """The scores of all heads of both tables, by what they were measured on."""
    model = built(*TRUE.values(), *(reads for _, reads in IMPOSTORS.values()))
    found = {name: attention_to(model, tokens) for name, tokens in sequences().items()}
    return found | {"random": motif_scores(model)}


@pytest.mark.parametrize("place", range(len(IMPOSTORS)), ids=list(IMPOSTORS))
def test_an_impostor_has_no_label_whose_score_it_earns(place: int, tables: dict[str, MotifScores]) -> None:
    name, head = list(IMPOSTORS)[place], len(TRUE) + place
    labels = {where: scores.labels()[1][head] for where, scores in tables.items()}
    assert not set(labels.values()) & {*IMPOSTORS[name][0], "induction", "duplicate_token"}, labels
    earned = {
        label
        for scores in tables.values()
        for label in IMPOSTORS[name][0]
        if label in scores.motifs and label not in scores.reasons and scores[label][1, head] >= 0.3
    }
    assert earned or "position" in name, "it would be no impostor"


@pytest.mark.parametrize("label", TRUE)
def test_a_true_head_has_its_label(label: str, tables: dict[str, MotifScores]) -> None:
    """On every kind of sequences, with position 0 aside where a start token stands; noisy heads too, below."""
    head = list(TRUE).index(label)
    assert {where: scores.labels()[1][head] for where, scores in tables.items()} == dict.fromkeys(tables, label)


def test_at_least_95_of_100_noisy_true_heads_keep_their_labels() -> None:
    """Attention of about .5 to .95: matches of 4.5 to 7.5 nats among 40 keys."""
    named = [(label, reads) for label, reads in TRUE.items() if reads is not None]
    kept = total = 0
    for step, sharp in enumerate(np.linspace(4.5, 7.5, 5)):
        tokens = repeated_random_tokens(V, 16, 19, step, distances=True)
        labels = attention_to(built(*(reads for _, reads in named), sharp=float(sharp)), tokens).labels()[1]
        kept += sum(found == label for found, (label, _) in zip(labels, named, strict=True))
        total += len(named)
    assert kept >= 0.95 * total, f"{kept} of {total}"


def test_documents_are_units_if_there_are_three_and_one_sequence_has_no_label() -> None:
    model, tokens = built(back(1), Reads("token", "before")), sequences()["many distances"]
    for documents in ([0] * 12, [0, 1] * 6, [0, 1, 2] * 4, None):
        scores = attention_to(model, tokens, clusters=documents)
        assert scores.labels()[1] == ["previous_token", "induction"]
        few = documents is not None and len(set(documents)) < 3
        assert scores.intervals is not None and np.isnan(scores.intervals).all() == few
    assert set(attention_to(model, tokens[:1]).labels()[1]) == {"mixed"}


def reversing(c: int = 0, n: int = 14, sharp: float = 30.0) -> AttentionOnlyTransformer:
    """A head that attends from i to n − 1 − i + c."""
    cfg = ModelConfig(n_layers=1, d_model=n, n_heads=1, d_head=n, n_ctx=n, d_vocab=30, norm=None, causal=False)
    model = AttentionOnlyTransformer(cfg).requires_grad_(False)
    model.embed.W_E.zero_()
    model.pos_embed.W_pos.copy_(torch.eye(n))
    model.blocks[0].attn.W_Q[0] = sharp * torch.ones(n - abs(c)).diag(c).flip(0)
    model.blocks[0].attn.W_K[0] = torch.eye(n)
    return model


@pytest.mark.parametrize("c", [0, 2, -3])
def test_a_head_that_mirrors_positions_is_a_mirror_and_looks_no_fixed_distance_back(c: int) -> None:
    tokens = torch.randint(1, 30, (64, 14), generator=torch.Generator().manual_seed(0))
    scores = attention_to(reversing(c), tokens)
    assert scores.labels() == [["mirror"]] and scores["mirror"][0, 0] > 0.95
    assert scores["fixed_offset"][0, 0] < 0.4, "each distance is looked at from one query"
    if not c:
        assert atlas(reversing(c), tokens, hows=(), cache=None).labels.names == (("mirror",),)


@pytest.mark.parametrize("layout", ["a b =", "a b = c", "a + b ="])
def test_a_head_that_reads_both_numbers_alike_is_mixed(layout: str) -> None:
    """No start token: what stands at position 0 is one of both. Beside it a head of the token before."""
    rows = {"a": 0, "b": 1}
    values = torch.tensor(list(product(range(7), range(7))))
    columns = {"+": torch.full((49,), 8), "=": torch.full((49,), 9), "c": values.sum(1) % 7}
    columns |= {name: values[:, place] for name, place in rows.items()}
    tokens = torch.stack([columns[name] for name in layout.split()], 1)
    n, read = tokens.shape[1], [layout.split().index("a"), layout.split().index("b")]

    def both(ids: Tensor) -> Tensor:
        return torch.isin(torch.arange(n), torch.tensor(read)).expand(len(ids), n, n)[:, : ids.shape[1], : ids.shape[1]]

    def before(ids: Tensor) -> Tensor:
        return torch.ones(ids.shape[1] - 1).diag(-1).expand(len(ids), -1, -1)

    model = patterned(both, before, n_pos=n, d_vocab=10)
    scores = attention_to(model, tokens)
    assert not scores.starts and scores.labels() == [["mixed", "previous_token"]]
    assert atlas(model, tokens, hows=(), cache=None).labels.names == (("mixed", "previous_token"),)


def test_near_uniform_heads_over_three_symbols_compare_no_tokens() -> None:
    found = []
    for seed in range(15):
        cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, n_ctx=24, d_vocab=4, seed=seed)
        tokens = torch.randint(1, 4, (16, 24), generator=torch.Generator().manual_seed(seed))
        model = AttentionOnlyTransformer(cfg)
        found += [*np.ravel(attention_to(model, tokens).labels()), *np.ravel(motif_scores(model).labels())]
    assert len(found) == 120 and set(found) <= {"mixed", "uniform_attention"}


def test_every_function_gives_the_same_label_on_the_same_sequences() -> None:
    """Of the built circuit on repeats at one distance, where chance alone cannot tell it from one that looks back."""
    model, (tokens, _) = induction(12, 8.0, decoys=2), repeated(12, 8)
    labels = attention_to(model, tokens).labels()
    made = atlas(model, tokens, hows=("zero",), cache=None)
    assert labels == motif_scores(model, tokens).labels() == [list(row) for row in made.labels.names]
    assert labels[0][2] == "previous_token" and labels[1][2] == "induction"
    circuit = induction_circuit(model, made, tokens)
    assert circuit.heads == ((1, 2),) and circuit.own_sequences and "the given sequences" in circuit.verdict
    assert circuit.induction[0] == made.motifs["induction"][1, 2]
    with refused("no head", "labelled induction", "1.01 or more"):
        induction_circuit(model, made, threshold=1.01)


def test_the_loss_is_that_of_targets_and_not_of_the_random_part() -> None:
    """Without its copying the model loses on what repeats, and gains on what it could not know."""
    model, (tokens, targets) = induction(12, 8.0), repeated(12, 8)
    whole = atlas(model, tokens, hows=("zero",), cache=None)
    known = atlas(model, tokens, hows=("zero",), targets=targets, cache=None)
    place = known.ablations["zero"].heads.index((1, 0))
    with torch.no_grad():
        logits = model(tokens)
    nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    assert known.ablations["zero"].clean.mean() == pytest.approx(float(nats), abs=1e-5)
    assert known.ablations["zero"].changes[place] > 2 > whole.ablations["zero"].changes[place]
    circuit = induction_circuit(model, known, tokens, targets=targets)
    assert circuit.without_heads.change == pytest.approx(known.ablations["zero"].changes[place], abs=0.5)
    with refused("targets", "tokens"):
        induction_circuit(model, known, targets=targets)
    with refused("targets", "[8, 25]", "[8, 24]"):
        atlas(model, tokens, targets=targets[:, 1:], cache=None)


def test_a_context_that_is_too_short_is_said_without_an_impossible_range() -> None:
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=1, d_head=4, n_ctx=2, d_vocab=5)
    with refused("3 positions or more", "got one of 2"):
        atlas(AttentionOnlyTransformer(cfg), torch.zeros(4, 2, dtype=torch.long), cache=None)


# ── heads of words ──────────────────────────────────────────────────────────────────────────────────────────────

CODE = "f(a(b), x, y)\n    g(c(d), (e))\n    h[i(j), k]\nz((p), q, the The)\n    u(v), w; The w\nz(a, (b), c, d)\n"
TOKENIZER = Tokenizer.train([CODE * 3], 270)
N_CODE = 48


def code(n_sequences: int = 16) -> Tensor:
    """Windows of the code, with a start token, a mark at position 5, and separators at position 9 and at another."""
    ids = TOKENIZER.encode(CODE * 8)
    mark = TOKENIZER.encode(";")[0]
    rows = torch.tensor([[TOKENIZER.eot_id, *ids[11 * i : 11 * i + N_CODE - 1]] for i in range(n_sequences)])
    rows[:, 5], rows[:, 9] = mark, TOKENIZER.eot_id
    rows[torch.arange(n_sequences), 12 + torch.arange(n_sequences)] = TOKENIZER.eot_id
    return rows


def to_position(at: int):
    """A head that attends to one position."""
    return lambda tokens: (torch.arange(tokens.shape[1]) == at).expand(len(tokens), tokens.shape[1], -1)


def to_keys(name: str, *, simpler: bool = False):
    """A head that attends to the keys of a motif, or of its simpler habit, else to its own token and the first."""
    model = patterned(to_position(0), n_pos=N_CODE, tokenizer=TOKENIZER)

    def pattern(tokens: Tensor) -> Tensor:
        inputs = Inputs.of(HeadReader.of(model), tokens)
        mask = MOTIFS[name].simpler if simpler else None
        targets = MOTIFS[name].targets(inputs) if mask is None else mask(inputs)
        assert targets is not None
        rest = torch.eye(N_CODE) + to_position(0)(tokens).float()
        return torch.where(targets.keys.any(-1, keepdim=True), targets.keys.float(), rest)

    return pattern


WORDS = {
    "separator": to_position(9),
    "punctuation": to_position(5),
    "open_bracket": to_keys("open_bracket", simpler=True),
    "same_indentation": to_keys("same_indentation", simpler=True),
    "same_word": to_position(4),
    "retrieval": to_position(4),
}


def test_heads_of_words_have_their_labels_and_their_impostors_have_not() -> None:
    """Impostors look at one position, where such a token always stands; at the last bracket, closed or not; at the line
    before, however far in it begins."""
    tokens = code()
    model = patterned(*map(to_keys, WORDS), *WORDS.values(), n_pos=N_CODE, tokenizer=TOKENIZER)
    scores = attention_to(model, tokens)
    labels = scores.labels()[0]
    assert labels[: len(WORDS)] == list(WORDS)
    for label, found, head in zip(WORDS, labels[len(WORDS) :], range(len(WORDS), 2 * len(WORDS)), strict=True):
        assert found != label
        assert scores[label][0, head] > 0.4 or label in ("same_word", "retrieval")


def test_patches_that_every_head_of_a_kind_looks_at_are_no_labels() -> None:
    """Uniform attention is 8/9 at the edge of 3 × 3 patches; one patch is to the left of some, and bright in some."""
    model, images = make_of_images(), random_images(12)
    n = model.cfg.n_ctx
    fixed, flat = torch.zeros(n, n), torch.full((n, n), 1 / n)
    fixed[:, 4] = 1.0
    rows = torch.stack([fixed, flat] + [flat] * (model.cfg.n_heads - 2))
    for layer in range(model.cfg.n_layers):
        model.add_hook(f"blocks.{layer}.attn.hook_pattern", lambda pattern, hook: rows.to(pattern).expand_as(pattern))
    labels = attention_to(model, images).labels()[0]
    assert labels[0] in ("mixed", "border") and labels[1] == "uniform_attention"


# ── declared scores ─────────────────────────────────────────────────────────────────────────────────────────────


def text() -> Tensor:
    tokens = torch.randint(1, V, (16, 30), generator=torch.Generator().manual_seed(1))
    tokens[:, 0] = 0
    return tokens


def said(result, head: int, layer: int = 1) -> str:
    return " ".join(result.describe_head((layer, head)))


def test_a_strong_output_attends_to_nothing() -> None:
    """Uniform attention, attention to what repeats by the tokens before, and the true head, each lowering by 20."""
    heads = (None, Reads("before", "two_before"), Reads("token", "before"))
    result = head_scores(built(*heads, writes=-20.0), scores="anti_induction")
    assert result["anti_induction"][1].min() > 0.5, "all earn the score"
    assert [bool(said(result, head)) for head in range(3)] == [False, False, True]
    predicting = built(None, Reads("token", "token"), writes=[-20.0, -20.0])
    predicting.unembed.W_U[:V] = 3 * torch.eye(V)  # the stream predicts its own token
    result = head_scores(predicting, text(), "copy_suppression")
    assert result["copy_suppression"][1].min() > 0.5
    assert [bool(said(result, head)) for head in range(2)] == [False, True]


def test_a_name_mover_moves_what_it_attends_to() -> None:
    words = [(1 + 2 * place, 2 + 2 * place) for place in range(8)]
    prompts = torch.tensor([[0, a, w, 0, 0, 0] for a, w in words])
    heads = (None, None, always("position", 1), always("position", 1))
    model = built(*heads, writes=[60.0, -60.0, 3.0, -3.0])
    pairs = PromptPairs.of_inputs(model, prompts, prompts.roll(1, 0), *torch.tensor(words).T)
    result = head_scores(model, scores="name_mover", pairs=pairs)
    assert (np.abs(result["name_mover"][1]) > 0.5).all()
    assert not said(result, 0) and not said(result, 1)
    assert "raises it" in said(result, 2) and "negative name mover" in said(result, 3)


def test_scores_of_weights_are_above_chance_and_of_all_words() -> None:
    """A random OV circuit over twelve tokens has most of them among its ten lowest logits; one that always raises one
    word raises no successors."""
    cfg = ModelConfig(n_layers=1, d_model=12, n_heads=4, d_head=12, n_ctx=8, d_vocab=12, norm=None)
    result = head_scores(AttentionOnlyTransformer(cfg), scores="copy_suppression_ov")
    assert (result["copy_suppression_ov"] > 0.5).any() and not any(said(result, head, 0) for head in range(4))
    constant = patterned(to_position(0), n_pos=8, tokenizer=TOKENIZER)
    constant.embed.W_E[:] = 1.0
    assert not said(head_scores(constant, scores="successor"), 0, 0)


def test_attention_shares_are_due_to_what_stands_there() -> None:
    """A head that finds the same token, or looks a fixed distance back, finds no similar one; one that looks at one
    position attends to no delimiters, though one always stands there."""
    result = head_scores(built(Reads("token", "before"), back(10), None), scores="fuzzy_induction")
    assert not any(said(result, head) for head in range(3))
    model = patterned(to_position(5), to_keys("punctuation"), n_pos=N_CODE, tokenizer=TOKENIZER)
    result = head_scores(model, code(), "delimiter")
    assert result["delimiter"][0].min() > 0.4 and not said(result, 0, 0) and said(result, 1, 0)


@pytest.mark.parametrize("n_pairs", [2, 6])
def test_a_head_of_similar_tokens_is_found_in_a_small_vocabulary(n_pairs: int) -> None:
    """Another token at the query is now and then one that is similar to its own."""

    def similar(tokens: Tensor) -> Tensor:
        return matching((0, 1))((tokens + 1) // 2)

    model = patterned(similar, n_pos=101, d_vocab=2 * n_pairs + 1)
    model.embed.W_E[2::2] = model.embed.W_E[1::2] + 0.01 * model.embed.W_E[2::2]
    result = head_scores(model, scores="fuzzy_induction")
    assert result["fuzzy_induction"][0, 0] > 0.95 and said(result, 0, 0)


def test_a_head_that_writes_the_answer_whatever_the_prompt_shows_carries_no_task() -> None:
    model = built(always("position", 1), always("position", 3), writes=[9.0, 9.0])
    clean, corrupted = (torch.tensor([[0, first, 3 + row, 5] for row in range(6)]) for first in (1, 2))
    pairs = PromptPairs.of_inputs(model, clean, corrupted, [5] * 6, [2] * 6)
    result = head_scores(model, scores="function_vector", pairs=pairs)
    assert not said(result, 1)


def test_a_head_next_to_a_large_one_writes_little_by_comparison_and_its_norm_is_said() -> None:
    result = head_scores(built(back(1), back(2), writes=[1.0, 100.0]), text(), ["output_norm", "written_norm"])
    assert "writes little compared with its layer" in said(result, 0) and "1 in the stream" in said(result, 0)
    assert not said(result, 1) and "inactive" not in said(result, 0)
    labelled = {name for name, score in HEAD_SCORES.items() if score.threshold is not None}
    here = "anti_induction copy_suppression copy_suppression_ov name_mover function_vector fuzzy_induction"
    assert labelled == {*here.split(), "delimiter", "successor", "output_norm"}, "each has its impostor here"


@pytest.mark.usefixtures("real_bundled_folder")
def test_the_bundled_heads_keep_their_labels() -> None:
    model, kept = aotlens.load("novels-2l-mhsa", device="cpu"), stored_atlas("novels-2l-mhsa").atlas
    for names in (kept.labels.names, motif_scores(model).labels()):
        assert names[0][3] == "previous_token"
        assert {names[1][head] for head in (0, 1, 3)} == {"induction"}
    assert kept.labels.names[1][2] == "mixed"
