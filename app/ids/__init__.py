"""Every component id: `ids.NAME`, a file a page. The browser's side (assets/*.js, *.css) uses the same strings.

No two files share a name or an id (tests/app/test_app.py).
"""

from __future__ import annotations

from app.ids.checkpoints import *  # noqa: F403
from app.ids.circuits import *  # noqa: F403
from app.ids.distillation import *  # noqa: F403
from app.ids.heads import *  # noqa: F403
from app.ids.nonlinearity import *  # noqa: F403
from app.ids.parts import *  # noqa: F403
from app.ids.paths import *  # noqa: F403
from app.ids.shell import *  # noqa: F403
from app.ids.trigrams import *  # noqa: F403
