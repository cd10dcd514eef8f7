"""Where a head may look in a prompt of in-context regression, whose tokens x_1, y_1, x_2, y_2, …, x_N take turns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from aotlens.heads.inputs import Inputs, Targets


def of_positions(keys: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Inputs], Targets]:
    """The (query, key) pairs, not after the query, for which `keys(query, key)` holds: inputs stand at even positions,
    labels at odd ones."""

    def mask(inputs: Inputs) -> Targets:
        position = torch.arange(inputs.n_pos)
        return inputs.targets(keys(position[:, None], position[None, :]))

    return mask


#: From a label to its own input.
own_input = of_positions(lambda query, key: (query % 2 == 1) & (key == query - 1))
#: From an input to every label before it.
all_labels = of_positions(lambda query, key: (query % 2 == 0) & (key % 2 == 1) & (key < query))
#: From an input to every input before it.
all_inputs = of_positions(lambda query, key: (query % 2 == 0) & (key % 2 == 0) & (key < query))
#: From an input to the label before it.
last_label = of_positions(lambda query, key: (query % 2 == 0) & (key == query - 1))
