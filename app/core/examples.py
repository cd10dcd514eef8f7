"""Texts to start from. Each shows something in most models."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "A repeated name (induction)": (
        "Mrs. Pendlebury smiled at the captain. The captain bowed, and Mrs. Pendlebury laughed. "
        '"My dear captain," said Mrs. Pendlebury, "the captain of a ship must dance."'
    ),
    "A repeated list (copying)": (
        "green seven window apple river stone paper\ngreen seven window apple river stone paper\n"
        "green seven window apple river stone paper"
    ),
    "A novel's first sentence": (
        "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want "
        "of a wife."
    ),
    "A Python class (brackets, indentation)": (
        "class Circle:\n    def __init__(self, radius):\n        self.radius = radius\n\n"
        "    def area(self):\n        return 3.14 * (self.radius ** 2)\n"
    ),
    "Characters of several bytes": "naïve café · 東京 · 🙂 · “quotes”\tand\ttabs",
}

FIRST = next(iter(EXAMPLES.values()))
