"""`python -m app`: what it prints, and why it may not start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from app.__main__ import address, main
from app.core.settings import Settings
from app.server import make_server
from tests.messages import says

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def status(port: int) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/") as page:
        code: int = page.status
    return code


@pytest.mark.slow  # all that a user's own start imports
def test_it_prints_its_address_and_nothing_alarming(checkpoints: Path, tmp_path: Path):
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "--checkpoints", str(checkpoints), "--port", str(port), "--device", "cpu"],
        cwd=ROOT, env={**os.environ, "AOTLENS_HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        says(line, f"http://127.0.0.1:{port} ", " checkpoints", "this machine alone")
        assert status(port) == 200
    finally:
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=90)
    assert process.returncode == 0
    assert rest.strip() == ""
    assert errors == ""


def test_an_interrupt_stops_it(checkpoints: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """In this process, whose main thread gets what Ctrl+C sends."""
    port, answered, made, ended = free_port(), [], [], threading.Event()
    for warm_up in ("app.core.compression.warm_up", "app.__main__._warm_up"):
        monkeypatch.setattr(warm_up, lambda *_: None)
    monkeypatch.setattr("app.server.make_server", lambda *given: made.append(make_server(*given)) or made[0])

    def interrupt() -> None:
        while not answered and not ended.wait(0.02):
            with suppress(OSError):  # it does not accept yet
                answered.append(status(port))
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    # A suite that a shell runs in the background ignores interrupts.
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        code = main(["--checkpoints", str(checkpoints), "--port", str(port), "--device", "cpu"])
    except KeyboardInterrupt:
        pytest.fail("an interrupt passes through")  # and would end the suite
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)
        for server in made:
            server.drain(0)  # a process that ends closes what it has open
    printed = capsys.readouterr()
    assert code == 0 and answered == [200] and printed.err == "" and len(printed.out.splitlines()) <= 2


def test_a_missing_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["--checkpoints", str(tmp_path / "nowhere")]) == 2
    says(capsys.readouterr().err, tmp_path / "nowhere", "no such folder")


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
