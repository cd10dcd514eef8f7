"""Every limit of the app in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

from app.core.access import checked_token
from app.core.hosts import LOOPBACK, WILDCARDS, checked_name, is_loopback

#: Texts that are on every machine, as `aotlens.data.open_corpus` takes them, and what they are called.
TEXTS = {"novels": "English novels", "stdlib": "Python's standard library"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a server. Nothing here can be changed from the browser."""

    checkpoints: tuple[Path, ...] = ()
    """Folders of checkpoints, besides the bundled ones and the user's own."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8050
    """Port to listen on."""
    trusted_hosts: tuple[str, ...] = ()
    """Names by which a browser may address the server, besides this machine's own."""
    token: str | None = None
    """The token of whoever opens the app; None: nobody is asked. A shared app must have one, or `no_token`."""
    no_token: bool = False
    """Whether whoever reaches a shared app may use it, which somebody has to say aloud."""
    first_checkpoint: str = "novels-2l-mhsa"
    """The checkpoint that the Heads page opens on, where there is one of that name: the one with an induction head."""
    device: str = "auto"
    """The device of the models: auto, cuda, mps or cpu."""

    max_tokens: int = 512
    """Longest prompt in tokens, the start token included, of which all patterns are held, whatever the model could
    take."""
    max_long_tokens: int = 4096
    """Longest prompt of the Heads page: beyond `max_tokens` its maps are drawn from the largest entries of blocks, and
    from tiles of one head."""
    max_characters: int = 50_000
    """Longest text that is tokenised at all, to count it."""
    max_result_bytes: int = 256 * 2**20
    """Memory of one prompt's patterns and scores; limits the prompt's length for models with many heads."""
    memory_bytes: int = 768 * 2**20
    """Memory of all that is kept between requests: weights of models, prompts, circuits, tables, results of jobs,
    compressed files. What was used least recently goes first. Not in it: Python and its libraries (some 0.5 GB),
    tokenizers, eight pasted texts, and what requests and jobs that are under way compute."""
    images: tuple[str, ...] = ()
    """Labelled images besides the digits, by the names of `aotlens.data.images.open_images`."""
    own_texts: int = 500
    """Uploaded texts, and those of which a result was made, that are kept; a further one is refused."""
    typed_texts: int = 50
    """Long prompts that are kept as they are typed; of more, the oldest is removed."""
    own_images: int = 64
    """Uploaded and drawn images that are kept; the oldest go first."""
    own_image_side: int = 256
    """Pixels of the shorter side of a kept image, at most: a larger one is scaled down."""
    max_image_bytes: int = 4 * 2**20
    """Largest image that may be uploaded."""
    max_image_pixels: int = 20_000_000
    """Pixels of an uploaded image at most; decoding takes up to some 20 bytes for each, of one image at a time."""
    corpora: tuple[str, ...] = ()
    """Texts that skip-trigrams may be checked against: `novels`, `stdlib`, `file:PATH` or `dir:PATH`."""
    reference_windows: int = 32
    """Windows of a corpus whose means, or one of which, stand in for heads that are switched off."""
    distillations: tuple[Path, ...] = ()
    """Files of distillations, besides the bundled ones and the user's own."""
    max_addressed: int = 600
    """Longest prompt, in characters, that an address says itself; of a longer one, the key under which it is kept."""
    max_pasted: int = 300_000
    """Longest pasted text that rows are checked against, in characters."""
    n_views: int = 64
    """Results that are kept of each page that is made of views alone; the least recently used go first."""
    max_models: int = 4
    """Models kept in memory; the least recently used goes first."""
    max_operations: float = 2e11
    """Multiplications and additions that one request may ask for, as views estimate them: some tens of seconds of a
    core. More is refused before it starts."""
    max_held_bytes: int = 512 * 2**20
    """Memory that what a request or a job computes may hold at once, as views estimate it. More is refused before it
    starts."""
    request_seconds: float = 60.0
    """The time that what a request computes step by step may take before it is stopped, which it then says."""
    quiet_seconds: float = 0.3
    """The time without a request after which what may be asked for next is computed."""
    job_seconds: float = 3600.0
    """The time that work in the background may take before it is stopped, which it then says."""
    listing_seconds: float = 2.0
    """The time for which a listing of the checkpoints is believed before the folders are read again."""
    reading_seconds: float = 20.0
    """The time for which requests wait for a checkpoint's files before its drive is called silent."""
    max_text_bytes: int = 4 * 2**20
    """Largest text that may be uploaded."""
    max_request_bytes: int = 6 * 2**20
    """Largest request body: an uploaded text takes 4/3 of its size there."""
    max_header_bytes: int = 64 * 2**10
    """Largest head of a request: the address, which may hold a prompt, and the browser's cookies."""
    max_connections: int = 1000
    """Connections at once, idle and half-open ones too; fewer where the process may not open so many files."""
    idle_seconds: int = 30
    """The time for which a connection is kept on which nothing moves; browsers open another when they need it."""
    drain_seconds: float = 20.0
    """The time for which a stop (SIGTERM) waits for the answers to what has been asked."""
    threads: int = 8
    """Requests served at once. Forward passes of one model take turns."""
    n_predictions: int = 12
    """Next tokens listed."""
    n_options: int = 60
    """Tokens offered for what is typed into a search box."""
    max_export_bytes: int = 64 * 2**20
    """Largest file made for download."""

    def __post_init__(self) -> None:
        """Raises ValueError for names and tokens that have not the right form."""
        object.__setattr__(self, "trusted_hosts", tuple(map(checked_name, self.trusted_hosts)))
        if self.token is not None:
            checked_token(self.token)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every name that a request's Host may have; where the app listens on all addresses, any address besides."""
        bare = self.host.strip("[]").lower()
        listening = f"[{bare}]" if ":" in bare else bare
        names = (gethostname().lower(),) if self.host in WILDCARDS else (listening,)
        return tuple(dict.fromkeys((*LOOPBACK, *names, *self.trusted_hosts)))

    @property
    def shared(self) -> bool:
        """Whether others than this machine can reach the app: itself, or through a proxy that calls it by a name."""
        return not is_loopback(self.host) or bool(self.trusted_hosts)
