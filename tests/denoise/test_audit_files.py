"""Stored audits: the bundled ones are what the audit measures on their windows, and files are checked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import aotlens
from aotlens.checkpoints import find_checkpoint
from aotlens.denoise import AuditRecord, audit, stored_audit
from aotlens.denoise.stored import bundled_audits_folder
from aotlens.results import load
from tests.messages import refused
from tests.small_models import SMALL, maker

BUNDLED = (
    "code-2l-mhsa",
    "novels-12l-mssa",
    "novels-1l-mhsa",
    "novels-2l-gpt",
    "novels-2l-mhsa",
    "novels-4l-masked",
    "novels-6l-mhsa",
)
MEASURED = ("snr", "null_snr", "rotated_snr", "pca_snr", "pca_null_snr", "random_group_snr")

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    tokens = torch.randint(11, (4, 8), generator=torch.Generator().manual_seed(1))
    return AuditRecord(
        audit=audit(maker({**SMALL, "d_head": 3})(), tokens, n_draws=2, seed=4),
        checkpoint="small",
        weights_sha256="0" * 64,
        tokens=tokens,
        corpus="made up",
        documents=("one", "two"),
        seed=4,
        command="by hand",
    )


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_audit_is_of_its_checkpoint_and_of_held_out_text(name: str) -> None:
    stored, info = stored_audit(name), find_checkpoint(name)
    assert stored.checkpoint == name and stored.belongs_to(info)
    assert set(stored.documents) <= set(info.held_out(stored.documents)) and stored.documents
    assert stored.audit.snr.shape[2:] == (info.model["n_layers"], info.model["n_heads"])
    assert len(stored.audit.null_snr) == 20 and stored.audit.n_tokens == stored.tokens[:, 1:].numel() >= 2000
    assert stored.command.startswith(f"aotlens audit {name} --corpus ")
    assert len(stored.audit.to_frame()) == 3 * info.model["n_layers"]


@pytest.mark.parametrize("name", ["novels-1l-mhsa", "novels-2l-gpt"])
def test_a_bundled_audit_is_what_the_audit_measures_on_its_windows(name: str) -> None:
    stored = stored_audit(name)
    again = audit(aotlens.load(name, device="cpu"), stored.tokens, n_draws=1, seed=stored.seed)
    # A token on the edge between two heads may fall to the other on another processor.
    for measured, expected in (
        (again.snr, stored.audit.snr),
        (again.null_snr[0], stored.audit.null_snr[0]),
        (again.rotated_snr[0], stored.audit.rotated_snr[0]),
        (again.pca_snr, stored.audit.pca_snr),
        (again.pca_null_snr[0], stored.audit.pca_null_snr[0]),
    ):
        torch.testing.assert_close(measured, expected, rtol=5e-3, atol=0, equal_nan=True)
    assert int((again.sizes - stored.audit.sizes).abs().max()) <= 4
    assert again.matrix == stored.audit.matrix and again.predicted_rate == stored.audit.predicted_rate


def test_the_bundled_audits_are_small_and_listed() -> None:
    paths = sorted(bundled_audits_folder().iterdir())
    assert sum(path.stat().st_size for path in paths) <= 300_000
    assert tuple(path.name.removesuffix(".safetensors") for path in paths) == BUNDLED
    with refused("'mine'", "code-2l-mhsa, novels-12l"):
        stored_audit("mine")


def test_files_give_back_what_was_saved(record: AuditRecord, tmp_path: Path) -> None:
    path = tmp_path / "small.safetensors"
    record.save(path, compact=True)
    again = load(path, AuditRecord)
    for field in dataclasses.fields(record):
        if field.name not in ("audit", "tokens"):
            assert getattr(again, field.name) == getattr(record, field.name)
    assert torch.equal(again.tokens, record.tokens) and torch.equal(again.audit.sizes, record.audit.sizes)
    for name in MEASURED:
        mine, theirs = getattr(again.audit, name), getattr(record.audit, name)
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=0, equal_nan=True)
    for name in ("matrix", "groupings", "n_tokens", "predicted_rate"):
        assert getattr(again.audit, name) == getattr(record.audit, name)
