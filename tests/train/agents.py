"""Machines of a run across nodes, as `torchrun` agents of this one machine: each has a home and a folder of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import aotlens


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(node: int, rendezvous: Sequence[str], train: Sequence[str], home: Path) -> subprocess.Popen[str]:
    """The agent of one of two machines with one process each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *rendezvous,
               "-m", "aotlens", "train", *train, "--device", "cpu"]  # fmt: skip
    environment = os.environ | {"AOTLENS_HOME": str(home), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with open(home / f"node-{node}.log", "w", encoding="utf-8") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)


def by_number(node: int, port: int) -> list[str]:
    """Two machines that are told which they are: 0 leads."""
    return ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]


def run(train: Sequence[Sequence[str]], homes: Sequence[Path]) -> list[int]:
    """Both machines from the beginning to the end; their exit codes."""
    port = free_port()
    agents = [start(node, by_number(node, port), train[node], homes[node]) for node in (0, 1)]
    try:
        return [agent.wait() for agent in agents]
    finally:
        for agent in agents:
            agent.kill()


def alone(train: Sequence[str], home: Path) -> None:
    """One process without torchrun."""
    environment = os.environ | {"AOTLENS_HOME": str(home), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "aotlens", "train", *train, "--device", "cpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def assert_same_weights(one: Path, other: Path) -> None:
    """Bit for bit."""
    expected, found = (aotlens.load(folder, device="cpu").state_dict() for folder in (one, other))
    assert expected.keys() == found.keys()
    for name, weight in expected.items():
        assert torch.equal(weight, found[name]), name
