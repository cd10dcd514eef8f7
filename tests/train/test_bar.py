"""The bar of `aotlens train`."""

from __future__ import annotations

import pytest

from aotlens.train.run import _Bar
from tests.messages import says


def test_it_says_when_training_is_over_but_measuring_is_not(capsys: pytest.CaptureFixture[str]):
    with _Bar("small", 100, True) as bar:
        bar(50, 100)
        assert "measuring" not in capsys.readouterr().err
        bar.say_loss(0.5)
        bar(100, 100)
    last = capsys.readouterr().err.strip().split("\r")[-1]
    says(last, "small", "held out: 100%", "loss 0.500")
