"""TransformerLens and Hugging Face in and out.

- `to_transformer_lens`: a model as a `TransformerBridge`, so that patching, SVD views and the rest work on it
- `from_transformer_lens`: a native bridge as a model
- `open_external`: a model that others saved (`aotlens.load` calls it), compared with logits of its source if these are
  given, with what became of its file
- `compare_with_source`: its logits compared with those of its own code
"""

from __future__ import annotations

from aotlens.interop.bridge_in import from_transformer_lens
from aotlens.interop.bridge_out import to_transformer_lens
from aotlens.interop.external import Comparison, Opened, compare_with_source, open_external
