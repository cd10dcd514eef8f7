"""What the page Lenses shows in tests/app/test_python.py."""

from __future__ import annotations

from app.pages.lens import PAGE

STATE = PAGE.address.state(
    {"checkpoint": "tiny-mhsa", "text": "The captain bowed.", "position": "3", "answer": "t", "wrong": "s", "layer": 1}
)
