"""The `aotlens` command's groups; `aotlens.cli` puts them together.

shared.py        options that several commands take, and how all of them print
checkpoints.py   aotlens checkpoints list | show | verify | import | export
train.py         aotlens train
"""
