"""What the page Universality shows in tests/app/test_python.py."""

from __future__ import annotations

from app.pages.universality import PAGE

STATE = PAGE.address.state({"models": ["tiny-mhsa", "tiny-mssa"], "text": "repeats", "evidence": "pattern, ov"})
