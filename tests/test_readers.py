"""Every reader of files, on what is no regular file of a sane size: an error of ours in a moment, and nothing hangs."""

from __future__ import annotations

import json
import os
import re
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
    "a tokenizer of Hugging Face": "from aotlens.interop.tokenizers import read_hugging_face; read_hugging_face(PATH)",
    "GPT-2's vocabulary": "from aotlens.data import Tokenizer; Tokenizer.from_gpt2_files(PATH, PATH)",
    "held-out text": "from aotlens.data.zero_shot import open_lambada; open_lambada(str(PATH))",
    "images": "from aotlens.data.images import open_images; open_images(f'npz:{PATH}')",
    "an image": "from aotlens.data.images import decode_image; decode_image(PATH)",
    "a distillation": "from aotlens.distill import load_record; load_record(PATH)",
    "a network": "from aotlens.distill import load_ffn; load_ffn(PATH, 'relu')",
    "an atlas": "from aotlens.heads import load_atlas; load_atlas(PATH)",
    "foreign weights": "import aotlens; aotlens.load(PATH)",
    "a check": "from aotlens.checkpoints import read_check; read_check(PATH)",
    "a key map": "from aotlens.checkpoints import read_key_map; read_key_map(PATH)",
    "a pickle": "from aotlens.interop.foreign.archive import read_plain; read_plain(PATH)",
    "a sweep": "from aotlens.sweeps import load_sweep; load_sweep(PATH)",
    "a recipe": "from aotlens.train import load_recipe; load_recipe(PATH)",
}
#: How the file is called, where the reader asks for that.
NAMES = {
    "a recipe": "r.toml",
    "foreign weights": "w.pt",
    "an image": "i.png",
}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(6 * 10**9)


def brackets(path: Path) -> None:
    path.write_bytes(b"[" * 200_000)


SHAPES: dict[str, Callable[[Path], Any]] = {
    "a pipe": pipe, "a sparse file of 6 GB": sparse, "a folder": Path.mkdir, "nothing in it": Path.touch,
    "200,000 brackets": brackets,
    "a line of them": lambda path: path.write_bytes(b'{"text": ' + b"[" * 200_000 + b"\n"),
}  # fmt: skip

_WALK = """
import json, resource, sys, threading, time
from pathlib import Path
calls, shapes = json.loads(sys.argv[1]), json.loads(sys.argv[2])
def resident():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
import aotlens.checkpoints, aotlens.distill, aotlens.heads, aotlens.sweeps, aotlens.train, aotlens.data.images
import PIL.Image
found = []
for name, code in calls.items():
    for shape, path in shapes[name].items():
        said, before, seconds = [], resident(), time.process_time()
        def read():
            try:
                exec(code, {"PATH": Path(path)})
                said.append("read")
            except (ValueError, OSError) as error:
                said.append(f"{type(error).__name__}: {error}")
            except BaseException as error:
                said.append(f"RAW {type(error).__name__}: {error}")
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(20)
        used = [resident() - before, time.process_time() - seconds]
        found.append([name, shape, said[0][:300] if said else "HANGS", *used])
print(json.dumps(found))
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo") or not Path("/proc/self/status").exists(), reason="needs pipes and /proc")
def test_no_reader_hangs_or_fills_memory(tmp_path: Path) -> None:
    """In a process of its own, since a reader that hangs would hang the tests."""
    paths: dict[str, dict[str, str]] = {}
    for number, name in enumerate(READERS):
        for place, (shape, make) in enumerate(SHAPES.items()):
            path = tmp_path / str(number) / str(place) / NAMES.get(name, "file.safetensors")
            path.parent.mkdir(parents=True)
            make(path)
            paths.setdefault(name, {})[shape] = str(path)
    command = [sys.executable, "-c", textwrap.dedent(_WALK), json.dumps(READERS), json.dumps(paths)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    faults = []
    for name, shape, said, n_bytes, seconds in json.loads(ended.stdout):
        if "HANGS" in said or "RAW" in said or (said == "read" and name != "a text") or n_bytes > 200e6 or seconds > 2:
            faults.append(f"{name}, {shape}: {said} ({n_bytes / 1e6:.0f} MB, {seconds:.1f} s)")
        elif said != "read" and paths[name][shape].split("/")[-1] not in said:
            faults.append(f"{name}, {shape}: it does not name the file: {said}")
    assert not faults, "\n".join(faults)


#: Library files that open a file by themselves, and what they open.
_OWN = {
    "untrusted.py": "the one place",
    "files.py": "pages of the docs, and what `require_regular` has looked at",
    "notebook/": "what comes with aotlens",
    "plots/": "what comes with aotlens",
    "report/": "what comes with aotlens",
    "interop/foreign/material.py": "looked at by `open_regular`",
    "interop/foreign/pickles/": "the child, which is given an open file",
    "distill/compile/file.py": "looked at by `require_regular`",
    "checkpoints/foreign.py": "looked at by `require_regular`",
    "sweeps/cells.py": "an archive that it has just made",
    "sweeps/child.py": "what the process that began it has written",
    "sweeps/process.py": "the same, and its log",
    "paths/score/search.py": "nodes of a tree",
    "train/recipe.py": "recipes that come with aotlens",
    "train/stream.py": "documents that it has put aside",
    "sweeps/inputs.py": "looked at by `require_regular`",
    "data/images/": "looked at by `require_regular`, or open",
    "checkpoints/unpacking.py": "entries of an archive that is open",
    "checkpoints/archive.py": "what it writes, and parts that it has checked",
}
_OPENS = re.compile(r"(?<![.\w])open\(|\.(open|read_text|read_bytes)\(|\b(np\.load|safe_open|load_file|torch\.load)\(")
_NONE = re.compile(r'"wb"|"w"|TokenFile\.open|cls\.open|self\.open|tree\.open|def |`')


def test_no_reader_goes_past_the_one_place() -> None:
    """Each file of the library that opens a file in another way is named above."""
    root = Path(aotlens.__file__).parent
    found = set()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if any(name.startswith(known) for known in _OWN):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            code = line.split("  #")[0]
            if _OPENS.search(code) and not re.search(
                r'"wb"|"w"|"a"|"ab"|TokenFile\.open|cls\.open|def |`|Image\.open', code
            ):
                found.add(f"{name}: {line.strip()}")
    assert not found, "\n".join(sorted(found))
