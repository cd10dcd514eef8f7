"""Every cell of a sweep against hooks by hand, prompt by prompt and cell by cell; and against TransformerLens."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from torch import Tensor
from transformer_lens import patching as theirs

from aotlens.data import PromptPairs
from aotlens.interop import to_transformer_lens
from aotlens.models import hook_names
from aotlens.patching import HEADS, STREAMS, patch
from aotlens.patching.both import require_difference
from tests.cases import mostly_long
from tests.messages import refused
from tests.small_models import MakeModel, maker

CLEAN = torch.tensor([[1, 2, 7, 4, 9], [4, 3, 9, 9, 0], [5, 5, 1, 8, 2]])
CORRUPTED = torch.tensor([[1, 6, 7, 4, 9], [4, 3, 10, 9, 0], [5, 5, 1, 0, 2]])
ANSWERS, WRONG = [3, 1, 8], [5, 4, 0]

KINDS: dict[str, dict[str, Any]] = {
    "mhsa": {"bias": True, "n_layers": 3},
    "mssa": {"attention": "mssa"},
    "tied mssa": {"attention": "mssa", "tied_output": True, "step_size": 0.7},
    "with MLPs": {"d_mlp": 9, "bias": True},
    "positions of queries and keys": {"positions": "qk"},
    "thresholded": {"attention": "mssa", "phi": "thresholded_softmax", "threshold": 0.3},
    "linear": {"phi": "linear"},
    "fixed": {"phi": "fixed", "fixed_pattern": "random"},
    "no norm": {"norm": None},
    "seeing later keys": {"causal": False},
    "a mask": {"attn_mask": (torch.ones(3, 8, 8).tril() * (1 - torch.eye(8).roll(-2, 1).tril())).bool()},
    "classes of the mean": {"read_out": "classes", "d_out": 11, "pooling": "mean", "bias": True},
    "one norm of all heads' queries": {"qk_norm": "layer", "norm": "rms"},
    "classes at every position": {"read_out": "classes", "d_out": 11, "pooling": None},
}


def pairs_of(model: Any) -> PromptPairs:
    return PromptPairs.of_inputs(model, CLEAN, CORRUPTED, ANSWERS, WRONG)


def difference(logits: Tensor, row: int) -> float:
    last = logits[0].reshape(-1, logits.shape[-1])[-1]
    return float(last[ANSWERS[row]] - last[WRONG[row]])


def overwrite(x: Tensor, hook: Any, place: Any, by: Tensor) -> Tensor:
    x = x.clone()
    x[place] = by[place]
    return x


@torch.no_grad()
def by_hooks(model: Any, what: str, direction: str, by_position: bool) -> np.ndarray:
    """Each cell by a hook that overwrites it, each run whole."""
    base, source = (CORRUPTED, CLEAN) if direction == "denoising" else (CLEAN, CORRUPTED)
    of_heads = what in HEADS
    rows = []
    for row in range(len(base)):
        _, cache = model.run_with_cache(source[row : row + 1], return_cache_object=False)
        values = {}
        for layer in range(model.cfg.n_layers):
            name = hook_names.attn(layer, f"hook_{what}") if of_heads else hook_names.block(layer, f"hook_{what}")
            for head in range(model.cfg.n_heads) if of_heads else [None]:
                for at in range(5) if by_position else [slice(None)]:
                    place = (0, at) if head is None else (0, head, at) if what == "pattern" else (0, at, head)

                    put = partial(overwrite, place=place, by=cache[name])
                    logits = model.run_with_hooks(base[row : row + 1], fwd_hooks=[(name, put)])
                    values[(layer, *([] if head is None else [head]), *([at] if by_position else []))] = difference(logits, row)  # noqa: E501  # fmt: skip
        shape = np.array([*values])[-1] + 1
        rows.append(np.reshape([*values.values()], shape))
    return np.stack(rows)


@pytest.mark.parametrize("kind", mostly_long(KINDS, ("with MLPs", "tied mssa", "classes of the mean")))
def test_streams_are_what_hooks_make_of_them(make: MakeModel, kind: str) -> None:
    model = make(**KINDS[kind])
    for what in STREAMS:
        if what in ("resid_mid", "mlp_out") and "d_mlp" not in KINDS[kind]:
            continue
        for direction in ("denoising", "noising"):
            found = patch(model, pairs_of(model), what, direction=direction, batch_size=2)
            expected = by_hooks(model, what, direction, True)
            np.testing.assert_allclose(found.each, expected, atol=1e-9, err_msg=f"{kind} {what} {direction}")
            assert np.ptp(expected) > 1e-2, "some cell does something"


@pytest.mark.parametrize("kind", mostly_long(KINDS, ("mssa", "with MLPs", "one norm of all heads' queries", "a mask")))
@pytest.mark.parametrize("by_position", [False, True])
def test_heads_are_what_hooks_make_of_them(make: MakeModel, kind: str, by_position: bool) -> None:
    model = make(**KINDS[kind])
    for what in HEADS:
        if what in ("q", "k") and not model.cfg.has_query_key:
            continue
        found = patch(model, pairs_of(model), what, by_position=by_position)
        expected = by_hooks(model, what, "denoising", by_position)
        np.testing.assert_allclose(found.each, expected, atol=1e-9, err_msg=f"{kind} {what}")


@pytest.mark.parametrize(
    ("what", "by_position", "name"),
    [
        ("resid_pre", None, "resid_pre"),
        ("attn_out", None, "attn_out"),
        ("z", True, "attn_head_out_by_pos"),
        ("z", False, "attn_head_out_all_pos"),
        ("v", False, "attn_head_v_all_pos"),
        ("q", True, "attn_head_q_by_pos"),
        ("k", False, "attn_head_k_all_pos"),
        ("pattern", False, "attn_head_pattern_all_pos"),
    ],
)
def test_transformer_lens_finds_the_same_on_its_bridge(make: MakeModel, what: str, by_position: Any, name: str) -> None:
    model = make(bias=True, n_heads=2, d_head=6).float()
    bridge = to_transformer_lens(model)

    def margin(logits: Tensor) -> Tensor:
        return (logits[range(3), -1, ANSWERS] - logits[range(3), -1, WRONG]).mean()

    found = patch(model, pairs_of(model), what, by_position=by_position).values
    with torch.no_grad():
        expected = getattr(theirs, f"get_act_patch_{name}")(bridge, CORRUPTED, bridge.run_with_cache(CLEAN)[1], margin)
    if what in HEADS and by_position:
        expected = expected.transpose(1, 2)  # theirs: layer, position, head
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_all_of_the_stream_restores_everything_and_nothing_of_it_nothing(make: MakeModel) -> None:
    model = make(n_layers=3)
    found = patch(model, pairs_of(model), "resid_post")
    last = found.each[:, -1, -1]
    np.testing.assert_allclose(last, found.clean, atol=1e-9)
    np.testing.assert_allclose(found.each[:, -1, :-1], np.tile(found.corrupted[:, None], 4), atol=1e-9)
    np.testing.assert_allclose(found.restored[-1], [0, 0, 0, 0, 1], atol=1e-9)


@pytest.mark.parametrize("metric", ["probability", "loss", "kl"])
def test_metrics_are_of_the_patched_logits(make: MakeModel, metric: str) -> None:
    model = make(bias=True)
    seen: list[Tensor] = []

    def mine(logits: Tensor, pairs: PromptPairs) -> Tensor:
        seen.append(logits)
        log_p = logits.log_softmax(-1)
        answer = log_p[range(len(pairs)), [each.answer for each in pairs]]
        clean = model(torch.stack([each.clean for each in pairs]))[:, -1].log_softmax(-1)
        of = {"probability": answer.exp(), "loss": -answer, "kl": (clean.exp() * (clean - log_p)).sum(-1)}
        return of[metric]

    found, by_hand = (patch(model, pairs_of(model), "z", given) for given in (metric, mine))
    np.testing.assert_allclose(found.each, by_hand.each, atol=1e-12)
    assert found.clean == pytest.approx(0 * found.clean) if metric == "kl" else found.clean.min() > 0
    assert seen[0].shape == (3, 11)


def test_restored_is_a_ratio_of_means_with_an_interval_over_clusters(make: MakeModel) -> None:
    model = make()
    clusters = ["a", "b", "c"]
    pairs = PromptPairs.of_inputs(model, CLEAN, CORRUPTED, ANSWERS, WRONG, clusters=clusters)
    found = patch(model, pairs, "z")
    means = (found.each.mean(0) - found.corrupted.mean()) / (found.clean.mean() - found.corrupted.mean())
    np.testing.assert_allclose(found.restored, means)
    low, high = found.intervals()[..., 0], found.intervals()[..., 1]
    assert (low <= found.restored).all() and (found.restored <= high).all()
    low, high = found.difference_interval
    change = found.clean - found.corrupted
    reach = scipy.stats.t.ppf(0.975, 2) * change.std(ddof=1) / np.sqrt(3)
    assert (low, high) == (pytest.approx(change.mean() - reach), pytest.approx(change.mean() + reach))
    frame = found.to_frame()
    assert list(frame.columns) == ["layer", "head", "mean", "restored", "low", "high"]
    assert frame["restored"].to_numpy() == pytest.approx(found.restored.ravel())


def test_prompts_of_different_lengths_are_patched_at_what_they_have_in_common(make: MakeModel) -> None:
    model = make(bias=True)
    pairs = PromptPairs.from_texts(
        model,
        [{"clean": torch.tensor([1, 2, 7, 4]), "corrupted": torch.tensor([1, 3, 6, 7, 4]), "answer": 3, "wrong": 5}],
    )
    (pair,) = pairs
    assert pair.positions == ((0, 0), (2, 3), (3, 4))
    found = patch(model, pairs, "resid_pre")
    _, cache = model.run_with_cache(pair.clean[None], return_cache_object=False)

    @torch.no_grad()
    def logit(at: int, layer: int) -> float:
        taken = dict((b, a) for a, b in pair.positions).get(at)

        def put(x: Tensor, hook: Any) -> Tensor:
            x = x.clone()
            if taken is not None:
                x[0, at] = cache[hook_names.resid_pre(layer)][0, taken]
            return x

        logits = model.run_with_hooks(pair.corrupted[None], fwd_hooks=[(hook_names.resid_pre(layer), put)])
        return float(logits[0, -1, 3] - logits[0, -1, 5])

    expected = [[logit(at, layer) for at in range(5)] for layer in range(2)]
    np.testing.assert_allclose(found.each[0], expected, atol=1e-9)
    with pytest.raises(ValueError, match="equally many tokens"):
        patch(model, pairs, "pattern")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"what": "resid"}, "expected one of 'resid_pre'"),
        ({"direction": "both"}, "'denoising', 'noising'"),
        ({"what": "mlp_out"}, "no MLPs"),
        ({"metric": "margin"}, "expected one of logit_difference"),
        ({"by_position": False}, "at each position"),
        ({"metric": lambda logits, pairs: logits.sum() / 0}, "expected 3 numbers"),
        ({"metric": lambda logits, pairs: logits[:, 0] / 0}, "finite numbers"),
        ({"metric": lambda logits, pairs: 0 * logits[:, 0]}, "nothing to restore"),
        ({"metric": lambda logits, pairs: logits[:, 0] * 1e-17 + 1}, "nothing to restore"),
        ({"batch_size": 0}, "batch_size=0"),
    ],
)
def test_what_cannot_be_is_refused(make: MakeModel, given: dict[str, Any], message: str) -> None:
    model = make()
    with pytest.raises(ValueError, match=message):
        patch(model, pairs_of(model), **given)


@pytest.mark.parametrize(
    ("dtype", "share", "is_refused"),
    [
        (torch.bfloat16, 0.01, True), (torch.bfloat16, 0.2, False), (torch.float16, 1e-3, True),
        (torch.float32, 1e-3, False), (torch.float32, 5e-7, True), (torch.float64, 5e-7, False),
    ],
)  # fmt: skip
def test_a_difference_is_rounding_by_the_type_of_the_model(dtype: torch.dtype, share: float, is_refused: bool) -> None:
    """A difference of 1% of what is measured is 1 unit of bfloat16, of which 0.00 or 1.00 everywhere would be made."""
    ends, none = np.array([[3.0, 3.0 * (1 - share)]] * 4), np.zeros(4)
    if not is_refused:
        require_difference(ends, none, "logit_difference", dtype)
        return
    with refused("nothing to restore", *(["model.float()"] if dtype != torch.float32 else [])):
        require_difference(ends, none, "logit_difference", dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_prompts_that_differ_by_less_than_logits_are_rounded_are_refused(dtype: torch.dtype) -> None:
    """Two tokens that are alike to one unit of the type, and a difference of logits that cancel: some of these are far
    from 0 as shares of what is left of the logits, and none is as a share of the logits."""
    eps, n_alike, n_other = torch.finfo(dtype).eps, 0, 0
    for seed in range(30):
        model, generator = maker(seed=seed)(torch.float64), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            model.W_E[6] = model.W_E[2] + eps * model.W_E[6]
        answers = torch.randperm(11, generator=generator)[:2, None]
        clean = torch.randint(0, 11, (1, 5), generator=generator)
        clean[0, 1] = 2
        corrupted, other = clean.clone(), torch.randint(0, 11, (1, 5), generator=generator)
        corrupted[0, 1] = 6
        with torch.no_grad():
            logits = torch.stack([model(prompt)[0, -1] for prompt in (clean, corrupted)])
        change = float((logits[0] - logits[1])[answers.flatten()].diff())
        model = model.to(dtype)
        refusals = []
        for prompt in (corrupted, other):
            try:
                patch(model, PromptPairs.of_inputs(model, clean, prompt, *answers.tolist()), "z", by_position=False)
            except ValueError as error:
                assert "nothing to restore" in str(error)
                refusals.append(prompt is corrupted)
        if abs(change) < eps * float(logits.abs().max()):
            n_alike += 1
            assert True in refusals, f"seed {seed}"
        n_other += False not in refusals
    assert n_alike >= 15 and n_other >= 20, (n_alike, n_other)


@pytest.mark.parametrize("metric", ["logit_difference", "probability", "loss", "kl", "output", lambda x, _: x[:, 3]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_same_tokens_in_another_order_differ_by_rounding_alone(make: MakeModel, dtype: torch.dtype, metric) -> None:
    """Without positions, and with all keys visible, order changes nothing but the order of sums."""
    model = make(positions=None, causal=False, read_out="classes", d_out=11, pooling="mean").to(dtype)
    order = torch.tensor([3, 0, 4, 2, 1])
    with refused("nothing to restore"):
        patch(
            model, PromptPairs.of_inputs(model, CLEAN, CLEAN[:, order], ANSWERS, WRONG), "z", metric, by_position=False
        )


def test_a_bfloat16_model_whose_prompts_differ_by_less_than_it_can_tell_is_refused(make: MakeModel) -> None:
    model = make()
    with torch.no_grad():
        model.W_E[6] = model.W_E[2] + 0.01 * model.W_E[6]  # the first pair's prompts differ in tokens 2 and 6
    pairs = pairs_of(model)[:1]
    assert np.abs(patch(model.float(), pairs, "z", by_position=False).restored).max() > 0.05
    with refused("bfloat16"):
        patch(model.bfloat16(), pairs, "z", by_position=False)


def test_equal_pairs_are_one_piece_of_evidence(make: MakeModel) -> None:
    """Four times the same pair has no interval, and copies of one of three leave the interval of clusters."""
    model = make(n_layers=1).double()

    def sweep(rows: list[int], clusters: list[str] | None = None) -> Any:
        inputs = CLEAN[rows], CORRUPTED[rows], [ANSWERS[row] for row in rows], [WRONG[row] for row in rows]
        return patch(model, PromptPairs.of_inputs(model, *inputs, clusters=clusters), "z", by_position=False)

    for clusters in (None, ["a", "b", "c", "d"]):
        same = sweep([0] * 4, clusters)
        assert np.isnan(same.intervals()).all() and "low" not in same.to_frame()
    copied, named = sweep([0, 0, 1, 2, 0]), sweep([0, 0, 1, 2, 0], ["a", "a", "b", "c", "a"])
    assert copied.clusters == ("pair 1", "pair 1", "pair 3", "pair 4", "pair 1")
    np.testing.assert_array_equal(copied.intervals(), named.intervals())
    assert sweep([0, 1, 2]).clusters is None and sweep([0, 1, 2], ["a", "a", "b"]).clusters == ("a", "a", "b")
    assert sweep([0, 1, 0], ["a", "b", "b"]).clusters == ("a", "a", "a"), "an equal pair joins two clusters"


def test_a_model_that_somebody_listens_to_is_refused(make: MakeModel) -> None:
    model = make()
    model.add_hook(hook_names.attn(0, hook_names.Z), lambda z, hook: z * 0)
    with pytest.raises(ValueError, match="without hooks"):
        patch(model, pairs_of(model))


@pytest.mark.unchecked
def test_some_positions_are_those_of_the_whole_sweep(make: MakeModel) -> None:
    model = make()
    whole = patch(model, pairs_of(model), "z", by_position=True)
    some = patch(model, pairs_of(model), "z", positions=np.array([4, 1]))
    assert some.positions == (1, 4) and some.axes == whole.axes
    np.testing.assert_allclose(some.each, whole.each[..., [1, 4]], rtol=0, atol=1e-12)
    frame = whole.to_frame()
    pd.testing.assert_frame_equal(some.to_frame(), frame[frame.position.isin([1, 4])].reset_index(drop=True))
    stream = patch(model, pairs_of(model), "resid_pre", positions=[2])
    np.testing.assert_allclose(stream.each[..., 0], patch(model, pairs_of(model)).each[..., 2], rtol=0, atol=1e-12)
    for wrong in ([5], [-1], [], [True], [1.0]):
        with pytest.raises(ValueError, match="positions: expected some of 0 to 4"):
            patch(model, pairs_of(model), "z", positions=wrong)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("what", "direction"), [("resid_pre", "denoising"), ("z", "noising"), ("pattern", "denoising")]
)
def test_padded_pairs_are_what_they_are_alone(make: MakeModel, what: str, direction: str, side: str) -> None:
    model, lengths = make(), (5, 3, 4)
    padded, mask = torch.full((2, 3, 5), 6), torch.zeros(3, 5, dtype=torch.long)
    for row, length in enumerate(lengths):
        where = slice(5 - length, None) if side == "left" else slice(0, length)
        padded[:, row, where], mask[row, where] = torch.stack([CLEAN, CORRUPTED])[:, row, :length], 1
    for by_position in (True, False) if what in HEADS else (True,):
        pairs = PromptPairs.of_inputs(model, *padded, ANSWERS, WRONG)
        found = patch(model, pairs, what, direction=direction, by_position=by_position, attention_mask=mask)
        for row, length in enumerate(lengths):
            own = [each[row : row + 1, :length] for each in (CLEAN, CORRUPTED)]
            pair = PromptPairs.of_inputs(model, *own, ANSWERS[row : row + 1], WRONG[row : row + 1])
            alone = patch(model, pair, what, direction=direction, by_position=by_position)
            np.testing.assert_allclose([found.clean[row], found.corrupted[row]], [alone.clean[0], alone.corrupted[0]])
            each = found.each[row][..., mask[row].bool().numpy()] if by_position else found.each[row]
            np.testing.assert_allclose(each, alone.each[0], atol=1e-12)
            if by_position:
                base = found.corrupted[row] if direction == "denoising" else found.clean[row]
                assert (found.each[row][..., ~mask[row].bool().numpy()] == base).all()
    with refused("attention_mask", "3 pairs"):
        patch(model, pairs, what, attention_mask=mask[:2])
    with refused("attention_mask", "pair 0"):
        patch(model, pairs, what, attention_mask=mask[:, 1:])
