"""Frames of a film contain their maps, and are written whole or not at all; training curves."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aotlens.plots import training_curve
from aotlens.plots.colours import lookup
from aotlens.plots.film import _GAP, _MAP, _MARGIN, film_frames, save_film
from tests.messages import refused

STEPS, LOSSES = [0, 10, 100], [5.0, 4.0, 2.0]


def maps() -> list[np.ndarray]:
    patterns = np.random.default_rng(0).random((3, 2, 3, 8, 8)).astype(np.float32)
    return list(np.tril(patterns))


def test_every_entry_has_its_colour() -> None:
    frames = film_frames(maps(), STEPS, LOSSES)
    colours = lookup("sequential", "light", 256)
    for frame, patterns in zip(frames, maps(), strict=True):
        pixels = np.asarray(frame)
        for layer, head in np.ndindex(2, 3):
            left, top = _MARGIN + head * (_MAP + _GAP), _MARGIN + layer * (_MAP + _GAP) + _GAP
            middle = np.arange(8) * _MAP // 8 + _MAP // 16
            found = pixels[np.ix_(top + middle, left + middle)]
            np.testing.assert_array_equal(found, colours[np.rint(patterns[layer, head] * 255).astype(int)])
    assert len({frame.tobytes() for frame in frames}) == 3


def test_a_gif_plays_them_all(tmp_path: Path) -> None:
    save_film(film_frames(maps(), STEPS, LOSSES, theme="dark"), tmp_path / "film.gif", seconds=0.2)
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 3 and film.info["duration"] == 200 and film.info["loop"] == 0
        film.seek(2)
        assert film.info["duration"] == 2000


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = film_frames(maps(), STEPS, LOSSES)
    with refused(".gif or .mp4"):
        save_film(frames, tmp_path / "film.webm")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with refused("ffmpeg", ".gif"):
        save_film(frames, tmp_path / "film.mp4")
    with refused("3, 3 and 2"):
        film_frames(maps(), STEPS, LOSSES[:2])
    with refused("finite"):
        film_frames(maps(), STEPS, [1.0, float("nan"), 2.0])
    assert list(tmp_path.iterdir()) == []


def test_an_mp4_is_what_ffmpeg_makes_of_the_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(
        '#!/bin/sh\nfor last; do :; done\nwc -c > "$last"\n[ -z "$FAILS" ] || { echo no room >&2; exit 1; }\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    frames = film_frames(maps(), STEPS, LOSSES)
    save_film(frames, tmp_path / "film.mp4", seconds=0.5)
    width, height = (size - size % 2 for size in frames[0].size)
    assert int((tmp_path / "film.mp4").read_text()) == 3 * width * height * (2 + 4)  # the last one for two seconds
    monkeypatch.setenv("FAILS", "1")
    with refused("ffmpeg failed", "no room"):
        save_film(frames, tmp_path / "other.mp4")
    assert not (tmp_path / "other.mp4").exists()


HISTORY = [
    {"step": 0, "tokens": 0, "loss": 8.0, "learning_rate": 0.1, "validation_loss": 8.1, "induction": 0.0},
    {"step": 10, "tokens": 640, "loss": 7.0, "learning_rate": 0.1},
    {"step": 20, "tokens": 1280, "loss": 6.0, "learning_rate": 0.1, "validation_loss": 6.2, "induction": 0.5},
]


def test_a_training_curve_has_losses_above_scores():
    figure = training_curve(HISTORY, references={"bigram": 4.5})
    lines = {trace.name: trace for trace in figure.data}
    assert set(lines) == {"loss", "validation loss", "induction"}
    np.testing.assert_array_equal(lines["validation loss"].x, [0, 1280])
    np.testing.assert_array_equal(lines["validation loss"].y, [8.1, 6.2])
    assert lines["loss"].yaxis != lines["induction"].yaxis
    assert "bigram 4.500" in figure.layout.annotations[0].text


def test_a_training_curve_without_scores_or_with_gaps():
    figure = training_curve([{"step": 1, "loss": 2.0}, {"step": 2, "loss": None}, {"step": 3, "loss": 1.0}])
    np.testing.assert_array_equal(figure.data[0].x, [1, 3])
    assert len(figure.data) == 1


@pytest.mark.parametrize("history", [[], [{"loss": 1.0}], [{"step": 1}]])
def test_a_curve_of_nothing_is_refused(history: list[dict[str, float]]):
    with pytest.raises(ValueError, match="training_curve: expected rows"):
        training_curve(history)
