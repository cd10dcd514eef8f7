"""A text is taken wherever tokens are: it gives what its ids give, and texts that make no batch are refused."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.denoise import audit, head_asymmetry
from aotlens.distill import held_out_windows
from aotlens.distill.compared import text_errors
from aotlens.distill.heads import distill_heads, substitution_costs, token_errors
from aotlens.evaluate import masked_loss, masked_predictions, next_token_predictions, token_losses, validation_loss
from aotlens.heads import (
    ablate,
    ablate_each,
    attention_by_place,
    attention_patterns,
    attention_to,
    head_scores,
    inactive_heads,
    long_patterns,
    match_heads,
    motif_scores,
    pattern_consistency,
    repeated_patterns,
    targeted_attention,
)
from aotlens.heads.reader import HeadReader
from aotlens.interop import to_transformer_lens
from aotlens.paths import (
    direct_logit_attribution,
    expand,
    head_lens,
    logit_jacobian,
    logit_lens,
    patch_edge,
    patch_edges,
    term_importance,
)
from aotlens.results.exports import exports
from aotlens.trigrams import count_bigrams, evidence, read_ids, score_triples, zero_layer
from tests.messages import refused
from tests.small_models import SMALL, maker

SENTENCE = "the cat sat on the mat, the rat sat on the cat, and that was that "
TOKENIZER = Tokenizer.train([SENTENCE * 3], 270)
MODEL = maker({**SMALL, "d_vocab": 270, "n_ctx": 24})(tokenizer=TOKENIZER)
ONE_LAYER = maker({**SMALL, "d_vocab": 270, "n_ctx": 24, "n_layers": 1})(tokenizer=TOKENIZER)
MASKED = maker({**SMALL, "d_vocab": 271, "n_ctx": 24, "causal": False})(tokenizer=TOKENIZER.with_mask())
BRIDGE = to_transformer_lens(MODEL)
TEXTS = ["the cat sat on the mat", "the rat sat on the cat"]
LONGER = SENTENCE[:40]
TARGETS = torch.ones(1, 10, 10, dtype=torch.bool).tril()
THE, CAT = TOKENIZER.encode(" the cat")
TRIPLES = score_triples(MODEL, "1.0", [CAT, CAT], [THE, THE], [CAT, 5], background=np.ones(270))
NOT_PROMPTS = {
    "sufficient_heads": "it takes texts as `ablate` does, but needs four",
    "shapley_heads": "it takes texts as `ablate` does, but needs two",
    "generate": "its text goes on; tests/models/test_generate.py gives it one",
    "fill": "its text has a mask; tests/models/test_generate.py gives it one",
    "predictions_of_logits": "its tokens are those that its logits are of",
    "bigrams": "its tokens are those of the vocabulary whose bigrams are listed",
    "attention_in_prompts": "its prompts are of in-context regression, which are numbers",
    "value_norms": "each token has a class beside it, so its ids are known",
    "induction_circuit": "its sequences repeat, and it needs an atlas; tests/heads/test_impostors.py gives it one",
}


@pytest.fixture(scope="module")
def distillation() -> Any:
    ids = torch.randint(0, 270, (16, 8), generator=torch.Generator().manual_seed(0))
    return distill_heads(MODEL, (ids, ids.flip(1)), 0, seeds=1, neighbours=0, wide=None)


#: Everything that takes one prompt, as a function of it that gives numbers.
OF_A_PROMPT: dict[str, Callable[[Any, Any], Any]] = {
    "next_token_predictions": lambda x, _: next_token_predictions(MODEL, x).logits,
    "masked_predictions": lambda x, _: masked_predictions(MASKED, x, 1).logits,
    "token_losses": lambda x, _: token_losses(MODEL, x),
    "attention_patterns": lambda x, _: attention_patterns(MODEL, x).pattern,
    "long_patterns": lambda x, _: long_patterns(MODEL, x).rows("1.0", 0, 5),
    "expand": lambda x, _: expand(MODEL, x).frozen.logits,
    "patch_edge": lambda x, _: patch_edge(MODEL, x, "0.1", "1.0").patched,
    "patch_edges": lambda x, _: patch_edges(MODEL, x, [("0.1", "1.0")], "v")[0].patched,
    "logit_lens": lambda x, _: logit_lens(MODEL, x).probabilities,
    "head_lens": lambda x, _: head_lens(MODEL, x).added,
    "logit_jacobian": lambda x, _: logit_jacobian(MODEL, x).moving,
    "text_errors": lambda x, d: text_errors(MODEL, d, x, "1.0").relative,
}
#: Everything that takes sequences of one length.
OF_A_BATCH: dict[str, Callable[[Any, Any], Any]] = {
    "masked_loss": lambda x, _: masked_loss(MASKED, x).losses,
    "attention_to": lambda x, _: attention_to(MODEL, x).values,
    "motif_scores": lambda x, _: motif_scores(MODEL, x).values,
    "head_scores": lambda x, _: head_scores(MODEL, x, ["output_norm", "positional_share"]).values,
    "inactive_heads": lambda x, _: inactive_heads(MODEL, x).output_norm,
    "attention_by_place": lambda x, _: attention_by_place(MODEL, x).values,
    "pattern_consistency": lambda x, _: pattern_consistency(MODEL, x).values,
    "repeated_patterns": lambda x, _: repeated_patterns([MODEL], x).distances,
    "match_heads": lambda x, _: match_heads(MODEL, ONE_LAYER, x).pattern,
    "term_importance": lambda x, _: term_importance(MODEL, x).heads_alone,
    "token_errors": lambda x, d: token_errors(MODEL, d, x, "1.0")[0],
    "substitution_costs": lambda x, d: substitution_costs(MODEL, d, x, n_random=1).alone,
    "audit": lambda x, _: audit(MODEL, x, n_draws=1).snr,
    "head_asymmetry": lambda x, _: head_asymmetry(MODEL, x, every=2, n_draws=1).asymmetry,
    "attention_to, a bridge": lambda x, _: attention_to(BRIDGE, x).values,
    "motif_scores, a bridge": lambda x, _: motif_scores(BRIDGE, x).values,
    "attention_by_place, a bridge": lambda x, _: attention_by_place(BRIDGE, x).values,
    "pattern_consistency, a bridge": lambda x, _: pattern_consistency(BRIDGE, x).values,
    "token_errors, a bridge": lambda x, d: token_errors(BRIDGE, d, x, "1.0")[0],
}


def _attributed(inputs: Any) -> Tensor:
    """What heads add to one logit, sequence by sequence."""
    found = direct_logit_attribution(MODEL, inputs, CAT)
    parts = [found] if found.real is None else [found.of(row) for row in range(len(found.real))]
    return torch.cat([part.heads.flatten() for part in parts])


#: Everything that takes sequences of several lengths, of which shorter ones are padded.
OF_TEXTS: dict[str, Callable[[Any], Any]] = {
    "validation_loss": lambda x: validation_loss(MODEL, x),
    "ablate": lambda x: ablate(MODEL, x, "1.0").ablated,
    "ablate_each": lambda x: ablate_each(MODEL, x, heads="1.0").ablated,
    "direct_logit_attribution": _attributed,
}
#: Everything that reads text from one end to the other.
OF_TEXT: dict[str, Callable[[Any], Any]] = {
    "read_ids": lambda x: read_ids(MODEL, x),
    "count_bigrams": lambda x: count_bigrams(MODEL, x).count,
    "zero_layer": lambda x: zero_layer(ONE_LAYER, x).kl,
    "evidence": lambda x: evidence(MODEL, TRIPLES, x).counts.destination,
}
TAKERS = {name.partition(",")[0] for each in (OF_A_PROMPT, OF_A_BATCH, OF_TEXTS, OF_TEXT) for name in each}


def ids(texts: str | list[str]) -> Tensor:
    return MODEL.to_tokens(texts)


@pytest.mark.parametrize("name", OF_A_PROMPT)
def test_a_text_is_its_ids(name: str, distillation: Any) -> None:
    take = OF_A_PROMPT[name]
    expected = take(ids(TEXTS[0]), distillation)
    np.testing.assert_array_equal(take(TEXTS[0], distillation), expected)
    np.testing.assert_array_equal(take([TEXTS[0]], distillation), expected)
    np.testing.assert_array_equal(take(ids(TEXTS[0])[0], distillation), expected)
    with pytest.raises(ValueError, match="one"):
        take(TEXTS, distillation)


@pytest.mark.parametrize("name", OF_A_BATCH)
def test_texts_of_one_length_are_a_batch(name: str, distillation: Any) -> None:
    take = OF_A_BATCH[name]
    assert ids(TEXTS).shape == (2, 10)
    np.testing.assert_array_equal(take(TEXTS, distillation), take(ids(TEXTS), distillation))
    if "pattern_consistency" not in name:
        expected = take(ids(TEXTS[:1]), distillation)
        np.testing.assert_array_equal(take(TEXTS[0], distillation), expected)
        np.testing.assert_array_equal(take(ids(TEXTS[0])[0], distillation), expected)
    with refused("equally many tokens", "got 10, ", "one at a time"):
        take([TEXTS[0], LONGER], distillation)


@pytest.mark.parametrize("name", OF_TEXTS)
def test_texts_of_any_length_are_padded_without_a_trace(name: str) -> None:
    take, lengths = OF_TEXTS[name], [len(TOKENIZER.encode(text)) for text in (TEXTS[0], LONGER)]
    assert lengths[0] < lengths[1]
    alone = [np.ravel(take(text)) for text in (TEXTS[0], LONGER)]
    np.testing.assert_array_equal(take(TEXTS[0]), take(ids(TEXTS[0])))
    both = np.ravel(take([TEXTS[0], LONGER]))
    if both.size == 1:  # a mean over predictions: as many as there are tokens after the start token
        alone = [np.average(np.ravel(alone), weights=lengths, keepdims=True)]
    np.testing.assert_allclose(both, np.concatenate(alone), rtol=1e-5)


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_text_is_read_as_its_ids_in_one_document(name: str) -> None:
    take = OF_TEXT[name]
    encoded = np.array(TOKENIZER.encode(SENTENCE * 3))
    if name in (
        "count_bigrams",
        "zero_layer",
    ):  # they count what follows the separator before a document too
        encoded = np.append(TOKENIZER.eot_id, encoded)
    expected = take(encoded)
    assert np.any(expected > 0)
    np.testing.assert_array_equal(take(SENTENCE * 3), expected)


def test_keys_are_marked_in_a_text() -> None:
    expected = targeted_attention(MODEL, ids(TEXTS[0]), TARGETS).attention
    np.testing.assert_array_equal(targeted_attention(MODEL, TEXTS[0], TARGETS).attention, expected)
    np.testing.assert_allclose(targeted_attention(BRIDGE, TEXTS[0], TARGETS).attention, expected, atol=1e-6)


def test_a_bridge_without_a_tokenizer_and_an_empty_list_are_named() -> None:
    bare = to_transformer_lens(maker()())
    with refused("tokenizer", "token ids"):
        attention_to(bare, "a text")
    with pytest.raises(ValueError, match="empty list"):
        HeadReader.of(MODEL).require_ids([])


def test_every_function_of_a_model_and_tokens_is_here() -> None:
    """Where a public function takes a model and what it reads, its annotation has str and the tables have its name."""
    for package in ("evaluate", "heads", "paths", "distill", "trigrams", "circuits", "models", "denoise"):
        module = importlib.import_module(f"aotlens.{package}")
        for name in exports()[f"aotlens.{package}"]:
            value = getattr(module, name)
            if not inspect.isfunction(value) or name in NOT_PROMPTS or value in (distill_heads, held_out_windows):
                continue
            parameters = inspect.signature(value).parameters
            for parameter in {"tokens", "inputs", "prompt", "windows", "batches"} & parameters.keys():
                if "model" in parameters:
                    assert name in TAKERS | {"targeted_attention"}, name
                    annotation = str(parameters[parameter].annotation)
                    assert "str" in annotation or "TokenSequences" in annotation, f"{name}({parameter}: {annotation})"
