"""Models that others saved, read without running anything of their files.

opening.py           open_external: which format a source has, and the model that computes the same
plans.py             what a format says of a source; settings, and Hugging Face's as `transformers` reads them
transformer_lens.py  TransformerLens's old format
gpt2.py              Hugging Face's GPT-2 and nanoGPT
vit.py               vision transformers of Hugging Face
torch_encoder.py     torch.nn.TransformerEncoder
x_transformers.py    x-transformers' TransformerWrapper
decoders.py          decoders of Hugging Face, from Pythia to Gemma 3: families in decoder_families.py
bert.py              BERT, RoBERTa, and families that no reader knows, as a bridge
checking.py          an opened model beside logits of its source, or beside its own code
outside.py           signs of what our family lacks
key_map.py           other people's names and shapes as ours
material.py          the tensors and the settings in a file or a folder
archive.py           files of torch.save: named tensors made from their bytes, and settings
pickles/             the process that reads a pickle: interpreter, layout of files, answer
hub.py               repositories of the Hugging Face hub, cached or downloaded
"""

from __future__ import annotations

from aotlens.interop.external.checking import Comparison, Opened, compare_with_source
from aotlens.interop.external.opening import open_external
