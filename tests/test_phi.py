"""A φ is one entry of one table: sparsemax is registered here, and everything that asks about a φ knows it."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.circuits import qk_circuit
from aotlens.interop import to_transformer_lens
from aotlens.models import PHIS, AttentionOnlyTransformer, ModelConfig, Phi
from aotlens.paths import expand
from aotlens.train import Recipe
from aotlens.trigrams import direct_path, skip_trigrams
from tests.messages import refused
from tests.small_models import SMALL, maker, small_tokens

ROOT = Path(__file__).parents[1]


def sparsemax(cfg: ModelConfig, scores: Tensor, visible: Tensor | None) -> Tensor:
    """max(scores − t, 0), t such that a row sums to 1 (Martins and Astudillo, 2016)."""
    ordered = scores.sort(-1, descending=True).values
    ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    finite = ordered.isfinite()
    sums = ordered.masked_fill(~finite, 0).cumsum(-1)
    supported = finite & (1 + ranks * ordered > sums)
    size = supported.sum(-1, keepdim=True)
    return (scores - (sums.gather(-1, size - 1) - 1) / size).clamp(min=0)


def projected(scores: np.ndarray) -> np.ndarray:
    """The same by finding t numerically."""
    t = scipy.optimize.brentq(lambda t: np.maximum(scores - t, 0).sum() - 1, scores.max() - 1, scores.max(), xtol=1e-14)
    return np.maximum(scores - t, 0)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Phi(pattern=sparsemax, rows_sum_to_one=True, normalises=True, ranks_as_softmax=False)
    monkeypatch.setitem(PHIS, "sparsemax", entry)


@pytest.fixture
def model(registered: None) -> AttentionOnlyTransformer:
    make = maker(SMALL, dtype=torch.float64)
    return make(phi="sparsemax", norm=None, positions="qk").requires_grad_(False)


def test_a_phi_is_known_while_it_is_in_the_table_and_no_longer() -> None:
    with refused("phi='sparsemax'", "'softmax', 'thresholded_softmax'"):
        ModelConfig(**SMALL, phi="sparsemax")


def test_forward_cache_circuits_and_paths(model: AttentionOnlyTransformer) -> None:
    tokens = small_tokens()
    logits, cache = model.run_with_cache(tokens)
    assert torch.equal(model(tokens), logits)  # not the fast path, which is a softmax
    for layer in range(2):
        scores, pattern = cache["attn_scores", layer], cache["pattern", layer]
        assert (pattern == 0).sum() > (scores == -torch.inf).sum()  # sparse
        for index in np.ndindex(2, 3, 7):
            visible = scores[index][: index[-1] + 1].numpy()
            np.testing.assert_allclose(pattern[index][: index[-1] + 1], projected(visible), atol=1e-12)
    ids, sides = tokens[0], ("tokens", "positions")
    parts = {(left, right): qk_circuit(model, "0.1", left, right).AB for left in sides for right in sides}
    rows = {"tokens": ids, "positions": torch.arange(7)}
    total = sum(part[rows[left]][:, rows[right]] for (left, right), part in parts.items())
    torch.testing.assert_close(total.tril(), cache["attn_scores", 0][0, 1].tril().nan_to_num(neginf=0))
    torch.testing.assert_close(expand(model, ids).by_order().sum(0), logits[0])


def test_trigrams(model: AttentionOnlyTransformer) -> None:
    with refused("phi='sparsemax'"):
        skip_trigrams(model, "0.1")
    # One token alone gets all the attention, whatever its score.
    alone = maker(SMALL, dtype=torch.float64)(phi="sparsemax", norm=None, positions="qk", n_layers=1)
    with torch.no_grad():
        logits = alone(torch.arange(11)[:, None])[:, 0]
    path, own = direct_path(alone, [(0, 0), (0, 1), (0, 2)]).AB.detach(), logits - logits.mean(1, keepdim=True)
    torch.testing.assert_close(path - path[4], own - own[4])


def test_files_training_and_other_libraries(model: AttentionOnlyTransformer, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "sparse", model, CheckpointInfo(name="sparse"))
    loaded = aotlens.load(tmp_path / "sparse", device="cpu").double()
    torch.testing.assert_close(loaded(small_tokens()), model(small_tokens()), atol=1e-4, rtol=0)
    fields = {name: SMALL[name] for name in ("n_layers", "d_model", "n_heads", "d_head", "n_ctx")}
    stage = {"tokens": 64, "sequence_length": 8}
    assert Recipe.from_dict({"name": "s", "model": fields | {"phi": "sparsemax"}, "stages": [stage]})
    with refused("phi='thresholded_softmax'", "trained"):
        thresholded = fields | {"phi": "thresholded_softmax", "threshold": 0.5}
        Recipe.from_dict({"name": "s", "model": thresholded, "stages": [stage]})
    with pytest.raises(ValueError, match="phi='sparsemax'"):
        to_transformer_lens(model)
    with refused("query 1", "head 0"):
        mask = torch.eye(8, dtype=torch.bool)
        mask[1] = False
        ModelConfig(**SMALL, phi="sparsemax", attn_mask=mask[None])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"phi": "sparsemax"}, None),
        ({"phi": "linear"}, "Rows of its attention patterns don't sum to 1; paths carry them as they are."),
        ({"phi": "fixed", "fixed_pattern": "random"}, "Its attention patterns are fixed"),
    ],
)
def test_the_apps_sentences(registered: None, fields: dict, sentence: str | None) -> None:
    from aotlens.views.paths import PathsParameters, notes
    from app.pages.checkpoints.service import row_of

    model = maker(SMALL)(**fields)
    assert notes(PathsParameters(checkpoint="m", model=model.cfg.to_dict())).startswith(sentence or "")
    info = CheckpointInfo(name="m", model=model.cfg.to_dict())
    assert row_of(info)["kind"] == f"mhsa, {fields['phi']}"


#: The papers' experiments on two named kinds of attention (Eqs. 11 and 12; thresholded or not), not on any φ.
NAME_TWO_KINDS = {"denoise", "denoising", "subspaces"}


def test_nothing_else_asks_a_phi_for_its_name() -> None:
    wrong = []
    for path in sorted([*ROOT.glob("aotlens/**/*.py"), *ROOT.glob("app/**/*.py")]):
        if path.name == "phi.py" or {path.parent.name, path.stem} & NAME_TWO_KINDS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            compared = (
                isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "phi"
            )
            listed = isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Subscript)
            names = {child.value for child in ast.walk(node) if isinstance(child, ast.Constant)} if listed else set()
            if compared or len(names & PHIS.keys()) > 1 or "thresholded_softmax" in names:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, wrong
