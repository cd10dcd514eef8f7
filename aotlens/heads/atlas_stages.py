"""The stages of an atlas that read a text or the weights: what patterns show, circuits, and declared scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from aotlens.circuits import all_compositions, copying_rate, ov_circuit, spectrum
from aotlens.conventions import Progress
from aotlens.heads.atlas_file import Stage
from aotlens.heads.attention_to import scores_of
from aotlens.heads.examples import ExampleTally
from aotlens.heads.inputs import Inputs
from aotlens.heads.motifs import as_motifs, row_entropy
from aotlens.heads.reader import HeadReader
from aotlens.heads.same_patterns import ConsistencyTally
from aotlens.heads.tally import MotifTally


def patterns_stage(
    reader: HeadReader,
    tokens: Tensor,
    clusters: Int64[np.ndarray, " sequence"] | None,
    n_examples: int,
    seed: int,
    batch_size: int,
    *,
    progress: Progress | None = None,
) -> Stage:
    """Measure everything that patterns show, in one pass."""
    inputs = Inputs.of(reader, tokens)
    motifs = MotifTally(reader, inputs, as_motifs(None), others=True, by_distance=True, clusters=clusters)
    consistency = ConsistencyTally(reader, inputs.n_pos)
    examples = ExampleTally(reader, tokens, n_examples, seed)
    entropy = torch.zeros(reader.n_layers, reader.n_heads, dtype=torch.float64)
    first_rows = torch.zeros(reader.n_layers, reader.n_heads, dtype=torch.float64)
    position = torch.arange(inputs.n_pos)
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size]
        add_motifs = motifs.batch(batch, start)

        def add(
            layer: int,
            pattern: Float[Tensor, "batch head query key"],
            start: int = start,
            add_motifs: Callable[[int, Tensor], None] = add_motifs,
        ) -> None:
            add_motifs(layer, pattern)
            consistency.add(layer, pattern)
            examples.add(layer, pattern, start)
            entropy[layer] += row_entropy(pattern[:, :, 1:]).sum((0, 2)).double().cpu()
            first_rows[layer] += (pattern[:, :, 0] * position.to(pattern)).sum((0, 2)).double().cpu()

        reader.listen_to_patterns(batch.tokens, add)
        if progress is not None:
            progress(start + len(batch), len(inputs))
    motifs.finish(batch_size)
    n_queries = len(inputs) * (inputs.n_pos - 1)
    away = torch.arange(1 - inputs.n_pos, inputs.n_pos).abs().double()
    return {
        "motifs": scores_of(motifs, others=len(inputs) > 1, intervals=True),
        "pattern_consistency": consistency.result(),
        "examples": examples.result(),
        "entropy": (entropy / n_queries).numpy(),
        "mean_distance": ((motifs.at_distance @ away - first_rows) / n_queries).numpy(),
    }


def circuits_stage(model: Any, tokens: Tensor) -> Stage:
    """Measure copying and composition."""
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    rates, scores = np.zeros(shape), np.zeros(shape)
    for head in np.ndindex(*shape):
        rates[head] = copying_rate(model, head).top1
        score = spectrum(ov_circuit(model, head), k=1, n_vectors=1).copying_score
        scores[head] = np.nan if score is None else score
    compositions = all_compositions(model, data=tokens)
    parts = {f"composition {mode}": each.values for mode, each in compositions.items()}
    return {
        "copying": rates,
        "copying_score": scores,
        **parts,
        **{f"z {mode}": e.z_signs for mode, e in compositions.items()},
    }
