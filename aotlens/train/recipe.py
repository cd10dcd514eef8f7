"""What a training run does: a `Recipe`, read from TOML.

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

Unknown keys are refused everywhere.
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from aotlens.models import PHIS, ModelConfig

_LATER = ("objective", "rows_at_once", "recompute_activations")
_LATER_OF_CORPUS = ("tokenizer", "n_documents")


@dataclass(frozen=True, kw_only=True)
class CorpusRecipe:
    """What text to train on, and where a user gets it."""

    spec: str | None = None
    """`stdlib`, `file:PATH`, `dir:PATH` or `hf:NAME[:config[:field]]`; None where the command must give it."""
    name: str = ""
    """What to call it in the card; the spec where empty."""
    source: str = ""
    """Where a user gets it."""
    license: str = ""
    d_vocab: int = 4096
    """Size of the byte-level BPE trained on the training documents, or of `tokenizer`."""
    tokenizer: str = ""
    """`gpt2_bpe:FOLDER` for GPT-2's own, from `encoder.json` and `vocab.bpe` in a folder; `gpt2_bpe` where the command
    must name the folder. Empty: one is trained."""
    n_documents: int | None = None
    """Of a stream (`hf:`), the first so many documents; None is all."""
    validation: tuple[str, ...] | float = 0.05
    """Held-out documents, by name, or their share."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of training with its own rows and its own schedule: linear warm-up, then a cosine."""

    tokens: int
    """Training tokens, rounded up to whole steps."""
    batch_size: int = 16
    """Rows a step, over all processes."""
    sequence_length: int = 256
    """Tokens a row, the start token included."""
    learning_rate: float | int = 1e-3
    """At the end of the warm-up."""
    warmup_tokens: int = 100_000
    """Over which the learning rate rises; at most a tenth of the stage."""
    final_fraction: float | int = 0.1
    """Share of the learning rate that is left at the end of the cosine; 1 keeps it constant."""
    repeat_fraction: float | int = 0.0
    """Share of rows that are a repeated segment; 1 with random segments needs no text."""
    repeat_source: Literal["random", "text"] = "random"

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.warmup_tokens < 0:
            raise ValueError(
                f"stage: expected tokens ≥ 1 and warmup_tokens ≥ 0, got {self.tokens}, {self.warmup_tokens}."
            )
        if not 0 < self.learning_rate < 1 or not 0 <= self.final_fraction <= 1:
            raise ValueError(
                "stage: expected 0 < learning_rate < 1 and 0 ≤ final_fraction ≤ 1, got "
                f"{self.learning_rate} and {self.final_fraction}."
            )

    @property
    def n_steps(self) -> int:
        per_step = self.batch_size * self.sequence_length
        return -(-self.tokens // per_step)

    @property
    def warmup_steps(self) -> int:
        return -(-min(self.warmup_tokens, self.tokens // 10) // (self.batch_size * self.sequence_length))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what comes out of a training run, but the corpus's bytes and the device."""

    name: str
    model: dict[str, Any]
    """Fields of `ModelConfig` except d_vocab, which is the tokenizer's (one more with `objective = "masked"`)."""
    stages: tuple[Stage, ...]
    description: str = ""
    seed: int = 0
    """Of the weights and of the batches."""
    objective: Literal["next_token", "masked"] = "next_token"
    """What is predicted: each next token, or hidden ones from both sides as BERT does it (`aotlens.data.masking`)."""
    corpus: CorpusRecipe = field(default_factory=CorpusRecipe)
    weight_decay: float | int = 0.1
    """AdamW's, on matrices only."""
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | int = 1.0
    """Largest norm of the gradient."""
    cpu_autocast: bool = False
    """bfloat16 autocast on CPUs too (always on CUDA); a third faster where the CPU has instructions for it."""
    rows_at_once: int | None = None
    """Rows of a pass forward and backward, on each device; a step adds up the gradients of as many passes as its rows
    need. None is all rows in one pass. The step is the same but for rounding."""
    recompute_activations: bool = False
    """Compute each layer's activations again in the backward pass instead of keeping them: less memory, more time."""
    weights_dtype: Literal["float32", "bfloat16"] = "float32"
    """How the finished checkpoint stores its weights; final metrics are measured on those."""
    validation_tokens: int | None = None
    """Validation tokens, spread over the held-out documents, that final losses are measured on; None is all."""
    log_tokens: int = 200_000
    """Tokens between lines of metrics."""
    evaluate_tokens: int = 1_000_000
    """Tokens between validation losses and motif scores."""
    save_tokens: int = 500_000
    """Tokens between saved states, from which a killed run resumes."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError(f"recipe {self.name!r}: expected at least one stage of training.")
        if self.rows_at_once is not None and self.rows_at_once < 1:
            raise ValueError(f"recipe {self.name!r}: rows_at_once={self.rows_at_once}: expected at least 1, or none.")
        if "d_vocab" in self.model:
            raise ValueError(f"recipe {self.name!r}: d_vocab belongs in [corpus]; it is the tokenizer's.")
        n_ctx = self.model_config(self.corpus.d_vocab).n_ctx
        longest = max(stage.sequence_length for stage in self.stages)
        if longest > n_ctx:
            raise ValueError(
                f"recipe {self.name!r}: a stage has sequence_length = {longest} (256 where it says nothing), but the "
                f"model's n_ctx is {n_ctx}; set sequence_length to at most {n_ctx}, or raise n_ctx."
            )
        self._check_objective()
        phi = self.model_config(self.corpus.d_vocab).phi
        if (why := PHIS[phi].untrainable) is not None:
            raise ValueError(f"recipe {self.name!r}: phi={phi!r} cannot be trained: {why}.")

    def _check_objective(self) -> None:
        cfg = self.model_config(self.corpus.d_vocab)
        if self.objective not in ("next_token", "masked"):
            raise ValueError(f"recipe {self.name!r}: objective={self.objective!r}: expected 'next_token' or 'masked'.")
        if self.objective == "next_token" and cfg.sees_later_keys:
            raise ValueError(
                f"recipe {self.name!r}: a model that sees later tokens has its next token before it; set causal = "
                "true, or objective = 'masked'."
            )
        if self.objective == "masked" and not cfg.sees_later_keys:
            raise ValueError(
                f"recipe {self.name!r}: objective = 'masked' hides tokens to be found from both sides; set causal = "
                "false in [model]."
            )

    def model_config(self, d_vocab: int) -> ModelConfig:
        """The model's configuration; its seed is the recipe's."""
        model = {key: None if value == "none" else value for key, value in self.model.items()}  # TOML has no null
        return ModelConfig.from_dict({"seed": self.seed, **model, "d_vocab": d_vocab})

    @property
    def n_steps(self) -> int:
        return sum(stage.n_steps for stage in self.stages)

    @property
    def total_tokens(self) -> int:
        return sum(stage.n_steps * stage.batch_size * stage.sequence_length for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `from_dict` undoes it. Later choices are named where they are not what there was before them."""
        values = dataclasses.asdict(self)
        _drop_defaults(values, Recipe, _LATER)
        _drop_defaults(values["corpus"], CorpusRecipe, _LATER_OF_CORPUS)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "recipe") -> Recipe:
        """Build and check. Raises `ValueError` naming unknown, missing or misfitting keys."""
        _check_keys(cls, values, where)
        corpus = dict(values.get("corpus", {}))
        _check_keys(CorpusRecipe, corpus, f"{where}, [corpus]")
        if isinstance(corpus.get("validation"), list):
            corpus["validation"] = tuple(corpus["validation"])
        stages = values.get("stages", ())
        for stage in stages:
            _check_keys(Stage, stage, f"{where}, [[stages]]")
        fields = {
            **values,
            "corpus": CorpusRecipe(**corpus),
            "stages": tuple(Stage(**stage) for stage in stages),
            "betas": tuple(values.get("betas", (0.9, 0.95))),
        }
        try:
            return cls(**fields)
        except TypeError as error:
            raise ValueError(f"{where}: {error}") from error


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A recipe that comes with aotlens, by name, or one from a TOML file.

    Raises `ValueError` for an unknown name (listing the known ones), bad TOML, or bad keys.
    """
    text = str(name_or_path)
    if text in list_recipes():
        content = (resources.files("aotlens.train") / "recipes" / f"{text}.toml").read_text(encoding="utf-8")
    elif text.endswith(".toml"):
        try:
            content = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"recipe {text}: cannot be read ({error}).") from error
    else:
        raise ValueError(f"no recipe {text!r}; expected a .toml file or one of: {', '.join(list_recipes())}.")
    try:
        values = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"recipe {text}: not valid TOML ({error}).") from error
    return Recipe.from_dict(values, where=f"recipe {text}")


def list_recipes() -> list[str]:
    """Names of the recipes that come with aotlens."""
    folder = resources.files("aotlens.train") / "recipes"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def _drop_defaults(values: dict[str, Any], cls: Any, names: tuple[str, ...]) -> None:
    """Leave out those of `names` that have their default: cards from before there was a choice say the same."""
    for each in dataclasses.fields(cls):
        if each.name in names and values[each.name] == each.default:
            del values[each.name]


def _check_keys(cls: Any, values: dict[str, Any], where: str) -> None:
    fields = dataclasses.fields(cls)
    unknown = sorted(set(values) - {f.name for f in fields})
    if unknown:
        raise ValueError(f"{where}: unknown keys {', '.join(unknown)}; known: {', '.join(f.name for f in fields)}.")
    missing = [
        f.name
        for f in fields
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in values
    ]
    if missing:
        raise ValueError(f"{where}: missing keys {', '.join(missing)}.")
