"""The Paths page's address: a text, a target, which paths are listed, and what is taken away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address

Ranking = Literal["abs", "pos", "neg"]
View = Literal["top", "heads", "flow"]
Beside = Literal["orders", "without"]
Target = Literal["logit", "score"]
Part = Literal["pairs", "trace"]
Sums = Literal["heads", "sources", "orders"]

#: Paths that the Paths page lists, at first and at most.
FIRST_K = 20
MAX_K = 200

#: The text that the page opens on. It ends where a name that came before goes on, so that the model's first choice is
#: worth explaining.
FIRST = "Miss Harriet Smith danced with Mr. Elton. Then Harriet"

#: A head, `1.0`, or a path, `token@4-0.2-1.3`: where it starts and the heads that it passes.
_WITHOUT = re.compile(
    r"\d{1,4}\.\d{1,4}|(token|position|mlp_\d{1,4}|bias)(@\d{1,6})?(-\d{1,4}\.\d{1,4}){0,200}", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class PathsState:
    """Everything that the Paths page shows."""

    checkpoint: str | None = address.checkpoint()
    text: str | None = address.prompt()
    """The text; None: the first example."""
    position: int | None = address.position(FIRST)
    """The token after which the target stands; None: the last."""
    target: int | None = address.token()
    """A token's id; None: the model's first choice."""
    versus: int | None = address.token()
    """The token whose logit is subtracted."""
    by: Ranking = address.choice(get_args(Ranking), "abs")
    """The order of paths: the largest in size first, the most for the target, the most against it."""
    through: tuple[int, int] | None = address.head()
    """The head that every listed path passes; None: all paths count."""
    k: int = address.whole(FIRST_K, least=1, most=MAX_K)
    without: str | None = address.text(pattern=_WITHOUT, expected="a head, as 1.0, or a path, as token@4-0.2-1.3")
    """The head or path that is taken away, as `_WITHOUT` has it."""
    view: View = address.choice(get_args(View), "top")
    """The panel that is open at the left; `beside` is at the right."""
    beside: Beside = address.choice(get_args(Beside), "orders")
    of: Target = address.choice(get_args(Target), "logit")
    """Whether a logit is explained, or an attention score: that of the next four."""
    head: tuple[int, int] | None = address.head()
    query: int | None = address.position(FIRST)
    """The query's position; None: the last token."""
    key: int | None = address.position(FIRST)
    """The key's position; None: what the head attends to most there."""
    against: int | str | None = address.against()
    part: Part = address.choice(get_args(Part), "pairs")
    """The panel of a score that is open at the left; `sums` is at the right."""
    sums: Sums = address.choice(get_args(Sums), "heads")


ADDRESS = address.Address("paths", PathsState)
