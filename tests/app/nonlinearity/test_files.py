"""Files of a compiled network: the saved weights are the model's and the network's."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import torch
from safetensors.torch import load, safe_open
from torch import nn

from aotlens.checkpoints import load_folder
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views.nonlinearity import FAMILY, LAYERS
from app.core import Core
from app.pages.nonlinearity import files
from app.shell.view_service import Views


def test_saved_weights_are_the_model_and_the_network(services: Core, tmp_path: Path):
    service = Views(services, FAMILY)
    params = service.values({"preset": "random", "inputs": 2, "width": 4, "depth": 2, "auxiliary": "random"})
    compiled = service.workshop.result(LAYERS, params)
    x = torch.rand(1, 4, 2, dtype=torch.float64)

    path = tmp_path / "model.safetensors"
    path.write_bytes(files.model_safetensors(service.workshop, LAYERS, params).content)
    with safe_open(path, "pt") as opened:
        about = opened.metadata()
    model = AttentionOnlyTransformer(ModelConfig(**json.loads(about["model"]))).double()
    model.load_state_dict(load(path.read_bytes()))
    torch.testing.assert_close(model(compiled.embed(x)), compiled.model(compiled.embed(x)), atol=0, rtol=0)
    assert float(about["proven_error"]) == compiled.proven_error

    ffn = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    ffn.load_state_dict(load(files.ffn_safetensors(service.workshop, LAYERS, params).content))
    torch.testing.assert_close(ffn(x[0]), compiled.ffn(x[0]), atol=1e-14, rtol=0)

    file = files.model_zip(service.workshop, LAYERS, params)
    with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
        archive.extractall(tmp_path)
    loaded = load_folder(tmp_path / file.name.removesuffix(".zip"), device="cpu")
    wide = loaded.double()(compiled.embed(x))
    torch.testing.assert_close(wide, compiled.model(compiled.embed(x)), atol=1e-4, rtol=0)
    assert "rounded to float32" in loaded.card.description
