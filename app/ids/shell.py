"""The frame of every page."""

from __future__ import annotations

PROVIDER = "provider"
LOCATION = "location"
PAGE = "page"
NAVIGATION = "navigation"
THEME_CHOICE = "theme-choice"  # light, dark or system
THEME = "theme"  # what that comes to: light or dark
CONNECTION = "connection"  # the notice that the server does not answer
