"""A head is one argument wherever one is taken: (1, 0) or "1.0", through one parser, with one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from aotlens.circuits import copying_rate, ov_circuit, qk_circuit
from aotlens.conventions import as_head, as_heads
from aotlens.distill.heads import distill_heads, substitution_hooks, token_errors
from aotlens.heads import ablate, without
from aotlens.paths import Path, expand, patch_edge, without_head
from aotlens.trigrams import (
    bigrams,
    direct_path,
    distance_scores,
    distance_shares,
    score_triples,
    skip_trigrams,
    zero_layer,
)
from aotlens.trigrams.direct_path import constant_logits
from tests.small_models import SMALL, maker

TOKENS = torch.randint(0, 11, (4, 8), generator=torch.Generator().manual_seed(0))
TEXT = TOKENS.flatten().numpy()
U = np.ones(11)
MODEL = maker({**SMALL, "norm": None, "bias": True})()


@pytest.fixture(scope="module")
def distillation() -> Any:
    texts = (TOKENS.repeat(4, 1), TOKENS.flip(1))
    return distill_heads(MODEL, texts, 0, seeds=1, neighbours=0, wide=None)


def logits_without(head: Any) -> Any:
    with without(MODEL, head):
        return MODEL(TOKENS).detach()


#: Everything that takes a head, as a function of it that gives numbers.
TAKERS: dict[str, Callable[[Any], Any]] = {
    "qk_circuit": lambda head: qk_circuit(MODEL, head).AB,
    "ov_circuit": lambda head: ov_circuit(MODEL, head).AB,
    "qk_circuit, a side": lambda head: qk_circuit(MODEL, "1.0", "tokens", head).AB,
    "ov_circuit, a side": lambda head: ov_circuit(MODEL, "1.0", head).AB,
    "copying_rate": lambda head: copying_rate(MODEL, head).ranks,
    "copying_rate, several": lambda head: copying_rate(MODEL, [head, (1, 0)]).ranks,
    "skip_trigrams": lambda head: skip_trigrams(MODEL, head, k=3, background=U).effect,
    "score_triples": lambda head: score_triples(MODEL, head, [1], [2], [3], background=U).effect,
    "distance_scores": lambda head: distance_scores(MODEL, head),
    "distance_shares": lambda head: distance_shares(MODEL, head),
    "direct_path": lambda head: direct_path(MODEL, head).AB,
    "constant_logits": lambda head: constant_logits(MODEL, [head]),
    "bigrams": lambda head: bigrams(MODEL, 3, heads=[head]).logit,
    "zero_layer": lambda head: zero_layer(MODEL, TEXT, heads=head).kl,
    "ablate": lambda head: ablate(MODEL, TOKENS, head).ablated_mean,
    "ablate, several": lambda head: ablate(MODEL, TOKENS, ["1.0", head]).ablated_mean,
    "without": logits_without,
    "paths through": lambda head: expand(MODEL, TOKENS[0]).through(head),
    "top paths through": lambda head: expand(MODEL, TOKENS[0]).top(3, through=head).values,
    "a path": lambda head: expand(MODEL, TOKENS[0]).logits(Path("token", (head,))),
    "a score": lambda head: expand(MODEL, TOKENS[0]).score(head, 5, 2).by_head_pair().values,
    "a trace": lambda head: [edge.nats for edge in expand(MODEL, TOKENS[0]).trace(head, 5, 2).nodes[0].edges],
    "patch_edge": lambda head: patch_edge(MODEL, TOKENS[0], head, "1.0").patched,
    "without_head": lambda head: without_head(expand(MODEL, TOKENS[0]), head).forward,
}
WRONG = [
    ("7", "expected a layer and a head"),
    ("1,0", "expected a layer and a head"),
    ("0.1.2", "expected a layer and a head"),
    ("-1.0", "expected a layer and a head"),
    (1, "expected a layer and a head"),
    (None, "expected a layer and a head"),
    ((0, 1, 2), "expected a layer and a head"),
    ((0.0, 1.0), "expected a layer and a head"),
    ((True, 0), "expected a layer and a head"),
    (("0", "1"), "expected a layer and a head"),
    ((0, 3), r"head 0\.3: this model has layers 0 to 1 and heads 0 to 2"),
    ("5.0", r"head 5\.0: this model has layers 0 to 1 and heads 0 to 2"),
    ((0, -1), r"head 0\.-1: this model has layers 0 to 1"),
]


@pytest.mark.parametrize("name", TAKERS)
def test_every_form_of_a_head_is_the_same_head(name: str) -> None:
    expected = TAKERS[name]((0, 1))
    for head in ("0.1", [0, 1], (np.int64(0), np.int32(1)), np.array([0, 1]), torch.tensor([0, 1])):
        np.testing.assert_array_equal(TAKERS[name](head), expected)
    assert not np.array_equal(TAKERS[name]("0.2"), expected)


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize(("head", "message"), WRONG, ids=[str(head) for head, _ in WRONG])
def test_a_wrong_head_has_one_error(name: str, head: Any, message: str) -> None:
    if head is None and ("paths" in name or name in ("a score", "a trace")):
        pytest.skip("no head: every path counts, or one is taken by attention")
    if name == "qk_circuit, a side" or name == "ov_circuit, a side":
        message = f"{message}|side .*expected one of tokens, .* or a head as"
    with pytest.raises(ValueError, match=message):
        TAKERS[name](head)


def test_distillations(distillation: Any) -> None:
    for head in ("0.1", (0, 1), np.array([0, 1])):
        assert distillation.place(head) == 1
        assert len(substitution_hooks(MODEL, distillation, head)) == 2
        np.testing.assert_array_equal(
            token_errors(MODEL, distillation, TOKENS, head)[0], token_errors(MODEL, distillation, TOKENS, (0, 1))[0]
        )
    for wrong, message in WRONG[:2]:
        for taker in (distillation.place, lambda head: substitution_hooks(MODEL, distillation, head)):
            with pytest.raises(ValueError, match=message):
                taker(wrong)
    with pytest.raises(ValueError, match=r"head 5\.0 was not distilled"):
        distillation.place("5.0")
    with pytest.raises(ValueError, match=r"head 5\.0: this model has"):
        distill_heads(MODEL, (TOKENS, TOKENS), 0, heads="5.0")


def test_several_heads_are_each_taken_once_in_their_order() -> None:
    sizes = MODEL.cfg
    assert as_heads(["1.0", (0, 2), (1, 0)], sizes) == ((1, 0), (0, 2))
    assert as_heads("1.0", sizes) == as_heads((1, 0), sizes) == as_heads(iter([(1, 0)]), sizes) == ((1, 0),)
    assert as_heads([1, 0], sizes) == as_heads(np.array([1, 0]), sizes) == as_heads([[1, 0]], sizes) == ((1, 0),)
    assert as_heads([], sizes, at_least=0) == ()
    with pytest.raises(ValueError, match="at least 1"):
        as_heads([], sizes)


def test_a_head_without_a_model_is_only_parsed() -> None:
    assert as_head("12.345") == (12, 345)
    assert all(type(part) is int for part in as_head((np.int64(3), np.int8(4))))
    with pytest.raises(ValueError, match="expected a layer and a head"):
        as_head("999999999999.0")  # no layer that there could be
