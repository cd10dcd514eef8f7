"""Repositories of the hub from a cache written as huggingface_hub writes it, without a network."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors

import aotlens
from tests.interop.external.conftest import TOKENS
from tests.messages import refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(gpt2, tmp_path, monkeypatch) -> Path:
    """The snapshot of someone/small-gpt2 in a cache, offline."""
    repository = tmp_path / "hub" / "models--someone--small-gpt2"
    snapshot = repository / "snapshots" / COMMIT
    gpt2.save_pretrained(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "blobs").mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return snapshot


@torch.no_grad()
def test_from_the_cache_offline(cache, gpt2):
    model = aotlens.load("hf:someone/small-gpt2", "cpu")
    torch.testing.assert_close(model(TOKENS), gpt2(TOKENS).logits, rtol=1e-5, atol=1e-5)
    assert model.card.name == "small-gpt2" and "Imported from hf:someone/small-gpt2" in model.card.description


def test_half_downloaded(cache):
    (cache / "model.safetensors").unlink()
    (cache.parents[1] / "blobs" / "abc.incomplete").write_bytes(b"half")
    with refused("config.json", "1 unfinished", "HF_HUB_OFFLINE"):
        aotlens.load("hf:someone/small-gpt2")


def test_not_in_the_cache(cache):
    with refused("hf:someone/other", "cache", "HF_HUB_OFFLINE"):
        aotlens.load("hf:someone/other")
    shutil.rmtree(cache.parents[1])
    with refused("hf:someone/small-gpt2", "cache"):
        aotlens.load("hf:someone/small-gpt2")
    with refused("hf:gpt2", "hf:OWNER/NAME"):
        aotlens.load("hf:gpt2")
    for name in ("hf:../../etc", "hf:someone/small-gpt2@../../etc"):
        with refused("hf:OWNER/NAME"):
            aotlens.load(name)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (errors.GatedRepoError, "it is gated: accept its terms on huggingface.co, and log in"),
        (errors.RepositoryNotFoundError, "the repository does not exist, or it is private"),
        (errors.LocalEntryNotFoundError, "it is not in this machine's cache"),
        (OSError, r"could not be downloaded \(reason\)\. Check the name and the network"),
    ],
)
def test_what_the_hub_says(monkeypatch, kind, message):
    def refuse(*args: Any, **kwargs: Any) -> str:
        error = kind.__new__(kind)  # some take a response to be made of
        Exception.__init__(error, "reason")
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match=f"hf:someone/model: {message}"):
        aotlens.load("hf:someone/model")


class Api:
    """The hub's list of a repository's branches and tags."""

    def list_repo_refs(self, repo: str) -> Any:
        names = {"someone/run": ["main", "step1000", "step0", "steps"], "someone/bare": ["main"]}
        branches = [SimpleNamespace(name=name) for name in names[repo]]
        return SimpleNamespace(branches=branches, tags=[SimpleNamespace(name="checkpoint-20")])


@torch.no_grad()
def test_revisions_are_the_steps_of_a_run(gpt2, tmp_path, monkeypatch):
    asked: list[tuple[str, str | None]] = []

    def download(repo: str, *, revision: str | None = None, allow_patterns: list[str]) -> str:
        asked.append((repo, revision))
        gpt2.save_pretrained(tmp_path / str(revision))
        return str(tmp_path / str(revision))

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    run = aotlens.load_run("hf:someone/run", "cpu")
    assert run.steps == (0, 20, 1000) and asked == []
    torch.testing.assert_close(run[1000](TOKENS), gpt2(TOKENS).logits, rtol=1e-5, atol=1e-5)
    assert set(asked) == {("someone/run", "step1000")}
    aotlens.load("hf:someone/run@checkpoint-20", "cpu")
    assert asked[-1] == ("someone/run", "checkpoint-20")
    with refused("hf:someone/run", "(0, 20, 1000)", "got 7"):
        run[7]
    with refused("says no tokens"):
        run.at(5)
    Api.list_repo_refs = lambda self, repo: SimpleNamespace(branches=[], tags=[])  # type: ignore[method-assign]
    with refused("hf:someone/bare", "step1000", "found none"):
        aotlens.load_run("hf:someone/bare")
    with refused("hf:OWNER/NAME"):
        aotlens.load_run("hf:bare")
