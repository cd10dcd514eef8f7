"""Callbacks of the Images page: all that it shows of a choice in one answer, and consistency, which takes longer,
alone."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from aotlens.views.image_captions import says_ablated
from aotlens.views.images import LAYER, PATCHES
from app.core import Core
from app.core.errors import RequestError
from app.core.files import File, safe_name
from app.pages.images import tables as listed
from app.pages.images.address import ImagesState
from app.pages.images.ids import VIEWS, ids
from app.pages.images.service import ImageRequest, Images
from app.shell import ids as shell
from app.shell.app import App
from app.shell.page import python_of
from app.shell.props import stores, values
from app.shell.sharing import save_files, show_values
from app.shell.views import Own, follow_views, python_lines, record, show_views, tables

#: The full model's result on the images that are shown.
_FULL = replace(LAYER, call=lambda chosen: chosen.full)
#: The contributions of patches to the predicted class.
_ADDED = replace(PATCHES, call=lambda chosen: PATCHES.call(replace(chosen, target=None)))


def register(app: App, service: Images) -> None:
    """Register the page's callbacks."""
    show_values(app, [ids.LAYER])
    panels = {
        ids.PANEL: Own(
            view=_FULL, draw=partial(choose, service), parts=("caption",),
            outputs=stores(shown=ids.SHOWN),
        ),
        ids.MAPS: Own(
            view=_ADDED, draw=partial(add_up, "added"), parts=("caption",), outputs=stores(added=ids.ADDED), quiet=True,
            reads=lambda chosen: (chosen.image, chosen.ablated, chosen.how),
        ),
        ids.PATHS: Own(
            view=PATCHES, draw=partial(add_up, "taken"), parts=("caption",), outputs=stores(taken=ids.TAKEN),
            quiet=True,
        ),
        ids.PREDICTIONS: Own(
            view=VIEWS[ids.PREDICTIONS], draw=partial(predict, service), parts=("caption",),
            outputs=stores(likeliest=shell.drawn(ids.LIKELIEST)),
        ),
    }  # fmt: skip
    ranked = {ids.CONSISTENCY: Own(
        view=VIEWS[ids.CONSISTENCY], draw=rank, parts=("caption",),
        outputs=stores(ranking=ids.RANKING, ranked=shell.drawn(ids.RANKED)),
    )}  # fmt: skip
    show_views(app, service.workshop, panels, service.values, shown=ids.CHOSEN, keys=ids.DRAWN, inputs={})
    show_views(app, service.workshop, ranked, service.values, shown=ids.MEASURED, keys=ids.RANKED_OF, inputs={})
    slow = {ids.CONSISTENCY: VIEWS[ids.CONSISTENCY]}
    follow_views(app, service.jobs, service.workshop, slow, service.values, shown=ids.MEASURED)
    files = tables(service.workshop, VIEWS, service.values)
    files |= tables(service.workshop, VIEWS, service.values, "json", record)
    files[shell.export(ids.GRID, "npz")] = partial(arrays, service)
    looks = stores(head=ids.HEAD, patch=ids.PATCH) | values(view=ids.VIEW)
    save_files(app, files, stores(shown=ids.CHOSEN) | looks)


def choose(service: Images, chosen: ImageRequest, run: Any) -> dict[str, Any]:
    """Return which images are shown, and which classes can be chosen. The page's script puts these into the controls,
    which would be drawn anew for each answer that could change them."""
    grid, images = run.maps.grid, service.chosen(chosen)
    n_layers, n_heads = run.maps.pattern.shape[1:3]
    return {
        "shown": {
            "checkpoint": chosen.checkpoint, "data": chosen.called, "of": chosen.of, "start": chosen.start,
            "own": list(chosen.own), "n": len(images.images), "layers": n_layers, "heads": n_heads, "rows": grid.rows,
            "columns": grid.columns, "per_page": len(images.indices), "n_all": images.n_all,
            "options": {"of": list(chosen.names), "target": list(chosen.classes)},
        },
        "caption": says_recognised(service, chosen, run),
    }  # fmt: skip


def says_recognised(service: Images, chosen: ImageRequest, run: Any) -> str:
    """Say what is shown, and how well it is recognised; where the model was made for something else, that."""
    images = service.chosen(chosen)
    n, first = len(images.indices), chosen.start + 1
    kind = "" if chosen.of is None else f" of class ‹{chosen.names[chosen.of]}›"
    which = f"Test images {first} to {first + n - 1} of {images.n_all:,}{kind} in {chosen.called}"
    if not chosen.is_known:
        return (
            f"{which}. The model was trained on {chosen.trained_on or 'other images'} and knows other classes: its "
            "maps can be looked at, its predictions mean nothing here."
        )
    labels, own = images.labels.numpy(), images.n_own
    wrong = [place + own + 1 for place in np.flatnonzero(run.predicted[own:] != labels[own:])]
    listed = f" (image {', '.join(map(str, wrong))} is not)" if len(wrong) == 1 else ""
    listed = f" (images {', '.join(map(str, wrong))} are not)" if len(wrong) > 1 else listed
    told = f"{which}; {n - len(wrong)} of these {n} are recognised{listed}."
    if not chosen.are_names_lent:
        return told
    return f"{told} The data only number their classes: they are taken for the model's, in its order."


def add_up(name: str, chosen: ImageRequest, result: Any) -> dict[str, Any]:
    """Return what patches add to a class, for the browser to draw."""
    class_name = chosen.classes[result.number]
    drawn = {"image": chosen.image, "name": class_name, "patches": result.patches.ravel().tolist()}
    ablated = says_ablated(chosen)
    caption = f"Maps of a run with {ablated}." if ablated else ""
    return {name: drawn, "caption": caption if name == "added" else PATCHES.caption(chosen, result)}


def predict(service: Images, chosen: ImageRequest, result: Any) -> dict[str, Any]:
    """Return the likeliest classes."""
    label = service.labels(chosen)[chosen.image]
    caption = VIEWS[ids.PREDICTIONS].caption(replace(chosen, label=label), result)
    return {"likeliest": [listed.likeliest(result, service.core.settings.n_predictions)], "caption": caption}


def rank(chosen: ImageRequest, result: Any) -> dict[str, Any]:
    """Return all heads by their consistency."""
    heads = [list(head) for head in result.ranking()]
    ranking = {"checkpoint": chosen.checkpoint, "data": chosen.called, "heads": heads}
    caption = VIEWS[ids.CONSISTENCY].caption(chosen, result)
    return {"ranking": ranking, "ranked": listed.by_consistency(result), "caption": caption}


def arrays(service: Images, shown: Any, **looks: Any) -> File:
    """Write images, patterns and value norms of all heads and layers, of the run with heads ablated."""
    if not shown:
        raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
    chosen = service.values(shown, **looks)
    images, run, most = service.chosen(chosen), service.run(chosen), service.core.settings.max_export_bytes
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
    name = safe_name(f"{chosen.file('images')}.npz")
    return File(name=name, content=buffer.getvalue(), mime="application/octet-stream")


@python_of(*VIEWS)
def python(core: Core, service: Images, state: ImagesState, panel: str) -> list[str]:
    """Return the lines that give a panel's numbers."""
    return python_lines(VIEWS[panel], service.of_address(state))
