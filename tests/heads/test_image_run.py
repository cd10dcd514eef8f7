"""Maps, motifs and logits of images, against the model's own patterns and loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.special
import torch
import transformers
from torch import Tensor
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from aotlens.data.images import ImageProcessor
from aotlens.heads import MOTIFS, ImageRun, attention_to, image_maps, image_run, motif_scores, motifs_of
from aotlens.heads.patch_grid import PatchGrid
from aotlens.heads.source_code import standing_out
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names
from tests.image_models import MEAN_POOLED, make, plant, random_images
from tests.messages import refused
from tests.small_models import SMALL, maker

PIXELS = torch.randint(256, (4, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def with_processor(**rest: object) -> AttentionOnlyTransformer:
    model = make(**rest)
    model.image_processor = ImageProcessor(mean=(0.4,) * 3, deviation=(0.2,) * 3, classes=tuple("abcd"))
    return model


@pytest.fixture(scope="module")
def model() -> AttentionOnlyTransformer:
    return with_processor(init_std=0.6)


@pytest.fixture(scope="module")
def run(model: AttentionOnlyTransformer) -> ImageRun:
    return image_run(model, PIXELS)


def test_a_head_and_a_layer_are_rows_of_the_pattern(model: AttentionOnlyTransformer, run: ImageRun) -> None:
    logits, cache = model.run_with_cache((PIXELS.float() / 255 - 0.4) / 0.2)
    pattern = cache[hook_names.attn(1, hook_names.PATTERN)].detach().numpy()  # [image, head, query, key], [CLS] first
    lengths = cache[hook_names.attn(1, hook_names.V)].norm(dim=-1).detach().numpy()  # [image, pos, head]
    np.testing.assert_allclose(run.logits, logits.detach().numpy(), atol=1e-5)
    patch = 1 + 2 * 3 + 1  # row 2, column 1, after [CLS]
    head = run.head("1.1", 3, (2, 1))
    np.testing.assert_allclose(head.attention.ravel(), pattern[3, 1, patch, 1:], atol=1e-6)
    np.testing.assert_allclose(head.value_weighted.ravel(), pattern[3, 1, patch, 1:] * lengths[3, 1:, 1], atol=1e-5)
    layer = run.layer(1, quantity="value_weighted")
    expected = pattern[:, :, 0, 1:] * lengths[:, 1:].transpose(0, 2, 1)
    np.testing.assert_allclose(layer.values.reshape(4, 2, 9), expected, atol=1e-5)
    frame = layer.to_frame().set_index(["image", "head", "row", "column"])["value_weighted"]
    assert frame[3, 1, 2, 1] == layer.values[3, 1, 2, 1]
    assert list(head.to_frame().columns) == ["row", "column", "attention", "value_weighted", "rollout"]


def test_predictions_with_and_without_heads(model: AttentionOnlyTransformer, run: ImageRun) -> None:
    ablated = image_run(model, PIXELS, ["0.1", "2.0"])
    cut = with_processor(init_std=0.6)
    cut.load_state_dict(model.state_dict())
    with torch.no_grad():
        cut.blocks[0].attn.W_O[1], cut.blocks[2].attn.W_O[0] = 0, 0
        expected = cut(cut.to_images(PIXELS)).double().numpy()
    predictions = run.predictions(2, ablated)
    np.testing.assert_allclose(predictions.ablated, scipy.special.softmax(expected, -1)[2], atol=1e-6)
    np.testing.assert_allclose(predictions.probabilities, scipy.special.softmax(run.logits[2]), atol=1e-12)
    assert predictions.n_changed == int((expected.argmax(1) != run.logits.argmax(1)).sum())
    assert predictions.best()[0] == "abcd"[run.logits[2].argmax()]
    assert list(predictions.to_frame().columns) == ["class", "logit", "probability", "probability_ablated"]
    means = image_run(model, PIXELS, "0.1", "mean", reference=PIXELS.flip(0))
    assert np.abs(means.logits - ablated.logits).max() > 1e-4


def test_attention_with_a_sign_has_no_rollout() -> None:
    head = image_run(with_processor(phi="linear"), PIXELS).head((0, 1))
    assert head.rollout is None and "rollout" not in head.to_frame() and (head.attention < 0).any()


def test_labels_say_what_is_wrong(model: AttentionOnlyTransformer) -> None:
    best = image_run(model, PIXELS).predicted
    labels = torch.tensor([best[0], (best[1] + 1) % 4, -1, best[3]])
    run = image_run(model, PIXELS, labels=labels)
    assert run.truth == ("abcd"[best[0]], "abcd"[labels[1]], None, "abcd"[best[3]]) and run.wrong == (1,)
    assert run.predictions(1).truth == run.truth[1]
    assert list(run.to_frame()["class"].dropna()) == [*run.truth[:2], run.truth[3]]
    other = image_run(model, PIXELS, labels=labels, label_names="wxyz")
    assert other.truth[0] == "wxyz"[best[0]] and other.wrong == () and not other.has_model_classes
    with refused("labels", "4 images"):
        image_run(model, PIXELS, labels=labels + 4)


@pytest.mark.unchecked
def test_every_image_has_a_label_or_none_has(model: AttentionOnlyTransformer) -> None:
    with refused("labels", "4 images"):
        image_run(model, PIXELS, labels=torch.tensor([0, 1]))


def test_what_there_is_not_is_refused(model: AttentionOnlyTransformer, run: ImageRun) -> None:
    with refused("image=4", "from 0 to 3"):
        run.head("0.0", 4)
    with refused("head 3.0", "layers 0 to 2"):
        run.head("3.0")
    with refused("layer=3"):
        run.layer(3)
    with refused("quantity", "value_weighted"):
        run.layer(0, quantity="values")
    with refused("image=9"):
        run.predictions(9)
    with refused("'mean'", "reference"):
        image_run(model, PIXELS, "0.1", "mean")
    with refused("image processor"):
        image_run(make(), PIXELS)
    with refused("each of the model's 5 classes", "has 4"):
        image_run(with_processor(d_out=5), PIXELS)
    with refused("reads out classes", "vectors"):
        image_run(with_processor(read_out="vectors", pooling=None), PIXELS)


@pytest.mark.parametrize("changes", [{}, MEAN_POOLED, {"d_mlp": 7}, {"attention": "mssa"}], ids=str)
def test_maps_are_rows_of_the_patterns_of_each_image_alone(changes: dict[str, object]) -> None:
    model, images = make(**changes), random_images(5)
    maps = image_maps(model, images, batch_size=2)
    before = int(model.cfg.class_token)
    assert maps.has_class_token == bool(before)
    assert maps.query_name == ("[CLS]" if before else "mean over queries")
    for index, image in enumerate(images):
        _, cache = model.run_with_cache(image[None])
        for layer in range(3):
            pattern = cache[hook_names.attn(layer, hook_names.PATTERN)][0]
            norms = cache[hook_names.attn(layer, hook_names.V)][0].norm(dim=-1).T
            row = pattern[:, 0] if before else pattern.mean(1)
            torch.testing.assert_close(
                torch.from_numpy(maps.attention()[index, layer]), row[:, before:].unflatten(-1, (3, 3))
            )
            at = before + 2 * 3 + 1
            weighted = (pattern[:, at] * norms)[:, before:].unflatten(-1, (3, 3))
            torch.testing.assert_close(torch.from_numpy(maps.value_weighted((2, 1))[index, layer]), weighted)
            mean = pattern[:, before:].mean(1)[:, before:].unflatten(-1, (3, 3))
            torch.testing.assert_close(torch.from_numpy(maps.attention("mean")[index, layer]), mean)
    assert np.allclose(maps.attention().sum((-2, -1)) + maps.to_class_token(), 1, atol=1e-5)


def test_rollout_by_hand_on_two_by_two_patches() -> None:
    """Two layers of given patterns, multiplied as fractions: half the pattern and half the skip connection."""
    first = [[1, 0, 0, 0], [0, 1, 0, 0], [Fraction(1, 2), 0, Fraction(1, 2), 0], [0, 0, 0, 1]]
    second = [[0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0], [Fraction(1, 4)] * 4]
    given = torch.tensor([[[[float(entry) for entry in row] for row in layer]] for layer in (first, second)])
    cfg = ModelConfig(
        n_layers=2, d_model=4, n_heads=1, d_head=4, n_ctx=4, read_in="patches", image_size=2, patch_size=1,
        read_out="classes", d_out=2, pooling="mean", causal=False, phi="fixed", fixed_pattern="given", positions=None,
    )  # fmt: skip
    maps = image_maps(AttentionOnlyTransformer(cfg, pattern=given), torch.ones(1, 1, 2, 2))

    def mixed(layer: list[list[Fraction]]) -> list[list[Fraction]]:
        return [[(Fraction(layer[i][j]) + (i == j)) / 2 for j in range(4)] for i in range(4)]

    a, b = mixed(first), mixed(second)
    product = [[sum(b[i][k] * a[k][j] for k in range(4)) for j in range(4)] for i in range(4)]
    for i in range(4):
        expected = np.array([float(entry) for entry in product[i]]).reshape(2, 2)
        assert np.allclose(maps.rollout((i // 2, i % 2))[0], expected, atol=1e-7)
    mean = [sum(product[i][j] for i in range(4)) / 4 for j in range(4)]
    assert np.allclose(maps.rollout()[0].ravel(), [float(entry) for entry in mean], atol=1e-7)


def test_rollout_divides_rows_by_their_sums_and_refuses_signs() -> None:
    pattern = torch.zeros(1, 1, 4, 4)
    pattern[0, 0, 0, 1] = 3.0  # this row sums to 3: with the skip connection 3/4 go to patch 1 and 1/4 stay
    fields = {
        "n_layers": 1, "n_heads": 1, "n_ctx": 4, "image_size": 4, "pooling": "mean", "class_token": False,
        "bias": False, "phi": "fixed", "fixed_pattern": "given",
    }  # fmt: skip
    model = maker({**make().cfg.to_dict(), **fields})(pattern=pattern)
    rollout = image_maps(model, torch.zeros(3, 4, 4)).rollout((0, 0))
    assert np.allclose(rollout[0], [[0.25, 0.75], [0, 0]])
    linear = image_maps(make(phi="linear"), random_images())
    with refused("rollout", "negative"):
        linear.rollout()


def vit() -> transformers.ViTForImageClassification:
    cfg = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=6, patch_size=2,
        num_channels=3, num_labels=4, initializer_range=0.5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    cfg._attn_implementation = "eager"
    return transformers.ViTForImageClassification(cfg).eval().requires_grad_(False)


def test_a_vision_transformer_of_hugging_face_has_its_own_attentions() -> None:
    torch.manual_seed(0)
    model, images = vit(), random_images()
    expected = model(images, output_attentions=True).attentions
    maps = image_maps(build_bridge_from_module(model, "ViTForImageClassification", hf_config=model.config), images)
    assert len(expected) == 2 and maps.grid.n_before == 1
    for layer, attention in enumerate(expected):
        assert np.allclose(maps.pattern[:, layer], attention.numpy(), atol=1e-6)
        assert np.allclose(maps.attention((1, 2))[:, layer].reshape(3, 2, 9), attention[:, :, 6, 1:].numpy(), atol=1e-6)
    assert maps.value_norms.shape == (3, 2, 2, 10) and (maps.value_norms > 0).all()


def test_what_does_not_fit_is_refused() -> None:
    model, images = make(), random_images()
    with refused("[image, 3, 6, 6]", "[3, 3, 6, 4]"):
        image_maps(model, images[..., :4])
    with pytest.raises(ValueError, match="as floats, got"):
        image_maps(model, (images * 10).to(torch.uint8))
    with refused("image maps", "tokens"):
        image_maps(maker(SMALL)(), images)
    with refused("max_bytes=100", "fewer images"):
        image_maps(model, images, max_bytes=100)
    maps = image_maps(model, images[0])
    with refused("patch (3, 0)", "0 to 2"):
        maps.attention((3, 0))
    with pytest.raises(ValueError, match="query='first': expected a patch"):
        maps.attention("first")
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())


def test_progress_counts_images() -> None:
    seen: list[tuple[int, int]] = []
    image_maps(make(), random_images(5), batch_size=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]


STEPS = {"patch_above": (-1, 0), "patch_below": (1, 0), "patch_left": (0, -1), "patch_right": (0, 1)}
WRITTEN = (*STEPS, "current_token", "first_token", "border", "foreground")


def bright(n_images: int = 4) -> Tensor:
    """Noise with two patches that stand out, others in each image: `[image, 3, 6, 6]`."""
    images = 0.05 * random_images(n_images)
    for image in range(n_images):
        for patch in (image, (3 * image + 5) % 9):
            row, column = 2 * (patch // 3), 2 * (patch % 3)
            images[image, :, row : row + 2, column : column + 2] += 3.0
    return images


def keys_of(name: str, row: int, column: int, image: int) -> list[int]:
    """The positions where a motif would have a patch look, [CLS] being 0."""
    if name in STEPS:
        down, right = STEPS[name]
        inside = 0 <= row + down < 3 and 0 <= column + right < 3
        return [1 + 3 * (row + down) + column + right] if inside else []
    if name == "border":
        return [1 + patch for patch in range(9) if patch != 4]
    if name == "foreground":
        return sorted({1 + image, 1 + (3 * image + 5) % 9})
    return [0] if name == "first_token" else [1 + 3 * row + column]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_pattern_written_by_hand_has_its_label(name: str) -> None:
    def pattern_of(first: int, n_images: int, pattern: Tensor) -> Tensor:
        pattern = torch.zeros_like(pattern)
        for image in range(n_images):
            for row, column in np.ndindex(3, 3):
                keys = keys_of(name, row, column, (first + image) % 4) or [0]
                pattern[image, 0, 1 + 3 * row + column, keys] = 1 / len(keys)
            whole = keys_of(name, 0, 0, (first + image) % 4)
            pattern[image, 0, 0, whole if name in ("border", "foreground") else [0]] = (
                1 / len(whole) if name in ("border", "foreground") else 1.0
            )
        return pattern

    model = plant(make(n_layers=1), pattern_of)
    scores = attention_to(model, bright(), others=True, intervals=True, batch_size=2)
    assert set(scores.motifs) == set(motifs_of("images")) and not scores.reasons
    assert scores[name][0, 0] == pytest.approx(1, abs=1e-6)
    if name != "border":  # which uniform attention reaches nearly as well
        assert scores.labels()[0][0] == name


@pytest.mark.parametrize("changes", [{}, MEAN_POOLED], ids=["cls", "mean"])
def test_scores_and_chance_against_loops_over_patches(changes: dict[str, object]) -> None:
    model, images = make(**changes), bright()
    scores = attention_to(model, images, others=True, batch_size=3)
    _, cache = model.run_with_cache(images)
    before = int(model.cfg.class_token)
    assert scores.reasons == ({} if before else {"first_token": "this model has no [CLS]"})
    assert scores.chance is not None and scores.uniform is not None
    for name in WRITTEN:
        place = scores.motifs.index(name)
        if name in scores.reasons:
            assert np.isnan(scores[name]).all()
            continue
        for layer in range(3):
            pattern = cache["pattern", layer].detach()[:, 1].double().numpy()
            own, others = [], []
            for image in range(4):
                mean = np.delete(pattern, image, axis=0).mean(0)
                patches = [(before + 3 * r + c, keys_of(name, r, c, image)) for r, c in np.ndindex(3, 3)]
                if before and name in ("border", "foreground"):
                    patches.append((0, keys_of(name, 0, 0, image)))
                for query, keys in patches:
                    if keys:
                        at = [key - 1 + before for key in keys]
                        own.append(pattern[image, query, at].sum())
                        others.append(mean[query, at].sum() if name == "foreground" else len(at) / (9 + before))
            assert scores[name][layer, 1] == pytest.approx(np.mean(own), abs=1e-6), name
            assert scores.chance[place, layer, 1] == pytest.approx(np.mean(others), abs=1e-6), name


def test_what_stands_out_is_beyond_the_threshold_that_parts_the_patches_best() -> None:
    grid = PatchGrid(rows=3, columns=3, n_before=0, image=(3, 6, 6))
    images = random_images(20)
    found = standing_out(images, grid)
    for image, chosen in zip(images.double(), found, strict=True):
        edge = torch.cat([image[:, 0], image[:, -1], image[:, 1:-1, 0], image[:, 1:-1, -1]], 1)
        away = (image - edge.sort(-1).values[:, 9, None, None]).abs().mean(0)  # the lower median of 20
        far = [float(away[2 * r : 2 * r + 2, 2 * c : 2 * c + 2].mean()) for r, c in np.ndindex(3, 3)]
        best = max(
            sorted(far)[:-1],
            key=lambda cut: (
                sum(f <= cut for f in far)
                * sum(f > cut for f in far)
                * (np.mean([f for f in far if f <= cut]) - np.mean([f for f in far if f > cut])) ** 2
            ),
        )
        assert chosen.tolist() == [f > best for f in far]
    assert not standing_out(torch.ones(1, 3, 6, 6), grid).any()


def test_what_images_do_not_have_says_so() -> None:
    model, images = make(), bright()
    scores = attention_to(model, images, ["induction", "fixed_offset", "patch_above"])
    assert scores.reasons["induction"] == "it is about tokens, and this model reads images"
    assert np.isnan(scores["fixed_offset"]).all() and np.isfinite(scores["patch_above"]).all()
    with refused("motif scores", "patches"):
        motif_scores(model)
    assert not set(motifs_of("tokens")) & {*STEPS, "border", "foreground"} and set(MOTIFS) >= set(motifs_of("images"))


def test_a_single_patch_stands_out_of_nothing() -> None:
    grid = PatchGrid(rows=1, columns=1, n_before=1, image=(1, 4, 4))
    assert standing_out(torch.rand(2, 1, 4, 4), grid).tolist() == [[False], [False]]
