"""What is put side by side by one click: the bundled checkpoints whose layers have 393,216 numbers each.

docs/atlas.md, "MSSA, MHSA and GPT at one size".
"""

from __future__ import annotations

from app.pages.compare.ids import ids

MSSA, MHSA, GPT = "novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt"

#: By the button's id: its label, and the checkpoints.
PRESETS: dict[str, tuple[str, str, str]] = {
    ids.PRESET_MSSA_MHSA: ("MSSA | MHSA", MSSA, MHSA),
    ids.PRESET_MHSA_GPT: ("MHSA | GPT", MHSA, GPT),
    ids.PRESET_MSSA_GPT: ("MSSA | GPT", MSSA, GPT),
}
