"""How long it takes until a script or the command can begin, beside a Python that imports nothing.

    python -m benchmarks.start [--quick] [--pairs 7] [--json PATH]

Each runs in a process of its own, in turn with `python -c pass`; medians over pairs. `import aotlens`, `import
aotlens.plots` and `aotlens --help` load neither PyTorch nor TransformerLens. `import aotlens.heads` loads both;
`import torch` and `import transformer_lens` stand beside it, to say whose the time is.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks import _common

STARTS = {
    "import aotlens": ("-c", "import aotlens"),
    "import aotlens.plots": ("-c", "import aotlens.plots"),
    "aotlens --help": ("-m", "aotlens", "--help"),
    "import torch": ("-c", "import torch"),
    "import transformer_lens": ("-c", "import transformer_lens"),
    "import aotlens.heads": ("-c", "import aotlens.heads"),
}


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def main(argv: list[str] | None = None) -> int:
    chosen = _common.parser(__doc__).parse_args(argv)
    pairs = chosen.pairs or (1 if chosen.quick else 7)
    rows: list[dict[str, Any]] = []
    for name, arguments in STARTS.items():
        timing = _common.time_in_turn(lambda arguments=arguments: _run(*arguments), lambda: _run("-c", "pass"), pairs)
        rows.append({"start": name, "seconds": timing.first, "÷ bare Python": timing.ratio, "pairs": timing.pairs})
    _common.report("start", rows, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
