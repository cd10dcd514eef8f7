"""Archives carry a checkpoint unchanged; hostile and damaged ones leave nothing behind."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotlens.checkpoints import CheckpointError, export_checkpoint, import_checkpoint, layout, verify
from aotlens.untrusted import MOST_BYTES
from tests.checkpoints.killing import DIE_AT
from tests.messages import refused

FORMATS = ["x.tar", "x.tar.gz", "x.tgz", "x.tar.xz", "x.zip", "x"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", FORMATS)
def test_export_and_import(saved: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    archive = export_checkpoint(saved, tmp_path / "out" / name)
    assert os.listdir(tmp_path / "out") == [name]
    info = import_checkpoint(archive, name=None if "." in name else "small")
    assert info.path == tmp_path / "home" / "checkpoints" / "small" and info.name == "small"
    assert contents(info.path) == contents(saved) and verify(info.path) == []
    assert import_checkpoint(archive, name="other", into=tmp_path / "elsewhere").name == "other"
    with pytest.raises(CheckpointError, match="small: exists already"):
        import_checkpoint(archive, name="small")
    with pytest.raises(CheckpointError, match="exists already"):
        export_checkpoint(saved, archive)


def test_other_programs_read_the_archives(saved: Path, tmp_path: Path) -> None:
    with tarfile.open(export_checkpoint(saved, tmp_path / "x.tar.gz"), "r:gz") as archive:
        assert {member.name for member in archive} == {f"small/{name}" for name in contents(saved)}
    with gzip.open(tmp_path / "x.tar.gz") as stream:
        assert stream.read(5) == b"small"
    with zipfile.ZipFile(export_checkpoint(saved, tmp_path / "x.zip")) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(f"small/{name}") for name in contents(saved)} == contents(saved)


def test_damaged_checkpoints_are_not_exported(copy: Path, tmp_path: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with refused("whole checkpoints", "tokenizer.json", error=CheckpointError):
        export_checkpoint(copy, tmp_path / "x.tar")
    assert os.listdir(tmp_path) == ["small"]


def refusal(source: Path, into: Path, name: str | None = None) -> str:
    with pytest.raises(CheckpointError) as caught:
        import_checkpoint(source, into=into, name=name)
    assert not into.exists() or os.listdir(into) == [], "nothing is left behind"
    return str(caught.value)


Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Member:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    return info, data


def hostile_members() -> dict[str, Member]:
    return {
        "parent": member("../../card.md", b"x"),
        "inner parent": member("small/../../card.md", b"x"),
        "absolute": member("/tmp/card.md", b"x"),
        "windows": member("small\\..\\..\\card.md", b"x"),
        "symlink": member("small/card.md", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        "hard link": member("small/card.md", kind=tarfile.LNKTYPE, link="small/config.json"),
        "device": member("small/card.md", kind=tarfile.CHRTYPE),
        "pipe": member("small/card.md", kind=tarfile.FIFOTYPE),
    }


def write_tar(path: Path, members: list[Member]) -> Path:
    with tarfile.open(path, "w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", hostile_members())
def test_hostile_tars(saved: Path, tmp_path: Path, kind: str) -> None:
    good = [member(f"small/{name}", data) for name, data in contents(saved).items() if name != "card.md"]
    message = refusal(write_tar(tmp_path / "x.tar", [*good, hostile_members()[kind]]), tmp_path / "into")
    assert "expected plain files" in message and "nothing was written" in message
    assert os.listdir(tmp_path) == ["x.tar"] or sorted(os.listdir(tmp_path)) == ["into", "x.tar"]


def test_hostile_zips(saved: Path, tmp_path: Path) -> None:
    for name, mode in (("../card.md", 0o644), ("/card.md", 0o644), ("small/card.md", stat.S_IFLNK | 0o777)):
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file, data in contents(saved).items():
                archive.writestr(f"small/{file}", data)
            item = zipfile.ZipInfo(name.replace("small/card.md", "small/sub/card.md"))
            item.external_attr = mode << 16
            archive.writestr(item, "/etc/passwd")
        assert "expected plain files" in refusal(path, tmp_path / "into")


def test_strangers_in_an_archive_are_left_there(saved: Path, tmp_path: Path) -> None:
    members = [member(f"a/b/small/{name}", data) for name, data in contents(saved).items()]
    members += [
        member("a/README", b"hello"),
        member("a/b/small/run.py", b"boom"),
        member("a", kind=tarfile.DIRTYPE),
    ]
    info = import_checkpoint(write_tar(tmp_path / "x.tar", members), into=tmp_path / "into")
    assert info.path is not None and contents(info.path) == contents(saved)


def test_archives_with_no_checkpoint_or_two(saved: Path, tmp_path: Path) -> None:
    members = [member(f"{home}/{name}", data) for home in "ab" for name, data in contents(saved).items()]
    assert "found 2 config.json" in refusal(write_tar(tmp_path / "two.tar", members), tmp_path / "into")
    assert "found 0 config.json" in refusal(write_tar(tmp_path / "none.tar", []), tmp_path / "into")
    assert "twice" in refusal(write_tar(tmp_path / "twice.tar", members[:1] * 2), tmp_path / "into")
    (tmp_path / "empty").mkdir()
    assert "no config.json" in refusal(tmp_path / "empty", tmp_path / "into")
    assert "found nothing there" in refusal(tmp_path / "missing.tar", tmp_path / "into")
    (tmp_path / "text.zip").write_text("hello")
    assert "expected an archive" in refusal(tmp_path / "text.zip", tmp_path / "into")


def test_a_checkpoint_that_does_not_load_is_not_kept(saved: Path, tmp_path: Path) -> None:
    members = [member(f"small/{name}", data) for name, data in contents(saved).items() if name != "tokenizer.json"]
    message = refusal(write_tar(tmp_path / "x.tar", members), tmp_path / "into")
    assert "x.tar: holds no checkpoint that loads" in message and "tokenizer.json" in message


@pytest.mark.parametrize("name", ["../x", "/x", ".x", "a b", "x.zip", "a" * 101, "-x", "é"])
def test_names_that_are_none(saved: Path, tmp_path: Path, name: str) -> None:
    assert "expected up to 100 letters" in refusal(saved, tmp_path / "into", name)


def test_an_empty_name_is_not_taken_for_none(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected up to 100 letters"):
        import_checkpoint(saved, name="", into=tmp_path / "into")


def test_an_archive_larger_than_the_disk(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert "Free some space" in refusal(saved, tmp_path / "into", "x")


@pytest.fixture(scope="session")
def archives(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    folder = tmp_path_factory.mktemp("archives")
    data = {name: export_checkpoint(saved, folder / name).read_bytes() for name in FORMATS[:-1]}
    return lambda name: data[name]


@given(data=st.data(), name=st.sampled_from(FORMATS[:-1]))
@settings(max_examples=40)
def test_damaged_archives(archives: Callable[[str], bytes], data: st.DataObject, name: str) -> None:
    refused_or_unharmed(archives, data, name)


@pytest.mark.long
@given(data=st.data(), name=st.sampled_from(FORMATS[:-1]))
@settings(max_examples=400)
def test_many_damaged_archives(archives: Callable[[str], bytes], data: st.DataObject, name: str) -> None:
    refused_or_unharmed(archives, data, name)


def refused_or_unharmed(archives: Callable[[str], bytes], data: st.DataObject, name: str) -> None:
    """Cut or changed anywhere: refused with a CheckpointError, or unharmed (padding, times, names of others)."""
    content = bytearray(archives(name))
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:position]
    else:
        content[position] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as parent:
        source, into = Path(parent) / name, Path(parent) / "into"
        source.write_bytes(content)
        try:
            info = import_checkpoint(source, into=into, name="x")
        except CheckpointError:
            assert not into.exists() or os.listdir(into) == []
        else:
            assert info.path is not None and verify(info.path) == []


def test_bombs(saved: Path, tmp_path: Path) -> None:
    """Kilobytes that would unpack to gigabytes, listings without end, and a dictionary that fills the memory."""
    good = [member(f"small/{name}", data) for name, data in contents(saved).items()]
    zeros = io.BytesIO()
    with tarfile.open(fileobj=zeros, mode="w") as archive:
        for info, data in [member("a/padding", bytes(120_000_000)), *good]:
            archive.addfile(info, io.BytesIO(data))
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(zeros.getvalue(), 1))
    assert "more than the" in refusal(tmp_path / "x.tar.gz", tmp_path / "into")
    (tmp_path / "x.tar.xz").write_bytes(lzma.compress(zeros.getvalue(), preset=0))
    assert "more than the" in refusal(tmp_path / "x.tar.xz", tmp_path / "into")
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("small/model.safetensors", bytes(120_000_000))
    assert "more than the" in refusal(tmp_path / "x.zip", tmp_path / "into")
    claimed = tarfile.TarInfo("small/model.safetensors")
    claimed.size = 6 * 10**9
    (tmp_path / "x.tar").write_bytes(claimed.tobuf() + bytes(10_240))
    assert "more than the" in refusal(tmp_path / "x.tar", tmp_path / "into")


def test_listings_without_end(saved: Path, tmp_path: Path) -> None:
    good = [member(f"small/{name}", data) for name, data in contents(saved).items()]
    many = [member(f"small/{number}") for number in range(1200)]
    assert "expected at most 1,000 entries" in refusal(write_tar(tmp_path / "x.tar", good + many), tmp_path / "into")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for number in range(20_000):
            packed.writestr(f"small/{number:060}", b"")
    assert "found 2,240,000 bytes" in refusal(tmp_path / "x.zip", tmp_path / "into")


def test_an_xz_stream_that_asks_for_much_memory(saved: Path, tmp_path: Path) -> None:
    """Its header says how large its dictionary is; here the header is changed, since packing one takes gigabytes."""
    packed = bytearray(lzma.compress(write_tar(tmp_path / "x.tar", []).read_bytes(), lzma.FORMAT_XZ))
    length = (packed[12] + 1) * 4
    place = packed.index(b"\x21\x01", 12, 12 + length) + 2  # LZMA2, one byte of properties: the dictionary's size
    packed[place] = 38  # 2 GiB
    packed[12 + length - 4 : 12 + length] = zlib.crc32(packed[12 : 12 + length - 4]).to_bytes(4, "little")
    (tmp_path / "x.tar.xz").write_bytes(packed)
    assert "Memory usage limit" in refusal(tmp_path / "x.tar.xz", tmp_path / "into")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes; run it on Linux or macOS")
def test_archives_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar")
    assert "expected a regular file, found a pipe" in refusal(tmp_path / "x.tar", tmp_path / "into")
    (tmp_path / "y.tar").symlink_to("/dev/zero")
    assert "expected a regular file, found a device" in refusal(tmp_path / "y.tar", tmp_path / "into")


@pytest.mark.parametrize("file", ["card.md", "metrics.jsonl", "tokenizer.json", "config.json"])
def test_a_folder_with_a_huge_file_is_not_copied(copy: Path, tmp_path: Path, file: str) -> None:
    os.truncate(copy / file, MOST_BYTES[file] + 1)
    assert file in refusal(copy, tmp_path / "into")


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
