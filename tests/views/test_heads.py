"""What heads do on a text as views: against hooks written by hand and the library's own predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.conventions import minus
from aotlens.data import Tokenizer
from aotlens.evaluate import masked_predictions, next_token_predictions
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views import Workshop
from aotlens.views.heads import ABLATED_MAP, ABLATED_PREDICTIONS, FAMILY, LOSSES, PREDICTIONS
from tests.messages import refused
from tests.views.executed import same_by_python

TEXT = "The captain bowed to the captain, and danced."


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    for name, rest in {"plain": {}, "masked": {"causal": False}}.items():
        tokenizer = Tokenizer.train([TEXT * 9], 274)
        tokenizer = tokenizer if not rest else tokenizer.with_mask()
        sizes: dict[str, Any] = {"d_vocab": tokenizer.d_vocab, **rest}
        cfg = ModelConfig(n_layers=2, n_heads=3, d_model=24, d_head=8, n_ctx=48, seed=1, **sizes)
        save_checkpoint(folder / name, AttentionOnlyTransformer(cfg, tokenizer), CheckpointInfo(name=name))
    return {name: str(folder / name) for name in ("plain", "masked")}


@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
def test_their_python_gives_the_table(paths: dict[str, str], view: Any):
    params = FAMILY.parse(
        paths["plain"],
        text=TEXT,
        ablated="0.1",
        how="uniform",
        head="1.2",
        quantity="weighted",
        first="hide",
        position=3,
    )
    same_by_python(view, params)


def test_predictions_are_those_of_the_logits_without_the_head(paths: dict[str, str]):
    model = Workshop().load(paths["plain"])
    params = FAMILY.parse(paths["plain"], text=TEXT, position=3, ablated="1.0")
    full = PREDICTIONS.result(params)
    expected = next_token_predictions(model, TEXT, 3)
    np.testing.assert_array_equal(full.token_ids, expected.token_ids)
    np.testing.assert_allclose(full.logits, expected.logits, rtol=1e-5)

    def without(z: torch.Tensor, hook: Any) -> torch.Tensor:  # [batch, pos, head, d_head]
        z = z.clone()
        z[:, :, 0] = 0
        return z

    tokens = model.to_tokens(TEXT)
    logits = model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", without)])[0]
    lesser = ABLATED_PREDICTIONS.result(params)
    np.testing.assert_allclose(lesser.logits, logits[3].sort(descending=True).values[:10].detach(), rtol=1e-4)
    said = ABLATED_PREDICTIONS.caption(params, lesser)
    assert said.startswith("1.0 ablated by zero: After position 3, ")
    rank = 1 + int((logits[3] > logits[3, tokens[0, 4]]).sum())
    assert f"rank {rank:,}, loss " in said and f"Entropy {lesser.entropy:.2f} nats." in said

    losses = LOSSES.result(params)
    by_hand = -logits[:-1].log_softmax(-1)[torch.arange(len(logits) - 1), tokens[0, 1:]]
    np.testing.assert_allclose(losses.right[1:], by_hand.detach(), rtol=1e-4)
    change = float((losses.right - losses.left)[1:].mean())
    assert f"a change of {minus(change, '+.3f')}" in LOSSES.caption(params, losses)
    alone = FAMILY.parse(paths["plain"], text=TEXT)
    np.testing.assert_array_equal(LOSSES.frame(LOSSES.result(alone))["loss"], losses.left)


def test_a_masked_model_says_what_stands_there(paths: dict[str, str]):
    params = FAMILY.parse(paths["masked"], text=TEXT, position=3)
    found, expected = PREDICTIONS.result(params), masked_predictions(Workshop().load(paths["masked"]), TEXT, 3)
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    assert PREDICTIONS.caption(params, found).startswith("At position 3, ")
    assert "with the token hidden" in LOSSES.caption(params, LOSSES.result(params))
    assert LOSSES.cost(params) == params.n_tokens * PREDICTIONS.cost(params)


def test_what_is_not_there_is_refused(paths: dict[str, str]):
    params = FAMILY.parse(paths["plain"], text=TEXT, position=400)
    with refused("No heads are ablated"):
        ABLATED_MAP.result(params)
    with refused("position=400"):
        PREDICTIONS.result(params)
    for wrong in ({"head": "2.0"}, {"ablated": "0.3"}):
        with pytest.raises(ValueError, match=r"2\.0|0\.3"):
            FAMILY.parse(paths["plain"], **wrong)
