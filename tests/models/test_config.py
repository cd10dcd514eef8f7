"""Configurations: what is refused and how it is said, and the way to JSON and back."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
import torch

from aotlens.models import ModelConfig
from tests.messages import refused

SIZES = {"n_layers": 1, "d_model": 4, "n_heads": 2, "d_head": 2, "n_ctx": 3, "d_vocab": 5}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention": "mqa"}, "attention='mqa': expected one of 'mhsa', 'mssa'."),
        (
            {"phi": "hardmax"},
            "phi='hardmax': expected one of 'softmax', 'thresholded_softmax', 'linear', 'fixed'.",
        ),
        ({"norm": "rmsnorm"}, "norm='rmsnorm': expected one of 'layernorm', 'rms', None."),
        ({"positions": "relative"}, "positions='relative': expected one of 'learned', 'qk', 'rotary', 'alibi', None."),
        ({"act_fn": "solu"}, "act_fn='solu': expected one of 'gelu', 'gelu_new', 'relu', 'silu'."),
        ({"read_in": "audio"}, "read_in='audio'"),
        ({"n_layers": 0}, "n_layers=0: expected a whole number of at least 1."),
        ({"d_head": 2.0}, "d_head=2.0: expected a whole number"),
        ({"n_ctx": None}, "n_ctx=None: expected a whole number"),
        ({"d_mlp": 0}, "d_mlp=0: expected a whole number"),
        ({"n_heads": True}, "n_heads=True: expected a whole number"),
        ({"causal": None}, "causal=None: expected True or False."),
        ({"bias": "yes"}, "bias='yes': expected True or False."),
        ({"seed": -1}, "seed=-1: expected a whole number of at least 0."),
        ({"tied_output": True}, "tied_output=True needs attention='mssa'"),
        ({"step_size": 0.5}, "step_size=0.5 acts only on a tied output"),
        ({"attention": "mssa", "step_size": 0.5}, "step_size=0.5 acts only on a tied output"),
        ({"step_size": float("nan")}, "step_size=nan: expected a finite number."),
        ({"attn_scale": 0.0}, "attn_scale=0.0: expected a finite number, above 0"),
        ({"attn_scale": "1"}, "attn_scale='1': expected a finite number."),
        ({"phi": "thresholded_softmax"}, "needs 0 < threshold < 1, got None"),
        ({"phi": "thresholded_softmax", "threshold": 1.0}, "needs 0 < threshold < 1, got 1.0"),
        ({"threshold": 0.5}, "threshold=0.5 needs phi='thresholded_softmax', got 'softmax'"),
        ({"phi": "fixed"}, "phi='fixed' needs fixed_pattern 'given', 'random' or 'learned'"),
        ({"fixed_pattern": "random"}, "fixed_pattern='random' needs phi='fixed', got 'softmax'"),
        ({"phi": "fixed", "fixed_pattern": "random", "positions": "qk"}, "phi='fixed' has neither"),
        ({"norm_eps": 0.0}, "norm_eps=0.0: expected a finite number, above 0"),
        ({"init_std": -1.0}, "init_std=-1.0: expected a finite number, at least 0"),
        ({"d_vocab": None}, "d_vocab is needed when tokens are read in or out."),
        ({"tied_embeddings": True, "bias": True}, "tied_embeddings=True has no room for a bias"),
        ({"tied_embeddings": True, "read_out": "vectors"}, "tied_embeddings=True needs read_in='tokens'"),
        ({"read_out": "classes"}, "read_out='classes' needs d_out"),
        ({"d_out": 3}, "d_out=3: read_out='tokens' has d_vocab outputs"),
        ({"d_in": 3}, "d_in=3 needs read_in='vectors', got 'tokens'."),
        ({"class_token": True}, "class_token=True needs read_in='patches' or 'vectors'."),
        ({"read_in": "patches"}, "read_in='patches' needs image_size and patch_size."),
        (
            {"read_in": "patches", "image_size": 9, "patch_size": 2},
            "image_size=9: not a multiple of patch_size=2",
        ),
        ({"read_in": "patches", "image_size": 4, "patch_size": 2}, "n_ctx=3: 4 positions are needed"),
        ({"attn_mask": [[[True]]]}, "expected [1 or 2 heads, 3 queries, 3 keys], got a head of 1 queries"),
        ({"attn_mask": torch.ones(4, 3, 3)}, "expected [1 or 2 heads, 3 queries, 3 keys], got 4 heads"),
        ({"attn_mask": [[1, 2, 3]]}, "got heads that are not tables"),
        ({"attn_mask": torch.zeros(1, 3, 3)}, "hides every key from query 0 of head 0"),
    ],
)
def test_what_does_not_fit_together_is_said(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelConfig(**{**SIZES, **fields})


CONFIGURATIONS = [
    {},
    {"attention": "mssa", "tied_output": True, "step_size": 0.3, "attn_scale": 1.0, "norm": None},
    {"phi": "thresholded_softmax", "threshold": 0.2, "attn_mask": torch.ones(2, 3, 3).tril()},
    {"phi": "linear", "attn_mask": torch.zeros(1, 3, 3, dtype=torch.bool)},
    {"phi": "fixed", "fixed_pattern": "learned", "positions": None, "causal": False},
    {
        "read_in": "patches", "image_size": 4, "patch_size": 4, "n_ctx": 2, "class_token": True,
        "read_out": "classes", "d_out": 3, "pooling": "mean", "d_vocab": None,
    },
]  # fmt: skip


@pytest.mark.parametrize("fields", CONFIGURATIONS)
def test_to_json_and_back(fields):
    cfg = ModelConfig(**{**SIZES, **fields})
    written = json.loads(json.dumps(cfg.to_dict()))
    assert ModelConfig.from_dict(written) == cfg
    assert hash(ModelConfig.from_dict(written)) == hash(cfg)
    assert written.keys() == {field.name for field in dataclasses.fields(cfg)}


def test_unknown_and_missing_keys_are_named():
    with refused("colour, dropout", "act_fn"):
        ModelConfig.from_dict({**SIZES, "dropout": 0.1, "colour": "red"})
    with refused("d_head, n_layers"):
        ModelConfig.from_dict({k: v for k, v in SIZES.items() if k not in ("d_head", "n_layers")})


def test_what_is_derived():
    cfg = ModelConfig(**SIZES)
    assert cfg.score_scale == 2**-0.5 and ModelConfig(**SIZES, attn_scale=1.0).score_scale == 1.0
    assert cfg.attn_only and not ModelConfig(**SIZES, d_mlp=8).attn_only
    assert cfg.normalization_type == "LN" and ModelConfig(**SIZES, norm=None).normalization_type is None
    assert cfg.has_query_key


def test_configurations_are_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig(**SIZES).n_layers = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        ModelConfig(1, 2, 3, 4, 5)  # type: ignore[misc]
