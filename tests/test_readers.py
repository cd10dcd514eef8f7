"""Every reader of files, on what is no regular file of a sane size: an error of ours in a moment, and nothing hangs."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aotlens

#: What reads a file that somebody else may have written: the call, with PATH for the file.
READERS: dict[str, str] = {
    "a token file": "from aotlens.data import TokenFile; TokenFile.open(PATH)",
    "a text": "from aotlens.data import open_corpus; list(open_corpus(f'file:{PATH}').documents())",
    "a tokenizer": "from aotlens.data import Tokenizer; Tokenizer.from_file(PATH)",
    "a tokenizer of Hugging Face": "from aotlens.interop.bridge_out import read_hugging_face; read_hugging_face(PATH)",
    "GPT-2's vocabulary": "from aotlens.data import Tokenizer; Tokenizer.from_gpt2_files(PATH, PATH)",
    "GPT-2's merges": "from aotlens.data import Tokenizer; good = PATH.with_name('good'); "
    "good.write_text('{\"<|endoftext|>\": 0}'); Tokenizer.from_gpt2_files(good, PATH)",
    "pairs of prompts": "PromptPairs.from_jsonl(MODEL, PATH)",
    "held-out text": "from aotlens.data.zero_shot import open_lambada; open_lambada(str(PATH))",
    "images": "from aotlens.data.images import open_images; open_images(f'npz:{PATH}')",
    "an image": "from aotlens.data.images import decode_image; decode_image(PATH)",
    "a distillation": "from aotlens.distill import load_record; load_record(PATH)",
    "the state of a run": "from aotlens.files import load_progress; load_progress(PATH, {}, 'a run', '')",
    "a network": "from aotlens.distill import load_ffn; load_ffn(PATH, 'relu')",
    "an atlas": "from aotlens.results import load; load(PATH)",
    "external weights": "import aotlens; aotlens.load(PATH)",
    "external safetensors": "import aotlens; aotlens.load(PATH)",
    "a check": "from aotlens.checkpoints import read_check; read_check(PATH)",
    "a key map": "from aotlens.checkpoints import read_key_map; read_key_map(PATH)",
    "a pickle": "from aotlens.interop.external.archive import read_plain; read_plain(PATH)",
    "a sweep": "from aotlens.sweeps import load_sweep; load_sweep(PATH)",
    "a recipe": "from aotlens.train import load_recipe; load_recipe(PATH)",
}
#: How the file is called, where the reader asks for that.
NAMES = {
    "a recipe": "r.toml",
    "what belongs to a distillation": "r.json",
    "external weights": "w.pt",
    "an image": "i.png",
}


#: Shapes that are a text.
TEXTS = ("200,000 brackets", "a line of them", "2,200,000 small values", "blank lines")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(6 * 10**9)


def holes(path: Path) -> None:
    """Within every limit of what is written at length, and costs nothing to send."""
    with path.open("wb") as file:
        file.write(b"\x02\0\0\0\0\0\0\0{}")
        file.truncate(3 * 10**9)


def values(path: Path) -> None:
    """Which Python holds in fifty times the bytes."""
    path.write_bytes(b"[" + b'{"":0},' * 2_200_000 + b"0]")


def names(path: Path) -> None:
    """A zip whose entries are all the same empty one."""
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, 1, 0) + b"a"
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    n, start, size = 700_000, len(local), 700_000 * len(entry)
    whole = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, n, n, size, start)
    where = struct.pack("<4sLQL", b"PK\x06\x07", 0, start + size, 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)
    path.write_bytes(local + entry * n + whole + where + end)


def brackets(path: Path) -> None:
    path.write_bytes(b"[" * 200_000)


SHAPES: dict[str, Callable[[Path], Any]] = {
    "a pipe": pipe, "a sparse file of 6 GB": sparse, "a folder": Path.mkdir, "nothing in it": Path.touch,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "200,000 brackets": brackets, "3 GB of holes": holes, "2,200,000 small values": values,
    "blank lines": lambda path: path.write_bytes(b"\n" * 16_000_000), "a zip of 700,000 names": names,
    "a line of them": lambda path: path.write_bytes(b'{"text": ' + b"[" * 200_000 + b"\n"),
}  # fmt: skip

_WALK = """
import json, resource, sys, threading, time
from pathlib import Path
calls, shapes = json.loads(sys.argv[1]), json.loads(sys.argv[2])
def resident(what):
    return int(Path("/proc/self/status").read_text().split(what)[1].split()[0]) * 1024
import aotlens.checkpoints, aotlens.distill, aotlens.heads, aotlens.sweeps, aotlens.train, aotlens.data.images
import PIL.Image
from aotlens.data import PromptPairs
MODEL = aotlens.load("novels-1l-mhsa")
found = []
for name, code in calls.items():
    for shape, path in shapes[name].items():
        print(name, shape, sep=", ", file=sys.stderr, flush=True)
        Path("/proc/self/clear_refs").write_text("5")  # the highest so far begins anew
        said, before, seconds = [], resident("VmRSS:"), time.process_time()
        def read():
            try:
                exec(code, {"PATH": Path(path), "Path": Path, "MODEL": MODEL, "PromptPairs": PromptPairs})
                said.append("read")
            except (ValueError, OSError) as error:
                said.append(f"{type(error).__name__}: {error}")
            except BaseException as error:
                said.append(f"RAW {type(error).__name__}: {error}")
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(10)
        used = [resident("VmHWM:") - before, time.process_time() - seconds]
        found.append([name, shape, said[0][:300] if said else "HANGS", *used])
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo") or not Path("/proc/self/status").exists(), reason="needs pipes and /proc")
def test_no_reader_hangs_or_fills_memory(tmp_path: Path) -> None:
    """In a process of its own, since a reader that hangs would hang the tests."""
    paths: dict[str, dict[str, str]] = {}
    for number, name in enumerate(READERS):
        for place, (shape, make) in enumerate(SHAPES.items()):
            path = tmp_path / str(number) / str(place) / NAMES.get(name, "file.safetensors")
            path.parent.mkdir(parents=True)
            first = tmp_path / "0" / str(place) / NAMES.get(next(iter(READERS)), "file.safetensors")
            if first.is_file() and not first.is_symlink() and first != path:
                os.link(first, path)
            else:
                make(path)
            paths.setdefault(name, {})[shape] = str(path)
    command = [sys.executable, "-c", textwrap.dedent(_WALK), json.dumps(READERS), json.dumps(paths)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired as error:  # a library that waits and lets no other thread run
        pytest.fail(f"the last of these hangs: {(error.stderr or b'').decode()[-300:]}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    faults = []
    for name, shape, said, n_bytes, seconds in json.loads(ended.stdout):
        wrong = said == "read" and not (name == "a text" and shape in TEXTS)
        if "HANGS" in said or "RAW" in said or wrong or n_bytes > 200e6 or seconds > 2:
            faults.append(f"{name}, {shape}: {said} ({n_bytes / 1e6:.0f} MB, {seconds:.1f} s)")
        elif said != "read" and paths[name][shape].split("/")[-1] not in said:
            faults.append(f"{name}, {shape}: it does not name the file: {said}")
    assert not faults, "\n".join(faults)


#: Who opens a file by itself, and what that is.
_OWN = {
    "aotlens/untrusted.py": "the one place",
    "aotlens/checkpoints/archive.py": "what it writes, parts that it has checked, entries of an archive that is open",
    "aotlens/data/images/": "looked at by `require_regular`, or open",
    "aotlens/data/token_file.py": "looked at by `open_regular`",
    "aotlens/distill/compile/ffn.py": "looked at by `require_regular`",
    "aotlens/files.py": "pages of the docs, tensors that it has looked at, entries of an archive that is open",
    "aotlens/interop/external/archive.py": "looked at by `open_regular`",
    "aotlens/interop/external/bert.py": "looked at by `require_small` and `read_material`",
    "aotlens/interop/external/checking.py": "the same",
    "aotlens/interop/external/material.py": "looked at by `open_regular`",
    "aotlens/interop/external/pickles/": "the child, which is given an open file",
    "aotlens/notebook/": "what comes with aotlens",
    "aotlens/report/": "what comes with aotlens",
    "aotlens/results/exports.py": "the packages of aotlens itself",
    "aotlens/sweeps/calling.py": "looked at by `require_regular`",
    "aotlens/sweeps/child.py": "what the process that began it has written",
    "aotlens/sweeps/process.py": "what the process that it began has written",
    "aotlens/sweeps/running.py": "an archive that it has just made",
    "aotlens/train/recipe.py": "recipes that come with aotlens",
    "aotlens/train/corpus.py": "documents that it has put aside",
    "aotlens/widget/": "what comes with aotlens",
    "app/core/own_texts.py": "what the app has written",
    "app/screenshot.py": "a picture in memory",
    "app/shell/": "what comes with the app",
}
_OPENS = re.compile(
    r"(?<![.\w])open\(|\b(safe_open|load_file)\(|\b(np|torch|pickle)\.(load|memmap|fromfile)\("
    r"|\.(open|read_text|read_bytes|from_file|from_pretrained)\("
)
#: Definitions, what is written, and opening that is no reading or whose reader is another line.
_NOT = re.compile(
    r'"wb"|"w"|\b(TokenFile\.open|Tokenizer\.from_file|cls\.open|self\.open|tree\.open|images\.open)\(|^\s*def |`'
)


def test_no_reader_goes_past_the_one_place() -> None:
    """Each file of the library and the app that opens files in another way is named above, and no other."""
    root = Path(aotlens.__file__).parents[1]
    found, used = set(), set()
    for path in sorted([*(root / "aotlens").rglob("*.py"), *(root / "app").rglob("*.py")]):
        name = path.relative_to(root).as_posix()
        for line in path.read_text(encoding="utf-8").splitlines():
            code = line.split("  #")[0]
            if _OPENS.search(code) and not _NOT.search(code):
                known = [own for own in _OWN if name.startswith(own)]
                used.update(known)
                found.update(() if known else {f"{name}: {line.strip()}"})
    assert not found, "\n".join(sorted(found))
    assert used == {*_OWN}, f"they open nothing any more: {sorted({*_OWN} - used)}"
