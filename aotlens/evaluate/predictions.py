"""The predictions of a language model after one position of a prompt; or at it, if the model sees both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class NextToken(Result):
    """The token that did come next (or stands there), and how expected it was."""

    token_id: int
    str_token: str
    probability: float
    rank: int
    """1 for the likeliest token of the vocabulary."""

    @property
    def headline(self) -> str:
        return f"{self.str_token!r} has probability {self.probability:.3g}, rank {self.rank}"

    @property
    def loss(self) -> float:
        """The token's loss, −log probability, in nats."""
        return float(-np.log(self.probability)) if self.probability > 0 else float("inf")


@dataclass(frozen=True, kw_only=True, eq=False)
class NextTokenPredictions(Result):
    """The likeliest tokens after one position, or at it, best first."""

    position: int
    at_position: bool = False
    """Whether these are for the position itself: a masked language model's."""
    token_ids: Int[np.ndarray, " k"]
    str_tokens: tuple[str, ...]
    """Empty strings for a model without a tokenizer."""
    logits: Float[np.ndarray, " k"]
    probabilities: Float[np.ndarray, " k"]
    entropy: float
    """The entropy of the whole distribution, nats."""
    actual: NextToken | None
    """The prompt's token at the next position (at this one, if `at_position`); None after its last, or at a mask."""

    @property
    def headline(self) -> str:
        return f"{self.str_tokens[0]!r} is likeliest, with probability {self.probabilities[0]:.3g}"

    def to_frame(self) -> pd.DataFrame:
        """One row per token: rank, token_id, token, probability, logit."""
        import pandas as pd

        return pd.DataFrame(
            {
                "rank": np.arange(1, len(self.token_ids) + 1),
                "token_id": self.token_ids,
                "token": self.str_tokens,
                "probability": self.probabilities,
                "logit": self.logits,
            }
        )


def next_token_predictions(
    model: AttentionOnlyTransformer, tokens: Int[Tensor, ...] | str | list[str], position: int = -1, k: int = 10
) -> NextTokenPredictions:
    """The `k` likeliest tokens after `position` (−1: the last) of one prompt, a text or token ids.

    Probabilities are softmax over the whole vocabulary, in float32. One forward pass on the fast path. Raises
    `ValueError` for a batch, a position outside the prompt, `k` outside 1 to d_vocab, and a model that sees both sides:
    what it says at a position is of that position, so ask `masked_predictions`.
    """
    require_ours(model, "next_token_predictions")
    if model.sees_later_keys:
        raise ValueError(
            "this model sees later tokens, so it predicts none of them; ask masked_predictions what it holds likely at "
            "a position itself."
        )
    return _predictions(model, tokens, position, k)


def masked_predictions(
    model: AttentionOnlyTransformer, tokens: Int[Tensor, ...] | str | list[str], position: int, k: int = 10
) -> NextTokenPredictions:
    """The `k` likeliest tokens *at* `position` of one prompt, a text or ids, for a model that sees both sides.

    Where the prompt has the mask token, that is the model's guess at what is hidden; elsewhere the model has the token
    before it, and mostly repeats it. `actual` is the prompt's own token there, None at a mask. Raises `ValueError` as
    `next_token_predictions` does, and for a causal model.
    """
    require_ours(model, "masked_predictions")
    if not model.sees_later_keys:
        raise ValueError("this model is causal: ask next_token_predictions what it expects after a position.")
    return _predictions(model, tokens, position, k)


def _predictions(
    model: AttentionOnlyTransformer, tokens: Int[Tensor, ...] | str | list[str], position: int, k: int
) -> NextTokenPredictions:
    tokens = model.to_prompt(tokens, "predictions")[0]
    with torch.inference_mode():
        logits = model(tokens[None].to(model.device))[0]
    return predictions_of_logits(model, tokens, logits, position, k)


def predictions_of_logits(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, " pos"],
    logits: Float[Tensor, "pos d_vocab"],
    position: int = -1,
    k: int = 10,
) -> NextTokenPredictions:
    """Return the predictions of `logits`, the model's own on `tokens`, after `position`; at it, if it sees both sides.

    No forward pass. Raises `ValueError` for a position outside the prompt and for `k` outside 1 to d_vocab.
    """
    require_ours(model, "predictions_of_logits")
    n_pos, ahead = tokens.shape[0], 0 if model.sees_later_keys else 1
    if not -n_pos <= position < n_pos:
        raise ValueError(f"position={position}: expected {-n_pos} to {n_pos - 1} for a prompt of {n_pos} tokens.")
    position %= n_pos
    row = logits[position].detach().float().cpu()
    if not 1 <= k <= row.numel():
        raise ValueError(f"k={k}: expected 1 to {row.numel()}, the size of the vocabulary.")
    log_probabilities = row.log_softmax(-1)
    best = torch.topk(row, k)
    ids = best.indices.tolist()
    actual = None
    next_id = int(tokens[position + ahead]) if position + ahead < n_pos else None
    if next_id is not None and next_id != getattr(model.tokenizer, "mask_id", None):
        actual = NextToken(
            token_id=next_id,
            str_token=_names(model, [next_id])[0],
            probability=float(log_probabilities[next_id].exp()),
            rank=1 + int((row > row[next_id]).sum()),
        )
    return NextTokenPredictions(
        position=position,
        at_position=ahead == 0,
        token_ids=np.array(ids, dtype=np.int64),
        str_tokens=_names(model, ids),
        logits=best.values.numpy().copy(),
        probabilities=log_probabilities[best.indices].exp().numpy().copy(),
        entropy=float(torch.special.entr(log_probabilities.exp()).sum()),
        actual=actual,
    )


def _names(model: AttentionOnlyTransformer, ids: list[int]) -> tuple[str, ...]:
    return ("",) * len(ids) if model.tokenizer is None else tuple(model.tokenizer.str_tokens(ids))
