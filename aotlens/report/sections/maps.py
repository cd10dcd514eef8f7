"""Attention of every head on one prompt, with hover and lock."""

from __future__ import annotations

import numpy as np
import torch

from aotlens.conventions import Head
from aotlens.data.regression import RegressionTask
from aotlens.data.windows import probe_start
from aotlens.evaluate.regression import points_of, require_regression
from aotlens.heads import attention_patterns
from aotlens.heads.reader import HeadReader
from aotlens.report.parts import Maps, Part, Text
from aotlens.report.sections.image_prompts import MAX_MAP_BYTES, Prompt, image_prompts
from aotlens.report.subject import Subject
from aotlens.widget import HeadMaps

#: Positions of a prompt that nobody chose, at most.
N_POSITIONS = 48
_HOW = (
    "Pointing at a token, a head or an entry marks the same query and key everywhere; a click holds it, Escape lets "
    "go. Each map has its own scale, up to its largest entry; numbers are right to 1/255 of that."
)


def map_parts(subject: Subject) -> list[Part]:
    """Return the grid of all heads, the map of one, and the prompt; of a model of images, over each picture."""
    prompts = {"tokens": _of_tokens, "patches": image_prompts, "vectors": _of_vectors}[subject.reads](subject)
    parts: list[Part] = []
    for prompt in prompts:
        maps = HeadMaps(
            values=prompt.pattern, str_tokens=prompt.str_tokens, visible=prompt.visible, strip=prompt.strip,
            head=_first(subject, prompt.pattern),
        )  # fmt: skip
        parts += [Text(text=f"{prompt.about} {_HOW}" if not parts else prompt.about), Maps(maps=maps)]
    return parts


def _first(subject: Subject, pattern: np.ndarray) -> Head:
    """The head shown large at first: the best induction head, where the atlas knows one; else the first chosen."""
    atlas = subject.atlas
    if atlas is not None and "induction" in atlas.random.motifs:
        layer, head = np.unravel_index(int(np.nanargmax(atlas.random["induction"])), pattern.shape[:2])
        return int(layer), int(head)
    return subject.heads[0]


def _of_tokens(subject: Subject) -> list[Prompt]:
    reader = HeadReader.of(subject.model, "maps")
    most = _most_positions(reader.n_layers * reader.n_heads)
    limit = min(most, reader.n_ctx)
    if subject.text is not None:
        ids = reader.require_ids(subject.text, "text")[0]
        if len(ids) > limit:
            raise ValueError(
                f"--text: {len(ids)} tokens of {reader.n_layers * reader.n_heads} heads are too many for "
                "one file; give at "
                f"most {limit}."
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
    return [Prompt(pattern=pattern, str_tokens=names, visible=visible, about=about)]


def _most_positions(n_heads: int) -> int:
    return int((MAX_MAP_BYTES / n_heads) ** 0.5)


def _example(subject: Subject, reader: HeadReader, n_pos: int) -> tuple[torch.Tensor, str]:
    """Ids of text that the atlas has read; else random tokens that come twice, which any model can be asked."""
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


def _of_vectors(subject: Subject) -> list[Prompt]:
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
        f"A prompt of in-context regression in {d} dimensions: {n_points} inputs x and, between them, their labels y."
    )
    return [Prompt(pattern=patterns.pattern, str_tokens=names, visible=patterns.visible, about=about)]
