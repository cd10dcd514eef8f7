"""The numbers of docs/model-kinds.md, of every kind of model, compared with a forward pass in plain PyTorch.

What an analysis says that is no run of the model, such as a decomposition of weights, is tested where it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens import circuits, evaluate, heads, patching, paths
from aotlens.data import PromptPairs
from tests import plain
from tests.model_kinds import CALLS, KINDS, PAGE, Model, build, prompt

close = torch.testing.assert_close
HEADS = [(layer, head) for layer in range(2) for head in range(4)]


@cache
def model_of(kind: str) -> Model:
    return build(kind)


def zeroed(*dropped: tuple[int, int]) -> dict[tuple[str, int], plain.Edit]:
    """The edits that set the outputs z of heads to 0."""
    mask = torch.ones(2, 4, dtype=torch.float64)
    for layer, head in dropped:
        mask[layer, head] = 0
    return {("z", layer): lambda z, layer=layer: z * mask[layer][:, None] for layer in range(2)}  # type: ignore[misc]


def losses(logits: Tensor, ids: Tensor) -> Tensor:
    return -logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]


def results(model: Model, run: plain.Plain, layer: int) -> Tensor:
    """What each head of a layer writes, `[head, pos, d_model]`, without norms on it."""
    return torch.einsum("ihd,hdm->him", run.z[layer][0], model.W_O[layer])


def direct(model: Model, run: plain.Plain) -> Tensor:
    """What each head writes, divided by the scale of the last norm at its position, as logits
    `[layer, head, pos, out]`."""
    x = torch.stack([results(model, run, layer) for layer in range(2)])
    stream, norm = run.streams[-1][0], model.cfg.norm
    if norm is not None:
        if norm == "layernorm":
            x, stream = x - x.mean(-1, keepdim=True), stream - stream.mean(-1, keepdim=True)
        scale = (stream.pow(2).mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt()
        x = x / scale * (model.ln_final.w + model.cfg.norm_gain_offset)
    return x @ model.W_U


def generate(model: Model, ids: Tensor, run: plain.Plain) -> None:
    own = ids
    for _ in range(3):
        own = torch.cat([own, plain.run(model, own).logits[:, -1:].argmax(-1)], 1)
    assert model.generate(ids, 3, temperature=0).tolist() == own.tolist()  # type: ignore[union-attr]


def predictions(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = evaluate.next_token_predictions(model, ids, 2)
    own = run.logits[0, 2].softmax(-1)
    np.testing.assert_array_equal(result.token_ids, own.topk(10).indices)
    np.testing.assert_allclose(result.probabilities, own.topk(10).values, atol=1e-6)


def continuations(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = evaluate.score_continuations(model, [ids[0, :9]], [ids[0, 9:]])
    np.testing.assert_allclose(result.log_probabilities, -losses(run.logits, ids)[:, 8:].sum(1), atol=1e-5)


def patterns(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = heads.attention_patterns(model, ids)
    for layer in range(2):
        np.testing.assert_allclose(result.pattern[layer], run.pattern[layer][0], atol=1e-6)
        np.testing.assert_allclose(result.value_norms[layer], run.v[layer][0].norm(dim=-1).T, rtol=1e-5)


def attention(run: plain.Plain) -> Tensor:
    """`[sequence, layer, head, query, key]`."""
    return torch.stack(run.pattern, 1)


def motifs(model: Model, ids: Tensor, run: plain.Plain) -> None:
    """Over queries from the third token on, that see such a key after the first one."""
    ids = ids[:, :9]
    result, own, n = heads.motif_scores(model, ids), attention(plain.run(model, ids))[0], ids.shape[1]
    tokens, queries = ids[0].tolist(), range(2, n)
    keys = {
        "previous_token": {i: [i - 1] for i in queries},
        "current_token": {i: [i] for i in queries},
        "first_token": {i: [0] for i in queries},
        "duplicate_token": {i: [j for j in range(1, i) if tokens[j] == tokens[i]] for i in queries},
        "induction": {i: [j + 1 for j in range(1, i) if tokens[j] == tokens[i]] for i in queries},
    }
    for name, of_queries in keys.items():
        mean = torch.stack([own[..., i, js].sum(-1) for i, js in of_queries.items() if js]).mean(0)
        np.testing.assert_allclose(result[name], mean, atol=1e-6)


def norms_of_heads(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = heads.head_scores(model, ids, ["written_norm", "output_norm"])
    if not model.cfg.norms_output:
        own = torch.stack([results(model, run, layer).norm(dim=-1)[:, 1:].mean(1) for layer in range(2)])
        np.testing.assert_allclose(result["written_norm"], own, rtol=1e-5)
        np.testing.assert_allclose(result["output_norm"], own / own.mean(1, keepdim=True), rtol=1e-5)


def of_an_atlas(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result, ids = CALLS["heads.atlas"](model, ids), ids[:, :9]
    own = plain.run(model, ids)
    rows, distance = attention(own)[0, :, :, 1:], torch.arange(9)[1:, None] - torch.arange(9)
    entropy = -(rows * rows.clamp(min=1e-300).log()).sum(-1).mean(-1)
    np.testing.assert_allclose(result.entropy, entropy, atol=1e-5)
    np.testing.assert_allclose(result.mean_distance, (rows * distance.abs()).sum(-1).mean(-1), atol=1e-5)
    without = [losses(plain.run(model, ids, zeroed(head)).logits, ids).mean() for head in HEADS]
    changes = torch.stack(without) - losses(own.logits, ids).mean()
    np.testing.assert_allclose(result.ablations["zero"].changes, changes, atol=1e-5)


def consistency(model: Model, ids: Tensor, run: plain.Plain) -> None:
    """Of two texts, so that the mean over the others is the other one."""
    rows = torch.stack([ids[0, :9], ids[0].flip(0)[:9]])
    result, own = heads.pattern_consistency(model, rows).values, attention(plain.run(model, rows))[..., 1:, :]
    uniform = torch.ones(8, 9).tril(1) / torch.arange(2, 10)[:, None]
    other = (own - own.flip(0)).square().sum((0, -2, -1))
    np.testing.assert_allclose(result, 1 - other / (own - uniform).square().sum((0, -2, -1)), atol=1e-5)


def sufficient(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result, targets = CALLS["heads.sufficient_heads"](model, ids), run.logits.argmax(-1)

    def loss(*kept: tuple[int, int]) -> float:
        logits = plain.run(model, ids, zeroed(*(head for head in HEADS if head not in kept))).logits
        return float(torch.nn.functional.cross_entropy(logits[0], targets[0]))

    whole, empty = loss(*HEADS), loss()
    np.testing.assert_allclose([result.whole, result.empty], [whole, empty], atol=1e-5)
    assert result.faithfulness == pytest.approx((loss(*result.heads) - empty) / (whole - empty), abs=1e-4)
    fewer = [loss(*(other for other in result.heads if other != head)) for head in result.heads]
    np.testing.assert_allclose(result.within, (np.array(fewer) - empty) / (whole - empty), atol=1e-4)


def ablate(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = heads.ablate(model, ids, [(1, 0), (0, 2)], "zero")
    own = losses(plain.run(model, ids, zeroed((1, 0), (0, 2))).logits, ids)
    np.testing.assert_allclose(result.ablated_loss_per_token, own, atol=1e-5)
    np.testing.assert_allclose(result.clean_loss_per_token, losses(run.logits, ids), atol=1e-5)


def ablate_each(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = heads.ablate_each(model, ids, how="zero")
    own = [float(losses(plain.run(model, ids, zeroed(head)).logits, ids).mean()) for head in HEADS]
    np.testing.assert_allclose(result.ablated[:, 0], own, atol=1e-5)
    np.testing.assert_allclose(result.clean[0], float(losses(run.logits, ids).mean()), atol=1e-5)


def shapley(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = heads.shapley_heads(model, ids.expand(2, -1), how="zero", n_permutations=32)

    def loss(*kept: tuple[int, int]) -> float:
        without = zeroed(*(head for head in HEADS if head not in kept))
        return float(losses(plain.run(model, ids, without).logits, ids).mean())

    whole, empty = loss(*HEADS), loss()
    np.testing.assert_allclose(
        [result.whole, result.empty, result.values.sum()], [whole, empty, whole - empty], atol=1e-5
    )
    np.testing.assert_allclose(result.first.ravel(), [loss(head) - empty for head in HEADS], atol=1e-5)
    last = [whole - loss(*(other for other in HEADS if other != head)) for head in HEADS]
    np.testing.assert_allclose(result.last.ravel(), last, atol=1e-5)


def scores(model: Model, ids: Tensor, run: plain.Plain) -> None:
    _, cache = model.run_with_cache(ids)
    for layer, head in ((0, 1), (1, 3)):
        own = run.scores[layer][0, head]
        sides = ("prompt", "positions") if model.cfg.positions == "qk" else ("prompt",)
        made = sum(
            circuits.qk_circuit(model, (layer, head), left, right, frozen=cache, biases=True).AB[:14, :14]
            for left in sides
            for right in sides
        )
        assert isinstance(made, Tensor)
        if model.cfg.score_cap is not None:
            made = model.cfg.score_cap * torch.tanh(made / model.cfg.score_cap)
        if model.cfg.positions == "alibi":
            made = made - 2.0 ** (-2 * (head + 1)) * (torch.arange(14)[:, None] - torch.arange(14))
        close(made[own.isfinite()], own[own.isfinite()])


def scores_at_a_distance(model: Model, ids: Tensor, run: plain.Plain) -> None:
    """Of the first layer, which reads tokens alone."""
    made = circuits.qk_circuit(model, "0.1", biases=True, distance=3)
    own = run.scores[0][0, 1].diagonal(-3)
    if model.cfg.score_cap is not None:
        own = model.cfg.score_cap * torch.atanh(own / model.cfg.score_cap)
    close(made.entries(ids[0, 3:], ids[0, :-3]), own)


def profile(model: Model, ids: Tensor, run: plain.Plain) -> None:
    filled = ids.clone()
    filled[0, :11], filled[0, 11:] = 7, 5
    own = plain.run(model, filled).scores[0][0, 1, 11, 3:11].flip(0)  # distances 1 to 8
    cap = model.cfg.score_cap
    own = own if cap is None else cap * torch.atanh(own / cap)
    np.testing.assert_allclose(circuits.distance_profile(model, "0.1", 5, 7).scores[1:9], own, atol=1e-9)


def written(model: Model, ids: Tensor, run: plain.Plain) -> None:
    _, cache = model.run_with_cache(ids)
    for layer, head in ((0, 1), (1, 3)):
        made = circuits.ov_circuit(model, (layer, head), "prompt", "residual", frozen=cache).AB
        bias = circuits.ov_circuit(model, (layer, head), "bias", "residual").AB
        own = results(model, run, layer)[head]
        if model.cfg.norms_output:  # the circuit has the gain of the norm on what the layer writes, and not its scale
            own = own * (dict(model.named_parameters())[f"blocks.{layer}.ln1_post.w"] + model.cfg.norm_gain_offset)
        close(run.pattern[layer][0, head] @ (made + bias), own)


def expanded(model: Model, ids: Tensor, run: plain.Plain) -> None:
    expansion = paths.expand(model, ids)
    top = expansion.top(5, -1, 7)
    assert top.logit == pytest.approx(float(run.logits[0, -1, 7]))
    assert expansion.residual().largest < 1e-9


def attributed(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = paths.direct_logit_attribution(model, ids, 7)
    close(result.heads, direct(model, run)[..., 7])
    close(result.heads.sum((0, 1)) + sum(result.direct.values()), run.logits[0, :, 7])


def without_head(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = paths.without_head(paths.expand(model, ids), (1, 2))
    close(result.clean, run.logits[0])
    close(result.forward, plain.run(model, ids, zeroed((1, 2))).logits[0])


def effect(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = paths.effect_without(paths.expand(model, ids), (1, 0), -2, 7)
    silent = plain.run(model, ids, zeroed((1, 0)))
    for values, logits in ((result.clean, run.logits), (result.forward, silent.logits)):
        loss = losses(logits, ids)[0]
        own = [logits[0, -2, 7], logits[0, -2].softmax(-1)[7], loss[-1], loss.mean()]
        np.testing.assert_allclose(values, own, atol=1e-9)


def importance(model: Model, ids: Tensor, run: plain.Plain) -> None:
    """Without the last layer's head h the frozen terms are those of the run less what h writes, at frozen scales."""
    result = paths.term_importance(model, ids)
    assert result.loss == pytest.approx(float(losses(run.logits, ids).mean()))
    if model.cfg.attn_only:  # an MLP reads what heads write
        own = [losses((run.logits - direct(model, run)[1, head]), ids).mean() for head in range(4)]
        np.testing.assert_allclose(result.heads_without[1], own, atol=1e-9)


def gradient(model: Model, ids: Tensor, run: plain.Plain) -> None:
    stream = run.streams[1].clone().requires_grad_()
    with torch.enable_grad():
        logit = plain.run(model, ids, {("stream", 1): lambda x: stream}).logits[0, -1, 7]
    (own,) = torch.autograd.grad(logit, stream)
    np.testing.assert_allclose(paths.logit_jacobian(model, ids[0], 7, layer=1).moving, own[0], atol=1e-9)


def lens(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = paths.logit_lens(model, ids[0])
    own = torch.stack([plain.read_out(model, x)[0] for x in run.streams])
    np.testing.assert_allclose(result.probabilities, own.softmax(-1).topk(5).values, atol=1e-6)
    np.testing.assert_allclose(result.loss[:, :-1], torch.stack([losses(x[None], ids)[0] for x in own]), atol=1e-5)


def lens_of_heads(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = paths.head_lens(model, ids[0], k=3)
    own = direct(model, run)[:, :, -1]
    own = own - own.mean(-1, keepdim=True)
    np.testing.assert_allclose(result.added, own.topk(3).values, atol=1e-9)
    np.testing.assert_array_equal(result.promoted, own.topk(3).indices)


def score(model: Model, ids: Tensor, run: plain.Plain) -> None:
    result = paths.expand(model, ids).score((1, 0), 4, 2)
    assert result.score == pytest.approx(float(run.scores[1][0, 0, 4, 2]))
    assert result.attention == pytest.approx(float(run.pattern[1][0, 0, 4, 2]))


def edge(model: Model, ids: Tensor, run: plain.Plain) -> None:
    """The keys of head 1.0, of a stream without what head 0.0 writes."""
    result = paths.patch_edge(model, ids[0], (0, 0), (1, 0), "k")
    other = plain.run(model, ids, {("stream", 1): lambda x: x - results(model, run, 0)[0]}).k[1]

    def replaced(k: Tensor) -> Tensor:
        k[:, :, 0] = other[:, :, 0]
        return k

    own = plain.run(model, ids, {("k", 1): replaced})
    visible = own.scores[1][0, 0].isfinite()
    close(result.patched_scores[visible], own.scores[1][0, 0][visible])
    close(result.clean, run.logits[0])
    close(result.patched, own.logits[0])


def patched(model: Model, ids: Tensor, run: plain.Plain) -> None:
    for what in "qkvz":
        pairs = PromptPairs.induction(model, n=2, length=4)
        clean, corrupted = (torch.stack([getattr(pair, side) for pair in pairs]) for side in ("clean", "corrupted"))
        result = patching.patch(model, pairs, what, by_position=False)
        source = plain.run(model, clean)
        for place, (layer, head) in enumerate(HEADS):

            def replaced(x: Tensor, layer: int = layer, head: int = head) -> Tensor:
                x[:, :, head] = getattr(source, what)[layer][:, :, head]  # noqa: B023
                return x

            logits = plain.run(model, corrupted, {(what, layer): replaced}).logits[:, -1]
            own = [float(row[pair.answer] - row[pair.wrong]) for row, pair in zip(logits, pairs, strict=True)]
            np.testing.assert_allclose(result.each.reshape(2, 8)[:, place], own, atol=1e-9)


def bridge(model: Model, ids: Tensor, run: plain.Plain) -> None:
    from aotlens.interop import to_transformer_lens

    close(to_transformer_lens(model)(ids).double(), run.logits, atol=1e-4, rtol=1e-4)


CHECKS: dict[str, Callable[[Model, Tensor, plain.Plain], Any]] = {
    "model.generate": generate,
    "evaluate.next_token_predictions": predictions,
    "evaluate.score_continuations": continuations,
    "heads.attention_patterns": patterns,
    "heads.motif_scores": motifs,
    "heads.head_scores": norms_of_heads,
    "heads.ablate": ablate,
    "heads.ablate_each": ablate_each,
    "heads.atlas": of_an_atlas,
    "heads.pattern_consistency": consistency,
    "heads.sufficient_heads": sufficient,
    "heads.shapley_heads": shapley,
    "circuits.qk_circuit": scores,
    "circuits.qk_circuit(distance=3)": scores_at_a_distance,
    "circuits.distance_profile": profile,
    "circuits.ov_circuit": written,
    "paths.expand": expanded,
    "paths.direct_logit_attribution": attributed,
    "paths.without_head": without_head,
    "paths.effect_without": effect,
    "paths.term_importance": importance,
    "paths.logit_jacobian": gradient,
    "paths.logit_lens": lens,
    "paths.head_lens": lens_of_heads,
    "paths.expand(…).score": score,
    "paths.patch_edge": edge,
    "patching.patch": patched,
    "interop.to_transformer_lens": bridge,
}


def test_the_page_counts_these_analyses() -> None:
    assert f"Of {len(CHECKS)}\nanalyses" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_what_its_weights_say(kind: str) -> None:
    model = model_of(kind)
    close(model(prompt(model)), plain.run(model, prompt(model)).logits, atol=1e-12, rtol=1e-12)


@cache
def refused_by_the_page() -> set[tuple[str, str]]:
    """The cells of docs/model-kinds.md that give no number, by analysis and kind."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {
        (row[0].strip(" `"), kind) for row in rows for kind, cell in zip(KINDS, row[1:], strict=True) if "●" not in cell
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "heads.shapley_heads")) for name in CHECKS]
)
def test_numbers_are_those_of_a_plain_forward_pass(kind: str, name: str) -> None:
    assert name in CALLS
    if (name, kind) in refused_by_the_page():
        return  # what it says is compared in tests/test_other_models.py
    model = model_of(kind)
    CHECKS[name](model, prompt(model), plain.run(model, prompt(model)))
