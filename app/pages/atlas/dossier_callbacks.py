"""What a head's dossier asks of the server."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import html, no_update

from app.core.errors import RequestError
from app.core.files import File
from app.pages.atlas import dossier, files, words
from app.pages.atlas.ids import DOSSIER, ids
from app.pages.atlas.service import Atlases
from app.pages.atlas.service_dossier import bins, chosen_bin, losses, motifs, partners, passages, sharpest
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_buttons
from app.shell.props import props, stores, values
from app.shell.sharing import mark_head, save_files, when_seen


def register(app: App, service: Atlases) -> None:
    """The dossier's callbacks."""
    mark_head(app, ids.HEADS, ids.CHOSEN)
    when_seen(app, ids.CHOSEN, DOSSIER)
    links = service.core.links

    @guarded(
        app,
        panel=ids.FORM,
        inputs=stores(shown=ids.SHOWN, head=ids.HEAD),
        state=stores(before=ids.CHOSEN),
        output=stores(chosen=ids.CHOSEN, buttons=shell.drawn(ids.HEADS)),
        empty={"buttons": no_update},
        shares_notice=True,
    )
    def choose(shown: Any, head: list[int] | None, before: Any) -> Answer:
        made = service.shown(shown)
        if made is None:
            return None
        n_layers, n_heads = made.atlas.entropy.shape
        layer, number = head or (0, 0)
        if layer >= n_layers or number >= n_heads:
            layer, number = 0, 0
        answer = {"chosen": {**shown, "layer": layer, "head": number, "layers": n_layers, "heads": n_heads}}
        if before is None or [before["layers"], before["heads"]] != [n_layers, n_heads]:
            answer["buttons"] = head_buttons(n_layers, n_heads)
        return answer

    of_head = partial(guarded, app, reads={"chosen": lambda data: data and (service.shown(data), *_head(data))})

    @of_head(panel=ids.DOSSIER, inputs=stores(chosen=shell.seen(ids.DOSSIER)), parts=("body", "title"),
             empty={"title": "One head"})  # fmt: skip
    def say(chosen: Any) -> Answer:
        made, head = chosen[0], chosen[1:]
        return {"body": html.P(made.atlas.sentence(head)), "title": f"Head {words.name(head)} of {made.checkpoint}"}

    @of_head(
        panel=ids.EXAMPLES,
        inputs=stores(chosen=shell.seen(ids.EXAMPLES)) | values(bin=ids.BIN),
        output=props("data", bins=ids.BIN) | values(bin=ids.BIN),
        parts=("body", "caption"),
        empty={"bins": no_update, "bin": no_update},
    )
    def show_examples(chosen: Any, bin: str | None) -> Answer:
        made, head = chosen[0], chosen[1:]
        counts, place = bins(made, head), chosen_bin(made, head, int(bin) if bin else None)
        found = passages(service, made, head, place)
        return {
            "bins": [
                {"value": str(number), "label": f".{number}", "disabled": count == 0}
                for number, count in enumerate(counts)
            ],
            "bin": str(place),
            "caption": words.bin_said(counts, place),
            "body": dossier.passage_list(links, made.checkpoint, head, found),
        }

    @of_head(panel=ids.WEIGHTS, inputs=stores(chosen=shell.seen(ids.WEIGHTS)), parts=("body",))
    def show_weights(chosen: Any) -> Answer:
        made, head = chosen[0], chosen[1:]
        return {"body": dossier.sharpest_tables(links, made.checkpoint, sharpest(service, made, head))}

    @of_head(panel=ids.PARTNERS, inputs=stores(chosen=shell.seen(ids.PARTNERS)), parts=("body",))
    def show_partners(chosen: Any) -> Answer:
        made, head = chosen[0], chosen[1:]
        return {"body": dossier.partner_table(links, made.checkpoint, head, partners(made, head), made.atlas.missing)}

    @of_head(panel=ids.LOSSES, inputs=stores(chosen=shell.seen(ids.LOSSES)), parts=("body",))
    def show_losses(chosen: Any) -> Answer:
        made, head = chosen[0], chosen[1:]
        return {"body": dossier.loss_table(losses(made, head), made.atlas.missing)}

    @of_head(panel=ids.MOTIFS, inputs=stores(chosen=shell.seen(ids.MOTIFS)), parts=("body",))
    def show_motifs(chosen: Any) -> Answer:
        made, head = chosen[0], chosen[1:]
        return {"body": dossier.motif_table(motifs(made, head))}

    panels = [panel for panel in DOSSIER if panel != ids.DOSSIER]
    save_files(
        app,
        {shell.export(panel, "csv"): partial(make_file, service, panel) for panel in panels},
        stores(chosen=ids.CHOSEN) | values(bin=ids.BIN),
    )


def make_file(service: Atlases, panel: str, chosen: Any, bin: str | None) -> File:
    """The file for an entry of an export menu."""
    made = service.shown(chosen)
    if made is None:
        raise RequestError("No head's dossier is open: choose a head first.")
    return files.dossier_csv(service, made, _head(chosen), int(bin) if bin else None, panel)


def _head(data: Any) -> tuple[int, int]:
    return int(data["layer"]), int(data["head"])
