"""The stages of an atlas, measured and kept on disk: a second atlas of the same model and text costs nothing, and an
interrupted one goes on.

One safetensors file, rewritten whole after each stage: `STAGE/NAME.FIELD` are the arrays of its results, and everything
else is in the header (`aotlens.results.saved`). Its name is the hash of the weights, the configuration, the ids, the
motifs and the settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from aotlens.circuits import all_compositions, copying_rate, ov_circuit, spectrum
from aotlens.conventions import Progress, several
from aotlens.data import Corpus, Encoding, open_corpus, windows_with_documents
from aotlens.files import contents_hash, read_metadata, read_tensors, write_tensors
from aotlens.heads.attention_to import scores_of
from aotlens.heads.examples import ExampleTally
from aotlens.heads.inputs import Inputs
from aotlens.heads.motifs import as_motifs, row_entropy
from aotlens.heads.reader import HeadReader
from aotlens.heads.same_patterns import ConsistencyTally
from aotlens.heads.scores import pooled, without_padding
from aotlens.heads.tally import MotifTally
from aotlens.results.saved import from_plain, to_plain
from aotlens.statistics import as_clusters
from aotlens.untrusted import boundary

#: Rises with the format, and with what is measured: files of an earlier one are left alone, and the atlas is made anew.
SCHEMA_VERSION = 8
Stage = Mapping[str, Any]


def identity(model: Any, tokens: Int64[Tensor, "sequence pos"], settings: Mapping[str, Any]) -> str:
    """Hash everything that an atlas depends on."""
    about = json.dumps([SCHEMA_VERSION, repr(model.cfg), dict(settings)], sort_keys=True, default=str)
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    weights = contents_hash(tensors, {"tokens": hashlib.sha256(tokens.numpy().tobytes()).hexdigest()})
    return hashlib.sha256(f"{about}{weights}".encode()).hexdigest()[:32]


_REMEDY = "Delete it to make the atlas afresh."


class Stages:
    """The stages that are done. `path` None keeps them in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.tensors: dict[str, Tensor] = {}
        self.about: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        metadata = read_metadata(path, "an atlas")
        about = metadata.get("atlas")
        if not isinstance(about, dict):
            raise ValueError(f"{path}: expected an atlas, found another file. {_REMEDY}")
        self.tensors, self.about = read_tensors(path, "an atlas", metadata.get("sha256"), about, _REMEDY), about

    def get(self, name: str, make: Callable[[], Stage]) -> Stage:
        """Return the results of a stage, made now unless they are there."""
        if name not in self.about:
            plain: dict[str, Any] = {}
            for key, value in make().items():
                plain[key] = to_plain(value, self.tensors, key=f"{name}/{key}")
            self.about[name] = plain
            if self.path is not None:
                metadata = {"atlas": self.about, "sha256": contents_hash(self.tensors, self.about)}
                write_tensors(self.path, self.tensors, metadata)
        with boundary(self.path or name, "an atlas", _REMEDY):
            return {key: from_plain(plain, self.tensors) for key, plain in self.about[name].items()}


class Steps:
    """`progress` over stages that count for themselves."""

    def __init__(self, total: int, *, progress: Progress | None = None) -> None:
        self.progress, self.total, self.before = progress, total, 0

    def within(self, size: int) -> Progress | None:
        """Return the progress of a stage that takes `size` of the whole."""
        if self.progress is None:
            return None
        report, before, total = self.progress, self.before, self.total
        return lambda done, of: report(before + size * done // max(of, 1), total)

    def done(self, size: int) -> None:
        self.before += size
        if self.progress is not None:
            self.progress(self.before, self.total)


@dataclass(frozen=True, kw_only=True, eq=False)
class AtlasText:
    """The sequences that an atlas reads."""

    tokens: Int64[Tensor, "sequence pos"]
    """Their ids; of several lengths, moved to the left and filled up."""
    about: str
    """The description of what is read."""
    documents: Int64[np.ndarray, " sequence"] | None
    """The document of each sequence, if it is known."""
    groups: Sequence[tuple[Int64[Tensor, " _"], Int64[Tensor, "_ _"]]]
    """The rows of each length `[row]`, and their ids `[row, pos]`."""
    mask: Bool[Tensor, "sequence pos"] | None = None
    """True at ids that are no padding, if there is any."""
    targets: Int64[Tensor, "sequence pos"] | None = None
    """The labels, at the places of `tokens`."""

    @property
    def lengths(self) -> Int64[np.ndarray, " sequence"] | None:
        """The tokens of each sequence, if they have several lengths."""
        return None if self.mask is None else self.mask.sum(1).numpy()

    @classmethod
    def of(
        cls,
        reader: HeadReader,
        corpus: Corpus | str | Tensor,
        n_tokens: int,
        length: int | None,
        clusters: Iterable[Hashable] | None,
        attention_mask: Tensor | None,
        targets: Tensor | None,
    ) -> AtlasText:
        """Read what `aotlens.heads.atlas` describes. Raises `ValueError` as that."""
        if targets is not None and (not isinstance(corpus, Tensor) or targets.shape != corpus.shape):
            expected = list(corpus.shape) if isinstance(corpus, Tensor) else "none"
            raise ValueError(f"targets: expected ids {expected}, as those of corpus, got {list(targets.shape)}.")
        if isinstance(corpus, Tensor):
            groups, mask = None, None
            if attention_mask is not None:
                groups = without_padding(reader, corpus, attention_mask)
                real = torch.atleast_2d(attention_mask).cpu().bool()
                corpus = _moved_left(corpus, real, 0)
                targets = None if targets is None else _moved_left(targets, real, -100)
                mask = _moved_left(real, real, 0) if len(groups) > 1 else None
            tokens = reader.require_ids(corpus, "corpus", at_least=3)
            lengths = f"{min(ids.shape[1] for _, ids in groups)} to " if groups is not None and mask is not None else ""
            about = f"{several(len(tokens), 'sequence')} of {lengths}{tokens.shape[1]} tokens that were given"
            units = as_clusters(clusters, len(tokens))
            groups = groups or [(torch.arange(len(tokens)), tokens)]
            return cls(tokens=tokens, about=about, documents=units, groups=groups, mask=mask, targets=targets)
        if clusters is not None or attention_mask is not None:
            raise ValueError("clusters and attention_mask: expected none with a corpus, whose documents are known.")
        source = open_corpus(corpus) if isinstance(corpus, str) else corpus
        length = min(reader.n_alike, 512) if length is None else length
        card = getattr(reader.model, "card", None)
        names = (() if card is None else card.held_out(source.names())) or source.names()
        encoding = Encoding.of(reader.model.tokenizer, causal=reader.causal)
        windows = windows_with_documents(source, tuple(names), encoding, -(-n_tokens // length), length)
        tokens = reader.require_ids(windows.ids)
        about = f"{several(len(tokens), 'window')} of {tokens.shape[1]} tokens of {several(len(names), 'document')}"
        units = as_clusters(windows.documents, len(tokens))
        return cls(tokens=tokens, about=about, documents=units, groups=[(torch.arange(len(tokens)), tokens)])


def _moved_left(values: Tensor, real: Bool[Tensor, "sequence pos"], fill: int) -> Tensor:
    """The values at real positions, moved to the left and filled up to the longest sequence."""
    rows = [row[own] for row, own in zip(torch.atleast_2d(values).cpu(), real, strict=True)]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)


def patterns_stage(
    reader: HeadReader, text: AtlasText, n_examples: int, seed: int, batch_size: int, *,
    progress: Progress | None = None,
) -> Stage:  # fmt: skip
    """Measure everything that patterns show, in one pass over the sequences of each length."""
    consistency = ConsistencyTally(reader, text.tokens.shape[1])
    examples = ExampleTally(reader, text.tokens, n_examples, seed)
    entropy, distance = torch.zeros(2, reader.n_layers, reader.n_heads, dtype=torch.float64)
    is_padded = text.mask is not None
    others = min(len(rows) for rows, _ in text.groups) > 1
    scores, n_queries, n_done = [], 0, 0
    for rows, ids in text.groups:
        inputs = Inputs.of(reader, ids)
        units = None if is_padded else text.documents
        motifs = MotifTally(reader, inputs, as_motifs(None), others=others, by_distance=True, clusters=units)
        position = torch.arange(inputs.n_pos)
        for start in range(0, len(inputs), batch_size):
            batch, numbers = inputs[start : start + batch_size], rows[start : start + batch_size]
            add_motifs = motifs.batch(batch, start)

            def add(
                layer: int,
                pattern: Float[Tensor, "batch head query key"],
                numbers: Tensor = numbers,
                position: Tensor = position,
                add_motifs: Callable[[int, Tensor], None] = add_motifs,
            ) -> None:
                add_motifs(layer, pattern)
                consistency.add(layer, pattern)
                examples.add(layer, pattern, numbers)
                entropy[layer] += row_entropy(pattern[:, :, 1:]).sum((0, 2)).double().cpu()
                distance[layer] -= (pattern[:, :, 0] * position.to(pattern)).sum((0, 2)).double().cpu()

            reader.listen_to_patterns(batch.tokens, add)
            n_done += len(batch)
            if progress is not None:
                progress(n_done, len(text.tokens))
        motifs.finish(batch_size)
        n_queries += len(inputs) * (inputs.n_pos - 1)
        distance.add_(motifs.at_distance @ torch.arange(1 - inputs.n_pos, inputs.n_pos).abs().double())
        scores.append(scores_of(motifs, others=others, intervals=not is_padded, batch_size=batch_size))
    return {
        "motifs": pooled(scores, scores[0].about) if is_padded else scores[0],
        "pattern_consistency": consistency.result(),
        "examples": examples.result(),
        "entropy": (entropy / n_queries).numpy(),
        "mean_distance": (distance / n_queries).numpy(),
    }


def circuits_stage(model: Any, tokens: Tensor, attention_mask: Tensor | None) -> Stage:
    """Measure copying and composition."""
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    rates, scores = np.zeros(shape), np.zeros(shape)
    for head in np.ndindex(*shape):
        rates[head] = copying_rate(model, head).top1
        score = spectrum(ov_circuit(model, head), k=1, n_vectors=1).copying_score
        scores[head] = np.nan if score is None else score
    compositions = all_compositions(model, data=tokens, attention_mask=attention_mask)
    parts = {f"composition {mode}": scores.values for mode, scores in compositions.items()}
    return {
        "copying": rates,
        "copying_score": scores,
        **parts,
        **{f"z {mode}": e.z_signs for mode, e in compositions.items()},
    }
