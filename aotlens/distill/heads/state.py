"""What a killed run goes on from: one safetensors file, written at once or not at all. Never pickle."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from aotlens.distill.heads.training import Evaluation, Training


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Safetensors with JSON metadata, replaced in one step; raises `OSError` with the path for a full disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    data = save(plain, metadata={name: json.dumps(value) for name, value in metadata.items()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:  # not save_file, whose files nobody else may read
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None:  # a failed write does not know its file
            raise OSError(error.errno, f"{error.strerror} while writing; what was there is whole", str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Raises `ValueError` for a file that is missing, damaged or something else."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = {name: json.loads(value) for name, value in (file.metadata() or {}).items()}
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 (not a dictionary)
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected {what}, found what cannot be read ({error}).") from error


def contents_hash(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
    """SHA-256 over the JSON and over every tensor's name, type, shape and bytes, by name."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_training(path: Path, training: Training, identity: dict[str, Any]) -> None:
    """`identity` is what the run was started with: `load_training` refuses another."""
    tensors = {f"scaling.{name}": tensor for name, tensor in training.scaling.tensors().items()}
    tensors |= {f"moments.{name}": tensor for name, tensor in training.moments.tensors().items()}
    batches = []
    for number, batch in enumerate(training.batches):
        own = {"W1": batch.W1, "W2": batch.W2, "best_W1": batch.best_W1, "best_W2": batch.best_W2}
        for name, parameter in (("W1", batch.W1), ("W2", batch.W2)):
            state = batch.optimiser.state.get(parameter, {})
            own |= {f"{name}.{key}": torch.as_tensor(value) for key, value in state.items()}
        own |= {"best": batch.best, "waited": batch.waited, "stopped_at": batch.stopped_at}
        tensors |= {f"batch.{number}.{name}": tensor for name, tensor in own.items()}
        batches.append(batch.active)
    progress = {
        "pieces_done": training.pieces_done,
        "seconds": training.seconds,
        "active": batches,
        "curve": [[e.tokens, e.seconds, e.squared_errors] for e in training.curve],
    }
    about = {"progress": progress, "identity": identity}
    write_tensors(path, tensors, {**about, "sha256": contents_hash(tensors, about)})


def read_saved(path: Path, identity: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and progress. Raises `ValueError` for a damaged file, and for another run's, naming what differs."""
    tensors, metadata = read_tensors(path, "the state of a distillation")
    if not {"progress", "identity"} <= metadata.keys():
        raise ValueError(f"{path}: expected the state of a distillation, found another safetensors file.")
    if metadata.pop("sha256", None) != contents_hash(tensors, metadata):
        raise ValueError(f"{path}: damaged: its contents are not what was saved. Delete it to start afresh.")
    saved, expected = metadata["identity"], json.loads(json.dumps(identity))
    different = sorted(key for key in {*saved, *expected} if saved.get(key) != expected.get(key))
    if different:
        raise ValueError(
            f"{path}: the distillation was started with another {', '.join(different)}; go on with the same, or choose "
            "another checkpoint file."
        )
    return tensors, metadata["progress"]


def restore(training: Training, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    """Put a fresh `training` where the saved one was."""
    device = training.source.reader.device
    training.moments.load({name: tensors[f"moments.{name}"].to(device) for name in training.moments.tensors()})
    for number, batch in enumerate(training.batches):
        own = {
            name.removeprefix(f"batch.{number}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"batch.{number}.")
        }
        batch._place(list(progress["active"][number]), own["W1"].to(device), own["W2"].to(device))
        for name, parameter in (("W1", batch.W1), ("W2", batch.W2)):
            if f"{name}.exp_avg" in own:
                moments = {key: own[f"{name}.{key}"].to(device) for key in ("exp_avg", "exp_avg_sq")}
                batch.optimiser.state[parameter] = {"step": own[f"{name}.step"], **moments}
        batch.best_W1, batch.best_W2 = own["best_W1"].to(device), own["best_W2"].to(device)
        batch.best, batch.waited, batch.stopped_at = own["best"], own["waited"], own["stopped_at"]
    training.pieces_done, training.seconds = progress["pieces_done"], progress["seconds"]
    training.curve = [
        Evaluation(tokens=tokens, seconds=seconds, squared_errors=errors)
        for tokens, seconds, errors in progress["curve"]
    ]
