"""The attention of every head on a prompt, with hover and lock: a text, a picture, or points of a regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from aotlens.conventions import several
from aotlens.data.images import open_images
from aotlens.data.regression import RegressionTask
from aotlens.data.windows import probe_start
from aotlens.evaluate.regression import points_of, require_regression
from aotlens.heads import attention_patterns
from aotlens.heads.patterns import patterns_and_logits
from aotlens.heads.reader import HeadReader
from aotlens.plots import data_uri, picture
from aotlens.report.parts import Maps, Part, Text
from aotlens.report.subject import Subject, require_images
from aotlens.widget import HeadMaps, Strip

#: The most entries of all heads' maps on all prompts, a byte each, so that the file stays within its 5 MB: 144 heads of
#: 105 tokens.
MAX_MAP_BYTES = 1_600_000
#: The most positions of a prompt that the report selects.
N_POSITIONS = 48
_HOW = (
    "Pointing at a token, a head or an entry marks the same query and key everywhere; a click holds it, Escape lets "
    "go. Each map has its own scale, up to its largest entry; numbers are right to 1/255 of that."
)
#: Classes that the model names for an image, at most.
N_CLASSES = 3


def map_parts(subject: Subject) -> list[Part]:
    """Return the grid of all heads, the map of one, and the prompt; of a model of images, over each picture."""
    prompts = {"tokens": _of_tokens, "patches": _of_images, "vectors": _of_vectors}[subject.reads](subject)
    parts: list[Part] = []
    for about, maps in prompts:
        parts += [Text(text=about if parts else f"{about} {_HOW}"), Maps(maps=maps)]
    return parts


def _maps(
    subject: Subject, pattern: np.ndarray, str_tokens: Sequence[str], visible: np.ndarray, **rest: Any
) -> HeadMaps:
    """The maps, at first with the best induction head large if the atlas knows one, else with the first head."""
    atlas, head = subject.atlas, subject.heads[0]
    if atlas is not None and "induction" in atlas.random.motifs:
        layer, number = np.unravel_index(int(np.nanargmax(atlas.random["induction"])), pattern.shape[:2])
        head = int(layer), int(number)
    return HeadMaps(values=pattern, str_tokens=tuple(str_tokens), visible=visible, head=head, **rest)


def _of_tokens(subject: Subject) -> list[tuple[str, HeadMaps]]:
    reader = HeadReader.of(subject.model, "maps")
    n_heads = reader.n_layers * reader.n_heads
    limit = min(int((MAX_MAP_BYTES / n_heads) ** 0.5), reader.n_ctx)
    if subject.text is not None:
        ids = reader.require_ids(subject.text, "text")[0]
        if len(ids) > limit:
            raise ValueError(
                f"--text: {len(ids)} tokens of {n_heads} heads are too many for one file; give at most {limit}."
            )
        about = "The text was given."
    else:
        ids, about = _example(subject, reader, min(limit, N_POSITIONS))
    tokenizer = subject.model.tokenizer
    if subject.is_bridge:
        patterns: list[np.ndarray] = []
        with torch.no_grad():
            reader.listen_to_patterns(ids[None], lambda layer, pattern: patterns.append(pattern[0].cpu().numpy()))
        names = tuple(tokenizer.convert_ids_to_tokens(ids.tolist())) if tokenizer is not None else ()
        visible = reader.visible_keys(len(ids)).numpy()
        pattern = np.stack(patterns).astype(np.float32)
    else:
        attention = attention_patterns(subject.model, ids)
        names, visible, pattern = attention.str_tokens, attention.visible, attention.pattern
    names = names or tuple(f"#{number}" for number in ids.tolist())
    return [(about, _maps(subject, pattern, names, visible))]


def _example(subject: Subject, reader: HeadReader, n_pos: int) -> tuple[torch.Tensor, str]:
    """Ids of text that the atlas has read; else random tokens twice, which any model can read."""
    atlas = subject.atlas
    if atlas is not None:
        read = atlas.examples.tokens
        about = f"The first {n_pos} tokens of a passage that the atlas was measured on; --text takes another prompt."
        return torch.from_numpy(read[len(read) // 2, :n_pos]), about
    start = probe_start(subject.model.tokenizer)
    before = [] if start is None else [start]
    half = max(1, min(16, (n_pos - len(before)) // 2))
    drawn = torch.randint(reader.d_vocab, (half,), generator=torch.Generator().manual_seed(0))
    ids = torch.cat([torch.tensor(before, dtype=torch.long), drawn, drawn])[:n_pos]
    return ids, f"{half} random tokens that come twice; --text takes a prompt."


def _of_vectors(subject: Subject) -> list[tuple[str, HeadMaps]]:
    if subject.text is not None:
        raise ValueError("--text: this model reads vectors, not text.")
    model = subject.model
    d = model.cfg.d_model if model.cfg.d_in is None else model.cfg.d_in
    require_regression(model, d)
    n_points = min(points_of(model), N_POSITIONS // 2)
    prompt = RegressionTask(d=d).sample(1, n_points).tokens[0]
    patterns = attention_patterns(model, prompt)
    names = tuple(f"{'xy'[position % 2]}{1 + position // 2}" for position in range(len(prompt)))
    about = (
        f"A prompt of in-context regression in {d} dimensions: {n_points} inputs x, and their labels y between them."
    )
    return [(about, _maps(subject, patterns.pattern, names, patterns.visible))]


def _of_images(subject: Subject) -> list[tuple[str, HeadMaps]]:
    if subject.text is not None:
        raise ValueError("--text: this model reads images, not text; --image takes one.")
    require_images(subject.model)
    cfg = subject.model.cfg
    images = [(f"{given.name}, its middle square as the model sees it,", given.pixels) for given in subject.images]
    images = images or [_bundled(subject)]
    n_pos = (cfg.image_size // cfg.patch_size) ** 2 + cfg.n_before
    n_bytes = len(images) * cfg.n_layers * cfg.n_heads * n_pos**2
    if n_bytes > MAX_MAP_BYTES:
        raise ValueError(
            f"Maps of {several(len(images), 'image')} with {n_pos} positions and "
            f"{cfg.n_layers * cfg.n_heads} heads are {n_bytes:,} entries, and one file carries at most "
            f"{MAX_MAP_BYTES:,}" + ("; give fewer images." if len(images) > 1 else ".")
        )
    return [_prompt(subject, name, pixels) for name, pixels in images]


def _prompt(subject: Subject, name: str, pixels: UInt8[Tensor, "channel size size"]) -> tuple[str, HeadMaps]:
    model = subject.model
    patterns, outputs = patterns_and_logits(model, pixels)
    strip = Strip(
        columns=model.cfg.image_size // model.cfg.patch_size,
        n_before=model.cfg.n_before,
        picture=data_uri(picture(pixels.numpy(), cell=model.cfg.image_size)),
    )
    names = [token.replace(" ", "") for token in patterns.str_tokens]
    about = f"{name} patch by patch (row, column).{_taken_for(model, outputs)}"
    return about, _maps(subject, patterns.pattern, names, patterns.visible, strip=strip)


def _taken_for(model: object, outputs: Float[Tensor, " outputs"]) -> str:
    """The likeliest classes with their probabilities, as a sentence; nothing for a model that names no classes."""
    classes = model.image_processor.classes  # type: ignore[attr-defined]
    if len(classes) != outputs.numel():
        return ""
    shares = outputs.detach().float().softmax(-1).cpu()
    best = torch.topk(shares, min(N_CLASSES, len(classes)))
    named = [f"{classes[place]} ({share:.1%})" for share, place in zip(best.values, best.indices.tolist(), strict=True)]
    return f" The model takes it for {named[0]}" + (f", or {', '.join(named[1:])}." if named[1:] else ".")


def _bundled(subject: Subject) -> tuple[str, UInt8[Tensor, "channel height width"]]:
    """The first test image of the digits or of the sample of Fashion-MNIST, whichever the model was trained on."""
    cfg = subject.model.cfg
    spec = "digits" if str(subject.model.image_processor.data) == "digits" else "fashion-sample"
    data = open_images(spec)
    image = data.test.images[0]
    expected = (cfg.n_channels, cfg.image_size, cfg.image_size)
    if tuple(image.shape) != expected:
        raise ValueError(
            f"This model reads images of {' × '.join(map(str, expected))} pixels, and none of that size "
            "comes with aotlens; --image takes one of any size."
        )
    return f"The first test image of {spec}, of class {data.test.classes[int(data.test.labels[0])]},", image
