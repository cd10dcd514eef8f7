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
from aotlens.heads import semantic_consistency
from aotlens.models import hook_names
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.factory import create_app
from app.pages.atlas import service as atlas
from app.pages.compare.address import CompareState
from app.pages.distillation import service as distillation
from app.pages.images import captions
from app.pages.images.address import ADDRESS
from app.pages.images.asking import Picked
from app.pages.images.request import ImageRequest
from app.pages.images.service_consistency import Images
from app.pages.subspaces.service_audit import AuditRequest
from app.pages.trigrams.address import TrigramsState
from tests.app.conftest import save_images, wait
from tests.app.images.conftest import picture_file
from tests.messages import refused, says

FIRST = ImageRequest(checkpoint="digits-tiny", data="digits", of=None, start=0, own=())
DIGITS = open_images("digits")


@pytest.fixture(scope="module")
def views(image_core: Core) -> Images:
    return Images(image_core)


def with_images(core: Core, file: Path, labels: Iterable[int]) -> Core:
    """The app's core with grey squares of 12 × 12 pixels beside its other images, one of each label, without names."""
    numbers = np.array(list(labels))
    squares = np.zeros((len(numbers), 12, 12), dtype=np.uint8)
    np.savez(file, x_train=squares, x_test=squares, y_train=numbers, y_test=numbers)
    return Core.start(replace(core.settings, images=(f"npz:{file}",)))


def picked(views: Images, asked: ImageRequest = FIRST, **choices: Any) -> Picked:
    shown = {**asked.to_dict(), "n": len(views.of(asked).images), "layers": 2, "heads": 3, "rows": 4, "columns": 4}
    looks = {"image": 0, "layer": 0, "head": 0, "patch": None, "off": [], "how": "zero", "target": None}
    return Picked.from_dict({**shown, **looks, **choices})


def test_one_image_of_each_class_in_turn(views: Images) -> None:
    batch = views.batch(None, None, None, 0, ())
    assert batch.asked == FIRST and batch.labels == tuple(range(10)) and batch.n_all == len(DIGITS.test)
    assert torch.equal(batch.images, DIGITS.test.images[list(batch.indices)])
    of_seven = views.batch("digits-tiny", "digits", 7, 10**6, ())
    where = [place for place, label in enumerate(DIGITS.test.labels.tolist()) if label == 7]
    assert of_seven.labels == (7,) and of_seven.indices == (where[-1],) and of_seven.n_all == len(where)
    unknown = views.batch("digits-tiny", "no such data", 99, 10, ("image-0123456789abcdef", "../x"))
    assert unknown.asked == replace(FIRST, start=10) and unknown.labels == tuple(range(10))


def test_maps_and_predictions_are_those_of_the_model(views: Images) -> None:
    batch, run = views.of(FIRST), views.run(FIRST)
    model = views.load("digits-tiny")[1].model
    inputs = (batch.images.float() / 255 - DIGITS.train.mean[:, None, None]) / DIGITS.train.deviation[:, None, None]
    logits, cache = model.run_with_cache(inputs)
    np.testing.assert_allclose(run.logits, logits.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(run.probabilities.sum(1), 1)
    pattern = cache[hook_names.attn(1, hook_names.PATTERN)][:, :, 0, 1:].reshape(10, 3, 4, 4)  # of [CLS], without it
    np.testing.assert_allclose(run.maps.attention()[:, 1], pattern.detach().numpy(), atol=1e-5)
    assert views.run(FIRST) is run


def test_heads_that_are_off_write_nothing(views: Images) -> None:
    model = views.load("digits-tiny")[1].model
    without = views.run(FIRST, ((0, 1), (1, 2)), "zero")
    kept = [block.attn.W_O.detach().clone() for block in model.blocks]
    try:
        with torch.no_grad():
            model.blocks[0].attn.W_O[1], model.blocks[1].attn.W_O[2] = 0, 0
            expected = model(model.to_images(views.of(FIRST).images))
    finally:
        with torch.no_grad():
            for block, weights in zip(model.blocks, kept, strict=True):
                block.attn.W_O.copy_(weights)
    np.testing.assert_allclose(without.logits, expected.numpy(), atol=1e-4)
    assert np.abs(without.logits - views.run(FIRST).logits).max() > 1e-2
    for how in ("mean", "position_mean", "uniform", "fixed_pattern", "resample"):
        other = views.run(FIRST, ((0, 1),), how)
        assert np.abs(other.logits - without.logits).max() > 1e-3, how
    says(captions.without(without), "0.1, 1.2 ablated by zero")


def test_paths_add_up_to_the_logit(views: Images) -> None:
    chosen = picked(views, image=3)
    found, target = views.contributions(FIRST, 3), chosen.class_of(views)
    assert target == int(views.run(FIRST).logits[3].argmax()) and picked(views, image=3, target=5).class_of(views) == 5
    parts, place = found.logit, found.place(target)
    total = parts.patches[0, place].sum() + parts.class_token[0, place] + parts.positions[0, place]
    assert total + parts.biases[0, place] == pytest.approx(views.run(FIRST).logits[3, target], abs=1e-3)
    assert f"{views.run(FIRST).logits[3, target]:+.3f}" in captions.of_paths(found, place, str(target))[0]
    asked = views.batch("digits-vit", None, None, 0, ()).asked
    found = views.contributions(asked, 0)
    assert f"MLPs {found.logit.mlps[0, 2]:+.3f}" in captions.of_paths(found, 2, "2")[0]
    np.testing.assert_allclose(found.logit.total[0], views.run(asked).logits[0], atol=1e-3)


def test_consistency_is_of_every_head(views: Images) -> None:
    consistencies = views.consistencies
    with pytest.raises(RequestError, match="isn't measured yet"):
        consistencies.made(FIRST)
    found = wait(consistencies.start(FIRST)).result
    assert found.within.shape == (2, 3) and found.n_images == 40
    assert sorted(found.ranking()) == [(layer, head) for layer in range(2) for head in range(3)]
    assert consistencies.made(replace(FIRST, start=20)) is found
    model, chosen = views.load("digits-tiny")[1].model, DIGITS.test.take(DIGITS.test.by_turns()[:40])
    own = semantic_consistency(model, model.to_images(chosen.images), chosen.labels, n_permutations=200)
    np.testing.assert_allclose(found.within, own.within)


def test_consistency_that_cannot_be_measured_says_why(image_core: Core, tmp_path: Path) -> None:
    """One image of each class has no pair of one class."""
    views = Images(with_images(image_core, tmp_path / "few.npz", labels=[0, 1]))
    job = wait(views.consistencies.start(views.batch("digits-tiny", "few.npz", None, 0, ()).asked))
    assert job.state == "failed"
    says(job.error, "two classes", "two images")
    with pytest.raises(RequestError, match="isn't measured yet"):
        views.consistencies.made(ImageRequest(checkpoint="digits-tiny", data="few.npz", of=None, start=0, own=()))


def test_data_that_number_their_classes_get_the_names_of_the_model(image_core: Core, tmp_path: Path) -> None:
    """As an .npz of Fashion-MNIST without `classes` does, of which nobody knows that the model was trained on it."""
    named = replace(DIGITS.train, classes=tuple("abcdefghij"))
    save_images(tmp_path / "models", "lettered", processor=ImageProcessor.of(named, "letters"))
    core = with_images(image_core, tmp_path / "ten.npz", labels=range(10))
    views = Images(Core.start(replace(core.settings, checkpoints=(tmp_path / "models",))))
    batch = views.batch("lettered", "ten.npz", None, 0, ())
    assert batch.names == tuple("abcdefghij") and batch.are_names_lent and views.knows(batch)
    said = captions.of_batch(batch, "letters", True, views.run(batch.asked))
    assert "number their classes" in said and "are recognised" in said
    digits = views.batch("lettered", "digits", None, 0, ())  # whose numbers are names
    assert digits.names == tuple("0123456789") and not views.knows(digits) and not digits.are_names_lent
    fewer = Images(with_images(image_core, tmp_path / "few.npz", labels=[0, 1]))
    assert fewer.batch("digits-tiny", "few.npz", None, 0, ()).names == ("0", "1")


def test_what_the_browser_says_stays_within_what_is_shown(views: Images) -> None:
    wild = picked(views, image=99, layer=7, head=9, patch=[4, 0], off=[[0, 1], [5, 5]], target=77)
    assert (wild.image, wild.layer, wild.head, wild.patch, wild.off) == (9, 1, 2, None, ((0, 1),))
    assert wild.class_of(views) == int(views.run(FIRST).logits[9].argmax())


def test_own_images_come_first_and_have_no_class(views: Images) -> None:
    key = views.core.images.own.keep(picture_file())
    batch = views.batch("digits-tiny", "digits", None, 0, (key,))
    assert batch.n_own == 1 and batch.labels == (None, *range(10)) and len(batch.images) == 11
    assert batch.images[0, 0, 2:4, 4:7].float().mean() > 100 > batch.images[0, 0, :, :2].float().mean()
    known = views.knows(batch)
    said = captions.of_prediction(
        batch, 0, views.classes("digits-tiny"), known, views.run(batch.asked), views.run(batch.asked)
    )
    assert known and said.startswith("The whole model")


def test_other_data_is_said_to_mean_nothing(image_core: Core, tmp_path: Path) -> None:
    two = {"x": np.zeros((4, 12, 12, 3), dtype=np.uint8), "y": np.array([0, 1, 0, 1])}
    file = tmp_path / "secret-place" / "shapes.npz"
    file.parent.mkdir()
    arrays = {f"{name}_{side}": values for name, values in two.items() for side in ("train", "test")}
    np.savez(file, classes=np.array(["round", "square"]), **arrays)
    views = Images(Core.start(replace(image_core.settings, images=(f"npz:{file}",))))
    assert views.core.images.names[-1] == "shapes.npz" and views.core.images.spec("shapes.npz") == "npz:shapes.npz"
    batch = views.batch("digits-tiny", "shapes.npz", None, 0, ())
    assert batch.images.shape == (4, 3, 8, 8) and batch.names == ("round", "square") and not views.knows(batch)
    said = captions.of_batch(batch, "digits", False, views.run(batch.asked))
    assert "trained on digits" in said and "mean nothing" in said
    assert views.batch("digits-tiny", None, None, 0, ()).asked.data == "digits"


@pytest.mark.parametrize("spec", ["digits", "npz:", "zip:x", "npz:/no/such/file.npz", "folder:/no/such/folder"])
def test_images_that_are_not_there_stop_the_start(spec: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such"):
        Core.start(Settings(images=(spec,)))


def test_what_reads_no_images_is_told_where_to_go(views: Images, image_core: Core) -> None:
    with pytest.raises(RequestError, match="page Heads"):
        views.load("tiny-mhsa")
    with pytest.raises(RequestError, match="page Images"):
        image_core.inference.analyse("digits-tiny", "a text")
    assert image_core.catalog.default() == "tiny-mhsa" and image_core.catalog.default_of_images() == "digits-tiny"
    nothing = Images(Core.start(Settings(checkpoints=(), device="cpu")))
    with refused("No checkpoint", "images", error=RequestError):
        nothing.load(None)


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
    views = Images(Core.start(replace(image_core.settings, checkpoints=(tmp_path / "models",))))
    batch = views.batch("vit", "digits", None, 0, ())
    run = views.run(batch.asked)
    with torch.no_grad():
        own = theirs((batch.images.float() / 255 - 0.25) / 0.5, output_attentions=True)
    np.testing.assert_allclose(run.logits, own.logits.numpy(), atol=1e-4)
    for layer, attention in enumerate(own.attentions):
        maps = attention[:, :, 0, 1:].reshape(10, 3, 4, 4)
        np.testing.assert_allclose(run.maps.attention()[:, layer], maps.numpy(), atol=1e-5)
    assert wait(views.consistencies.start(batch.asked)).result.within.shape == (2, 3)
    assert np.abs(views.run(batch.asked, ((0, 1),), "mean").logits - run.logits).max() > 1e-4
    parts = views.contributions(batch.asked, 3).logit
    np.testing.assert_allclose(parts.total[0], own.logits[3].numpy(), atol=1e-4)


def test_services_of_text_say_where_models_of_images_are_shown(image_core: Core) -> None:
    """What a panel of every other page says of one: the services' own sentence, not an error."""
    services = create_app(image_core.settings, image_core).services
    name = "digits-tiny"
    asked: dict[str, Callable[[], object]] = {
        "heads": lambda: image_core.inference.analyse(name, "a text"),
        "atlas": lambda: services["atlas"].start(atlas.Order(checkpoint=name, corpus="", tokens=100)),
        "compare": lambda: services["compare"].panes(services["compare"].asked_of(CompareState(left=name))),
        "distillation": lambda: services["distillation"].start(
            distillation.Order(checkpoint=name, corpus="", hidden=(4,), heads=None, seeds=1, tokens=100, costs=False)
        ),
        "paths": lambda: services["paths"].values({"checkpoint": name, "text": "a text"}),
        "subspaces": lambda: services["subspaces"].audits.start(AuditRequest(checkpoint=name, corpus="", draws=5)),
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
