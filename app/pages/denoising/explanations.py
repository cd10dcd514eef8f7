"""Explanations behind the "?" of the In-context denoising page's panels."""

from __future__ import annotations

from app.shell.panel import about

PANEL = about(
    "A prompt draws a distribution of its own (a circle, a line through 0, or Gaussians around points of the circle), "
    "then L clean tokens and a query: a further token with noise. The layer sees the tokens and the query and is to "
    "say the clean token. With scaled identities as weights, one step of gradient descent on an energy of the tokens, "
    "from the query, is the attention layer. Further steps are another algorithm, a Hopfield network, and on average "
    "a worse estimate: they lead to a minimum of the energy, wherever the query came from.",
    formula="softmax: E(s) = ‖s‖²/2α − (1/β) log Σ exp(β xₜ·s), step γ = α;  linear: E(s) = ‖s‖²/2γ − sᵀ(XᵀX/L)s/2, "
    "step γ = αβ",
    source="in-context-denoising: Equations 16, 17 and A.15 (where the paper leaves the step size unsaid), Figure 5. "
    "The circle has radius 1, the line’s tokens variance 1, a component’s 0.02 a coordinate.",
)
TRAINED = about(
    "One layer of linear or softmax attention, trained from random weights to say the clean token: two matrices of 16 "
    "× 16, on prompts of subspaces (d = 8), spheres (d = 8) or Gaussian mixtures (8 components). Training finds "
    "scaled identities, W_QK ≈ β I and W_OV ≈ α I, which the Bayes predictors suggest. In a run that is stuck, the "
    "diagonals have both signs: some directions were inverted at the start and did not come back. Losses are summed "
    "over the 16 coordinates.",
    formula="linear: x̂ = (1/L) x̃ W_QK Xᵀ X W_OV;  softmax: x̂ = softmax(x̃ W_QK Xᵀ) X W_OV",
    source="in-context-denoising: Equations 11 and 12, Figures 3, 7 and 8; tokens as rows.",
)
FORM = about(
    "Trains all runs at once in the background; the result is kept (in $AOTLENS_HOME/denoisers) and shown with the "
    "others. Linear attention takes seconds, softmax attention minutes, in proportion to epochs, prompts, tokens and "
    "runs."
)
