"""One logit by number of heads, by head and by source, and without one of them: against all its paths, one by one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotlens.paths import Path, PathExpansion, effect_without, expand
from tests.paths.conftest import MLPS
from tests.small_models import MakeModel

AT, TARGET = 3, (5, 2)


@pytest.fixture
def expansion(make: MakeModel, tokens: Tensor) -> PathExpansion:
    return expand(make(**MLPS["three layers, mlps"], bias=True, positions="learned"), tokens, split_sources=True)


def every_value(expansion: PathExpansion) -> dict[Path, float]:
    """Each path's contribution to the difference of two logits, made alone."""
    logits = {path: expansion.logits(path)[AT] for path in expansion.paths()}
    return {path: float(each[TARGET[0]] - each[TARGET[1]]) for path, each in logits.items()}


def test_every_table_is_of_all_paths_one_by_one(expansion: PathExpansion):
    values = every_value(expansion)
    orders = expansion.logit_by_order(AT, TARGET)
    assert sum(orders.counts) == len(values) and abs(orders.error) < 1e-9 and orders.unit == "logits of difference"
    for row in orders.to_frame().itertuples():
        same_order = [value for path, value in values.items() if path.order == row.heads]
        assert (row.paths, row.logits) == (len(same_order), pytest.approx(sum(same_order), abs=1e-9))

    for row in expansion.logit_by_head(AT, TARGET).to_frame().itertuples():
        head = tuple(map(int, row.head.split(".")))
        passing = {path: value for path, value in values.items() if head in path.heads}
        last = sum(value for path, value in passing.items() if path.heads[-1] == head)
        assert row.through == pytest.approx(sum(passing.values()), abs=1e-9)
        assert row.direct == pytest.approx(last, abs=1e-9)
        assert row.later == pytest.approx(row.through - last, abs=1e-9)

    sources = expansion.logit_by_source(AT, TARGET)
    for row in sources.to_frame().to_dict("records"):
        for name in sources.names:
            here = (
                v for path, v in values.items() if (path.start, path.source_position) == (name, row["source_position"])
            )
            assert row[name] == pytest.approx(sum(here), abs=1e-9), name
    assert sources.of_tokens.sum() + sources.of_biases == pytest.approx(sources.logit)
    assert sources.probability == pytest.approx(float(expansion.frozen.logits[AT].softmax(-1)[TARGET[0]]))
    assert sources.residual.within_tolerance


def test_an_effect_is_what_the_model_without_it_says(expansion: PathExpansion):
    model = expansion.model

    def silence(z: Tensor, hook: object) -> Tensor:
        z[:, :, 1] = 0
        return z

    run = model.run_with_hooks(expansion.inputs, fwd_hooks=[("blocks.0.attn.hook_z", silence)])[0, AT]
    effect = effect_without(expansion, "0.1", AT, TARGET)
    frame = effect.to_frame().set_index("quantity")
    assert effect.without == "head 0.1" and list(frame.index) == ["logit", "probability", "loss", "mean_loss"]
    assert frame.loc["logit", "forward"] == pytest.approx(float(run[TARGET[0]] - run[TARGET[1]]))
    assert effect.after[0] == (f"output {int(run.argmax())}", pytest.approx(float(run.softmax(-1).max())))
    path, value = max(every_value(expansion).items(), key=lambda each: abs(each[1]))
    logit = effect_without(expansion, Path.named(path.key), AT, TARGET).to_frame().set_index("quantity").loc["logit"]
    assert logit.clean - logit.linear == pytest.approx(value)
    with pytest.raises(ValueError, match="position"):
        effect_without(expansion, "0.1", 40, TARGET)


def test_a_path_comes_back_from_its_key(expansion: PathExpansion):
    for path in expansion.paths(max_order=2):
        assert Path.named(path.key) == path
    for other in ("1.0", "tokens@1", "token@1-", "token@1-0.1-", "", "token@x"):
        with pytest.raises(ValueError, match="expected where it starts"):
            Path.named(other)


def test_a_flow_names_its_nodes(expansion: PathExpansion):
    flow = expansion.sankey(AT, TARGET, max_links=10_000)
    frame = flow.to_frame()
    assert set(frame["to"]) >= {flow.end, "2.1"} and {"MLP 0", "biases", "@1"} <= set(frame["from"])
    assert torch.tensor(frame[frame["to"] == flow.end]["logits"].to_numpy()).sum() == pytest.approx(
        expansion.logit(AT, TARGET)
    )
