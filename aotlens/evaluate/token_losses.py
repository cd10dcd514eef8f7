"""The surprisal of each token of a prompt to a model, whether it sees earlier tokens only or both sides."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Int
from torch import Tensor

from aotlens.evaluate.masked import mask_id_of
from aotlens.models import AttentionOnlyTransformer, require_ours


@torch.no_grad()
def token_losses(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, ...] | str | list[str],
    *,
    logits: Float[Tensor, "pos d_vocab"] | None = None,
    batch_size: int = 32,
) -> Float32[np.ndarray, " pos"]:
    """−log p of each token of one prompt, in nats, at the token's own position; NaN at the first, which has none.

    In a causal model p is the token's probability given those before it. A model that sees both sides is asked for each
    token with the mask token in its place and all others as they are (Salazar et al. 2020, pseudo-log-likelihood);
    where the prompt has the mask token itself, there is no token to ask for, and the loss is NaN.

    `logits`, a causal model's own on these tokens (`aotlens.heads.patterns.patterns_and_logits`), save its one forward
    pass. With both sides there is a pass for each token, `batch_size` of them at a time. Raises `ValueError` for a
    batch of prompts, and for a model that sees both sides and has no mask token.
    """
    require_ours(model, "token_losses")
    prompt = model.to_prompt(tokens, "token_losses")[0]
    losses = torch.full(prompt.shape, torch.nan)
    if model.sees_later_keys:
        mask_id = mask_id_of(model)
        asked = (prompt != mask_id).nonzero()[:, 0]
        for places in asked[asked > 0].split(batch_size):
            one_hidden = prompt.repeat(len(places), 1)
            each = torch.arange(len(places), device=prompt.device)
            one_hidden[each, places] = mask_id
            guesses = model(one_hidden)[each, places].float()
            losses[places.cpu()] = F.cross_entropy(guesses, prompt[places], reduction="none").cpu()
    elif len(prompt) > 1:
        found = model(prompt[None])[0] if logits is None else logits
        losses[1:] = F.cross_entropy(found[:-1].float(), prompt[1:].to(found.device), reduction="none").cpu()
    return losses.numpy()
