"""The `aotlens` command's groups; `aotlens.cli` puts them together.

shared.py        options that several commands take, and how all of them print
checkpoints.py   aotlens checkpoints list | show | verify | import | export
train.py         aotlens train
circuits.py      aotlens circuits, aotlens spectrum
choosing.py      the circuit that their options ask for, and the names of its rows and columns
composition.py   aotlens composition
subspaces.py     aotlens subspaces
generate.py      aotlens generate
paths.py         aotlens paths; why.py has what it prints of an attention score
trigrams.py      aotlens trigrams
compiling.py     aotlens compile
view.py          aotlens view, from the declarations of aotlens.views
report.py        aotlens report
"""
