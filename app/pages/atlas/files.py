"""What the Atlas page shows, as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from app.core.files import File, csv_file
from app.pages.atlas import service_dossier, words
from app.pages.atlas.ids import ids
from app.pages.atlas.service import Atlases, Made

if TYPE_CHECKING:
    from aotlens.conventions import Head


def heads_csv(service: Atlases, made: Made, where: str | None) -> File:
    """One row a head that is found, all columns, unrounded."""
    frame = service.frame(made).drop(columns="name")
    return csv_file(f"atlas-{made.checkpoint}.csv", frame[service.found(made, where)])


def dossier_csv(service: Atlases, made: Made, head: Head, bin: int | None, panel: str) -> File:
    """What a panel of a head's dossier shows."""
    name = f"atlas-{made.checkpoint}-{words.name(head)}-{panel.partition('-')[2]}.csv"
    return csv_file(name, dossier_frame(service, made, head, bin, panel))


def dossier_frame(service: Atlases, made: Made, head: Head, bin: int | None, panel: str) -> pd.DataFrame:
    """The same as a table."""
    if panel == ids.EXAMPLES:
        records = made.atlas.examples.to_frame()
        place = service_dossier.chosen_bin(made, head, bin)
        own = (records["layer"] == head[0]) & (records["head"] == head[1]) & (records["bin"] == place)
        return records[own].reset_index(drop=True)
    if panel == ids.WEIGHTS:
        return pd.DataFrame(
            [
                {"circuit": table.title, "row": row, "entry": entry, "above_row": value}
                for table in service_dossier.sharpest(service, made, head)
                for row, entries in table.rows
                for entry, value in entries
            ]
        )
    if panel == ids.PARTNERS:
        return pd.DataFrame(
            [
                {"relation": relation, "layer": one.head[0], "head": one.head[1], "mode": one.mode,
                 "composition": one.value, "z": one.z}
                for relation, partners in service_dossier.partners(made, head).items()
                for one in partners
            ],
            columns=["relation", "layer", "head", "mode", "composition", "z"],
        )  # fmt: skip
    if panel == ids.LOSSES:
        return pd.DataFrame(service_dossier.losses(made, head))
    frame = made.atlas.motifs.chance_frame()
    return frame[(frame["layer"] == head[0]) & (frame["head"] == head[1])].reset_index(drop=True)
