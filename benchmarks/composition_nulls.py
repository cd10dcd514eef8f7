"""How many pairs of heads stand out against rotations, against flipped signs, and where no pair can compose.

    python -m benchmarks.composition_nulls [--quick] [--json PATH]

For each bundled checkpoint of tokens with several layers and each mode: the share of pairs with z ≥ 3 against rotations
and against signs flipped in the embeddings' directions (weights, norms folded in); against signs flipped in the
directions of the stream that the later layer reads, of what was written, on the windows of the bundled atlas's examples
(every eighth); and, in the same directions, of pairs the wrong way round, in which the "earlier" head stands in a later
layer: the weights alone, since nothing of it is read. What such pairs share is no composition.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

import aotlens
from aotlens.circuits import all_compositions
from aotlens.circuits.composition import EDGE_Z, Mode
from aotlens.circuits.head_pairs import HeadPairs, written_moments
from aotlens.circuits.nulls import Heads, eigenbasis, sign_moments
from aotlens.heads import stored_atlas
from aotlens.models import AttentionOnlyTransformer
from benchmarks import _common

CHECKPOINTS = (
    "code-2l-mhsa", "novels-2l-gpt", "novels-2l-mhsa", "novels-4l-masked", "novels-6l-mhsa", "novels-12l-mssa",
)  # fmt: skip


def backwards(model: AttentionOnlyTransformer, mode: Mode, streams: Tensor) -> np.ndarray:
    """Return z against flipped signs of every pair of which the head that writes stands in a later layer."""
    pairs = HeadPairs(model, mode, True, None)
    all_z = []
    for layer in range(model.cfg.n_layers - 1):
        basis, writes, moments = eigenbasis(streams[layer]), pairs.writes[layer + 1 :], pairs.moments[layer + 1 :, :, 0]
        writing = Heads.of(writes @ basis, moments)
        reading = Heads.of(pairs.F[layer].mT @ basis, pairs.grams_S[layer])
        ((mean, std),) = sign_moments(writing, [(len(writing.Y), reading)])
        X = writes.flatten(0, 1)[:, None] @ pairs.F[layer]
        square = ((moments.flatten(0, 1)[:, None] @ X) * (X @ pairs.grams_S[layer])).sum((-2, -1))
        all_z.append(((square - mean) / std).flatten())
    return torch.cat(all_z).numpy()


def main(argv: list[str] | None = None) -> int:
    arguments = _common.parser(__doc__).parse_args(argv)
    rows: list[dict[str, Any]] = []
    for name in CHECKPOINTS[:2] if arguments.quick else CHECKPOINTS:
        model, stored = aotlens.load(name, "cpu"), stored_atlas(name)
        assert stored is not None
        tokens = torch.as_tensor(np.asarray(stored.atlas.examples.tokens)).long()[::8]
        streams = written_moments(model, tokens, True).streams
        of_text = all_compositions(model, data=tokens)
        for mode, composition in all_compositions(model, folded=True).items():
            if mode == "q" and model.cfg.attention == "mssa":  # W_QK is symmetric: q and k are one
                continue
            n = int(np.isfinite(composition.z).sum())
            against = backwards(model, mode, streams)
            rows.append(
                {"checkpoint": name, "mode": mode, "pairs": n,
                 "rotations": f"{(composition.z >= EDGE_Z).sum() / n:.3f}",
                 "signs, embeddings": f"{composition.edges.sum() / n:.3f}",
                 "signs, text": f"{of_text[mode].edges.sum() / n:.3f}",
                 "the wrong way round": f"{(against >= EDGE_Z).mean():.3f}"}
            )  # fmt: skip
    _common.report("composition_nulls", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
