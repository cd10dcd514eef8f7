"""What is behind the "?" of the In-context denoising page's panels."""

from __future__ import annotations

from app.pages.denoising.service import N_PROMPTS
from app.shell.panel import about

PANEL = about(
    "A prompt draws a distribution of its own (a circle, a line through 0, or Gaussians around points of the "
    "circle), then L clean tokens and a query: a further token with noise. The layer sees the tokens and the "
    "query and is to say the clean token. With scaled identities as weights, one step of gradient descent on an "
    "energy of the tokens, from the query, is the attention layer. Further steps are another algorithm, a "
    "Hopfield network, and on average a worse estimate: they lead to a minimum of the energy, wherever the query "
    "came from.",
    formula="softmax: E(s) = ‖s‖²/2α − (1/β) log Σ exp(β xₜ·s), step γ = α;  linear: E(s) = ‖s‖²/2γ − sᵀ(XᵀX/L)s/2, "
    "step γ = αβ",
    source="in-context-denoising: Equations 16, 17 and A.15 (where the paper leaves the step size unsaid), Figure 5. "
    "The circle has radius 1, the line’s tokens variance 1, a component’s 0.02 a coordinate.",
)
PLANE = about(
    "The deeper the colour, the lower the energy of this context. White: its tokens. Drag the query, click "
    "another place, or move it with the arrow keys once the picture has the focus. Arrow: one step of attention. "
    "Line: gradient descent in steps of the chosen size. Bayes: the best answer of somebody who knows the "
    "circle, line or mixture. Clean: the token that the query was drawn from.",
    source="in-context-denoising, Figure 5.",
)
ERRORS = about(
    f"Squared distance to the clean token after each step: the mean over {N_PROMPTS} prompts with these "
    "parameters, and this query. Levels are means over the same prompts: of attention’s one step (which is the "
    "curve’s first step where the step size is attention’s), and of Bayes, which no estimate can beat on average.",
    formula="‖s(t) − x‖²",
)
