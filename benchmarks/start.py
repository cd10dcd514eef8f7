"""How long it takes until a script or the command can begin, beside `import torch`.

    python -m benchmarks.start [--quick] [--pairs 7] [--json PATH]

Each runs in a process of its own, in turn with `python -c "import torch"`; processor seconds, medians over pairs.
`import aotlens`, `import aotlens.plots` and `aotlens --help` load no PyTorch; `import aotlens.models`, `.circuits` and
`.heads` do, and nothing else that is heavy; `import transformer_lens` is what they cost when they loaded that.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from typing import Any

from benchmarks import _common

STARTS = {
    "import aotlens": ("-c", "import aotlens"),
    "import aotlens.plots": ("-c", "import aotlens.plots"),
    "aotlens --help": ("-m", "aotlens", "--help"),
    "import aotlens.models": ("-c", "import aotlens.models"),
    "import aotlens.circuits": ("-c", "import aotlens.circuits"),
    "import aotlens.heads": ("-c", "import aotlens.heads"),
    "import transformer_lens": ("-c", "import transformer_lens"),
}


def _processor_seconds(*arguments: str) -> float:
    """Return the processor time of a Python with these arguments, its own and its children's."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__).parse_args(argv)
    pairs = options.pairs or (1 if options.quick else 7)
    rows: list[dict[str, Any]] = []
    for name, arguments in STARTS.items():
        measured = [(_processor_seconds(*arguments), _processor_seconds("-c", "import torch")) for _ in range(pairs)]
        seconds = statistics.median(ours for ours, _ in measured)
        ratio = statistics.median(ours / torch for ours, torch in measured)
        rows.append({"start": name, "seconds": seconds, "÷ import torch": ratio, "pairs": pairs})
    _common.report("start", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
