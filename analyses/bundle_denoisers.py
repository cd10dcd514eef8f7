"""Make the bundled trainings of in-context denoisers, which `aotlens.denoise.stored` returns:

    python -m analyses.bundle_denoisers [--out DIR] [NAME ...]

Linear and softmax attention on the three tasks of *in-context-denoising* (Figures 3 and 7) and on transformed prompts
(Figure 8), six seeds each, one file each, NAME as in `subspaces-softmax`. About forty minutes on one thread, most of
them for softmax on transformed prompts. It prints the files' sizes, and fails above 300 kB in all.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from aotlens.denoise.stored import BUNDLED, bundled_name, train_bundled
from aotlens.results.stored_files import stored_folder

MAX_BYTES = 300_000


def main(argv: list[str] | None = None) -> int:
    """Train and write. Returns the exit code."""
    paths = {bundled_name(*key): key for key in BUNDLED}
    parser = argparse.ArgumentParser(prog="python -m analyses.bundle_denoisers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *paths], help="which (all)")
    parser.add_argument("--out", type=Path, default=stored_folder("denoiser"), help="folder (the package's own)")
    arguments = parser.parse_args(argv)
    for name in arguments.names or paths:
        task, attention, transformed = paths[name]
        training = train_bundled(task, attention, transformed=transformed)
        training.save(arguments.out / f"{name}.safetensors")
        print(f"{name}: {training!r}\n{training.to_frame().to_string(index=False)}", flush=True)
    total = sum(file.stat().st_size for file in arguments.out.glob("*.safetensors"))
    print(f"{total:,} bytes in all; at most {MAX_BYTES:,}")
    return 0 if total <= MAX_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
