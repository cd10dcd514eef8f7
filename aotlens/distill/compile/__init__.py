"""Feed-forward networks → attention (*nonlinearity*, Theorem 4.1 and Corollary 4.1).

ffn.py        reading a network, from modules or from a safetensors file
layers.py     each attention layer's action on the stream, units as heads of size 1, the model that has them
bounds.py     proven bounds, rounding included; η from the tolerance; points where the error is likely to be large
compiled.py   `compile_ffn` and its result
described.py  the roles of heads, their formulas, and which tokens they see
one_head.py   a head's pattern at an input, and its gate
curves.py     model and network over a range of inputs, kinks included
examples.py   small networks to compile
"""

from aotlens.distill.compile.compiled import CompiledFFN, compile_ffn
from aotlens.distill.compile.curves import ErrorCurve, ErrorSurface, Kinks, error_curve, error_surface
from aotlens.distill.compile.described import CompiledHeads, CompiledMasks, HeadRole, attention_masks, describe_heads
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
from aotlens.distill.compile.ffn import FeedForward, load_ffn, read_ffn
from aotlens.distill.compile.one_head import HeadAtInput, HeadGate, head_at_input, head_gate
