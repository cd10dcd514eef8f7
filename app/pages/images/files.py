"""What can be saved of the Images page."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from app.core.address_values import dotted
from app.core.errors import RequestError
from app.core.files import File, csv_file, safe_name
from app.pages.images.asking import Picked
from app.pages.images.request import ImageRequest
from app.pages.images.service import ImageViews, said


def grid_npz(service: ImageViews, picked: Picked) -> File:
    """Images, patterns and value norms of all heads and layers, without the heads that are off."""
    batch, run, _ = picked.runs(service)
    most = service.core.settings.max_export_bytes
    if run.n_bytes > most:
        raise RequestError(
            f"All heads on these images are {run.n_bytes / 2**20:.0f} MB, and files of at most {most / 2**20:.0f} MB "
            "are made here. Call aotlens.heads.image_maps: Python for this view has the lines."
        )
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {
        "images": batch.images.numpy(), "pattern": run.maps.pattern, "value_norms": run.maps.value_norms,
        "logits": run.logits, "test_images": np.array(batch.indices),
        "labels": np.array([-1 if label is None else label for label in batch.labels]),
    }  # fmt: skip
    np.savez_compressed(buffer, **arrays)
    name = safe_name(f"{_name(picked)}-images.npz")
    return File(name=name, content=buffer.getvalue(), mime="application/octet-stream")


def maps_csv(service: ImageViews, picked: Picked) -> File:
    """A row a patch: where the head looks, what it moves, and rollout where there is one."""
    _, run, _ = picked.runs(service)
    at = (picked.image, picked.layer, picked.head)
    columns = {
        "attention": run.maps.attention(picked.patch)[at],
        "value_weighted": run.maps.value_weighted(picked.patch)[at],
    }
    if bool((run.maps.pattern >= 0).all()):
        columns["rollout"] = run.maps.rollout(picked.patch)[picked.image]
    return csv_file(f"{_name(picked)}-image-{picked.image + 1}-head-{picked.layer}.{picked.head}.csv", _rows(columns))


def paths_csv(service: ImageViews, picked: Picked) -> File:
    """A row a patch: what it adds to the logit of the class, and to the logit above the mean over classes."""
    found, target = service.contributions(picked.asked, picked.image), picked.class_of(service)
    row = said(lambda: found.place(target))
    columns = {"logit": found.logit.patches[0, row], "above_mean": found.above_mean.patches[0, row]}
    return csv_file(f"{_name(picked)}-image-{picked.image + 1}-class-{target}.csv", _rows(columns))


def predictions_csv(service: ImageViews, picked: Picked) -> File:
    """A row a class, whole and without the heads that are off."""
    _, run, whole = picked.runs(service)
    names = service.classes(picked.asked.checkpoint)
    rows = [
        {"class": name, "logit": float(whole.logits[picked.image, number]),
         "probability": float(whole.probabilities[picked.image, number])}
        | ({"probability_without": float(run.probabilities[picked.image, number])} if run.off else {})
        for number, name in enumerate(names)
    ]  # fmt: skip
    return csv_file(f"{_name(picked)}-image-{picked.image + 1}-predictions.csv", rows)


def consistency_csv(service: ImageViews, asked: ImageRequest) -> File:
    """A row a head."""
    return csv_file(f"{asked.checkpoint}-consistency.csv", service.consistencies.made(asked).to_frame())


def _rows(columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    shape = next(iter(columns.values())).shape
    return [
        {"row": row, "column": column} | {name: float(values[row, column]) for name, values in columns.items()}
        for row, column in np.ndindex(*shape)
    ]


def _name(picked: Picked) -> str:
    off = "-".join(map(dotted, picked.off))
    return f"{picked.asked.checkpoint}-without-{off}-{picked.how}" if off else picked.asked.checkpoint
