"""A walk over the analyses on models with rotary or ALiBi positions, RMS norms, grouped keys, gated and parallel MLPs:
each gives numbers that hooks agree with, or says by name why it has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import aotlens
from aotlens import circuits, denoise, distill, evaluate, heads, patching, paths, trigrams
from aotlens.checkpoints import CheckpointError, CheckpointInfo, save_checkpoint
from aotlens.data import PromptPairs, Tokenizer
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.models.positions import rotation
from aotlens.patching.both import BothRuns
from aotlens.paths.wiring import Wired
from tests.distill.heads.conftest import FAST, random_windows
from tests.messages import refused
from tests.small_models import randomise

TEXT = "the cat sat on the mat. the dog sat on the cat. a cat and a dog sat on the mat again. " * 8
SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_head": 6, "n_ctx": 24, "d_vocab": 279}
ROTARY = {"positions": "rotary", "norm": "rms", "rotary": {"base": 30.0, "dim": 4}}
KINDS: dict[str, dict[str, Any]] = {
    "MHSA": {**ROTARY, "n_kv_heads": 2, "qkv_bias": True},
    "MSSA": {**ROTARY, "attention": "mssa"},
    "ALiBi": {"positions": "alibi", "n_kv_heads": 2, "bias": True},
    "Llama": {**ROTARY, "n_kv_heads": 2, "d_mlp": 20, "gated_mlp": True, "act_fn": "silu"},
    "NeoX": {"positions": "rotary", "rotary": {"dim": 2}, "bias": True, "d_mlp": 20, "parallel": True},
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT], SIZES["d_vocab"])


def build(kind: str, tokenizer: Tokenizer, **changes: Any) -> AttentionOnlyTransformer:
    cfg = ModelConfig(**{**SIZES, **KINDS[kind], **changes})
    model = randomise(AttentionOnlyTransformer(cfg, tokenizer).double(), scale=0.2).eval().requires_grad_(False)
    model.unigram_counts = torch.bincount(torch.tensor(tokenizer.encode(TEXT)), minlength=SIZES["d_vocab"])
    return model


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> AttentionOnlyTransformer:
    return build(request.param, tokenizer)


@pytest.fixture(scope="module")
def ids(model: AttentionOnlyTransformer) -> Tensor:
    return model.to_tokens("the cat sat on the mat, the dog")[:, :14]


def rotates(model: AttentionOnlyTransformer) -> bool:
    return model.cfg.position_kind.rotates


def test_paths_add_up_to_the_models_own_logits(model: AttentionOnlyTransformer, ids: Tensor) -> None:
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


def test_a_prompts_scores_are_its_qk_circuit(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    _, cache = model.run_with_cache(ids)
    for head in ((0, 0), (1, 3)):
        own = cache["attn_scores", head[0]][0, head[1]]
        if model.cfg.positions == "alibi":
            own = own - model.order(ids.shape[1]).bias[0, head[1]]  # type: ignore[index]
        made = circuits.qk_circuit(model, head, "prompt", "prompt", frozen=cache, biases=True)
        assert made.exact
        torch.testing.assert_close(made.AB.tril(), own.nan_to_num(neginf=0.0).tril())


@pytest.mark.parametrize("kind", ["MHSA", "MSSA", "ALiBi"])
def test_a_token_circuit_at_a_distance_is_the_score_of_its_tokens_there(tokenizer: Tokenizer, kind: str) -> None:
    model = build(kind, tokenizer)
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


def test_a_distance_is_refused_where_scores_do_not_depend_on_it(tokenizer: Tokenizer) -> None:
    model = build("ALiBi", tokenizer, positions="learned")
    with refused("the same at every distance"):
        circuits.qk_circuit(model, "0.0", distance=1)
    with refused("the same at every distance"):
        circuits.composition(build("ALiBi", tokenizer), "q", distance=1)


@pytest.mark.parametrize("kind", ["MHSA", "MSSA"])
def test_composition_is_that_of_the_circuits_at_each_distance(tokenizer: Tokenizer, kind: str) -> None:
    model = build(kind, tokenizer)
    W_Q, W_K, W_V, W_O = (getattr(model, name) for name in ("W_Q", "W_K", "W_V", "W_O"))
    OV = W_V[0, 1] @ W_O[0, 1]
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


def test_patching_queries_and_keys_is_what_hooks_do(model: AttentionOnlyTransformer) -> None:
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


def test_all_edges_together_are_the_model(model: AttentionOnlyTransformer) -> None:
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


WALK: dict[str, Callable[[AttentionOnlyTransformer, Tensor], Any]] = {
    "motifs": lambda m, ids: heads.motif_scores(m, n_sequences=2, half_length=8),
    "each": lambda m, ids: heads.ablate_each(m, ids),
    "atlas": lambda m, ids: heads.atlas(m, ids.expand(4, -1), hows=("zero",), cache=None),
    "sharpest": lambda m, ids: heads.sharpest_circuits(
        m, heads.atlas(m, ids.expand(4, -1), hows=("zero",), cache=None), "1.0"
    ),
    "match": lambda m, ids: heads.match_heads(m, m, ids),
    "constancy": lambda m, ids: heads.pattern_constancy(m, ids.expand(2, -1)),
    "subspaces": lambda m, ids: heads.subspaces(m, n_random=20),
    "sufficient": lambda m, ids: heads.sufficient_heads(
        m, ids.expand(6, -1), m(ids.expand(6, -1)).argmax(-1), how="zero"
    ),
    "lens": lambda m, ids: (paths.logit_lens(m, ids[0]), paths.head_lens(m, ids[0], k=3)),
    "attribution": lambda m, ids: paths.direct_logit_attribution(m, ids, 7),
    "jacobian": lambda m, ids: paths.logit_jacobian(m, ids[0], 7, layer=1),
    "edge": lambda m, ids: paths.patch_edge(m, ids[0], (0, 0), (1, 0), "k"),
    "importance": lambda m, ids: paths.term_importance(m, ids),
    "effect": lambda m, ids: paths.effect_without(paths.expand(m, ids), (1, 0), -2, 7),
    "variance": lambda m, ids: paths.explained_variance(paths.expand(m, ids), (1, 0)),
    "search": lambda m, ids: paths.expand(m, ids).top(5, -1, 7),
    "trigrams": lambda m, ids: trigrams.skip_trigrams(m, "0.1", k=5),
    "bigrams": lambda m, ids: trigrams.bigrams(m, 5),
    "copying": lambda m, ids: circuits.copying_rate(m, "0.1"),
    "compositions": lambda m, ids: circuits.all_compositions(m, folded=True, data=ids),
    "audit": lambda m, ids: denoise.audit(m, ids.expand(2, -1), n_draws=2),
    "predictions": lambda m, ids: evaluate.next_token_predictions(m, ids, 2),
    "continuations": lambda m, ids: evaluate.score_continuations(m, ["the cat"], [" sat"]),
    "distil": lambda m, ids: distill.distill_heads(
        m, tuple(random_windows(n, seed=n) for n in (40, 8, 8)), [4], **{**FAST, "seeds": 1}
    ),
    "generate": lambda m, ids: m.generate(ids, 3, seed=0),
    "path": lambda m, ids: paths.without_path(paths.expand(m, ids), paths.expand(m, ids).top(1, -1, 7).paths[0]),
    "score": lambda m, ids: paths.expand(m, ids).score((1, 0), 4, 2),
    "asymmetry": lambda m, ids: denoise.head_asymmetry(m, ids, every=2, n_draws=2),
    "bridge": lambda m, ids: to_transformer_lens(m),
    "distances": lambda m, ids: trigrams.distance_shares(m, "0.1"),
    "positions": lambda m, ids: circuits.qk_circuit(m, "0.0", "positions"),
    "moved positions": lambda m, ids: circuits.qk_circuit(m, "1.0", "tokens", ("positions", "0.0")),
}
REFUSED: dict[str, Callable[[AttentionOnlyTransformer], str | None]] = {
    "variance": lambda m: "score: this model ",
    "score": lambda m: "score: this model " + ("rotates queries" if rotates(m) else "subtracts a slope"),
    "asymmetry": lambda m: "another W_QK for each key" if rotates(m) else None,
    "bridge": lambda m: f"positions={m.cfg.positions!r}",
    "distances": lambda m: "distance=δ" if rotates(m) else None,
    "positions": lambda m: "side 'positions': this model " + ("rotates" if rotates(m) else "subtracts"),
    "moved positions": lambda m: "whose positions are in the stream",
    "path": lambda m: "parallel=True" if m.cfg.parallel else None,
}


@pytest.mark.parametrize("name", WALK)
def test_every_analysis_gives_numbers_or_says_why_not(name: str, model: AttentionOnlyTransformer, ids: Tensor) -> None:
    message = REFUSED.get(name, lambda m: None)(model)
    if message is not None:
        with refused(message):
            WALK[name](model, ids)
        return
    result = WALK[name](model, ids)
    assert result is not None
    assert not any(point.has_hooks() for point in model.hook_dict.values())


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


def test_the_ensemble_of_trigrams_is_the_one_layer_model(tokenizer: Tokenizer) -> None:
    for kind in ("MHSA", "MSSA", "ALiBi"):
        model = build(kind, tokenizer, n_layers=1)
        found = trigrams.ensemble_check(model, model.to_tokens("the cat sat on the mat"))
        assert float(found.residual_per_position.max()) < 1e-9


def test_alibi_is_what_positions_add_at_a_distance(tokenizer: Tokenizer) -> None:
    model = build("ALiBi", tokenizer)
    scores = trigrams.distance_scores(model, "0.1")
    np.testing.assert_allclose(scores, -np.arange(24) / 2**4)
    assert "rotary" in trigrams.skip_trigrams(build("MHSA", tokenizer), "0.1", k=5).relative
