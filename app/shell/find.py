"""Find (`/` or Ctrl K): heads by what they do, pages, checkpoints. The browser filters one list (static/find.js)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flask import Flask, Response, jsonify

from app.core import Core

_LIST = "/find.json"


def serve(server: Flask, core: Core, pages: Mapping[str, str]) -> None:
    """Answer with all that can be found: `pages` by title and address, checkpoints, and heads of stored atlases."""

    @server.get(_LIST)
    def everything() -> Response:
        entries = [{"name": title, "note": "page", "href": path} for title, path in pages.items()]
        return jsonify([*entries, *_checkpoints(core), *_heads(core)])


def _checkpoints(core: Core) -> Iterator[dict[str, str]]:
    for info in core.catalog.list():
        if info.problem is None:
            shape = core.catalog.shape(info.name)
            heads = "" if shape is None else f", {shape[0]} layer{'s' * (shape[0] != 1)} × {shape[1]} heads"
            yield {
                "name": info.name,
                "note": f"checkpoint{heads}",
                "href": core.links.to("checkpoints", checkpoint=info.name),
            }


def _heads(core: Core) -> Iterator[dict[str, str]]:
    """The heads of checkpoints whose atlas is stored: what is known without running anything."""
    from aotlens.heads import MOTIFS, stored_atlas

    for info in core.catalog.list():
        if not core.catalog.reads_text(info):
            continue
        try:
            record = stored_atlas(info.name)
        except ValueError:
            continue
        if not record.belongs_to(info):
            continue
        labels = record.atlas.labels
        for layer, names in enumerate(labels.names):
            for head, label in enumerate(names):
                title = MOTIFS[label].title if label in MOTIFS else label.replace("_", " ")
                yield {
                    "name": f"{title}: {layer}.{head} of {info.name}",
                    "note": labels.sentence((layer, head)),
                    "href": core.links.to("heads", checkpoint=info.name, head=(layer, head)),
                }
