r"""
In-context regression, layer by layer
=====================================

**The question.** A prompt :math:`x_1, y_1, x_2, y_2, \dots, x_n` labels random inputs by a linear function that is
new in every prompt. Can attention alone say the next label, and how far has it got after each layer?

**The formula** (*Attention-Only Transformers via Unrolled Subspace Denoising*, Section 4.2.2 and Figure 6, after
Garg et al. 2022). Inputs are standard normal in d dimensions, :math:`y = w \cdot x`, and the error after i examples
is divided by that of always answering 0,

.. math::
  \frac{\mathbb{E} \, (\hat y_{i+1} - y_{i+1})^2}{\mathbb{E} \, y^2} , \qquad
  \text{least squares: } \max(0, 1 - i / d) .
"""

# %%
# Does it learn to regress?
# -------------------------
# Four layers of four heads and no MLP, trained on prompts in five dimensions. Beside it are the same with MLPs,
# least squares and a mean of y·x over the examples.
import aotlens
from aotlens.data import RegressionTask
from aotlens.denoise import regression
from aotlens.evaluate import regression_errors

model = aotlens.load("regression-5d-mhsa")
task = RegressionTask(d=5)
measured = regression_errors(model, task, n_prompts=640)
with_mlps = aotlens.load("regression-5d-transformer")
transformer = regression_errors(with_mlps, task, n_prompts=640)
names = ("least squares", "averaging")
baselines = [regression.baseline_errors(name, task, n_prompts=640) for name in names]
aotlens.plots.regression_curves([measured, transformer, *baselines], quiet=names)

# %%
# After ten examples attention alone has 2% of the error of answering 0, less than the model with MLPs. Least
# squares needs only five.
after_ten = float(measured.mean[10])
print(measured.headline)

# %%
# What each layer knows
# ---------------------
# One linear map per layer, fitted on other prompts, reads the answer off the stream. Its answers stand beside those
# of known algorithms on the same prompts: steps of gradient descent from w = 0, preconditioned steps, least
# squares.
readings = regression.read_layers(model, task, n_prompts=256)
readings.to_frame()

# %%
aotlens.plot(readings)

# %%
# Layer 0 tells nothing of the answer. It moves inputs to their labels: the label attends to its own input, as the
# maps of one prompt show (positions 0, 2, 4 … are inputs, 1, 3, 5 … labels; head 0.1 is the diagonal one step to
# the left).
prompts = task.sample(64, 11)
patterns = aotlens.heads.attention_patterns(model, prompts.tokens[:1])
aotlens.plot(patterns, head="0.1")

# %%
# And without that head the regression is gone. Each head's output is replaced by its mean, one head at a time:
each = aotlens.heads.ablate_each(model, prompts.tokens, how="mean", targets=prompts.targets)
aotlens.plot(each)

# %%
# **How to read it.** Layers 1 to 3 take the error down step by step, and after layer 1 the answer is nearest to
# that of some steps of gradient descent. "Near" compares answers: it does not say that the layer computes them that
# way. A layer of linear attention built by hand does, to 1e-10 (``regression.one_step_interleaved``).
#
# **A caveat.** One model of each kind; a second and a third seed differ by more than their bands (the page
# *In-context regression*), so that this is no ranking of attention against MLPs.
errors = readings.probe_errors[:, 1:].mean(1)
assert abs(after_ten - 0.023) < 0.01, "the error after ten examples is 2.3% of the zero predictor's"
assert errors[1] > 0.9 and errors[4] < 0.35, "layer 0 knows nothing of the answer, the last one does"
assert each.changes[each.heads.index((0, 1))] > 0.5
