"""Heads as feed-forward networks, feed-forward networks as heads.

compile/   FFN → attention: `compile_ffn`
"""

from aotlens.distill.compile import CompiledFFN, FeedForward, compile_ffn, read_ffn

__all__ = ["CompiledFFN", "FeedForward", "compile_ffn", "read_ffn"]
