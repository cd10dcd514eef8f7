"""Rows, columns and block maxima of long prompts against numpy on the patterns that a forward pass makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aotlens.heads import AttentionPatterns, attention_patterns, long_patterns, without
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

TOKENS = torch.arange(37) % 19
KINDS: dict[str, dict[str, Any]] = {
    "mhsa": {}, "mssa": {"attention": "mssa"}, "rotary": {"positions": "rotary"}, "alibi": {"positions": "alibi"},
    "qk": {"positions": "qk"}, "linear": {"phi": "linear"}, "both sides": {"causal": False},
    "fixed": {"phi": "fixed", "fixed_pattern": "random"}, "windows": {"windows": (5, None)},
    "qk norm": {"qk_norm": "layer", "norm": None, "bias": False},
    "rotary, qk norm": {"positions": "rotary", "qk_norm": "head", "norm": None, "bias": False},
    "cap": {"score_cap": 20.0}, "threshold": {"phi": "thresholded_softmax", "threshold": 0.1},
}  # fmt: skip
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 2e-5}


def tiny(**rest: Any) -> AttentionOnlyTransformer:
    sizes = {"n_layers": 2, "d_model": 24, "n_heads": 3, "d_head": 8, "d_vocab": 19, "n_ctx": 40, "init_std": 0.5}
    return AttentionOnlyTransformer(ModelConfig(**{**sizes, "seed": 1, **rest}))


def whole(patterns: AttentionPatterns, windows: Any, quantity: str) -> np.ndarray:
    """All entries of a quantity, NaN where hidden in that layer."""
    values = np.where(patterns.visible[None], patterns.quantity(quantity), np.nan)
    behind = np.arange(len(TOKENS))[:, None] - np.arange(len(TOKENS))
    for layer, window in enumerate(windows or ()):
        values[layer] = np.where(behind < (window or 99), values[layer], np.nan)
    return values


def blocks_by_hand(values: np.ndarray, block: int) -> np.ndarray:
    """The entry of the largest magnitude of each block, one block at a time; 0 for those without any."""
    rows, columns = (range(0, size, block) for size in values.shape)
    found = np.zeros((len(rows), len(columns)))
    for row in rows:
        for column in columns:
            part = values[row : row + block, column : column + block].ravel()
            part = part[np.isfinite(part)]
            if len(part):
                found[row // block, column // block] = part[np.abs(part).argmax()]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_rows_columns_and_block_maxima_are_those_of_whole_patterns(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("aotlens.heads.long_prompts._BAND_BYTES", 4 * 37 * 13)  # some rows at a time
    model = tiny(**KINDS[kind])
    patterns, long = attention_patterns(model, TOKENS), long_patterns(model, TOKENS)
    np.testing.assert_allclose(long.value_norms, patterns.value_norms, rtol=1e-5)
    for quantity in ("attention", "weighted", *(["scores"] if patterns.scores is not None else [])):
        values = whole(patterns, model.cfg.windows, quantity)
        np.testing.assert_allclose(long.rows((1, 2), 9, 20, quantity), values[1, 2, 9:20], **CLOSE)
        np.testing.assert_allclose(long.column((0, 1), 7, quantity), values[0, 1, :, 7], **CLOSE)
        for block in (1, 4, 50):
            maxima = long.maxima(block, quantity)
            assert maxima.signed == bool((values < 0).any())
            for layer, head in np.ndindex(2, 3):
                first, rest = values[layer, head].copy(), values[layer, head].copy()
                first[:, 1:], rest[:, 0] = np.nan, np.nan
                np.testing.assert_allclose(maxima.first[layer, head], blocks_by_hand(first, block)[:, 0], **CLOSE)
                np.testing.assert_allclose(maxima.rest[layer, head], blocks_by_hand(rest, block), **CLOSE)


@pytest.mark.parametrize(("queries", "keys"), [((8, 24), (0, 16)), ((24, 37), (16, 37)), ((0, 8), (32, 37))])
def test_a_tile_is_that_part_of_a_head(queries: tuple[int, int], keys: tuple[int, int]):
    long = long_patterns(tiny(), TOKENS)
    part, all_of_it = long.maxima(4, head="1.2", queries=queries, keys=keys), long.maxima(4)
    rows, columns = slice(queries[0] // 4, -(-queries[1] // 4)), slice(keys[0] // 4, -(-keys[1] // 4))
    np.testing.assert_allclose(part.rest, all_of_it.rest[1, 2, rows, columns], **CLOSE)
    np.testing.assert_allclose(part.first, all_of_it.first[1, 2, rows] if keys[0] == 0 else [], **CLOSE)


def test_heads_that_are_ablated_change_later_layers_alone():
    model = tiny()
    with without(model, [(0, 1)]):
        ablated = long_patterns(model, TOKENS)
    with without(model, [(0, 1)]):
        patterns = attention_patterns(model, TOKENS)
    np.testing.assert_allclose(ablated.rows("1.0", 0, 37), whole(patterns, None, "attention")[1, 0], **CLOSE)
    assert not np.allclose(
        ablated.rows("1.0", 20, 37), long_patterns(model, TOKENS).rows("1.0", 20, 37), equal_nan=True
    )


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda long: long.rows("1.0", 3, 38), "expected queries within 0 to 36"),
        (lambda long: long.column("1.0", 37), "expected key within 0 to 36"),
        (lambda long: long.rows("1.3", 0, 1), "1.3"),
        (lambda long: long.rows("1.0", 0, 1, "value"), "expected one of 'attention', 'weighted', 'scores'"),
        (lambda long: long.maxima(0), "block=0"),
        (lambda long: long.maxima(4, head="0.0", queries=(2, 8)), "from a multiple of 4"),
    ],
)
def test_what_cannot_be_asked_is_said(ask: Any, says: str):
    with refused(says):
        ask(long_patterns(tiny(), TOKENS))


def test_what_has_no_long_patterns_is_said():
    with refused("has no queries, no keys and so no scores"):
        long_patterns(tiny(phi="fixed", fixed_pattern="random"), TOKENS).maxima(4, "scores")
    with refused("no attn_mask of its own"):
        long_patterns(tiny(attn_mask=np.tril(np.ones((1, 40, 40), bool))), TOKENS)
    broken = long_patterns(tiny(), TOKENS)
    with torch.inference_mode():
        broken.keys[1][2, 5] = float("nan")
    with refused("attention of head 1.2 is not finite"):
        broken.maxima(4)
