"""`python -m app`: what it prints, and why it may not start."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from app.__main__ import address, main
from app.core.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_and_nothing_alarming(checkpoints: Path, tmp_path: Path, stop: signal.Signals):
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "--checkpoints", str(checkpoints), "--port", str(port), "--device", "cpu"],
        cwd=ROOT, env={**os.environ, "AOTLENS_HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A suite that a shell runs in the background ignores interrupts, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.search(rf"http://127\.0\.0\.1:{port} \(\d+ checkpoints\), for this machine alone\. ", line), line
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/") as page:
            assert page.status == 200
    finally:
        process.send_signal(stop)
        rest, errors = process.communicate(timeout=90)
    assert process.returncode == 0
    assert rest.strip() == ""
    assert errors == ""


def test_a_missing_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["--checkpoints", str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_what_is_no_distillation(capsys: pytest.CaptureFixture[str], checkpoints: Path, tmp_path: Path):
    file = tmp_path / "a.safetensors"
    file.write_bytes(b"mine")
    assert main(["--checkpoints", str(checkpoints), "--distillation", str(file), "--port", str(free_port())]) == 2
    assert f"--distillation {file}: expected a distillation" in capsys.readouterr().err


def test_no_checkpoints(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: tmp_path)
    assert main(["--checkpoints", str(tmp_path), "--port", str(free_port())]) == 2
    assert "no checkpoints in" in capsys.readouterr().err


def test_a_port_in_use(capsys: pytest.CaptureFixture[str], checkpoints: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["--checkpoints", str(checkpoints), "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"port {port}" in error and "in use" in error and "--port" in error


def test_a_host_that_is_not_this_machine(capsys: pytest.CaptureFixture[str], checkpoints: Path):
    assert main(["--checkpoints", str(checkpoints), "--host", "203.0.113.7", "--port", str(free_port())]) == 2
    assert "--host" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--port", "0"], ["--port", "70000"], ["--port", "x"], ["--max-tokens", "0"]])
def test_bad_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str]):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "shown"),
    [("0.0.0.0", "http://127.0.0.1:8050"), ("::1", "http://[::1]:8050"), ("localhost", "http://localhost:8050")],
)
def test_the_address_is_one_to_type(host: str, shown: str):
    assert address(Settings(host=host)) == shown
