"""In-context regression: errors by the number of examples, what the layers know of the answer, where heads look."""

from __future__ import annotations

from aotlens.views import regression as views
from app.shell.arrange import FORM_WIDTHS, Columns, Form, Panel, Rows, Tabs, link
from app.shell.moving import HeadMaps
from app.shell.view_page import view_page

PAGE = view_page(
    views.FAMILY,
    "Regression",
    arranged=Rows(
        Columns(
            Form(),
            Panel(
                views.ERRORS, controls=("axis",), foot=("checkpoint",), notes=(views.of_task, views.trained_on),
                links=[link("Model card", "checkpoints", "checkpoint")],
            ),
            widths=FORM_WIDTHS,
        ),
        Tabs("tab", label="Of one model", sections={
            "layers": ("Layers", Panel(views.LAYERS, reads=("axis",))),
            "heads": ("Heads on a prompt", HeadMaps(views.MAPS, views.MAP, controls=("prompt",))),
            "without": ("Without a head", Panel(views.WITHOUT, controls=("how",))),
            "motifs": ("Motifs", views.MOTIFS),
            "support": ("Support", views.SUPPORT),
        }),
    ),
)  # fmt: skip
