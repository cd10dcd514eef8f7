"""Which images are shown and what a model does with them, against runs of the model by hand."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from aotlens.checkpoints import import_external
from aotlens.data.images import ImageProcessor, open_images
from aotlens.models import hook_names
from aotlens.views import family
from aotlens.views.images import CONSISTENCY, HEAD, IMAGES, LAYER, PATCHES, PREDICTIONS, ImagesParameters
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.images import PAGE, arrays
from app.shell.maps import packed_patches, sentences
from app.shell.view_service import Views
from tests.app.conftest import save_images
from tests.app.declared.conftest import picture_file
from tests.messages import refused, says
from tests.widget.decoded import unpacked

FIRST = {"checkpoint": "digits-tiny", "data": "digits"}
DIGITS = open_images("digits")


def service(core: Core) -> Views:
    return Views(core, family("images"))


@pytest.fixture(scope="module")
def images(image_core: Core) -> Views:
    return service(image_core)


def with_images(core: Core, file: Path, labels: Iterable[int], **rest: Any) -> Core:
    """The app's core with grey squares of 12 × 12 pixels beside its other images, one of each label, without names."""
    numbers = np.array(list(labels))
    squares = np.zeros((len(numbers), 12, 12), dtype=np.uint8)
    np.savez(file, x_train=squares, x_test=squares, y_train=numbers, y_test=numbers)
    return Core.start(replace(core.settings, images=(f"npz:{file}",), **rest))


def shown(images: Views, params: ImagesParameters) -> Any:
    """The images that are shown."""
    return params.images.run(images.workshop)


def run_of(images: Views, params: ImagesParameters, *, full: bool = False) -> Any:
    return images.workshop.result(IMAGES, replace(params, ablated=())) if full else params.run.run(images.workshop)


def caption(images: Views, params: ImagesParameters, view: Any = IMAGES) -> str:
    return view.caption(params, images.workshop.result(view, params))


def test_one_image_of_each_class_in_turn(images: Views) -> None:
    assert images.values({}) == images.values(FIRST)
    chosen = shown(images, images.values(FIRST))
    assert chosen.labels.tolist() == list(range(10)) and chosen.n_all == len(DIGITS.test)
    assert torch.equal(chosen.images, DIGITS.test.images[list(chosen.indices)])
    last = images.values({**FIRST, "of": 7, "start": 10**6})
    where = [place for place, label in enumerate(DIGITS.test.labels.tolist()) if label == 7]
    assert last.n_all == len(where) and last.start == len(where) - 1
    assert shown(images, last).indices == (where[-1],)
    unknown = {"data": "no such data", "of": 99, "start": 10, "own": ("image-0123456789abcdef", "../x")}
    assert images.values(unknown) == images.values({**FIRST, "start": 10})


def test_maps_and_predictions_are_those_of_the_model(images: Views) -> None:
    params = images.values(FIRST)
    run, model = run_of(images, params), images.core.catalog.load("digits-tiny").model
    pixels = shown(images, params).images
    inputs = (pixels.float() / 255 - DIGITS.train.mean[:, None, None]) / DIGITS.train.deviation[:, None, None]
    logits, cache = model.run_with_cache(inputs)
    np.testing.assert_allclose(run.logits, logits.detach().numpy(), atol=1e-4)
    pattern = cache[hook_names.attn(1, hook_names.PATTERN)][:, :, 0, 1:].reshape(10, 3, 4, 4)  # of [CLS], without it
    np.testing.assert_allclose(run.maps.attention()[:, 1], pattern.detach().numpy(), atol=1e-5)
    assert run_of(images, params) is run
    header, (sent, steps, tops, *_) = unpacked(packed_patches(images, LAYER, params))
    np.testing.assert_array_equal(sent, pixels.numpy().ravel())
    drawn = (steps.reshape(10, 2, 3, 17, 16) / 255 * tops.view("<f4").reshape(10, 2, 3, 17, 1))[:, 1, :, 0]
    np.testing.assert_allclose(drawn.reshape(pattern.shape), pattern.detach().numpy(), atol=0.003)
    assert header["query"] == "[CLS]" and header["only"] is None
    saved = np.load(io.BytesIO(arrays(images.workshop, LAYER, params).content))
    np.testing.assert_array_equal(saved["pattern"], run.maps.pattern)
    np.testing.assert_array_equal(saved["labels"], range(10))


def test_what_is_wrong_is_marked_and_named(images: Views) -> None:
    """Of random weights most are wrong: whatever the model gets wrong by hand, the gallery and the sentence say."""
    params = images.values(FIRST)
    run = run_of(images, params, full=True)
    wrong = [place for place, number in enumerate(run.logits.argmax(1)) if number != place]
    assert wrong and [place for place, line in enumerate(sentences(run)) if line["wrong"]] == wrong == [*run.wrong]
    names = ", ".join(str(place + 1) for place in wrong)
    said = caption(images, params)
    assert f"{10 - len(wrong)} of these 10 are recognised" in said and f"{names} " in said
    assert list(IMAGES.frame(run)["class"]) == list("0123456789")


def test_ablated_heads_write_nothing(images: Views) -> None:
    model, params = images.core.catalog.load("digits-tiny").model, images.values({**FIRST, "ablated": [[0, 1], [1, 2]]})
    ablated = run_of(images, params)
    kept = [block.attn.W_O.detach().clone() for block in model.blocks]
    try:
        with torch.no_grad():
            model.blocks[0].attn.W_O[1], model.blocks[1].attn.W_O[2] = 0, 0
            expected = model(model.to_images(shown(images, params).images))
    finally:
        with torch.no_grad():
            for block, weights in zip(model.blocks, kept, strict=True):
                block.attn.W_O.copy_(weights)
    np.testing.assert_allclose(ablated.logits, expected.numpy(), atol=1e-4)
    assert np.abs(ablated.logits - run_of(images, params, full=True).logits).max() > 1e-2
    for how in ("mean", "position_mean", "uniform", "fixed_pattern", "resample"):
        other = run_of(images, images.values({**FIRST, "ablated": [[0, 1]], "how": how}))
        assert np.abs(other.logits - ablated.logits).max() > 1e-3, how


def test_what_the_browser_says_stays_within_what_is_shown(images: Views) -> None:
    beyond = {"image": 13, "target": 77, "head": [7, 9], "patch": [4, 0], "ablated": [[0, 1], [5, 5]]}
    wild = images.values({**FIRST, **beyond})
    assert (wild.image, wild.head, wild.patch, wild.target, wild.ablated) == (9, (0, 0), None, None, ((0, 1),))
    for name, value in {"how": "nothing", "image": 99}.items():
        with refused(name, error=RequestError):
            images.values({**FIRST, name: value})


def test_own_images_come_first_and_have_no_class(images: Views) -> None:
    key = images.core.images.own.keep(picture_file())
    params = images.values({**FIRST, "own": [key]})
    own = shown(images, params)
    assert own.n_own == 1 and own.labels.tolist() == [-1, *range(10)] and params.n_images == len(own.images) == 11
    assert own.images[0, 0, 2:4, 4:7].float().mean() > 100 > own.images[0, 0, :, :2].float().mean()
    assert caption(images, params, PREDICTIONS).startswith("The full")
    line = sentences(run_of(images, params))[0]
    assert line["title"].startswith("yours") and not line["wrong"] and "of these 10" in caption(images, params)


def test_data_that_number_their_classes_get_the_names_of_the_model(image_core: Core, tmp_path: Path) -> None:
    """As an .npz of Fashion-MNIST without `classes` does, of which nobody knows that the model was trained on it."""
    named = replace(DIGITS.train, classes=tuple("abcdefghij"))
    save_images(tmp_path / "models", "lettered", processor=ImageProcessor.of(named, "letters"))
    images = service(with_images(image_core, tmp_path / "ten.npz", range(10), checkpoints=(tmp_path / "models",)))
    params = images.values({"checkpoint": "lettered", "data": "ten.npz"})
    assert params.data.classes == tuple("abcdefghij") and params.data.numbered and params.data.has_model_classes
    assert run_of(images, params).truth == tuple("abcdefghij")
    says(caption(images, params), "number their classes", "are recognised")
    digits = images.values({"checkpoint": "lettered", "data": "digits"})  # whose numbers are names
    assert run_of(images, digits).truth == tuple("0123456789")
    assert not digits.data.has_model_classes and not digits.data.numbered
    fewer = service(with_images(image_core, tmp_path / "few.npz", [0, 1]))
    few = fewer.values({"checkpoint": "digits-tiny", "data": "few.npz"})
    assert run_of(fewer, few).truth == ("0", "1")
    with refused("two classes", "two images", error=RequestError):  # one image of each class has no pair of one class
        fewer.workshop.result(CONSISTENCY, few)


def test_other_data_is_said_to_mean_nothing(image_core: Core, tmp_path: Path) -> None:
    two = {"x": np.zeros((4, 12, 12, 3), dtype=np.uint8), "y": np.array([0, 1, 0, 1])}
    file = tmp_path / "secret-place" / "shapes.npz"
    file.parent.mkdir()
    saved = {f"{name}_{side}": values for name, values in two.items() for side in ("train", "test")}
    np.savez(file, classes=np.array(["round", "square"]), **saved)
    images = service(Core.start(replace(image_core.settings, images=(f"npz:{file}",))))
    params = images.values({"checkpoint": "digits-tiny", "data": "shapes.npz"})
    assert shown(images, params).images.shape == (4, 3, 8, 8) and run_of(images, params).wrong == ()
    says(caption(images, params), "trained on digits", "mean nothing")
    assert "npz:shapes.npz" in HEAD.python(params), "a path's last part is all that a browser may know"
    assert images.values({"checkpoint": "digits-tiny"}).data.name == "digits"


@pytest.mark.parametrize("spec", ["digits", "npz:", "zip:x", "npz:/no/such/file.npz", "folder:/no/such/folder"])
def test_images_that_are_not_there_stop_the_start(spec: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such"):
        Core.start(Settings(images=(spec,)))


def test_what_reads_no_images_is_told_where_to_go(images: Views, image_core: Core) -> None:
    with refused("tiny-mhsa", "another kind", error=RequestError):
        images.values({"checkpoint": "tiny-mhsa"})
    with refused("digits-tiny", "not text", "page Images", error=RequestError):
        image_core.inference.analyse("digits-tiny", "a text")
    assert image_core.catalog.default() == "tiny-mhsa" and images.values({}).checkpoint == "digits-tiny"


def test_a_request_has_a_bound(images: Views) -> None:
    """Fewer images of a model with large patterns or long passes."""
    params = images.values(FIRST)
    sizes = {"n_ctx": 4000, "n_layers": 2, "n_heads": 2, "d_model": 64, "d_head": 32}
    large = replace(params, model={**params.model, **sizes})
    assert (params.n_shown, params.n_measured, large.n_shown) == (10, 200, 1) and large.held <= 2**28
    long = replace(params, model={**params.model, "d_mlp": 6_000_000})
    assert 1 < long.n_shown < 10 and LAYER.cost(long) <= 2e11 < LAYER.cost(long) * (long.n_shown + 1) / long.n_shown


def test_maps_of_one_query_where_all_are_too_many(images: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.shell.maps._MOST", 1000)
    params = images.values({**FIRST, "patch": [1, 2]})
    header, (_, steps, *_) = unpacked(packed_patches(images, LAYER, params))
    assert header["only"] == [[1, 2]] and steps.size == 10 * 2 * 3 * 16


def test_attention_that_is_not_finite_is_said(images: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    params = images.values(FIRST)
    run = run_of(images, params)
    broken = replace(run, maps=replace(run.maps, pattern=run.maps.pattern * np.float32("nan")))
    monkeypatch.setattr(images.workshop, "result", lambda view, params: broken)
    with refused("attention is not finite", error=RequestError):
        packed_patches(images, LAYER, params)


def test_a_vit_of_others_has_the_views_of_attention(image_core: Core, tmp_path: Path) -> None:
    """With random weights: its maps are the attentions of its own code, and its paths add up to its logits."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}
    pixels = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
    theirs = transformers.ViTForImageClassification(
        transformers.ViTConfig(**sizes, **pixels, initializer_range=0.5, attn_implementation="eager")
    ).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    scaling = tmp_path / "theirs" / "preprocessor_config.json"
    scaling.write_text('{"image_mean": [0.25], "image_std": [0.5]}', encoding="utf-8")
    import_external(tmp_path / "theirs", name="vit", into=tmp_path / "models")
    images = service(Core.start(replace(image_core.settings, checkpoints=(tmp_path / "models",))))
    form = {"checkpoint": "vit", "data": "digits", "image": 3}
    params = images.values(form)
    run = run_of(images, params)
    with torch.no_grad():
        own = theirs((shown(images, params).images.float() / 255 - 0.25) / 0.5, output_attentions=True)
    np.testing.assert_allclose(run.logits, own.logits.numpy(), atol=1e-4)
    for layer, attention in enumerate(own.attentions):
        maps = attention[:, :, 0, 1:].reshape(10, 3, 4, 4)
        np.testing.assert_allclose(run.maps.attention()[:, layer], maps.numpy(), atol=1e-5)
    assert images.workshop.result(CONSISTENCY, params).within.shape == (2, 3)
    ablated = run_of(images, images.values({**form, "ablated": [[0, 1]], "how": "mean"}))
    assert np.abs(ablated.logits - run.logits).max() > 1e-4
    patches = images.workshop.result(PATCHES, images.values({**form, "target": 4}))
    np.testing.assert_allclose(patches.logit.total[0, 0], own.logits[3, 4].numpy(), atol=1e-4)
    assert "MLPs" in PATCHES.caption(params, patches)


def test_an_address_names_what_is_there(image_core: Core) -> None:
    kept, address = image_core.images.own.keep(picture_file(mode="RGB")), PAGE.address
    search = (
        f"checkpoint=digits-tiny&data=digits&of=3&start=20&own={kept}&image=2&layer=1&head=2&patch=3.1&off=0.1,1.2"
        "&how=mean&target=4&view=weighted&order=number&tab=paths"
    )
    state, told = address.read(search, image_core)
    assert not told and (state.own, state.patch, state.ablated) == ((kept,), (3, 1), ((0, 1), (1, 2)))
    assert state.head == (1, 2), "as an older address says it"
    assert address.read(address.format(state).partition("?")[2])[0] == state
    for wrong, taken in [
        ("checkpoint=tiny-mhsa", "digits-tiny"), ("data=nothing", "left out"), ("layer=5", "0.0"),
        ("off=0.1,9.9", "0.1"), ("head=0.3", "0.0"), ("patch=4.0", "left out"),
        ("own=image-0000000000000000", "left out"), ("of=10", "left out"), ("start=360", "358"),
    ]:  # fmt: skip
        _, told = address.read(wrong, image_core)
        assert len(told) == 1 and taken in told[0], wrong
