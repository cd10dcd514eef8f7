"""The Atlas page's address: a checkpoint, two scores, which heads are listed, and the head whose summary is open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from aotlens.views.atlas import FIRST_X, FIRST_Y
from app.core import address

Tab = Literal["heads", "head", "path"]

_COLUMN = re.compile(r"[a-z0-9_]{1,60}")
_EXPECTED = "a column of the atlas, as induction_random"
_RENAMED = {
    "constancy": "pattern_consistency",
    "constancy_without_first": "pattern_consistency_without_first",
}


@dataclass(frozen=True, kw_only=True)
class AtlasState:
    """Everything that the Atlas page shows."""

    checkpoint: str | None = address.checkpoint()
    corpus: str | None = address.corpus()
    """The text of the atlas; None: that of the stored one."""
    x: str = address.text(FIRST_X, pattern=_COLUMN, expected=_EXPECTED, renamed=_RENAMED)
    """The column of the scatter's horizontal axis."""
    y: str = address.text(FIRST_Y, pattern=_COLUMN, expected=_EXPECTED, renamed=_RENAMED)
    where: str | None = address.text(most=300, renamed=_RENAMED)
    """The condition on the heads that are listed, as `induction_random > 0.4`; None: all."""
    head: tuple[int, int] | None = address.head()
    """The head whose summary is open; None: the first."""
    bin: int | None = address.whole(most=9)
    """The bin whose examples are shown, by tenths of attention away from key 0; None: the highest bin that has some."""
    tab: Tab = address.choice(get_args(Tab), "heads")


ADDRESS = address.Address("atlas", AtlasState)
