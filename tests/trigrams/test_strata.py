"""Windows by document, strata, and the three tests within them, against loops over the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from aotlens.data import SymbolTokenizer, TokenFile, Tokenizer, open_corpus
from aotlens.trigrams import evidence, read_ids, score_triples
from aotlens.trigrams.text import windows

END = 0


@pytest.fixture
def model(make) -> Any:
    """A model for which token 0 ends a document."""
    model = make()
    model.tokenizer = SymbolTokenizer([str(token) for token in range(model.cfg.d_vocab)], start=str(END))
    return model


def documents_of(rng: np.random.Generator, lengths: list[int]) -> list[np.ndarray]:
    return [rng.integers(1, 7, length) for length in lengths]


def joined(documents: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([part for document in documents for part in (document, [END])])[:-1]


def cut(documents: list[np.ndarray], n_ctx: int) -> list[list[list[list[int]]]]:
    """Of every document its strata, of each its windows: 8 of them, and the rest of the document in the last."""
    result = []
    for document in documents:
        ids = document.tolist()
        pieces = [[END, *ids[i : i + n_ctx - 1]] for i in range(0, len(ids), n_ctx - 1)]
        strata = [pieces[i : i + 8] for i in range(0, len(pieces), 8)]
        if len(strata) > 1 and len(strata[-1]) < 8:
            rest = strata.pop()
            strata[-1] += rest
        result.append(strata)
    return result


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_windows_begin_anew_at_each_document(model, rng, batch_size: int) -> None:
    width = model.cfg.n_ctx - 1
    documents = documents_of(rng, [1, width, 8 * width, 15 * width + 1, 16 * width, 17 * width + 3, 40 * width - 1])
    expected = [
        (window, (number, stratum))
        for number, strata in enumerate(cut(documents, model.cfg.n_ctx))
        for stratum, pieces in enumerate(strata)
        for window in pieces
    ]
    seen: list[tuple[list[int], int]] = []
    strata: list[int] = []
    for batch in windows(model, joined(documents), batch_size=batch_size):
        for row, length, document in zip(batch.tokens, batch.length, batch.document, strict=True):
            seen.append((row[:length].tolist(), int(document)))
            assert (row[length:] == END).all()
        strata += batch.stratum.tolist()
    assert [window for window, _ in seen] == [window for window, _ in expected]
    assert [document for _, document in seen] == [number for _, (number, _) in expected]
    numbers = {label: i for i, label in enumerate(dict.fromkeys(label for _, label in expected))}
    assert strata == [numbers[label] for _, label in expected]


def test_documents_of_a_corpus_a_token_file_and_ids(make, tmp_path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text(f"{i} is a document of its own, and no other. " * (2 + 9 * i))
    corpus = open_corpus(f"dir:{tmp_path}")
    tokenizer = Tokenizer.train((d.text for d in corpus.documents()), 280)
    model = make(d_vocab=280)
    model.tokenizer = tokenizer
    file = TokenFile.build(corpus.documents(), tokenizer, tmp_path / "tokens.bin")
    lengths = [len(tokenizer.encode(document.text)) for document in corpus.documents()]
    for text in (corpus, file, read_ids(model, corpus), np.asarray(file.tokens)):
        parts = list(windows(model, text, batch_size=3))
        document = np.concatenate([part.document for part in parts])
        read = np.concatenate([part.length - 1 for part in parts])
        assert np.bincount(document, read).tolist() == lengths
    model.tokenizer = None
    assert next(windows(model, np.asarray(file.tokens)[1:], batch_size=10**6)).document.max() == 0


def brute(strata: list[list[list[int]]], source: int, destination: int, out: int) -> dict[str, Any]:
    """Everything of a row, stratum by stratum and window by window."""
    T, v, cells = [], [], []
    for pieces in strata:
        counts = []
        for window in pieces:
            places = [i for i in range(1, len(window) - 1) if window[i] == destination]
            seen = [i for i in places if source in window[:i]]
            counts.append([len(places), len(seen)] + [sum(window[i + 1] == out for i in w) for w in (places, seen)])
        m, x, y, a = np.sum(counts, axis=0)
        if not m:
            continue
        cells.append((m, x, y, a))
        T.append(a - x * y / m)
        n = len(pieces)
        for m_w, _, y_w, _ in counts:
            v.append(x / m * (1 - x / m) * (y_w - m_w * y / m) ** 2 * n / (n - 1) if n > 1 else 0.0)
    m, x, y, a = np.array(cells).reshape(-1, 4).T.astype(float)
    T, v = np.array(T), np.array(v)
    result: dict[str, Any] = {"a": a.sum(), "E": (x * y / m).sum(), "mixed": (x > 0) & (x < m), "T": T}
    result["lift_within"] = a.sum() / (x * y / m).sum() if (x * y).any() else np.nan
    if (np.abs(T) > 1e-12).any():
        result["sample"] = (T.sum() / np.sqrt((T**2).sum()), (T**2).sum() ** 2 / (T**4).sum())
        distribution = np.array([1.0])
        for M, X, Y in zip(m, x, y, strict=True):
            distribution = np.convolve(distribution, stats.hypergeom.pmf(np.arange(min(X, Y) + 1), M, Y, X))
        result["exact"] = (distribution[int(a.sum()) :].sum(), distribution[: int(a.sum()) + 1].sum())
    if v.sum() > 1e-12:
        result["null"] = (T.sum() / np.sqrt(v.sum()), max(1.0, v.sum() ** 2 / (v**2).sum()))
    mixed = result["mixed"]
    result["too rare"] = x[mixed].sum() < 10 or (m - x)[mixed].sum() < 10 or mixed.sum() < 5
    if a.sum():
        share = a / a.sum() - x * y / m / (x * y / m).sum()
        degrees = (a > 0).sum() - 1
        t = stats.t.ppf(0.975, degrees) if degrees else np.inf
        result["interval"] = result["lift_within"] * np.exp(np.array([-t, t]) * np.sqrt((share**2).sum()))
    elif result["E"]:
        result["interval"] = (0.0, (1 - 0.025 ** (1 / x.sum())) * x.sum() / result["E"])
    return result


@pytest.mark.parametrize("whole_documents", [False, True])
@pytest.mark.parametrize("upwards", [True, False])
def test_the_tests_are_those_of_loops_over_the_text(model, rng, upwards: bool, whole_documents: bool) -> None:
    documents = documents_of(rng, [900, 5, 700, 333, 1, 801, 90, 250, 8 * 9])
    rows = [rng.integers(1, 9, 40) for _ in range(3)]
    table = score_triples(model, (0, 1), *rows)
    table.upwards[:] = upwards
    found = evidence(model, table, joined(documents), run_model=False, batch_size=7)
    assert found.n_documents == 9 and found.n_tokens == sum(map(len, documents))
    strata = cut(documents, model.cfg.n_ctx)
    if whole_documents:
        strata = [[[window for stratum in document for window in stratum]] for document in strata]
    strata = [stratum for document in strata for stratum in document]
    association = found.by_document if whole_documents else found.association
    side, tested = (0, 0) if upwards else (1, 0)
    for row in range(40):
        expected = brute(strata, *(int(ids[row]) for ids in rows))
        assert association.lift_within[row] == pytest.approx(expected["lift_within"], nan_ok=True)
        assert association.too_rare[row] == expected["too rare"]
        if "sample" not in expected:
            assert association.p_value[row] == 1.0
            continue
        tested += 1
        sign = 1 if upwards else -1
        p_values = [stats.t.sf(sign * expected["sample"][0], expected["sample"][1]), expected["exact"][side]]
        assert association.p_sample[row] == pytest.approx(p_values[0], rel=1e-6)
        assert association.p_exact[row] == pytest.approx(p_values[1], rel=1e-6)
        if "null" in expected:
            p_values.append(stats.t.sf(sign * expected["null"][0], expected["null"][1]))
            assert association.p_null[row] == pytest.approx(p_values[2], rel=1e-6)
        else:
            assert np.isnan(association.p_null[row])
        assert association.p_value[row] == pytest.approx(max(p_values), rel=1e-6)
        if "interval" in expected:
            assert [association.low[row], association.high[row]] == pytest.approx(expected["interval"], rel=1e-6)
    assert tested >= 15
    testable = ~association.too_rare
    assert testable.sum() >= 10
    adjusted = stats.false_discovery_control(association.p_value[testable])
    np.testing.assert_allclose(association.q_value[testable], adjusted)
