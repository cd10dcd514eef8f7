"""Text for the analyses of trained models: held-out windows for checkpoints of ours, sentences for BERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from aotlens.data import Corpus
from aotlens.train import list_recipes, load_recipe

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from aotlens.models import AttentionOnlyTransformer


def held_out(name: str, corpus: Corpus) -> tuple[str, ...]:
    """The corpus's documents that `name`'s recipe keeps from training; all of them where there is no such recipe."""
    if name not in list_recipes():
        return corpus.names()
    kept = load_recipe(name).corpus.validation
    if not isinstance(kept, tuple):
        return corpus.split(kept).validation
    return tuple(document for document in corpus.names() if document in kept) or corpus.names()


def windows(
    model: AttentionOnlyTransformer, name: str, corpus: Corpus, length: int, how_many: int, seed: int
) -> tuple[Tensor, np.ndarray]:
    """Rows of the start token and `length − 1` tokens at random places of held-out documents, and their documents.

    Raises `ValueError` for a corpus whose documents are all shorter.
    """
    assert model.tokenizer is not None
    names = held_out(name, corpus)
    pieces = [text[: 40 * how_many * length] for text in (d.text for d in corpus.documents(names))]
    ids = [np.array(model.tokenizer.encode(text)) for text in pieces]
    long = [i for i, one in enumerate(ids) if len(one) >= length]
    if not long:
        raise ValueError(f"expected a document of at least {length} tokens, got none; give a longer text as --corpus.")
    rng = np.random.default_rng(seed)
    chosen = rng.choice(long, size=how_many)
    starts = [rng.integers(0, len(ids[i]) - length + 2) for i in chosen]
    rows = [[model.tokenizer.eot_id, *ids[i][s : s + length - 1]] for i, s in zip(chosen, starts, strict=True)]
    return torch.tensor(np.array(rows, dtype=np.int64)), chosen


def load_bert(name_or_path: str) -> TransformerBridge:
    """A BERT from Hugging Face's hub, or from a folder, as a TransformerLens bridge."""
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_transformers(name_or_path, device="cpu")


def sentences(corpus: Corpus, how_many: int, seed: int, *, shortest: int = 20) -> list[str]:
    """Documents of a corpus of sentences (SST-2, say); pieces between full stops where documents are long."""
    found: list[str] = []
    for document in corpus.documents():
        text = " ".join(document.text[:200_000].split())
        found += [text] if len(text) < 400 else [f"{part.strip()}." for part in text.split(". ")]
        if len(found) > 50 * how_many:
            break
    kept = [one for one in found if shortest <= len(one) < 400]
    if len(kept) < how_many:
        raise ValueError(f"expected at least {how_many} sentences, got {len(kept)}; give a longer text as --corpus.")
    return [kept[i] for i in np.random.default_rng(seed).choice(len(kept), how_many, replace=False)]


def bert_tokens(model: Any, sentence: str, *, most: int = 128) -> Tensor:
    """[CLS], the sentence's tokens, [SEP]: `[1, pos]`."""
    return model.tokenizer(sentence, return_tensors="pt", truncation=True, max_length=most)["input_ids"]
