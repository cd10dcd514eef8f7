"""An import or an export that is killed at any system call leaves nothing that blocks the next try."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aotlens.checkpoints import CheckpointError, export_checkpoint, import_checkpoint, layout, verify
from tests.checkpoints.killing import DIE_AT
from tests.messages import refused

ROOT = Path(__file__).parents[2]

# Imports or exports in forked children, each killed just before or just after its nth system call, tries again, and
# reports what is there after the second try. Loading what was written is left out: it writes nothing, and takes torch.
KILLED = (
    DIE_AT
    + r"""
from aotlens.checkpoints import CheckpointError, archive, layout

archive.verify = lambda folder: []
kind, source, root, step = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])

def attempt(place):
    if kind == "import":
        archive.import_checkpoint(source, name="m", into=place)
    else:
        archive.export_checkpoint(source, place / ("m.tar" if kind == "archive" else "m"))

report, alive, n = [], False, 1
while not alive:
    for before in (True, False):
        place = root / f"{n}{before}"
        child = os.fork()
        if child == 0:
            die_at(n, before)
            attempt(place)
            os._exit(0)
        alive = os.waitpid(child, 0)[1] == 0
        try:
            attempt(place)
            again = "done"
        except CheckpointError as error:
            again = str(error)
        target = place / ("m.tar" if kind == "archive" else "m")
        files = sorted(os.listdir(target)) if target.is_dir() else []
        original = Path(sys.argv[5])
        whole = target.is_file() or all((target / f).read_bytes() == (original / f).read_bytes() for f in files)
        report.append([alive, again, files, whole])
    n += step
print(json.dumps(report))
"""
)


def killed(kind: str, source: Path, saved: Path, root: Path, step: int) -> int:
    """How many kills; after each the next try does its work, or finds it done."""
    arguments = [sys.executable, "-c", KILLED, kind, str(source), str(root), str(step), str(saved)]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=True)
    report = json.loads(done.stdout)
    for alive, again, files, whole in report:
        assert again == "done" or "exists already" in again, again
        assert whole and files == ([] if kind == "archive" else sorted(layout.FILES)), (alive, again, files)
    assert {again == "done" for _, again, _, _ in report} == {True, False}, "killed on both sides of the commit"
    return sum(not alive for alive, *_ in report)


@pytest.mark.skipif(sys.platform == "win32", reason="forks; run it on Linux or macOS")
@pytest.mark.parametrize("kind", ["import", "folder", "archive"])
@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.minutes)])
def test_killed_at_any_system_call(kind: str, step: int, saved: Path, tmp_path: Path) -> None:
    source = export_checkpoint(saved, tmp_path / "x.tar") if kind == "import" else saved
    n_kills = killed(kind, source, saved, tmp_path / "killed", step)
    print(f"\n{n_kills} kills of an {kind}: the next try did its work, or found it done")


def test_two_at_once_do_not_undo_each_other(saved: Path, tmp_path: Path) -> None:
    with layout.replacing(tmp_path / "m") as incoming:
        (incoming / "card.md").write_text("half way")
        with refused("another process", error=CheckpointError):
            import_checkpoint(saved, name="m", into=tmp_path)
        assert (incoming / "card.md").read_text() == "half way"
        for file in layout.FILES:
            layout.write_file(incoming / file, (saved / file).read_bytes())
    assert verify(tmp_path / "m") == []
    with pytest.raises(CheckpointError, match="exists already"):
        import_checkpoint(saved, name="m", into=tmp_path)
