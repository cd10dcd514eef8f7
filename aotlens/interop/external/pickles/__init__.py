"""Pickles, read by a process of its own that can be stopped. Nothing here imports PyTorch, or the rest of aotlens.

interpreter.py  what a program in a pickle makes, without running anything of it
layout.py       where the program and the numbers lie, in files of torch.save and of pickle.dump
wire.py         named tensors and settings as JSON, which the process writes and whoever asked reads
child.py        the process: its limits, its answer
"""
