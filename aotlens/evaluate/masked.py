"""The recovery of hidden tokens by a masked language model. All losses in nats a hidden token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.data import IGNORED, MASK_FRACTION, mask_tokens
from aotlens.evaluate.language import discounted_unigrams
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedLoss(Result):
    """The losses of hidden tokens, one a token, in the order of the text."""

    targets: Int64[np.ndarray, " hidden"]
    """Ids of the hidden tokens."""
    losses: Float64[np.ndarray, " hidden"]
    """−log p(token | the rest), nats."""
    guessed: Int64[np.ndarray, " hidden"]
    """The likeliest token instead."""

    @property
    def headline(self) -> str:
        return f"{self.loss:.3f} nats a hidden token, {self.accuracy:.1%} guessed"

    def to_frame(self) -> pd.DataFrame:
        """One row a hidden token: its id, the guessed one's, and its loss in nats."""
        import pandas as pd

        return pd.DataFrame({"target_id": self.targets, "guessed_id": self.guessed, "loss": self.losses})

    @property
    def loss(self) -> float:
        """The mean loss, in nats a hidden token."""
        return float(self.losses.mean())

    @property
    def accuracy(self) -> float:
        """Share of hidden tokens that the model holds likeliest."""
        return float((self.guessed == self.targets).mean())


def mask_id_of(model: AttentionOnlyTransformer) -> int:
    """The id of the model's mask token. Raises `ValueError` for a model that has none, or predicts next tokens."""
    require_ours(model, "mask_id_of")
    mask_id = getattr(model.tokenizer, "mask_id", None)
    if model.cfg.read_in != "tokens" or model.cfg.read_out != "tokens" or not model.sees_later_keys or mask_id is None:
        raise ValueError(
            "expected a masked language model: tokens in and out, causal=False, and a tokenizer with a mask token "
            "(`Tokenizer.with_mask`). This model's loss is `validation_loss`, if it is a causal one."
        )
    return int(mask_id)


@torch.no_grad()
def masked_loss(
    model: AttentionOnlyTransformer,
    windows: Int[Tensor, "*windows pos"] | str | list[str],
    *,
    fraction: float = MASK_FRACTION,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> MaskedLoss:
    """Losses of `fraction` of the tokens of each window, all of them replaced by the mask token.

    In training a tenth of them stay and a tenth are random; here none does, so that no target can be read off its own
    position. The same windows and `seed` hide the same tokens. `progress(windows done, windows)` is called after each
    batch. `windows` may be texts of equally many tokens too. Raises `ValueError` for a model without a mask token, no
    windows, and a loss that is not finite.
    """
    require_ours(model, "masked_loss")
    mask_id = mask_id_of(model)
    if len(windows) == 0:
        raise ValueError("expected at least one window of tokens, got none.")
    windows = model.to_rows(windows, "masked_loss")
    all_inputs, all_targets = mask_tokens(
        windows.long().cpu(), mask_id, seed, 0, fraction=fraction, shown=1.0, random=0.0
    )
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for start in range(0, len(windows), batch_size):
        inputs, targets = (rows[start : start + batch_size] for rows in (all_inputs, all_targets))
        hidden = targets != IGNORED
        logits = model(inputs.to(model.device))[hidden.to(model.device)].float().cpu()
        wanted = targets[hidden]
        losses = torch.nn.functional.cross_entropy(logits, wanted, reduction="none").double()
        parts.append((wanted.numpy(), losses.numpy(), logits.argmax(-1).numpy()))
        if progress is not None:
            progress(start + len(inputs), len(windows))
    ids, losses_of, guessed = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not np.isfinite(losses_of).all():
        raise ValueError("a masked loss is not finite: some weight or activation is not.")
    return MaskedLoss(targets=ids, losses=losses_of, guessed=guessed)


def unigram_loss(counts: Int[np.ndarray, " d_vocab"], targets: Int[np.ndarray, " n"], discount: float = 0.75) -> float:
    """Mean −log p(token) of `targets`, knowing nothing of their context but how often tokens occur (`counts`).

    p(w) is `BigramModel`'s. Raises `ValueError` for no targets, or nothing counted.
    """
    total = int(counts.sum())
    if total < 1 or len(targets) == 0:
        raise ValueError(f"expected counted tokens and targets, got {total} and {len(targets)}.")
    return float(-np.log(discounted_unigrams(counts, discount)[targets]).mean())
