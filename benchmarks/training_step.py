"""A training step against a plain PyTorch loop over the same model, in one run.

    python -m benchmarks.training_step [--threads 1] [--pairs 20] [--json PATH]

4 layers, d_model 128, 4 heads, 4,096 tokens of vocabulary, 8 rows of 256, pre-norm, no biases, AdamW, gradients clipped
at 1. `ours` is a step of `aotlens train`; `plain` is `benchmarks.forward.Plain` (one matrix for queries, keys and
values, `scaled_dot_product_attention`) with `cross_entropy`, `clip_grad_norm_` and `torch.optim.AdamW` as they come.
Both start from the same weights and their losses must agree; `MSSA` is ours with one matrix a head, against plain MHSA.
The parts of ours (forward, backward, clipping, AdamW) are timed by themselves.

Expected: ours ÷ plain at most 1 in processor time, MSSA below. A minute or two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.train import CorpusRecipe, Recipe, Stage
from aotlens.train.loop import add_gradients, update_weights
from aotlens.train.optimiser import make_optimiser
from benchmarks import _common
from benchmarks.forward import Plain

STEPS = 2  # of each, in a run that is timed


def recipe_of(attention: str, quick: bool) -> Recipe:
    """Return the run: as the bundled models', in one stage."""
    width, d_vocab = (32, 64) if quick else (128, 4096)
    model = {"attention": attention, "n_layers": 2 if quick else 4, "d_model": width, "n_heads": 4}
    return Recipe(
        name="step", model={**model, "d_head": width // 4, "n_ctx": 256}, corpus=CorpusRecipe(d_vocab=d_vocab),
        stages=(Stage(tokens=10**6, batch_size=8, sequence_length=256),),
    )  # fmt: skip


class PlainMHSA(Plain):
    """`Plain` without biases, as the model has none."""

    def __init__(self, model: AttentionOnlyTransformer) -> None:
        with_biases = AttentionOnlyTransformer(ModelConfig.from_dict({**model.cfg.to_dict(), "bias": True}))
        with_biases.load_state_dict(model.state_dict(), strict=False)
        for name, parameter in with_biases.named_parameters():
            if name.rsplit(".", 1)[-1].startswith("b_"):
                nn.init.zeros_(parameter)
        super().__init__(with_biases)
        self.requires_grad_(True)
        for bias in (self.qkv_bias, self.out_bias, self.head_bias):
            bias.requires_grad_(False)


def plain_step(model: PlainMHSA, optimiser: torch.optim.Optimizer, rows: Tensor) -> float:
    """Make a step as one would write it first."""
    optimiser.zero_grad()
    logits = model(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return loss.item()


def our_step(model: AttentionOnlyTransformer, optimiser: torch.optim.Optimizer, rows: Tensor, recipe: Recipe) -> float:
    """Take a step of the training loop, its loss read as on a CPU."""
    loss = add_gradients(model, rows, None, recipe)
    update_weights(model, optimiser, recipe)
    return loss.item()


def measure(attention: str, quick: bool, pairs: int) -> dict[str, Any]:
    """Return one row: ours with `attention` against plain MHSA."""
    recipe = recipe_of(attention, quick)
    torch.manual_seed(0)
    model = AttentionOnlyTransformer(recipe.model_config(recipe.corpus.d_vocab))
    mhsa = recipe_of("mhsa", quick)
    base = model if attention == "mhsa" else AttentionOnlyTransformer(mhsa.model_config(mhsa.corpus.d_vocab))
    plain = PlainMHSA(base)
    rows = torch.randint(recipe.corpus.d_vocab, (8, 256), generator=torch.Generator().manual_seed(0))
    if attention == "mhsa":
        torch.testing.assert_close(model(rows), plain(rows), rtol=1e-5, atol=1e-4)
    trainable = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    plain_optimiser = torch.optim.AdamW(trainable, lr=1e-3, betas=recipe.betas, weight_decay=0.1)
    optimiser = make_optimiser(model, recipe)
    timing = _common.time_in_turn(
        lambda: [our_step(model, optimiser, rows, recipe) for _ in range(STEPS)],
        lambda: [plain_step(plain, plain_optimiser, rows) for _ in range(STEPS)],
        pairs,
    )
    return {
        "ours": attention.upper(),
        "ours (ms a step)": timing.first / STEPS * 1000,
        "plain (ms a step)": timing.second / STEPS * 1000,
        "ours ÷ plain": timing.ratio,
        "ours ÷ plain (processor time)": timing.cpu_ratio,
        "pairs": timing.pairs,
        **parts(model, optimiser, rows, recipe),
    }


def parts(
    model: AttentionOnlyTransformer, optimiser: torch.optim.Optimizer, rows: Tensor, recipe: Recipe
) -> dict[str, float]:
    """Return the processor time of the parts of our step, medians in milliseconds."""
    times: dict[str, list[float]] = {}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        started = time.process_time()
        out = run()
        times.setdefault(f"{name} (ms)", []).append((time.process_time() - started) * 1000)
        return out

    for _ in range(3 * STEPS):
        loss = timed("forward", lambda: model(rows, return_type="loss"))
        timed("backward", loss.backward)
        timed("clipping", lambda: nn.utils.clip_grad_norm_(model.parameters(), recipe.clip))
        timed("AdamW", optimiser.step)
        optimiser.zero_grad(set_to_none=True)
    return {name: median(several) for name, several in times.items()}


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    arguments = options.parse_args(argv)
    pairs = arguments.pairs or (2 if arguments.quick else 20)
    rows = [measure(attention, arguments.quick, pairs) for attention in ("mhsa", "mssa")]
    _common.report("training_step", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
