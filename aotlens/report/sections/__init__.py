"""The sections of a report, in their order; a new one is a module and a line here.

A section is a function of the subject. What a model cannot show raises `ValueError` with a sentence, which then stands
in the section's place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aotlens.report.parts import Part
from aotlens.report.sections.atlas import atlas_parts
from aotlens.report.sections.card import card_parts
from aotlens.report.sections.circuits import circuit_parts
from aotlens.report.sections.distillation import distillation_parts
from aotlens.report.sections.losses import loss_parts
from aotlens.report.sections.maps import map_parts
from aotlens.report.sections.trigrams import trigram_parts
from aotlens.report.subject import Subject

#: Title and content of each section, by the name that --sections takes.
SECTIONS: Final[dict[str, tuple[str, Callable[[Subject], list[Part]]]]] = {
    "maps": ("Where heads look", map_parts),
    "atlas": ("What every head does", atlas_parts),
    "circuits": ("What heads look for and write", circuit_parts),
    "trigrams": ("Skip-trigrams", trigram_parts),
    "distillation": ("Heads as feed-forward networks", distillation_parts),
    "losses": ("Losses", loss_parts),
    "card": ("Card", card_parts),
}
