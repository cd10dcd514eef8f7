r"""
What a head looks for and writes
================================

**The question.** A trained head is four matrices. Read as tables over the vocabulary, what do they say, and is that
what the head does on text?

**The formula** (*Some Structures in Transformer Architectures*, Definition 23). Everything a head does goes through
two products of its weights. Row-major, as everywhere in aotlens,

.. math::
  W_{QK} &= \frac{1}{\sqrt{d_{head}}} \, W_E W_Q W_K^\top W_E^\top && [\text{destination}, \text{source}] \\
  W_{OV} &= W_E W_V W_O W_U && [\text{source}, \text{out}] .

The first says how strongly a destination looks for a source, in nats of its attention score; the second what the
head adds to the logits once it looks there. Both are tables of 4,096 × 4,096 here. They are never formed: they stay
products of thin matrices, and the largest entries are found exactly.
"""

# %%
# What it looks for
# -----------------
# The model has one layer and no norm, so that an entry is exactly a term of its score, on any text. Head 0.6 is for
# dialogue: asked at a full stop, it looks for the end of somebody's words.
import torch

import aotlens

model = aotlens.load("novels-1l-mhsa")
head = "0.6"
qk = aotlens.circuits.qk_circuit(model, head)
print(qk)
qk.row(".", 8).to_frame()

# %%
# What it writes
# --------------
# And when it looks at a closing quotation mark, it expects the next one to open: 4.6 logits more, a factor of
# almost 100 in the odds.
ov = aotlens.circuits.ov_circuit(model, head)
ov.row(',"', 8).to_frame()

# %%
# Side by side
# ------------
# A part of a circuit is a circuit. Of these tokens, rows are destinations and columns sources; the stronger the
# blue, the more the head looks there. A row means something only against itself, because a softmax does not see
# what all sources share.
names = [".", ",", ";", " said", " and", " the", ',"', '."', '!"', '?"', ' "', " she"]
ids = [model.to_single_token(name) for name in names]
aotlens.plot(qk[ids][:, ids])

# %%
# The same tokens as sources (rows) and as what is written (columns). The rows of the closing quotation marks are
# alike.
aotlens.plot(ov[ids][:, ids])

# %%
# Does a text agree?
# ------------------
# The circuit is read from weights. Now run the model on a text: what head 0.6 really adds to the logits at each
# place must be its attention there times the rows of the OV circuit (Theorem 25 of the same paper),
#
# .. math::
#   \mathrm{logits}_i = \sum_j \mathrm{pattern}_{ij} \; W_{OV}[t_j] .
text = '"I never saw him," she said. "He came at night." The door was shut; the lady laughed.'
tokens = model.to_tokens(text)
logits, cache = model.run_with_cache(tokens)
z = cache["z", 0][0, :, 6]  # [position, d_head]
written = z @ model.W_O[0, 6] @ model.W_U
by_circuit = cache["pattern", 0][0, 6] @ ov.A[tokens[0]] @ ov.B
difference = float((written - by_circuit).abs().max())
print(f"largest logit that the head writes {float(written.abs().max()):.2f}, largest difference {difference:.1e}")
aotlens.show(model, text, head=head)

# %%
# **How to read it.** An entry of QK is compared within its row, an entry of OV is a logit as it stands. What a head
# does with three tokens, ``[source] … [destination] → [out]``, is both together: the next page searches those.
#
# **A caveat.** Exact is this for layer 0 of a model without a norm (``ov.exact``). Where a norm divides by the
# length of a whole stream, or later heads read what earlier ones wrote, a circuit is *relative*, and says so in its
# own line. QK leaves out positions here, which have circuits of their own: ``qk_circuit(model, head, "positions",
# "positions")``.
looked_for = qk.row(".", 6).to_frame()["column"]
opening = float(ov.entries(torch.tensor([ids[6]]), torch.tensor([ids[10]])))  # [,"] → [ "], logits
assert ov.exact and difference < 1e-4
assert looked_for.str.endswith(("'", '"')).all(), "a full stop looks for closing quotation marks"
assert abs(opening - 4.57) < 0.1
