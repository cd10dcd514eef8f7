"""`python -m aotlens.sweeps.child FOLDER`: one cell in a process of its own, which is killed without loss to others.

The folder holds `job.json`, and `inputs.npz` and `checkpoint.tar` where the cell has them. It leaves `outcome.json`,
and `trained.tar` of a training. It ends when the process that started it does, which holds the other end of its stdin.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

OUTCOME = "outcome.json"
INPUTS = "inputs.npz"


def main(folder: Path) -> None:
    """Run the cell of this folder. What goes wrong is left for the sweep as one line, and printed whole."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    try:
        outcome = _run(folder, job)
    except Exception as error:  # whatever an analysis raises is the cell's result
        import traceback

        traceback.print_exc()
        message = " ".join(str(error).split())
        outcome = {"error": f"{type(error).__name__}: {message}" if message else type(error).__name__}
    unfinished = folder / f".{OUTCOME}"
    unfinished.write_text(json.dumps(outcome), encoding="utf-8")
    os.replace(unfinished, folder / OUTCOME)


def _run(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    import torch

    _require_versions(job["identity"], torch.__version__)
    torch.set_num_threads(job["threads"])
    seed = job["seed"] or 0
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    if job["analysis"] is None:
        return _trained(folder, job)

    from aotlens.sweeps.calling import Inputs, call
    from aotlens.sweeps.store import fingerprint, packed

    model = _model(folder, job)
    expected = job["identity"]["model"]
    if fingerprint(model) != expected:
        raise ValueError(f"{job['source']['checkpoint']}: other weights here than where the sweep was started.")
    inputs = Inputs.load(folder / INPUTS) if (folder / INPUTS).exists() else None
    corpus = None if job["corpus"] is None else _corpus(job["corpus"])
    table = call(job["analysis"], model, job["settings"], job["seed"], inputs, corpus)
    return {"columns": packed(table), "device": str(model.device)}


def _require_versions(identity: dict[str, Any], torch_version: str) -> None:
    """Raise `ValueError` on a machine whose packages are not those that the cell is named by."""
    from aotlens import __version__

    for name, own in (("aotlens", __version__), ("torch", torch_version)):
        if identity[name] != own:
            raise ValueError(f"{name} {own} here, and {identity[name]} where the sweep was started; install the same.")


def _model(folder: Path, job: dict[str, Any]) -> Any:
    from aotlens.checkpoints import import_checkpoint, load

    archive = folder / "checkpoint.tar"
    if not archive.exists():
        return load(job["source"]["checkpoint"], job["device"])
    return load(str(import_checkpoint(archive, into=folder / "checkpoints").path), job["device"])


def _corpus(described: dict[str, str]) -> Any:
    from aotlens.data import open_corpus

    corpus = open_corpus(described["spec"])
    if corpus.sha256() != described["sha256"]:
        raise ValueError(f"corpus {described['spec']}: other text here than where the sweep was started.")
    return corpus


def _trained(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    from aotlens.checkpoints import export_checkpoint, read_info
    from aotlens.train import OBJECTIVES, Recipe, train

    recipe = Recipe.from_dict(job["source"]["recipe"])
    data = OBJECTIVES[recipe.objective].prepare(recipe, job["source"]["corpus"], announce=print)
    target = train(recipe, data, folder / recipe.name, device=job["device"], command=job["source"]["command"])
    export_checkpoint(target, folder / "trained.tar")
    return {"columns": None, "device": read_info(target).device}


def _end_with_parent() -> None:
    """Wait for the end of stdin, which comes when the parent ends in whatever way, and end with all processes."""
    while sys.stdin.buffer.read(1):
        pass
    if os.name != "nt" and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
