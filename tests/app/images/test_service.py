"""Which images are shown and what a model does with them, against runs of the model by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.factory import create_app
from app.pages.atlas.service import AtlasRequest
from app.pages.images import callbacks
from app.pages.images.address import ADDRESS
from app.pages.images.ids import VIEWS, ids
from app.pages.images.maps import packed, sayings
from app.pages.images.service import ImageRequest, Images
from app.pages.trigrams.address import TrigramsState
from tests.app.conftest import save_images
from tests.app.images.conftest import picture_file
from tests.messages import refused, says
from tests.widget.decoded import unpacked

FIRST = {"checkpoint": "digits-tiny", "data": "digits"}
DIGITS = open_images("digits")


@pytest.fixture(scope="module")
def images(image_core: Core) -> Images:
    return Images(image_core)


def with_images(core: Core, file: Path, labels: Iterable[int]) -> Core:
    """The app's core with grey squares of 12 × 12 pixels beside its other images, one of each label, without names."""
    numbers = np.array(list(labels))
    squares = np.zeros((len(numbers), 12, 12), dtype=np.uint8)
    np.savez(file, x_train=squares, x_test=squares, y_train=numbers, y_test=numbers)
    return Core.start(replace(core.settings, images=(f"npz:{file}",)))


def shown(images: Images, panel: str, chosen: ImageRequest) -> Any:
    return images.workshop.result(VIEWS[panel], chosen)


def recognised(images: Images, chosen: ImageRequest) -> str:
    return callbacks.says_recognised(images, chosen, images.run(chosen, full=True))


def test_one_image_of_each_class_in_turn(images: Images) -> None:
    assert images.values({}) == images.values(FIRST)
    chosen = images.chosen(images.values(FIRST))
    assert chosen.labels.tolist() == list(range(10)) and chosen.n_all == len(DIGITS.test)
    assert torch.equal(chosen.images, DIGITS.test.images[list(chosen.indices)])
    of_seven = images.chosen(images.values({**FIRST, "of": "7", "start": 10**6}))
    where = [place for place, label in enumerate(DIGITS.test.labels.tolist()) if label == 7]
    assert of_seven.indices == (where[-1],) and of_seven.n_all == len(where)
    unknown = images.values({"data": "no such data", "of": 99, "start": 10, "own": ("image-0123456789abcdef", "../x")})
    assert unknown == images.values({**FIRST, "start": 10})


def test_maps_and_predictions_are_those_of_the_model(images: Images) -> None:
    chosen = images.values(FIRST)
    run, model = images.run(chosen), images.load("digits-tiny")[1].model
    pixels = images.chosen(chosen).images
    inputs = (pixels.float() / 255 - DIGITS.train.mean[:, None, None]) / DIGITS.train.deviation[:, None, None]
    logits, cache = model.run_with_cache(inputs)
    np.testing.assert_allclose(run.logits, logits.detach().numpy(), atol=1e-4)
    pattern = cache[hook_names.attn(1, hook_names.PATTERN)][:, :, 0, 1:].reshape(10, 3, 4, 4)  # of [CLS], without it
    np.testing.assert_allclose(run.maps.attention()[:, 1], pattern.detach().numpy(), atol=1e-5)
    assert images.run(chosen) is run
    header, (sent, steps, tops, *_) = unpacked(packed(images, chosen))
    np.testing.assert_array_equal(sent, pixels.numpy().ravel())
    drawn = (steps.reshape(10, 2, 3, 17, 16) / 255 * tops.view("<f4").reshape(10, 2, 3, 17, 1))[:, 1, :, 0]
    np.testing.assert_allclose(drawn.reshape(pattern.shape), pattern.detach().numpy(), atol=0.003)
    assert header["query"] == "[CLS]" and header["only"] is None


def test_what_is_wrong_is_marked_and_named(images: Images) -> None:
    """Of random weights most are wrong: whatever the model gets wrong by hand, the gallery and the sentence say."""
    chosen = images.values(FIRST)
    best = images.run(chosen).logits.argmax(1)
    wrong = [place for place, number in enumerate(best) if number != place]
    assert wrong and [place for place, said in enumerate(sayings(images, chosen)) if said["wrong"]] == wrong
    names = ", ".join(str(place + 1) for place in wrong)
    said = recognised(images, chosen)
    assert f"{10 - len(wrong)} of these 10 are recognised" in said and f"{names} " in said


def test_ablated_heads_write_nothing(images: Images) -> None:
    model, chosen = images.load("digits-tiny")[1].model, images.values({**FIRST, "off": [[0, 1], [1, 2]]})
    ablated = images.run(chosen)
    kept = [block.attn.W_O.detach().clone() for block in model.blocks]
    try:
        with torch.no_grad():
            model.blocks[0].attn.W_O[1], model.blocks[1].attn.W_O[2] = 0, 0
            expected = model(model.to_images(images.chosen(chosen).images))
    finally:
        with torch.no_grad():
            for block, weights in zip(model.blocks, kept, strict=True):
                block.attn.W_O.copy_(weights)
    np.testing.assert_allclose(ablated.logits, expected.numpy(), atol=1e-4)
    assert np.abs(ablated.logits - images.run(chosen, full=True).logits).max() > 1e-2
    for how in ("mean", "position_mean", "uniform", "fixed_pattern", "resample"):
        other = images.run(images.values({**FIRST, "off": [[0, 1]], "how": how}))
        assert np.abs(other.logits - ablated.logits).max() > 1e-3, how
    with refused("how", error=RequestError):
        images.run(images.values({**FIRST, "off": [[0, 1]], "how": "nothing"}))


def test_what_the_browser_says_stays_within_what_is_shown(images: Images) -> None:
    wild = images.values({**FIRST, "image": 99, "off": [[0, 1], [5, 5]], "target": 77}, [7, 9], [4, 0])
    assert (wild.image, wild.head, wild.patch, wild.ablated, wild.target) == (9, (1, 2), None, ((0, 1),), None)


def test_own_images_come_first_and_have_no_class(images: Images) -> None:
    key = images.core.images.own.keep(picture_file())
    chosen = images.values({**FIRST, "own": (key,)})
    own = images.chosen(chosen)
    assert own.n_own == 1 and own.labels.tolist() == [-1, *range(10)] and chosen.n_images == len(own.images) == 11
    assert own.images[0, 0, 2:4, 4:7].float().mean() > 100 > own.images[0, 0, :, :2].float().mean()
    assert callbacks.predict(images, chosen, shown(images, ids.PREDICTIONS, chosen))["caption"].startswith("The full")
    assert sayings(images, chosen)[0]["title"].startswith("yours") and "of these 10" in recognised(images, chosen)


def test_data_that_number_their_classes_get_the_names_of_the_model(image_core: Core, tmp_path: Path) -> None:
    """As an .npz of Fashion-MNIST without `classes` does, of which nobody knows that the model was trained on it."""
    named = replace(DIGITS.train, classes=tuple("abcdefghij"))
    save_images(tmp_path / "models", "lettered", processor=ImageProcessor.of(named, "letters"))
    core = with_images(image_core, tmp_path / "ten.npz", labels=range(10))
    images = Images(Core.start(replace(core.settings, checkpoints=(tmp_path / "models",))))
    chosen = images.values({"checkpoint": "lettered", "data": "ten.npz"})
    assert chosen.names == tuple("abcdefghij") and chosen.are_names_lent and chosen.is_known
    said = recognised(images, chosen)
    assert "number their classes" in said and "are recognised" in said
    digits = images.values({"checkpoint": "lettered", "data": "digits"})  # whose numbers are names
    assert digits.names == tuple("0123456789") and not digits.is_known and not digits.are_names_lent
    fewer = Images(with_images(image_core, tmp_path / "few.npz", labels=[0, 1]))
    few = fewer.values({"checkpoint": "digits-tiny", "data": "few.npz"})
    assert few.names == ("0", "1")
    with refused("two classes", "two images", error=RequestError):  # one image of each class has no pair of one class
        shown(fewer, ids.CONSISTENCY, few)


def test_other_data_is_said_to_mean_nothing(image_core: Core, tmp_path: Path) -> None:
    two = {"x": np.zeros((4, 12, 12, 3), dtype=np.uint8), "y": np.array([0, 1, 0, 1])}
    file = tmp_path / "secret-place" / "shapes.npz"
    file.parent.mkdir()
    arrays = {f"{name}_{side}": values for name, values in two.items() for side in ("train", "test")}
    np.savez(file, classes=np.array(["round", "square"]), **arrays)
    images = Images(Core.start(replace(image_core.settings, images=(f"npz:{file}",))))
    chosen = images.values({"checkpoint": "digits-tiny", "data": "shapes.npz"})
    assert images.chosen(chosen).images.shape == (4, 3, 8, 8) and not chosen.is_known
    says(recognised(images, chosen), "trained on digits", "mean nothing")
    assert "npz:shapes.npz" in VIEWS[ids.MAPS].python(chosen), "a path's last part is all that a browser may know"
    assert images.values({"checkpoint": "digits-tiny"}).called == "digits"


@pytest.mark.parametrize("spec", ["digits", "npz:", "zip:x", "npz:/no/such/file.npz", "folder:/no/such/folder"])
def test_images_that_are_not_there_stop_the_start(spec: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such"):
        Core.start(Settings(images=(spec,)))


def test_what_reads_no_images_is_told_where_to_go(images: Images, image_core: Core) -> None:
    with pytest.raises(RequestError, match="page Heads"):
        images.load("tiny-mhsa")
    with pytest.raises(RequestError, match="page Images"):
        image_core.inference.analyse("digits-tiny", "a text")
    assert image_core.catalog.default() == "tiny-mhsa" and image_core.catalog.default_of_images() == "digits-tiny"
    nothing = Images(Core.start(Settings(checkpoints=(), device="cpu")))
    with refused("No checkpoint", "images", error=RequestError):
        nothing.load(None)


def test_a_request_has_a_bound(image_core: Core) -> None:
    """Fewer images of a model whose passes take long, and at last a refusal."""
    small = Images(Core.start(replace(image_core.settings, max_operations=1.5e6)))
    chosen = small.values(FIRST)
    assert 1 < chosen.n_shown < 10 and VIEWS[ids.GRID].cost(chosen) <= 1.5e6 < VIEWS[ids.GRID].cost(
        replace(chosen, n_images=chosen.n_images + 1)
    )
    with refused("operations", error=RequestError):
        small.run(small.values({**FIRST, "off": [[0, 0]], "how": "mean"}))
    assert small.workshop.waits(VIEWS[ids.CONSISTENCY], chosen), "it is started, and can be stopped"


def test_maps_of_one_query_where_all_are_too_many(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.pages.images.maps._MOST", 1000)
    chosen = images.values(FIRST, patch=[1, 2])
    header, (_, steps, *_) = unpacked(packed(images, chosen))
    assert header["only"] == [[1, 2]] and steps.size == 10 * 2 * 3 * 16


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
    images = Images(Core.start(replace(image_core.settings, checkpoints=(tmp_path / "models",))))
    form = {"checkpoint": "vit", "data": "digits", "image": 3}
    chosen = images.values(form)
    run = images.run(chosen)
    with torch.no_grad():
        own = theirs((images.chosen(chosen).images.float() / 255 - 0.25) / 0.5, output_attentions=True)
    np.testing.assert_allclose(run.logits, own.logits.numpy(), atol=1e-4)
    for layer, attention in enumerate(own.attentions):
        maps = attention[:, :, 0, 1:].reshape(10, 3, 4, 4)
        np.testing.assert_allclose(run.maps.attention()[:, layer], maps.numpy(), atol=1e-5)
    assert shown(images, ids.CONSISTENCY, chosen).within.shape == (2, 3)
    assert np.abs(images.run(images.values({**form, "off": [[0, 1]], "how": "mean"})).logits - run.logits).max() > 1e-4
    patches = shown(images, ids.PATHS, images.values({**form, "target": "4"}))
    np.testing.assert_allclose(patches.logit.total[0, 0], own.logits[3, 4].numpy(), atol=1e-4)
    assert "MLPs" in VIEWS[ids.PATHS].caption(chosen, patches)


def test_services_of_text_say_where_models_of_images_are_shown(image_core: Core) -> None:
    """What a panel of every other page says of one: the services' own sentence, not an error."""
    services = create_app(image_core.settings, image_core).services
    name = "digits-tiny"
    asked: dict[str, Callable[[], object]] = {
        "heads": lambda: image_core.inference.analyse(name, "a text"),
        "atlas": lambda: services["atlas"].start(AtlasRequest(checkpoint=name, corpus="", tokens=100)),
    }
    for page, ask in asked.items():
        with refused("digits-tiny", "not text", "page Images", error=RequestError):
            ask()
            pytest.fail(page)
    says(
        services["trigrams"].of_address(TrigramsState(checkpoint=name)).problem,
        "digits-tiny",
        "not text",
        "page Images",
    )


def test_an_address_names_what_is_there(image_core: Core) -> None:
    kept = image_core.images.own.keep(picture_file(mode="RGB"))
    search = (
        f"checkpoint=digits-tiny&data=digits&of=3&start=20&own={kept}&image=2&layer=1&head=2&patch=3.1&off=0.1,1.2"
        "&how=mean&target=4&view=weighted&order=number&tab=paths"
    )
    state, sentences = ADDRESS.read(search, image_core)
    assert not sentences and (state.own, state.patch, state.off) == ((kept,), (3, 1), ((0, 1), (1, 2)))
    assert ADDRESS.read(ADDRESS.format(state).partition("?")[2])[0] == state
    for wrong, taken in [
        ("checkpoint=tiny-mhsa", "digits-tiny"), ("data=nothing", "left out"), ("layer=5", "1"), ("head=3", "0"),
        ("patch=4.0", "left out"), ("off=0.1,9.9", "0.1"), ("own=image-0000000000000000", "left out"),
    ]:  # fmt: skip
        _, said = ADDRESS.read(wrong, image_core)
        assert len(said) == 1 and taken in said[0], wrong
