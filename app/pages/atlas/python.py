"""Python for the Atlas page's views."""

from __future__ import annotations

from app.core import Core
from app.pages.atlas.address import AtlasState
from app.pages.atlas.ids import DOSSIER, LISTS, ids
from app.pages.atlas.service import HOWS, N_ABLATED, Atlases, Made
from app.pages.atlas.service_dossier import chosen_bin, sharpest
from app.pages.atlas.service_path import CHECKPOINT
from app.shell.page import python_of
from app.shell.python import loading, reading


@python_of(*LISTS, *(panel for panel in DOSSIER if panel != ids.DOSSIER), ids.VERDICT)
def python(core: Core, service: Atlases, state: AtlasState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    if panel == ids.VERDICT:
        return [
            *loading(CHECKPOINT),
            f"made = aotlens.heads.stored_atlas({CHECKPOINT!r}).atlas",
            "circuit = aotlens.heads.induction_circuit(model, made)",
            "result = circuit.to_frame()  # circuit.verdict, circuit.checks",
        ]
    made = service.of(state.checkpoint, state.corpus)
    lines = _atlas(core, made)
    if panel in LISTS:
        where = f"[rows_where(frame, {state.where!r})]" if state.where and panel == ids.TABLE else ""
        columns = f"[['layer', 'head', {state.x!r}, {state.y!r}]]" if panel == ids.SCATTER else ""
        search = ["from aotlens.heads.head_search import rows_where"] if where else []
        return [*search, *lines, "frame = made.to_frame()", f"result = frame{where}{columns}"]
    head = state.head or (0, 0)
    if panel == ids.EXAMPLES:
        place = chosen_bin(made, head, state.bin)
        own = f"(frame['layer'] == {head[0]}) & (frame['head'] == {head[1]}) & (frame['bin'] == {place})"
        return [
            *lines,
            "frame = made.examples.to_frame()  # positions; made.examples.tokens are the ids",
            f"result = frame[{own}].reset_index(drop=True)",
        ]
    if panel == ids.PARTNERS:
        return [*lines, f"result = made.reads({head}, 4), made.feeds({head}, 4)"]
    if panel == ids.LOSSES:
        change = "(each.changes[place], *each.intervals()[place])"
        return [
            *lines,
            f"place = made.heads.index({head})",
            f"result = {{how: {change} for how, each in made.ablations.items()}}",
        ]
    if panel == ids.MOTIFS:
        own = f"(frame['layer'] == {head[0]}) & (frame['head'] == {head[1]})"
        return [
            *lines, "frame = made.motifs.chance_frame()", f"result = frame[{own}].reset_index(drop=True)",
        ]  # fmt: skip
    circuits = []
    for each in sharpest(service, made, head):
        left, right = each.link.get("left", "tokens"), each.link.get("right", "tokens")
        sides = f", {left!r}, {right!r}" if each.link["kind"] == "qk" else ""
        circuits.append(f"    aotlens.circuits.{each.link['kind']}_circuit(model, {head}{sides}),")
    return [
        *loading(made.checkpoint),
        *_frequent(core, made),
        "circuits = [",
        *circuits,
        "]",
        "tables = [aotlens.circuits.strongest_rows(circuit, frequent, n=5) for circuit in circuits]",
        "result = [table.relative for table in tables]  # table.rows and table.columns are ids of tokens",
    ]


def _atlas(core: Core, made: Made) -> list[str]:
    """Lines that give the atlas as `made`."""
    if made.corpus is None:
        return ["import aotlens.heads", "", f"made = aotlens.heads.stored_atlas({made.checkpoint!r}).atlas"]
    documents = reading(core, made.checkpoint, made.corpus)[0]  # the atlas itself takes the held-out documents
    return [
        *loading(made.checkpoint),
        documents,
        f"made = aotlens.heads.atlas(model, text, n_tokens={made.tokens}, hows={HOWS}, n_ablated={N_ABLATED})",
    ]


def _frequent(core: Core, made: Made) -> list[str]:
    """Lines that give the tokens whose rows are looked through."""
    if core.catalog.load(made.checkpoint).model.unigram_counts is None:
        return ["import torch", "frequent = torch.arange(min(model.cfg.d_vocab, 512))"]
    return ["frequent = model.unigram_counts.argsort(descending=True)[:512]"]
