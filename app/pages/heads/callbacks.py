"""Callbacks of the Heads page: one result per text, and what is shown of it."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from dash import no_update
from dash.exceptions import PreventUpdate

from aotlens.conventions import FROM_OTHERS, head_name
from aotlens.plots import describe, glyphs
from aotlens.views import View
from aotlens.views import heads as views
from app.core import Core, head_maps
from app.core.errors import RequestError
from app.core.files import File, safe_name
from app.core.inference import PromptResult
from app.core.switches import HOWS
from app.pages.heads import continuing, maps, why
from app.pages.heads.asking import ask, there
from app.pages.heads.browser import SWITCHED
from app.pages.heads.ids import VIEWS, ids
from app.pages.heads.service import Heads
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files, save_pictures, submit_text
from app.shell.tables import bar, chips, mark, number_text, value_table
from app.shell.views import Own, record, show_views, tables

if TYPE_CHECKING:
    from aotlens.evaluate import NextTokenPredictions
    from aotlens.heads import HeadLabels, MotifScores

_COLUMNS = [
    ("", "", "rank"),
    ("token", "", "tokens"),
    ("probability", "", "number"),
    ("", "", ""),
    ("logit", "", "number"),
]


def register(app: App, core: Core, service: Heads) -> None:
    """Register the page's callbacks."""
    submit_text(app, prompt=ids.PROMPT, text=ids.TEXT, example=ids.EXAMPLE, checkpoint=ids.CHECKPOINT, run=ids.RUN)
    maps.register(app, core)
    _register_prompt(app, core)
    _register_views(app, service)
    _register_files(app, service)
    continuing.register(app, core, service.continuations)


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
        result = ask(core, prompt, long=True)
        patterns = result.patterns
        shape, tokens = [patterns.n_layers, patterns.n_heads], patterns.tokens.tolist()
        same_text = shown is None or shown["tokens"] == tokens
        limit = core.inference.token_limit(core.catalog.load(result.checkpoint), long=True)
        of = {"checkpoint": result.checkpoint, "text": prompt.get("text") or ""}
        return {
            "analysis": {"key": result.key, "prompt": of, "layers": shape[0], "heads": shape[1], "tokens": tokens},
            "head": head if _is_within(head, shape) else _opening(core, result),
            "off": [list(each) for each in there(off, shape)],
            "position": position if same_text and position is not None and position < patterns.n_pos else None,
            "locked": locked if same_text else {"cell": None, "against": None},
            "count": f"{patterns.n_pos:,} of at most {limit:,} tokens",
        }

    @guarded(
        app,
        panel=ids.GRID,
        inputs=stores(checkpoint=ids.SCORED),
        output=stores(motifs=ids.MOTIFS) | props("data", options=ids.RANK),
        at_first=False,
        shares_notice=True,
    )
    def score_motifs(checkpoint: str | None) -> Answer:
        if checkpoint is None:
            raise PreventUpdate
        labels = motif_labels(core.inference.motifs(checkpoint), core.inference.labels(checkpoint))
        options = [{"value": motif, "label": motif.replace("_", " ")} for motif in labels["scores"]]
        return {"motifs": labels, "options": options}

    @guarded(
        app, panel=ids.GRID, inputs=values(corpus=ids.CORPUS), output=props("data", options=ids.HOW), at_first=False,
        shares_notice=True,
    )  # fmt: skip
    def offer(corpus: str | None) -> Answer:
        return {"options": how_options(corpus)}


def motif_labels(scores: MotifScores, labels: HeadLabels) -> dict[str, Any]:
    """Return for the browser, by "layer.head": scores of each motif that the model can show; the badge of a head's
    strongest motif, if any, and a sentence that explains it.
    """
    from aotlens.heads import MOTIFS

    badges, says, by_motif = {}, {}, {}
    for motif in scores.motifs:
        finite = {head_name(head): float(value) for head, value in np.ndenumerate(scores[motif]) if np.isfinite(value)}
        if finite:
            by_motif[motif] = finite
    for of_head, label in np.ndenumerate(np.array(labels.names)):
        motif = MOTIFS.get(str(label))
        if motif is not None:
            badges[head_name(of_head)] = motif.badge
            says[head_name(of_head)] = f"{motif.badge}: {motif.title}. {labels.sentence(of_head)}"
    return {"badges": badges, "says": says, "scores": by_motif}


def how_options(corpus: str | None) -> list[dict[str, Any]]:
    """Return what a head may be ablated by; what other texts decide can't be chosen without a corpus."""
    lacking = {how: corpus is None and how in FROM_OTHERS for how in HOWS}
    return [
        {"value": how, "label": f"{label} (needs a corpus)" if lacking[how] else label, "disabled": lacking[how]}
        for how, label in HOWS.items()
    ]


def _register_views(app: App, service: Heads) -> None:
    """Register views: panels of a tab follow a store each, so that a choice asks for those alone that depend on it."""
    predicted = {
        ids.NEXT: Own(
            view=VIEWS[ids.NEXT], draw=partial(_list_predictions, VIEWS[ids.NEXT]), parts=("caption",),
            outputs=stores(table=shell.drawn(ids.NEXT_LINES)),
        ),
        ids.NEXT_OFF: Own(
            view=VIEWS[ids.NEXT_OFF], draw=partial(_list_predictions, VIEWS[ids.NEXT_OFF]), quiet=True,
            parts=("caption",), outputs=stores(table=shell.drawn(ids.NEXT_OFF_LINES)),
        ),
    }  # fmt: skip
    losses = {ids.LOSSES: Own(
        view=VIEWS[ids.LOSSES], draw=partial(_draw_losses, service), parts=("caption",),
        outputs=stores(whole=shell.drawn(ids.LOSSES_WHOLE), change=shell.drawn(ids.LOSSES_CHANGE))
        | children(heading=ids.LOSSES_CHANGE_HEADING),
    )}  # fmt: skip
    explained = {ids.WHY: Own(
        view=VIEWS[ids.WHY], draw=partial(why.explain, service), parts=("title", "body"),
        outputs=stores(pairs=shell.drawn(ids.WHY_PAIRS)),
        empty={"title": "Why it attends there"},
        reads=lambda chosen: (chosen.reason, chosen.said),
    )}  # fmt: skip
    for panels, chosen, store, keys in (
        (predicted, service.values, ids.PREDICTED, ids.LISTED),
        (losses, service.values, ids.RUN_OF, ids.MEASURED),
        (explained, service.score, ids.WHY_OF, ids.EXPLAINED),
    ):
        show_views(app, service.workshop, panels, chosen, shown=store, keys=keys, inputs={})


def _list_predictions(view: View, chosen: views.HeadsParameters, result: Any) -> dict[str, Any]:
    """The likeliest tokens."""
    return {"caption": view.caption(chosen, result), "table": [predictions_table(result)]}


def predictions_table(predictions: NextTokenPredictions) -> dict[str, Any]:
    """Return rank, token, probability with a bar, and logit of each; the one that did come is bold."""
    actual = None if predictions.actual is None else predictions.actual.token_id
    arrays = (predictions.token_ids, predictions.probabilities, predictions.logits)
    rows = [
        [
            str(rank),
            [mark(glyphs(text), f"{describe(text)} · id {token}", "token here" if token == actual else "token")],
            _probability(probability), bar(probability, whole=True), number_text(logit, ".2f"),
        ]
        for rank, (text, token, probability, logit) in enumerate(
            zip(predictions.str_tokens, *(array.tolist() for array in arrays), strict=True), start=1
        )
    ]  # fmt: skip
    return value_table(_COLUMNS, rows)


def _probability(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"


def _draw_losses(service: Heads, chosen: views.HeadsParameters, result: Any) -> dict[str, Any]:
    """A strip of losses, and one of how ablation changes them."""
    patterns = ask(service.core, {"checkpoint": chosen.checkpoint, "text": chosen.text}).patterns
    tokens, names = patterns.tokens.tolist(), patterns.str_tokens
    whole = result.left if chosen.ablated else result.losses
    tips = [f"loss {value:.3f} nats" if np.isfinite(value) else "no loss" for value in whole]
    strip = chips(names, whole.tolist(), tips, token_ids=tokens)
    answer = {"caption": views.says_full(chosen, whole), "whole": [strip]}
    if not chosen.ablated:
        return {**answer, "heading": None, "change": []}
    tips = [
        f"loss {full:.3f}, under ablation {other:.3f} nats" if np.isfinite(other) else "no loss"
        for full, other in zip(whole, result.right, strict=True)
    ]
    strip = chips(names, result.difference.tolist(), tips, token_ids=tokens)
    return {**answer, "heading": views.says_change(chosen, result), "change": [strip]}


def _register_files(app: App, service: Heads) -> None:
    def of_prompt(prompt: Any, **given: Any) -> Any:
        return service.values({"prompt": prompt}, **given)

    def all_heads(make: Any) -> Any:
        def made(shown: Any, view: str, hide_first: bool, off: Any, how: Any, corpus: str | None, **_: Any) -> Any:
            checkpoint = shown.get("checkpoint")
            off = there(off, service.core.catalog.shape(checkpoint))
            result = service.core.inference.analyse(
                checkpoint, shown.get("text") or "", length=shown.get("length"), off=off, how=how, corpus=corpus
            )
            return make(result, view, hide_first)

        return made

    def arrays(result: PromptResult, view: str, hide_first: bool) -> File:
        return all_heads_npz(result, service.core.settings.max_export_bytes)

    looks = values(view=ids.VIEW) | props("checked", hide_first=ids.HIDE_FIRST) | SWITCHED
    save_pictures(app, ids.GRID, all_heads(head_maps.all_heads_figure), stores(shown=ids.PROMPT) | looks)
    of_text = {panel: view for panel, view in VIEWS.items() if panel != ids.WHY}
    of_entry = {ids.WHY: VIEWS[ids.WHY]}
    files = tables(service.workshop, of_text, of_prompt) | tables(service.workshop, of_text, of_prompt, "json", record)
    files[shell.export(ids.GRID, "npz")] = all_heads(arrays)
    save_files(app, files, stores(shown=ids.PROMPT, head=ids.HEAD, position=ids.POSITION) | looks)
    files = tables(service.workshop, of_entry, service.score)
    files |= tables(service.workshop, of_entry, service.score, "json", record)
    save_files(app, files, stores(shown=ids.WHY_OF))


def all_heads_npz(result: PromptResult, max_bytes: int) -> File:
    """Save every array of the result; read it with `numpy.load`."""
    patterns = result.patterns
    if patterns.n_bytes > max_bytes:
        raise RequestError(
            f"All heads on this text are {patterns.n_bytes / 2**20:.0f} MB, and files of at most "
            f"{max_bytes / 2**20:.0f} MB are made here. Take a shorter text, or call aotlens.heads.attention_patterns."
        )
    arrays: dict[str, Any] = {
        "tokens": patterns.tokens, "str_tokens": np.array(patterns.str_tokens), "pattern": patterns.pattern,
        "value_norms": patterns.value_norms, "visible": patterns.visible,
    } | ({} if patterns.scores is None else {"scores": patterns.scores})  # fmt: skip
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    off = "".join(f"-{head_name(head)}" for head in result.off)
    name = f"{result.checkpoint}{f'-without{off}-{result.how}' if off else ''}-patterns.npz"
    return File(name=safe_name(name), content=buffer.getvalue(), mime="application/octet-stream")


def _is_within(head: Any, shape: list[int]) -> bool:
    is_head = isinstance(head, list) and len(head) == 2 and all(isinstance(part, int) for part in head)
    return is_head and head[0] < shape[0] and head[1] < shape[1]


def _opening(core: Core, result: PromptResult) -> list[int]:
    """The head that is shown where none is chosen: the one that is clearest on the text, or else the first."""
    clearest = core.inference.clearest(result)
    return [0, 0] if clearest is None else list(clearest.head)
