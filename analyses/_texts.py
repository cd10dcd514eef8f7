"""Text for the analyses of trained models: held-out windows for checkpoints of ours, sentences for BERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from aotlens.data import Corpus, Encoding, spread_windows

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

    from aotlens.models import AttentionOnlyTransformer


def documents_to_read(model: AttentionOnlyTransformer, corpus: Corpus) -> tuple[str, ...]:
    """Return the documents that the model's card kept from training, or all of a corpus that has none of them."""
    return model.card.held_out(corpus.names()) or corpus.names()


def windows(
    model: AttentionOnlyTransformer, corpus: Corpus, length: int, how_many: int, samples: int
) -> tuple[Tensor, ...]:
    """Cut `samples` disjoint samples of `how_many` windows `[windows, pos]`, each spread evenly over those documents.

    Raises `ValueError` for a corpus that is too short for so many.
    """
    rows = spread_windows(
        corpus, documents_to_read(model, corpus), Encoding.of(model.tokenizer), samples * how_many, length
    )
    if len(rows) < samples * how_many:
        raise ValueError(
            f"expected text for {samples * how_many} windows of {length} tokens, got {len(rows)}; give a longer "
            "text as --corpus."
        )
    return rows.unflatten(0, (how_many, samples)).unbind(1)


def load_bert(name_or_path: str) -> TransformerBridge:
    """Return a BERT from Hugging Face's hub, or from a folder, as a TransformerLens bridge."""
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_transformers(name_or_path, device="cpu")


def sentences(corpus: Corpus, how_many: int, seed: int, *, shortest: int = 20) -> list[str]:
    """Return documents of a corpus of sentences (SST-2, say); pieces between full stops where documents are long."""
    texts: list[str] = []
    for document in corpus.documents():
        text = " ".join(document.text[:200_000].split())
        texts += [text] if len(text) < 400 else [f"{part.strip()}." for part in text.split(". ")]
        if len(texts) > 50 * how_many:
            break
    fitting = [text for text in texts if shortest <= len(text) < 400]
    if len(fitting) < how_many:
        raise ValueError(f"expected at least {how_many} sentences, got {len(fitting)}; give a longer text as --corpus.")
    return [fitting[i] for i in np.random.default_rng(seed).choice(len(fitting), how_many, replace=False)]


def bert_tokens(model: Any, sentence: str, *, most: int = 128) -> Tensor:
    """Return [CLS], the sentence's tokens, [SEP]: `[1, pos]`."""
    return model.tokenizer(sentence, return_tensors="pt", truncation=True, max_length=most)["input_ids"]
