"""card.md: the same facts as config.json, for people."""

from __future__ import annotations

import itertools
from typing import Any

from aotlens.checkpoints.info import CheckpointInfo


def render_card(info: CheckpointInfo) -> str:
    """Write the card in Markdown: what the model is, how well it does beside a bigram (or unigram) model, and how it
    was trained."""
    parts = [f"# {info.name}", info.description.strip(), _shape(info), _figures(info)]
    parts += [_corpus(info), _training(info), _recipe(info.recipe)]
    return "\n\n".join(part for part in parts if part) + "\n"


_LABELS = {
    "n_layers": "layers",
    "n_heads": "heads per layer",
    "d_model": "d_model",
    "d_head": "d_head",
    "d_mlp": "d_mlp",
    "d_vocab": "d_vocab",
    "n_ctx": "n_ctx",
    "attention": "attention",
    "phi": "φ",
    "norm": "norm",
    "positions": "positions",
    "read_in": "reads",
    "image_size": "side of an image, pixels",
    "patch_size": "side of a patch, pixels",
    "n_channels": "channels of an image",
    "d_in": "width of what is read",
    "class_token": "[CLS]",
    "distillation_token": "distillation token",
    "read_out": "writes",
    "d_out": "width of what is written",
    "pooling": "pooling",
}
_OF_ENDS = {
    "patches": ("image_size", "patch_size", "n_channels", "class_token", "distillation_token"),
    "vectors": ("d_in", "class_token"),
}


def _shape(info: CheckpointInfo) -> str:
    if not info.model:
        return ""
    rows = [(_LABELS[key], _value(info.model[key])) for key in _fields(info.model)]
    for key, value in (info.image_processor or {}).items():
        if key != "data":
            rows.append((key if key == "classes" else f"{key} of pixels", _value(value)))
    return "## Model\n\n" + _table(("", ""), rows)


def _fields(model: dict[str, Any]) -> list[str]:
    """The fields of a configuration that say something of this model: of its ends where they are not tokens."""
    reads, writes = model.get("read_in", "tokens"), model.get("read_out", "tokens")
    names = [*itertools.takewhile(lambda name: name != "read_in", _LABELS)]
    if (reads, writes) != ("tokens", "tokens"):
        if "tokens" not in (reads, writes):
            names.remove("d_vocab")
        names += ["read_in", *_OF_ENDS.get(reads, ()), "read_out", "d_out"]
        names += ["pooling"] if writes == "classes" else []
    return [name for name in names if name in model]


def _figures(info: CheckpointInfo) -> str:
    if not info.metrics:
        return ""
    rows = [(name.replace("_", " "), value) for name, value in _flat(info.metrics)]
    lines = ["## Figures", "", f"Measured on the stored weights; losses in {info.words.unit}.", ""]
    lines.append(_table(("", ""), rows))
    loss, baseline = info.losses
    if isinstance(loss, int | float) and isinstance(baseline, int | float):
        lines += ["", info.words.sentence.format(abs(baseline - loss), "below" if loss < baseline else "above")]
    return "\n".join(lines)


def _corpus(info: CheckpointInfo) -> str:
    corpus = info.corpus
    if not corpus:
        return ""
    rows: list[tuple[str, str]]
    rows = [(key, _value(corpus[key])) for key in ("name", "source", "license", "sha256") if key in corpus]
    if corpus.get("validation"):
        names = ", ".join(f"`{name}`" for name in corpus["validation"])  # code: a name may hold __init__
        rows.append(("held out for validation", names))
    return f"## {'Corpus' if info.words.counted == 'tokens' else 'Data'}\n\n" + _table(("", ""), rows)


def _training(info: CheckpointInfo) -> str:
    rows = [
        (info.words.counted, f"{info.tokens_seen:,}"),
        ("time", f"{info.seconds / 60:.1f} minutes"),
        ("device", info.device),
        ("seed", _value(info.seed)),
        ("stored as", info.weights_dtype),
        ("versions", ", ".join(f"{package} {version}" for package, version in info.versions.items())),
    ]
    text = "## Training\n\n" + _table(("", ""), [(key, value) for key, value in rows if value])
    return f"{text}\n\n```\n{info.command}\n```" if info.command else text


def _recipe(recipe: dict[str, Any]) -> str:
    return "## Recipe\n\n" + _table(("setting", "value"), _flat(recipe)) if recipe else ""


def _flat(values: dict[str, Any]) -> list[tuple[str, str]]:
    """One row a value; one row an entry for what has entries: a section's, or a list of dictionaries'."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            rows += [(f"{key}: {entry}", _value(item)) for entry, item in value.items()]
        elif isinstance(value, list | tuple) and value and all(isinstance(item, dict) for item in value):
            rows += [(f"{key}: {i}", _value(item)) for i, item in enumerate(value, start=1)]
        else:
            rows.append((key, _value(value)))
    return rows


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        separator = "; " if any(isinstance(item, dict) for item in value) else ", "
        return separator.join(map(_value, value)) or "none"
    return str(value)


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    return "\n".join([*lines, *(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows)])


def _cell(text: str) -> str:
    """One line, and no bar that would start another cell."""
    return " ".join(text.replace("|", "\\|").split())
