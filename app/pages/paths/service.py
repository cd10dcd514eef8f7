"""The logit and the score of a prompt that the page explains; prompts are expanded by core/expansions.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aotlens.conventions import Head
from aotlens.views.paths import PathsParameters, Prompt
from aotlens.views.scores import ScoreParameters
from app.core import Core
from app.core.address_values import dotted
from app.core.cache import Cache
from app.core.expansions import Expanded
from app.core.labels import Labels
from app.core.parameters import whole_within
from app.core.runs import RunWorkshop, question_of
from app.core.scores import ScoreQuestion, as_against, whole_numbers
from app.pages.paths.address import FIRST, FIRST_K, MAX_K, PathsState


class Paths:
    """The questions about prompts, with what there is in the place of what nobody has chosen."""

    def __init__(self, core: Core) -> None:
        self.core, self.workshop = core, RunWorkshop(core, core.settings.n_views)
        self._texts: Cache[str, Labels] = core.memory.cache(core.settings.max_models)

    def expanded(self, prompt: Prompt) -> Expanded:
        """Return the prompt of what was chosen."""
        return self.core.expansions.of(prompt.checkpoint, prompt.text)

    # ── a logit ─────────────────────────────────────────────────────────────────────────────────────────────

    def values(
        self, prompt: Mapping[str, Any], position: Any = None, target: Any = None, versus: Any = None, by: str = "abs",
        k: Any = FIRST_K, through: str | None = None, without: str | None = None, *,
        asked: Mapping[str, Any] | None = None, before: Mapping[str, Any] | None = None,
    ) -> PathsParameters:  # fmt: skip
        """Return what the page says that it shows. `asked` is what the address named, and `before` what was shown when
        it was chosen: a position means something in one text only, and a target at one place of it."""
        expanded = self._expand(prompt)
        # By values, not by what Dash says has triggered this: a store that is new says so, too.
        if before is None and asked is not None:
            named = all(prompt.get(key) == asked[key] for key in ("checkpoint", "text"))
            position, target, versus = (position, asked["target"], asked["versus"]) if named else (None, None, None)
        elif before is not None and before["tokens"] != list(expanded.expansion.tokens):
            position = target = versus = None
        elif before is not None and (before["run"] != expanded.key or position not in (None, before["position"])):
            target = versus = None  # another place, another first choice
        return self._chosen(expanded, _whole(position), _whole(target), _whole(versus), by, k, through, without)

    def of_address(self, state: PathsState) -> PathsParameters:
        """Return the choices that an address says."""
        chosen = state.position, state.target, state.versus, state.by, state.k, dotted(state.through), state.without
        return self.values(self._named(state), *chosen)

    def _chosen(
        self, expanded: Expanded, position: int | None, target: int | None, versus: int | None, by: str, k: Any,
        through: str | None, without: str | None,
    ) -> PathsParameters:  # fmt: skip
        """Choose the last position and the model's first choice where nothing is; a head that there isn't is none."""
        expansion, settings = expanded.expansion, self.core.settings
        n_pos, n_out = expansion.n_pos, expansion.frozen.R.shape[1]
        where = position if position is not None and 0 <= position < n_pos else n_pos - 1
        if target is None or not 0 <= target < n_out:
            target = int(expansion.frozen.logits[where].argmax())
        if versus is not None and (not 0 <= versus < n_out or versus == target):
            versus = None
        return PathsParameters(
            checkpoint=expanded.checkpoint, text=expanded.text, position=where, target=target, versus=versus, by=by,
            k=whole_within(_whole(k), FIRST_K, 1, MAX_K), through=through if through in head_names(expanded) else None,
            without=without or None, links=settings.flow_links, budget=settings.path_budget,
        )  # fmt: skip

    def labels(self, checkpoint: str) -> Labels:
        """Return every token of a checkpoint, for search."""
        loaded = self.core.catalog.load(checkpoint)
        n, tokenizer = loaded.model.cfg.d_vocab or 0, loaded.model.tokenizer
        return self._texts.get(
            loaded.key,
            lambda: Labels(of="token", texts=None if tokenizer is None else tokenizer.str_tokens(range(n)), n=n),
        )

    def choices(self, prompt: Mapping[str, Any], position: int) -> list[int]:
        """Return tokens to choose from before anybody types: the likeliest, and what came next."""
        expansion = self._expand(prompt).expansion
        n = min(self.core.settings.n_predictions, expansion.frozen.R.shape[1])
        likely = expansion.frozen.logits[position].topk(n).indices.tolist()
        came = [expansion.tokens[position + 1]] if position + 1 < expansion.n_pos else []
        return [*likely, *(token for token in came if token not in likely)]

    def _expand(self, prompt: Mapping[str, Any]) -> Expanded:
        text, length = prompt.get("text") or "", prompt.get("length")
        return self.core.expansions.of(prompt.get("checkpoint"), text, length=length)

    def _named(self, state: PathsState) -> dict[str, Any]:
        text = FIRST if state.text is None else state.text
        return {"checkpoint": state.checkpoint or self.core.catalog.default(), "text": text}

    # ── a score ─────────────────────────────────────────────────────────────────────────────────────────────

    def score(self, prompt: Mapping[str, Any], cell: Mapping[str, Any]) -> ScoreParameters:
        """Choose the score to explain, and its contrast; what is not chosen, or not there, is taken by the attention.

        By default the query is the last token; the key the one that the head attends to most there, without the first
        token and the query itself; the head, of the layers above the first, the one that attends to such a key most.
        """
        expanded, against = self._expand(prompt), as_against(cell["against"])
        head, query, key, note = _cell(expanded, cell["head"], cell["query"], cell["key"])
        question = ScoreQuestion(
            checkpoint=expanded.checkpoint, text=expanded.text, head=head, query=query, key=key, against=against
        )
        explained = self.core.scores.explain(question)
        return ScoreParameters(
            checkpoint=expanded.checkpoint, text=expanded.text, head=head, query=query, key=key,
            against=explained.score.against, reason=explained.reason, said=note, budget=self.core.settings.path_budget,
        )  # fmt: skip

    def score_of_address(self, state: PathsState) -> ScoreParameters:
        """Return the score that an address says."""
        return self.score(self._named(state), {name: getattr(state, name) for name in CELL})

    def compared_with(self, chosen: ScoreParameters) -> dict[str, str]:
        """Return what the score can be compared with, by the values of an address."""
        question = question_of(chosen.checkpoint, chosen.text, chosen.head, chosen.query, chosen.key, chosen.against)
        return {str(value): name for value, name in self.core.scores.choices(question)}


#: The fields that say which score.
CELL = ("head", "query", "key", "against")


def head_names(expanded: Expanded) -> list[str]:
    """Name the heads: `0.0`, `0.1`, …"""
    n_layers, n_heads = expanded.expansion.n_layers, expanded.expansion.n_heads
    return [f"{layer}.{head}" for layer in range(n_layers) for head in range(n_heads)]


def _cell(expanded: Expanded, head: Any, query: int | None, key: int | None) -> tuple[Head, int, int, str]:
    """A head, a query and a key that there are, and a sentence on a key that the query does not see."""
    n_pos, note = expanded.expansion.n_pos, ""
    whole_numbers("a score", *(part for part in (query, key, *(head or ())) if part is not None))
    query = n_pos - 1 if query is None or not 0 <= query < n_pos else query
    attention = _to_others(expanded, query)
    n_layers, n_heads = attention.shape[:2]
    if head is None or None in head or not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads):
        first = min(1, n_layers - 1)
        above, number = divmod(int(attention[first:].max(-1).argmax()), n_heads)
        head = (first + above, number)
    layer, number = int(head[0]), int(head[1])
    if key is not None and (not 0 <= key < n_pos or (key > query and not expanded.loaded.model.sees_later_keys)):
        key, note = None, f"Query {query} does not see key {key}; another one was taken."
    if key is None:
        key = int(attention[layer, number].argmax())
    return (layer, number), query, key, note


def _to_others(expanded: Expanded, query: int) -> np.ndarray:
    """Return a query's attention, `[layer, head, key]`, without the first token and its own where there is another."""
    attention: np.ndarray = expanded.expansion.frozen.patterns[:, :, query].double().cpu().numpy().copy()
    if query > 1 or (attention.shape[-1] > 2 and expanded.loaded.model.sees_later_keys):
        attention[..., [0, query]] = -np.inf
    return attention


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None
