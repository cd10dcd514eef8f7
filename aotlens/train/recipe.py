"""The recipe of a training run: a `Recipe`, read from TOML.

    name = "novels-2l-mhsa"          # also the checkpoint's
    description = "…"
    seed = 0
    [corpus]
    spec = "dir:PATH"                # or left out, and given on the command line
    d_vocab = 4096                   # of the byte-level BPE trained on the training documents
    validation = ["Name", …]         # or a fraction; whole documents
    [model]                          # any field of ModelConfig but d_vocab; "none" for None
    n_layers = 2
    …
    [[stages]]                       # one after the other, one optimiser
    tokens = 3_000_000
    …

With `objective = "classes"` there is `[images]` in place of `[corpus]`, and what is counted are images: `images` and
`warmup_images` in a stage, `log_images`, `evaluate_images`, `save_images`. With `objective = "regression"` there is
`[prompts]`, and prompts are counted in the same way. Unknown keys are refused everywhere.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from torch import Tensor

from aotlens.checkpoints.units import OBJECTIVE_WORDS
from aotlens.conventions import require_between, require_choice, require_whole
from aotlens.models import PHIS, AttentionOnlyTransformer, ModelConfig
from aotlens.train.sections import Announce, CorpusRecipe, ImagesRecipe, PromptsRecipe, Stage, silent
from aotlens.train.state import check_snapshots
from aotlens.untrusted import boundary, excerpt, read_regular, require_types, strict_toml

_LATER = ("objective", "images", "prompts", "optimiser", "label_smoothing", "rows_at_once", "recompute_activations",
          "snapshots")  # fmt: skip
_LATER_OF_CORPUS = ("tokenizer", "n_documents")
#: Settings of stages that have a meaning for rows of tokens only.
_OF_TEXT = ("sequence_length", "repeat_fraction", "repeat_source")

Data = TypeVar("Data")
Batch = tuple[Tensor, Tensor | None]
"""Rows, and the targets of the model's loss; None where each next token is the target."""

_SEED_STRIDE = 1_000_003  # between the batch seeds of a run's stages
#: The objectives by `objective` of a recipe: each subclass of `Objective` adds itself.
OBJECTIVES: dict[str, type[Objective[Any]]] = {}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what comes out of a training run, but the corpus's bytes and the device."""

    name: str
    model: dict[str, Any]
    """Fields of `ModelConfig` except d_vocab, which is the tokenizer's (one more with `objective = "masked"`)."""
    stages: tuple[Stage, ...]
    description: str = ""
    seed: int = 0
    """The seed of the weights and of the batches."""
    objective: Literal["next_token", "masked", "classes", "regression"] = "next_token"
    """The target of prediction (`aotlens.train.objectives`): each next token, hidden ones from both sides as BERT does
    it, or the class of an image, or labels in context. It says what `tokens` below, and in stages, counts: of images, a
    recipe says `images`, of regression `prompts`."""
    corpus: CorpusRecipe = field(default_factory=CorpusRecipe)
    images: ImagesRecipe | None = None
    """The images for `objective = "classes"`, in place of a corpus."""
    prompts: PromptsRecipe | None = None
    """The prompts for `objective = "regression"`, in place of a corpus."""
    optimiser: Literal["adamw", "lion"] = "adamw"
    label_smoothing: float | int = 0.0
    """Share of the target distribution that is spread over all outputs."""
    weight_decay: float | int = 0.1
    """The decay of matrices only."""
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | int = 1.0
    """Largest norm of the gradient."""
    cpu_autocast: bool = False
    """bfloat16 autocast on CPUs too (always on CUDA). Measure before use: a third faster for bundled models of text on
    a CPU with instructions for it, 1.7 to 4.8 times slower on another such CPU, and 7 times slower (`fashion-mhsa`) on
    one without."""
    rows_at_once: int | None = None
    """Rows of a pass forward and backward, on each device; a step adds up the gradients of as many passes as its rows
    need. None is all rows in one pass. The step is the same but for rounding."""
    recompute_activations: bool = False
    """Compute each layer's activations again in the backward pass instead of keeping them: less memory, more time."""
    weights_dtype: Literal["float32", "bfloat16"] = "float32"
    """The data type of the finished checkpoint's weights; final metrics are measured on those."""
    validation_tokens: int | None = None
    """Validation tokens, spread over the held-out documents, that final losses are measured on; None is all."""
    log_tokens: int = 200_000
    """Tokens between lines of metrics."""
    evaluate_tokens: int = 1_000_000
    """Tokens between validation losses and motif scores."""
    save_tokens: int = 500_000
    """Tokens between saved states, from which a killed run resumes."""

    snapshots: tuple[int, ...] | str | None = None
    """Moments of the run of which the weights are kept next to the checkpoint (`aotlens.load_run`): steps, `"log:60"`
    (so many, evenly in log step), or `"loss:60"` (half of them so, the others as the loss falls); None keeps none."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError(f"recipe {self.name!r}: expected at least one stage of training.")
        if self.rows_at_once is not None:
            require_whole(f"recipe {self.name!r}: rows_at_once", self.rows_at_once, 1)
        require_choice(f"recipe {self.name!r}: objective", self.objective, OBJECTIVES)
        try:
            check_snapshots(self.snapshots, self.n_steps)
        except ValueError as error:
            raise ValueError(f"recipe {self.name!r}: {error}") from None
        if "d_vocab" in self.model:
            raise ValueError(f"recipe {self.name!r}: d_vocab belongs in [corpus]; it is the tokenizer's.")
        require_choice(f"recipe {self.name!r}: optimiser", self.optimiser, ("adamw", "lion"))
        require_between(f"recipe {self.name!r}: label_smoothing", self.label_smoothing, 0, below=1)
        self._check_section()
        OBJECTIVES[self.objective].check(self)
        phi = OBJECTIVES[self.objective].model_config(self).phi
        if (why := PHIS[phi].untrainable) is not None:
            raise ValueError(f"recipe {self.name!r}: phi={phi!r} cannot be trained: {why}.")

    def _check_section(self) -> None:
        """Only the section of the objective names data."""
        given = {
            "corpus": self.corpus != CorpusRecipe(),
            "images": self.images is not None,
            "prompts": self.prompts is not None,
        }
        own = OBJECTIVES[self.objective].section
        if others := [name for name, section in given.items() if section and name != own]:
            raise ValueError(
                f"recipe {self.name!r}: objective = {self.objective!r} takes its data from [{own}], got [{others[0]}]."
            )
        if getattr(self, own) is None:
            raise ValueError(f"recipe {self.name!r}: objective = {self.objective!r} needs a section [{own}].")
        if self.counted != "tokens":
            for stage in self.stages:
                if (stage.sequence_length, stage.repeat_fraction) != (1, 0):
                    raise ValueError(
                        f"recipe {self.name!r}: a stage counts {self.counted}, of which each is a row: expected "
                        f"sequence_length = 1 and no repeat_fraction, got {stage.sequence_length} and "
                        f"{stage.repeat_fraction}."
                    )

    @property
    def counted(self) -> str:
        """The name of what `tokens` counts here and in stages, in the plural: tokens, images."""
        return OBJECTIVE_WORDS[self.objective].counted

    @property
    def data_section(self) -> CorpusRecipe | ImagesRecipe | PromptsRecipe:
        """The section of the data: `corpus`, or what the objective has in its place."""
        section = getattr(self, OBJECTIVES[self.objective].section)
        assert section is not None
        return section

    def model_config(self, d_vocab: int | None = None) -> ModelConfig:
        """Return the model's configuration; its seed is the recipe's."""
        model = {key: None if value == "none" else value for key, value in self.model.items()}  # TOML has no null
        return ModelConfig.from_dict({"seed": self.seed, **model, "d_vocab": d_vocab})

    @property
    def n_steps(self) -> int:
        return sum(stage.n_steps for stage in self.stages)

    @property
    def total_tokens(self) -> int:
        return sum(stage.n_steps * stage.batch_size * stage.sequence_length for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON; `from_dict` undoes it. Options that came later are left out at their defaults."""
        values = dataclasses.asdict(self)
        _drop_defaults(values, Recipe, _LATER)
        _drop_defaults(values["corpus"], CorpusRecipe, _LATER_OF_CORPUS)
        if self.counted == "tokens":
            return values
        del values["corpus"]
        stages = [{key: value for key, value in stage.items() if key not in _OF_TEXT} for stage in values["stages"]]
        return _spelled({**values, "stages": [_spelled(stage, "tokens", self.counted) for stage in stages]},
                        "tokens", self.counted)  # fmt: skip

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "recipe") -> Recipe:
        """Build and check. Raises `ValueError` naming unknown, missing or misfitting keys."""
        words = OBJECTIVE_WORDS.get(str(values.get("objective", "next_token")))
        counted = "tokens" if words is None else words.counted
        _check_keys(cls, values, where, counted)
        sections: dict[str, Any] = {}
        for name, section in (("corpus", CorpusRecipe), ("images", ImagesRecipe), ("prompts", PromptsRecipe)):
            if name in values:
                _check_keys(section, values[name], f"{where}, [{name}]")
                arguments: dict[str, Any] = {
                    key: tuple(value) if isinstance(value, list) else value for key, value in values[name].items()
                }
                sections[name] = section(**arguments)
        stages = values.get("stages", ())
        for stage in stages:
            _check_keys(Stage, stage, f"{where}, [[stages]]", counted, left_out=() if counted == "tokens" else _OF_TEXT)
        row: dict[str, Any] = {} if counted == "tokens" else {"sequence_length": 1}
        fields: dict[str, Any] = {
            **_spelled(values, counted, "tokens"),
            **sections,
            "stages": tuple(Stage(**row, **_spelled(stage, counted, "tokens")) for stage in stages),
            "betas": tuple(values.get("betas", (0.9, 0.95))),
        }
        if isinstance(steps := values.get("snapshots"), list):
            fields["snapshots"] = tuple(steps)
        try:
            return cls(**fields)
        except TypeError as error:
            raise ValueError(f"{where}: {error}") from error


class Objective(ABC, Generic[Data]):
    """A recipe and the data that `prepare` made for it.

    The loss is the model's own, `model(rows, return_type="loss", targets=targets)`: an objective says by rows and
    targets what counts. `class Name(Objective[…], name="…")` adds it to `OBJECTIVES`; the words for cards are
    `aotlens.checkpoints.units.OBJECTIVE_WORDS`, by the same name.
    """

    section: str
    """The recipe's section that says where the data is: the name of a field of `Recipe`."""
    autocast: bool = True
    """Whether passes may run in bfloat16: always on CUDA, on a CPU where the recipe says so."""

    def __init_subclass__(cls, *, name: str, **options: Any) -> None:
        super().__init_subclass__(**options)
        OBJECTIVES[name] = cls

    def __init__(self, recipe: Recipe, data: Data) -> None:
        self.recipe = recipe
        self.data = data

    # The methods of a recipe, before any data is read.

    @classmethod
    @abstractmethod
    def check(cls, recipe: Recipe) -> None:
        """Raise `ValueError` for a recipe whose model or stages do not fit the objective."""

    @classmethod
    def model_config(cls, recipe: Recipe) -> ModelConfig:
        """Return the model as far as the recipe tells it."""
        return recipe.model_config()

    @classmethod
    @abstractmethod
    def random_batch(cls, recipe: Recipe, n_rows: int) -> Batch:
        """Return rows of the last stage that cost what real ones cost, for a dry run."""

    @classmethod
    @abstractmethod
    def prepare(
        cls, recipe: Recipe, spec: str | None = None, *, home: Path | None = None, announce: Announce = silent
    ) -> Data:
        """Open the data (`spec` on the command line wins over the recipe's); raises `ValueError` for what is wrong."""

    # The methods with its data.

    def check_data(self) -> None:
        """Raise `ValueError`, before training, for data that cannot be trained or measured on."""
        for stage in range(len(self.recipe.stages)):
            self.batch(stage, 0)

    @abstractmethod
    def make_model(self) -> AttentionOnlyTransformer:
        """Return the model with its initial weights, and with what it needs to read and to be read (its tokenizer)."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what a resumed run must share with the one that was stopped, besides the recipe: the data's hash."""

    @abstractmethod
    def batch(self, stage: int, step: int) -> Batch:
        """Return the rows and targets of a step within a stage, over all processes: a pure function of (seed, stage,
        step)."""

    @abstractmethod
    def running_metrics(self, model: AttentionOnlyTransformer) -> dict[str, float]:
        """Measure the model on held-out data while training goes on, the loss (`OBJECTIVE_WORDS`) among the figures."""

    @abstractmethod
    def final_metrics(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        """Return the figures of the finished checkpoint's card."""

    @abstractmethod
    def corpus(self) -> dict[str, Any]:
        """Return the data for the card: name, where it is had, license, hash, what was held out; never a local path."""

    def stage_seed(self, stage: int) -> int:
        """Return the seed of a stage's batches."""
        return self.recipe.seed + _SEED_STRIDE * (stage + 1)


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Load a recipe that comes with aotlens, by name, or one from a TOML file.

    Raises `ValueError` for an unknown name (listing the known ones), bad TOML, or bad keys.
    """
    text = str(name_or_path)
    if text in list_recipes():
        content = (resources.files("aotlens.train") / "recipes" / f"{text}.toml").read_bytes()
    elif text.endswith(".toml"):
        with boundary(text, "a recipe"):
            content = read_regular(Path(text), kind="settings")
    else:
        raise ValueError(f"no recipe {text!r}; expected a .toml file or one of: {', '.join(list_recipes())}.")
    with boundary(text, "a recipe"):
        return Recipe.from_dict(strict_toml(content), where=f"recipe {text}")


def list_recipes() -> list[str]:
    """Return names of the recipes that come with aotlens."""
    folder = resources.files("aotlens.train") / "recipes"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def _drop_defaults(values: dict[str, Any], cls: Any, names: tuple[str, ...]) -> None:
    """Leave out those of `names` that have their default: cards from before there was a choice say the same."""
    for item in dataclasses.fields(cls):
        if item.name in names and values[item.name] == item.default:
            del values[item.name]


def _spelled(values: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return `values` with what is counted named otherwise: `warmup_tokens` as `warmup_images`; sections stay."""
    sections = ("corpus", "images", "prompts", "model", "stages")
    return {
        name if name in sections and isinstance(value, dict | list | tuple) else _renamed(name, old, new): value
        for name, value in values.items()
    }


def _renamed(name: str, old: str, new: str) -> str:
    return f"{name.removesuffix(old)}{new}" if name == old or name.endswith(f"_{old}") else name


def _check_keys(
    cls: Any, values: dict[str, Any], where: str, counted: str = "tokens", left_out: tuple[str, ...] = ()
) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected a table of keys, got {excerpt(values)}.")
    fields = [item for item in dataclasses.fields(cls) if item.name not in left_out]
    known = {_renamed(item.name, "tokens", counted): item for item in fields}
    unknown = sorted(set(values) - known.keys())
    if unknown:
        raise ValueError(f"{where}: unknown keys {', '.join(unknown)}; known: {', '.join(known)}.")
    require_types(cls, {known[name].name: value for name, value in values.items()}, where)
    missing = [
        name
        for name, item in known.items()
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING and name not in values
    ]
    if missing:
        raise ValueError(f"{where}: missing keys {', '.join(missing)}.")
