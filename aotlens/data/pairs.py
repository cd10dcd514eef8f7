"""Pairs of prompts: a clean one, a corrupted one that differs in what matters, and the two outputs between them.

    names = ["Emma", "Harriet", "Elizabeth", "Jane"]
    template = "{A} bowed to {B}, and {B} smiled at"
    pairs = PromptPairs.from_template(model, template, answer=" {A}", wrong=" {B}", words=names, n=12)

Of a template the corrupted prompt has A and B exchanged, so that the wrong answer is right there. What
`aotlens.patching` puts from one prompt into the other stands at positions that correspond: the same ones where both
prompts have equally many tokens, otherwise those of a longest common subsequence of their tokens, or given by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from aotlens.conventions import require_choice, require_seed, require_whole
from aotlens.data.pair_parts import MAX_WORDS, Alignment, aligned, checked_positions, grouped_pairs, template_names
from aotlens.data.windows import probe_start
from aotlens.models import require_ours
from aotlens.results import Result
from aotlens.untrusted import check_name, read_lines, strict_json

if TYPE_CHECKING:
    import pandas as pd

FIELDS, _OPTIONAL = ("clean", "corrupted", "answer", "wrong"), ("positions", "cluster")


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """One pair, as the model reads it."""

    clean: Tensor
    """A prompt without a batch dimension: ids `[pos]`, vectors `[pos, d_in]`, or an image."""
    corrupted: Tensor
    answer: int
    """The output that the clean prompt leads to: a token's id, or a class."""
    wrong: int
    """The one that the corrupted prompt leads to."""
    positions: Alignment
    cluster: str | None = None
    """The property that it has in common with other pairs, such as its document; None: it stands for itself."""

    @property
    def content(self) -> tuple[object, ...]:
        """Both prompts and both outputs, so that pairs can be compared."""
        prompts = ((ids.shape, ids.double().numpy(force=True).tobytes()) for ids in (self.clean, self.corrupted))
        return (*prompts, self.answer, self.wrong)


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptPairs(Result):
    """Pairs of prompts of one model, and their tokens in words."""

    pairs: tuple[Pair, ...]
    str_tokens: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] | None = None
    """The strings of each pair's tokens, of the clean and of the corrupted prompt; None without a tokenizer."""
    answer_words: tuple[tuple[str, str], ...] | None = None
    """The answer and the wrong answer of each pair in words; None without a tokenizer."""

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __getitem__(self, rows: slice) -> PromptPairs:
        """Return the pairs of a slice."""
        return self.at(range(len(self))[rows])

    def at(self, rows: Iterable[SupportsIndex]) -> PromptPairs:
        """Return the pairs of these numbers."""
        numbers = [int(row) for row in rows]
        pairs = tuple(self.pairs[row] for row in numbers)
        if self.str_tokens is None or self.answer_words is None:
            return PromptPairs(pairs=pairs)
        words = tuple(self.str_tokens[row] for row in numbers)
        return PromptPairs(pairs=pairs, str_tokens=words, answer_words=tuple(self.answer_words[row] for row in numbers))

    def __repr__(self) -> str:
        lengths = sorted({len(prompt) for pair in self for prompt in (pair.clean, pair.corrupted)})
        return f"PromptPairs({len(self)} pairs, of {lengths[0]} to {lengths[-1]} positions)"

    @property
    def headline(self) -> str:
        alone = (len(pair.clean) + len(pair.corrupted) - 2 * len(pair.positions) for pair in self)
        counts = [len(self.differences(row)) + n for row, n in enumerate(alone)]
        few, many = min(counts), max(counts)
        words = self.answer_words
        asked = f", {words[0][0]!r} or {words[0][1]!r}" if words and len(self) == 1 else ""
        n = f"{few} to {many} tokens" if few < many else f"{few} token{'' if few == 1 else 's'}"
        return f"{len(self)} pair{'' if len(self) == 1 else 's'} of prompts that differ in {n}{asked}"

    @property
    def answers(self) -> Tensor:
        """The ids of the answers, `[pair]`."""
        return torch.tensor([pair.answer for pair in self])

    @property
    def wrong(self) -> Tensor:
        """The ids of the wrong answers, `[pair]`."""
        return torch.tensor([pair.wrong for pair in self])

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """The cluster of each pair; None where each stands for itself. Equal pairs are in one cluster, whatever theirs
        are called: measured again they are no further evidence."""
        labels = tuple(pair.cluster for pair in self)
        first: dict[tuple[object, ...], int] = {}
        equal = [first.setdefault(pair.content, row) for row, pair in enumerate(self)]
        if None in labels:
            if len(first) == len(labels):
                return None
            labels = tuple(f"pair {row + 1}" for row in range(len(labels)))
        for row, earlier in enumerate(equal):
            labels = tuple(labels[earlier] if label == labels[row] else label for label in labels)
        return labels  # type: ignore[return-value]

    def differences(self, row: int) -> tuple[tuple[int, int], ...]:
        """Return the positions of a pair that correspond and hold something else."""
        pair = self.pairs[row]
        return tuple((a, b) for a, b in pair.positions if not torch.equal(pair.clean[a], pair.corrupted[b]))

    def require_tokenizer_of(self, model: Any) -> None:
        """Raise `ValueError` for what is no model of ours, and where the model's tokenizer reads other texts in these
        tokens than `str_tokens` has."""
        require_ours(model, "PromptPairs.require_tokenizer_of")
        for number, pair in enumerate(self if self.str_tokens and model.tokenizer else ()):
            words = tuple(model.tokenizer.str_tokens(pair.clean.tolist()))
            if words != tuple(self.str_tokens[number][0]):  # type: ignore[index]
                raise ValueError(
                    f"pairs: expected tokens of this model's tokenizer, got those of another: it reads "
                    f"{''.join(words)!r:.60} where the pairs say {''.join(self.str_tokens[number][0])!r:.60}; make the "  # type: ignore[index]
                    "pairs with this model."
                )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair: clean, corrupted, answer, wrong, length (of the clean prompt), differences
        (positions)."""
        import pandas as pd

        rows = []
        for number, pair in enumerate(self):
            texts = [None, None] if self.str_tokens is None else ["".join(text) for text in self.str_tokens[number]]
            rows.append(
                {
                    "clean": texts[0], "corrupted": texts[1], "answer": pair.answer, "wrong": pair.wrong,
                    "length": len(pair.clean), "differences": " ".join(str(a) for a, _ in self.differences(number)),
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    @classmethod
    def from_texts(cls, model: Any, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> PromptPairs:
        """Return pairs of texts: (clean, corrupted, answer, wrong), or dictionaries with these keys and, where wanted,
        `positions`, pairs of positions (clean, corrupted) that correspond, and `cluster`.

        Answers are texts that are one token each for the model's tokenizer, or ids. Raises `ValueError`, naming the
        row, for an answer of several tokens, an answer that is the wrong one, prompts that are equal, positions that
        do not correspond, and for no pairs at all.
        """
        require_ours(model, "PromptPairs.from_texts")
        pairs = []
        for number, row in enumerate(rows, start=1):
            try:
                pairs.append(_pair_of_texts(model, _fields(row)))
            except ValueError as error:
                raise ValueError(f"pair {number}: {error}") from error
        return _of(pairs, model)

    @classmethod
    def from_jsonl(cls, model: Any, path: str | Path) -> PromptPairs:
        """Return pairs of texts from a file with an object of JSON a line. Raises `ValueError`, with the line, for what
        is none."""
        require_ours(model, "PromptPairs.from_jsonl")
        pairs = []
        for number, line in enumerate(read_lines(Path(path), "held-out text"), start=1):
            if line.strip():
                try:
                    pairs.append(_pair_of_texts(model, _fields(strict_json(line))))
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: expected a pair as an object of JSON: {error}") from error
        if not pairs:
            raise ValueError(f"{path}: expected at least one pair, got none.")
        return _of(pairs, model)

    @classmethod
    def from_template(
        cls, model: Any, template: str, *, answer: str, wrong: str, words: Iterable[str], n: int = 32, seed: int = 0
    ) -> PromptPairs:
        """Return `n` pairs of a template with two names in braces: in each, two other words stand in their place.

        The corrupted prompt is the clean one with its two words exchanged. Words are used whose answers are one token
        each and whose prompts have one length, the one that most of them have. Pairs are drawn without repetition, and
        no two of them share a word where there are 2n words or more. With fewer, words are split into groups, as small
        as n allows, whose pairs share words: a group is a cluster.

        Raises `ValueError` for a template without exactly two names, for braces that hold more than one of these, for
        more than `MAX_WORDS` words, and where fewer than `n` pairs can be made.
        """
        require_ours(model, "PromptPairs.from_template")
        require_whole("n", n, 1)
        names = sorted(template_names(template))
        if len(names) != 2:
            raise ValueError(
                f"template {template!r}: expected two names in braces, such as {{A}} and {{B}}, got {names}."
            )
        for text in (answer, wrong):
            if unknown := sorted(template_names(text) - {*names}):
                raise ValueError(
                    f"answer {text!r}: expected the template's names, {' and '.join(names)}, got {unknown}."
                )
        count = cache(lambda text: len(model.tokenizer.encode(text)))
        by_length: dict[int, dict[tuple[str, ...], tuple[str, ...]]] = {}
        distinct = list(dict.fromkeys(words))
        if len(distinct) > MAX_WORDS or not all(isinstance(word, str) for word in distinct):
            raise ValueError(
                f"words: expected at most {MAX_WORDS} texts, got {len(distinct)}, such as {distinct[:1]!r:.60}."
            )
        for both in permutations(distinct, 2):
            first, exchanged = dict(zip(names, both, strict=True)), dict(zip(names, both[::-1], strict=True))
            row = tuple(text.format(**word) for text, word in
                        ((template, first), (template, exchanged), (answer, first), (wrong, first)))  # fmt: skip
            length, other, *answers = map(count, row)
            if length == other and answers == [1, 1]:
                by_length.setdefault(length, {})[both] = row
        rows: dict[tuple[str, ...], tuple[str, ...]] = max(by_length.values(), key=len, default={})
        if len(rows) < n:
            raise ValueError(
                f"template {template!r}: of {len(distinct)} words {len(rows)} pairs can be made with answers of one "
                f"token and prompts of one length, expected {n}; give more words that are one token each, or ask for "
                "fewer."
            )
        drawn = grouped_pairs(rows, n, np.random.default_rng(require_seed(seed)))
        return cls.from_texts(
            model, [{**dict(zip(FIELDS, rows[both], strict=True)), "cluster": group} for both, group in drawn]
        )

    @classmethod
    def induction(
        cls, model: Any, *, differs: str = "value", n: int = 32, length: int = 16, seed: int = 0
    ) -> PromptPairs:
        """Return pairs of random tokens: `… a b … a` leads to b. All tokens are the same in the corrupted prompt but
        one: with "value" `… a c … a`, which leads to c; with "key" `… c b … a`, in which a has not come before, and the
        wrong answer is c.

        "value" asks what is moved, "key" how it is found: by what stands before b (K-composition). `length` different
        tokens stand before the last a, after the start token where there is one; a and b stand in the first half of
        them. Raises `ValueError` for another `differs`, and a length below 4 or beyond the model's context or tokens.
        """
        require_ours(model, "PromptPairs.induction")
        require_whole("n", n, 1)
        require_choice("differs", differs, ("value", "key"))
        start = probe_start(model.tokenizer)
        begin = [] if start is None else [start]
        most = min(model.cfg.n_ctx, model.cfg.d_vocab) - 1 - len(begin)
        require_whole("length", length, 4, most)
        rng = np.random.default_rng(require_seed(seed))
        pairs = []
        for _ in range(n):
            drawn = rng.choice(np.setdiff1d(np.arange(model.cfg.d_vocab), begin), length + 1, replace=False).tolist()
            place = int(rng.integers(0, length // 2))
            changed = place + (differs == "value")
            other = [*drawn[:changed], drawn[-1], *drawn[changed + 1 : -1]]
            clean, corrupted = (torch.tensor([*begin, *row, drawn[place]]) for row in (drawn[:-1], other))
            pairs.append(_checked(clean, corrupted, drawn[place + 1], drawn[-1]))
        return _of(pairs, model)

    @classmethod
    def of_inputs(
        cls, model: Any, clean: Sequence[Tensor] | Tensor, corrupted: Sequence[Tensor] | Tensor,
        answers: Sequence[int] | Tensor, wrong: Sequence[int] | Tensor, *, clusters: Sequence[str] | None = None,
    ) -> PromptPairs:  # fmt: skip
        """Return pairs of what a model reads: ids, images or vectors, of one shape in a pair, so that positions
        correspond.

        Raises `ValueError` for numbers or shapes that differ, and as `from_texts`.
        """
        require_ours(model, "PromptPairs.of_inputs")
        counts = [len(clean), len(corrupted), len(answers), len(wrong), len(clean if clusters is None else clusters)]
        if len({*counts}) != 1:
            raise ValueError(f"pairs: expected equally many of each, got {counts}.")
        pairs = [
            _checked(
                a,
                b,
                *(_output(model, "answer", int(output)) for output in (x, y)),
                positions=_same(model, a, b),
                alike=model.cfg.read_out == "vectors",
                cluster=None if clusters is None else clusters[row],
            )
            for row, (a, b, x, y) in enumerate(zip(clean, corrupted, answers, wrong, strict=True))
        ]
        return _of(pairs, model if model.cfg.read_in == "tokens" else None)


def _of(pairs: Sequence[Pair], model: Any) -> PromptPairs:
    if not pairs:
        raise ValueError("pairs: expected at least one pair, got none.")
    tokenizer = None if model is None else model.tokenizer
    if tokenizer is None:
        return PromptPairs(pairs=tuple(pairs))

    def words(ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(tokenizer.str_tokens(list(ids)))

    return PromptPairs(
        pairs=tuple(pairs),
        str_tokens=tuple((words(pair.clean.tolist()), words(pair.corrupted.tolist())) for pair in pairs),
        answer_words=tuple((words([pair.answer])[0], words([pair.wrong])[0]) for pair in pairs),
    )


def _fields(row: Any) -> dict[str, Any]:
    """A row's fields by their names."""
    if isinstance(row, Mapping):
        unknown, missing = sorted({*row} - {*FIELDS, *_OPTIONAL}), sorted({*FIELDS} - {*row})
        if unknown or missing:
            raise ValueError(f"expected the keys {', '.join(FIELDS)}, and {' or '.join(_OPTIONAL)} if wanted, got {sorted(row)}.")  # noqa: E501  # fmt: skip
        return dict(row)
    if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != len(FIELDS):
        raise ValueError(f"expected ({', '.join(FIELDS)}), got {row!r:.80}.")
    return dict(zip(FIELDS, row, strict=True))


def _pair_of_texts(model: Any, row: dict[str, Any]) -> Pair:
    clean, corrupted = (_ids(model, name, row[name]) for name in FIELDS[:2])
    answer, wrong = (_output(model, name, row[name]) for name in FIELDS[2:])
    own_positions = row.get("positions")
    positions = None if own_positions is None else checked_positions(own_positions, len(clean), len(corrupted))
    return _checked(clean, corrupted, answer, wrong, positions=positions, cluster=row.get("cluster"))


def _ids(model: Any, name: str, text: Any) -> Tensor:
    if isinstance(text, Tensor):
        return text
    if not isinstance(text, str):
        raise ValueError(f"{name}: expected a text, got {text!r:.60}.")
    ids: Tensor = model.to_tokens(text)[0].cpu()
    if len(ids) > model.cfg.n_ctx:
        raise ValueError(f"{name}: {len(ids)} tokens, and the model reads at most {model.cfg.n_ctx}.")
    return ids


def _output(model: Any, name: str, value: Any) -> int:
    cfg = model.cfg
    n = cfg.d_vocab if cfg.read_out == "tokens" else cfg.d_out or cfg.d_model
    if isinstance(value, str):
        return int(model.to_single_token(value))
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n:
        raise ValueError(f"{name}: expected a text of one token, or an output 0 to {n - 1}, got {value!r:.60}.")
    return value


def _checked(
    clean: Tensor,
    corrupted: Tensor,
    answer: int,
    wrong: int,
    *,
    positions: Alignment | None = None,
    cluster: Any = None,
    alike: bool = False,
) -> Pair:
    if answer == wrong and not alike:  # of a model that writes vectors one number may be all that there is
        raise ValueError(f"expected an answer and another one as the wrong one, got output {answer} for both.")
    if clean.shape == corrupted.shape and torch.equal(clean, corrupted):
        raise ValueError("expected prompts that differ, got the same one twice.")
    if cluster is not None and not isinstance(cluster, str):
        raise ValueError(f"cluster: expected a name, got {cluster!r:.60}.")
    check_name(cluster or "", "cluster")
    corresponding = aligned(clean, corrupted) if positions is None else positions
    if not corresponding:
        raise ValueError("the prompts have no token in common, so no positions correspond; give `positions` by hand.")
    return Pair(
        clean=clean, corrupted=corrupted, answer=answer, wrong=wrong, positions=corresponding, cluster=cluster
    )  # fmt: skip


@torch.no_grad()
def _same(model: Any, clean: Tensor, corrupted: Tensor) -> Alignment:
    """Every position of what the model makes of two inputs of one shape: tokens, or patches and what stands before."""
    if clean.shape != corrupted.shape:
        raise ValueError(f"expected inputs of one shape, got {list(clean.shape)} and {list(corrupted.shape)}.")
    n_pos = model(clean[None].to(model.device), stop_at_layer=0).shape[1]
    return tuple((position, position) for position in range(n_pos))
