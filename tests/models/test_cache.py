"""Caches: what a key means, what a cache is without a batch, and a run that stops before a layer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import transformer_lens
from transformer_lens.utilities import get_act_name

from aotlens.models import ActivationCache, hook_names

OF_LAYERS = ["resid_pre", "attn_out", "mlp_out", "q", "k", "v", "z", "attn_scores", "pattern", "result", "pre", "post"]
ALONE = ["embed", "pos_embed", "scale", "normalized", "k1", "pattern0", "scale4ln1", "pre5", "hook_embed",
         "ln_final.hook_scale"]  # fmt: skip


def test_short_names_are_transformer_lenss() -> None:
    keys: list[tuple[Any, ...]] = [(name,) for name in ALONE]
    keys += itertools.product(OF_LAYERS, (0, 3), (None, "attn", "mlp"))
    keys += itertools.product(("scale", "normalized"), (0, 3), (None, "ln1", "ln2"))
    for key in keys:
        assert hook_names.activation(*key) == get_act_name(*key), key


@pytest.fixture
def caches(make, tokens) -> tuple[ActivationCache, transformer_lens.ActivationCache]:
    model = make(bias=True)
    cached = model.run_with_cache(tokens[:1], return_cache_object=False)[1]
    return ActivationCache(cached, model), transformer_lens.ActivationCache(dict(cached), model)


def test_a_cache_is_read_as_transformer_lenss_is(caches) -> None:
    ours, theirs = caches
    keys: list[Any] = ["embed", "scale", "z1", ("pattern", 0), ("resid_post", -1), ("resid_pre", -2), ("embed",)]
    keys += [("scale", 1, "ln1"), ("pattern", 1, "attn"), ("normalized", -1, "ln1"), *theirs.keys()]
    assert all(torch.equal(ours[key], theirs[key]) for key in keys)
    assert list(ours) == list(theirs) == list(ours.keys()) and len(ours) == len(theirs)
    assert all(value is ours[name] for name, value in ours.items())
    assert [id(value) for value in ours.values()] == [id(value) for value in theirs.values()]
    assert repr(ours) == repr(theirs)
    assert "blocks.0.attn.hook_z" in ours and ("z", 1) in ours and ("z", 2) not in ours
    assert ours == ours and ours != ActivationCache(ours.cache_dict, ours.model)
    for cache, key in itertools.product(caches, [("result", 0), ("pattern", 2), "nothing"]):
        with pytest.raises(KeyError, match=r"result|pattern|nothing"):
            cache[key]


def test_a_cache_without_a_batch_and_on_another_device(caches) -> None:
    ours, theirs = caches
    assert ours.remove_batch_dim() is ours and not ours.has_batch_dim
    theirs.remove_batch_dim()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert ours.remove_batch_dim()["pattern", 0].shape == (3, 7, 7), "a second time there is nothing to take off"
    assert ours.to("meta") is ours and {value.device.type for value in ours.values()} == {"meta"}
    with pytest.raises(ValueError, match="gpu"):
        ours.to("gpu")


def test_a_batch_of_two_keeps_its_dimension(make, tokens) -> None:
    cache = make().run_with_cache(tokens)[1]
    with pytest.raises(ValueError, match="2 rows"):
        cache.remove_batch_dim()
    assert cache.has_batch_dim and cache["pattern", 0].shape == (2, 3, 7, 7)


def test_the_way_to_transformer_lenss_methods_is_named_and_leaves_the_cache(caches) -> None:
    ours, _ = caches
    with pytest.raises(AttributeError, match=r"to_transformer_lens\(\)\.decompose_resid"):
        ours.decompose_resid()
    names = list(ours)
    converted = ours.to_transformer_lens()
    converted.compute_head_results()
    assert isinstance(converted, transformer_lens.ActivationCache) and converted.has_batch_dim
    assert converted["pattern", -1] is ours["pattern", -1] and list(ours) == names
    assert not ours.remove_batch_dim().to_transformer_lens().has_batch_dim


@pytest.mark.parametrize("fields", [{}, {"positions": "qk"}, {"d_mlp": 9, "norm": None}])
@torch.no_grad()
def test_a_run_stops_before_a_layer(make, tokens, fields) -> None:
    model = make(**fields)
    expected = model.run_with_cache(tokens)[1]
    streams = [expected["resid_pre", 0], expected["resid_pre", 1], expected["resid_post", 1]]
    for layer, stream in [*enumerate(streams), (-2, streams[0]), (-1, streams[1])]:
        stopped, cache = model.run_with_cache(tokens, stop_at_layer=layer, return_type="loss")
        assert torch.equal(stopped, stream)
        first_left_out = 2 if layer == 2 else layer % 2
        later = ("ln_final.", *(f"blocks.{left_out}." for left_out in range(first_left_out, 2)))
        assert set(cache) == {name for name in expected if not name.startswith(later)}, "what did not run is silent"
    resumed = model(tokens, start_at_layer=1, resid_pre=streams[1], stop_at_layer=2)
    torch.testing.assert_close(resumed, streams[2])


def test_stopping_there_is_stopping_where_transformer_lens_does(make, tokens) -> None:
    from aotlens.interop import to_transformer_lens

    model = make(n_layers=3, d_head=4)
    bridge = to_transformer_lens(model)
    for layer in (0, 1, 2, -1, -3):
        torch.testing.assert_close(model(tokens, stop_at_layer=layer), bridge(tokens, stop_at_layer=layer))


@pytest.mark.parametrize("layer", [3, -3])
def test_a_layer_that_is_not_there_is_named(make, tokens, layer) -> None:
    with pytest.raises(ValueError, match=f"stop_at_layer={layer}.* 0 to 2"):
        make()(tokens, stop_at_layer=layer)


def test_a_run_that_starts_after_its_stop_is_refused(make, tokens) -> None:
    model = make()
    with pytest.raises(ValueError, match=r"stop_at_layer=0.* 1 to 2"):
        model(tokens, start_at_layer=1, resid_pre=torch.zeros(2, 7, 12), stop_at_layer=0)
