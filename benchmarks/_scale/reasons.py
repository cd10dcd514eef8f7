"""Why a measured exponent is not its law's, by analysis and axis; a test holds them against the stored points."""

from __future__ import annotations

REASONS: dict[tuple[str, str], str] = {}
