"""A prompt's logits as sums over paths (core/expansions.py), and the model without a head or a path, remembered."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.plots import describe
from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.expansions import Expanded
from app.core.labels import Labels
from app.pages.paths.address import Ranking

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.conventions import Head
    from aotlens.paths import Path, Sankey, TopPaths

_PATH = re.compile(r"(token|position|mlp_\d+|bias)(?:@(\d+))?((?:-\d+\.\d+)*)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which logit of which prompt."""

    checkpoint: str
    text: str
    position: int
    target: int
    versus: int | None = None
    by: Ranking = "abs"
    k: int = 20
    through: str | None = None
    """The head that every listed path passes, `1.0`; None: all paths count."""

    @property
    def logit(self) -> int | tuple[int, int]:
        """As the library takes it."""
        return self.target if self.versus is None else (self.target, self.versus)

    def to_dict(self) -> dict[str, Any]:
        """For the browser."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Effect:
    """What happens without a head or a path."""

    name: str
    """`head 1.0`, or the path as a sentence."""
    is_head: bool
    frame: pd.DataFrame
    """`Intervention.to_frame`."""
    next_token: str | None
    """The token that comes after the position, as a quoted literal; None after the last."""
    before: tuple[tuple[str, float], ...]
    """The likeliest next tokens and their probabilities."""
    after: tuple[tuple[str, float], ...]


class Paths:
    """Prompts expanded into paths."""

    def __init__(self, core: Core) -> None:
        settings = core.settings
        self._catalog, self._expansions = core.catalog, core.expansions
        self._settings, self.links = settings, core.links
        self._top: Cache[tuple[str, Question], TopPaths] = core.memory.cache(256)
        self._effects: Cache[tuple[str, Question, str], Effect] = core.memory.cache(256)
        self._texts: Cache[str, Labels] = core.memory.cache(settings.max_models)

    def expand(self, checkpoint: str | None, text: str, *, length: int | None = None) -> Expanded:
        """A prompt's expansion; see `Expansions.of`."""
        return self._expansions.of(checkpoint, text, length=length)

    def question(
        self,
        expanded: Expanded,
        position: int | None,
        target: int | None,
        versus: int | None,
        by: Ranking,
        k: int,
        through: str | None = None,
    ) -> Question:
        """What is asked, with the last position and the model's first choice where nothing else is chosen.

        A head that the model doesn't have is none.
        """
        n_pos, n_out = expanded.expansion.n_pos, expanded.expansion.frozen.R.shape[1]
        where = position if position is not None and 0 <= position < n_pos else n_pos - 1
        if target is None or not 0 <= target < n_out:
            target = int(expanded.expansion.frozen.logits[where].argmax())
        if versus is not None and (not 0 <= versus < n_out or versus == target):
            versus = None
        return Question(
            checkpoint=expanded.checkpoint,
            text=expanded.text,
            position=where,
            target=target,
            versus=versus,
            by=by,
            k=k,
            through=through if through in self.head_names(expanded) else None,
        )

    def head_names(self, expanded: Expanded) -> list[str]:
        """`0.0`, `0.1`, …"""
        n_layers, n_heads = expanded.expansion.n_layers, expanded.expansion.n_heads
        return [f"{layer}.{head}" for layer in range(n_layers) for head in range(n_heads)]

    def asked(self, question: Question) -> Expanded:
        """The prompt of a question."""
        return self.expand(question.checkpoint, question.text)

    def labels(self, checkpoint: str) -> Labels:
        """Every token of a checkpoint, for search."""
        loaded = self._catalog.load(checkpoint)
        n, tokenizer = loaded.model.cfg.d_vocab or 0, loaded.model.tokenizer
        return self._texts.get(
            loaded.key,
            lambda: Labels(of="token", texts=None if tokenizer is None else tokenizer.str_tokens(range(n)), n=n),
        )

    def choices(self, expanded: Expanded, position: int) -> list[int]:
        """Tokens to choose from before anybody types: what came next, and the likeliest."""
        expansion = expanded.expansion
        n = min(self._settings.n_predictions, expansion.frozen.R.shape[1])
        likely = expansion.frozen.logits[position].topk(n).indices.tolist()
        came = [expansion.tokens[position + 1]] if position + 1 < expansion.n_pos else []
        return [*likely, *(one for one in came if one not in likely)]

    def probability(self, expanded: Expanded, position: int, token: int) -> float:
        """Of a token after a position."""
        return float(expanded.expansion.frozen.logits[position].double().softmax(-1)[token])

    def total_error(self, question: Question) -> float:
        """Sum of paths − model logit, for the question's own logit, with its sign."""
        expansion = self.asked(question).expansion
        total = expansion.by_order(question.logit)[:, question.position].double().sum()
        return float(total) - expansion.logit(question.position, question.logit)

    def orders(self, question: Question) -> tuple[np.ndarray, list[int]]:
        """What the paths with k heads add, k = 0 …, and how many there are."""
        expansion = self.asked(question).expansion
        values = expansion.by_order(question.logit)[:, question.position].cpu().double().numpy()
        return values, list(expansion.n_paths_by_order)

    def top(self, question: Question) -> TopPaths:
        """The largest paths."""
        expanded = self.asked(question)
        return self._top.get((expanded.key, question), lambda: self._search(expanded, question))

    def _search(self, expanded: Expanded, question: Question) -> TopPaths:
        try:
            return expanded.expansion.top(
                question.k,
                question.position,
                question.logit,
                question.by,
                through=None if question.through is None else _parse_head(question.through),
                budget=self._settings.path_budget,
            )
        except ValueError as error:  # a path that isn't finite
            raise RequestError(f"The largest paths can't be listed: {error}") from error

    def sources(self, question: Question) -> tuple[np.ndarray, float]:
        """What all paths from each position add (biases apart, with their total)."""
        expansion = self.asked(question).expansion
        found = expansion.by_source_position(question.position, question.logit).cpu().double().numpy()
        bias = [name == "bias" for name in expansion.source_names]
        return found[~np.array(bias)].sum(0), float(found[bias].sum())

    def flow(self, question: Question) -> Sankey:
        """The largest links of the flow."""
        expansion = self.asked(question).expansion
        return expansion.sankey(question.position, question.logit, max_links=self._settings.flow_links)

    def heads(self, question: Question) -> tuple[np.ndarray, np.ndarray]:
        """`[layer, head]`: what each head itself adds, and all paths through it."""
        expansion = self.asked(question).expansion
        direct = expansion.by_head(question.logit).heads[:, :, question.position]
        through = expansion.through_each(question.position, question.logit)
        return direct.cpu().double().numpy(), through.cpu().double().numpy()

    def without(self, question: Question, what: str) -> Effect:
        """The prompt without a head (`1.0`) or a path (`token@4-0.2-1.3`): runs the model."""
        expanded = self.asked(question)
        return self._effects.get((expanded.key, question, what), lambda: self._without(expanded, question, what))

    def _without(self, expanded: Expanded, question: Question, what: str) -> Effect:
        from aotlens.paths import without_head, without_path

        expansion = expanded.expansion
        path = parse_path(what)
        head = None if path is not None else _parse_head(what)
        try:
            with expanded.loaded.exclusive:
                if path is not None:
                    found = without_path(expansion, path)
                elif head is not None:
                    found = without_head(expansion, head)
                else:
                    raise RequestError(f"{what!r} is neither a head nor a path; choose one in the tables.")
        except RequestError:
            raise
        except ValueError as error:
            raise RequestError(f"{what} can't be taken away here: {error}") from error
        at = question.position
        following = expansion.tokens[at + 1] if at + 1 < expansion.n_pos else None
        return Effect(
            name=f"head {what}" if path is None else expansion.describe(path, question.logit),
            is_head=path is None,
            frame=found.to_frame(at, question.logit),
            next_token=None if following is None else self.quoted(expanded, following),
            before=self._likeliest(expanded, found.clean[at]),
            after=self._likeliest(expanded, found.forward[at]),
        )

    def _likeliest(self, expanded: Expanded, logits: Any) -> tuple[tuple[str, float], ...]:
        best = logits.softmax(-1).topk(min(5, logits.numel()))
        names = (self.labels(expanded.checkpoint).text(token) for token in best.indices.tolist())
        return tuple(zip(names, best.values.tolist(), strict=True))

    def quoted(self, expanded: Expanded, token: int) -> str:
        """A token beyond doubt."""
        return describe(self.labels(expanded.checkpoint).text(token))


def format_path(path: Path) -> str:
    """A path as an address has it: `token@4-0.2-1.3`."""
    start = path.start if path.source_position is None else f"{path.start}@{path.source_position}"
    return "-".join([start, *(f"{layer}.{head}" for layer, head in path.heads)])


def parse_path(what: str) -> Path | None:
    """The path that `format_path` wrote; None for anything else."""
    from aotlens.paths import Path

    found = _PATH.fullmatch(what)
    if found is None:
        return None
    source, position, heads = found.groups()
    pairs = tuple(pair for one in heads.split("-")[1:] if (pair := _parse_head(one)) is not None)
    return Path(source, pairs, None if position is None else int(position))


def _parse_head(what: str) -> Head | None:
    layer, dot, head = what.partition(".")
    return (int(layer), int(head)) if dot and layer.isdecimal() and head.isdecimal() else None
