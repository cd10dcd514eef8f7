"""Models as people train them today: each analysis gives numbers that hooks agree with, or says why it has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import aotlens
from aotlens import circuits, heads, patching, paths, trigrams
from aotlens.checkpoints import CheckpointError, CheckpointInfo, save_checkpoint
from aotlens.data import PromptPairs
from aotlens.models import AttentionOnlyTransformer
from aotlens.models.attention import capped
from aotlens.models.positions import rotation
from aotlens.patching.both import BothRuns
from aotlens.paths.wiring import Wired
from tests.cases import mostly_long
from tests.messages import refused
from tests.model_kinds import CALLS, KINDS, PAGE, SIZES, build, outcome, page, prompt

OF_PATHS = ("MHSA", "MSSA", "ALiBi", "Llama", "NeoX", "Qwen3")
OF_CIRCUITS = (*OF_PATHS, "OLMo 2", "Gemma 2")
#: Each over half a second for every kind of model.
DEAR = (
    "heads.sufficient_heads", "heads.atlas", "heads.sharpest_circuits", "heads.head_scores", "heads.shapley_heads",
    "distill.distill_heads",
)  # fmt: skip
OF_PATCHES = (*OF_PATHS, "OLMo 1")


@pytest.fixture(scope="module", params=[*OF_PATHS, "OLMo 2", "Gemma 2", "OLMo 1", "after"])
def model(request: pytest.FixtureRequest) -> AttentionOnlyTransformer:
    return build(request.param)


@pytest.fixture(scope="module")
def ids(model: AttentionOnlyTransformer) -> Tensor:
    return prompt(model)


@pytest.mark.parametrize("name", mostly_long(CALLS, {*CALLS} - {*DEAR}))
def test_a_page_says_which_analysis_takes_which_model(name: str) -> None:
    models = {kind: build(kind) for kind in KINDS}
    written = PAGE.read_text(encoding="utf-8").splitlines()
    made = page({name: {kind: outcome(name, model) for kind, model in models.items()}}).splitlines()
    notes, theirs = ([line.split(". ", 1)[1] for line in rows if line[:1].isdecimal()] for rows in (made, written))
    assert set(notes) <= set(theirs)
    cells = [next(row for row in rows if row.startswith(f"| `{name}` |")).split("|") for rows in (made, written)]
    assert [cell == " ● " for cell in cells[0]] == [cell == " ● " for cell in cells[1]]
    for model in models.values():
        assert not any(point.has_hooks() for point in model.hook_dict.values())


@pytest.mark.parametrize("kind", OF_PATHS)
def test_paths_add_up_to_the_models_own_logits(kind: str) -> None:
    model = build(kind)
    ids = prompt(model)
    expansion = paths.expand(model, ids)
    assert expansion.residual().largest < 1e-9
    found = paths.without_head(expansion, (1, 2))
    torch.testing.assert_close(found.clean, model(ids)[0])
    _, cache = model.run_with_cache(ids)
    for head in ((0, 1), (1, 3)):
        written = cache["pattern", head[0]][0, head[1]] @ cache["v", head[0]][0, :, head[1]] @ model.W_O[head]
        circuit = circuits.ov_circuit(model, head, "prompt", "residual", frozen=cache)
        bias = circuits.ov_circuit(model, head, "bias", "residual").AB
        torch.testing.assert_close(cache["pattern", head[0]][0, head[1]] @ (circuit.AB + bias), written)


@pytest.mark.parametrize("kind", OF_CIRCUITS)
def test_a_prompts_scores_are_its_qk_circuit(kind: str) -> None:
    model = build(kind)
    ids = prompt(model)
    _, cache = model.run_with_cache(ids)
    for head in ((0, 0), (1, 3)):
        own = cache["attn_scores", head[0]][0, head[1]]
        if model.cfg.positions == "alibi":
            own = own - model.order(ids.shape[1], head[0]).bias[0, head[1]]  # type: ignore[index]
        made = circuits.qk_circuit(model, head, "prompt", "prompt", frozen=cache, biases=True)
        assert made.exact is (model.cfg.score_cap is None)
        seen = own.isfinite()  # not later keys, and not those before a window
        assert int(seen.sum()) == (105 - 15 if kind == "Gemma 2" and head[0] == 0 else 105)
        torch.testing.assert_close(capped(made.AB, model.cfg.score_cap)[seen], own[seen])


@pytest.mark.parametrize("kind", ["MHSA", "MSSA", "Llama", "NeoX", "Qwen3"])
def test_a_score_is_the_sum_over_pairs_of_paths(kind: str) -> None:
    model = build(kind)
    ids = prompt(model)
    _, cache = model.run_with_cache(ids)
    expansion = paths.expand(model, ids)
    for head, query, key in (((1, 2), 11, 4), ((1, 3), 13, 13), ((0, 1), 7, 0)):
        score = expansion.score(head, query, key)
        assert score.score == pytest.approx(float(cache["attn_scores", head[0]][0, head[1], query, key]))
        for sums in (score.by_pair_of_orders(), score.by_source_pair(), score.by_head_pair()):
            assert float(sums.values.sum()) == pytest.approx(score.score)
        every = list(score.paths())
        assert sum(score.term(a, b) for a in every for b in every) == pytest.approx(score.score)
        best = score.top(3)
        assert best.values[0] == pytest.approx(max((score.term(a, b) for a in every for b in every), key=abs))
    token = circuits.qk_circuit(model, (0, 1), distance=7, biases=True).entries(ids[0, 7:8], ids[0, :1])
    assert score.score == pytest.approx(float(token))
    with refused("against='mean'", "against=None"):
        expansion.score((1, 2), 11, 4, against="mean")


@pytest.mark.parametrize("kind", ["OLMo 2", "Gemma 2"])
def test_what_a_layer_adds_is_its_ov_circuits_divided_by_one_scale(kind: str) -> None:
    model = build(kind)
    _, cache = model.run_with_cache(prompt(model))
    for layer in range(2):
        total = torch.zeros_like(cache["resid_pre", layer][0])
        for head in range(4):
            circuit = circuits.ov_circuit(model, (layer, head), "prompt", "residual", frozen=cache)
            assert "which all of its heads decide" in circuit.relative
            total += cache["pattern", layer][0, head] @ circuit.AB
        scale = cache[f"blocks.{layer}.ln1_post.hook_scale"][0]
        torch.testing.assert_close(total / scale, cache["attn_out", layer][0])
    first = circuits.ov_circuit(model, (0, 1), "residual", "residual").AB
    later = circuits.ov_circuit(model, (1, 2), "residual").AB
    torch.testing.assert_close(circuits.ov_circuit(model, (0, 1), "residual", (1, 2)).AB, first @ later)
    through = circuits.qk_circuit(model, (1, 2), (0, 1), "residual", distance=2).AB
    own = circuits.qk_circuit(model, (1, 2), "residual", "residual", distance=2).AB
    torch.testing.assert_close(through, circuits.ov_circuit(model, (0, 1), "tokens", "residual").AB @ own)


@pytest.mark.parametrize("kind", ["MHSA", "MSSA", "ALiBi", "Qwen3", "OLMo 2"])
def test_a_token_circuit_at_a_distance_is_the_score_of_its_tokens_there(kind: str) -> None:
    model = build(kind)
    ids = torch.randint(SIZES["d_vocab"], (1, 12), generator=torch.Generator().manual_seed(0))
    _, cache = model.run_with_cache(ids)
    scores = cache["attn_scores", 0][0]
    for head in range(4):
        for distance in (0, 1, 7):
            circuit = circuits.qk_circuit(model, (0, head), biases=True, distance=distance)
            assert circuit.exact
            i = torch.arange(distance, 12)
            made = circuit.entries(ids[0, i], ids[0, i - distance])
            torch.testing.assert_close(made, scores[head, i, i - distance])
    if kind != "ALiBi":
        mean = circuits.qk_circuit(model, (0, 1))
        assert not mean.exact and "averaged over the distances" in mean.relative
        shares = torch.arange(24, 0, -1).double() / (24 * 25 / 2)
        each = torch.stack([circuits.qk_circuit(model, (0, 1), distance=d).AB for d in range(24)])
        torch.testing.assert_close(mean.AB, torch.einsum("d,dij->ij", shares, each))
    with refused("distance", 24, "0 to 23"):
        circuits.qk_circuit(model, "0.0", distance=24)


def test_a_distance_is_refused_where_scores_do_not_depend_on_it() -> None:
    model = build("ALiBi", positions="learned")
    with refused("the same at every distance"):
        circuits.qk_circuit(model, "0.0", distance=1)
    with refused("the same at every distance"):
        circuits.composition(build("ALiBi"), "q", distance=1)


def test_a_window_ends_the_distances() -> None:
    model = build("Gemma 2")
    mean = circuits.qk_circuit(model, (0, 1))
    shares = torch.arange(24, 15, -1).double()
    each = torch.stack([circuits.qk_circuit(model, (0, 1), distance=d).AB for d in range(9)])
    torch.testing.assert_close(mean.AB, torch.einsum("d,dij->ij", shares / shares.sum(), each))
    assert len(circuits.reach(model, "0.1").distances) == 9 and len(circuits.reach(model, "1.1").distances) == 24
    with refused("distance", 9, "0 to 8"):
        circuits.qk_circuit(model, "0.1", distance=9)


@pytest.mark.parametrize("kind", ["MHSA", "MSSA", "OLMo 2"])
def test_composition_is_that_of_the_circuits_at_each_distance(kind: str) -> None:
    model = build(kind)
    W_Q, W_K, W_V, W_O = (getattr(model, name) for name in ("W_Q", "W_K", "W_V", "W_O"))
    OV = W_V[0, 1] @ W_O[0, 1]
    if model.cfg.qk_norm is not None:
        attn = model.blocks[1].attn
        W_Q, W_K = W_Q * attn.q_norm.gain(4)[:, None], W_K * attn.k_norm.gain(4)[:, None]
    squares: dict[str, list[Tensor]] = {"q": [], "k": []}
    for distance in range(24):
        QK = rotation(model.cfg, torch.tensor(distance))(W_Q[1, 2]) @ W_K[1, 2].T
        for mode, matrix in (("q", QK), ("k", QK.T)):
            expected = (OV @ matrix).norm()
            squares[mode].append(torch.stack([expected**2, matrix.norm() ** 2]))
            if distance in (0, 5):
                made = circuits.composition(model, mode, distance=distance)
                assert made.norms[0, 1, 1, 2] == pytest.approx(float(expected))
                assert made.values[0, 1, 1, 2] == pytest.approx(float(expected / OV.norm() / matrix.norm()))
    shares = torch.arange(24, 0, -1).double() / (24 * 25 / 2)
    for mode, each in squares.items():
        product, alone = (shares @ torch.stack(each)).sqrt()
        made = circuits.composition(model, mode)
        assert made.norms[0, 1, 1, 2] == pytest.approx(float(product))
        assert made.values[0, 1, 1, 2] == pytest.approx(float(product / OV.norm() / alone))
        assert np.isfinite(made.z[0, :, 1]).all()


@pytest.mark.parametrize("kind", OF_PATCHES)
def test_patching_queries_and_keys_is_what_hooks_do(kind: str) -> None:
    model = build(kind)
    pairs = PromptPairs.induction(model, n=2, length=5)
    clean, corrupted = (torch.tensor([list(getattr(each, side)) for each in pairs]) for side in ("clean", "corrupted"))
    _, source = model.run_with_cache(clean)
    for what in ("q", "k", "v"):
        found = patching.patch(model, pairs, what, by_position=False)

        def put(x: Tensor, hook: Any) -> Tensor:
            x[:, :, 1] = source[f"blocks.0.attn.hook_{what}"][:, :, 1]  # noqa: B023
            return x

        logits = model.run_with_hooks(corrupted, fwd_hooks=[(f"blocks.0.attn.hook_{what}", put)])[:, -1]
        answers = [(each.answer, each.wrong) for each in pairs]
        expected = [float(row[a] - row[b]) for row, (a, b) in zip(logits, answers, strict=True)]
        np.testing.assert_allclose(found.each[:, 0, 1], expected, atol=1e-9)


@pytest.mark.parametrize("kind", OF_PATCHES)
def test_all_edges_together_are_the_model(kind: str) -> None:
    model = build(kind)
    pairs = PromptPairs.induction(model, n=2, length=5)
    both = BothRuns(model, pairs, "logit_difference", "denoising", ["hook_z"], None)
    wired = Wired(both.source, both.base)
    every = torch.ones_like(wired.wires.exists)[None]
    torch.testing.assert_close(wired.final(every)[0], both.source.final[:, wired.start :])
    mine = f"{wired.wires.senders[1]} → mlp 0"
    if model.cfg.d_mlp:
        parallel = model.cfg.parallel
        assert (mine in [str(edge) for edge in wired.wires.edges]) is not parallel


def test_heads_are_read_as_hooks_show_them(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    _, cache = model.run_with_cache(ids)
    patterns = heads.attention_patterns(model, ids)
    for layer in range(2):
        np.testing.assert_allclose(patterns.pattern[layer], cache["pattern", layer][0], atol=1e-6)
        np.testing.assert_allclose(patterns.value_norms[layer], cache["v", layer][0].norm(dim=-1).T, rtol=1e-5)
    lost = heads.ablate(model, ids, [(1, 0)], "zero")
    silent = model.run_with_hooks(
        ids,
        return_type="loss",
        fwd_hooks=[("blocks.1.attn.hook_z", lambda z, hook: z.index_fill(2, torch.tensor(0), 0))],
    )
    assert lost.ablated_mean == pytest.approx(float(silent), abs=1e-6)


def test_a_checkpoint_comes_back_as_it_was(model: AttentionOnlyTransformer, ids: Tensor, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "saved", model.float(), CheckpointInfo(name="saved"))
    try:
        loaded = aotlens.load(tmp_path / "saved", "cpu")
        assert loaded.cfg == model.cfg
        torch.testing.assert_close(loaded(ids), model(ids))
    finally:
        model.double()
    stored = json.loads((tmp_path / "saved" / "config.json").read_text())
    for rotary in ([1], {"base": -3.0}, "all"):
        stored["model"]["rotary"] = rotary
        (tmp_path / "saved" / "config.json").write_text(json.dumps(stored))
        with refused("rotary", error=CheckpointError):
            aotlens.load(tmp_path / "saved", "cpu")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm_place": "between"}, "norm_place='between'"),
        ({"norm_place": "after", "norm": None}, "norm_place='after' needs a norm"),
        ({"norm_place": "output", "parallel": True, "d_mlp": 4}, "parallel=True needs norms before"),
        ({"final_norm": 1}, "final_norm=1"),
        ({"qk_norm": "head", "qkv_bias": True}, "without biases of queries and keys"),
        ({"qk_norm": "head", "attention": "mssa", "n_kv_heads": None}, "attention='mhsa'"),
        ({"score_cap": 0.0}, "score_cap=0.0"),
        ({"score_cap": 2.0, "positions": "alibi", "rotary": None}, "without biases by distance"),
        ({"logit_cap": float("nan")}, "logit_cap=nan"),
        ({"clip_qkv": -1.0}, "clip_qkv=-1.0"),
        ({"windows": (0, None)}, "windows=(0, None)"),
        ({"windows": (4,)}, "2 whole numbers"),
        ({"windows": (4, None), "causal": False}, "of a causal model"),
        ({"rotary_local": {"base": 20.0}}, "give windows"),
        ({"rotary_local": {"base": -1.0}, "windows": (4, None)}, "rotary base=-1.0"),
    ],
)
def test_settings_that_no_model_has_are_refused(fields: dict[str, Any], message: str) -> None:
    with refused(message):
        build("MHSA", **{"qkv_bias": False, **fields})


def test_alibi_is_what_positions_add_at_a_distance() -> None:
    model = build("ALiBi")
    scores = trigrams.distance_scores(model, "0.1")
    np.testing.assert_allclose(scores, -np.arange(24) / 2**4)
    assert "rotary" in trigrams.skip_trigrams(build("MHSA"), "0.1", k=5).relative
