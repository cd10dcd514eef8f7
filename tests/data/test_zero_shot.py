"""Each loader on a file of its data set's format, and on the hub's rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotlens.data.zero_shot import ON_THE_HUB, open_cbt, open_lambada, open_ptb, open_wikitext
from tests.messages import refused

WIKITEXT = (
    " \n = Robert Boulter = \n \n Robert Boulter is an English film , television and theatre actor . \n"
    " = = Career = = \n \n A nominal impedance k \n = 1 ohm and capacitance C = \n 1 farad . \n"
    " In 2006 , Boulter “ starred ” . \n \n = Du Fu = \n \n Du Fu was a poet . \n \n"
)
OPTIONS = ["dog", "cat", "king", "tree", "road", "hat", "cow", "sea", "day", "house"]


def cbt_text(answers: tuple[str, ...] = ("cat", "house")) -> str:
    """Two questions as `cbtest_CN_test_2500ex.txt` has them."""
    blocks = []
    for number, answer in enumerate(answers):
        lines = [f"{i} Sentence {i} of story {number} has a {OPTIONS[i % 10]} . " for i in range(1, 21)]
        lines.append(f"21 ` The XXXXX sat , ' he said .\t{answer}\t\t{'|'.join(OPTIONS)}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n\n"


def test_lambada_as_json_lines_and_as_text(tmp_path: Path):
    texts = ["He sat by the “old” door.\n\nShe looked at Shane", 'Where is it?\n"No" she said', "one two three "]
    lines, plain = tmp_path / "lambada_test.jsonl", tmp_path / "lambada_test_plain_text.txt"
    lines.write_text("\n".join(json.dumps({"text": text}) for text in texts) + "\n", encoding="utf-8")
    plain.write_text("he sat by the door and looked at shane\nwhere is it ? no\n")
    passages = open_lambada(str(lines))
    assert [p.context + p.last_word for p in passages] == [text.rstrip() for text in texts]
    assert [p.last_word for p in passages] == [" Shane", " said", " three"]
    assert '"old"' in open_lambada(str(lines), quotes="straight")[0].context
    assert [p.last_word for p in open_lambada(str(plain))] == [" shane", " no"]
    lines.write_text(json.dumps({"text": "At the end.\nShane"}))
    assert open_lambada(str(lines))[0] == type(passages[0])(context="At the end.\n", last_word="Shane")


def test_wikitext_keeps_its_text_and_finds_its_articles(tmp_path: Path):
    path = tmp_path / "wiki.test.raw"
    path.write_text(WIKITEXT, encoding="utf-8")
    text = open_wikitext(str(path))
    assert text.text == WIKITEXT and text.n_bytes == len(WIKITEXT.encode())
    assert ["".join(rows)[:11] for rows in text.documents] == [" \n = Robert", " = Du Fu = "]
    assert text.n_words == (len(WIKITEXT.split()), len(WIKITEXT.split()) + WIKITEXT.count("\n"))
    assert open_wikitext(str(path), quotes="straight").text == WIKITEXT.replace("“", '"').replace("”", '"')


def test_ptb_is_one_document_of_sentences(tmp_path: Path):
    path = tmp_path / "ptb.test.txt"
    path.write_text(" no it was n't black monday \n but while the <unk> fell N points \n")
    text = open_ptb(str(path))
    assert text.documents == ((" no it was n't black monday \n", " but while the <unk> fell N points \n"),)
    assert text.text == path.read_text()


def test_cbt_from_a_file_and_from_its_folder(tmp_path: Path):
    folder = tmp_path / "CBTest" / "data"
    folder.mkdir(parents=True)
    (folder / "cbtest_CN_test_2500ex.txt").write_text(cbt_text())
    (folder / "cbtest_CN_valid_2000ex.txt").write_text(cbt_text(("dog",)))
    questions = open_cbt(str(folder / "cbtest_CN_test_2500ex.txt"), "CN", "test")
    assert [question.options[question.answer] for question in questions] == ["cat", "house"]
    assert questions[1].context.startswith("Sentence 1 of story 1 has a cat . Sentence 2 ")
    assert questions[1].context.endswith(" . ` The") and questions[1].rest == " sat , ' he said ."
    assert open_cbt(str(tmp_path), "CN", "test") == questions
    assert [q.answer for q in open_cbt(str(tmp_path), "CN", "validation")] == [0]
    with refused("cbtest_NE_test_*.txt", "got 0"):
        open_cbt(str(tmp_path), "NE", "test")


def test_rows_of_the_hub_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`datasets` reads a folder as it would one of the hub's repositories; the hub empties WikiText's blank rows."""
    pytest.importorskip("datasets", reason="needs datasets: pip install 'aotlens[hf]'")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")

    def hub(name: str, split: str, rows: list[dict[str, object]]) -> str:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return f"hf:{tmp_path / name}"

    path = tmp_path / "wiki.test.raw"
    path.write_text(WIKITEXT, encoding="utf-8")
    rows = [{"text": line if line.strip() else ""} for line in WIKITEXT.splitlines(keepends=True)]
    assert open_wikitext(hub("wikitext", "test", rows)) == open_wikitext(str(path))
    passages = open_lambada(hub("lambada", "test", [{"text": "He looked at Shane"}]))
    assert [p.last_word for p in passages] == [" Shane"]
    assert open_ptb(hub("ptb", "test", [{"sentence": "no it was"}])).text == " no it was \n"
    (tmp_path / "cbt.txt").write_text(cbt_text())
    sentences = [[f"Sentence {i} of story {n} has a {OPTIONS[i % 10]} ." for i in range(1, 21)] for n in (0, 1)]
    question = "` The XXXXX sat , ' he said ."
    rows = [
        {"sentences": each, "question": question, "answer": answer, "options": OPTIONS}
        for each, answer in zip(sentences, ("cat", "house"), strict=True)
    ]
    assert open_cbt(hub("cbt", "validation", rows), "CN", "validation") == open_cbt(
        str(tmp_path / "cbt.txt"), "CN", "test"
    )
    assert all(source.startswith("hf:") for source in ON_THE_HUB.values())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"words": "a b"}', "expected text in a field 'text', got the fields words"),
        ('{"text": ', "line 1 begins with { and is no JSON"),
        ("alone", "expected a passage and its last word, got 'alone' in row 1"),
        ("", "expected passages, one a line, got none"),
    ],
)
def test_what_is_no_lambada_is_refused(tmp_path: Path, content: str, message: str):
    path = tmp_path / "lambada.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        open_lambada(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("20 Sentence", "22 Sentence"), r"line 20: expected line 20 of a question, got '22 Sentence"),
        (("XXXXX", "dog"), "a question with XXXXX"),
        (("\tcat\t", "\twolf\t"), "10 options with the answer among them"),
        (("|house", ""), "10 options"),
        (("\tcat\t\t", " "), "between tabs"),
    ],
)
def test_what_is_no_cbt_is_refused(tmp_path: Path, change: tuple[str, str], message: str):
    path = tmp_path / "cbt.txt"
    path.write_text(cbt_text().replace(*change, 1))
    with pytest.raises(ValueError, match=message):
        open_cbt(str(path), "CN", "test")
    path.write_text(cbt_text().rpartition("\n21 ")[0])
    with refused("20 lines", 21):
        open_cbt(str(path), "CN", "test")


def test_files_that_are_not_there(tmp_path: Path):
    for opens in (open_lambada, open_wikitext, open_ptb):
        with refused("does not exist", "hf:NAME"):
            opens(str(tmp_path / "none"))
    (tmp_path / "blank").write_text(" \n \n")
    for opens in (open_wikitext, open_ptb):
        with pytest.raises(ValueError, match="expected text, got none"):
            opens(str(tmp_path / "blank"))
