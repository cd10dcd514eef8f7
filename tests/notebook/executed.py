"""Notebooks executed as a user's, by a kernel of this interpreter, and their outputs as pages that stand alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.test_structure import ROOT

WIDGET = "application/vnd.jupyter.widget-view+json"
PLOTLY = "application/vnd.plotly.v1+json"


def execute(folder: Path, *cells: str) -> list[list[Any]]:
    """The outputs of each cell, run one after the other in `folder`; a cell that raises, raises here."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    homes = {name: str(folder / name.lower()) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "AOTLENS_HOME")}
    with client.setup_kernel(env={**os.environ, **homes, "PYTHONPATH": path}):
        for place, cell in enumerate(notebook.cells):
            client.execute_cell(cell, place)
    return [cell.outputs for cell in notebook.cells]


def as_page(outputs: list[Any], file: Path) -> str:
    """A page of the outputs' HTML, one below the other, as an exported notebook shows them; its address."""
    pieces = [str(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    body = "\n".join(f'<div class="output">{piece}</div>' for piece in pieces)
    file.write_text(f'<!doctype html><html><head><meta charset="utf-8"></head><body>{body}</body></html>', "utf-8")
    return file.as_uri()
