"""What `--check-shapes` checks annotations with: as for mypy, a whole number is a `float`, too."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
