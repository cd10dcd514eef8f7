"""A repository of the Hugging Face hub as a folder of this machine: from its cache where it is there, or downloaded.

`HF_HUB_OFFLINE=1` keeps everything to the cache. Only what a model needs is fetched: its configuration, its tokenizer
and one kind of weights. `owner/name@revision` is a branch, a tag or a commit, as those in which Pythia's steps are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aotlens.interop.external.material import WEIGHT_FILES

_REPO = re.compile(r"[\w.-]+/[\w.-]+(?:@[\w.][\w./-]*)?")
#: Revisions that are a moment of a training run.
_STEP = re.compile(r"(?:step|checkpoint)[-_]?([0-9]{1,12})", re.ASCII)
_BESIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "vocab.txt")
#: Kinds of weights, best first; the first that a repository has is fetched.
_KINDS = (
    ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin"),
    ("*final.pth", "ckpt.pt"),
)


def is_repository(name: object) -> bool:
    """Return whether `name` is written as `owner/name` or `owner/name@revision`."""
    return isinstance(name, str) and _REPO.fullmatch(name) is not None and ".." not in name


def fetch(repo: str, weights: str | None = None) -> Path:
    """Return the folder of `repo` (`owner/name`) with its weights, of which `weights` may name the file.

    Raises `ValueError` for a repository that is gated, missing, unreachable or half downloaded, with what to do.
    """
    if not is_repository(repo):
        raise ValueError(f"hf:{repo}: expected a repository written hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.")
    for kind in ((weights,),) if weights else _KINDS:
        folder = _snapshot(repo, [*_BESIDE, *kind])
        if any(path.is_file() for pattern in kind for path in folder.rglob(pattern)):
            return folder
    names = sorted(path.name for path in folder.rglob("*") if path.is_file())
    unfinished = [*folder.parents[1].glob("blobs/*.incomplete")] if len(folder.parents) > 1 else []
    state = f" and {len(unfinished)} unfinished download(s)" if unfinished else ""
    raise ValueError(
        f"hf:{repo}: looked for weights ({weights or ', '.join(WEIGHT_FILES)}), found "
        f"{', '.join(names) or 'nothing'}{state} "
        f"in {folder}. If it was downloaded in part, fetch the rest with a network (unset HF_HUB_OFFLINE), or with "
        f"`hf download {repo}`."
    )


def fetch_tokenizer(repo: str) -> Path | None:
    """Return the `tokenizer.json` of a repository, None where it has none. Raises `ValueError` as `fetch`."""
    path = _snapshot(repo, ["tokenizer.json"]) / "tokenizer.json"
    return path if path.is_file() else None


def step_revisions(repo: str) -> dict[int, str]:
    """Return the branches and tags of a repository that are steps of a training run (`step1000`), by step; {} without
    any.

    Asks the hub. Raises `ValueError` as `fetch`."""
    import huggingface_hub

    if not is_repository(repo) or "@" in repo:
        raise ValueError(f"hf:{repo}: expected a repository written hf:OWNER/NAME.")
    with _asked(repo):
        refs = huggingface_hub.HfApi().list_repo_refs(repo)
    names = [ref.name for ref in (*refs.branches, *refs.tags)]
    return {int(match[1]): name for name in names if (match := _STEP.fullmatch(name))}


def _snapshot(repo: str, patterns: list[str]) -> Path:
    import huggingface_hub

    name, _, revision = repo.partition("@")
    with _asked(repo):
        return Path(huggingface_hub.snapshot_download(name, revision=revision or None, allow_patterns=patterns))


@contextmanager
def _asked(repo: str) -> Iterator[None]:
    """Raise `ValueError` with what to do where the hub gives no answer."""
    from huggingface_hub import errors

    reasons = {
        errors.GatedRepoError: "it is gated: accept its terms on huggingface.co, and log in with `hf auth login`",
        errors.RepositoryNotFoundError: "the repository does not exist, or it is private and this machine is not "
        "logged in (`hf auth login`)",
        errors.RevisionNotFoundError: "the revision does not exist. Give a branch, a tag or a commit",
        errors.LocalEntryNotFoundError: "it is not in this machine's cache, and the hub could not be reached or "
        f"HF_HUB_OFFLINE is set. Fetch it where there is a network, with `hf download {repo}`, or give a folder",
    }
    try:
        yield
    except (OSError, ValueError, errors.HfHubHTTPError) as error:
        other = f"could not be downloaded ({error}). Check the name and the network, or download it yourself and give "
        reason = next((reason for kind, reason in reasons.items() if isinstance(error, kind)), f"{other}the folder")
        raise ValueError(f"hf:{repo}: {reason}.") from error
