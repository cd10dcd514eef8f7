"""What the Skip-trigrams page shows, as files: CSV of tables, JSON of the figure of kinds."""

from __future__ import annotations

import csv

from app.core.errors import RequestError
from app.core.files import File, json_file, text_file
from app.pages.trigrams.rows import KindCounts, found_frame
from app.pages.trigrams.service import Choice, Reading, Trigrams
from app.pages.trigrams.service_direct import DirectPath, PathChoice
from app.pages.trigrams.words import RULES


def table_csv(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> File:
    """The whole table, whatever is filtered. Tokens are quoted: an unquoted carriage return ends a row."""
    frame = found_frame(trigrams, choice, reading)
    frame = frame.drop(columns=[column for column in frame if str(column).endswith("_shown")])
    name = f"{choice.checkpoint}-head-{choice.layer}.{choice.head}-skip-trigrams.csv"
    return text_file(name, frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC), "text/csv")


def kinds_csv(choice: Choice, counts: KindCounts) -> File:
    """Kinds by verdicts."""
    name = f"{choice.checkpoint}-head-{choice.layer}.{choice.head}-kinds.csv"
    rows = [",".join(map(str, row)) for row in zip(counts.kinds, *counts.counts.T.tolist(), strict=True)]
    return text_file(name, "\n".join([",".join(["kind", *counts.verdicts]), *rows, ""]), "text/csv")


def kinds_json(choice: Choice, counts: KindCounts, about: str) -> File:
    """The figure's numbers, and the rules."""
    content = {
        **choice.to_dict(),
        "text": about,
        "kinds": list(counts.kinds),
        "verdicts": list(counts.verdicts),
        "rows": counts.counts.tolist(),
        "rules": RULES,
    }
    return json_file(f"{choice.checkpoint}-head-{choice.layer}.{choice.head}-kinds.json", content)


def forced_csv(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> File:
    """All of it, as the library has it. Raises RequestError before the check."""
    bugs = trigrams.bugs(choice, reading)
    if bugs is None:
        raise RequestError("The table has not been held against text, so there is nothing to save.")
    name = f"{choice.checkpoint}-head-{choice.layer}.{choice.head}-forced-triples.csv"
    return text_file(name, bugs.to_frame().to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC), "text/csv")


def bigrams_csv(choice: PathChoice, path: DirectPath) -> File:
    """The direct path's entries, as the library has them."""
    frame = path.bigrams.to_frame()
    return text_file(
        f"{choice.checkpoint}-direct-path.csv", frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC), "text/csv"
    )
