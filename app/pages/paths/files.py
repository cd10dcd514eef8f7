"""What the Paths page shows, as files: CSV of tables, JSON of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from app.core.files import File, csv_file, json_file
from app.pages.paths import figures, words
from app.pages.paths.service import Paths, Question

if TYPE_CHECKING:
    from collections.abc import Mapping


def orders_csv(paths: Paths, question: Question) -> File:
    """One row an order."""
    values, counts = paths.orders(question)
    frame = pd.DataFrame({"heads": range(len(values)), "paths": counts, "logits": values})
    return _csv(question, "orders", frame)


def orders_json(paths: Paths, question: Question) -> File:
    """The same, with the sum and its error."""
    values, counts = paths.orders(question)
    content = {"logits": values.tolist(), "paths": counts, "sum_minus_model_logit": paths.total_error(question)}
    return _json(paths, question, "orders", content)


def top_csv(paths: Paths, question: Question) -> File:
    """The paths as listed."""
    frame = paths.top(question).to_frame()
    frame.insert(1, "path", [row.sentence for row in figures.top_rows(paths, question)])
    return _csv(question, _top(question), frame)


def top_json(paths: Paths, question: Question) -> File:
    """The paths with what is proven of them."""
    found = paths.top(question)
    content = {
        "by": question.by,
        "paths": [
            {"path": row.key, "sentence": row.sentence, "logits": row.value, "proven": row.proven}
            for row in figures.top_rows(paths, question)
        ],
        "n_proven": found.n_proven,
        "n_paths": found.n_paths,
        "all_together": found.total,
        "remainder": found.remainder,
        "bound_on_any_other_path": found.bound,
    }
    return _json(paths, question, _top(question), content)


def _top(question: Question) -> str:
    return "top" if question.through is None else f"top-through-{question.through}"


def flow_csv(paths: Paths, question: Question) -> File:
    """One row a link that is drawn."""
    names, found = _flow(paths, question)
    frame = pd.DataFrame(
        {
            "from": [names[i] for i in found.sources],
            "to": [names[i] for i in found.targets],
            "logits": found.values,
        }
    )
    return _csv(question, "flow", frame)


def flow_json(paths: Paths, question: Question) -> File:
    """The links, and how much of the flow they are."""
    names, found = _flow(paths, question)
    links = [
        {"from": names[i], "to": names[j], "logits": float(value)}
        for i, j, value in zip(found.sources, found.targets, found.values, strict=True)
    ]
    return _json(paths, question, "flow", {"links": links, "n_links": found.n_links, "shown_share": found.shown})


def heads_csv(paths: Paths, question: Question) -> File:
    """One row a head."""
    return _csv(question, "heads", pd.DataFrame(figures.head_rows(paths, question)))


def without_csv(paths: Paths, question: Question, what: str) -> File:
    """One row a quantity."""
    return _csv(question, f"without-{what}", pd.DataFrame(_without(paths, question, what)))


def without_json(paths: Paths, question: Question, what: str) -> File:
    """The same, with the likeliest next tokens before and after."""
    effect = paths.without(question, what)
    content = {
        "without": what,
        "name": effect.name,
        "quantities": _without(paths, question, what),
        "likeliest_before": [list(pair) for pair in effect.before],
        "likeliest_after": [list(pair) for pair in effect.after],
    }
    return _json(paths, question, f"without-{what}", content)


def _without(paths: Paths, question: Question, what: str) -> list[dict[str, object]]:
    return words.rows(paths, paths.asked(question), question, paths.without(question, what))


def _flow(paths: Paths, question: Question) -> tuple[list[str], Any]:
    found = paths.flow(question)
    nodes = figures.flow_nodes(paths, paths.asked(question), question, found)
    return [node.label for node in nodes], found


def _json(paths: Paths, question: Question, what: str, content: Mapping[str, Any]) -> File:
    expanded = paths.asked(question)
    expansion = expanded.expansion
    about = {
        **question.to_dict(),
        "target_token": words.target(paths, expanded, question),
        "tokens": list(expansion.tokens),
        "str_tokens": list(expansion.str_tokens),
        "model_logit": expansion.logit(question.position, question.logit),
    }
    return json_file(_name(question, what, "json"), {**about, **content})


def _csv(question: Question, what: str, frame: pd.DataFrame) -> File:
    return csv_file(_name(question, what, "csv"), frame)


def _name(question: Question, what: str, kind: str) -> str:
    return f"{question.checkpoint}-paths-{what}-after-{question.position}.{kind}"
