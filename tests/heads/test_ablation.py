"""Ablations against the same model with the head's output matrix removed, against loops over sequences, and in closed
form on circuits built by hand: one that finds an earlier occurrence, and one that checks palindromes."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.heads import ablate, attention_patterns
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names
from tests.heads.hand_built import SHARP, induction, repeated
from tests.messages import refused

TOKENS = torch.randint(0, 15, (4, 11), generator=torch.Generator().manual_seed(2))


def small(**changes: Any) -> AttentionOnlyTransformer:
    fields = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 16, "d_vocab": 15, "bias": True}
    model = AttentionOnlyTransformer(ModelConfig(**(fields | changes))).double()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.b_O.normal_(generator=torch.Generator().manual_seed(5))
    return model


@pytest.fixture
def model() -> AttentionOnlyTransformer:
    return small()


def without(model: AttentionOnlyTransformer, *heads: tuple[int, int]) -> AttentionOnlyTransformer:
    lesser = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in heads:
            lesser.blocks[layer].attn.W_O[head] = 0.0
    return lesser


# Against the model with other weights


def test_zero_ablation_is_the_model_without_the_heads(model: AttentionOnlyTransformer) -> None:
    lesser = without(model, (0, 1), (1, 2))
    result = ablate(model, TOKENS, [(0, 1), "1.2"], batch_size=3)
    torch.testing.assert_close(result.ablated_loss_per_token, lesser.loss_per_token(TOKENS))
    torch.testing.assert_close(result.clean_loss_per_token, model.loss_per_token(TOKENS))
    np.testing.assert_allclose(result.ablated, lesser.loss_per_token(TOKENS).mean(1).detach())
    assert result.change == pytest.approx(result.ablated_mean - model(TOKENS, return_type="loss").item())
    assert result.heads == ((0, 1), (1, 2)) and result.unit == "nats"


def test_a_mean_over_a_reference_is_a_constant_that_the_layer_writes(model: AttentionOnlyTransformer) -> None:
    reference = torch.randint(0, 15, (5, 7), generator=torch.Generator().manual_seed(3))
    _, cache = model.run_with_cache(reference)
    lesser = without(model, (0, 1))
    with torch.no_grad():
        lesser.blocks[0].attn.b_O += cache["z", 0][:, :, 1].mean((0, 1)) @ model.W_O[0, 1]
    result = ablate(model, TOKENS, (0, 1), "mean", reference=reference, batch_size=2)
    torch.testing.assert_close(result.ablated_loss_per_token, lesser.loss_per_token(TOKENS))


@pytest.mark.parametrize("how", ["mean", "position_mean", "fixed_pattern", "resample", "uniform"])
@pytest.mark.parametrize("reference", [None, torch.arange(33).reshape(3, 11) % 15], ids=["left out", "reference"])
def test_what_replaces_a_head_sequence_by_sequence(
    model: AttentionOnlyTransformer, how: str, reference: Tensor | None
) -> None:
    """A loop over sequences, each with the activations of all others, or of the reference."""
    result = ablate(model, TOKENS, ["0.1", "1.0"], how, reference=reference, seed=3, batch_size=3)
    part = "pattern" if how in ("uniform", "fixed_pattern") else "z"
    expected = []
    for row in range(len(TOKENS)):
        others = torch.cat([TOKENS[:row], TOKENS[row + 1 :]]) if reference is None else reference
        _, cache = model.run_with_cache(others)

        def loss_with(donors: slice, row: int = row, cache: Any = cache) -> float:
            hooks = []
            for layer, head in ((0, 1), (1, 0)):
                value = cache[part, layer][donors]
                value = value[:, head] if part == "pattern" else value[:, :, head]
                mean = value.mean((0, 1), keepdim=True)[0] if how == "mean" else value.mean(0)
                if how == "uniform":
                    mean = torch.ones(11, 11).tril() / torch.arange(1, 12)[:, None]

                def put(x: Tensor, hook: object, head: int = head, mean: Tensor = mean) -> Tensor:
                    x[(slice(None), head) if part == "pattern" else (slice(None), slice(None), head)] = mean.to(x)
                    return x

                hooks.append((hook_names.attn(layer, getattr(hook_names, part.upper())), put))
            return model.run_with_hooks(TOKENS[row : row + 1], return_type="loss", fwd_hooks=hooks).item()

        if how == "resample":  # one of the others: which, the seed says
            losses = [loss_with(slice(donor, donor + 1)) for donor in range(len(others))]
            nearest = min(losses, key=lambda loss: abs(loss - result.ablated[row]))
            expected.append(nearest)
        else:
            expected.append(loss_with(slice(None)))
    np.testing.assert_allclose(result.ablated, expected, atol=1e-10)
    assert (np.abs(result.changes) > 1e-6).all()
    again = ablate(model, TOKENS, ["0.1", "1.0"], how, reference=reference, seed=3, batch_size=1)
    np.testing.assert_allclose(again.ablated, result.ablated, atol=1e-12)


def test_the_model_is_left_as_it_was(model: AttentionOnlyTransformer) -> None:
    before = model(TOKENS)
    ablate(model, TOKENS, [(0, 0)], how="mean")
    assert torch.equal(model(TOKENS), before)


# In closed form


def test_an_induction_circuit_on_the_labels_of_repeated_tokens() -> None:
    m, gamma = 6, 5.0
    model, V = induction(m, gamma), m + 1
    tokens, targets = repeated(m, 5)
    whole = np.log(np.exp(gamma) + V - 1) - gamma
    for head in ("0.0", "1.0"):
        result = ablate(model, tokens, head, targets=targets)
        np.testing.assert_allclose(result.clean, whole, atol=1e-12)
        assert int((result.clean_loss_per_token != 0).sum()) == 5 * (m - 1)
    np.testing.assert_allclose(result.ablated, np.log(V), atol=1e-12)  # without 1.0 there is no output at all
    evenly = []  # without 0.0, 1.0 finds nothing and reads all tokens alike
    for row in tokens.tolist():
        losses = []
        for i in range(m + 1, 2 * m):
            logits = gamma * np.bincount(row[: i + 1], minlength=V) / (i + 1)
            losses.append(np.log(np.exp(logits).sum()) - logits[row[i + 1]])
        evenly.append(np.mean(losses))
    np.testing.assert_allclose(ablate(model, tokens, "0.0", targets=targets).ablated, evenly, atol=1e-12)
    # On all next tokens, where nothing can be known of the first half, the circuit is worth far less.
    assert ablate(model, tokens, "1.0").change < ablate(model, tokens, "1.0", targets=targets).change


def palindromes(n: int) -> tuple[AttentionOnlyTransformer, Tensor, Tensor]:
    """A start token and n signs: 0.0 looks from each sign to its mirror image where they agree, else to the start,
    whose value is 1; the mean over positions is the share that does not agree. 0.1 writes what depends on position."""
    cfg = ModelConfig(
        n_layers=1, d_model=n + 4, n_heads=2, d_head=n + 2, n_ctx=n + 1, d_vocab=3, d_out=2, read_out="classes",
        pooling="mean", causal=False, norm=None, attn_scale=1.0, bias=True,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).double()
    sign, start, place, out = n + 1, 0, torch.arange(1, n + 1), n + 2
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E[1, sign], model.embed.W_E[2, sign] = 1.0, -1.0
        model.pos_embed.W_pos[torch.arange(n + 1), torch.arange(n + 1)] = 1.0
        attn = model.blocks[0].attn
        attn.W_Q[0, place, n + 1 - place] = SHARP  # to the mirror image
        attn.W_Q[0, place, 0] = SHARP  # to the start
        attn.W_Q[0, sign, n + 1] = SHARP / 4  # the more if both signs agree, the less if not
        attn.W_K[0, torch.arange(n + 1), torch.arange(n + 1)] = 1.0
        attn.W_K[0, sign, n + 1] = 1.0
        attn.W_Q[0, start, 1] = SHARP  # the start itself looks at a sign, whose value is 0
        attn.W_V[0, start, 0] = 1.0
        attn.W_O[0, 0, out] = 1.0
        attn.W_V[1, torch.arange(n + 1), 1] = torch.linspace(-1, 1, n + 1).double()
        attn.W_Q[1, torch.arange(n + 1), torch.arange(n + 1)] = 2.0
        attn.W_K[1, torch.arange(n + 1), torch.arange(n + 1)] = 1.0
        attn.W_O[1, 1, out + 1] = 1.0
        model.unembed.W_U[out, 1] = 8.0
        model.unembed.W_U[out + 1, 0] = 3.0
        model.unembed.b_U[0] = 0.5
    signs = torch.tensor([*itertools.product((1, 2), repeat=n)])
    tokens = torch.cat([torch.zeros(len(signs), 1, dtype=torch.long), signs], dim=1)
    return model, tokens, (signs == signs.flip(1)).logical_not().any(1).long()


def test_a_palindrome_checker_on_its_classes() -> None:
    n = 6
    model, tokens, classes = palindromes(n)
    signs = tokens[:, 1:]
    share = (signs != signs.flip(1)).double().sum(1).numpy() / (n + 1)
    other = float((model(tokens)[0, 0] - 0.5).detach())  # what 0.1 says, of every sequence alike

    def loss(share: np.ndarray | float, other: float = other) -> np.ndarray:
        logits = torch.tensor(np.stack([np.full(len(tokens), 0.5 + other), 8 * share * np.ones(len(tokens))], axis=1))
        return F.cross_entropy(logits, classes, reduction="none").numpy()

    n_all = len(tokens)
    left_out = (n_all * share.mean() - share) / (n_all - 1)
    for how, expected in (
        ("zero", loss(0.0)),
        ("uniform", loss(1 / (n + 1))),
        ("mean", loss(left_out)),
        ("position_mean", loss(left_out)),
    ):
        result = ablate(model, tokens, "0.0", how, targets=classes, batch_size=7)
        np.testing.assert_allclose(result.clean, loss(share), atol=1e-9)
        np.testing.assert_allclose(result.ablated, expected, atol=1e-9)
        assert result.clean_loss_per_token.shape == (n_all,)
    donated = ablate(model, tokens, "0.0", "resample", metric=lambda logits, _: logits[:, 1] / 8, unit="share")
    np.testing.assert_allclose(sorted(donated.ablated), sorted(share), atol=1e-9)  # each is given once
    assert not np.allclose(donated.ablated, share) and donated.unit == "share" and donated.clean_loss_per_token is None
    np.testing.assert_allclose(ablate(model, tokens, "0.1", targets=classes).ablated, loss(share, 0.0), atol=1e-9)
    for how in ("position_mean", "fixed_pattern"):
        assert abs(ablate(model, tokens, "0.1", how, targets=classes).change) < 1e-12
    with pytest.raises(ValueError, match="needs targets"):
        ablate(model, tokens, "0.0")


def test_a_head_of_positions_alone_is_its_position_mean() -> None:
    """Tokens and positions have slots of their own; 0.1 reads the positions'."""
    model = small(norm=None)
    with torch.no_grad():
        model.embed.W_E[:, 6:] = 0.0
        model.pos_embed.W_pos[:, :6] = 0.0
        for matrix in (model.blocks[0].attn.W_Q, model.blocks[0].attn.W_K, model.blocks[0].attn.W_V):
            matrix[1, :6] = 0.0
    assert abs(ablate(model, TOKENS, "0.1", "position_mean").change) < 1e-12
    assert abs(ablate(model, TOKENS, "0.1", "fixed_pattern").change) < 1e-12
    assert abs(ablate(model, TOKENS, "0.1", "resample").change) < 1e-12
    assert abs(ablate(model, TOKENS, "0.1", "mean").change) > 1e-3
    assert abs(ablate(model, TOKENS, "0.2", "position_mean").change) > 1e-3


@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"phi": "fixed", "fixed_pattern": "random"}])
def test_a_constant_pattern_is_its_mean(changes: dict[str, Any]) -> None:
    model = small(**changes)
    fixed = "phi" in changes
    if not fixed:
        with torch.no_grad():
            model.blocks[1].attn.W_Q[2] = 0.0
            model.blocks[1].attn.b_Q[2] = 0.0
    targets = TOKENS.flip(1)
    assert abs(ablate(model, TOKENS, "1.2", "fixed_pattern", targets=targets).change) < 1e-12
    assert (abs(ablate(model, TOKENS, "1.2", "uniform", targets=targets).change) < 1e-12) == (not fixed)
    assert abs(ablate(model, TOKENS, "1.2", targets=targets).change) > 1e-4
    assert abs(ablate(model, TOKENS, "1.2", "position_mean", targets=targets).change) > 1e-4


# What is measured, and of what


def test_models_of_vectors() -> None:
    fields: dict[str, Any] = {"read_in": "vectors", "read_out": "vectors", "d_in": 5, "d_out": 2, "d_vocab": None}
    model = small(**fields)
    generator = torch.Generator().manual_seed(0)
    x, targets = (torch.randn(4, 9, width, dtype=torch.float64, generator=generator) for width in (5, 2))
    result = ablate(model, x, "1.1", targets=targets)
    lesser = without(model, (1, 1))
    np.testing.assert_allclose(result.ablated, (lesser(x) - targets).square().mean((1, 2)).detach())
    assert result.unit == "squared error"
    alone = ablate(model, x[0], "1.1", targets=targets[0])
    assert alone.change == pytest.approx(result.changes[0])


def test_a_metric_of_ones_own(model: AttentionOnlyTransformer) -> None:
    def difference(logits: Tensor, targets: Tensor | None) -> Tensor:
        assert targets is None
        return logits[:, -1, 3] - logits[:, -1, 4]

    result = ablate(model, TOKENS, "0.1", metric=difference, batch_size=3)
    logits = without(model, (0, 1))(TOKENS)
    np.testing.assert_allclose(result.ablated, (logits[:, -1, 3] - logits[:, -1, 4]).detach())
    assert result.unit == "difference"
    assert "it changes by" in repr(result)
    for wrong in (
        lambda logits, _: logits,
        lambda logits, _: logits.mean(),
        lambda logits, _: logits[:, 0, 0] * np.nan,
    ):
        with pytest.raises(ValueError, match="metric: expected 3 finite numbers"):
            ablate(model, TOKENS[:3], "0.1", metric=wrong)


def test_padding_and_ignored_targets_count_as_in_the_models_own_loss(model: AttentionOnlyTransformer) -> None:
    lengths = (11, 5, 8, 2)
    mask = torch.arange(11) < torch.tensor(lengths)[:, None]
    for how, reference in (("zero", None), ("uniform", None), ("mean", TOKENS[:1])):
        padded = ablate(model, TOKENS, "0.1", how, attention_mask=mask, reference=reference)
        for row, length in enumerate(lengths):
            alone = ablate(model, TOKENS[row, :length], "0.1", how, reference=reference)
            assert (padded.clean[row], padded.ablated[row]) == pytest.approx((alone.clean[0], alone.ablated[0]))
    _, cache = model.run_with_cache(TOKENS, attention_mask=mask)
    kept = torch.cat([cache["z", 0][row, :length, 1] for row, length in enumerate(lengths) if row != 2])
    lesser = without(model, (0, 1))
    with torch.no_grad():
        lesser.blocks[0].attn.b_O += kept.mean(0) @ model.W_O[0, 1]
    left_out = ablate(model, TOKENS, "0.1", "mean", attention_mask=mask)
    assert left_out.ablated[2] == pytest.approx(lesser(TOKENS[2:3, :8], return_type="loss").item())
    targets = TOKENS.clone()
    targets[:, ::2] = -100
    result = ablate(model, TOKENS, "0.1", targets=targets)
    for row in range(4):
        own = model(TOKENS[row : row + 1], return_type="loss", targets=targets[row : row + 1])
        assert result.clean[row] == pytest.approx(own.item())
    targets[2] = -100
    with refused("sequence 2", "ignored"):
        ablate(model, TOKENS, "0.1", targets=targets)


def test_texts() -> None:
    texts = ["the cat sat on the mat", "the cat"]
    tokenizer = Tokenizer.train(texts, 260)
    model = small(d_vocab=260, n_ctx=40)
    model.tokenizer = tokenizer
    result = ablate(model, texts, "0.1")
    for row, text in enumerate(texts):
        assert result.ablated[row] == pytest.approx(ablate(model, text, "0.1").ablated[0])
        assert result.ablated[row] == pytest.approx(ablate(model, model.to_tokens(text)[0], "0.1").ablated[0])


def test_the_interval_is_of_paired_differences(model: AttentionOnlyTransformer) -> None:
    result = ablate(model, TOKENS, "0.1")
    expected = scipy.stats.ttest_rel(result.ablated, result.clean).confidence_interval(0.9)
    assert result.interval(0.9) == pytest.approx((expected.low, expected.high))
    assert np.isnan(ablate(model, TOKENS[0], "0.1").interval()).all()
    frame = result.to_frame()
    assert list(frame.columns) == ["sequence", "clean", "ablated", "change"] and len(frame) == 4
    assert frame.change.mean() == pytest.approx(result.change)


@pytest.mark.parametrize(
    ("heads", "options", "message"),
    [
        ([], {}, "at least 1"),
        ("0.0", {"how": "none"}, "how='none': expected one of 'zero', 'mean'"),
        ("0.0", {"inputs": TOKENS[:1], "how": "mean"}, "a single sequence has no others"),
        ("0.0", {"inputs": TOKENS[0], "how": "position_mean"}, "a single sequence has no others"),
        ("0.0", {"inputs": TOKENS[:1], "how": "resample"}, "a single sequence has no others"),
        ("0.0", {"how": "resample", "reference": TOKENS[:, :9]}, r"reference: expected sequences of shape \[11\]"),
        ("0.0", {"how": "resample", "attention_mask": torch.ones(4, 11).tril(6)}, "without padding"),
        ("0.0", {"inputs": TOKENS[:0]}, "at least one sequence"),
        ("0.0", {"targets": TOKENS[:2]}, "targets: expected a row for each of 4 sequences"),
        ("0.0", {"targets": TOKENS[:, :2]}, r"targets: expected \[1, 11\]"),
        ("0.0", {"batch_size": 0}, "batch_size=0"),
    ],
)
def test_bad_input_is_named(model: AttentionOnlyTransformer, heads: Any, options: dict[str, Any], message: str) -> None:
    options = {"inputs": TOKENS} | options
    with pytest.raises(ValueError, match=message):
        ablate(model, options.pop("inputs"), heads, **options)


def test_a_text_has_the_patterns_of_its_tokens() -> None:
    model = small(d_vocab=260, n_ctx=40)
    model.tokenizer = Tokenizer.train(["the cat sat"], 260)
    of_text, of_ids = (attention_patterns(model, given) for given in ("the cat", model.to_tokens("the cat")))
    np.testing.assert_array_equal(of_text.pattern, of_ids.pattern)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("how", ["zero", "mean", "position_mean", "uniform", "fixed_pattern", "resample"])
def test_padded_sequences_are_what_they_are_alone(model: AttentionOnlyTransformer, how: str, side: str) -> None:
    """With a reference, each by itself, and its first positions; a metric of the last position sees the last token."""
    lengths, reference = (11, 5, 8), TOKENS.flip(0)
    tokens, mask = torch.full((3, 11), 14), torch.zeros(3, 11, dtype=torch.long)
    for row, length in enumerate(lengths):
        where = slice(11 - length, None) if side == "left" else slice(0, length)
        tokens[row, where], mask[row, where] = TOKENS[row, :length], 1

    def last(logits: Tensor, _: Tensor | None) -> Tensor:
        return logits[:, -1, 3]

    for metric in (None, last):
        options: dict[str, Any] = {"reference": reference, "metric": metric}
        found = ablate(model, tokens, ["0.1", "1.2"], how, attention_mask=mask, batch_size=2, **options)
        for row, length in enumerate(lengths):
            if how == "resample":  # the seed's draw of the batch
                donor = np.random.default_rng(0).integers(0, 4, 3)[row]
                options["reference"] = reference[donor : donor + 1, :length]
            elif how != "mean":  # whose reference may have any length
                options["reference"] = reference[:, :length]
            alone = ablate(model, TOKENS[row, :length], ["0.1", "1.2"], how, **options)
            np.testing.assert_allclose([found.clean[row], found.ablated[row]], [alone.clean[0], alone.ablated[0]])


@pytest.mark.parametrize("how", ["position_mean", "fixed_pattern"])
def test_means_of_padded_sequences_are_of_those_that_reach_a_position(
    model: AttentionOnlyTransformer, how: str
) -> None:
    """Each sequence against the mean of the others that are as long: a reference of these, position by position."""
    mask = torch.ones(4, 11)
    mask[[1, 3], 6:] = 0
    found = ablate(model, TOKENS, "1.1", how, attention_mask=mask)
    for row in (1, 3):  # all others reach all of their positions
        others = TOKENS[[each for each in range(4) if each != row], :6]
        alone = ablate(model, TOKENS[row, :6], "1.1", how, reference=others)
        assert found.ablated[row] == pytest.approx(alone.ablated[0])
    mask[2, 9:] = 0
    with refused("longest sequence", "reference="):
        ablate(model, TOKENS, "1.1", how, attention_mask=mask)
