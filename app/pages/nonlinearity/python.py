"""Python for the Non-linearity page's views: the network, its model, and what a panel shows of it."""

from __future__ import annotations

from app.core import Core
from app.pages.nonlinearity.address import NonlinearityState
from app.pages.nonlinearity.captions import snippet
from app.pages.nonlinearity.ids import ids
from app.pages.nonlinearity.service import Nonlinearity, first_head, starting_x, within
from app.shell.page import python_of


@python_of(ids.COMPILED, ids.ERROR, ids.HEADS, ids.MASK, ids.ONE, ids.GATE)
def python(core: Core, service: Nonlinearity, state: NonlinearityState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    made = service.compile(state)
    layer, head = first_head(made, state.head)
    x = within(state, state.x or starting_x(state))
    lines = snippet(made, made.role(layer, head), x).splitlines()
    curve = "error_curve" if state.inputs == 1 else "error_surface"
    last = {
        ids.COMPILED: ["result = compiled.to_frame()"],
        ids.ERROR: [
            f"from aotlens.distill.compile.curves import {curve}",
            "",
            f"result = {curve}(compiled).error  # |model − FFN|",
        ],
        ids.HEADS: ["from aotlens.distill.compile.roles import head_roles", "", "result = head_roles(compiled)"],
        ids.MASK: ["result = cfg.attn_mask  # [head or 1, query, key]"],
        ids.ONE: [f'result = cache["pattern", {layer}][0, {head}, 1]  # the token\'s row: the auxiliary token, itself'],
        ids.GATE: [
            "# The gate: the token's weight on itself, at every x of the range.",
            "x = torch.linspace(-1, 1, 41, dtype=torch.float64)[:, None].expand(-1, x.shape[1]) * compiled.bound",
            "_, cache = compiled.model.run_with_cache(compiled.embed(x[:, None]))",
            f'result = cache["pattern", {layer}][:, {head}, 1, 1]',
        ],
    }
    return [*lines, *last[panel]]
