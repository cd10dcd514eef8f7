"""The head that is clearest on a text, against patterns made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aotlens.heads import AttentionPatterns
from aotlens.heads.patterns import clearest_head

#: A start token, then "a b c d" twice: queries 5 to 8 repeat, and 2 to 5 followed what they repeat.
TOKENS = [0, 1, 2, 3, 4, 1, 2, 3, 4]
WORDS = ("<s>", " a", " b", " c", " d", " a", " b", " c", " d")


def patterns(*heads: np.ndarray) -> AttentionPatterns:
    n_pos = len(TOKENS)
    return AttentionPatterns(
        tokens=np.array(TOKENS), str_tokens=WORDS, pattern=np.stack(heads).astype(np.float32)[None], scores=None,
        value_norms=np.ones((1, len(heads), n_pos), dtype=np.float32),
        visible=np.tril(np.ones((1, n_pos, n_pos), dtype=bool)),
    )  # fmt: skip


def attending(keys: dict[int, int], share: float = 1.0) -> np.ndarray:
    """A head that puts `share` of each query's attention on the key that is named, and the rest on position 0."""
    pattern = np.zeros((len(TOKENS), len(TOKENS)))
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
