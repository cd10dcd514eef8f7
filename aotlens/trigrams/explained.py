"""One row with its examples as text, each with the prompt that gives its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result
from aotlens.trigrams.examples import Example
from aotlens.trigrams.rows import TrigramRow

if TYPE_CHECKING:
    import pandas as pd

#: The number of a window's first tokens that may be dropped to find a text that is tokenised in the same way.
_MOST_DROPPED = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplainedRow(Result):
    """A row, and occurrences of its source and destination in text if it was checked."""

    row: TrigramRow
    examples: tuple[Example, ...]
    tokens: tuple[tuple[str, ...], ...]
    """The strings of each example's tokens."""
    prompts: tuple[str, ...]
    """A text that the model tokenises as the end of each example; empty if there is none."""
    dropped: tuple[int, ...]
    """The number of the example's first tokens that its prompt lacks."""

    @property
    def headline(self) -> str:
        return self.row.headline

    def to_frame(self) -> pd.DataFrame:
        """Return the row's line of `TrigramRows.listed_frame`."""
        return self.row.to_frame()

    def examples_frame(self) -> pd.DataFrame:
        """Return one row per occurrence: whether the predicted token follows, the head's attention, the distance, the
        text, and the prompt with the destination's position in it."""
        import pandas as pd

        lines = []
        for example, tokens, prompt, dropped in zip(
            self.examples, self.tokens, self.prompts, self.dropped, strict=True
        ):
            position = example.destination_position
            back = position - example.source_position
            lines.append((example.follows, float(example.attention), back, "".join(tokens), prompt, position - dropped))
        return pd.DataFrame(lines, columns=["follows", "attention", "distance", "text", "prompt", "position"])


def explain_row(model: AttentionOnlyTransformer, row: TrigramRow) -> ExplainedRow:
    """Return a row with its examples, of which there are none if it was not checked against text.

    A window may begin within a word or a character, where its text alone would be cut into other tokens: its first
    tokens are dropped until the text is tokenised in the same way. Raises `ValueError` for a model without a tokenizer.
    """
    require_ours(model, "explain_row")
    if model.tokenizer is None:
        raise ValueError("explain_row: this model has no tokenizer, so its tokens have no text.")
    evidence = row.rows.evidence
    examples = () if evidence is None else tuple(each for each in evidence.examples if each.row == row.number)
    openings = [_opening(model, example) for example in examples]
    return ExplainedRow(
        row=row,
        examples=examples,
        tokens=tuple(tuple(model.tokenizer.str_tokens(example.tokens.tolist())) for example in examples),
        prompts=tuple(prompt for prompt, _ in openings),
        dropped=tuple(dropped for _, dropped in openings),
    )


def _opening(model: AttentionOnlyTransformer, example: Example) -> tuple[str, int]:
    """A text that is tokenised as the example's tokens, with as few of the first dropped as possible; and how many."""
    assert model.tokenizer is not None
    tokens = example.tokens.tolist()
    for dropped in range(min(_MOST_DROPPED, example.source_position)):
        wanted = tokens[1 + dropped :]
        prompt = model.tokenizer.decode(wanted)
        if prompt and model.to_tokens(prompt)[0].tolist()[1:] == wanted:
            return prompt, dropped
    return "", 0
