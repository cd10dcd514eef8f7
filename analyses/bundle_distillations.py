"""Make the bundled distillations, which the app's Distillation page opens on, from what head_distillation has kept:

    python -m analyses.head_distillation --corpus dir:PATH --out DIR
    python -m analyses.bundle_distillations DIR --corpus dir:PATH [--code stdlib] [NAME ...]

Of each checkpoint: every error and curve, the FFNs of 16 hidden units of its best seed in float16, and what replacing
heads costs on held-out documents, measured here (4,096 tokens, as in docs/distillation.md; minutes for twelve layers).
It prints their sizes, and fails above 1.5 MB in all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import aotlens
from aotlens.checkpoints import find_checkpoint
from aotlens.data import open_corpus
from aotlens.distill import Record, compress, held_out_windows, load_record, substitution_costs
from aotlens.results.stored_files import stored_folder

NAMES = ("novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt", "novels-2l-mhsa", "novels-1l-mhsa", "code-2l-mhsa")
WIDTH, N_RANDOM, MAX_BYTES = 16, 3, 1_500_000


def main(argv: list[str] | None = None) -> int:
    """Parse, measure and write. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m analyses.bundle_distillations", description=__doc__)
    parser.add_argument("source", type=Path, metavar="DIR", help="--out of head_distillation")
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES, help="checkpoints (all that are in DIR)")
    parser.add_argument("--corpus", required=True, metavar="SPEC", help="the novels, as dir:PATH")
    parser.add_argument("--code", default="stdlib", metavar="SPEC", help="text for the model of code (stdlib)")
    parser.add_argument("--tokens", type=int, default=4096, help="held-out tokens to replace heads on (%(default)s)")
    parser.add_argument("--out", type=Path, default=stored_folder("distillation"), help="folder (the package's own)")
    arguments = parser.parse_args(argv)
    for name in arguments.names:
        path = arguments.source / f"{name}.safetensors"
        if not path.exists():
            print(f"{name}: not in {arguments.source}, left out")
            continue
        spec = arguments.code if name.startswith("code") else arguments.corpus
        distillation, info, model = load_record(path).distillation, find_checkpoint(name), aotlens.load(name)
        windows = held_out_windows(model, open_corpus(spec), arguments.tokens)
        costs = substitution_costs(model, distillation, windows, width=WIDTH, n_random=N_RANDOM)
        record = Record(
            distillation=compress(distillation, WIDTH),
            checkpoint=name,
            weights_sha256=info.weights_sha256,
            corpus=str(info.corpus.get("name") or "its training corpus"),
            command="python -m analyses.head_distillation --corpus dir:PATH",
            costs=costs,
        )
        record.save(arguments.out / f"{name}.safetensors")
        print(f"{name}: {sum(file.stat().st_size for file in arguments.out.glob(f'{name}.*')):,} bytes", flush=True)
    total = sum(file.stat().st_size for file in arguments.out.iterdir())
    print(f"{total:,} bytes in all; at most {MAX_BYTES:,}")
    return 0 if total <= MAX_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
