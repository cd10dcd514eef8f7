"""The `aotlens` command's groups; `aotlens.cli` puts them together.

options.py       the options that several commands take
shared.py        what opens models and texts for commands, and prints their results
checkpoints.py   aotlens checkpoints list | show | verify | import | export | compress
training.py      aotlens train, film, influence
evaluate.py      aotlens evaluate
circuits.py      aotlens circuits, spectrum, composition, subspaces
heads.py         aotlens motifs, head-scores, ablate, generate, compare, universality
atlas.py         aotlens atlas, audit
paths.py         aotlens paths
trigrams.py      aotlens trigrams, bigrams
distill.py       aotlens distill, compile
view.py          aotlens view, from the declarations of aotlens.views; aotlens report
sweep.py         aotlens sweep
"""
