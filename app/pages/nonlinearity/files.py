"""A compiled network as files: its weights, the network's, and a checkpoint."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.views import View
from aotlens.views.nonlinearity import PRESETS, NonlinearityParameters
from app.core.files import File
from app.core.workshop import AppWorkshop

if TYPE_CHECKING:
    from torch import Tensor


def model_safetensors(workshop: AppWorkshop, view: View, params: NonlinearityParameters) -> File:
    """Return the attention model's state dict in float64; its metadata hold the model's configuration and what is
    proven."""
    compiled = workshop.result(view, params)
    about = {
        "model": json.dumps(compiled.model.cfg.to_dict()),
        "auxiliary": json.dumps(compiled.auxiliary.tolist()),
        "etas": json.dumps(list(compiled.etas)),
        "bound": repr(compiled.bound),
        "proven_error": repr(compiled.proven_error),
    }
    return _tensors(params.file("attention"), compiled.model.state_dict(), about)


def ffn_safetensors(workshop: AppWorkshop, view: View, params: NonlinearityParameters) -> File:
    """Return the network in float64, as the state dict of nn.Sequential(Linear, activation, Linear, …)."""
    ffn = workshop.result(view, params).ffn
    tensors: dict[str, Tensor] = {}
    for layer, (weight, bias) in enumerate(zip(ffn.weights, ffn.biases, strict=True)):
        tensors[f"{2 * layer}.weight"], tensors[f"{2 * layer}.bias"] = weight.T, bias
    return _tensors(params.file("ffn"), tensors, {"activations": json.dumps(ffn.activations)})


def model_zip(workshop: AppWorkshop, view: View, params: NonlinearityParameters) -> File:
    """Return a checkpoint's folder. Checkpoints are float32, so the proof does not hold for it; the card says what
    does."""
    from aotlens.checkpoints import CheckpointInfo, save_checkpoint

    compiled, name = workshop.result(view, params), params.file("")[:-1]
    token = [round(value, 6) for value in compiled.auxiliary.tolist()]
    where = f"[-{compiled.bound:g}, {compiled.bound:g}]^{compiled.ffn.d_in}"
    info = CheckpointInfo(
        name=name,
        description=(
            f"An FFN ({PRESETS[params.preset]}, {params.activation}) compiled into attention "
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
    return File(name=f"{name}.safetensors", content=content, mime="application/octet-stream")
