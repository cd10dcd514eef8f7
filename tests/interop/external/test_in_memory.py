"""Models of `transformers` in memory: each opens as what it computes, or is refused by name, and stays as it was."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
import transformers as T
from torch import nn

import aotlens
from aotlens.checkpoints import CheckpointError
from tests.interop.external.conftest import noisy
from tests.interop.external.test_as_saved import MAKE, SIZES
from tests.messages import refused

TOKENS = torch.arange(20)[None]


class Colder(nn.Module):
    """A wrapper with a forward of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(tokens).logits
        return logits / 2


def _scaled(model: Any) -> None:
    model.model.layers[1].self_attn.scaling *= 2


def _activated(model: Any) -> None:
    model.model.layers[0].mlp.act_fn = nn.Tanh()


def _own_forward(model: Any) -> None:
    forward = model.model.layers[0].mlp.forward
    model.model.layers[0].mlp.forward = lambda x: 2 * forward(x)


def _hooked(model: Any) -> None:
    model.model.layers[0].register_forward_hook(lambda module, inputs, output: output + 1)


CHANGES = {"scaling": _scaled, "act_fn": _activated, "forward": _own_forward, "hook": _hooked}


@pytest.mark.parametrize(
    ("change", "dtype"),
    [*((change, torch.float32) for change in CHANGES), *((c, torch.bfloat16) for c in CHANGES if c != "forward")],
)
def test_a_changed_model_is_refused_with_the_bridge(change: str, dtype: torch.dtype) -> None:
    theirs = noisy(MAKE["llama"]()).to(dtype)
    CHANGES[change](theirs)
    with refused("the model in memory", "self_attn.scaling", "build_bridge_from_module(model, 'LlamaForCausalLM'",
                 error=CheckpointError):  # fmt: skip
        aotlens.load(theirs, "cpu")


def test_a_wrapper_that_changes_logits_is_refused() -> None:
    with refused("the model in memory", "a wrapper", error=CheckpointError):
        aotlens.load(Colder(noisy(MAKE["llama"]())), "cpu")


def test_a_changed_model_that_opens_as_a_bridge_is_refused() -> None:
    theirs: Any = noisy(T.GraniteForCausalLM(T.GraniteConfig(**SIZES)))
    aotlens.load(theirs, "cpu")
    _scaled(theirs)
    with refused("the model in memory", "'GraniteForCausalLM'", error=CheckpointError):
        aotlens.load(theirs, "cpu")


_VIT = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
_ENCODERS: dict[str, Any] = {
    "vit": lambda: T.ViTForImageClassification(
        T.ViTConfig(**_VIT, image_size=8, patch_size=2, num_channels=1, num_labels=10)),
    "bert": lambda: T.BertForMaskedLM(T.BertConfig(**SIZES)),
    "roberta": lambda: T.RobertaForMaskedLM(T.RobertaConfig(**{**SIZES, "max_position_embeddings": 20})),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*preprocessor_config")
@pytest.mark.parametrize("kind", _ENCODERS)
def test_encoders_are_run_as_well(kind: str) -> None:
    theirs: Any = noisy(_ENCODERS[kind]())
    aotlens.load(theirs, "cpu")
    attention = next(each for name, each in theirs.named_modules() if name.endswith(("attention.output", "attention")))
    attention.register_forward_hook(lambda module, inputs, output: (
        (1.5 * output[0], *output[1:]) if isinstance(output, tuple) else 1.5 * output))  # fmt: skip
    with refused("the model in memory", type(theirs).__name__, error=CheckpointError):
        aotlens.load(theirs, "cpu")


@pytest.mark.parametrize("kind", [*MAKE, "apertus"])
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_what_a_configuration_gives_is_not_rounded(kind: str, half: torch.dtype) -> None:
    """Frequencies, and the scale of Gemma's embedding, are buffers of half precision here, and not in files; a buffer
    of Apertus's activation is in both."""
    rotary = {"rope_type": "default", "rope_theta": 300.0}
    make = MAKE.get(kind, lambda: T.ApertusForCausalLM(T.ApertusConfig(**SIZES, rope_parameters=rotary)))
    theirs: Any = noisy(make()).to(half)
    before = {name: (each.dtype, each.clone()) for name, each in theirs.named_buffers()}
    model = aotlens.load(theirs, "cpu")
    if kind != "apertus":  # which comes as a bridge
        difference = re.search(r"model in memory is (\S+),", model.card.description)
        assert difference is not None and float(difference[1]) < 1e-5
    after = dict(theirs.named_buffers())
    assert all(after[name].dtype == dtype and after[name].equal(each) for name, (dtype, each) in before.items())


def test_a_forward_that_runs_the_model_that_it_was_made_of_comes_with_a_warning() -> None:
    """The copy that is run in float32 meets the half precision of the original."""
    theirs = noisy(MAKE["llama"]()).bfloat16()
    _own_forward(theirs)
    with pytest.warns(UserWarning, match="UNCHECKED: the source's own code did not run in memory"):
        aotlens.load(theirs, "cpu")


def test_what_a_forward_changes_in_place_is_not_the_users() -> None:
    theirs: Any = noisy(MAKE["llama"]()).bfloat16().train()
    theirs.register_buffer("n", torch.zeros(()), persistent=False)
    theirs.register_forward_hook(lambda module, inputs, output: module.n.add_(1) and None)
    config = theirs.config
    objects = dict(vars(config))
    aotlens.load(theirs, "cpu")
    assert float(theirs.n) == 0 and theirs.training and theirs.dtype == torch.bfloat16
    assert all(vars(config)[name] is value for name, value in objects.items())


def test_a_model_is_opened_in_several_threads_and_under_autocast() -> None:
    theirs: Any = noisy(MAKE["llama"]()).train()

    def opened(_: int) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return aotlens.load(theirs, "cpu")(TOKENS.clamp(max=8)).float()

    with ThreadPoolExecutor(4) as pool:
        logits = list(pool.map(opened, range(8)))
    assert theirs.training and all(each.equal(logits[0]) for each in logits)
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]


def test_a_model_that_cannot_be_copied_opens_with_a_warning() -> None:
    theirs: Any = noisy(MAKE["llama"]())
    theirs.last = theirs(TOKENS).logits  # has a gradient
    with pytest.warns(UserWarning, match="UNCHECKED: it cannot be copied to be run"):
        aotlens.load(theirs, "cpu")


def test_a_model_that_does_not_run_comes_with_a_warning() -> None:
    theirs: Any = noisy(MAKE["llama"]())
    theirs.forward = None
    with pytest.warns(UserWarning, match="UNCHECKED: the source's own code did not run in memory"):
        aotlens.load(theirs, "cpu")


@torch.no_grad()
@pytest.mark.parametrize(
    "wrap",
    [lambda model: model, partial(torch.compile, backend="eager"), nn.DataParallel],
    ids=["bare", "compiled", "parallel"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_unchanged_model_opens_and_stays_as_it_was(wrap: Any, dtype: torch.dtype) -> None:
    rotary = {"rope_type": "dynamic", "rope_theta": 50.0, "factor": 2.0}
    config = T.LlamaConfig(**{**SIZES, "max_position_embeddings": 16}, rope_parameters=rotary, attention_dropout=0.5)
    theirs: Any = noisy(T.LlamaForCausalLM(config)).to(dtype).train()
    theirs.model.layers[0].eval()
    before = theirs.config.to_dict(), [each.training for each in theirs.modules()], torch.get_rng_state()
    ours = aotlens.load(wrap(theirs), "cpu")
    after = theirs.config.to_dict(), [each.training for each in theirs.modules()], torch.get_rng_state()
    assert before[:2] == after[:2] and before[2].equal(after[2])
    assert theirs.model.rotary_emb.max_seq_len_cached == 16 and theirs.dtype == dtype
    assert "the logits of the model in memory" in ours.card.description
    exact = T.LlamaForCausalLM(config).eval()
    exact.load_state_dict(theirs.state_dict())
    expected = exact(TOKENS).logits
    torch.testing.assert_close(ours(TOKENS), expected, atol=1e-5 * float(expected.abs().max()), rtol=0)
