"""The services that every page stands on. They know no page and no interface.

settings.py    every limit in one place
address.py     what an address says: one declaration of fields, from which it is read, written and linked
links.py       addresses of other pages, by name
address_checks.py  what it names, held against what there is
reading.py     files of drives that may stop answering
catalog.py     which checkpoints there are; each model loaded once
inference.py   text -> tokens -> patterns and logits; exclusive use of a model
expansions.py  a prompt's logits and scores as sums over paths
switches.py    heads that are switched off, and what stands in their place
runs.py        views' runs of prompts, expansions and scores, as the app keeps them
head_maps.py   what of a prompt's patterns is shown: one head's map, the picture of all heads
labels.py      what rows and columns are, for people
corpora.py     text to hold results against
examples.py    texts to start from
images.py      labelled images to look at
own_images.py  images that a person uploaded or drew
own_texts.py   texts that a person uploaded or pasted, kept under the local folder
jobs.py        long work in the background, with progress
ahead.py       what may be asked for next, computed meanwhile
sessions.py    which browser asks
cache.py       results kept within one memory bound, each made once
sizes.py       bytes that a result holds
allocator.py   freed memory goes back to the system
files.py       results as files
errors.py      RequestError: what a user can put right; ids of errors that the log has
boundary.py    whatever goes wrong becomes an error reply
compression.py answers and files, smaller
hosts.py       names and addresses of servers: their form, which are this machine's
access.py      the token of a shared app
security.py    trusted hosts, Content-Security-Policy, headers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from app.core.cache import Memory
from app.core.catalog import Catalog
from app.core.corpora import Corpora
from app.core.expansions import Expansions
from app.core.images import Images
from app.core.inference import Inference
from app.core.links import Links
from app.core.settings import Settings
from app.core.switches import Switches

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer


@dataclass(frozen=True, kw_only=True)
class Core:
    """The parts that the pages of one app share; a page makes its own service from it."""

    settings: Settings
    catalog: Catalog
    inference: Inference
    corpora: Corpora
    images: Images
    switches: Switches
    expansions: Expansions
    memory: Memory
    """The values that are kept between requests."""
    links: Links = field(default_factory=Links)
    """The addresses of the app's pages by name; `create_app` fills them in."""

    @classmethod
    def start(cls, settings: Settings, *, models: Mapping[str, AttentionOnlyTransformer] | None = None) -> Self:
        """Start with `models` that this process holds, by name, beside the checkpoints. Raises ValueError for a corpus,
        or images, that aren't there, and for what is no model."""
        memory = Memory(settings.memory_bytes)
        catalog, corpora = Catalog(settings, memory, models), Corpora(settings)
        switches = Switches(catalog, corpora, settings, memory)
        inference = Inference(catalog, settings, switches, memory)
        expansions = Expansions(catalog, inference, memory, settings)
        return cls(
            settings=settings,
            catalog=catalog,
            inference=inference,
            corpora=corpora,
            images=Images(settings, memory),
            switches=switches,
            expansions=expansions,
            memory=memory,
        )
