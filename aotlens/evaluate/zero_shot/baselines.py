"""Unigram and bigram models of the text that a model was trained on, as scorers beside it."""

from __future__ import annotations

import numpy as np

from aotlens.data import Corpus, Encoding
from aotlens.evaluate.language import BigramModel
from aotlens.evaluate.zero_shot.scorers import BigramScorer, Scorer, UnigramScorer
from aotlens.models import AttentionOnlyTransformer, require_ours


def fit_baselines(model: AttentionOnlyTransformer, corpus: Corpus) -> dict[str, Scorer]:
    """A unigram and a bigram model of the corpus's documents, in the model's tokens and without those held out from it.

    Documents are separated as in training. Takes some 25 bytes a token and a second a megabyte of text. Raises
    `ValueError` where the model has no tokenizer, or was trained on none of the corpus.
    """
    require_ours(model, "fit_baselines")
    encoding, d_vocab = Encoding.of(model.tokenizer), model.cfg.d_vocab
    assert d_vocab is not None
    held_out = set(model.card.held_out(corpus.names())) if model.card is not None else set()
    names = tuple(name for name in corpus.names() if name not in held_out)
    if not names:
        raise ValueError(f"{corpus.spec}: expected documents that the model was trained on; all are held out from it.")
    parts = [
        np.array([encoding.separator, *encoding.encode(document.text)], dtype=np.int32)
        for document in corpus.documents(names)
    ]
    ids = np.concatenate(parts)
    return {
        "unigram": UnigramScorer(np.bincount(ids, minlength=d_vocab), model.tokenizer, model.cfg.n_ctx),
        "bigram": BigramScorer(BigramModel.fit(ids, d_vocab), model.tokenizer, model.cfg.n_ctx),
    }
