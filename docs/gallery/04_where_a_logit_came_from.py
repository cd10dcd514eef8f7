r"""
Where a logit came from
=======================

**The question.** A model says that "n" follows "Mr. Darnay bowed to Mr. Dar". Through which heads, and from which
tokens, did that come?

**The formula** (*Some Structures in Transformer Architectures*, Proposition 22). With every attention pattern A and
every norm's scale held as they are on this prompt, an attention-only model is linear, and its logits are a sum over
*paths*. A path starts at a token, passes heads in increasing layers, and is a Kronecker product

.. math::
  (A_k \cdots A_1) \otimes (W_{OV}^{1} \cdots W_{OV}^{k} \, W_U)^\top .

For one layer that is the bigram term and one term a head; for L layers of H heads it is :math:`(H + 1)^L` paths
from each source.
"""

# %%
# All paths, by their length
# --------------------------
import aotlens
from aotlens.paths import expand, without_head

model = aotlens.load("novels-2l-mhsa")
expansion = expand(model, "Mr. Darnay bowed to Mr. Dar")
target = model.to_single_token("n")
logit = expansion.logit(-1, target)
print(f"{expansion.n_paths} paths to each logit; the logit of n is {logit:.2f}")
print(expansion.residual())

# %%
# The straight path from the last token adds one logit, paths through one head five, and paths through two heads
# more than three: head after head is what makes induction.
aotlens.plot(expansion, target=target)

# %%
# The largest paths
# -----------------
# They are found by a search that proves its ranks without listing all paths. ``remainder`` is what all others add
# together.
top = expansion.top(8, -1, target)
print(f"all other paths add {top.remainder:+.2f} logits")
top.to_frame()

# %%
# As a flow
# ---------
# The same sum, from the tokens at the left through heads of both layers to the logit. Orange flows take away.
aotlens.plot(expansion.sankey(-1, target, max_links=24))

# %%
# What the sum does not say
# -------------------------
# Patterns are held as they are. If a head goes, later heads look elsewhere, so compare the sum with an actual run:
# *linear* is what the paths through the head add, *forward* runs the model without it.
for head in ("1.3", "0.3"):
    change = without_head(expansion, head).to_frame(-1, target).loc["logit"]
    print(f"without {head}: {change.clean:.2f} → {change.forward:.2f} when run, {change.linear:.2f} by the sum")
lost = without_head(expansion, "0.3").to_frame(-1, target).loc["logit"]

# %%
# **How to read it.** Of head 1.3 both agree: it is the last step, and what it writes goes straight to the logit.
# Head 0.3 attends to the token before. Its own paths add little more than a logit, yet without it the logit falls
# by 6.6: it tells the heads of layer 1 *where to look*, and that is not in the sum.
#
# **A caveat.** So a sum over paths explains a logit given where heads look, never why they look there; the page
# *Scores* takes a score apart in the same way.
assert expansion.residual().within_tolerance
assert abs(float(expansion.by_order(target)[:, -1].sum()) - logit) < 1e-3
assert abs((lost.clean - lost.forward) - 6.63) < 0.3, "run without it, the model loses 6.6 logits"
assert abs((lost.clean - lost.linear) - 1.22) < 0.2, "by the sum, 1.2"
