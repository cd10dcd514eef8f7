"""The attention of a model's heads to images, and the contributions of patches to a class, as views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

from aotlens.conventions import ABLATIONS, Head, head_name
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Node, Part, call, make
from aotlens.views.family import Family
from aotlens.views.kinds import LabelledImages
from aotlens.views.parameters import Limit, OfCheckpoint
from aotlens.views.view import View, pass_cost

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.heads import HeadOnImage, ImageRun

#: The replacements of an ablated head's output.
HOWS = {**ABLATIONS, "resample": "output on another image"}
#: Permutations of the labels, and draws of images, by which consistency is compared with chance.
N_PERMUTATIONS, N_BOOTSTRAP = 200, 200
#: Test images that are shown together, and the user's; those on which consistency is measured; those that means are
#: taken from.
N_SHOWN, N_OWN, N_MEASURED, N_REFERENCE = 10, 4, 200, 32
#: Bytes of patterns and operations of passes up to which so many images are read; fewer if a model needs more.
_MOST_BYTES, _MOST_OPERATIONS = 2**28, 2e11
#: Classes whose logits are taken apart together, at most (`aotlens.paths.patches.MOST_CLASSES`).
_MOST_CLASSES = 100
#: The ways to ablate that take other images.
NEEDS_REFERENCE = ("mean", "position_mean", "fixed_pattern", "resample")
QUANTITIES = {"attention": "Attention", "weighted": "Value-weighted"}
ORDERS = {"consistent": "Most consistent first", "number": "By number"}

_AOT = "Attention-Only Transformers, Section 4.1 and Figure 7"


@dataclass(frozen=True, kw_only=True)
class ImagesParameters(OfCheckpoint):
    """A model, some images, one of them, a head whose attention is shown, and the heads that are ablated."""

    data: LabelledImages | None = declare.images("Images", blank="as in its training")
    of: int | None = declare.row("Class", blank="all in turn", cleared_by=("data",))
    """The class whose images are shown."""
    start: int | None = declare.whole(
        None, most=10**6, step=N_SHOWN, label="Skip test images", blank="0", cleared_by=("data", "of")
    )
    own: tuple[str, ...] = declare.own_images("Your images", most=N_OWN)
    """Keys of the user's images, which come first."""
    image: int = declare.whole(0, most=N_SHOWN + N_OWN - 1, label="Image", cleared_by=("own",))
    head: Head = declare.head("Head, as layer.head")
    patch: tuple[int, int] | None = declare.pair(
        "Query, a patch as row.column", blank="[CLS], or the mean over patches"
    )
    """The patch whose attention is shown."""
    quantity: str = declare.choice(QUANTITIES, label="Quantity", key="view")
    order: str = declare.choice(ORDERS, label="Order of the heads", page_only=True)
    target: int | None = declare.row("Class whose logit is taken apart", blank="the predicted class")
    ablated: tuple[Head, ...] = declare.head(
        "Heads ablated, as 1.0,1.3", several=1024, blank="no heads ablated", key="off", cleared_by=("checkpoint",)
    )
    how: str = declare.choice(HOWS, label="Replace head output with")
    classes: tuple[str, ...] = ()
    """The names of the model's classes, if they are known."""
    trained_on: str = ""
    """The name of the data that it was trained on, if it is known."""

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        processor = infos[0].image_processor or {}
        names, data = tuple(processor.get("classes", ())), processor.get("data", "")
        return super().of_infos(*infos, classes=names, trained_on=data, **values)

    def limits(self) -> Mapping[str, Limit]:
        side = int(self.model["image_size"]) // int(self.model["patch_size"])
        words = f"the row and the column of a patch, each from 0 to {side - 1}, as 1.3"
        limits = {"patch": Limit(shape=SimpleNamespace(n_layers=side, n_heads=side), words=words)}
        if self.classes:
            limits["target"] = Limit(options=dict(enumerate(self.classes)))
        if self.n_all is not None:
            limits["of"] = Limit(options=dict(enumerate(self.named.classes)))
            limits["start"] = Limit(most=max(self.n_all - 1, 0))
            shown = min(self.n_shown, self.n_all - (self.start or 0))
            limits["image"] = Limit(most=max(len(self.own) + shown, 1) - 1)
        return limits

    @property
    def named(self) -> LabelledImages:
        """The images; by default the bundled ones that are as those of its training."""
        name = self.trained_on if self.trained_on == "digits" else "fashion-sample"
        return self.data or LabelledImages(name=name, spec=name)

    @property
    def n_all(self) -> int | None:
        """The number of test images, of the class `of` or of all; None if it is not known."""
        counts = self.named.counts
        if not counts:
            return None
        return counts[self.of] if self.of is not None and self.of < len(counts) else sum(counts)

    def at_most(self, n: int, n_passes: int) -> int:
        """Return `n`, or fewer images of a model with large patterns or long passes; at least one."""
        fits = [n, _MOST_BYTES // self._held]
        if n_passes:
            fits.append(int(_MOST_OPERATIONS / self.cost(n_passes)))
        return max(1, min(fits))

    @property
    def n_shown(self) -> int:
        """The number of test images that are shown together."""
        return self.at_most(N_SHOWN, 2)

    @property
    def n_measured(self) -> int:
        """The number of test images on which consistency is measured."""
        return self.at_most(N_MEASURED, 0)

    @property
    def opened(self) -> Call:
        """The data at the model's size."""
        opened = call("aotlens.data.images.open_images", self.named.spec, size=int(self.model["image_size"]))
        return opened.stamped(self.named.stamp).named("data")

    def test_images(self, n: int, **rest: Any) -> Call:
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
        return self.test_images(self.n_shown, **options)

    @property
    def full(self) -> Call:
        """The run of the full model."""
        images = self.images
        names: dict[str, Any] = {} if self.named.has_model_classes else {"label_names": images.part("classes")}
        run = "aotlens.heads.image_run", Load(self.checkpoint), images.part("images")
        return call(*run, labels=images.part("labels"), **names).named("run")

    @property
    def run(self) -> Call:
        """The run with the heads ablated; of the full model if there are none."""
        if not self.ablated:
            return self.full
        names = list(map(head_name, sorted(self.ablated)))
        others = self.opened.method("reference", N_REFERENCE).part("images")
        reference: dict[str, Any] = {"reference": others} if self.how in NEEDS_REFERENCE else {}
        run = "aotlens.heads.image_run", Load(self.checkpoint), self.images.part("images")
        return call(*run, names, self.how, **reference).named("ablated")

    def inputs(self, images: Call) -> Call:
        """Return the model's input for these images."""
        return Call(Part(Load(self.checkpoint), "to_images"), [images.part("images")], kept=False, called="inputs")

    def cost(self, n_passes: float) -> float:
        """Return the operations of so many passes over an image."""
        return n_passes * pass_cost(self.model, int(self.model["n_ctx"]))

    @property
    def n_images(self) -> int:
        """The number of images that are shown, at most."""
        return len(self.own) + self.n_shown

    @property
    def run_cost(self) -> float:
        """The cost of the full model's run, and of the run with heads ablated."""
        others = self.n_images + N_REFERENCE * (self.how in NEEDS_REFERENCE)
        return self.cost(2.0 * self.n_images + 2.0 * others * bool(self.ablated))

    @property
    def _held(self) -> int:
        """Bytes of the patterns and value norms on one image."""
        n_pos = int(self.model["n_ctx"])
        return 4 * self.n_heads * n_pos * (n_pos + 1)

    @property
    def held(self) -> float:
        """Bytes of the patterns and value norms of a run."""
        return float(self.n_images * self._held)

    @property
    def consistency_cost(self) -> float:
        """The cost of a pass over all images, and of comparing every two for each head, as they are and by chance."""
        pairs = 2.0 * self.n_measured**2 * (N_PERMUTATIONS * int(self.model["d_out"]) + 4 * N_BOOTSTRAP)
        return self.cost(self.n_measured) + self.n_heads * pairs

    def file(self, *parts: str) -> str:
        """Name a file."""
        off = "-".join(map(head_name, self.ablated))
        return "-".join([self.checkpoint, *([f"ablated-{off}-{self.how}"] if off else []), *parts])


def _of_images(params: ImagesParameters, run: ImageRun) -> str:
    data, first, n_own = params.named, (params.start or 0) + 1, run.truth.count(None)
    n = len(run.images) - n_own
    of_all = "" if params.n_all is None else f" of {params.n_all:,}"
    kind = "" if params.of is None else f" of class ‹{(run.label_names or run.classes)[params.of]}›"
    which = f"Test images {first} to {first + n - 1}{of_all}{kind} in {data.name}"
    if not run.has_model_classes:
        return (
            f"{which}. The model was trained on {params.trained_on or 'other images'} and knows other classes: its "
            "maps can be looked at, its predictions mean nothing here."
        )
    numbers = ", ".join(str(image + 1) for image in run.wrong)
    wrong = f" (images {numbers} are not)" if len(run.wrong) > 1 else f" (image {numbers} is not)" if numbers else ""
    sentence = f"{which}; {n - len(run.wrong)} of these {n} are recognised{wrong}."
    if not data.numbered:
        return sentence
    return f"{sentence} The data only number their classes: they are taken for the model's, in its order."


def _ablated(params: ImagesParameters) -> str:
    names = ", ".join(map(head_name, params.ablated))
    return f"head{'s' if len(params.ablated) > 1 else ''} {names} ablated by {HOWS[params.how]}" if names else ""


def _of_head(params: ImagesParameters, result: HeadOnImage) -> str:
    ablated = _ablated(params)
    return ". ".join(filter(None, [f"Query: {result.query}", ablated[:1].upper() + ablated[1:]])) + "."


def class_name(params: ImagesParameters, number: int) -> str:
    """Name a class of the model by name, or its number where the names are not known."""
    return str(params.classes[number]) if number < len(params.classes) else str(number)


IMAGES = View(
    name="images",
    title="Images",
    about="Images of the data’s test set, on which aotlens trains nothing, one of each class in turn; yours come "
    "first. Below each is what the full model predicts, with its probability; ✗ marks a wrong prediction, before the "
    "image’s own class. A PNG or JPEG that you upload, or a drawing, is kept on the machine that runs the app, scaled "
    "down and without anything but its pixels; its middle square goes to the model.",
    call=lambda params: params.full,
    caption=_of_images,
    file=lambda params: f"{params.checkpoint}-images",
    pictured=False,
    cost=lambda params: params.run_cost,
    held=lambda params: params.held,
)


def _layer(params: ImagesParameters) -> Call:
    quantity = "value_weighted" if params.quantity == "weighted" else "attention"
    return params.run.method("layer", params.head[0], params.patch, quantity)


LAYER = View(
    name="layer",
    title="Heads × images",
    about="Row = head of the layer, column = image. Blue covers the patches that the query attends to: [CLS], or the "
    "mean over all patches in a model without one, or the patch that you click in the tab Maps. Each map has its own "
    "scale, up to its largest value. Value-weighted: attention times the length of the patch’s value vector, which is "
    "what the head really moves. Heads stand in the order of their consistency (the tab Consistency says what that is) "
    "or of their numbers. The × at the left of a row, or the key x, ablates the head: all maps are then of a run "
    "without it.",
    formula="attention A(query, patch); value-weighted A(query, patch) · ‖x W_V‖",
    source=_AOT,
    call=_layer,
    file=lambda params: params.file(f"layer-{params.head[0]}"),
    cost=lambda params: params.run_cost,
    held=lambda params: params.held,
)
HEAD = View(
    name="head",
    title="One image",
    about="Point at a patch of the image to see what it attends to, click it to keep that query; click it again, or "
    "press Escape, to go back. Rollout follows attention through all layers, with the mean over heads and the skip "
    "connection; it knows neither values nor what is read out. Patch by patch: what each adds to the logit of a class "
    "above the mean over classes, along all paths (the tab Paths, where the class is selected).",
    formula="rollout: the query's row of Â_L ⋯ Â_1, Â = (mean over heads of A + 1), rows divided by their sums",
    source="Quantifying Attention Flow in Transformers (Abnar and Zuidema 2020)",
    call=lambda params: params.run.method("head", head_name(params.head), params.image, *filter(None, [params.patch])),
    caption=_of_head,
    file=lambda params: params.file(f"image-{params.image + 1}-head-{head_name(params.head)}"),
    cost=lambda params: params.run_cost,
    held=lambda params: params.held,
)


def _missing_patches(params: ImagesParameters) -> str | None:
    if params.model.get("pooling") is None:
        return f"{params.checkpoint} does not read classes out of an image as a whole, so no logit is a sum over paths."
    if int(params.model["d_out"]) > _MOST_CLASSES:
        return (
            f"{params.checkpoint} has {params.model['d_out']:,} classes, and the logits of at most {_MOST_CLASSES} are "
            "taken apart together: call aotlens.paths.patch_contributions with the classes that you want."
        )
    return None


PATCHES = View(
    name="patches",
    title="What patches add to a class",
    about="With its attention and its norms frozen as they are on this image, an attention-only model is linear: its "
    "logit is a sum over patches, [CLS], positions and biases, along all paths through its heads. The map shows the "
    "patches’ part of the class’s logit, above the mean over classes: blue promotes the class, orange suppresses it. "
    "It is of the full model, whichever heads are ablated. What MLPs write is a term of its own, held as it is: it has "
    "read the patches, and the map leaves it out.",
    formula="logit(c) = Σ patches + [CLS] + positions + MLPs + biases; map: Σ paths patch → c, less its mean over c",
    source="A Mathematical Framework for Transformer Circuits (2021)",
    call=lambda params: contributions(params).method(
        "on_image", *([] if params.target is None else [0, params.target])
    ),
    caption=lambda params, result: result.sentences(class_name(params, result.number)),
    file=lambda params: (
        f"{params.checkpoint}-image-{params.image + 1}-class-{'predicted' if params.target is None else params.target}"
    ),
    missing=_missing_patches,
    cost=lambda params: params.cost(2.0 + 2.0 * (1 + int(params.model["d_out"]))),
)
PREDICTIONS = View(
    name="predictions",
    title="Predictions",
    about="Probabilities of the classes for the image, of the full model and with heads ablated. Means and "
    f"other outputs that replace a head’s are those of the head on {N_REFERENCE} training images of the same data, "
    "or on test images of a sample that has no others.",
    formula="p = softmax(logits)",
    call=lambda params: params.full.method("predictions", params.image, *([params.run] if params.ablated else [])),
    caption=lambda params, result: result.sentences(_ablated(params)),
    file=lambda params: params.file(f"image-{params.image + 1}-predictions"),
    cost=lambda params: params.run_cost,
    held=lambda params: params.held,
)


def _consistency(params: ImagesParameters) -> Call:
    images = params.test_images(params.n_measured)
    return call(
        "aotlens.heads.semantic_consistency", Load(params.checkpoint), params.inputs(images), images.part("labels"),
        n_permutations=N_PERMUTATIONS, n_bootstrap=N_BOOTSTRAP,
    )  # fmt: skip


CONSISTENCY = View(
    name="consistency",
    title="Consistency of heads",
    about="A head’s region on an image is the smallest set of patches with half its attention. Within: the mean "
    "overlap (IoU) of its regions on two images of one class; between: on images of two classes. Their difference is "
    "what the class has to do with where the head looks: a head that always looks at the same place has 1 and 1, and "
    "no difference. Chance: the same with class labels permuted over images, adjusted for the number of heads "
    "(Benjamini and Hochberg). Intervals are bootstraps over images. Of the full model, with queries [CLS] or the mean "
    "over patches. Click a head to see its layer.",
    formula="consistency = within − between; IoU = |a ∩ b| ÷ |a ∪ b|",
    source="Attention-Only Transformers, Figure 7, without picking by hand",
    call=_consistency,
    caption=lambda params, result: (
        f"{result.sentences()} On {result.n_images} test images of {params.named.name} in {result.n_classes} classes. "
        f"Query: {result.query}."
    ),
    file=lambda params: f"{params.checkpoint}-consistency",
    cost=lambda params: params.consistency_cost,
    slow="images, then heads",
)


def contributions(params: ImagesParameters) -> Node:
    """Return the contributions of the image's patches to every class: asked for once, whichever class is looked at."""
    image = params.inputs(params.images).item(params.image)
    return call("aotlens.paths.patch_contributions", Load(params.checkpoint), image).named("contributions")


FAMILY = Family(
    "images",
    "Attention of heads in an image, and the patches that promote a class.",
    (HEAD, LAYER, PATCHES, PREDICTIONS, CONSISTENCY, IMAGES),
    ImagesParameters,
    reads=lambda info: (info.model.get("read_in"), info.model.get("read_out")) == ("patches", "classes"),
    none="No checkpoint here reads images. Train one (aotlens train fashion-mhsa), import one (aotlens checkpoints "
    "import FOLDER --name mine), or start the app with --checkpoints DIR, a folder that has one.",
)
