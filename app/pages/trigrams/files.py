"""What the Skip-trigrams page shows, as files: CSV of tables, JSON of the figure of kinds."""

from __future__ import annotations

from app.core.errors import RequestError
from app.core.files import File, csv_file, json_file
from app.pages.trigrams.rows import KindCounts, found_frame, heads, with_folded
from app.pages.trigrams.service import Choice, Reading, Trigrams
from app.pages.trigrams.service_direct import DirectPath, PathChoice
from app.pages.trigrams.words import RULES


def table_csv(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> File:
    """The whole table, whatever is filtered, with all that is folded beneath its rows."""
    frame, folded = found_frame(trigrams, choice, reading), trigrams.folded(choice)
    if folded is not None:
        frame = with_folded(frame, folded)
    frame = frame.drop(columns=[column for column in frame if str(column).endswith("_shown")])
    name = f"{choice.checkpoint}-head-{choice.layer}.{choice.head}-skip-trigrams.csv"
    return csv_file(name, frame)


def kinds_csv(choice: Choice, counts: KindCounts) -> File:
    """Kinds by verdicts."""
    name = f"{choice.checkpoint}-head-{choice.layer}.{choice.head}-kinds.csv"
    rows = zip(counts.kinds, counts.counts.tolist(), strict=True)
    return csv_file(name, ({"kind": kind, **dict(zip(counts.verdicts, row, strict=True))} for kind, row in rows))


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
    return csv_file(name, bugs.to_frame())


def heads_csv(trigrams: Trigrams, choice: Choice, reading: Reading | None) -> File:
    """Kinds and verdicts of every head's table, nothing for a table that has not been searched for."""
    records = heads(trigrams, choice, reading)
    kept = ({name: value for name, value in one.items() if name not in ("goto", "chosen")} for one in records)
    return csv_file(f"{choice.checkpoint}-skip-trigrams-by-head.csv", kept)


def bigrams_csv(choice: PathChoice, path: DirectPath) -> File:
    """The direct path's entries, as the library has them."""
    return csv_file(f"{choice.checkpoint}-direct-path.csv", path.bigrams.to_frame())
