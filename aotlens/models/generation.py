"""Sampling text: Algorithm 10 of *structures*."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from aotlens.models.transformer import AttentionOnlyTransformer


@torch.no_grad()
def generate(
    model: AttentionOnlyTransformer,
    prompt: str | Tensor,
    max_new_tokens: int = 50,
    *,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    stop_token: int | None = None,
    seed: int | None = None,
) -> str | Tensor:
    """Continue `prompt` by up to `max_new_tokens` tokens (*structures*, Algorithm 10).

    At each step the logits z of the last position give p = softmax(z / temperature), restricted to the
    `top_k` largest, and the next token is drawn from p; `temperature=0` takes the largest logit. Generation
    stops early when every sequence has produced `stop_token` (which is kept; what follows it in a batch is
    `stop_token` again).

    A string comes back as a string (prompt included, start token left out), ids `[batch, pos]` or `[pos]` as
    ids. `seed` makes the draw repeatable. Raises `ValueError` where prompt and new tokens exceed `n_ctx`, and where the
    logits have no finite maximum (NaN, for one), at every temperature.
    """
    if model.cfg.read_in != "tokens" or model.cfg.read_out != "tokens" or model.sees_later_keys:
        raise ValueError("generate needs a causal model that reads and writes tokens.")
    if not isinstance(prompt, str | Tensor):
        raise ValueError(f"prompt: expected a string or token ids, got {type(prompt).__name__}.")
    if max_new_tokens < 0 or temperature < 0 or (top_k is not None and top_k < 1):
        raise ValueError(
            "expected max_new_tokens ≥ 0, temperature ≥ 0 and top_k ≥ 1, "
            f"got {max_new_tokens}, {temperature} and {top_k}."
        )
    tokens = model.to_tokens(prompt) if isinstance(prompt, str) else torch.atleast_2d(prompt).to(model.device)
    if tokens.shape[1] == 0:
        raise ValueError("the prompt is empty: give at least one token.")
    if tokens.shape[1] + max_new_tokens > model.cfg.n_ctx:
        raise ValueError(
            f"{tokens.shape[1]} prompt tokens and {max_new_tokens} new ones exceed the context of "
            f"{model.cfg.n_ctx}; shorten either."
        )
    start = tokens.shape[1]
    generator = None if seed is None else torch.Generator(device=model.device).manual_seed(seed)
    stopped = torch.zeros(tokens.shape[0], dtype=torch.bool, device=model.device)
    for _ in range(max_new_tokens):
        following = sample(model(tokens)[:, -1], temperature, top_k, generator)
        if stop_token is not None:
            following = torch.where(stopped, stop_token, following)
            stopped |= following == stop_token
        tokens = torch.cat([tokens, following[:, None]], dim=1)
        if stopped.all():
            break
    if isinstance(prompt, str):
        return prompt + str(model.to_string(tokens[0, start:]))
    return tokens if prompt.ndim == 2 else tokens[0]


def sample(
    logits: Float[Tensor, "batch vocab"],
    temperature: float | int,
    top_k: int | None,
    generator: torch.Generator | None,
) -> Int[Tensor, " batch"]:
    """One draw a row from softmax(logits / temperature) over its `top_k` largest entries.

    A token may have the logit −∞ and is then never drawn. Raises `ValueError` for a row that holds NaN or +∞, or
    nothing but −∞: it gives no distribution over tokens.
    """
    if not logits.amax(-1).isfinite().all():
        raise ValueError(
            "the model's logits contain NaN or +inf, or are all -inf, so no next token can be drawn; check the weights "
            "and hooks, or use a wider dtype: model.float()."
        )
    if temperature == 0:
        return logits.argmax(-1)
    values, ids = logits.topk(min(top_k or logits.shape[-1], logits.shape[-1]), dim=-1)
    # The largest becomes 0 first: z / temperature itself overflows at tiny temperatures.
    scaled = (values - values[:, :1]).float() / temperature
    return ids.gather(-1, torch.multinomial(scaled.softmax(-1), 1, generator=generator))[:, 0]
