from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aotlens.data import (
    IGNORED,
    MASK,
    BatchSampler,
    TokenFile,
    Tokenizer,
    mask_tokens,
    repeated_random_tokens,
    repeated_targets,
    validation_windows,
)
from tests.messages import refused

D_VOCAB = 5000


def token_file(path: Path, ids: np.ndarray, *, d_vocab: int = D_VOCAB, eot_id: int = 0) -> TokenFile:
    ids.astype("<u2").tofile(path)
    return TokenFile(
        path=path,
        tokens=np.memmap(path, dtype="<u2", mode="r"),
        document_starts=np.array([1]),
        document_names=("numbers",),
        d_vocab=d_vocab,
        eot_id=eot_id,
        sha256="0" * 64,
    )


@pytest.fixture
def numbers(tmp_path: Path) -> TokenFile:
    """Every token is its own position, so that a row tells where it was taken."""
    return token_file(tmp_path / "numbers.bin", np.arange(4000))


def sampler(tokens: TokenFile | None, **changes: Any) -> BatchSampler:
    arguments: dict[str, Any] = {"d_vocab": D_VOCAB, "batch_size": 8, "sequence_length": 33, "seed": 0}
    return BatchSampler(tokens=tokens, **{**arguments, **changes})


def test_rows_of_text_are_consecutive_tokens_after_the_separator(numbers: TokenFile) -> None:
    for step in range(20):
        batch = sampler(numbers).batch(step)
        assert batch.dtype == torch.int64 and batch.shape == (8, 33)
        for row in batch.tolist():
            assert row[0] == 0
            assert row[1:] == list(range(row[1], row[1] + 32)) and row[-1] < 4000


def test_offsets_are_uniform_up_to_both_ends(tmp_path: Path) -> None:
    short = token_file(tmp_path / "short.bin", np.arange(34))
    starts = torch.cat([sampler(short, batch_size=100).batch(step)[:, 1] for step in range(30)])
    assert torch.bincount(starts).tolist() == pytest.approx([1000] * 3, abs=120)  # 26 is one deviation
    exact = token_file(tmp_path / "exact.bin", np.arange(33))
    assert set(sampler(exact, batch_size=50).batch(0)[:, 1].tolist()) == {0, 1}


def segment_length(row: list[int]) -> int:
    """The shortest period of a row's tokens after the separator, by trying all."""
    filled = row[1:]
    return next(p for p in range(1, len(filled) + 1) if all(a == b for a, b in zip(filled, filled[p:], strict=False)))


@pytest.mark.parametrize("source", ["random", "text"])
def test_repeated_rows(numbers: TokenFile, source: str) -> None:
    made = sampler(numbers, batch_size=50, repeat_fraction=1.0, repeat_source=source)
    rows = [row for step in range(10) for row in made.batch(step).tolist()]
    lengths = [segment_length(row) for row in rows]
    assert set(lengths) == set(range(8, 17))  # every length up to half of 32 tokens
    for row, length in zip(rows, lengths, strict=True):
        segment = row[1 : 1 + length]
        assert row == [0, *(segment * 5)[:32]]
        assert (segment == list(range(segment[0], segment[0] + length))) == (source == "text")
    if source == "random":
        assert min(min(row[1:]) for row in rows) > 0  # no separators
        assert max(max(row) for row in rows) > 4000  # all of the vocabulary


def test_share_of_repeated_rows(numbers: TokenFile) -> None:
    for fraction in (0.0, 0.125, 0.5):
        made = sampler(numbers, batch_size=100, repeat_fraction=fraction)
        repeated = sum(segment_length(row) < 32 for step in range(20) for row in made.batch(step).tolist())
        deviation = (2000 * fraction * (1 - fraction)) ** 0.5
        assert abs(repeated - 2000 * fraction) <= 4 * deviation


def test_random_tokens_alone(tmp_path: Path) -> None:
    made = sampler(None, d_vocab=5, batch_size=200, repeat_fraction=1.0)
    batch = made.batch(3)
    assert batch[:, 0].eq(0).all()
    # only the first 8 tokens of a row are independent draws
    assert torch.bincount(batch[:, 1:9].flatten(), minlength=5).tolist() == pytest.approx([0, *[400] * 4], abs=80)


def test_a_batch_is_a_pure_function_of_seed_and_step(numbers: TokenFile) -> None:
    def make(**changes: Any) -> BatchSampler:
        return sampler(numbers, repeat_fraction=0.5, **changes)

    forwards = [make().batch(step) for step in range(5)]
    one = make()
    torch.manual_seed(1)
    np.random.seed(1)
    backwards = [one.batch(step) for step in reversed(range(5))]
    for a, b in zip(forwards, reversed(backwards), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    different = [*forwards, make(seed=1).batch(0), make(seed=2**64 - 1).batch(0), make().batch(2**64 - 1)]
    assert len({batch.numpy().tobytes() for batch in different}) == len(different)
    # row by row: a larger batch only adds rows
    torch.testing.assert_close(make(batch_size=20).batch(4)[:8], forwards[4], rtol=0, atol=0)


def test_batches_never_change(numbers: TokenFile) -> None:
    """A resumed run must see the rows of the run before, whatever numpy is installed: these are pinned."""
    made = sampler(numbers, repeat_fraction=0.5, seed=7)
    digest = hashlib.sha256(b"".join(made.batch(step).numpy().tobytes() for step in range(4))).hexdigest()
    assert digest[:16] == "ad8c63a8c30013c6"
    assert repeated_random_tokens(100, 1, 4, seed=7).tolist() == [[0, 64, 76, 64, 2, 64, 76, 64, 2]]


def test_another_separator(tmp_path: Path) -> None:
    gpt2 = token_file(tmp_path / "tokens.bin", np.arange(40), d_vocab=50, eot_id=49)
    batch = sampler(gpt2, d_vocab=50, batch_size=100, repeat_fraction=1.0).batch(0)
    assert batch[:, 0].eq(49).all() and batch[:, 1:].ne(49).all()
    assert batch[:, 1:].unique().tolist() == list(range(49))
    assert validation_windows(gpt2, 10)[:, 0].eq(49).all()
    assert repeated_random_tokens(3, 50, 4, seed=0, eot_id=1)[:, 1:].unique().tolist() == [0, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: expected a whole number from 1"),
        ({"sequence_length": 1}, "sequence_length=1: expected a whole number from 2"),
        ({"sequence_length": 4001}, "expected at least 4001 tokens .* got 4000; give more text"),
        ({"d_vocab": 4999}, "expected a token file of d_vocab ≤ 4999 .* got 5000"),
        ({"seed": -1}, "seed=-1"),
        ({"repeat_fraction": 1.5}, "repeat_fraction=1.5: .* from 0 to 1"),
        ({"repeat_fraction": float("nan")}, "repeat_fraction=nan: .* from 0 to 1"),
        (
            {"repeat_fraction": 0.1, "sequence_length": 16},
            "expected sequence_length ≥ 17 for repeated segments",
        ),
        ({"tokens": None}, "expected a token file, or else repeat_fraction=1.0"),
        ({"tokens": None, "repeat_fraction": 1.0, "repeat_source": "text"}, "expected a token file"),
        ({"tokens": None, "repeat_fraction": 1.0, "d_vocab": 1}, "d_vocab=1: expected a whole number from 2"),
    ],
)
def test_arguments_that_do_not_fit(numbers: TokenFile, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampler(**{"tokens": numbers, **changes})


def test_steps_and_ids_out_of_range(numbers: TokenFile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="step=-1"):
        sampler(numbers).batch(-1)
    damaged = token_file(tmp_path / "damaged.bin", np.full(100, 65_000))
    with refused("d_vocab = 5000", "65000", "step 6"):
        sampler(damaged).batch(6)
    with pytest.raises(ValueError, match="below d_vocab = 5000, got 65000"):
        validation_windows(damaged, 10)


@pytest.mark.parametrize(("n_tokens", "length", "most"), [(100, 8, None), (99, 8, 5), (9, 9, 3), (8, 8, None)])
def test_validation_windows(tmp_path: Path, n_tokens: int, length: int, most: int | None) -> None:
    tokens = token_file(tmp_path / "tokens.bin", np.arange(n_tokens))
    every = []
    begin = 1
    while begin + length - 1 <= n_tokens:
        every.append([0, *range(begin, begin + length - 1)])
        begin += length - 1
    windows = validation_windows(tokens, length, most).tolist()
    if most is None or most >= len(every):
        assert windows == every
    else:
        chosen = [every.index(window) for window in windows]
        assert len(chosen) == most and chosen[0] == 0
        gaps = np.diff([*chosen, len(every)])
        assert gaps.max() - gaps.min() <= 1


def test_validation_windows_refused(numbers: TokenFile) -> None:
    with pytest.raises(ValueError, match="expected at least 4001 tokens"):
        validation_windows(numbers, 4001)
    with pytest.raises(ValueError, match="sequence_length=1"):
        validation_windows(numbers, 1)
    with pytest.raises(ValueError, match="max_windows=0"):
        validation_windows(numbers, 10, 0)
    assert torch.equal(validation_windows(numbers, 10, 2_000_000), validation_windows(numbers, 10))


def test_repeated_random_tokens() -> None:
    rows = repeated_random_tokens(50, 40, 30, seed=3)
    assert rows.shape == (40, 61) and rows.dtype == torch.int64
    assert rows[:, 0].eq(0).all()
    assert torch.equal(rows[:, 1:31], rows[:, 31:])
    assert rows[:, 1:].unique().tolist() == list(range(1, 50))
    assert torch.equal(rows, repeated_random_tokens(50, 40, 30, seed=3))
    assert not torch.equal(rows, repeated_random_tokens(50, 40, 30, seed=4))
    assert len(rows.unique(dim=0)) == 40
    with pytest.raises(ValueError, match="d_vocab=1: expected a whole number from 2"):
        repeated_random_tokens(1, 1, 1, seed=0)


@pytest.mark.parametrize("eot", [0, None])
def test_targets_of_what_comes_again_are_those_that_were_there(eot):
    tokens = repeated_random_tokens(50, 3, 6, 1, eot_id=eot)
    targets = repeated_targets(tokens, 6)
    start = 0 if eot is None else 1
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        for place, target in enumerate(wanted):
            known = start + 6 <= place < len(row) - 1
            assert target == (row[place + 1] if known else -100)
            assert not known or target == row[place + 1 - 6], "it has followed the same token before"
    for wrong in (5, 7, 1):
        with pytest.raises(ValueError, match="tokens twice"):
            repeated_targets(tokens, wrong)


N_PLAIN = 50


def rows(n: int = 400, n_pos: int = 41) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(1, N_PLAIN, (n, n_pos)))


def test_shares_are_berts(seed: int) -> None:
    tokens = rows()
    inputs, targets = mask_tokens(tokens, N_PLAIN, seed, 3)
    hidden = targets != IGNORED
    assert (hidden.sum(1) == 6).all(), "15% of 40"
    assert not hidden[:, 0].any()
    assert torch.equal(targets[hidden], tokens[hidden]) and torch.equal(inputs[~hidden], tokens[~hidden])
    shown, changed = inputs == N_PLAIN, inputs != tokens
    n = int(hidden.sum())
    assert abs(int(shown.sum()) / n - 0.8) < 0.04
    # A random token is the token itself once in N_PLAIN times.
    assert abs(int((changed & ~shown).sum()) / n - 0.1 * (1 - 1 / N_PLAIN)) < 0.03
    assert (changed <= hidden).all()
    # Every position but the first is chosen about as often.
    assert hidden[:, 1:].float().mean(0).sub(0.15).abs().max() < 0.08


def test_masks_are_a_function_of_seed_and_step() -> None:
    tokens = rows(8)
    first = mask_tokens(tokens, N_PLAIN, 5, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, mask_tokens(tokens, N_PLAIN, 5, 2), strict=True))
    for other in (mask_tokens(tokens, N_PLAIN, 5, 3), mask_tokens(tokens, N_PLAIN, 6, 2)):
        assert not torch.equal(first[1], other[1])


def test_all_shown() -> None:
    inputs, targets = mask_tokens(rows(5, 4), N_PLAIN, 0, 0, fraction=0.01, shown=1.0, random=0.0)
    assert ((targets != IGNORED) == (inputs == N_PLAIN)).all()
    assert ((inputs == N_PLAIN).sum(1) == 1).all(), "at least one"


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (rows(2), {"fraction": 0.0}, "0 < fraction"),
        (rows(2), {"shown": 0.9, "random": 0.2}, "shown and random"),
        (rows(2, 1), {}, "at least 2 tokens"),
        (rows(2) + N_PLAIN, {}, "below the mask's"),
    ],
)
def test_what_does_not_fit_is_refused(tokens: torch.Tensor, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mask_tokens(tokens, N_PLAIN, 0, 0, **options)


def test_the_mask_is_one_token_more_that_can_be_typed() -> None:
    plain = Tokenizer.train(["the cat sat on the mat and the other cat sat there. "] * 20, 270)
    assert plain.mask_id is None
    masked = plain.with_mask()
    assert (masked.d_vocab, masked.mask_id, masked.eot_id) == (plain.d_vocab + 1, plain.d_vocab, plain.eot_id)
    assert masked.with_mask() is masked and plain.d_vocab == 270
    text = "the cat<|mask|> on the mat"
    before, after = text.split(MASK)
    expected = [*plain.encode(before), plain.d_vocab, *plain.encode(after)]
    assert masked.encode(text) == expected == masked.encode_batch([text])[0]
    assert masked.decode(expected) == text and masked.str_tokens([plain.d_vocab]) == [MASK]
    assert plain.d_vocab not in plain.encode(text), "elsewhere it is ordinary text"
    assert masked.eot_id not in masked.encode("<|endoftext|>")
    again = Tokenizer.from_json(masked.to_json())
    assert again.mask_id == masked.mask_id and again.encode(text) == expected
