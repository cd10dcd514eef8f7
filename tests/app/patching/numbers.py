"""What the page Patching shows in tests/app/test_python.py."""

from __future__ import annotations

from app.pages.patching import PAGE

STATE = PAGE.address.state(
    {
        "checkpoint": "tiny-mhsa", "clean": "The captain bowed to Emma.", "corrupted": "The captain towed to Emma.",
        "answer": "t", "wrong": "s", "metric": "loss", "direction": "noising", "heads": "k",
    }
)  # fmt: skip
