"""`import aotlens` is the door: its packages are there by name, listed, described, and imported when they are used."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys

import pytest

import aotlens
from tests.messages import refused

PRIVATE = {"cli", "commands", "files", "untrusted", "__main__"}
PUBLIC = sorted({module.name for module in pkgutil.iter_modules(aotlens.__path__)} - PRIVATE)


def test_every_package_is_listed_and_has_a_line() -> None:
    described = dict(re.findall(r"^    (\w+)  +(\w.*)$", aotlens.__doc__ or "", re.MULTILINE))
    assert sorted(described) == PUBLIC
    assert set(PUBLIC) <= set(aotlens.__all__) <= set(dir(aotlens))


@pytest.mark.parametrize("name", aotlens.__all__)
def test_every_name_resolves(name: str) -> None:
    assert getattr(aotlens, name) is not None
    if name in PUBLIC:
        assert getattr(aotlens, name).__name__ == f"aotlens.{name}"
        assert getattr(aotlens, name).__doc__


@pytest.mark.slow
def test_packages_load_on_first_use() -> None:
    code = (
        "import sys, aotlens\n"
        "dir(aotlens); aotlens.__doc__\n"
        "assert not {'aotlens.heads', 'torch', 'plotly'} & sys.modules.keys()\n"
        "aotlens.plots.attention_map\n"
        "assert 'aotlens.plots' in sys.modules and 'torch' not in sys.modules\n"
        "aotlens.models.AttentionOnlyTransformer\n"
        "assert not {'transformer_lens', 'transformers', 'scipy', 'sklearn', 'pandas'} & sys.modules.keys()\n"
        "aotlens.heads.motif_scores\n"
        "assert 'aotlens.heads' in sys.modules and 'transformer_lens.model_bridge' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_not_there_lists_those_that_are() -> None:
    with refused("'head'", "heads", error=AttributeError):
        _ = aotlens.head
