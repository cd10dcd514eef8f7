"""The table label × impostor, its heads that compare several tokens, or earlier ones than the query's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import repeated_random_tokens
from aotlens.heads import MotifScores, attention_to
from aotlens.heads.label_rule import LEAST_CONTROLS, lost
from tests.heads.hand_built import induction, repeated
from tests.heads.impostors import N, V, matching, patterned, sequences

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
