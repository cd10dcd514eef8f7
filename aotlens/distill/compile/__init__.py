"""Feed-forward networks → attention (*nonlinearity*, Theorem 4.1 and Corollary 4.1).

ffn.py          reading a network
file.py         the same from a safetensors file
layers.py       what each attention layer does to the stream: the paper's construction and a leaner one
heads.py        units as heads of size 1; the wide head; any auxiliary token
assemble.py     heads → `AttentionOnlyTransformer` with a mask
bounds.py       proven bounds, rounding included
choose_eta.py   η from the tolerance
adversarial.py  points where the error is likely to be large
compiled.py     `compile_ffn`, and what it returns
roles.py        which head does what; how many a construction needs
curves.py       model beside network over a range of inputs, kinks included
examples.py     small networks to compile
"""

from aotlens.distill.compile.compiled import CompiledFFN, compile_ffn
from aotlens.distill.compile.ffn import FeedForward, read_ffn
from aotlens.distill.compile.file import load_ffn

__all__ = ["CompiledFFN", "FeedForward", "compile_ffn", "load_ffn", "read_ffn"]
