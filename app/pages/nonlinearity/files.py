"""What the Non-linearity page shows, as files: tables, weights, a checkpoint, Python."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from app.core.files import File, csv_file
from app.pages.nonlinearity import captions, figures
from app.pages.nonlinearity.service import Compiled, Look

if TYPE_CHECKING:
    from torch import Tensor


def error_csv(made: Compiled) -> File:
    """One row a point of the curve or surface."""
    return csv_file(f"{_name(made)}-error.csv", made.curve.to_frame())


def heads_csv(made: Compiled) -> File:
    """One row a head, as in the table."""
    frame = pd.DataFrame(figures.head_rows(made)).drop(columns=["id", "head"]).rename(columns={"place": "head"})
    return csv_file(f"{_name(made)}-heads.csv", frame)


def layers_csv(made: Compiled) -> File:
    """One row a layer, as in the table."""
    return csv_file(f"{_name(made)}-layers.csv", figures.layer_rows(made))


def pattern_csv(made: Compiled, look: Look) -> File:
    """One row for each query and key that the head may look at."""
    rows = [
        {"query": query, "query_x": look.tokens[query], "key": key, "key_x": look.tokens[key],
         "attention": float(look.pattern[query, key])}
        for query, key in zip(*look.visible.nonzero(), strict=True)
    ]  # fmt: skip
    return csv_file(f"{_name(made)}-head-{look.role.layer}.{look.role.head}.csv", rows)


def model_safetensors(made: Compiled) -> File:
    """The attention model's state dict in float64; its metadata hold the model's configuration and what is proven."""
    compiled = made.compiled
    about = {
        "model": json.dumps(compiled.model.cfg.to_dict()),
        "auxiliary": json.dumps(compiled.auxiliary.tolist()),
        "etas": json.dumps(list(compiled.etas)),
        "bound": repr(compiled.bound),
        "proven_error": repr(compiled.proven_error),
    }
    return _tensors(f"{_name(made)}-attention.safetensors", compiled.model.state_dict(), about)


def ffn_safetensors(made: Compiled) -> File:
    """The network in float64, as the state dict of nn.Sequential(Linear, activation, Linear, …)."""
    ffn = made.compiled.ffn
    tensors: dict[str, Tensor] = {}
    for layer, (weight, bias) in enumerate(zip(ffn.weights, ffn.biases, strict=True)):
        tensors[f"{2 * layer}.weight"], tensors[f"{2 * layer}.bias"] = weight.T, bias
    return _tensors(f"{_name(made)}-ffn.safetensors", tensors, {"activations": json.dumps(ffn.activations)})


def model_zip(made: Compiled) -> File:
    """A checkpoint's folder. Checkpoints are float32, so the proof does not hold for it; the card says what does."""
    from aotlens.checkpoints import CheckpointInfo, save_checkpoint

    compiled, name = made.compiled, _name(made)
    token = [round(value, 6) for value in compiled.auxiliary.tolist()]
    where = f"[-{compiled.bound:g}, {compiled.bound:g}]^{compiled.ffn.d_in}"
    info = CheckpointInfo(
        name=name,
        description=(
            f"An FFN ({captions.NAMES[made.state.preset]}, {made.state.activation}) compiled into attention "
            f"(nonlinearity, Theorem 4.1), {compiled.construction} construction. In float64 |model − FFN| ≤ "
            f"{compiled.proven_error:.3g} on {where}; these weights are rounded to float32. Input: position 0 the "
            f"auxiliary token {token}, then tokens (x, zeros, 1, 0)."
        ),
    )
    buffer = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder) / name, compiled.model, info)
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted((Path(folder) / name).rglob("*")):
                archive.write(path, path.relative_to(folder))
    return File(name=f"{name}.zip", content=buffer.getvalue(), mime="application/zip")


def _tensors(name: str, tensors: dict[str, Tensor], about: dict[str, str]) -> File:
    from safetensors.torch import save

    content = save({key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}, metadata=about)
    return File(name=name, content=content, mime="application/octet-stream")


def _name(made: Compiled) -> str:
    state = made.state
    return f"compiled-{state.preset}-{state.inputs}d-{state.activation}-{state.construction}"
