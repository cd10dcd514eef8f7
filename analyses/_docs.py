"""What the analyses write into the pages of docs/: a section between two marks, made anew each time."""

from __future__ import annotations

from aotlens.files import read_section, write_section

__all__ = ["read_section", "write_section"]
