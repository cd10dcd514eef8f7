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
roles.py        which head does what
described.py    the same in formulas, and which tokens heads see
one_head.py     a head's pattern at an input, and its gate
curves.py       model beside network over a range of inputs, kinks included
examples.py     small networks to compile
"""

from aotlens.distill.compile.compiled import CompiledFFN, compile_ffn
from aotlens.distill.compile.curves import ErrorCurve, ErrorSurface, Kinks, error_curve, error_surface
from aotlens.distill.compile.described import CompiledHeads, CompiledMasks, attention_masks, describe_heads
from aotlens.distill.compile.examples import (
    absolute_value,
    fit,
    interpolate,
    on_each_coordinate,
    ramp,
    random_network,
    sawtooth,
    with_activation,
)
from aotlens.distill.compile.ffn import FeedForward, read_ffn
from aotlens.distill.compile.file import load_ffn
from aotlens.distill.compile.one_head import HeadAtInput, HeadGate, head_at_input, head_gate
from aotlens.distill.compile.roles import HeadRole
