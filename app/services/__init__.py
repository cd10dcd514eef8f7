"""What the pages ask for, without Dash: arrays, figures, tables and files from `aotlens`.

errors.py      RequestError: what a user can put right
cache.py       results kept within a memory bound, each made once
catalog.py     which checkpoints there are; each model loaded once
inference.py   text -> tokens -> patterns and predictions; exclusive use of a model
circuits.py    a head's circuits: entries, spectra, composition
sides.py       what a circuit's rows and columns are, for people
circuit_*.py   what of a circuit is shown: maps, words, structure, files
paths.py       a prompt's logits as sums over paths; the model without a head or a path
path_*.py      what of them is shown: figures, words, files
jobs.py        long work in the background, with progress
corpora.py     text to hold skip-trigrams against
trigrams.py    a head's skip-trigrams and their evidence
trigram_*.py   what of them is shown: rows, words; occurrences.py places in text
distillation.py  heads as FFNs: results that are there, new ones in the background
distillation_*.py  what of them is shown: figures, rows, words, files
nonlinearity.py  small feed-forward networks compiled into attention
nonlinearity_*.py  what of them is shown: figures, rows, words, files
views.py       what of a result is shown: one head's map, all heads' thumbnails
export.py      results as files
"""

from __future__ import annotations

from dataclasses import dataclass

from app.services.catalog import Catalog
from app.services.circuits import Circuits
from app.services.corpora import Corpora
from app.services.distillation import Distillations
from app.services.inference import Inference
from app.services.nonlinearity import Nonlinearity
from app.services.paths import Paths
from app.services.trigrams import Trigrams
from app.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Services:
    """What the callbacks of one app share."""

    settings: Settings
    catalog: Catalog
    inference: Inference
    circuits: Circuits
    paths: Paths
    trigrams: Trigrams
    nonlinearity: Nonlinearity
    distillations: Distillations

    @classmethod
    def start(cls, settings: Settings) -> Services:
        catalog = Catalog(settings)
        inference, corpora = Inference(catalog, settings), Corpora(settings)
        return cls(
            settings=settings,
            catalog=catalog,
            inference=inference,
            circuits=Circuits(catalog, settings),
            paths=Paths(catalog, inference, settings),
            trigrams=Trigrams(catalog, corpora, settings),
            distillations=Distillations(catalog, corpora, inference, settings),
            nonlinearity=Nonlinearity(settings),
        )
