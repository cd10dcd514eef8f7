"""Text as tokens: corpora by name, the byte-level tokenizer, token files on disk, and batches from them.

corpus.py        documents, their hash, and a split by whole documents
sources.py       open_corpus: the standard library, files, folders, Hugging Face datasets
tokenizer.py     byte-level BPE
symbols.py       names, digits or letters in its place, and ids as a prompt
token_file.py    a corpus as a memory-mapped array of token ids
sampler.py       training batches, repeated random tokens; rows with hidden tokens, for masked language models
windows.py       text as windows: every token once, spread over documents, or of a token file
pairs.py         clean and corrupted prompts, two by two, with their answers; pair_sets.py: those of known tasks;
                 pair_parts.py: words for a template's braces, and which positions correspond
tasks.py         tasks with few enough inputs to try them all
regression.py    prompts of in-context regression
"""

from __future__ import annotations

from aotlens.data.corpus import Corpus, Document, Split, TailHeldOut, documents_sha256, hold_out
from aotlens.data.pair_parts import common_positions
from aotlens.data.pair_sets import deeper_indentation, image_pairs, matching_brackets, negated_labels, repeated_names
from aotlens.data.pairs import Pair, PromptPairs
from aotlens.data.regression import Curriculum, RegressionPrompts, RegressionTask, interleave
from aotlens.data.sampler import (
    IGNORED,
    MASK_FRACTION,
    BatchSampler,
    mask_tokens,
    repeated_random_tokens,
    repeated_targets,
)
from aotlens.data.sources import open_corpus
from aotlens.data.symbols import SymbolTokenizer, tokenizer_from_json
from aotlens.data.tasks import TASKS, Case, FiniteTask, KnownTask, make_task
from aotlens.data.token_file import TokenFile
from aotlens.data.tokenizer import END_OF_TEXT, MASK, Tokenizer
from aotlens.data.windows import Encoding, Windows, spread_windows, validation_windows, windows_with_documents
