"""A vision transformer as Hugging Face saves it: its own logits and attentions, its pixels, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import aotlens
from aotlens.checkpoints import CheckpointError, import_external
from aotlens.heads import image_maps
from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import patch_contributions
from tests.interop.external.conftest import noisy, write_json
from tests.messages import refused

_PIXELS = {"do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255, "image_mean": [0.4, 0.5, 0.6],
           "image_std": [0.2, 0.3, 0.4]}  # fmt: skip


def config(**changes: Any) -> transformers.ViTConfig:
    sizes: dict[str, Any] = {
        "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10, "image_size": 9,
        "patch_size": 3, "num_channels": 3, "num_labels": 4, "layer_norm_eps": 1e-3,
        "id2label": {0: "cat", 1: "dog", 2: "rat", 3: "owl"}, "attn_implementation": "eager",
    }  # fmt: skip
    return transformers.ViTConfig(**{**sizes, **changes})


def save(folder: Path, **changes: Any) -> transformers.ViTForImageClassification:
    """One of random weights in a folder, with the file that says how pixels are read."""
    torch.manual_seed(0)
    model = noisy(transformers.ViTForImageClassification(config(**changes)))
    model.save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", _PIXELS)
    return model


def changed(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    write_json(path, {**json.loads(path.read_text()), **settings})


@pytest.mark.parametrize("changes", [{}, {"num_channels": 1, "hidden_act": "relu"}], ids=str)
def test_its_logits_and_attentions_are_those_of_its_own_code(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = save(tmp_path, **changes)
    if changes:
        write_json(tmp_path / "preprocessor_config.json", {"image_mean": 0.5, "image_std": [0.25]})
    images = torch.randn(2, theirs.config.num_channels, 9, 9)
    expected = theirs(images, output_attentions=True)
    model = aotlens.load(tmp_path)
    assert isinstance(model, AttentionOnlyTransformer)
    torch.testing.assert_close(model(images), expected.logits, atol=1e-5, rtol=1e-5)
    maps = image_maps(model, images)
    for layer, attention in enumerate(expected.attentions):
        np.testing.assert_allclose(maps.pattern[:, layer], attention.detach().numpy(), atol=1e-6)
    parts = patch_contributions(model, images)
    np.testing.assert_allclose(parts.logit.total, expected.logits.detach().numpy(), atol=1e-4)


def test_a_distillation_token_is_a_position_before_the_patches(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {name: getattr(config(), name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads",
             "intermediate_size", "image_size", "patch_size", "id2label", "layer_norm_eps")}  # fmt: skip
    theirs = noisy(transformers.DeiTForImageClassification(
        transformers.DeiTConfig(**sizes, attn_implementation="eager")
    ))  # fmt: skip
    theirs.save_pretrained(tmp_path)
    write_json(tmp_path / "preprocessor_config.json", _PIXELS)
    images = torch.randn(2, 3, 9, 9)
    expected = theirs(images, output_attentions=True)
    model = aotlens.load(tmp_path)
    torch.testing.assert_close(model(images), expected.logits, atol=1e-5, rtol=1e-5)
    maps = image_maps(model, images)
    of_class = torch.stack([attention[:, :, 0] for attention in expected.attentions], 1).detach().numpy()
    np.testing.assert_allclose(maps.attention(None).reshape(2, 2, 3, 9), of_class[..., 2:], atol=1e-6)
    np.testing.assert_allclose(maps.to_class_token(None), of_class[..., :2].sum(-1), atol=1e-6)
    parts = patch_contributions(model, images)
    np.testing.assert_allclose(parts.logit.total, expected.logits.detach().numpy(), atol=1e-4)
    names = aotlens.heads.attention_patterns(model, images[0]).str_tokens
    assert names[:3] == ("[CLS]", "[distillation]", "0, 0")


def test_pixels_are_read_as_its_own_code_reads_them(tmp_path: Path) -> None:
    save(tmp_path)
    processor = aotlens.load(tmp_path).image_processor
    assert processor is not None and processor.classes == ("cat", "dog", "rat", "owl")
    pixels = torch.randint(256, (1, 3, 9, 9), dtype=torch.uint8)
    own = transformers.ViTImageProcessorPil(
        size={"height": 9, "width": 9}, image_mean=_PIXELS["image_mean"], image_std=_PIXELS["image_std"]
    )
    image = Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
    expected = torch.from_numpy(np.asarray(own(image, return_tensors="np")["pixel_values"]))
    torch.testing.assert_close(processor.encode(pixels, 9), expected.float(), atol=1e-5, rtol=1e-5)


def test_it_becomes_a_checkpoint_whose_difference_to_its_own_code_is_said(tmp_path: Path) -> None:
    theirs = save(tmp_path / "vit")
    made = import_external(tmp_path / "vit", name="ours", into=tmp_path)
    assert made.comparison.difference is not None and made.comparison.difference < 1e-5
    assert "transformers" in made.comparison.sentence and "an image of noise" in made.comparison.sentence
    again = aotlens.load(tmp_path / "ours")
    pixels = torch.randint(256, (2, 3, 9, 9), dtype=torch.uint8)
    torch.testing.assert_close(again(pixels), theirs(again.to_images(pixels)).logits, atol=1e-5, rtol=1e-5)
    assert again.image_processor.classes == ("cat", "dog", "rat", "owl")


def test_what_nobody_said_about_pixels_is_warned_of(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.warns(UserWarning, match="comes without preprocessor_config"):
        processor = aotlens.load(tmp_path).image_processor
    assert processor is not None and processor.encode(torch.full((1, 3, 9, 9), 255, dtype=torch.uint8)).max() == 1
    for wrong in ({"do_rescale": False}, {"rescale_factor": 1 / 127.5}, {"image_mean": [0.5], "image_std": [0.5]}):
        write_json(tmp_path / "preprocessor_config.json", wrong)
        with pytest.warns(UserWarning, match="comes without an image processor"):
            assert aotlens.load(tmp_path).image_processor is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_attention_heads": 5}, "num_attention_heads=5 for hidden_size=12"),
        ({"num_attention_heads": "3"}, "expected a whole number from 1 on"),
        ({"hidden_act": "quick_gelu"}, "hidden_act='quick_gelu'"),
        ({"model_type": "beit"}, "model_type='beit'"),
    ],
)
def test_what_is_outside_the_family_is_refused_by_name(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    save(tmp_path)
    changed(tmp_path, **settings)
    with pytest.raises(CheckpointError, match=said):
        aotlens.load(tmp_path)


def test_a_vit_without_classes_is_refused_by_name(tmp_path: Path) -> None:
    transformers.ViTModel(config()).save_pretrained(tmp_path)
    with refused("classifier.weight", error=CheckpointError):
        aotlens.load(tmp_path)


@pytest.mark.filterwarnings("ignore:.*the file does not state")
def test_what_no_shape_tells_is_asked_for(tmp_path: Path) -> None:
    theirs = save(tmp_path)
    (tmp_path / "config.json").unlink()
    file = tmp_path / "model.safetensors"
    with refused("num_attention_heads", "hidden_act", error=CheckpointError):
        aotlens.load(file)
    model = aotlens.load(file, config={"num_attention_heads": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-3})
    images = torch.randn(1, 3, 9, 9)
    torch.testing.assert_close(model(images), theirs(images).logits, atol=1e-5, rtol=1e-5)
    assert model.image_processor.classes == ("0", "1", "2", "3")
