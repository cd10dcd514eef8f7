"""Sentences of the docs with a superlative, an order or a "none", compared with the numbers that they are of."""

from __future__ import annotations

import re

import numpy as np
import pytest

import aotlens
from analyses._outcomes import load
from aotlens.distill import bundled_distillations
from aotlens.heads import label_words, stored_atlas
from aotlens.models import ModelConfig
from aotlens.paths import logit_jacobian
from aotlens.statistics import holm
from aotlens.train import load_recipe
from tests.test_structure import ROOT


def sentence(page: str, beginning: str) -> str:
    """Return the paragraph of a page, or the item of its list, that begins so, on one line."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return " ".join(re.split(r"\n\n|\n- ", text[text.index(beginning) :])[0].split())


def table(name: str, column: str) -> list[dict[str, str]]:
    """Return the rows of an outcome's table that has a column, by its header."""
    tables = [part for part in load(name).parts if isinstance(part, tuple) and column in part[0]]
    header, rows = tables[0]
    return [dict(zip(header, row, strict=True)) for row in rows]  # type: ignore[arg-type]


def test_the_parts_of_the_loss_on_repeats_are_in_the_order_of_their_size() -> None:
    rows = {row["entry"]: abs(float(row["nats a token: mean ± sd"].split()[0])) for row in table("circuit_formation", "entry")}  # fmt: skip  # noqa: E501
    entries = {name: value for name, value in rows.items() if not name.startswith(("loss", "residual", "split"))}
    largest = sorted(entries, key=lambda name: -entries[name])[:5]
    words = {
        "other first-layer heads": "first layer's heads",
        "positions": "position vectors",
        "read-out": "read-out",
        "second layer QK": "QK of the second layer",
        "previous-token head QK": "that of the previous-token head",
    }
    text = sentence("training-film.md", "**The loss on repeats**")
    assert [*words] == largest
    places = [text.index(word) for word in words.values()]
    assert places == sorted(places)
    numbers = [float(each) for each in re.findall(r"(?<!\d)\.\d+", text)]
    np.testing.assert_allclose(numbers, [entries[name] for name in largest], atol=0.0051)
    assert f"{rows['loss']:.1f} nats" in text


def test_what_mssa_and_gpt_did_not_form_is_what_no_seed_has() -> None:
    seeds = {(row["kind"], row["event"]): row["seeds"] for row in table("circuit_formation", "seeds")}
    text = sentence("training-film.md", "**No seed of MSSA or GPT")
    for kind in ("mssa", "gpt"):
        for event in ("induction", "previous token", "gain on repeated tokens"):
            assert seeds[kind, event].startswith("0 of")
    counted = {key: count for key, count in seeds.items() if key[0] in ("mssa", "gpt") and not count.startswith("0")}
    assert counted == {("mssa", "copying"): "2 of 7", ("gpt", "k composition"): "1 of 5"}
    assert "Copying changed in 2 of 7 seeds of MSSA, K-composition in 1 of 5 of GPT" in text


def test_what_is_said_of_mhsa_and_mssa_is_what_the_tables_of_five_seeds_say() -> None:
    text = sentence("universality.md", "**Whether heads of MHSA recur more") + (ROOT / "docs" / "universality.md").read_text(encoding="utf-8")  # fmt: skip  # noqa: E501
    text = " ".join(text.split())
    tests = {(row["kind"], row["matched"], row["tested"]): row for row in table("heads_across_seeds", "standardised")}
    for words, matched, tested in (
        ("{} for MHSA and {} for MSSA", "ov", "qk"),
        ("Of patterns, then OV, they are {} and {}", "pattern", "ov"),
        ("of QK, then OV, {} and {}", "qk", "ov"),
        ("of OV, then content, {} and {}", "ov", "content"),
    ):
        rows = [tests[kind, matched, tested] for kind in ("mhsa", "mssa")]
        assert words.format(*(row["standardised"] for row in rows)) in text
        for row in rows:
            mean, deviation = (float(each) for each in row["permuted: mean ± sd"].split(" ± "))
            assert row["standardised"] == f"{(float(row['mean']) - mean) / deviation:.1f}"
    pairs = table("heads_across_seeds", "p, Holm")
    smallest = min(float(row["p, Holm"].removeprefix("≥ ")) for row in pairs)
    assert f"no p is below {smallest:.2f} with Holm".replace("0.", ".") in text
    own = [row for row in pairs if (row["kind"], row["other kind"]) == ("mhsa", "mssa")]
    assert all(
        float(row["above permuted (standardised)"].split()[0]) > float(row["of the other"].split()[0]) for row in own
    )
    planned = [float(row["p"][2:]) for row in pairs if (row["kind"], row["other kind"]) == ("mhsa", "undecayed")]
    assert f"none below {holm(np.array(planned)).min():.2f} over these four".replace("0.", ".") in text


def test_the_sizes_of_the_seeds_are_those_of_their_recipes() -> None:
    text = " ".join((ROOT / "docs" / "universality.md").read_text(encoding="utf-8").split())
    for kind, words in (
        ("mhsa", "A model of MHSA has {:,} weights, {:,} of them in its layers"),
        ("mssa", "one of MSSA {:,}, of which {:,} are in layers"),
    ):
        recipe = load_recipe(ROOT / "analyses" / "recipes" / f"formation-{kind}.toml")
        model = aotlens.AttentionOnlyTransformer(ModelConfig.from_dict({**recipe.model, "d_vocab": 4096}))
        in_layers = sum(weight.numel() for block in model.blocks for weight in block.parameters())
        assert words.format(sum(weight.numel() for weight in model.parameters()), in_layers) in text


@pytest.mark.usefixtures("real_bundled_folder")
def test_the_largest_gradients_of_a_lens_are_those_of_its_table() -> None:
    model = aotlens.load("novels-2l-mhsa", "cpu")
    outputs = tuple(model.to_single_token(word) for word in ("ar", "ick"))
    step = logit_jacobian(model, "Mr. Darcy met Elizabeth. Then Mr. D", outputs, layer=0)  # type: ignore[arg-type]
    frame = step.to_frame()
    text = sentence("lenses.md", "Patterns held, the logit is most sensitive")
    moving = frame.nlargest(3, "moving")
    assert moving.position.tolist() == [16, 4, 3] and moving.token.str.strip().tolist() == ["D", "ar", "D"]
    numbers = [f"{value:.1f}" for value in (frame.frozen.max(), *moving.moving, frame.frozen[3])]
    assert (
        re.findall(r"\d+\.\d(?!\d)(?=[,) ])(?! and)", text.replace("0.2 reads", "").replace("0.1 and 1.3", ""))
        == numbers
    )
    first = np.linalg.norm(step.by_head[:, :, 4], axis=-1)
    assert [divmod(place, 4) for place in np.argsort(-first, axis=None)[:3].tolist()] == [(0, 2), (0, 1), (1, 3)]


def rows_of_page(page: str, header: str) -> list[list[str]]:
    """Return the cells of a page's own table, by the beginning of its header."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(header)) + 2
    end = next((place for place in range(start, len(lines)) if "|" not in lines[place]), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def test_two_kinds_are_told_apart_as_the_table_of_simulations_says() -> None:
    rows = {row[0]: row[1:] for row in rows_of_page("universality.md", "null | 3 + 3: level, power")}
    assert {cell for cells in rows.values() for cell in cells[:2]} == {"not tested"}
    level, power = (
        {name: [float(cell.split(", ")[place].rstrip("%")) for cell in cells[2:]] for name, cells in rows.items()}
        for place in (0, 1)
    )
    circuit = [values[0] for name, values in power.items() if "form a circuit" in name]
    text = sentence("universality.md", "With 5 + 5 models the level is at most")
    assert f"the level is at most {max(values[0] for values in level.values())}%" in text
    assert f"told apart in {min(circuit):.0f} to {max(circuit):.0f}%" in text
    largest = max(level, key=lambda name: level[name][1])
    assert f"up to {level[largest][1]}% where unlike kinds share nothing" in text and "share nothing" in largest


def test_labels_of_the_bundled_heads_are_those_of_the_atlas_s_page() -> None:
    header = "| head | label | margin |"
    frame = stored_atlas("novels-2l-mhsa").atlas.to_frame()
    for cells, head in zip(rows_of_page("atlas.md", header), frame.itertuples(), strict=True):
        label = label_words(head.label, head.resting)
        margin = "" if np.isnan(head.margin) else f"{head.margin:.2f}"
        assert cells[:3] == [f"{head.layer}.{head.head}", label, margin]
    header = "| checkpoint | heads | current token |"
    columns = ("current_token", "first_token", "previous_token", "punctuation", "uniform_attention", "mixed")
    labels = {}
    for cells in rows_of_page("atlas.md", header):
        attending = bundled_distillations()[cells[0].strip("`")].distillation.attending
        counts = [attending.attends.count(name) for name in columns]
        labels[cells[0].strip("`")] = dict(zip(columns, counts, strict=True))
        median = np.nanmedian(attending.pattern_consistency)
        assert cells[1:9] == [str(sum(counts)), *map(str, counts), f"{median:.2f}"]
    text = sentence("atlas.md", "MSSA's one matrix")
    mssa = labels["novels-12l-mssa"]
    assert f"{mssa['current_token']} of its 48 heads" in text and mssa["previous_token"] == 0

    def strong_and_mixed(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scores = bundled_distillations()[name].distillation.attending.scores
        place = scores.motifs.index("current_token")
        chosen = (scores["current_token"] >= 0.4) & (np.array(scores.labels()) == "mixed")
        assert scores.runner_up is not None
        beaten = scores["current_token"] - scores.runner_up[place]
        return np.argwhere(chosen), beaten[chosen], scores.lost("current_token")[chosen]

    heads, beaten, _ = strong_and_mixed("novels-12l-mssa")
    assert f"{len(heads)} of MSSA, since another key gets nearly as much" in text and beaten.max() < 0.1
    heads, _, lost = strong_and_mixed("novels-6l-mhsa")
    assert heads.tolist() == [[0, head] for head in range(4)], "the first layer of MHSA"
    assert f"{lost.min():.0%} to {lost.max():.0%} less".replace("%", "", 1) in text
