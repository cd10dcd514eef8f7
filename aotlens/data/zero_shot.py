"""The data sets on which language models are compared without training: LAMBADA, WikiText, PTB, and CBT.

Each is read from a file as it is published, or as `hf:NAME[:config]` from the Hugging Face hub:

| data set | file | on the hub |
|---|---|---|
| LAMBADA (Paperno et al. 2016) | JSON lines with a field `text`, or a passage a line | `EleutherAI/lambada_openai` |
| WikiText (Merity et al. 2017) | `wiki.test.tokens`, `wiki.test.raw` | `Salesforce/wikitext:wikitext-2-raw-v1` |
| PTB (Marcus et al. 1993, Mikolov's version) | `ptb.test.txt`, a sentence a line | `ptb-text-only/ptb_text_only` |
| CBT (Hill et al. 2016) | `cbtest_CN_test_2500ex.txt`, or the folder of these | `cam-cst/cbt:CN` |

Text stays as it is published (tokenised, where it is), but that `quotes="straight"` writes ' and " for curly quotes.
WikiText-2 and WikiText-103 have one test split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aotlens.conventions import require_choice
from aotlens.data.sources import dataset_rows, parse_spec
from aotlens.untrusted import excerpt, read_lines, strict_json

Quotes = Literal["as_is", "straight"]
QuestionKind = Literal["CN", "NE"]
HeldOutSplit = Literal["test", "validation"]

#: The address of each data set on the hub.
ON_THE_HUB = {
    "lambada": "hf:EleutherAI/lambada_openai",
    "wikitext": "hf:Salesforce/wikitext:wikitext-2-raw-v1",
    "ptb": "hf:ptb-text-only/ptb_text_only",
    "cbt-cn": "hf:cam-cst/cbt:CN",
    "cbt-ne": "hf:cam-cst/cbt:NE",
}
_STRAIGHT = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"'})
_LAST_WORD = re.compile(r" ?\S+$")
_HEADING = re.compile(r" = [^=].*[^=] = \n?")
_BLANK = "XXXXX"
_N_SENTENCES, _N_OPTIONS = 20, 10


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A passage of LAMBADA: `context + last_word` is its text."""

    context: str
    last_word: str
    """The last word, with the space before it, where there is one."""


@dataclass(frozen=True, kw_only=True)
class Cloze:
    """A question of CBT: which of ten words stands in the blank."""

    context: str
    """Twenty sentences, one space between them, and the question up to the blank, without the space before it."""
    rest: str
    """The question after the blank."""
    options: tuple[str, ...]
    answer: int
    """The right option's place."""


@dataclass(frozen=True, kw_only=True)
class RunningText:
    """A test split of running text."""

    name: str
    documents: tuple[tuple[str, ...], ...]
    """Rows of the data set, a line each with its line end, by article. PTB has no articles: it is one document."""

    @property
    def rows(self) -> tuple[str, ...]:
        """All rows in order."""
        return tuple(row for document in self.documents for row in document)

    @property
    def text(self) -> str:
        """The whole split."""
        return "".join(self.rows)

    @property
    def n_bytes(self) -> int:
        """Bytes of the text in UTF-8."""
        return len(self.text.encode())

    @property
    def n_words(self) -> tuple[int, int]:
        """Words between whitespace; and the same with each line's end as one word more, as published perplexities
        count (WikiText-2's test split has 241,211 and 245,569)."""
        words = len(self.text.split())
        return words, words + len(self.rows)


def open_lambada(source: str, *, quotes: Quotes = "as_is") -> tuple[Passage, ...]:
    """Return the passages of LAMBADA's test split, each of which ends with the word to be found.

    Raises `ValueError` for a source that is missing, is of another format or holds no passage.
    """
    if source.startswith("hf:"):
        texts = [_field(row, "text", source) for row in _hub_rows(source, "test")]
    else:
        lines = _lines(source)
        texts = [_json_text(line, source, n) if line.startswith("{") else line for n, line in enumerate(lines, 1)]
    passages = []
    for number, text in enumerate(texts, 1):
        text = _with_quotes(text.rstrip(), quotes)
        last = _LAST_WORD.search(text)
        if not text:
            continue
        if last is None or not text[: last.start()].strip():
            raise ValueError(f"{source}: expected a passage and its last word, got {text[:60]!r} in row {number}.")
        passages.append(Passage(context=text[: last.start()], last_word=last.group()))
    if not passages:
        raise ValueError(f"{source}: expected passages, one a line, got none.")
    return tuple(passages)


def open_wikitext(source: str, *, quotes: Quotes = "as_is") -> RunningText:
    """Return WikiText's test split; each line is a row, and a heading of the first level begins an article."""
    if source.startswith("hf:"):
        rows = [_field(row, "text", source) or " \n" for row in _hub_rows(source, "test")]  # the hub empties blank rows
    else:
        rows = [f"{line}\n" for line in _lines(source)]
    documents: list[list[str]] = [[]]
    for before, row, after in zip(["", *rows], rows, [*rows[1:], ""], strict=False):
        # A line of an equation may look like a heading, but it has no blank rows around it.
        alone = not before.strip() and not after.strip()
        if alone and _HEADING.fullmatch(row) and any(line.strip() for line in documents[-1]):
            documents.append([])
        documents[-1].append(_with_quotes(row, quotes))
    return _running_text("WikiText", documents, source)


def open_ptb(source: str, *, quotes: Quotes = "as_is") -> RunningText:
    """Return the test split of the Penn Treebank in Mikolov's version; each sentence is a row."""
    if source.startswith("hf:"):
        sentences = [_field(row, "sentence", source) for row in _hub_rows(source, "test")]
    else:
        sentences = _lines(source)
    rows = [f" {_with_quotes(sentence.strip(), quotes)} \n" for sentence in sentences]  # as the file has them
    return _running_text("PTB", [rows], source)


def open_cbt(source: str, kind: QuestionKind, split: HeldOutSplit, *, quotes: Quotes = "as_is") -> tuple[Cloze, ...]:
    """Return CBT's questions about common nouns (`CN`) or named entities (`NE`), from a file, its folder, or the hub.

    Raises `ValueError` for what is missing, and for a question without twenty sentences, a blank, or ten options that
    hold the answer, naming its line.
    """
    if source.startswith("hf:"):
        questions = [_from_hub(row, source) for row in _hub_rows(source, split)]
    else:
        path = Path(source).expanduser()
        if path.is_dir():
            short = {"test": "test", "validation": "valid"}[split]
            files = sorted(path.rglob(f"cbtest_{kind}_{short}_*.txt"))
            if len(files) != 1:
                raise ValueError(f"{source}: expected one file cbtest_{kind}_{short}_*.txt below it, got {len(files)}.")
            path = files[0]
        questions = list(_from_file(path))
    if not questions:
        raise ValueError(f"{source}: expected questions, got none.")
    return tuple(_cloze(*question, quotes) for question in questions)


_Question = tuple[list[str], str, str, list[str], str]  # sentences, question, answer, options, where


def _from_hub(row: dict[str, Any], source: str) -> _Question:
    return row["sentences"], row["question"], row["answer"], row["options"], source


def _from_file(path: Path) -> Iterator[_Question]:
    """Lines `1 sentence` to `20 sentence` and `21 question TAB answer TAB TAB option|option|…`, then an empty one."""
    sentences: list[str] = []
    for number, line in enumerate(_lines(str(path)), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        place, _, content = line.partition(" ")
        if not place.isdigit() or int(place) != len(sentences) + 1:
            raise ValueError(f"{where}: expected line {len(sentences) + 1} of a question, got {line[:40]!r}.")
        if len(sentences) < _N_SENTENCES:
            sentences.append(content)
            continue
        parts = [part for part in content.split("\t") if part]
        if len(parts) != 3:
            raise ValueError(f"{where}: expected question, answer and options between tabs, got {excerpt(content)}.")
        yield sentences, parts[0], parts[1].strip(), parts[2].strip().split("|"), where
        sentences = []
    if sentences:
        raise ValueError(f"{path}: the last question has {len(sentences)} lines, expected {_N_SENTENCES + 1}.")


def _cloze(sentences: list[str], question: str, answer: str, options: list[str], where: str, quotes: Quotes) -> Cloze:
    before, blank, after = question.partition(_BLANK)
    if not blank or len(sentences) != _N_SENTENCES or len(options) != _N_OPTIONS or answer not in options:
        raise ValueError(
            f"{where}: expected {_N_SENTENCES} sentences, a question with {_BLANK} and {_N_OPTIONS} options with the "
            f"answer among them, got {len(sentences)} sentences, {excerpt(question)} and "
            f"{excerpt(options)} for {excerpt(answer)}."
        )
    context = " ".join([*(sentence.strip() for sentence in sentences), before.strip()]).rstrip()
    return Cloze(
        context=_with_quotes(context, quotes),
        rest=_with_quotes(after.rstrip(), quotes),
        options=tuple(_with_quotes(option, quotes) for option in options),
        answer=options.index(answer),
    )


def _running_text(name: str, documents: list[list[str]], source: str) -> RunningText:
    if not any(row.strip() for document in documents for row in document):
        raise ValueError(f"{source}: expected text, got none.")
    return RunningText(name=name, documents=tuple(map(tuple, documents)))


def _with_quotes(text: str, quotes: Quotes) -> str:
    require_choice("quotes", quotes, ("as_is", "straight"))
    return text.translate(_STRAIGHT) if quotes == "straight" else text


def _lines(source: str) -> list[str]:
    """A file's lines without their ends; a last empty line is none."""
    path = Path(source).expanduser()
    if not path.exists():
        raise ValueError(f"{source}: the file does not exist; give the file's path, or hf:NAME for the hub's.")
    return list(read_lines(path, "held-out text"))


def _json_text(line: str, source: str, number: int) -> str:
    try:
        row = strict_json(line)
    except ValueError as error:
        raise ValueError(f"{source}: line {number} begins with {{ and is no JSON ({error}).") from error
    return _field(row, "text", source)


def _hub_rows(source: str, split: HeldOutSplit) -> Iterator[dict[str, Any]]:
    name, config, _ = parse_spec(source)
    yield from dataset_rows(source, name, config, split)


def _field(row: dict[str, Any], name: str, source: str) -> str:
    if not isinstance(row.get(name), str):
        raise ValueError(f"{source}: expected text in a field {name!r}, got the fields {', '.join(row)}.")
    return str(row[name])
