"""Text that none of several models was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotlens.data import Windows
    from aotlens.models import AttentionOnlyTransformer


def shared_held_out_windows(
    models: Sequence[AttentionOnlyTransformer], corpus: str, n_windows: int, length: int | None = None
) -> Windows:
    """Cut `n_windows` windows, spread over a corpus, of documents that none of the models was trained on.

    `corpus` is a name as `aotlens.data.open_corpus` takes it. Windows have `length` tokens, at most as many as every
    model reads (None: as many), by the first model's tokenizer. Raises `ValueError` as `open_corpus` and
    `aotlens.data.windows_with_documents`, for a model of another library, and where each document was training text of
    some model.
    """
    from aotlens.data import Encoding, open_corpus, windows_with_documents
    from aotlens.models import require_ours

    for model in models:
        require_ours(model, "shared_held_out_windows")
    source = open_corpus(corpus)
    names = source.names()
    held_out = [set(model.card.held_out(names)) for model in models if model.card is not None]
    left = tuple(name for name in names if all(not documents or name in documents for documents in held_out))
    if not left:
        raise ValueError(f"{corpus}: expected a document that none of the models was trained on, found none.")
    longest = min(model.cfg.n_ctx for model in models)
    size = longest if length is None else min(length, longest)
    return windows_with_documents(source, left, Encoding.of(models[0].tokenizer), n_windows, size)
