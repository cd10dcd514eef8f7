"""Batched training: its gradient, one problem alone, stopping, bounded pieces, resuming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from aotlens.distill import Distillation, distill_heads
from aotlens.distill.heads.batch import FFNBatch, Problem
from aotlens.distill.heads.stream import windows_of_piece
from tests.messages import refused

from .conftest import FAST, build

LONGER = {**FAST, "train_tokens": 12_000}


def assert_same_ffn(found: Distillation, alone: Distillation, head: tuple[int, int], width: int, seed: int) -> None:
    """The FFN of one seed among several, and the same alone. In float32 rounding grows over the steps of Adam, in
    weights more than in errors."""
    close = 1e-5 if alone.weights[width].W_in.dtype == torch.float64 else 1e-3
    first, second = found.place(head), alone.place(head)
    for name in ("W_in", "b_in", "W_out", "b_out"):
        together = getattr(found.weights[width], name)[first, seed]
        torch.testing.assert_close(together, getattr(alone.weights[width], name)[second, 0], atol=close, rtol=close)
    index = found.width_index(width)
    assert found.error[first, index, seed] == pytest.approx(alone.error[second, 0, 0], abs=1e-5)
    column = found.settings.trained.index(width)
    assert found.stopped_at[first, column, seed] == alone.stopped_at[second, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.long
def test_batched_training_is_training_alone(model, windows, dtype):
    """Heads, widths and seeds side by side change nothing; not all heads of a layer, so that layers are uneven."""
    model = model.to(dtype)
    heads = [(0, 0), (1, 0), (1, 1)]
    together = distill_heads(model, windows, [4, 16], heads=heads, seeds=2, **LONGER)
    for head, width, seed in [((0, 0), 4, 1), ((1, 1), 16, 0), ((1, 0), 4, 0)]:
        alone = distill_heads(model, windows, width, heads=[head], seeds=1, seed=seed, **LONGER)
        assert_same_ffn(together, alone, head, width, seed)


def problems(n: int) -> list[Problem]:
    return [Problem(place=i, layer=i // 2, head=(i // 2, i % 2), seed=0) for i in range(n)]


@pytest.mark.parametrize("n", [3, 4])  # layers of unequal and of equal numbers of heads
def test_the_gradient_against_autograd(n):
    """A few steps, against torch's autograd and Adam on each FFN by itself."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, t = normal(2, 6, 50), normal(n, 3, 50)
    x[:, -1] = 1
    W1, W2 = normal(n, 5, 6), normal(n, 3, 6)
    batch = FFNBatch(5, problems(n), W1.clone(), W2.clone(), 0.1)
    for _ in range(3):
        batch.step(x, t, 0.5)
    for i, problem in enumerate(problems(n)):
        first, second = (w[i].clone().requires_grad_() for w in (W1, W2))
        optimiser = torch.optim.Adam([first, second], lr=0.05, betas=(0.9, 0.99))
        for _ in range(3):
            hidden = torch.relu(first @ x[problem.layer])
            out = second[:, :-1] @ hidden + second[:, -1:]
            loss = (out - t[i]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        torch.testing.assert_close(batch.W1[i], first.detach())
        torch.testing.assert_close(batch.W2[i], second.detach())


def test_those_that_stop_leave_the_others_alone():
    """Rows are dropped with their own moments of Adam."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, t = normal(2, 6, 50), normal(4, 3, 50)
    W1, W2 = normal(4, 5, 6), normal(4, 3, 6)
    batch, whole = (FFNBatch(5, problems(4), W1.clone(), W2.clone(), 0.1) for _ in range(2))
    for _ in range(3):
        batch.step(x, t, 1.0)
        whole.step(x, t, 1.0)
    batch.note(torch.tensor([1.0, 2.0, 3.0, 4.0]), 10, 0.5, 1)
    kept = batch.best_W1.clone()
    batch.note(torch.tensor([0.9, 0.1, 2.9, 0.1]), 20, 0.5, 1)
    assert batch.active == [1, 3] and batch.stopped_at.tolist() == [20, 0, 20, 0]
    batch.step(x, t, 1.0)
    whole.step(x, t, 1.0)
    torch.testing.assert_close(batch.W1, whole.W1[[1, 3]])
    torch.testing.assert_close(batch.W2, whole.W2[[1, 3]])
    batch.restore_best()
    assert batch.active == [0, 1, 2, 3]
    torch.testing.assert_close(batch.W1[[1, 3]], kept[[1, 3]])  # no evaluation since


def test_an_error_that_is_not_finite_ends_the_run():
    zeros = torch.zeros(2, 5, 6), torch.zeros(2, 3, 6)
    with refused("head 0.1", "5 hidden units", "seed 0", "learning_rate"):
        FFNBatch(5, problems(2), *zeros, 0.1).note(torch.tensor([1.0, torch.nan]), 10, 0.5, 1)


def test_settled_ffns_stop_and_keep_their_best(model, windows):
    found = distill_heads(model, windows, 4, seeds=1, **{**LONGER, "patience": 1, "tolerance": 0.2})
    assert (found.stopped_at > 0).any()
    best = found.curve.min(0)
    for place in range(len(found.heads)):
        trained = slice(0, np.argmax(found.curve_tokens) + 1)  # without the comparison with the linear map at the end
        after = found.curve[trained][found.curve_tokens[trained] > found.stopped_at[place, 0, 0], place, 0, 0]
        if found.stopped_at[place, 0, 0]:
            assert (after == after[0]).all() if len(after) else True
    assert np.isfinite(best).all()


class Killed(Exception):
    pass


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.long
def test_a_killed_run_resumes_to_the_same_weights(model, windows, tmp_path: Path, after: int):
    options = {**LONGER, "wide": 8, "patience": 2, "tolerance": 0.02}
    whole = distill_heads(model, windows, [0, 4], seeds=2, **options)
    path = tmp_path / "state" / "run.safetensors"
    calls = 0

    def kill(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Killed

    with pytest.raises(Killed):
        distill_heads(model, windows, [0, 4], seeds=2, checkpoint=path, progress=kill, **options)
    assert path.exists()
    seen: list[int] = []
    resumed = distill_heads(
        model, windows, [0, 4], seeds=2, checkpoint=path, progress=lambda done, total: seen.append(done), **options
    )
    assert seen[0] > 0 and not path.exists()
    for width in (0, 4):
        for name in ("W_in", "b_in", "W_out", "b_out"):
            assert torch.equal(getattr(resumed.weights[width], name), getattr(whole.weights[width], name))
    np.testing.assert_array_equal(resumed.squared_error, whole.squared_error)
    np.testing.assert_array_equal(resumed.curve, whole.curve)
    np.testing.assert_array_equal(resumed.wide_error, whole.wide_error)
    assert resumed.distinct_tokens == whole.distinct_tokens


def test_nothing_is_kept_for_gradients(model, windows, monkeypatch):
    """A model whose parameters want gradients, every sum of the run included."""
    from aotlens.distill.heads import held_out

    wanted: list[bool] = []
    errors = held_out._errors
    monkeypatch.setattr(held_out, "_errors", lambda *args: wanted.append(torch.is_grad_enabled()) or errors(*args))
    distill_heads(model.requires_grad_(True), windows, 4, seeds=1, **{**FAST, "neighbours": 300})
    assert wanted and not any(wanted)


def test_progress_ends_with_the_work(model, windows):
    seen: list[tuple[int, int]] = []
    options = {**FAST, "neighbours": 300, "wide": 6}
    distill_heads(model, windows, [0, 4], seeds=1, progress=lambda *one: seen.append(one), **options)
    done, totals = zip(*seen, strict=True)
    assert list(done) == sorted(done) and len(set(totals)) == 1 and seen[-1][0] == seen[-1][1] > 2400


def test_another_run_is_not_resumed(model, windows, tmp_path: Path):
    path = tmp_path / "run.safetensors"

    def kill(done: int, total: int) -> None:
        if done:
            raise Killed

    with pytest.raises(Killed):
        distill_heads(model, windows, 4, checkpoint=path, progress=kill, **FAST)
    with refused("another settings"):
        distill_heads(model, windows, 8, checkpoint=path, **FAST)
    with pytest.raises(ValueError, match="another text"):
        distill_heads(model, (windows[0][1:], *windows[1:]), 4, checkpoint=path, **FAST)
    with pytest.raises(ValueError, match="another model"):
        distill_heads(build(attention="mssa", bias=True, positions="qk", seed=5), windows, 4, checkpoint=path, **FAST)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    with pytest.raises(ValueError, match="damaged: its contents"):
        distill_heads(model, windows, 4, checkpoint=path, **FAST)
    path.write_bytes(whole[:-7])
    with pytest.raises(ValueError, match="cannot be read"):
        distill_heads(model, windows, 4, checkpoint=path, **FAST)


def test_a_small_buffer_gives_small_pieces(model, windows):
    """And the closed forms, which see all the text once, are the same through any buffer."""
    small = {**FAST, "buffer_bytes": 200_000}
    found = distill_heads(model, windows, [0, 4], **small)
    usual = distill_heads(model, windows, [0, 4], **FAST)
    assert found.distinct_tokens == usual.distinct_tokens
    np.testing.assert_allclose(found.error[:, 0], usual.error[:, 0], rtol=1e-9)
    with refused("buffer_bytes=1,000", "12 tokens"):
        distill_heads(model, windows, 4, **{**FAST, "buffer_bytes": 1000})


def test_pieces_take_every_window_once_a_round():
    ids = torch.arange(10)[:, None].expand(10, 3)
    pieces = [windows_of_piece(ids, 4, 0, number) for number in range(5)]
    seen = torch.cat([piece[:, 0] for piece, _ in pieces]).tolist()
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10)) and seen[:10] != seen[10:]
    assert [new for _, new in pieces] == [4, 4, 2, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": [4, 4]}, "increasing"),
        ({"hidden": [-1]}, "widths of 0 or more"),
        ({"hidden": []}, "at least one"),
        ({"target": "pattern"}, "'result', 'z'"),
        ({"seeds": 0}, "seeds=0"),
        ({"train_tokens": 5}, "at least a batch"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"heads": [(2, 0)]}, "head 2.0: this model has layers 0 to 1"),
        ({"heads": []}, "at least 1"),
        ({"held_out": 0.5}, "are for a corpus"),
    ],
)
def test_mistakes_are_named(model, windows, options, message):
    arguments = {"hidden": 4, **FAST, **options}
    with pytest.raises(ValueError, match=message):
        distill_heads(model, windows, arguments.pop("hidden"), **arguments)


def test_windows_that_do_not_fit_are_named(model, windows):
    for wrong, message in [
        ((windows[0].float(), windows[2]), "token ids"),
        ((windows[0], windows[2][:, :5]), "one length"),
        ((windows[0] + 1000, windows[2]), "0 to 59"),
        ((windows[0][:1], windows[2]), "at least 2 training windows"),
        ((torch.cat([windows[0]] * 2, 1), windows[2]), "2 to 12 positions"),
    ]:
        with pytest.raises(ValueError, match=message):
            distill_heads(model, wrong, 4, **FAST)
    with pytest.raises(ValueError, match="reads vectors"):
        distill_heads(build(read_in="vectors", read_out="vectors", d_vocab=None, d_in=3, d_out=3), windows, 4, **FAST)


@pytest.mark.gpu
def test_on_cuda_as_on_the_cpu(model, windows):
    here = distill_heads(model, windows, [0, 4], **FAST)
    there = distill_heads(model.to("cuda"), windows, [0, 4], **FAST)
    np.testing.assert_allclose(there.error, here.error, atol=1e-6)
