r"""
A head as a network, a network as heads
=======================================

**The question.** Can a feed-forward network stand in for an attention head, and can heads stand in for a network?

**The formula.** A network as heads (*Exploring Non-linearity in Attention*, Theorem 4.1, with Lemma E.2 as
corrected in the page *Compiling*): one more token stands at the front. A head that shows each token two keys,
itself and that one, gives itself the weight sigmoid(x·b / η). With the value x·b it writes

.. math::
  x \cdot b \; \sigma\!\left(\frac{x \cdot b}{\eta}\right) = \eta \, \mathrm{SiLU}\!\left(\frac{x \cdot b}{\eta}\right)
  \longrightarrow \mathrm{ReLU}(x \cdot b), \qquad \eta \to 0^+ ,

with an error of at most 0.2785·η, everywhere. So one head of size 1 is one hidden unit, and its softmax is the
bend.
"""

# %%
# A network as heads
# ------------------
# A random network of one number with two hidden layers, compiled to a given tolerance on [-3, 3].
import torch
from torch import nn

import aotlens
from aotlens.distill import bundled_distillations, compile_ffn, substitute
from aotlens.distill.compile.curves import error_curve

torch.manual_seed(1)
ffn = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
compiled = compile_ffn(ffn, bound=3, tolerance=1e-2)
measured = compiled.measured_error()
print(f"heads by layer: {compiled.heads_per_layer}")
print(f"proven error {compiled.proven_error:.1e}, measured {measured:.1e}")

# %%
# Above, the network and the attention-only model that was made of it lie on each other. Below, their difference
# stays under the proven bound, and is largest where a unit bends.
aotlens.plot(error_curve(compiled))

# %%
# Anybody can open what came out: it is an ordinary model of ours, with patterns and circuits.
cfg = compiled.model.cfg
print(f"{type(compiled.model).__name__}: {cfg.n_layers} layers of {cfg.n_heads} heads")

# %%
# A head as a network
# -------------------
# The other way round (the same paper, Figure 2): a network of 16 hidden units sees only the token's own input, and
# is trained to write what the head writes. With y the head's output and ȳ its mean,
#
# .. math::
#   \mathrm{error} = \frac{\sum \lVert y - \hat y \rVert^2}{\sum \lVert y - \bar y \rVert^2} ,
#
# so that a constant has 1 and a perfect copy 0. The training takes minutes, so its result comes with aotlens.
# Layers are down, heads across; a faint one is hardly more than a function of its own token.
record = bundled_distillations()["novels-12l-mssa"]
aotlens.plot(record.distillation, width=16)

# %%
# What does the model lose with the networks in the heads' places? On a passage that it was not trained on
# (Charlotte Brontë, *Shirley*, 1849):
passage = (
    "Of late years an abundant shower of curates has fallen upon the north of England: they lie very thick on the "
    "hills; every parish has one or more of them; they are young enough to be very active, and ought to be doing "
    "a great deal of good. But not of late years are we about to speak; we are going back to the beginning of "
    "this century: late years - present years are dusty, sunburnt, hot, arid; we will evade the noon, forget it "
    "in siesta, pass the midday in slumber, and dream of dawn."
)
model = aotlens.load("novels-12l-mssa")
tokens = model.to_tokens(passage)
order = record.distillation.order(16)  # the heads, least error first
loss = float(model.loss_per_token(tokens).mean())
print(f"the model itself: {loss:.3f} nats a token on {tokens.shape[1]} tokens")
costs = {}
for n in (8, 24, 48):
    changed = substitute(model, record.distillation, order[:n], width=16)
    costs[n] = float(changed.loss_per_token(tokens).mean()) - loss
    print(f"{n:2d} of 48 heads as networks: {costs[n]:+.3f}")

# %%
# On 4,096 tokens of held-out novels, beside the same heads set to their mean and to zero:
aotlens.plot(record.costs)

# %%
# **How to read it.** As networks of their own token, eight heads of 48 cost next to nothing, and all of them about
# a nat; as their means, all of them cost more than six. So much of what these heads do needs no other token, but
# not all of it.
#
# **A caveat.** The measured error of a compiled network is the largest *found*, the proven one holds for all
# inputs. An error of a distilled head is an upper bound: another training might do better. One checkpoint says
# nothing of all models.
assert measured <= compiled.proven_error <= 1e-2
assert record.distillation.mean_error(16).min() < 0.01
assert abs(costs[8]) < 0.2 and 0.5 < costs[48] < 1.6
