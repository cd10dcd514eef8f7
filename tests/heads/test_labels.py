"""One label a head: from random tokens what compares tokens, from text the rest, the first position told apart."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.heads import MotifScores, head_labels
from tests.messages import refused, says

MOTIFS = ("previous_token", "first_token", "induction", "uniform_attention")


def scores(*rows: tuple[float, float, float, float], chance: float = 0.05, n_layers: int = 1) -> MotifScores:
    """Of each head its score for each of `MOTIFS`, beside one chance."""
    values = np.array(rows).T.reshape(len(MOTIFS), n_layers, -1)
    return MotifScores(motifs=MOTIFS, values=values, n_queries=np.full(4, 9), chance=np.full(values.shape, chance))


@pytest.mark.parametrize(
    ("head", "label", "resting", "margin"),
    [
        ((0.50, 0.10, 0.00, 0.0), "previous_token", False, 0.45 - 0.05),
        ((0.10, 0.90, 0.00, 0.0), "first_token", False, 0.85 - 0.05),
        ((0.25, 0.50, 0.00, 0.0), "previous_token", True, 0.2 / 0.5),  # half of what is left
        ((0.15, 0.50, 0.00, 0.0), "first_token", False, 0.45 - 0.10),  # .3 of it is no half
        ((0.04, 0.92, 0.00, 0.0), "first_token", False, 0.87),  # too little is left
        ((0.30, 0.35, 0.00, 0.0), "mixed", False, np.nan),  # who does not rest is not divided
        ((0.10, 0.10, 0.00, 0.95), "uniform_attention", False, 0.05),
    ],
)
def test_the_first_position_is_where_heads_rest(head: tuple, label: str, resting: bool, margin: float) -> None:
    found = scores(head)
    assert found.labels() == [[label]] and found.resting().tolist() == [[resting]]
    assert found.margins()[0, 0] == pytest.approx(margin, nan_ok=True)
    alone = head_labels(text=found)
    assert alone.names == ((label,),) and alone.resting.tolist() == [[resting]]


def test_random_tokens_decide_of_what_compares_tokens_and_text_of_the_rest() -> None:
    random = scores((0.0, 0.1, 0.9, 0.0), (0.9, 0.0, 0.0, 0.0), (0.0, 0.0, 0.9, 0.0), (0.0, 0.1, 0.3, 0.0), n_layers=2)
    text = scores((0.0, 0.8, 0.1, 0.0), (0.1, 0.6, 0.0, 0.0), (0.5, 0.1, 0.0, 0.0), (0.1, 0.1, 0.5, 0.0), n_layers=2)
    found = head_labels(random, text)
    assert found.names == (("induction", "first_token"), ("induction", "induction"))
    assert found.resting.tolist() == [[True, False], [False, False]]
    np.testing.assert_allclose(found.margins.ravel(), [0.85 - 0.05, 0.55 - 0.05, 0.85, 0.45 - 0.05])
    assert [found.source(head) is random for head in ("0.0", "0.1", "1.0", "1.1")] == [True, False, True, False]
    says(found.sentence("0.0"), "what followed an earlier occurrence", "on random tokens", "0.90 (chance 0.05)")
    says(found.sentence("0.0"), "Otherwise it attends to the first token (0.80)", "A head of the first layer")
    assert "first layer" not in found.sentence("1.0") and "random" not in found.sentence("1.1")
    assert list(found.to_frame()) == ["layer", "head", "label", "resting", "margin"]
    assert head_labels(random).names == (("induction", "previous_token"), ("induction", "mixed"))
    says(head_labels(random).sentence("1.1"), "no one motif", "induction (+0.25)")
    assert found.headline == "3 induction, 1 first_token"
    with refused("random tokens", "text", "neither"):
        head_labels()
