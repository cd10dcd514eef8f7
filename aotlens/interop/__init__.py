"""TransformerLens and Hugging Face in and out.

- `to_transformer_lens`: a model as a `TransformerBridge`, so that patching, SVD views and the rest work on it
- `from_transformer_lens`: a native bridge as a model
- `load_legacy`: a checkpoint in TransformerLens's old format (`config.json` and a `*.pth` state dict)
"""

from __future__ import annotations

from aotlens.interop.bridge_in import from_transformer_lens
from aotlens.interop.bridge_out import to_transformer_lens
from aotlens.interop.legacy import load_legacy

__all__ = ["from_transformer_lens", "load_legacy", "to_transformer_lens"]
