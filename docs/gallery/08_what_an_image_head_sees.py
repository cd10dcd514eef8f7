r"""
What an image head sees
=======================

**The question.** A vision transformer reads an image as patches. What does a head look at, does that depend on what
the image shows, and how much of the answer is it?

**The formula.** A head's map is the row of its pattern that belongs to [CLS], from which the class is read. Two
further things are measured (*Attention-Only Transformers via Unrolled Subspace Denoising*, Figure 7, asked of every
head): with R the smallest set of patches that has half of a head's attention,

.. math::
  \mathrm{consistency} = \underbrace{\mathbb{E} \frac{|R_a \cap R_b|}{|R_a \cup R_b|}}_{\text{images of one class}} -
  \underbrace{\mathbb{E} \frac{|R_a \cap R_b|}{|R_a \cup R_b|}}_{\text{images of two classes}} ,

and a class's logit is a sum over paths, of which each patch starts some:

.. math::
  \mathrm{logit} = \sum_{\text{patches}} + \; [\mathrm{CLS}] + \text{positions} + \text{biases} .
"""

# %%
# Maps
# ----
# A model of twelve MSSA layers for Fashion-MNIST, and 100 test images that come with aotlens. Three heads on one
# image of each of five classes: the bluer a patch, the more [CLS] attends to it. Each map is on its own scale.
import aotlens
from aotlens.data.images import open_images
from aotlens.plots import overlay_grid

model = aotlens.load("fashion-mssa")
images = open_images("fashion-sample").test
inputs = model.to_images(images.images)
classes = model.image_processor.classes
print(aotlens.evaluate.evaluate_images(model, images).headline)

places = [int((images.labels == number).nonzero()[0]) for number in (0, 1, 5, 8, 9)]
maps = aotlens.heads.image_maps(model, inputs[places])
heads = [(9, 0), (4, 2), (11, 2)]
shown = maps.attention()[:, [layer for layer, _ in heads], [head for _, head in heads]]
overlay_grid(
    images.images[places, 0].numpy(),
    shown,
    row_titles=[classes[int(images.labels[place])] for place in places],
    column_titles=[f"head {layer}.{head}" for layer, head in heads],
)

# %%
# Does it depend on what is shown?
# --------------------------------
# A head's consistency, over all pairs of images and every head, beside permuted class labels. Filled points are
# beyond chance (5%, Benjamini–Hochberg over heads).
consistency = aotlens.heads.semantic_consistency(model, inputs, images.labels, n_permutations=200, n_bootstrap=200)
print(consistency.headline)
aotlens.plot(consistency)

# %%
# How much of the class is in the patches?
# ----------------------------------------
# What each patch adds to the logit of the class that the model chooses, above the mean over classes, along all
# paths: blue speaks for the class, orange against it.
parts = aotlens.paths.patch_contributions(model, inputs[places])
aotlens.plots.contribution_map(images.images[places[4], 0].numpy(), parts.of_class()[4])

# %%
# Those are exact sums, so that one can say what no map of patches shows: the share that comes from elsewhere.
above = parts.above_mean
logits = model(inputs[places])
off = float(abs(above.total - (logits - logits.mean(1, keepdim=True)).double().numpy()).max())
print(f"sum over patches and the rest − the model: {off:.0e} logits")
for row, place in enumerate(places):
    label = parts.place(int(parts.predicted[row]))
    total, patches = above.total[row, label], above.patches[row, label].sum()
    print(f"{classes[int(images.labels[place])]:12s} logit {total:5.2f}, of which patches {patches:5.2f}")

# %%
# **How to read it.** All heads look at places that depend on the class. A good part of the logit starts at
# positions, not at patches.
#
# **A caveat.** Images of one class are alike as pictures: a map that is nothing but each patch's brightness has a
# consistency of 0.21, as much as most heads. So a consistent head need not know the class. And a logit that starts
# at a position has still been moved by attention that saw the patches, since the patterns are frozen.
assert off < 1e-4, "the parts add up to the model's own logits"
assert consistency.ranking()[0] == (9, 0) and abs(float(consistency.difference[9, 0]) - 0.386) < 0.05
