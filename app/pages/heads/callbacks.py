"""What the Heads page asks of the server: one result per text, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import no_update
from dash.exceptions import PreventUpdate

from app.core import Core, head_maps
from app.core.errors import RequestError
from app.core.files import File
from app.core.head_maps import View
from app.core.inference import PromptResult
from app.core.switches import How
from app.pages.heads import continuing, files, maps, off_callbacks, why
from app.pages.heads.asking import ask, ask_without, there
from app.pages.heads.browser import SWITCHED
from app.pages.heads.ids import ids
from app.pages.heads.motif_labels import motif_labels
from app.pages.heads.predictions import predictions_table
from app.pages.heads.service import Continuations
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.panel import about
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files, save_pictures, submit_text, when_seen

EXPLAIN_MAP: dict[View, list[Any]] = {
    "attention": about(
        "The entry at (query, key) is how much of the key's value vector the head moves to the query. Point at it for "
        "the exact value; click it to lock it, and its query among the tokens: then “Why?” (or w) says why the head "
        "attends there.",
        formula="A(i, j) = φ(score(i, j)); the head adds Σⱼ A(i, j) · xⱼ W_V W_O to the stream at i",
        source="A Mathematical Framework for Transformer Circuits (2021); φ, MSSA: Attention-Only Transformers, Eq. 4",
    ),
    "weighted": about(
        "Attention times the length of the key's value vector, ‖v‖: how much the head really moves. Heads often rest "
        "on a token whose value is nearly zero; here such attention disappears.",
        formula="A(i, j) · ‖xⱼ W_V‖",
        source="Attention is Not Only a Weight (Kobayashi et al. 2020)",
    ),
    "scores": about(
        "What the head computes before it chooses: query · key, scaled, in nats. A softmax depends on differences "
        "within a row only, so compare along rows, not down columns.",
        formula="score(i, j) = xᵢ W_Q W_Kᵀ xⱼᵀ / √d_head",
        source="A Mathematical Framework for Transformer Circuits (2021)",
    ),
}


def register(app: App, core: Core, service: Continuations) -> None:
    """The page's callbacks."""
    submit_text(app, prompt=ids.PROMPT, text=ids.TEXT, example=ids.EXAMPLE, checkpoint=ids.CHECKPOINT, run=ids.RUN)
    when_seen(app, ids.PREDICTED, (ids.NEXT,))
    maps.register(app, core)
    _register_prompt(app, core)
    _register_views(app, core)
    _register_files(app, core)
    off_callbacks.register(app, core)
    continuing.register(app, core, service)
    why.register(app, core)


def _register_prompt(app: App, core: Core) -> None:
    @guarded(
        app,
        panel=ids.PROMPT_PANEL,
        inputs=stores(prompt=ids.PROMPT),
        state=stores(shown=ids.ANALYSIS, head=ids.HEAD, position=ids.POSITION, off=ids.OFF, locked=ids.CELL),
        output=stores(analysis=ids.ANALYSIS, head=ids.HEAD, position=ids.POSITION, off=ids.OFF, locked=ids.CELL)
        | children(count=ids.COUNT),
        empty={"head": no_update, "off": no_update, "locked": no_update},
    )
    def analyse(
        prompt: dict[str, Any], shown: dict[str, Any] | None, head: Any, position: Any, off: Any, locked: Any
    ) -> Answer:
        result = ask(core, prompt)
        patterns = result.patterns
        shape, tokens = [patterns.n_layers, patterns.n_heads], patterns.tokens.tolist()
        same_text = shown is None or shown["tokens"] == tokens
        limit = core.inference.token_limit(core.catalog.load(result.checkpoint))
        return {
            "analysis": {"key": result.key, "layers": shape[0], "heads": shape[1], "tokens": tokens},
            "head": head if _is_within(head, shape) else _opening(core, result),
            "off": [list(one) for one in there(off, shape)],
            "position": position if same_text and position is not None and position < patterns.n_pos else None,
            "locked": locked if same_text else {"cell": None, "against": None},
            "count": f"{patterns.n_pos} of at most {limit} tokens",
        }


def _register_views(app: App, core: Core) -> None:
    @guarded(
        app, panel=ids.MAP, inputs=values(view=ids.VIEW), parts=("explanation",), empty={"explanation": no_update},
        at_first=False,
    )  # fmt: skip
    def explain(view: View) -> Answer:
        return {"explanation": EXPLAIN_MAP[view]}

    @guarded(
        app,
        panel=ids.GRID,
        inputs=stores(shown=ids.ANALYSIS),
        state=stores(known=ids.MOTIFS, prompt=ids.PROMPT),
        output=stores(motifs=ids.MOTIFS) | props("data", options=ids.RANK),
        at_first=False,
        shares_notice=True,
    )
    def score_motifs(shown: Any, known: dict[str, Any] | None, prompt: dict[str, Any]) -> Answer:
        checkpoint = prompt["checkpoint"]
        if shown is None or (known is not None and known["checkpoint"] == checkpoint):
            raise PreventUpdate
        labels = motif_labels(core.inference.motifs(checkpoint), core.inference.labels(checkpoint))
        options = [{"value": motif, "label": motif.replace("_", " ")} for motif in labels["scores"]]
        return {"motifs": {"checkpoint": checkpoint, **labels}, "options": options}

    @guarded(
        app,
        panel=ids.NEXT,
        inputs=stores(wanted=shell.seen(ids.NEXT)),
        state=stores(prompt=ids.PROMPT),
        parts=("body",),
        output=off_callbacks.PREDICTED_WITHOUT,
        empty={"off_title": "Ablation"},
    )
    def predict(wanted: Any, prompt: dict[str, Any]) -> Answer:
        if wanted is None:
            return None
        result = ask(core, prompt)
        predictions = core.inference.predictions(prompt["checkpoint"], prompt["text"], wanted["position"])
        body = predictions_table(predictions, result.patterns.str_tokens[predictions.position])
        return {"body": body} | off_callbacks.predicted_without(core, prompt, wanted)


def _register_files(app: App, core: Core) -> None:
    def of_head(make: Callable[..., File]) -> Callable[..., File]:
        def file(prompt: Any, head: list[int] | None, view: View, hide_first: bool, **_: Any) -> File:
            if head is None:
                raise RequestError("No head is chosen: click one in the grid first.")
            return make(ask(core, prompt), *whole_head(head), view, hide_first)

        return file

    def of_predictions(make: Callable[..., File]) -> Callable[..., File]:
        def file(prompt: Any, position: int | None, **_: Any) -> File:
            return make(ask(core, prompt), core.inference.predictions(prompt["checkpoint"], prompt["text"], position))

        return file

    def of_all_heads(prompt: Any, off: Any, how: How, corpus: str | None, **_: Any) -> File:
        return files.all_heads_npz(ask_without(core, prompt, off, how, corpus), core.settings.max_export_bytes)

    def all_heads(prompt: Any, view: View, hide_first: bool, off: Any, how: How, corpus: str | None) -> Any:
        return head_maps.all_heads_figure(ask_without(core, prompt, off, how, corpus), view, hide_first)

    chosen = stores(prompt=ids.PROMPT) | values(view=ids.VIEW) | props("checked", hide_first=ids.HIDE_FIRST) | SWITCHED
    save_pictures(app, ids.GRID, all_heads, chosen)
    save_files(
        app,
        {
            shell.export(ids.MAP, "csv"): of_head(files.head_csv),
            shell.export(ids.MAP, "json"): of_head(files.head_json),
            shell.export(ids.GRID, "npz"): of_all_heads,
            shell.export(ids.NEXT, "csv"): of_predictions(files.predictions_csv),
            shell.export(ids.NEXT, "json"): of_predictions(files.predictions_json),
        },
        chosen | stores(head=ids.HEAD, position=ids.POSITION),
    )


def whole_head(head: list[Any]) -> tuple[int, int]:
    """A head as the browser sends it."""
    layer, index = head
    return int(layer), int(index)


def _is_within(head: Any, shape: list[int]) -> bool:
    is_head = isinstance(head, list) and len(head) == 2 and all(isinstance(part, int) for part in head)
    return is_head and head[0] < shape[0] and head[1] < shape[1]


def _opening(core: Core, result: PromptResult) -> list[int]:
    """The head that is shown where none is chosen: the one that is clearest on the text, or else the first."""
    clearest = core.inference.clearest(result)
    return [0, 0] if clearest is None else list(clearest.head)
