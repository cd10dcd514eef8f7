"""Python for the Images page's views."""

from __future__ import annotations

from app.core import Core
from app.core.catalog import LoadedModel
from app.core.switches import NEEDS
from app.pages.images.address import ImagesState
from app.pages.images.ids import ids
from app.pages.images.service import Batch, ImageViews
from app.pages.images.service_consistency import N_BOOTSTRAP, N_PERMUTATIONS
from app.shell.page import python_of
from app.shell.python import loading

_VIEWS = {"attention": "attention", "weighted": "value_weighted"}


@python_of(ids.GRID, ids.MAPS, ids.PATHS, ids.PREDICTIONS, ids.CONSISTENCY)
def python(core: Core, service: ImageViews, state: ImagesState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    batch = service.batch(state.checkpoint, state.data, state.of, state.start, state.own)
    asked = batch.asked
    image = min(state.image, len(batch.images) - 1)
    loaded = service.load(asked.checkpoint)[1]
    start = [*loading(asked.checkpoint), *_data(core, batch, int(loaded.model.cfg.image_size or 0))]
    if panel == ids.CONSISTENCY:
        return [*start, *_consistency(service, loaded)]
    start += _images(batch, int(loaded.model.cfg.image_size or 0), loaded.model.cfg.n_channels)
    if panel == ids.PATHS:
        logits = service.run(asked).logits[image]
        there = state.target is not None and state.target < len(logits)
        target = state.target if there else int(logits.argmax())
        made = f"aotlens.paths.patch_contributions(model, inputs[{image} : {image + 1}], [{target}])"
        return [*start, f"result = {made}.above_mean.patches[0, 0]  # [row, column]"]
    if panel == ids.PREDICTIONS:
        ask = f"model(inputs[{image} : {image + 1}])[0].double().softmax(-1).detach().numpy()"
        lines = [*start, f"result = {{'probability': {ask}}}"]
        without = _switched(core, state, f"result['without'] = {ask}")
        return [*lines, *(without if state.off else [])]
    query = "None" if state.patch is None else repr(state.patch)
    start += _switched(core, state, "maps = aotlens.heads.image_maps(model, inputs)")
    if panel == ids.GRID:
        layer = f"result = maps.{_VIEWS[state.view]}({query})[:, {state.layer}]  # [image, head, row, column]"
        return [*start, layer]
    at = f"[{image}, {state.layer}, {state.head}]"
    views = [f"    {name!r}: maps.{name}({query}){at}," for name in ("attention", "value_weighted")]
    rollout = f"    'rollout': maps.rollout({query})[{image}],"
    has_rollout = bool((service.run(asked).maps.pattern >= 0).all())
    return [*start, "result = {", *views, *([rollout] if has_rollout else []), "}"]


def _data(core: Core, batch: Batch, size: int) -> list[str]:
    return [f"data = aotlens.data.images.open_images({core.images.spec(batch.asked.data)!r}, size={size})"]


def _images(batch: Batch, size: int, channels: int) -> list[str]:
    """Lines that give the images that are shown, as the model reads them."""
    test = f"data.test.images[{list(batch.indices)}]"
    if not batch.n_own:
        return [f"inputs = model.to_images({test})"]
    channels = max(channels, batch.images.shape[1])
    colour = f"size={size}, colour={channels == 3}"
    return [
        "import torch",
        "folder = aotlens.checkpoints.user_folder('images')",
        f"own = [folder / f'{{key}}.png' for key in {list(batch.asked.own)}]",
        f"decoded = [aotlens.data.images.decode_image(path, {colour})[None] for path in own]",
        f"inputs = model.to_images(torch.cat([*decoded, {test}.expand(-1, {channels}, -1, -1)]))",
    ]


def _switched(core: Core, state: ImagesState, measure: str) -> list[str]:
    """Lines that run `measure` without the heads that are off."""
    if not state.off:
        return [measure]
    heads, given, lines = [f"{layer}.{head}" for layer, head in state.off], "", []
    if state.how in NEEDS:
        lines = [
            "others = data.train if len(data.train) else data.test",
            f"others = model.to_images(others.images[others.by_turns()[:{core.settings.reference_windows}]])",
        ]
        given = ", reference=others"
    return [*lines, f"with aotlens.heads.without(model, {heads!r}, {state.how!r}{given}):", f"    {measure}"]


def _consistency(service: ImageViews, loaded: LoadedModel) -> list[str]:
    n_images = service.n_fitting(loaded, service.core.settings.consistency_images)
    chance = f"n_permutations={N_PERMUTATIONS}, n_bootstrap={N_BOOTSTRAP}"
    return [
        f"chosen = data.test.by_turns()[:{n_images}]",
        "inputs, labels = model.to_images(data.test.images[chosen]), data.test.labels[chosen]",
        f"result = aotlens.heads.semantic_consistency(model, inputs, labels, {chance}).to_frame()",
    ]
