"""Events are found where they were put into made-up films, and roles of a ledger sum to its change."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from analyses import circuit_formation
from aotlens.dynamics import Ledger, Measures, OverTraining

STEPS = np.arange(0, 1200, 20)
AT = {"copying": 200, "gain on repeated tokens": 800, "k composition": 400, "previous token": 600, "induction": 760}


def made_up(seed: int, at: dict[str, int]) -> OverTraining:
    """Curves that rise within 100 steps around the given ones, with noise of a hundredth of their range."""
    random = np.random.default_rng(seed)

    def curve(name: str) -> np.ndarray:
        rise = 1 / (1 + np.exp(-(STEPS - at[name]) / 20)) if name in at else np.zeros(len(STEPS))
        return rise + 0.01 * random.normal(size=len(STEPS))

    curves = {name: curve(name) for name in circuit_formation.EVENTS}
    results = []
    for place in range(len(STEPS)):
        values = {name: np.full((2, 2), 0.0) for name in curves}
        for name, each in curves.items():
            layer = 0 if name == "previous token" else 1
            values[name][layer] = each[place] - 0.3, each[place]
        heads = np.zeros((2, 2))
        results.append(
            Measures(
                loss=5.0,
                in_context=0.0,
                repeated_gain=float(curves["gain on repeated tokens"][place]),
                loss_by_position=np.zeros(4),
                motifs=("previous_token", "induction"),
                motif_scores=np.stack([values["previous token"], values["induction"]]),
                composition=np.stack([heads, values["k composition"], heads]),
                composition_p=np.stack([heads] * 3),
                copying=values["copying"],
                by_order=np.zeros(2),
                **dict.fromkeys(("qk_norm", "ov_norm", "qk_rank", "ov_rank", "qk_distance", "ov_distance"), heads),
            )
        )
    return OverTraining(run=f"formation-x-{seed}", analysis="film", steps=STEPS, tokens=None, results=tuple(results))


def test_half_way_is_where_the_curve_was_put() -> None:
    for name, (change, half) in circuit_formation.moments(made_up(0, AT)).items():
        assert change.step is not None and change.step <= AT[name]
        assert half.step is not None and abs(half.step - AT[name]) <= 20


def test_an_event_that_does_not_happen_is_none() -> None:
    found = circuit_formation.moments(made_up(0, {name: step for name, step in AT.items() if name != "induction"}))
    assert [half.step for _, half in found.values()].count(None) == 1
    assert found["induction"][0].step is None


def test_the_order_over_seeds_is_that_of_the_curves() -> None:
    runs = [made_up(seed, {name: step + 10 * seed for name, step in AT.items()}) for seed in range(5)]
    text = circuit_formation.order_text("x", runs)
    half_way = text.partition("*half-way*")[2]
    for pair in (
        "copying before k composition",
        "k composition before previous token",
        "previous token before gain on",
    ):
        assert pair in half_way
    assert "before copying" not in text
    assert "5 of 5" in circuit_formation.events_table({"x": runs})


def test_roles_of_a_ledger_sum_to_its_change() -> None:
    film = made_up(0, AT)
    entries = ("0.0 QK", "0.1 QK", "1.0 QK", "1.1 QK", "0.0 OV", "0.1 OV", "1.0 OV", "1.1 OV", "embedding")
    parts = np.random.default_rng(0).normal(size=(3, len(entries)))
    losses = np.concatenate([[5.0], 5.0 + parts.sum(1).cumsum()])
    books = Ledger(
        run=film.run, steps=np.arange(4), losses=losses, entries=entries, parts=parts, halved=0.1, n_passes=1
    )
    rows = {
        cells[0]: float(cells[1].split(" ±")[0])
        for line in circuit_formation.ledger_table([books], {film.run: film}).splitlines()[2:]
        if len(cells := line.split(" | ")) == 3
    }
    # Head 0.1 attends to the token before most.
    assert rows["previous-token head OV"] == pytest.approx(parts[:, 5].sum(), abs=6e-4)
    assert rows["other first-layer heads"] == pytest.approx(parts[:, [0, 4]].sum(), abs=6e-4)
    roles = sum(rows[name] for name in (*circuit_formation.ROLES, "embedding"))
    assert roles == pytest.approx(rows["loss"], abs=4e-3)


def test_a_saved_film_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film = dataclasses.replace(made_up(0, AT), tokens=STEPS)
    film.save(tmp_path / "film.safetensors")
    assert circuit_formation.main([str(tmp_path / "film.safetensors")]) == 0
    assert "x | induction | 1 of 1" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--corpus"):
        circuit_formation.main([str(tmp_path)])
