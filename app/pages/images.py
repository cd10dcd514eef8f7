"""Images: what every head of a model attends to, what patches add to a class, and the same with heads ablated."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from aotlens.conventions import head_name
from aotlens.views import View
from aotlens.views import images as views
from app.core.address import Query
from app.core.errors import RequestError
from app.core.files import File, safe_name
from app.core.workshop import AppWorkshop
from app.shell.arrange import Columns, Form, Linked, Preset, Rows, Tabs, link
from app.shell.patch_maps import ImageMaps, PatchGrid, SignedMap
from app.shell.tables import height_of, pick, value_table
from app.shell.view_page import view_page

_ABLATION = ("ablated", "how")


def predictions(params: views.ImagesParameters, result: Any) -> list[dict[str, Any]]:
    """List all classes, the most probable first."""
    frame = result.to_frame().sort_values("probability", ascending=False, kind="stable")
    titles = {"probability": "probability", "probability_ablated": "heads ablated", "logit": "logit"}
    columns = [(name, title) for name, title in titles.items() if name in frame]
    rows = [[row["class"], *(f"{row[name]:.{2 if name == 'logit' else 4}f}" for name, _ in columns)]
            for row in frame.to_dict("records")]  # fmt: skip
    return [
        value_table([("class", "", ""), *((title, "", "number") for _, title in columns)], rows, height=height_of(rows))
    ]


def consistency(params: views.ImagesParameters, result: Any) -> list[dict[str, Any]]:
    """List every head, the most consistent first."""
    columns = [
        ("head", "layer.head; click to see its layer; bold: beyond chance", "mono"),
        ("within", "Mean overlap (IoU) of its regions on two images of one class", "number"),
        ("between", "The same on images of two classes", "number"),
        ("difference", "within − between", "number"),
        ("95% interval", "Of the difference, a bootstrap over images", "text"),
        ("IoU with mean map", "Overlap with the head’s mean map over the other images: position alone", "number"),
        ("adjusted p", "Class labels permuted over images, adjusted over heads (Benjamini and Hochberg)", "number"),
    ]  # fmt: skip
    rows = []
    for head in result.ranking():
        name, (low, high) = head_name(head), result.intervals[head]
        cell = pick(name, f"Show head {name}", {"head": list(head)}, "here" if result.adjusted_p[head] <= 0.05 else "")
        overlaps = [f"{each[head]:.3f}" for each in (result.within, result.between, result.difference)]
        rest = [f"{low:.3f} to {high:.3f}", f"{result.with_mean[head]:.3f}", f"{result.adjusted_p[head]:.3f}"]
        rows.append([cell, *overlaps, *rest])
    return [value_table(columns, rows, height=height_of(rows))]


def arrays(workshop: AppWorkshop, view: View, params: views.ImagesParameters) -> File:
    """Return images, patterns and value norms of all heads and layers, with the heads ablated, as NPZ."""
    workshop.result(view, params)
    run, images, most = params.run.run(workshop), params.images.run(workshop), workshop.max_export_bytes
    n_bytes = run.maps.pattern.nbytes + run.maps.value_norms.nbytes
    if n_bytes > most:
        raise RequestError(
            f"All heads on these images are {n_bytes / 2**20:.0f} MB, and files of at most {most / 2**20:.0f} MB are "
            "made here. Call aotlens.heads.image_maps: Python for this view has the lines."
        )
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, images=run.images, pattern=run.maps.pattern, value_norms=run.maps.value_norms, logits=run.logits,
        test_images=np.array(images.indices), labels=images.labels.numpy(),
    )  # fmt: skip
    name = safe_name(f"{params.file('images')}.npz")
    return File(name=name, content=buffer.getvalue(), mime="application/octet-stream")


def _older(query: Query) -> Query:
    """Addresses once named the layer by itself."""
    layer, head = query.get("layer", "0"), query.get("head", "0")
    return query if "." in head else {**query, "head": f"{layer}.{head}"}


PAGE = view_page(
    views.FAMILY,
    "Images",
    older=_older,
    arranged=Rows(
        Form(views.IMAGES, links=[link("Model card", "checkpoints", "checkpoint")]),
        Columns(
            PatchGrid(
                views.LAYER, patches=views.PATCHES, ranking=views.CONSISTENCY, controls=("quantity",),
                over=("head", *_ABLATION, "order"), reads=("patch",), saves={"npz": arrays},
                presets=[Preset("Ablate none", {"ablated": []})],
            ),
            Tabs("tab", label="Of one image and of all", sections={
                "maps": ("Maps", ImageMaps(
                    views.HEAD, reads=("image", "head", "patch", *_ABLATION),
                    links=[link("The head's circuits", "circuits", "checkpoint", "head")],
                )),
                "paths": ("Paths", SignedMap(views.PATCHES, controls=("target",), reads=("image",))),
                "predictions": ("Predictions", Linked(
                    views.PREDICTIONS, lines=predictions, alone=True, reads=("image", *_ABLATION),
                )),
                "consistency": ("Consistency", Linked(
                    views.CONSISTENCY, lines=consistency, alone=True, apart=True, always=True,
                    ignores=("of", "start", "own"),
                )),
            }),
            widths="minmax(0, 1.15fr) minmax(0, 1fr)",
        ),
    ),
)  # fmt: skip
