"""The metadata of a run's checkpoint."""

from __future__ import annotations

from typing import Any

from aotlens.checkpoints import CheckpointInfo
from aotlens.data.sources import portable_spec
from aotlens.train.objectives import Objective


def make_info(
    objective: Objective[Any],
    tokens: int,
    seconds: float,
    device: str,
    command: str,
    metrics: dict[str, Any],
) -> CheckpointInfo:
    """Return the checkpoint's metadata; the corpus by name and where it is had, never by a local path."""
    recipe, section = objective.recipe, objective.recipe.data_section
    return CheckpointInfo(
        name=recipe.name,
        description=recipe.description,
        recipe=recipe.to_dict(),
        command=command,
        corpus={
            "name": section.name or portable_spec(section.spec or ""),
            "source": section.source,
            "license": section.license,
            **objective.corpus(),
        },
        seed=recipe.seed,
        device=device,
        tokens_seen=tokens,
        seconds=round(seconds, 1),
        metrics=metrics,
    )
