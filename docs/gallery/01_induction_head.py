r"""
Find and prove an induction head
================================

**The question.** Which head of a model continues what came before, and how do we know that it does?

An *induction head* looks from the second occurrence of a token to what followed the first one, and writes that. So
after "Mr. Darnay bowed to Mr. Dar" it looks from the second "ar" to the "n" that followed the first. It needs two
layers: an earlier head attends to the token before, and the keys of the induction head read what that one wrote
(Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*; Olsson et al. 2022; in *Some Structures in
Transformer Architectures*, Section 6, it is the product of two heads).

Four numbers say so: where the head looks, what the model loses without it, what its keys read, and what it writes.
"""

# %%
# Where it looks
# --------------
# On random tokens that come twice nothing but the repetition tells what comes next. With :math:`T` the pairs of a
# query and what followed an earlier occurrence of its token, the score of a head is its mean attention to them,
#
# .. math::
#   \frac{1}{n} \sum_{(q, k) \in T} \mathrm{pattern}[q, k], \qquad 0 \le \mathrm{score} \le 1 .
import torch

import aotlens

model = aotlens.load("novels-2l-mhsa")  # two layers of four heads, trained on English novels
scores = aotlens.heads.motif_scores(model)
(head, share), (earlier, earlier_share) = scores.best("induction"), scores.best("previous_token")
print(f"head {head} gives {share:.2f} of its attention to what followed an earlier occurrence of its token")
print(f"head {earlier} gives {earlier_share:.2f} of its attention to the token before")

# %%
# Every head has such a score. Layer 0 has none above 0.1, and three heads of layer 1 have more than 0.9: they share
# the work.
aotlens.plot(scores, motif="induction")

# %%
# On a text the map of the head shows it. Point at the last token: the head looks at what followed the first "Dar".
# Every small map is a head, a row of it a query, and a click holds what is pointed at.
aotlens.show(model, "Mr. Darnay bowed to the lady, and the lady bowed to Mr. Dar", head=head)

# %%
# What is lost without it
# -----------------------
# A head may look somewhere and change nothing. So we run the model without it (its output is set to zero) on other
# random tokens, and compare the loss of the second half, in nats a token: but for its first token, which nothing
# tells. Texts begin with token 0, and tokens 1 to 256 are single bytes, which we leave out.
half = torch.randint(300, 4096, (16, 50), generator=torch.Generator().manual_seed(0))
tokens = torch.cat([torch.zeros(16, 1, dtype=torch.long), half, half], 1)
ablation = aotlens.heads.ablate(model, tokens, head)
clean, without = (
    float(losses[:, 51:].mean()) for losses in (ablation.clean_loss_per_token, ablation.ablated_loss_per_token)
)
print(f"repeated tokens cost {clean:.2f} nats each, and {without:.2f} without head {head}")

# %%
# What its keys read
# ------------------
# How much the keys of a later head read of what an earlier head writes is a norm of their product of weights,
#
# .. math::
#   \mathrm{score} = \frac{\lVert W_{OV}^{\mathrm{earlier}} \, (W_{QK}^{\mathrm{later}})^\top \rVert}
#   {\lVert W_{OV}^{\mathrm{earlier}} \rVert \, \lVert W_{QK}^{\mathrm{later}} \rVert} .
#
# Two heads that know nothing of each other do not have 0, so each pair stands beside its own chance: the same two
# heads, turned against each other at random. z counts standard deviations above that.
wiring = aotlens.circuits.composition(model, "k", folded=True)
z = float(wiring.z[(*earlier, *head)])
strength = float(wiring.values[(*earlier, *head)])
print(f"the keys of {head} read {earlier}: {strength:.2f}, {z:.0f} standard deviations above chance")
aotlens.plot(wiring, head=head)

# %%
# And in the weights a query looks for a key *whose token before* is its own: of the matrix :math:`W_E W_{QK} (W_E
# W_{OV}^{\mathrm{earlier}})^\top` nearly every row is largest on its diagonal. With the tokens themselves as keys
# hardly any is.
for key in (f"{earlier[0]}.{earlier[1]}", "tokens"):
    circuit = aotlens.circuits.qk_circuit(model, head, "tokens", key)
    own = float((aotlens.circuits.diagonal_rank(circuit) == 0).double().mean())
    print(f"keys are {key}: {own:.1%} of tokens look for themselves most")

# %%
# What it writes
# --------------
# It must then write the token that it found: so many of the 4,096 tokens raise their own logit more than any other
# one.
copying = aotlens.circuits.copying_rate(model, head)
print(copying.headline)

# %%
# **A caveat.** Head 1.0 is not the only induction head here: 1.1 and 1.3 do it too, and which one leads depends on
# how far back the first occurrence is (the page *Heads*). What is lost without one head is what the others do not
# make up for. One of these four numbers alone proves little: a head that looks in the right place may write
# something else.
assert share > 0.9 and earlier_share > 0.9
assert abs((without - clean) - 1.11) < 0.1, "without the head repeated tokens cost 1.11 nats more"
assert z > 40 and copying.top1 > 0.4
