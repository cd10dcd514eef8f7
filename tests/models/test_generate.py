"""Sampling against loops written out by hand."""

from __future__ import annotations

import pytest
import torch

from aotlens.data import Tokenizer
from aotlens.heads import without
from aotlens.models import AttentionOnlyTransformer, ModelConfig, fill, hook_names
from aotlens.models.generation import continued, sample
from tests.messages import refused

#: A mask that names positions by number: every query sees itself and some of the keys before it.
HOLES = (torch.arange(16)[:, None] * torch.arange(16) % 3 < 2).tril().logical_or(torch.eye(16).bool())[None]


def test_temperature_zero_is_the_greedy_loop(make, tokens):
    model = make()
    expected = tokens[:, :3]
    for _ in range(5):
        logits = model(expected)[:, -1]
        expected = torch.cat([expected, logits.argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(model.generate(tokens[:, :3], 5, temperature=0), expected)
    assert torch.equal(model.generate(tokens[0, :3], 5, temperature=0), expected[0])


def test_the_seed_decides_the_draw(make, tokens):
    model = make()
    draws = [model.generate(tokens[:, :2], 6, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert torch.equal(draws[0][:, :2], tokens[:, :2])


def test_top_k_draws_from_the_k_largest_in_their_proportions():
    logits = torch.log(torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2])).expand(20_000, -1)
    drawn = sample(logits, 1.0, 3, torch.Generator().manual_seed(0))
    counts = torch.bincount(drawn, minlength=5) / len(drawn)
    torch.testing.assert_close(counts, torch.tensor([0, 0.4, 0, 0.25, 0.2]) / 0.85, rtol=0, atol=0.02)
    assert torch.equal(sample(logits[:50], 1.0, 1, None), torch.ones(50, dtype=torch.long))


@pytest.mark.parametrize(("temperature", "exponent"), [(1.0, 1.0), (0.5, 2.0), (2.0, 0.5)])
def test_temperature_divides_the_logits(temperature, exponent):
    probabilities = torch.tensor([0.5, 0.3, 0.2])
    drawn = sample(probabilities.log().expand(20_000, -1), temperature, None, torch.Generator().manual_seed(1))
    expected = probabilities**exponent / (probabilities**exponent).sum()
    torch.testing.assert_close(torch.bincount(drawn) / len(drawn), expected, rtol=0, atol=0.02)


def test_a_tiny_temperature_is_greedy_not_nan():
    logits = torch.tensor([[1.0, 900.0, -900.0]])
    assert sample(logits, 1e-38, None, torch.Generator().manual_seed(0)).tolist() == [1]


@pytest.mark.parametrize("temperature", [0, 1e-38, 1.0])
@pytest.mark.parametrize("top_k", [None, 2])
def test_logits_that_are_no_distribution_are_refused_at_every_temperature(make, tokens, temperature, top_k):
    infinite = float("inf")
    for row in ([0.0, float("nan"), 1.0], [0.0, infinite, 1.0], [-infinite] * 3):
        with pytest.raises(ValueError, match="NaN or"):
            sample(torch.tensor([[0.0, 1.0, 2.0], row]), temperature, top_k, None)
    model = make()
    with torch.no_grad():
        model.unembed.W_U.fill_(3e38)  # finite, and its logits are not
    with refused("next token"):
        model.generate(tokens[:, :3], 2, temperature=temperature, top_k=top_k)
    hidden = torch.tensor([[-infinite, 2.0, -infinite]])
    assert sample(hidden, temperature, top_k, None).tolist() == [1]


def test_the_stop_token_ends_each_row(make, tokens):
    """Rows that have stopped repeat the stop token; generation ends when all have."""
    model = make()
    free = model.generate(tokens[:, :2], 6, temperature=0)
    stop = int(free[0, 3])  # row 0 stops at its second new token, at the latest
    stopped = model.generate(tokens[:, :2], 6, temperature=0, stop_token=stop)
    for row, full in zip(stopped, free, strict=True):
        new = full[2:].tolist()
        end = new.index(stop) + 1 if stop in new else len(new)
        expected = new[:end] + [stop] * (len(row) - 2 - end)
        assert row[2:].tolist() == expected
    alone = model.generate(tokens[0, :2], 6, temperature=0, stop_token=stop)
    assert int(alone[-1]) == stop and stop not in alone[2:-1]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", [{}, {"windows": (2, None)}, {"positions": "alibi"}, {"attn_mask": HOLES}])
def test_a_padded_prompt_goes_on_as_it_does_alone(make, kind, side):
    """Each row against the prompt alone, without padding; the new tokens are the last columns."""
    model = make(n_ctx=16, **kind)
    prompts = [torch.tensor([3, 1, 4, 1, 5, 9, 2]), torch.tensor([9, 2]), torch.tensor([6, 5, 3])]
    tokens, mask = torch.full((3, 20), 9), torch.zeros(3, 20, dtype=torch.long)  # more padding than the context holds
    for row, prompt in enumerate(prompts):
        where = slice(20 - len(prompt), None) if side == "left" else slice(0, len(prompt))
        tokens[row, where], mask[row, where] = prompt, 1
    padded = model.generate(tokens, 8, attention_mask=mask, temperature=0)
    assert padded.shape == (3, 28) and torch.equal(padded[:, :20], tokens)
    alone = torch.stack([model.generate(prompt, 8, temperature=0)[-8:] for prompt in prompts])
    assert torch.equal(padded[:, 20:], alone)
    stop = int(alone[0, 1])
    stopped = model.generate(tokens[0], 8, attention_mask=mask[0], temperature=0, stop_token=stop)
    assert torch.equal(stopped[20:], model.generate(prompts[0], 8, temperature=0, stop_token=stop)[7:])
    with refused("attention_mask", "[3, 20]", "[3, 19]"):
        model.generate(tokens, 1, attention_mask=mask[:, 1:])
    with refused("row 1", "padding"):
        model.generate(tokens, 1, attention_mask=mask * torch.tensor([[1], [0], [1]]))
    with refused("7 prompt tokens", "16"):
        model.generate(tokens, 10, attention_mask=mask)


def test_text_comes_back_as_text(make, tokenizer):
    model = make(d_vocab=tokenizer.d_vocab, n_ctx=64, tokenizer=tokenizer)
    text = model.generate("the cat", 4, seed=0)
    prompt = model.to_tokens("the cat")
    ids = model.generate(prompt, 4, seed=0)
    assert text == "the cat" + tokenizer.decode(ids[0, prompt.shape[1] :].tolist())


def test_no_gradients_and_no_new_tokens(make, tokens):
    model = make()
    assert not model.generate(tokens, 1).requires_grad
    assert torch.equal(model.generate(tokens, 0), tokens)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": 2}, "7 prompt tokens and 2 new ones exceed the context of 8"),
        ({"max_new_tokens": -1}, "max_new_tokens=-1: expected a whole number from 0"),
        ({"max_new_tokens": 1, "temperature": -0.1}, "temperature=-0.1: .* at least 0"),
        ({"max_new_tokens": 1, "top_k": 0}, "top_k=0: expected a whole number from 1"),
    ],
)
def test_what_cannot_be_generated(make, tokens, arguments, message):
    with pytest.raises(ValueError, match=message):
        make().generate(tokens, **arguments)


def test_models_that_cannot_generate(make, tokens):
    with refused("causal", "tokens"):
        make(causal=False).generate(tokens)
    with pytest.raises(ValueError, match="prompt is empty"):
        make().generate(tokens[:, :0])


# With heads switched off, and step by step


@pytest.mark.parametrize(("temperature", "top_k"), [(0, None), (0.8, 4)])
def test_a_continuation_without_heads_is_the_naive_loop(make, tokens, temperature, top_k):
    """Each step runs the full model anew, with hooks that are written by hand."""
    model = make(n_ctx=16)

    def silence(z, hook):
        z[:, :, 1] = 0
        return z

    hooks = [(hook_names.attn(layer, hook_names.Z), silence) for layer in (0, 1)]
    expected, generator = tokens[:, :3], torch.Generator().manual_seed(7)
    for _ in range(8):
        logits = model.run_with_hooks(expected, fwd_hooks=hooks)[:, -1]
        if temperature:
            best, ids = logits.topk(top_k)
            drawn = torch.multinomial((best / temperature).softmax(-1), 1, generator=generator)
            following = ids.gather(1, drawn)
        else:
            following = logits.argmax(-1, keepdim=True)
        expected = torch.cat([expected, following], 1)
    options = {"temperature": temperature, "top_k": top_k, "seed": 7}
    with without(model, ["1.1", "0.1"]):
        assert torch.equal(model.generate(tokens[:, :3], 8, **options), expected)
        steps = list(continued(model, tokens[:, :3], 8, **options))
    assert [step.shape[1] for step in steps] == list(range(4, 12)) and torch.equal(steps[-1], expected)
    assert not torch.equal(model.generate(tokens[:, :3], 8, **options), expected)


def test_a_stop_token_by_its_text(make, tokenizer):
    model = make(d_vocab=tokenizer.d_vocab, n_ctx=64, tokenizer=tokenizer)
    start = model.to_tokens("the cat")[0]
    free = model.generate(start, 40, seed=3)
    names = tokenizer.str_tokens(free.tolist())
    end = next(place for place in range(len(start) + 1, len(names)) if names[place].isalpha())
    first = len(start) + names[len(start) :].index(names[end])
    stopped = model.generate(start, 40, seed=3, stop_token=names[end])
    assert torch.equal(stopped, free[: first + 1])
    model.generate("the", 2, stop_token=tokenizer.str_tokens([tokenizer.eot_id])[0])
    with pytest.raises(ValueError, match="expected one"):
        model.generate("the", 2, stop_token="the cat sat on")


# Filling masks


@pytest.fixture(scope="module")
def masked():
    tokenizer = Tokenizer.train(["the cat sat on the mat " * 20], 262).with_mask()
    cfg = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=16, d_vocab=tokenizer.d_vocab, causal=False)
    return AttentionOnlyTransformer(cfg, tokenizer)


def test_masks_are_filled_from_left_to_right(masked):
    tokens = masked.to_tokens("the <|mask|> sat on <|mask|> mat")
    mask, expected = masked.tokenizer.mask_id, tokens.clone()
    for place in (tokens[0] == mask).nonzero()[:, 0]:
        logits = masked(expected)[0, place].detach()
        logits[mask] = -torch.inf
        expected[0, place] = logits.argmax()
    assert torch.equal(fill(masked, tokens[0]), expected[0])
    assert fill(masked, "the <|mask|> sat on <|mask|> mat") == masked.tokenizer.decode(expected[0, 1:].tolist())
    draws = [fill(masked, tokens, temperature=3.0, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert torch.equal(draws[0][tokens[0] != mask], tokens[0, tokens[0] != mask]) and not (draws[0] == mask).any()


def test_what_cannot_be_filled(masked, make, tokens):
    with pytest.raises(ValueError, match="no mask to fill"):
        fill(masked, "the cat")
    with refused("mask token"):
        fill(make(), tokens[:1])
    with refused("fill"):
        masked.generate("the cat")
    with pytest.raises(ValueError, match="temperature="):
        fill(masked, "the <|mask|>", temperature=-1)
