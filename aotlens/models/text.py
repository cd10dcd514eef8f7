"""Text in and out: `to_tokens`, `to_str_tokens`, `to_string`, under TransformerLens's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aotlens.models.config import ModelConfig


#: Dimensions of a batch of what a model reads.
_N_DIMS = {"tokens": 2, "vectors": 3, "patches": 4}


_IDS = re.compile(r"\s*\[\s*(\d+(?:[\s,]+\d+)*)\s*,?\s*\]\s*")


def ids_in_brackets(text: str) -> list[int] | None:
    """Return the ids of a prompt such as `"[12 7 7 3]"`; None for any other text."""
    match = _IDS.fullmatch(text)
    return None if match is None else [int(part) for part in re.split(r"[\s,]+", match[1])]


@runtime_checkable
class TextTokenizer(Protocol):
    """The interface of a tokenizer to a model; `aotlens.data.Tokenizer` and `SymbolTokenizer` are some.

    `eot_id` begins a text; None where nothing does.
    """

    @property
    def eot_id(self) -> int | None: ...

    def encode(self, text: str, special: bool = False) -> list[int]: ...
    def decode(self, ids: Any) -> str: ...
    def str_tokens(self, ids: Any) -> list[str]: ...


class TextInterface:
    """Text in and out of a model that has a tokenizer; without one, a `ValueError` says so."""

    cfg: ModelConfig
    device: Any
    _as_input: Callable[[Tensor], Tensor]
    #: What makes one of ours of another library's tokenizer; `aotlens.data`, which knows them, puts it here.
    adapt_tokenizer: ClassVar[Callable[..., TextTokenizer] | None] = None

    @property
    def tokenizer(self) -> TextTokenizer | None:
        """What turns text into ids; None without one. Set to a tokenizer of `tokenizers` or `transformers`, it is read
        as `aotlens.data.Tokenizer.of` reads it."""
        tokenizer: TextTokenizer | None = self.__dict__.get("tokenizer")
        return tokenizer

    @tokenizer.setter
    def tokenizer(self, value: Any) -> None:
        if value is not None and not isinstance(value, TextTokenizer):
            if self.adapt_tokenizer is None:
                raise ValueError("a tokenizer of another library is read by aotlens.data; import that first.")
            value = self.adapt_tokenizer(value, d_vocab=self.cfg.d_vocab)
        self.__dict__["tokenizer"] = value

    def _tokenizer(self) -> TextTokenizer:
        if self.tokenizer is None:
            raise ValueError(
                'this model has no tokenizer; pass ids (or "[12 7 7 3]"), or give it one: model.tokenizer = …'
            )
        return self.tokenizer

    def to_tokens(
        self, text: str | list[str], prepend_bos: bool = True, return_mask: bool = False, special: bool = False
    ) -> Any:
        """Return token ids `[batch, pos]` of a text or a list of texts, on the model's device.

        `prepend_bos` puts the tokenizer's start token first (`<|endoftext|>`), if it has one. Shorter texts of a list
        are padded on the right with it, or with id 0; `return_mask=True` also gives the bool mask `[batch, pos]` that
        says which positions are text, for `model(tokens, attention_mask=mask)` (a causal model needs it for
        the loss only). A special token typed in a text stays text; `special=True` reads it as that token, as Hugging
        Face does, and a start token that begins the text so is not put there twice. Nothing is cut: `model(…)` refuses
        what exceeds `n_ctx`. A model without a tokenizer reads ids in brackets, `"[12 7 7 3]"`, as they are.

        Raises `ValueError` for text that is not valid Unicode (a lone surrogate) and for an empty list.
        """
        texts = [text] if isinstance(text, str) else list(text)
        if not texts:
            raise ValueError("expected a text or a list of at least one text, got an empty list.")
        if self.tokenizer is None and len(texts) == 1 and (ids := ids_in_brackets(texts[0])) is not None:
            tensor = torch.tensor([ids], dtype=torch.long, device=self.device)
            return (tensor, torch.ones_like(tensor, dtype=torch.bool)) if return_mask else tensor
        tokenizer = self._tokenizer()
        eot_id, begins = tokenizer.eot_id, getattr(tokenizer, "begins", lambda text: True)
        rows = [list(tokenizer.encode(item, special=True) if special else tokenizer.encode(item)) for item in texts]
        if prepend_bos and eot_id is not None:
            rows = [
                row if not begins(item) or (special and row[:1] == [eot_id]) else [eot_id, *row]
                for item, row in zip(texts, rows, strict=True)
            ]
        longest = max(map(len, rows))
        padded = [row + [eot_id or 0] * (longest - len(row)) for row in rows]
        tokens = torch.tensor(padded, dtype=torch.long, device=self.device).reshape(len(rows), longest)
        if not return_mask:
            return tokens
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        return tokens, torch.arange(longest, device=self.device) < lengths[:, None]

    def to_batch(self, inputs: Tensor | str | list[str]) -> tuple[Tensor, Tensor | None]:
        """Return the model's input as a batch on its device, and which positions are text where a text is padded.

        `inputs` is a text, a list of texts, one sequence or image, or a batch of them. Raises `ValueError` as
        `to_tokens` does.
        """
        if isinstance(inputs, Tensor):
            batch = inputs[None] if inputs.ndim == _N_DIMS[self.cfg.read_in] - 1 else inputs
            return self._as_input(batch).to(self.device), None
        tokens, mask = self.to_tokens(inputs, return_mask=True)
        return tokens, None if bool(mask.all()) else mask

    def to_rows(self, inputs: Tensor | str | list[str], purpose: str) -> Tensor:
        """Return the model's input as a batch without padding, on its device; `purpose` is named in errors.

        Raises `ValueError` for texts of different lengths, where padding would count among what is averaged over.
        """
        batch, mask = self.to_batch(inputs)
        if mask is not None:
            raise unequal_lengths(purpose, mask.sum(1).tolist())
        return batch

    def to_prompt(self, inputs: Tensor | str | list[str], purpose: str) -> Tensor:
        """Return one text, sequence or image as a batch of one, on the model's device; `purpose` is named in errors.

        Raises `ValueError` for a batch of several, and for nothing.
        """
        batch, _ = self.to_batch(inputs)
        n_dims = _N_DIMS[self.cfg.read_in]
        if batch.ndim != n_dims or len(batch) != 1 or batch.numel() == 0:
            expected = "a text, or token ids [pos] or [1, pos]" if n_dims == 2 else f"one input of {self.cfg.read_in}"
            raise ValueError(
                f"{purpose}: expected one prompt, {expected}, got {list(batch.shape)}; give one row of a batch at a "
                "time."
            )
        return batch

    def to_str_tokens(self, text: str | Tensor | list[int], prepend_bos: bool = True) -> list[str]:
        """Return one string a token, for a text or for one sequence of ids."""
        tokenizer = self._tokenizer()
        ids = self.to_tokens(text, prepend_bos=prepend_bos)[0] if isinstance(text, str) else text
        return tokenizer.str_tokens(_one_sequence(ids))

    def to_string(self, tokens: Tensor | list[int], after: Tensor | Sequence[int] = ()) -> str | list[str]:
        """Return the text of one sequence of ids, or a list of texts for a batch. Of ids that come `after` others, it
        is what they add to the text: tokenizers leave out the space before a text's first word."""
        tokenizer = self._tokenizer()
        if isinstance(tokens, Tensor) and tokens.ndim == 2:
            return [tokenizer.decode(row.tolist()) for row in tokens]
        before, ids = _one_sequence(after), _one_sequence(tokens)
        text, whole = tokenizer.decode(before) if before else "", tokenizer.decode([*before, *ids])
        return whole.removeprefix(text) if whole.startswith(text) else tokenizer.decode(ids)

    def to_single_token(self, text: str) -> int:
        """Return the id of a text that is exactly one token; `ValueError` with its pieces otherwise."""
        ids = self._tokenizer().encode(text)
        if len(ids) != 1:
            pieces = self._tokenizer().str_tokens(ids)
            raise ValueError(f"{text!r} is {len(ids)} tokens ({pieces}), expected one.")
        return ids[0]


def unequal_lengths(purpose: str, lengths: Sequence[int]) -> ValueError:
    """Return the error of whatever takes sequences of one length only."""
    return ValueError(
        f"{purpose}: expected texts of equally many tokens, got {', '.join(map(str, lengths))}; give one at a time, or "
        "windows of one length, such as `aotlens.distill.held_out_windows` cuts from a corpus."
    )


def _one_sequence(tokens: Tensor | Sequence[int]) -> list[int]:
    if isinstance(tokens, Tensor):
        if tokens.ndim == 2 and tokens.shape[0] == 1:
            tokens = tokens[0]
        if tokens.ndim > 1:
            raise ValueError(f"expected one sequence of ids [pos], got {list(tokens.shape)}; give one row.")
        return tokens.reshape(-1).tolist()
    return list(tokens)
