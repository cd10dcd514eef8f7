"""Why a head attends where it does: the tab that explains one entry of its map by the largest pairs of paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import html

from aotlens.views.scores import N_PAIRS, cell_says
from app.core import Core, head_maps
from app.core.errors import RequestError
from app.core.files import File, csv_file, json_file
from app.core.scores import Explained, ScoreQuestion, as_against, whole_numbers
from app.pages.heads.asking import ask, there
from app.pages.heads.captions import explained_whole
from app.pages.heads.ids import ids
from app.pages.heads.why_table import lines_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.drawn import drawn
from app.shell.panel import about, panel
from app.shell.props import stores
from app.shell.sharing import save_files, when_seen

_EXPLAIN = about(
    "A score is a product of what the query and the key read of the stream, and the stream is a sum of paths: a token, "
    "a position, biases or what an MLP wrote, and the heads that moved them. So it is a sum over pairs of paths, one "
    "to the query and one to the key, with patterns and norms of earlier layers as they are on this text. A softmax "
    "ignores what all keys share, so a key is compared with the average key, or with one other key: what a path moves "
    "there is taken off. Click a head's name to see its own entry on the map. On the keyboard, w opens this for the "
    "locked entry.",
    formula="score(i, j) = Σ over pairs ⟨q, k⟩ / √d_head;   compared: log A(i, j) − log A(i, k), or + H(Aᵢ)",
    source="A Mathematical Framework for Transformer Circuits (Elhage et al. 2021), QK circuits with composition",
)

#: Examples of what the browser puts into this tab's stores (`Page.sends`).
_WANTED: dict[str, Any] = {
    "key": "", "head": (0, 1), "cell": (0, 1), "position": 0, "direction": frozenset(("to", "from")), "against": None,
    "off": [(0, 1)],
}  # fmt: skip
SENDS: dict[str, Any] = {ids.CELL: {"cell": (0, 1), "against": None}, ids.WHY_OF: _WANTED}


def why_button() -> html.Button:
    """Beside a head's map, once an entry is locked."""
    tip = "Why the head attends there: the largest pairs of paths (key w)"
    return html.Button("Why?", id=ids.WHY_BUTTON, className="plain-button", hidden=True, **{"data-tip": tip})


def why_panel() -> html.Section:
    """The tab."""
    lines = drawn(ids.WHY_LINES, "why-lines", "Why the head attends there")
    return panel(
        ids.WHY, "Why it attends there", _EXPLAIN, lines, exports=("csv", "json", "python"), follows=ids.WHY_OF
    )


def register(app: App, core: Core) -> None:
    """The callback of the tab, and its files."""
    when_seen(app, ids.WHY_OF, (ids.WHY,))

    @guarded(
        app,
        panel=ids.WHY,
        inputs=stores(wanted=shell.seen(ids.WHY)),
        state=stores(prompt=ids.PROMPT),
        parts=("title",),
        output=stores(lines=shell.drawn(ids.WHY_LINES)),
        empty={"title": "Why it attends there"},
    )
    def explain(wanted: Any, prompt: dict[str, Any]) -> Answer:
        if wanted is None:
            return None
        question, said = asked_of(core, prompt, **_cell(wanted))
        explained = core.scores.explain(question)
        off = there(wanted["off"], core.catalog.shape(prompt["checkpoint"]))
        sentences = [said, *cell_says(explained.score, explained.reason), explained_whole(off)]
        lines = lines_table(core, explained, core.scores.top(question, N_PAIRS), [one for one in sentences if one])
        return {"title": f"Why {explained.score.words.cell}", "lines": lines}

    def saved(make: Any) -> Any:
        def file(prompt: Any, wanted: Any) -> File:
            if not wanted:
                raise RequestError("Nothing is explained here yet: open the tab Why first.")
            return make(core, asked_of(core, prompt, **_cell(wanted))[0])

        return file

    save_files(
        app,
        {shell.export(ids.WHY, "csv"): saved(why_csv), shell.export(ids.WHY, "json"): saved(why_json)},
        stores(prompt=ids.PROMPT, wanted=ids.WHY_OF),
    )


def asked_of(
    core: Core, prompt: Mapping[str, Any], head: Any, cell: Any, position: int | None, direction: str, against: Any
) -> tuple[ScoreQuestion, str]:
    """The score that is asked for, and which entry was taken where none is locked: the most attended key of the locked
    token, or of the last one; with the direction "from", the query that attends to it most."""
    result, said = ask(core, dict(prompt)), ""
    layer, number = whole_numbers("a head", *(head or (0, 0)))
    head_maps.check_head(result, layer, number)
    if cell is None:
        if position is not None and not 0 <= whole_numbers("a position", position)[0] < result.patterns.n_pos:
            raise RequestError(f"Position {position} isn't in this text; choose one of the tokens.")
        pattern = result.patterns.pattern[layer, number]
        if position is not None and direction == "from":
            cell = (int(pattern[:, position].argmax()), position)
            said = "No entry is locked: this is the query that attends most to the locked token."
        else:
            query = result.patterns.n_pos - 1 if position is None else position
            cell = (query, int(pattern[query].argmax()))
            token = "last" if position is None else "locked"
            said = f"No entry is locked: this is the key that the {token} token attends to most."
    query, key = whole_numbers("an entry", *cell)
    question = ScoreQuestion(
        checkpoint=result.checkpoint, text=str(prompt.get("text") or ""), head=(layer, number), query=query, key=key,
        against=as_against(against),
    )  # fmt: skip
    return question, said


def why_csv(core: Core, question: ScoreQuestion) -> File:
    """One row a pair, with its sentence."""
    explained, top = core.scores.explain(question), core.scores.top(question, N_PAIRS)
    return csv_file(f"{_name(explained)}.csv", top.to_frame())


def why_json(core: Core, question: ScoreQuestion) -> File:
    """The same, with the sum of all pairs and what is proven."""
    explained, top = core.scores.explain(question), core.scores.top(question, N_PAIRS)
    score, expansion = explained.score, explained.expanded.expansion
    content = {
        **question.to_dict(),
        "against": explained.against,
        "reason": explained.reason,
        "tokens": list(expansion.tokens),
        "str_tokens": list(expansion.str_tokens),
        "score": score.score,
        "log_probability": score.log_probability,
        "all_together": top.total,
        "remainder": top.remainder,
        "n_pairs": str(top.n_pairs),  # beyond what JSON's readers take for a whole number
        "n_proven": top.n_proven,
        "bound_on_any_other_pair": top.bound,
        "pairs": [
            {"pair": pair, "formula": formula, "nats": value}
            for pair, formula, value in zip(top.sentences, top.formulas, top.values, strict=True)
        ],
    }
    return json_file(f"{_name(explained)}.json", content)


def _name(explained: Explained) -> str:
    (layer, head), score = explained.score.head, explained.score
    return f"{explained.question.checkpoint}-why-{layer}.{head}-{score.query}-{score.key}"


def _cell(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: wanted[name] for name in ("head", "cell", "position", "direction", "against")}
