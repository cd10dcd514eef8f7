r"""
Your own checkpoint
===================

**The question.** You have a model of your own, in your own code. How does it get here, and how do you know that it
is the same?

**What is needed.** Its weights as a state dict, its sizes, and which of its tensors is which of ours. Our names are
TransformerLens's, and everything is row-major: a head of ours computes

.. math::
  \mathrm{softmax}\!\left(\frac{(x W_Q + b_Q)(x W_K + b_K)^\top}{\sqrt{d_{head}}}\right) (x W_V + b_V) \, W_O ,

with :math:`W_Q` of shape [d_model, d_head], while ``nn.Linear`` keeps [out, in]: ``.T`` says so.
"""

# %%
# A model in your own code
# ------------------------
# Here is one with a known answer. Positions are one-hot directions of the stream, and the weights are set by hand
# so that head 0 looks one token back and head 1 at its own token.
import tempfile
from pathlib import Path

import torch
from torch import nn

import aotlens

N_CTX, D_VOCAB, D_HEAD = 32, 20, 32
D_MODEL = D_VOCAB + N_CTX


class Theirs(nn.Module):
    """One layer of two heads: token directions first, then one direction for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(D_VOCAB, D_MODEL)
        self.places = nn.Embedding(N_CTX, D_MODEL)
        self.qkv = nn.Linear(D_MODEL, 3 * 2 * D_HEAD)
        self.out = nn.Linear(2 * D_HEAD, D_MODEL)
        self.head = nn.Linear(D_MODEL, D_VOCAB)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)
        with torch.no_grad():
            self.tokens.weight[:, :D_VOCAB] += torch.eye(D_VOCAB)
            self.places.weight[:, D_VOCAB:] += torch.eye(N_CTX)
            # Three blocks, in each of them heads side by side.
            queries, keys, _ = self.qkv.weight.view(3, 2, D_HEAD, D_MODEL)
            for head, back in enumerate((1, 0)):
                keys[head, :, D_VOCAB:] += 12 * torch.eye(N_CTX)
                queries[head, :, D_VOCAB:] += 12 * torch.eye(N_CTX).roll(-back, 0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, D_HEAD)).permute(2, 0, 3, 1, 4)  # [batch, head, position, d_head]
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.out(attended.transpose(1, 2).flatten(2)))


torch.manual_seed(0)
theirs = Theirs().eval()
folder = Path(tempfile.mkdtemp())
torch.save(theirs.state_dict(), folder / "theirs.pt")

# %%
# Load it
# -------
# ``config`` has the sizes in our words, ``key_map`` goes from their names to ours. Nothing in the file is executed.
# What does not fit is refused with the name of the tensor, what was expected and what was found.
config = {
    "n_layers": 1, "d_model": D_MODEL, "n_heads": 2, "d_head": D_HEAD, "n_ctx": N_CTX, "d_vocab": D_VOCAB,
    "bias": True, "norm": None,
}  # fmt: skip
key_map = {
    "tokens.weight": "embed.W_E", "places.weight": "pos_embed.W_pos",
    "qkv.weight": "blocks.0.attn.W_QKV.T", "qkv.bias": "blocks.0.attn.b_QKV",
    "out.weight": "blocks.0.attn.W_O.T", "out.bias": "blocks.0.attn.b_O",
    "head.weight": "unembed.W_U.T", "head.bias": "unembed.b_U",
}  # fmt: skip

# %%
# ``check`` holds the model against a few logits of the source: a wrong orientation or order of heads, or norms in
# another place, may fit in shape and would not survive it.
tokens = torch.randint(0, D_VOCAB, (8, N_CTX))
with torch.no_grad():
    check = (tokens, theirs(tokens))
model = aotlens.load(folder / "theirs.pt", config=config, key_map=key_map, check=check)
print(
    f"{model.cfg.n_layers} layer of {model.cfg.n_heads} heads, {sum(p.numel() for p in model.parameters()):,} weights"
)

# %%
# Is it the same?
# ---------------
# A difference of more than 1e-4 of the largest logit would have been refused; this is how large it is.
with torch.no_grad():
    difference = float((theirs(tokens) - model(tokens)).abs().max())
print(f"largest difference of the logits: {difference:.1e}")

# %%
# What do its heads do?
# ---------------------
# From here on it is like any other model.
scores = aotlens.heads.motif_scores(model, half_length=10, start=None)
print({motif: scores.best(motif) for motif in ("previous_token", "current_token")})
aotlens.plot(aotlens.heads.attention_patterns(model, tokens[0]))

# %%
# Keep it
# -------
# Brought in as a checkpoint it has a name, which every command and the app take. Without ``into`` it goes to your
# own folder of checkpoints, ``~/.cache/aotlens``; on the command line ``aotlens checkpoints import theirs.pt --name
# mine`` does the same. Without ``check`` its card says UNCHECKED.
imported = aotlens.checkpoints.import_external(
    folder / "theirs.pt", name="mine", into=folder, config=config, key_map=key_map, check=check
)
again = aotlens.load("mine", folders=[folder])
print(imported.info.name, sorted(path.name for path in (folder / "mine").iterdir()))

# %%
# **How to read it.** A difference of the logits of 1e-5 or less is rounding; 0.1 is another model. Only then do its
# heads mean anything.
#
# **A caveat.** Our family has softmax (and three other) patterns, norms before the layers, learned positions or
# none, and MLPs if need be. Rotary positions, norms after the layers, grouped keys and gated MLPs are refused by
# name (the page *Models that others saved*). Models of TransformerLens, GPT-2, nanoGPT and ViT need neither
# ``config`` nor ``key_map``.
with torch.no_grad():
    kept = float((theirs(tokens) - again(tokens)).abs().max())
assert max(difference, kept) < 1e-5, "the logits are the source's own"
(previous, previous_share), (own, own_share) = scores.best("previous_token"), scores.best("current_token")
assert previous == (0, 0) and own == (0, 1), "the heads do what their weights were set to"
assert min(previous_share, own_share) > 0.99
