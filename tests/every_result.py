"""One of every result that the analyses return, from models that take a second."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aotlens import circuits, denoise, distill, dynamics, evaluate, heads, patching, paths, trigrams
from aotlens.data import PromptPairs, RegressionTask, Tokenizer, make_task
from aotlens.data.images import ImageProcessor, ImageSet, choose_images
from aotlens.distill.compile import (
    absolute_value,
    attention_masks,
    describe_heads,
    error_curve,
    error_surface,
    head_at_input,
    head_gate,
    random_network,
)
from aotlens.distill.compile.described import head_roles
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.sweeps import sweep_status
from aotlens.sweeps.store import Store
from tests.distill.heads.conftest import FAST, build, random_windows
from tests.distill.masked.sequences import masked_sequences
from tests.dynamics.small_runs import made_check, made_influence
from tests.heads.hand_built import induction, repeated
from tests.image_models import make as make_image_model
from tests.image_models import random_images

TEXT = "the cat sat on the mat. the dog sat on the cat. a cat and a dog sat on the mat again. " * 8


def every_result() -> Iterator[Any]:
    """Results with the parts of which they are made; where a type comes in several forms, each."""
    tokenizer = Tokenizer.train([TEXT], 279)
    torch.manual_seed(0)
    cfg = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_head=8, n_ctx=24, d_vocab=279, bias=True)
    model = AttentionOnlyTransformer(cfg, tokenizer).eval().requires_grad_(False)
    model.unigram_counts = torch.bincount(torch.tensor(tokenizer.encode(TEXT)), minlength=279)
    tokens = model.to_tokens("the cat sat on the mat")
    yield from _of_heads(model, tokens)
    yield from _of_circuits(model)
    yield from _of_trigrams(model, tokens)
    yield from _of_paths(model, tokens)
    yield from _of_images()
    yield from _of_evaluation(model, tokenizer, tokens)
    yield from _of_distillation()
    yield from _of_compilation()
    yield from _of_denoising()
    measures = dynamics.measure_model(model, tokens.repeat(2, 1), n_random=2)
    yield measures
    steps = np.array([0, 3])
    rises = np.linspace(0, 1, 20) ** 3
    change = dynamics.change_point(range(20), rises, n_random=19)
    yield from (change, dynamics.order_of_events({"a": [change, change], "b": [change, change]}))
    yield dynamics.ledger([model, model], tokens)
    yield from _of_influence(tokenizer)
    yield dynamics.OverTraining(run="r", analysis="a", steps=steps, tokens=steps, results=(measures, measures))
    yield denoise.head_asymmetry(model, tokens, every=2, n_draws=2)
    yield denoise.audit(model, torch.randint(279, (2, 12), generator=torch.Generator().manual_seed(0)), n_draws=2)
    yield denoise.stored_audit("novels-1l-mhsa")
    unrolled = denoise.unroll_mixture(denoise.sample_mixture(2, 2, 3, 8, 0.1), 0.5, "softmax", None, 2)
    yield from (denoise.token_points(unrolled), denoise.memberships_at(unrolled))
    folder = Path(tempfile.mkdtemp())
    Store(folder).save_plan([], 3)
    yield sweep_status(folder)


def _of_influence(tokenizer: Tokenizer) -> Iterator[Any]:
    found = made_influence()
    yield from (found.windows, found, made_check())
    yield from (dynamics.influence_properties(found), dynamics.influential_windows(found, tokenizer, 2))
    moments, curves = np.array([0, 5, 10]), np.random.default_rng(2).uniform(size=(9, 3))
    yield dynamics.Removal(
        run="r", measure="induction 1.0", top=0.1, seed=0, steps=moments, whole=curves[0], without_helpful=curves[1],
        without_harmful=curves[2], random_helpful=curves[3:6], random_harmful=curves[6:],
    )  # fmt: skip
    yield dynamics.Retrained(run="r", measures=("loss",), steps=moments, values=curves[:1])


def _of_heads(model: AttentionOnlyTransformer, tokens: torch.Tensor) -> Iterator[Any]:
    yield heads.motif_scores(model, n_sequences=2, half_length=8)
    yield heads.attention_patterns(model, tokens)
    yield heads.attention_by_place(model, tokens)
    targets = torch.zeros(1, tokens.shape[1], tokens.shape[1], dtype=torch.bool)
    targets[:, 2:, 1] = True
    yield heads.targeted_attention(model, tokens, targets)
    yield heads.head_scores(model, tokens.repeat(2, 1))
    yield heads.inactive_heads(model, tokens)
    yield heads.ablate(model, tokens, [(1, 0)])
    several = torch.randint(279, (6, 12), generator=torch.Generator().manual_seed(0))
    yield heads.ablate_each(model, several)
    made = heads.atlas(model, several, hows=("zero",), cache=None)
    yield from (made, made.labels, made.examples, heads.stored_atlas("novels-1l-mhsa"))
    yield from (heads.find_heads(made, "layer = 1"), heads.head_summary(made, "1.0"))
    sharpest = heads.sharpest_circuits(model, made, "1.0")
    yield from (sharpest, sharpest.circuits[0])
    built, (repeats, _) = induction(8, 8.0), repeated(8, 6)
    known = heads.atlas(built, repeats, hows=(), cache=None)
    yield (circuit := heads.induction_circuit(built, known, n_sequences=4, half_length=8))
    yield heads.induction_steps(circuit, known, heads.attention_patterns(built, repeats[:1]))
    yield heads.sufficient_heads(model, several, model(several).argmax(-1), how="zero")
    yield heads.shapley_heads(model, several, how="zero")
    yield heads.match_heads(model, model, several)
    yield (again := heads.universality({each: model for each in "abcd"}, several, n_permutations=19))
    kinds = tuple("MHSA" if place % 2 else "MSSA" for place in range(len(again.kinds)))
    yield dataclasses.replace(again, kinds=kinds, kind_null_std=None).compare_kinds("MHSA", "MSSA")
    run = heads.run_prompt(model, "the cat sat", ablated=["0.1"])
    runs = heads.compare_runs(run, heads.run_prompt(model, "the dog sat"))
    yield from (run, runs, runs.losses(), runs.maps("1.0", "0.1"), run.map("1.0", without_first=True))
    yield heads.pattern_consistency(model, several)
    yield heads.repeated_patterns([model, model], several)
    yield heads.subspaces(model, n_random=20)
    yield heads.value_norms(model, [(tokens, torch.zeros_like(tokens))], ["text"])


def _of_circuits(model: AttentionOnlyTransformer) -> Iterator[Any]:
    one_layer = build(n_layers=1, norm=None)
    for each in (model, one_layer):
        for mode in ("q", "v"):
            yield circuits.composition(each, mode)
    circuit = circuits.ov_circuit(model, "0.1")
    spectrum = circuits.spectrum(circuit)
    yield from (circuit, circuits.copying_rate(model, "0.1"), circuits.block_overview(circuit), spectrum, spectrum.left)
    yield circuit.row(5)
    turning = build(n_layers=1, norm="rms", positions="rotary", n_ctx=8)
    yield from (circuits.reach(turning, "0.0"), circuits.distance_profile(turning, "0.0", 1, 2))
    yield circuits.qk_circuit(turning, "0.0", distance=range(4)).top(3)
    yield from (circuits.row_statistics(circuit), circuits.search_entries(circuit, 400))
    overview, entries = circuits.block_overview(circuit, 8), circuits.extreme_entries(circuit, 3)
    yield from (entries, entries.rows, circuits.circuit_map(circuit), circuits.circuit_block(circuit, overview, n=4))
    yield from (circuits.copying_scores(model), circuits.head_composition(model, "0.1"))
    yield from (circuits.top_entries(circuit, 400), circuits.top_per_row(circuit, 3))


def _of_trigrams(model: AttentionOnlyTransformer, tokens: torch.Tensor) -> Iterator[Any]:
    one_layer = AttentionOnlyTransformer(
        ModelConfig(n_layers=1, d_model=16, n_heads=2, d_head=8, n_ctx=24, d_vocab=279), model.tokenizer
    ).requires_grad_(False)
    one_layer.unigram_counts = model.unigram_counts
    text = np.array(model.tokenizer.encode(TEXT))  # type: ignore[attr-defined]
    table = trigrams.skip_trigrams(one_layer, "0.1", k=40)
    yield trigrams.fold_rows(table, ("source", "destination"))
    found = trigrams.evidence(one_layer, trigrams.score_triples(one_layer, "0.1", [" cat"], [" sat"], [" on"]), text)
    yield from (table, found, found.counts, found.counts.strata, found.association)
    yield trigrams.skip_trigram_bugs(one_layer, found, text)
    yield from found.examples[:1]
    rows = trigrams.check_rows(one_layer, trigrams.list_rows(table, 5, ("source",)), text)
    yield from (trigrams.filter_rows(rows, out="e"), trigrams.explain_row(one_layer, rows.row(2)))
    yield from (rows, rows.row(2), trigrams.list_rows(table, 5), trigrams.rows_by_head(one_layer, text, k=5))
    yield trigrams.StoredRows.keep([rows], checkpoint="small", max_tokens=9)
    yield trigrams.zero_layer(model, text)
    yield from (
        trigrams.bigrams(model, 20),
        trigrams.bigrams(model, 20, corpus=text),
        trigrams.count_bigrams(model, text),
    )


def _of_paths(model: AttentionOnlyTransformer, tokens: torch.Tensor) -> Iterator[Any]:
    expansion = paths.expand(model, tokens[0])
    yield from (expansion, expansion.top(5, -1, 7), expansion.all_paths(-1, 7))
    score = expansion.score((1, 0), 4, 2)
    yield from (score, score.by_head_pair(), score.by_pair_of_orders(), score.top(5), expansion.trace((1, 0), 4, 2))
    yield from (expansion.logit_by_order(-1, 7), expansion.logit_by_head(-1, (7, 8)), expansion.logit_by_source(-1, 7))
    yield paths.effect_without(expansion, (1, 0), -2, 7)
    yield paths.explained_variance(expansion, (1, 0))
    yield from (expansion.by_head(7), expansion.by_head(), expansion.by_source(7), expansion.by_source())
    yield from (expansion.sankey(-1, 7), expansion.residual(), paths.direct_logit_attribution(model, tokens[0], 7))
    yield paths.patch_edge(model, tokens[0], (0, 0), (1, 0))
    yield from (paths.logit_lens(model, tokens[0]), paths.head_lens(model, tokens[0], k=3))
    yield paths.logit_jacobian(model, tokens[0], 7, layer=1)
    yield from (paths.without_head(expansion, (1, 0)), paths.term_importance(model, tokens))
    pairs = PromptPairs.induction(model, n=2, length=5)
    yield pairs
    yield from (patching.patch(model, pairs, "z"), patching.attribution(model, pairs, "resid_pre", check=3))
    edges = ["embed → 1.0.v", "0.1 → 1.0.k", "1.0 → logits"]
    yield from (patching.path_patch(model, pairs, edges), patching.attribute_edges(model, pairs, check=3))
    yield patching.circuit_faithfulness(model, pairs, edges)


def _of_images() -> Iterator[Any]:
    model, images = make_image_model(), random_images(4)
    yield heads.image_maps(model, images)
    yield heads.semantic_consistency(model, images, torch.tensor([0, 1, 1, 0]), n_permutations=200)
    contributions = paths.patch_contributions(model, images)
    yield from (contributions, contributions.above_mean, contributions.on_image())
    yield paths.patch_curves(model, images, n_steps=2)
    labels = torch.tensor([0, 1, 1, 0])
    pixels = (images * 64 + 128).clamp(0, 255).to(torch.uint8)
    data = ImageSet(images=pixels, labels=labels, classes=("a", "b", "c", "d"))
    yield choose_images(data, 2)
    model.image_processor = ImageProcessor.of(data, "")
    run, ablated = heads.image_run(model, pixels), heads.image_run(model, pixels, "0.1")
    yield from (run, run.layer(0), run.head("0.1"), run.predictions(1, ablated))


def _of_evaluation(model: AttentionOnlyTransformer, tokenizer: Tokenizer, tokens: torch.Tensor) -> Iterator[Any]:
    predictions = evaluate.next_token_predictions(model, tokens, 2)
    yield from (predictions, predictions.actual, evaluate.repeat_losses(model, half_length=8, n_sequences=2))
    yield evaluate.exhaustive(model, make_task("sort", "0-3", "5 x x 6 y y"), keep=9)
    yield evaluate.BigramModel.fit(np.array(tokenizer.encode(TEXT)), 279)
    yield evaluate.score_continuations(model, ["the cat"], [" sat"])
    with tempfile.TemporaryDirectory() as folder:
        lambada = Path(folder, "lambada.txt")
        lambada.write_text("the cat sat on the mat\nthe dog sat on the cat\n")
        yield evaluate.evaluate_zero_shot({"left": model, "right": model}, lambada=str(lambada))
    masking = tokenizer.with_mask()
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, n_ctx=16, d_vocab=masking.d_vocab, causal=False)
    windows = torch.tensor(tokenizer.encode(TEXT))[: 5 * 16].view(5, 16)
    yield evaluate.masked_loss(AttentionOnlyTransformer(cfg, masking), windows)
    labels, probabilities = np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    yield evaluate.ImageEvaluation(classes=("a", "b"), labels=labels, log_probabilities=np.log(probabilities))


def _of_distillation() -> Iterator[Any]:
    model = build()
    texts = (random_windows(200), random_windows(20, seed=1), random_windows(40, seed=2))
    distillation = distill.distill_heads(model, texts, [0, 4], seeds=2, **FAST)
    costs = distill.substitution_costs(model, distillation, random_windows(4, seed=3), width=4, n_random=2)
    yield from (distillation, distillation.attending, distillation.ffns(4), costs)
    record = distill.Record(distillation=distillation, checkpoint="tiny", costs=costs)
    yield from (record, distill.compare_distillations({"one": record}, 4))
    yield distill.text_errors(model, distillation, random_windows(1)[0], (0, 1), width=4)


def _of_compilation() -> Iterator[Any]:
    for ffn, curve in ((absolute_value(), error_curve), (random_network(2, width=3, depth=1), error_surface)):
        compiled = distill.compile_ffn(ffn, bound=1.0, tolerance=1e-2)
        yield from (ffn, compiled, curve(compiled), head_roles(compiled)[0])
        yield from (each(compiled) for each in (attention_masks, describe_heads, head_at_input, head_gate))
    yield error_curve(distill.compile_ffn(absolute_value(), bound=1.0, tolerance=1e-2)).kinks
    X, y, _, mask = masked_sequences(5, length=4, d=3, vocabulary=12)
    recovered = distill.masked_lm(X, y, 1e-2, mask=mask)
    yield from (recovered, recovered.data, recovered.fit, distill.distinguish_mask(X, mask=mask))


def _of_denoising() -> Iterator[Any]:
    mixture = denoise.sample_mixture(2, 2, 4, 6, 0.1)
    yield from (mixture, denoise.unroll_mixture(mixture, 0.5, "softmax", None, 2))
    sizes = {"n_clusters": 2, "rank": 2, "n_tokens": 4, "d_model": 6}
    conditions = denoise.conditions(**sizes, noise=0.1, threshold=0.6)
    yield from (conditions, conditions.rows[0])
    yield denoise.denoising_rates([0.1], **sizes, n_layers=2, seeds=[0])
    task = denoise.LinearSubspaces(n=4, d=2)
    prompts = task.sample(4, 6)
    yield from (prompts, denoise.bayes_loss(task), denoise.optimal_linear_scale(task, 6))
    flat = denoise.Spheres(n=2, d=1)
    yield denoise.descend(flat, flat.sample(3, 4), alpha=1.0, beta=2.0)
    axis = torch.linspace(-1, 1, 3).double()
    placed = denoise.descend_in_plane(flat, 4, alpha=1.0, beta=2.0, n_steps=1)
    yield from (placed, denoise.DescentErrors(placed.descent, placed.descent))
    yield denoise.energy_on_plane(flat.sample(1, 4).context[0], axis, axis, alpha=1.0, beta=2.0)
    yield denoise.landscape(prompts, torch.ones(1).double(), torch.ones(2).double())
    settings = denoise.TrainingSettings(n_prompts=4, batch_size=2, n_context=6, n_epochs=1, n_test_prompts=2)
    layers = denoise.train_layers(task, "linear", settings, seeds=(0, 1))
    training = denoise.compare_with_bayes(layers)
    yield from (denoise.run_matrices(training), denoise.found_scales(training))
    yield from (layers, training)
    labelled = RegressionTask(d=2)
    averaging = denoise.regression.baseline_errors("averaging", labelled, n_prompts=20)
    yield averaging
    yield denoise.regression.RegressionComparison([averaging, averaging])
    steps = denoise.regression.one_step_interleaved(2, 4)
    yield denoise.regression.read_layers(steps, labelled, n_prompts=30, n_steps=2)
    yield denoise.regression.prompt_maps(steps, labelled.sample(2, 4, dtype=torch.float64), 1).at("0.0")
    yield denoise.regression.support_scores(steps, RegressionTask(d=2, n_nonzero=1), n_prompts=10)
