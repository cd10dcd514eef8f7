"""What `aotlens compile` reads, prints and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

from aotlens.cli import main
from aotlens.distill.compile import compile_ffn, load_ffn
from tests.distill.compile.networks import mlp, uniform
from tests.messages import refused, says


@pytest.fixture
def network() -> nn.Sequential:
    return mlp(3, 5, 4, 2)


@pytest.fixture
def file(network: nn.Sequential, tmp_path: Path) -> Path:
    save_file(network.state_dict(), tmp_path / "ffn.safetensors")
    return tmp_path / "ffn.safetensors"


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["compile", *arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_a_state_dict_is_the_network(activation: Any, tmp_path: Path) -> None:
    """More than ten modules: 10 comes after 2."""
    kind = {"relu": nn.ReLU, "silu": nn.SiLU}[activation]
    network = mlp(3, 4, 5, 4, 3, 2, 4, 3, activation=kind)
    save_file({f"mlp.{name}": tensor for name, tensor in network.state_dict().items()}, tmp_path / "ffn.safetensors")
    x = uniform(20, 3, 2)
    assert_close(load_ffn(tmp_path / "ffn.safetensors", activation)(x), network(x), atol=1e-13, rtol=0)


def test_what_a_state_dict_cannot_show_is_said(tmp_path: Path, capsys: Any) -> None:
    """The same tensors with an activation at the end: read without it, as help and docstring say."""
    network = nn.Sequential(*mlp(3, 4, 2), nn.ReLU())
    save_file(network.state_dict(), tmp_path / "ffn.safetensors")
    x = uniform(20, 3, 2)
    assert_close(load_ffn(tmp_path / "ffn.safetensors", "relu")(x), network[:-1](x), atol=1e-13, rtol=0)
    says(load_ffn.__doc__ or "", "activation", "after the last layer")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    says(" ".join(out.replace("│", " ").split()), "state dict", "activations")


def test_it_prints_heads_and_errors(file: Path, network: nn.Sequential, capsys: Any) -> None:
    code, out, err = run(capsys, str(file), "--bound", "2", "--tolerance", "1e-3", "--points", "200")
    compiled = compile_ffn(network, bound=2, tolerance=1e-3)
    assert (code, err) == (0, "")
    assert {"0", "5", "relu", f"{compiled.etas[0]:.4g}", "6"} <= set(out.splitlines()[1].split())
    assert "2 layers, d_model 7, d_head 6" in out and "11 in all" in out
    assert f"{compiled.proven_error:.3g} on [-2, 2]^3" in out
    assert f"measured error  {compiled.measured_error(n=200):.3g}" in out


def test_the_table_as_a_file(file: Path, tmp_path: Path, capsys: Any) -> None:
    csv = tmp_path / "out.csv"
    code, out, _ = run(
        capsys, str(file), "--bound", "2", "--tolerance", "1e-3", "--construction", "paper", "--csv", str(csv)
    )
    assert code == 0 and "2 rows" in out
    assert pd.read_csv(csv)["heads"].tolist() == [6 + 2 * 4, 5 + 2 * 6]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--activation", "gelu"], "--activation='gelu': expected one of 'relu', 'silu'"),
        (["--construction", "best"], "--construction='best': expected one of 'lean'"),
        (["--bound", "-1"], "--bound -1: expected a positive finite number"),
        (["--tolerance", "1e-17"], "below what float64 can be proven to reach"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], message: str, file: Path, capsys: Any) -> None:
    given = {"--bound": "1", "--tolerance": "0.1", **dict(zip(arguments[::2], arguments[1::2], strict=True))}
    code, out, err = run(capsys, str(file), *(part for pair in given.items() for part in pair))
    assert code == 2 and out == "" and err.count("\n") == 1 and message in err


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"wte": torch.ones(2, 2)}, "tensor 'wte'; expected N.weight"),
        ({"a.0.weight": torch.ones(2, 2), "b.2.weight": torch.ones(2, 2)}, "several networks"),
        ({"0.weight": torch.ones(2, 2), "2.bias": torch.ones(2)}, "layer 2 has a bias only"),
        ({"0.weight": torch.ones(2, 2), "2.weight": torch.ones(2, 3)}, "reads 3 numbers"),
        ({"0.weight": torch.ones(2, 2), "0.bias": torch.ones(3)}, r"expected a bias \[2\]"),
        ({"0.weight": torch.ones(2)}, r"0\.weight: expected a matrix, got \[2\]"),
        ({"0.weight": torch.ones(2, 2)}, "at least one ReLU or SiLU"),
    ],
)
def test_files_that_are_no_network(tensors: dict[str, torch.Tensor], message: str, tmp_path: Path) -> None:
    save_file(tensors, tmp_path / "ffn.safetensors")
    with pytest.raises(ValueError, match=message):
        load_ffn(tmp_path / "ffn.safetensors", "relu")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refused("expected a regular file, found a folder"):
        load_ffn(tmp_path, "relu")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_ffn(tmp_path / "none.safetensors", "relu")
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(ValueError, match="expected a safetensors file"):
        load_ffn(tmp_path / "text", "relu")
