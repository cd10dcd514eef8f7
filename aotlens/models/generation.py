"""Sampling text: Algorithm 10 of *structures*; and, in a model that sees both sides, filling masks.

Both go token by token: `continued` and `filled` give the sequence after each, `generate` and `fill` the last one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.conventions import require_between, require_seed, require_shape, require_whole
from aotlens.models.ours import OwnModel, require_ours


@torch.no_grad()
def generate(
    model: OwnModel,
    prompt: str | Tensor,
    max_new_tokens: int = 50,
    *,
    attention_mask: Tensor | None = None,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    stop_token: int | str | None = None,
    seed: int | None = None,
) -> str | Tensor:
    """Continue `prompt` by up to `max_new_tokens` tokens (*structures*, Algorithm 10).

    At each step the logits z of the last position give p = softmax(z / temperature), restricted to the
    `top_k` largest, and the next token is drawn from p; `temperature=0` takes the largest logit. Generation
    stops early when every sequence has produced `stop_token`, an id or the text of one token (which is kept;
    what follows it in a batch is `stop_token` again).

    A string comes back as a string (prompt included, start token left out), ids `[batch, pos]` or `[pos]` as
    ids. `seed` makes the draw of a batch repeatable. Inside `aotlens.heads.without`, heads are switched off at every
    step.

    `attention_mask`, of the ids' shape, is True (or 1) at real tokens, as in `forward`: each row is continued from its
    real tokens as it would be alone, with padding on either side; the last columns of the result are the new tokens.

    Raises `ValueError` where real and new tokens exceed `n_ctx`, for a mask of another shape or with a row of nothing
    but padding, where the logits have no finite maximum (NaN, for one), at every temperature, and for a model that sees
    later tokens: `fill` asks that for masks.
    """
    require_ours(model, "generate")
    if not isinstance(prompt, str | Tensor):
        raise ValueError(f"prompt: expected a string or token ids, got {type(prompt).__name__}.")
    if isinstance(prompt, str) and attention_mask is not None:
        raise ValueError("attention_mask: expected none with a text, which has no padding; give it with ids.")
    tokens = model.to_tokens(prompt) if isinstance(prompt, str) else torch.atleast_2d(prompt).to(model.device)
    steps = continued(
        model, tokens, max_new_tokens, temperature=temperature, top_k=top_k, stop_token=stop_token, seed=seed,
        attention_mask=None if attention_mask is None else torch.atleast_2d(attention_mask),
    )  # fmt: skip
    last = [tokens, *steps][-1]
    if isinstance(prompt, str):
        return prompt + str(model.to_string(last[0, tokens.shape[1] :], after=tokens[0]))
    return last if prompt.ndim == 2 else last[0]


@torch.no_grad()
def continued(
    model: OwnModel,
    tokens: Int[Tensor, "batch pos"],
    max_new_tokens: int = 50,
    *,
    attention_mask: Tensor | None = None,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    stop_token: int | str | None = None,
    seed: int | None = None,
) -> Iterator[Int[Tensor, "batch longer"]]:
    """Yield the sequences of `generate` after each new token. The arguments and errors are those of `generate`."""
    if model.cfg.read_in != "tokens" or model.cfg.read_out != "tokens" or model.sees_later_keys:
        instead = " This one sees later tokens too: fill asks it for those that are masked." * model.sees_later_keys
        raise ValueError(f"generate needs a causal model that reads and writes tokens.{instead}")
    require_whole("max_new_tokens", max_new_tokens)
    _require_sampling(temperature, top_k)
    if tokens.shape[1] == 0:
        raise ValueError("the prompt is empty: give at least one token.")
    packed, lengths = _without_padding(tokens, attention_mask)
    if packed.shape[1] + max_new_tokens > model.cfg.n_ctx:
        raise ValueError(
            f"{packed.shape[1]} prompt tokens and {max_new_tokens} new ones exceed the context of "
            f"{model.cfg.n_ctx}; shorten either."
        )
    stop = _stop_id(model, stop_token) if isinstance(stop_token, str) else stop_token
    generator = None if seed is None else torch.Generator(device=model.device).manual_seed(require_seed(seed))
    stopped = torch.zeros(tokens.shape[0], dtype=torch.bool, device=model.device)
    rows = torch.arange(len(tokens), device=model.device)
    for _ in range(max_new_tokens):
        real = torch.arange(packed.shape[1], device=model.device) < lengths[:, None]
        logits = model(packed, attention_mask=None if bool(real.all()) else real)[rows, lengths - 1]
        following = sample(logits, temperature, top_k, generator)
        if stop is not None:
            following = torch.where(stopped, stop, following)
            stopped |= following == stop
        tokens = torch.cat([tokens, following[:, None]], dim=1)
        packed = torch.cat([packed, following[:, None]], dim=1)
        packed[rows, lengths] = following
        lengths = lengths + 1
        yield tokens
        if stopped.all():
            break


def _without_padding(
    tokens: Int[Tensor, "batch pos"], attention_mask: Tensor | None
) -> tuple[Int[Tensor, "batch longest"], Int[Tensor, " batch"]]:
    """Return each row's real tokens from column 0 on, and their number."""
    if attention_mask is None:
        return tokens, torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
    require_shape("attention_mask", attention_mask, tokens.shape)
    real = attention_mask.to(device=tokens.device, dtype=torch.bool)
    lengths = real.sum(1)
    if not bool(lengths.all()):
        raise ValueError(f"attention_mask: row {int(lengths.argmin())} is all padding; give at least one real token.")
    order = real.byte().argsort(dim=1, descending=True, stable=True)
    return tokens.gather(1, order)[:, : int(lengths.max())], lengths


def fill(
    model: OwnModel,
    prompt: str | Tensor,
    *,
    temperature: float | int = 0.0,
    top_k: int | None = None,
    seed: int | None = None,
) -> str | Tensor:
    """Return `prompt`, a text or ids `[pos]`, with a token for each mask token, of a model that sees both sides.

    Masks are filled from left to right, each given those before it and the masks that are left; a token is drawn as
    `generate` draws it, but never the mask itself. A string comes back as a string. Raises `ValueError` for a model
    without a mask token, for a causal one (`generate` continues its text), and for a prompt without a mask.
    """
    require_ours(model, "fill")
    steps = filled(model, model.to_prompt(prompt, "fill"), temperature=temperature, top_k=top_k, seed=seed)
    last = list(steps)[-1][0]
    return str(model.to_string(last[1:])) if isinstance(prompt, str) else last


@torch.no_grad()
def filled(
    model: OwnModel,
    tokens: Int[Tensor, "1 pos"],
    *,
    temperature: float | int = 0.0,
    top_k: int | None = None,
    seed: int | None = None,
) -> Iterator[Int[Tensor, "1 pos"]]:
    """Yield the sequence of `fill` after each mask is filled. The arguments and errors are those of `fill`."""
    mask_id = getattr(model.tokenizer, "mask_id", None)
    if not model.sees_later_keys or mask_id is None:
        raise ValueError("fill needs a model that sees both sides and has a mask token; generate continues a text.")
    _require_sampling(temperature, top_k)
    places = (tokens[0] == mask_id).nonzero()[:, 0].tolist()
    if not places:
        raise ValueError("the prompt has no mask to fill: write <|mask|> in the place of a token.")
    generator = None if seed is None else torch.Generator(device=model.device).manual_seed(require_seed(seed))
    for place in places:
        logits = model(tokens)[:, place].clone()
        logits[:, mask_id] = -torch.inf
        tokens = tokens.clone()
        tokens[:, place] = sample(logits, temperature, top_k, generator)
        yield tokens


def _require_sampling(temperature: float | int, top_k: int | None) -> None:
    require_between("temperature", temperature, 0)
    if top_k is not None:
        require_whole("top_k", top_k, 1, 2**31)


def _stop_id(model: OwnModel, text: str) -> int:
    """The id of the token whose text is `text`, the start token's included."""
    eot_id = getattr(model.tokenizer, "eot_id", None)
    if eot_id is not None and model.to_str_tokens([eot_id]) == [text]:
        return int(eot_id)
    return model.to_single_token(text)


def sample(
    logits: Float[Tensor, "batch vocab"],
    temperature: float | int,
    top_k: int | None,
    generator: torch.Generator | None,
) -> Int[Tensor, " batch"]:
    """Draw one entry a row from softmax(logits / temperature) over its `top_k` largest entries.

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
