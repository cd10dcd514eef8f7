"""Pairs of prompts: what is made of texts, templates, files and tensors, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.data import (
    PromptPairs,
    RegressionTask,
    Tokenizer,
    deeper_indentation,
    image_pairs,
    matching_brackets,
    negated_labels,
    repeated_names,
)
from aotlens.data.pair_parts import aligned
from aotlens.patching import patch
from aotlens.plots import plot
from tests.image_models import make as make_image_model
from tests.image_models import random_images
from tests.messages import refused
from tests.small_models import maker, small_tokenizer

SIZES = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 40, "d_vocab": 270}


@pytest.fixture(scope="module")
def model() -> Any:
    return maker(SIZES)(tokenizer=small_tokenizer())


def longest_by_force(a: list[int], b: list[int]) -> int:
    """The length of the longest common subsequence, by trying all."""
    for size in range(min(len(a), len(b)), 0, -1):
        of_b = {tuple(b[i] for i in places) for places in itertools.combinations(range(len(b)), size)}
        if any(tuple(a[i] for i in places) in of_b for places in itertools.combinations(range(len(a)), size)):
            return size
    return 0


def test_unequal_prompts_are_aligned_by_a_longest_common_subsequence():
    generator = torch.Generator().manual_seed(0)
    for n_a, n_b in ((5, 7), (7, 4), (6, 8), (3, 8)) * 5:
        a, b = (torch.randint(0, 4, (n,), generator=generator) for n in (n_a, n_b))
        found = aligned(a, b)
        assert all(a[i] == b[j] for i, j in found)
        assert all(x[0] < y[0] and x[1] < y[1] for x, y in itertools.pairwise(found))
        assert len(found) == longest_by_force(a.tolist(), b.tolist())


def test_equal_prompts_correspond_place_by_place():
    pairs = aligned(torch.tensor([1, 2, 3]), torch.tensor([3, 1, 2]))
    assert pairs == ((0, 0), (1, 1), (2, 2))


def test_texts_become_ids_with_the_start_token(model: Any):
    pairs = PromptPairs.from_texts(model, [("a b", "a c", "b", "c"), ("b a", "c a", "a", "b")])
    assert len(pairs) == 2 and pairs.clusters is None
    torch.testing.assert_close(pairs.pairs[0].clean, model.to_tokens("a b")[0])
    assert pairs.answers.tolist() == [model.to_single_token(text) for text in ("b", "a")]
    assert pairs.wrong.tolist() == [model.to_single_token(text) for text in ("c", "b")]
    ((at, _),) = pairs.differences(0)
    assert pairs.str_tokens is not None and pairs.str_tokens[0][0][at].strip() == "b"
    assert len(pairs[1:]) == 1 and torch.equal(pairs[1:].pairs[0].clean, pairs.pairs[1].clean)
    assert list(pairs.to_frame()["answer"]) == pairs.answers.tolist()


def test_a_file_is_read_line_by_line(model: Any, tmp_path: Path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"clean": "a b", "corrupted": "a c", "answer": "b", "wrong": "c", "cluster": "one"}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert PromptPairs.from_jsonl(model, path).clusters == ("one",)
    path.write_text(path.read_text() + "{")
    with refused("line 2"):
        PromptPairs.from_jsonl(model, path)


def test_a_template_exchanges_its_two_words(model: Any):
    template = {"template": "{X} a {Y}: {X}", "answer": "{X}", "wrong": "{Y}"}
    pairs = PromptPairs.from_template(model, words=["a", "b", "c", "d"], n=6, seed=1, **template)
    assert len(pairs) == 6
    seen = set()
    for pair in pairs:
        words = [model.tokenizer.decode([each]) for each in (pair.answer, pair.wrong)]
        assert torch.equal(pair.clean, model.to_tokens(f"{words[0]} a {words[1]}: {words[0]}")[0])
        assert torch.equal(pair.corrupted, model.to_tokens(f"{words[1]} a {words[0]}: {words[1]}")[0])
        seen.add(tuple(words))
    assert len(seen) == 6
    with refused("fewer"):
        PromptPairs.from_template(model, words=["a", "b"], n=3, **template)
    with refused("two names"):
        PromptPairs.from_template(model, "{X} a", answer="{X}", wrong="{X}", words=["a", "b"], n=1)


def test_random_tokens_repeat_one_and_differ_in_what_followed(model: Any):
    pairs = PromptPairs.induction(model, n=20, length=9, seed=3)
    for pair in pairs:
        clean, corrupted = pair.clean.tolist(), pair.corrupted.tolist()
        assert clean[0] == corrupted[0] == model.tokenizer.eot_id and len(clean) == 11
        first = clean.index(clean[-1], 1)
        assert first < len(clean) - 1 and clean[first + 1] == pair.answer and corrupted[first + 1] == pair.wrong
        assert [i for i in range(11) if clean[i] != corrupted[i]] == [first + 1]
        assert clean.count(pair.answer) == 1 and pair.wrong not in clean
    again = PromptPairs.induction(model, n=20, length=9, seed=3)
    assert all(torch.equal(a.clean, b.clean) for a, b in zip(pairs, again, strict=True))
    with refused("length"):
        PromptPairs.induction(model, length=39)


def test_images_correspond_patch_by_patch():
    make = maker(
        {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 9, "d_out": 3, "read_in": "patches",
         "read_out": "classes", "image_size": 6, "patch_size": 2, "n_channels": 1, "causal": False}
    )  # fmt: skip
    images = torch.randn(4, 1, 6, 6)
    pairs = PromptPairs.of_inputs(make(), images[:2], images[2:], [0, 1], [2, 0])
    assert all(pair.positions[:9] == tuple((i, i) for i in range(9)) for pair in pairs)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a b", "a c", "b", "b"), "another one as the wrong one"),
        (("a b", "a b", "b", "c"), "the same one twice"),
        (("a b", "a c", "the captain", "c"), "tokens"),
        (("a b", "a c", 5, 270), "0 to 269"),
        (("a b", "a c", "b"), "expected (clean"),
        ({"clean": "a", "corrupted": "b", "answer": "c"}, "keys"),
        ({"clean": "a b", "corrupted": "a c", "answer": "b", "wrong": "c", "positions": [(1, 1), (1, 2)]}, "increase"),
        ({"clean": "a b", "corrupted": "a c", "answer": "b", "wrong": "c", "cluster": 3}, "cluster"),
        ((3, "a c", "b", "c"), "expected a text"),
    ],
)
def test_what_is_no_pair_is_refused_with_its_number(model: Any, row: Any, message: str):
    good = ("a b", "a c", "b", "c")
    with refused(message) as error:
        PromptPairs.from_texts(model, [good, row])
    assert "pair 2" in str(error.value)


def test_no_pairs_are_refused(model: Any):
    with refused("at least one"):
        PromptPairs.from_texts(model, [])


@pytest.mark.usefixtures("real_bundled_folder")
def test_a_pair_is_drawn_with_what_corresponds_side_by_side() -> None:
    model = aotlens.load("novels-2l-mhsa", device="cpu")
    clean, corrupted = "Mr. Darcy met Elizabeth. Then Mr.", "Mr. Bingley met Jane. Then Mr."
    pairs = PromptPairs.from_texts(model, [(clean, corrupted, " D", " B")])
    (strip,) = plot(pairs).data
    said = [[text for text in row if text] for row in strip.text]
    assert [len(row) for row in said] == [len(each) for each in pairs.str_tokens[0]]
    for a, b in pairs.pairs[0].positions:
        assert any(ends == (str(a), str(b)) for ends in map(tuple, zip(*strip.customdata, strict=True)))
    alone = len(said[0]) + len(said[1]) - 2 * len(pairs.pairs[0].positions)
    assert int(np.nansum(strip.z)) == alone and f"differ in {alone} tokens, ' D' or ' B'" in pairs.headline
    even = PromptPairs.from_texts(model, [("She bowed to Jane", "She bowed to John", " a", " b")])
    assert "1 pair of prompts that differ in 1 token" in even.headline and int(np.nansum(plot(even).data[0].z)) == 2


def test_pairs_of_a_template_share_no_word_or_are_clusters_of_those_that_do(model: Any):
    template = {"template": "{X} a {Y}: {X}", "answer": "{X}", "wrong": "{Y}"}
    words = list("abcdefgh")

    def drawn(n: int) -> list[tuple[str | None, frozenset[int]]]:
        pairs = PromptPairs.from_template(model, words=words, n=n, **template)
        return [(pair.cluster, frozenset((pair.answer, pair.wrong))) for pair in pairs]

    few = drawn(4)
    assert len(frozenset.union(*(ends for _, ends in few))) == 8 and {group for group, _ in few} == {None}
    several = drawn(7)  # groups of 3, 3 and 2 words have 3, 3 and 1 pairs, none of which is another one exchanged
    assert len({ends for _, ends in several}) == 7
    of_group: dict[Any, frozenset[int]] = {}
    for group, ends in several:
        of_group[group] = of_group.get(group, frozenset()) | ends
    assert sorted(map(len, of_group.values())) == [2, 3, 3]
    assert len({group for group, _ in drawn(56)}) == 1 and len({*drawn(56)}) == 28


def test_tokens_of_another_tokenizer_are_told(model: Any):
    pairs = PromptPairs.from_texts(model, [("the cat", "the rat", "a", "b")])
    patch(model, pairs)
    other = maker(SIZES)(tokenizer=Tokenizer.train(["a hat that ate a hen then ate ten hats " * 9], 270))
    with refused("this model's tokenizer"):
        patch(other, pairs)


@pytest.mark.parametrize(
    ("row", "said"),
    [({"positions": 5}, "positions"), ({"positions": [1, 2]}, "positions"), ({"cluster": "a\x1b[31m"}, "cluster")],
)  # fmt: skip
def test_what_a_line_holds_is_refused_with_its_place(model, tmp_path: Path, row, said):
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"clean": "Tom met", "corrupted": "Ann met", "answer": 1, "wrong": 2, **row}))
    with refused(str(file), "line 1", said):
        PromptPairs.from_jsonl(model, file)


@pytest.mark.parametrize("braces", ["{A:>900000000}", "{A.__class__}", "{A[0]}", "{0}", "{A!r}", "{A:{B}}", "{"])
def test_braces_of_a_template_hold_names_alone(model, braces: str):
    """A width of 900,000,000 takes as many bytes a word."""
    for template, answer in ((f"{braces} {{A}} {{B}}", " {A}"), ("{A} {B}", braces)):
        with refused("template", braces):
            PromptPairs.from_template(model, template, answer=answer, wrong=" {B}", words=["a", "b"], n=1)
    with refused("words", "1000"):
        PromptPairs.from_template(model, "{A} {B}", answer="{A}", wrong="{B}", words=map(str, range(1001)), n=1)


pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.mark.parametrize(
    ("made", "checkpoint", "text"),
    [
        (repeated_names, "novels-2l-mhsa", "Mr. "),
        (matching_brackets, "code-2l-mhsa", " = "),
        (deeper_indentation, "code-2l-mhsa", "\n        if "),
    ],
)
def test_a_bundled_model_gives_the_answer_and_not_the_wrong_one(made, checkpoint, text):
    model = aotlens.load(checkpoint, device="cpu")
    pairs = made(model, n=16)
    assert len(pairs) == 16 and len({tuple(pair.clean.tolist()) for pair in pairs}) == 16
    assert all(len(pair.clean) == len(pair.corrupted) and pairs.differences(row) for row, pair in enumerate(pairs))
    assert all(text in "".join(clean) for clean, _ in pairs.str_tokens)
    whole = patch(model, pairs, "z")
    assert whole.clean.mean() > 1 > whole.corrupted.mean()
    assert made(model, n=3, seed=5).to_frame().clean.tolist() == made(model, n=3, seed=5).to_frame().clean.tolist()
    with pytest.raises(ValueError, match="expected"):
        made(model, n=10**5)
    # Pairs that share the word which matters most are clusters; names of 32 pairs are 64 different ones.
    pairs = made(model, n=32)
    if made is repeated_names:
        assert pairs.clusters is None and len({word for both in pairs.answer_words for word in both}) == 64
    else:
        words = [clean[5 if made is matching_brackets else 6].strip() for clean, _ in pairs.str_tokens]
        assert list(pairs.clusters) == words


def test_an_induction_pair_differs_in_what_is_moved_or_in_what_stands_before_it():
    model = aotlens.load("novels-2l-mhsa", device="cpu")
    for differs in ("value", "key"):
        pairs = PromptPairs.induction(model, differs=differs, n=20, length=9)
        for row, pair in enumerate(pairs):
            ((at, same),) = pairs.differences(row)
            last = int(pair.clean[-1])
            first = pair.clean.tolist().index(last)
            assert at == same == first + (differs == "value")
            assert pair.answer == int(pair.clean[first + 1]) and pair.wrong == int(pair.corrupted[at]) != pair.answer
            assert (last in pair.corrupted[:-1].tolist()) == (differs == "value")
    with pytest.raises(ValueError, match="differs='query'"):
        PromptPairs.induction(model, differs="query")


def test_an_image_stands_beside_one_of_the_other_class():
    model, images = make_image_model(), random_images(8)
    labels = np.array([0, 1, 2, 1, 0, 2, 1, 0])
    pairs = image_pairs(model, images, labels, (1, 0), n=3)
    kinds = [[next(i for i in range(8) if torch.equal(images[i], x)) for x in (p.clean, p.corrupted)] for p in pairs]
    assert all(labels[a] == 1 and labels[b] == 0 for a, b in kinds) and len({a for a, _ in kinds}) == 3
    assert {(pair.answer, pair.wrong) for pair in pairs} == {(1, 0)}
    with pytest.raises(ValueError, match="expected 3 images of class 2 or more, got 2"):
        image_pairs(model, images, labels, (1, 2), n=3)


def test_negated_labels_turn_the_sign_of_what_is_estimated():
    task, model = RegressionTask(d=5), aotlens.load("regression-5d-mhsa", device="cpu")
    prompts = task.sample(12, 10, seed=3)
    pairs = negated_labels(model, prompts)
    for row, pair in enumerate(pairs):
        assert torch.equal(pair.clean[::2], prompts.inputs[row]) and torch.equal(pair.clean[::2], pair.corrupted[::2])
        assert torch.equal(pair.clean[1::2], -pair.corrupted[1::2])
        sign = 1 if prompts.labels[row, -1] > 0 else -1
        torch.testing.assert_close(pair.clean[1::2, 0], sign * prompts.labels[row, :-1])
    found = patch(model, pairs, "z", "output")
    assert found.clean.mean() > 0.5 and found.corrupted.mean() < -0.5
    with torch.no_grad():
        np.testing.assert_allclose(found.clean, model(pairs.pairs[0].clean[None].new_tensor(
            np.stack([pair.clean.numpy() for pair in pairs])))[:, -1, 0].numpy(), atol=1e-5)  # fmt: skip
    with pytest.raises(ValueError, match="writes vectors"):
        patch(model, pairs, "z")
    with pytest.raises(ValueError, match="reads and writes vectors"):
        negated_labels(aotlens.load("novels-2l-mhsa", device="cpu"), prompts)
