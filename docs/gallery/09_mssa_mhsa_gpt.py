r"""
MSSA, MHSA and GPT side by side
===============================

**The question.** What does it cost to tie a head's matrices, or to leave out the MLPs, at one size and one
training?

**The formula** (*Attention-Only Transformers via Unrolled Subspace Denoising*, Eqs. 4 and 5). Multi-head attention
(MHSA) gives a head three matrices to read with; subspace attention (MSSA) one,

.. math::
  \mathrm{MHSA}: \; \varphi\!\left(X W_Q W_K^\top X^\top\right) X W_V W_O , \qquad
  \mathrm{MSSA}: \; W_Q = W_K = W_V = U ,

so that at equal weights MSSA has twice the layers of MHSA, and MHSA three times those of a GPT, whose MLPs take two
thirds.
"""

# %%
# One size, one training
# ----------------------
# Three models on the same 18 million tokens of novels in the same order. The matrices of their layers have equally
# many weights.
import json

import numpy as np

import aotlens
from aotlens.distill import bundled_distillations

names = ("novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt")
models = {name: aotlens.load(name) for name in names}
weights = {}
for name, model in models.items():
    weights[name] = sum(p.numel() for p in model.blocks.parameters() if p.ndim > 1)
    cfg = model.cfg
    print(f"{name}: {cfg.n_layers} layers of {cfg.n_heads} heads, {weights[name]:,} weights")

# %%
# One matrix per head: of the MSSA model queries, keys and values are the same tensor, so that its QK circuits are
# symmetric.
tied = models["novels-12l-mssa"]
print(bool((tied.W_Q == tied.W_K).all() and (tied.W_K == tied.W_V).all()))

# %%
# How they learned
# ----------------
# The loss on training text, nats a token, each point the mean of five logged steps.
history = []
logs = {
    name: [json.loads(line) for line in (model.card.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for name, model in models.items()
}
for start in range(0, min(map(len, logs.values())) - 4, 5):
    row = {"tokens": logs["novels-2l-gpt"][start + 2]["tokens"]}
    row |= {f"{name} loss": np.mean([step["loss"] for step in log[start : start + 5]]) for name, log in logs.items()}
    history.append(row)
aotlens.plots.training_curve(history)

# %%
# On text that none was trained on
# --------------------------------
# The losses that their cards state are of 1.2 million held-out tokens, the bigram model's beside them. On a short
# passage (Charlotte Brontë, *Shirley*, 1849) one sees where they differ.
passage = (
    "If you think, from this prelude, that anything like a romance is preparing for you, reader, you never were "
    "more mistaken. Do you anticipate sentiment, and poetry, and reverie? Do you expect passion, and stimulus, "
    "and melodrama? Calm your expectations; reduce them to a lowly standard. Something real, cool, and solid lies "
    "before you; something unromantic as Monday morning, when all who have work wake with the consciousness that "
    "they must rise and betake themselves thereto."
)
held_out = {}
for name, model in models.items():
    here = float(model.loss_per_token(model.to_tokens(passage)).mean())
    held_out[name] = model.card.metrics["validation_loss"]
    bigram = model.card.metrics["bigram_loss"]
    print(f"{name}: held out {held_out[name]:.3f} (bigrams {bigram:.3f}), on the passage {here:.2f} nats a token")

# %%
# What their heads are
# --------------------
# By the motif that explains most of a head's attention beyond chance. MSSA has many heads that look at their own
# token: with one matrix for query and key, a token is most like itself.
shares = {}
for name in models:
    labels = aotlens.heads.stored_atlas(name).atlas.to_frame()["label"]
    shares[name] = labels.value_counts(normalize=True).round(2).to_dict()
    print(f"{name}: {shares[name].get('current_token', 0):.0%} of its heads look at their own token")

# %%
# How far is a head a function of its own token? Errors of networks of 16 units in the heads' places (the page *A
# head as a network*), layers down and heads across: faint is near to a network.
records = bundled_distillations()
aotlens.plot(records["novels-12l-mssa"].distillation, width=16)

# %%
aotlens.plot(records["novels-6l-mhsa"].distillation, width=16)

# %%
# **How to read it.** At this size and budget the GPT is ahead of MHSA, and MHSA of MSSA, by a tenth or two of a
# nat, and all are below the bigram model. A difference of 0.1 nats is a factor of 1.1 in the perplexity.
#
# **A caveat.** One run of each: this says nothing of seeds, nor of other sizes. The learning rate was chosen for
# each by the same rule; positions are in queries and keys for all three.
assert set(weights.values()) == {393_216}
assert (tied.W_Q == tied.W_V).all()
assert held_out["novels-2l-gpt"] < held_out["novels-6l-mhsa"] < held_out["novels-12l-mssa"] < 4.69
assert shares["novels-12l-mssa"]["current_token"] > 2 * shares["novels-6l-mhsa"]["current_token"]
