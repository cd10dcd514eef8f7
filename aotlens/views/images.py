"""The attention of a model's heads to images, and the contributions of patches to a class, as views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aotlens.conventions import Head, head_name
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Node, Part, call, make
from aotlens.views.family import Family
from aotlens.views.image_captions import HOWS, says_consistency, says_head, says_patches, says_predictions
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import About, View, pass_cost

#: Permutations of the labels, and draws of images, by which consistency is held against chance.
N_PERMUTATIONS, N_BOOTSTRAP = 200, 200
#: Images that are looked at together; those on which consistency is measured; those that means are taken from.
N_SHOWN, N_MEASURED, N_REFERENCE = 10, 200, 32
#: Classes whose logits are taken apart together, at most (`aotlens.paths.patches.MOST_CLASSES`).
_MOST_CLASSES = 100
#: The ways to ablate that take other images.
NEEDS_REFERENCE = ("mean", "position_mean", "fixed_pattern", "resample")
QUANTITIES = {"attention": "attention", "weighted": "value-weighted attention"}

_AOT = "Attention-Only Transformers, Section 4.1 and Figure 7"


@dataclass(frozen=True, kw_only=True)
class ImagesParameters(OfCheckpoint):
    """A model, some images, one of them, a head, whose attention is looked at, and which heads are ablated."""

    data: str = declare.text("fashion-sample", label="Images", most=200)
    """The name by which `aotlens.data.images.open_images` calls it."""
    of: int | None = declare.whole(None, most=99_999, label="Class", blank="all in turn")
    """The class whose images are shown."""
    start: int = declare.whole(0, most=10**6, label="First test image")
    image: int = declare.whole(0, most=N_SHOWN - 1, label="Image")
    head: Head = declare.head("Head, as layer.head")
    patch: tuple[int, int] | None = declare.pair(
        "Query, a patch as row.column", blank="[CLS], or the mean over patches"
    )
    """The patch whose attention is looked at."""
    quantity: str = declare.choice(QUANTITIES, label="Quantity")
    target: int | None = declare.whole(
        None, most=99_999, label="Class whose logit is taken apart", blank="the predicted one"
    )
    ablated: tuple[Head, ...] = declare.head("Heads ablated, as 1.0,1.3", several=1024, blank="no heads ablated")
    how: str = declare.choice(HOWS, label="Replace head output with")
    called: str = ""
    """The name of the data in sentences, if it is another."""
    stamp: int = 0
    """The mark that tells data from others of the same name."""
    n_shown: int = N_SHOWN
    own: tuple[str, ...] = ()
    """The user's files, which come first."""
    n_reference: int = N_REFERENCE
    n_measured: int = N_MEASURED
    classes: tuple[str, ...] = ()
    """Names of the model's classes, where they are known."""
    label: str | None = None
    """The class of the image, by name, where it is known."""
    n_images: int = N_SHOWN
    """The number of images of the run, with the user's."""

    @property
    def opened(self) -> Call:
        """The data at the model's size."""
        opened = call("aotlens.data.images.open_images", self.data, size=int(self.model["image_size"]))
        return opened.stamped(self.stamp).named("data")

    def chosen(self, n: int, **rest: Any) -> Call:
        """Return `n` of the test images."""
        images = call("aotlens.data.images.choose_images", self.opened.part("test"), n, **rest)
        return images.named("images")

    @property
    def images(self) -> Call:
        """The images that are shown."""
        options: dict[str, Any] = {} if self.of is None else {"of": self.of}
        if self.start:
            options["start"] = self.start
        if self.own:
            folder = make("aotlens.checkpoints.user_folder", "images")
            options |= {"own": list(self.own), "folder": folder, "channels": int(self.model.get("n_channels") or 1)}
        return self.chosen(self.n_shown, **options)

    @property
    def full(self) -> Call:
        """The run of the full model."""
        return call("aotlens.heads.image_run", Load(self.checkpoint), self.images.part("images")).named("run")

    @property
    def run(self) -> Call:
        """The run with the heads ablated; of the full model where there are none."""
        if not self.ablated:
            return self.full
        names = list(map(head_name, sorted(self.ablated)))
        others = self.opened.method("reference", self.n_reference).part("images")
        reference = {"reference": others} if self.how in NEEDS_REFERENCE else {}
        run = call(
            "aotlens.heads.image_run", Load(self.checkpoint), self.images.part("images"), names, self.how, **reference
        )
        return run.named("ablated")

    def inputs(self, images: Call) -> Call:
        """Return the model's input for these images."""
        return Call(Part(Load(self.checkpoint), "to_images"), [images.part("images")], kept=False, called="inputs")

    def cost(self, n_passes: float) -> float:
        """Return the operations of so many passes over an image."""
        return n_passes * pass_cost(self.model, int(self.model["n_ctx"]))

    @property
    def run_cost(self) -> float:
        """The cost of the full model's run, and of the run with heads ablated."""
        others = self.n_images + self.n_reference * (self.how in NEEDS_REFERENCE)
        return self.cost(2.0 * self.n_images + 2.0 * others * bool(self.ablated))

    @property
    def held(self) -> float:
        """Bytes of the patterns and value norms of a run."""
        n_pos, n_heads = int(self.model["n_ctx"]), int(self.model["n_layers"]) * int(self.model["n_heads"])
        return 4.0 * self.n_images * n_heads * n_pos * (n_pos + 1)

    @property
    def consistency_cost(self) -> float:
        """The cost of a pass over all images, and of comparing every two for each head, as they are and by chance."""
        n_heads = int(self.model["n_layers"]) * int(self.model["n_heads"])
        pairs = 2.0 * self.n_measured**2 * (N_PERMUTATIONS * int(self.model["d_out"]) + 4 * N_BOOTSTRAP)
        return self.cost(self.n_measured) + n_heads * pairs

    def file(self, *parts: str) -> str:
        """Name a file of it."""
        off = "-".join(map(head_name, self.ablated))
        return "-".join([self.checkpoint, *([f"ablated-{off}-{self.how}"] if off else []), *parts])

    @property
    def name(self) -> str:
        """The head that is looked at."""
        return f"{self.head[0]}.{self.head[1]}"


def _query(chosen: ImagesParameters) -> list[Any]:
    return [] if chosen.patch is None else [chosen.patch]


def _layer(chosen: ImagesParameters) -> Call:
    quantity = "value_weighted" if chosen.quantity == "weighted" else "attention"
    return chosen.run.method("layer", chosen.head[0], chosen.patch, quantity)


LAYER = View(
    name="layer",
    title="Heads × images",
    about=About(
        text="Row = head of the layer, column = image. Blue covers the patches that the query attends to: [CLS], or "
        "the mean over all patches in a model without one, or the patch that you click in the tab Maps. Each map has "
        "its own scale, up to its largest value. Value-weighted: attention times the length of the patch’s value "
        "vector, which is what the head really moves. Heads stand in the order of their consistency (the tab "
        "Consistency says what that is) or of their numbers. The × at the left of a row, or the key x, ablates the "
        "head: all maps are then of a run without it.",
        formula="attention A(query, patch); value-weighted A(query, patch) · ‖x W_V‖",
        source=_AOT,
    ),
    call=_layer,
    caption=lambda chosen, result: f"{result.headline[0].upper()}{result.headline[1:]}.",
    file=lambda chosen: chosen.file(f"layer-{chosen.head[0]}"),
    cost=lambda chosen: chosen.run_cost,
    held=lambda chosen: chosen.held,
)
HEAD = View(
    name="head",
    title="One image",
    about=About(
        text="One head on one image beside all heads at once. Point at a patch of the image to see what it attends to, "
        "click it to keep that query; click it again, or press Escape, to go back. Rollout follows attention through "
        "all layers, with the mean over heads and the skip connection; it knows neither values nor what is read out. "
        "Patch by patch: what each adds to the logit of the predicted class above the mean over classes, along all "
        "paths (the tab Paths).",
        formula="rollout: the query's row of Â_L ⋯ Â_1, Â = (mean over heads of A + 1), rows divided by their sums",
        source="Quantifying Attention Flow in Transformers (Abnar and Zuidema 2020)",
    ),
    call=lambda chosen: chosen.run.method("head", chosen.name, chosen.image, *_query(chosen)),
    caption=says_head,
    file=lambda chosen: chosen.file(f"image-{chosen.image + 1}-head-{chosen.name}"),
    cost=lambda chosen: chosen.run_cost,
    held=lambda chosen: chosen.held,
)


def _missing_patches(chosen: ImagesParameters) -> str | None:
    if chosen.model.get("pooling") is None:
        return f"{chosen.checkpoint} does not read classes out of an image as a whole, so no logit is a sum over paths."
    if int(chosen.model["d_out"]) > _MOST_CLASSES:
        return (
            f"{chosen.checkpoint} has {chosen.model['d_out']:,} classes, and the logits of at most {_MOST_CLASSES} are "
            "taken apart together: call aotlens.paths.patch_contributions with the classes that you want."
        )
    return None


PATCHES = View(
    name="patches",
    title="What patches add to a class",
    about=About(
        text="With its attention and its norms frozen as they are on this image, an attention-only model is linear: "
        "its logit is a sum over patches, [CLS], positions and biases, along all paths through its heads. The map "
        "shows the patches’ part of the chosen class’s logit, above the mean over classes: blue promotes the class, "
        "orange suppresses it. It is of the full model, whichever heads are ablated. What MLPs write is a term of its "
        "own, held as it is: it has read the patches, and the map leaves it out.",
        formula="logit(c) = Σ patches + [CLS] + positions + MLPs + biases; map: Σ paths patch → c, less its mean over "
        "c",
        source="A Mathematical Framework for Transformer Circuits (2021)",
    ),
    call=lambda chosen: contributions(chosen).method(
        "on_image", *([] if chosen.target is None else [0, chosen.target])
    ),
    caption=says_patches,
    file=lambda chosen: chosen.file(
        f"image-{chosen.image + 1}-class-{'predicted' if chosen.target is None else chosen.target}"
    ),
    missing=_missing_patches,
    cost=lambda chosen: chosen.cost(2.0 + 2.0 * (1 + int(chosen.model["d_out"]))),
)
PREDICTIONS = View(
    name="predictions",
    title="Predictions",
    about=About(
        text="Probabilities of the classes for the chosen image, of the full model and with heads ablated. Means and "
        f"other outputs that replace a head’s are those of the head on {N_REFERENCE} training images of the same data, "
        "or on test images of a sample that has no others.",
        formula="p = softmax(logits)",
    ),
    call=lambda chosen: chosen.full.method("predictions", chosen.image, *([chosen.run] if chosen.ablated else [])),
    caption=says_predictions,
    file=lambda chosen: chosen.file(f"image-{chosen.image + 1}-predictions"),
    cost=lambda chosen: chosen.run_cost,
    held=lambda chosen: chosen.held,
)


def _consistency(chosen: ImagesParameters) -> Call:
    images = chosen.chosen(chosen.n_measured)
    return call(
        "aotlens.heads.semantic_consistency", Load(chosen.checkpoint), chosen.inputs(images), images.part("labels"),
        n_permutations=N_PERMUTATIONS, n_bootstrap=N_BOOTSTRAP,
    )  # fmt: skip


CONSISTENCY = View(
    name="consistency",
    title="Consistency of heads",
    about=About(
        text="A head’s region on an image is the smallest set of patches with half its attention. Within: the mean "
        "overlap (IoU) of its regions on two images of one class; between: on images of two classes. Their difference "
        "is what the class has to do with where the head looks: a head that always looks at the same place has 1 and "
        "1, and no difference. Chance: the same with class labels permuted over images, adjusted for the number of "
        "heads (Benjamini and Hochberg). Intervals are bootstraps over images. Of the full model, with queries [CLS] "
        "or the mean over patches. Click a head to see its layer.",
        formula="consistency = within − between; IoU = |a ∩ b| ÷ |a ∪ b|",
        source="Attention-Only Transformers, Figure 7, without picking by hand",
    ),
    call=_consistency,
    caption=says_consistency,
    file=lambda chosen: f"{chosen.checkpoint}-consistency",
    cost=lambda chosen: chosen.consistency_cost,
    slow="images, then heads",
)


def contributions(chosen: ImagesParameters) -> Node:
    """Return the contributions of the image's patches to every class: asked for once, whichever class is looked at."""
    image = chosen.inputs(chosen.images).item(chosen.image)
    return call("aotlens.paths.patch_contributions", Load(chosen.checkpoint), image).named("contributions")


FAMILY = Family(
    "images",
    "Attention of heads in an image, and the patches that promote a class.",
    (HEAD, LAYER, PATCHES, PREDICTIONS, CONSISTENCY),
    ImagesParameters,
    reads=lambda info: (info.model.get("read_in"), info.model.get("read_out")) == ("patches", "classes"),
)
