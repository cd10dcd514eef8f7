"""What is behind the "?" of the In-context denoising page's panels."""

from __future__ import annotations

from app.pages.denoising.service import N_PROMPTS
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
PLANE = about(
    "The deeper the colour, the lower the energy of this context. White: its tokens. Drag the query, click another "
    "place, or move it with the arrow keys once the picture has the focus. Arrow: one step of attention. Line: "
    "gradient descent in steps of the chosen size. Bayes: the best answer of somebody who knows the circle, line or "
    "mixture. Clean: the token that the query was drawn from.",
    source="in-context-denoising, Figure 5.",
)
ERRORS = about(
    f"Squared distance to the clean token after each step: the mean over {N_PROMPTS} prompts with these "
    "parameters, and this query. Levels are means over the same prompts: of attention’s one step (which is the "
    "curve’s first step where the step size is attention’s), and of Bayes, which no estimate can beat on average.",
    formula="‖s(t) − x‖²",
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
CURVES = about(
    "Squared error a prompt after each epoch, in training and on prompts kept apart: the mean over runs, in a band "
    "that holds all runs. Levels: the zero predictor, and Bayes on the same test prompts, which knows what each "
    "prompt was drawn from and which nothing beats on average.",
    source="in-context-denoising, Figure 3 (a), there divided by n = 16.",
)
MATRICES = about(
    "The chosen run’s two matrices, each beside the scaled identity with its mean diagonal, on one colour scale a "
    "row. Of a training on transformed prompts they are those that act before the transform, Aᵀ W_QK A and Aᵀ W_OV, "
    "which are scaled identities where the layer undoes A.",
    source="in-context-denoising, Figures 3 (b) and 8.",
)
SCALES = about(
    "The loss of scaled identities on 200 prompts of the task, on a grid of 50 × 50, the deeper the colour the lower; "
    "the best α of each β as a dotted line, and what the runs found (the chosen one, and their mean). Signs that flip "
    "together are undone, since that is the same layer where attention is linear, and nearly so on tokens that are "
    "symmetric around 0; stuck runs are left out. Linear attention depends on the product αβ only, so that its valley "
    "is a hyperbola.",
    source="in-context-denoising, Figure 6.",
)
RUNS = about(
    "Mean diagonals and the share off the diagonal, ‖W − diag W‖ ÷ ‖diag W‖; losses a prompt after the last epoch, in "
    "training and on the test prompts."
)
FORM = about(
    "Trains all runs at once in the background; the result is kept (in $AOTLENS_HOME/denoisers) and shown with the "
    "others. Linear attention takes seconds, softmax attention minutes, in proportion to epochs, prompts, tokens and "
    "runs."
)
