"""What the Checkpoints page says of a file's tensors."""

from __future__ import annotations

from app.core import Core
from app.pages.checkpoints.service import Checkpoints


def test_the_tensors_of_a_file(services: Core):
    rows = Checkpoints(services).tensors(services.catalog.info("tiny-mhsa"))
    model = services.catalog.load("tiny-mhsa").model
    weights = {name: tensor.numel() for name, tensor in model.state_dict().items()}
    assert {row["name"]: row["numbers"] for row in rows if row["name"] in weights} == weights
