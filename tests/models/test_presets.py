"""The papers' models: their shapes, and their sizes as the tables print them."""

from __future__ import annotations

import inspect

import pytest
import torch

from aotlens.models import ModelConfig, count_parameters, presets
from tests.messages import refused

TABLE_4 = {  # exact: matrices and a tied embedding of 50,304 tokens
    "aot-mssa-l-base": 101_842_944,
    "aot-mssa-l-medium": 182_353_920,
    "aot-mhsa-l-base": 122_142_720,
    "gpt2-base": 123_568_128,
}
TABLE_5 = {"icl-aot-mssa-l": 7.5e6, "icl-aot-mhsa-l": 8.55e6, "icl-transformer": 9.63e6}
TABLES_1_AND_2 = {"aot-mssa-v": 22e6, "aot-mhsa-v": 15e6, "vit-s": 22e6}
ARCHITECTURES = {  # layers, width, heads, operator, has an MLP: as printed in Tables 4 and 5
    "aot-mssa-l-base": (24, 1024, 16, "mssa", False),
    "aot-mssa-l-medium": (36, 1280, 20, "mssa", False),
    "aot-mhsa-l-base": (24, 896, 14, "mhsa", False),
    "gpt2-base": (12, 768, 12, "mhsa", True),
    "icl-aot-mssa-l": (32, 128, 8, "mssa", False),
    "icl-aot-mhsa-l": (32, 128, 8, "mhsa", False),
    "icl-transformer": (16, 128, 8, "mhsa", True),
}


def test_every_name_is_here():
    assert set(presets.NAMES) == TABLE_4.keys() | TABLE_5.keys() | TABLES_1_AND_2.keys()
    with refused("'gpt3'", "aot-mssa-l-base"):
        presets.config("gpt3")


@pytest.mark.parametrize("name", TABLE_4)
def test_table_4_exactly(name):
    assert presets.convention(name) == "table_4"
    assert presets.count_parameters(name) == TABLE_4[name]


@pytest.mark.parametrize("name", TABLE_5)
def test_table_5_to_half_a_percent(name):
    assert presets.convention(name) == "table_5"
    assert presets.count_parameters(name) == pytest.approx(TABLE_5[name], rel=0.005)


@pytest.mark.parametrize("name", TABLES_1_AND_2)
def test_tables_1_and_2_to_half_a_percent(name):
    assert presets.count_parameters(name) == pytest.approx(TABLES_1_AND_2[name], rel=0.005)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_architectures_are_the_printed_ones(name):
    cfg = presets.config(name)
    got = (cfg.n_layers, cfg.d_model, cfg.n_heads, cfg.attention, cfg.d_mlp is not None)
    assert got == ARCHITECTURES[name]
    assert cfg.n_heads * cfg.d_head == cfg.d_model


@pytest.mark.parametrize("name", presets.NAMES)
def test_building_allocates_nothing(name):
    model = presets.build(name)
    assert all(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])
    assert model.cfg == presets.config(name)


@pytest.mark.parametrize("name", presets.NAMES)
def test_shapes_flow_through(name):
    """On the meta device: what goes in is what the paper puts in, what comes out has the printed width."""
    model = presets.build(name)
    cfg = model.cfg
    x = {
        "tokens": torch.zeros(2, 9, dtype=torch.long, device="meta"),
        "vectors": torch.zeros(2, 9, 20, device="meta"),
        "patches": torch.zeros(2, 3, 224, 224, device="meta"),
    }[cfg.read_in]
    expected = {"tokens": (2, 9, 50_304), "vectors": (2, 9, 1), "classes": (2, 1000)}[cfg.read_out]
    assert model(x).shape == expected


def test_a_small_preset_runs_with_weights():
    model = presets.build("icl-aot-mssa-l", device="cpu")
    out = model(torch.randn(1, 6, 20))
    assert out.shape == (1, 6, 1) and out.isfinite().all()


def test_conventions_counted_by_hand():
    cfg = ModelConfig(
        n_layers=2, d_model=6, n_heads=2, d_head=3, n_ctx=5, d_vocab=7, d_mlp=4, bias=True, attention="mssa"
    )
    matrices = 2 * (2 * 6 * 6 + 2 * 6 * 4) + 7 * 6 + 6 * 7
    attention_biases, mlp_biases, norms = 2 * (2 * 3 + 6), 2 * (4 + 6), 2 * 2 * 12 + 12
    everything = matrices + attention_biases + mlp_biases + norms + 7 + 5 * 6
    assert count_parameters(cfg, "table_4") == matrices
    assert count_parameters(cfg) == count_parameters(cfg, "all") == everything
    assert count_parameters(cfg, "table_5") == everything + 50_257 * 6
    with refused("'all', 'table_4', 'table_5'"):
        inspect.unwrap(count_parameters)(cfg, "table_6")  # past the type checker of these tests


def test_models_are_counted_as_their_configurations(make):
    for fields in ({}, {"tied_embeddings": True}, {"attention": "mssa", "tied_output": True}):
        model = make(**fields)
        assert count_parameters(model) == sum(p.numel() for p in model.parameters())
        assert count_parameters(model, "table_4") == count_parameters(model.cfg, "table_4")


@pytest.mark.parametrize("kind", ["given", "random", "learned"])
def test_only_learned_patterns_count(kind):
    sizes = {"n_layers": 1, "d_model": 4, "n_heads": 2, "d_head": 2, "n_ctx": 3, "d_vocab": 5}
    cfg = ModelConfig(**sizes, phi="fixed", fixed_pattern=kind, positions=None, norm=None)
    assert count_parameters(cfg) == 2 * 5 * 4 + 2 * 4 * 4 + (18 if kind == "learned" else 0)
