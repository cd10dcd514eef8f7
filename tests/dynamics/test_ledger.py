"""The ledger against a closed form, finite differences of real models, gauges, and sums over all steps of training."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import Run
from aotlens.dynamics import Ledger, ledger
from aotlens.dynamics.ledger import integrate
from aotlens.dynamics.products import Between
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.models.positions import rotation
from tests.cases import mostly_long
from tests.messages import refused

BASE: dict[str, Any] = dict(n_layers=2, d_model=12, n_heads=2, d_head=3, n_ctx=10, d_vocab=17)
KINDS: dict[str, dict[str, Any]] = {
    "mhsa": {"bias": True},
    "mssa": {"attention": "mssa", "bias": True},
    "tied": {"attention": "mssa", "tied_output": True, "step_size": 0.5, "norm": None},
    "qk positions": {"positions": "qk"},
    "rotary": {"positions": "rotary", "norm": "rms", "n_kv_heads": 1, "d_head": 4},
    "rotary MSSA": {"positions": "rotary", "attention": "mssa", "rotary": {"dim": 2}, "bias": True, "d_head": 4},
    "ALiBi": {"positions": "alibi", "d_mlp": 8, "norm": "rms"},
    "mlp": {"d_mlp": 8, "bias": True},
    "tied embeddings": {"tied_embeddings": True, "phi": "linear"},
}


def pair(**more: Any) -> tuple[AttentionOnlyTransformer, AttentionOnlyTransformer]:
    """Two snapshots, in float64, with gains and biases that are not those of a new model."""
    models = []
    for seed in (0, 1):
        model = AttentionOnlyTransformer(ModelConfig(**(BASE | {"seed": seed} | more))).double()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        models.append(model.requires_grad_(False))
    return models[0], models[1]


def tokens(n: int = 5) -> torch.Tensor:
    return torch.randint(17, (n, 10), generator=torch.Generator().manual_seed(3))


class Quadratic:
    """L(t) = ½ tᵀ A t + bᵀ t, of which entry g has ½ (A 1)_g + b_g from 0 to 1."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        half = generator.normal(size=(4, 4))
        self.A, self.b = half + half.T, generator.normal(size=4)

    def loss(self, t: float) -> float:
        place = np.full(4, t)
        return float(0.5 * place @ self.A @ place + self.b @ place)

    def slopes(self, t: float) -> torch.Tensor:
        return torch.from_numpy(self.A @ np.full(4, t) + self.b)


def test_a_quadratic_loss_has_its_closed_form() -> None:
    quadratic = Quadratic()
    expected = 0.5 * quadratic.A.sum(1) + quadratic.b
    np.testing.assert_allclose(integrate(quadratic, n_nodes=1, tolerance=1e-9), expected, atol=1e-12)


def test_stretches_are_halved_where_nodes_do_not_suffice() -> None:
    """A step of the loss, e.g. a phase change, between two snapshots: 0 → 1 around t = .3, 0.01 wide."""

    class Step:
        calls = 0

        def loss(self, t: float) -> float:
            return 1 / (1 + np.exp(-(t - 0.3) / 0.01))

        def slopes(self, t: float) -> torch.Tensor:
            Step.calls += 1
            value = self.loss(t)
            return torch.tensor([value * (1 - value) / 0.01, 0.0], dtype=torch.float64)

    parts = integrate(Step(), n_nodes=5, tolerance=1e-3)
    assert abs(parts[0] - 1) < 1e-3 and parts[1] == 0 and 20 < Step.calls < 150
    assert abs(integrate(Step(), n_nodes=5, tolerance=1e-7)[0] - 1) < 1e-7


def test_a_change_of_nothing_is_not_halved_for_its_rounding() -> None:
    class Alike:
        calls = 0

        def loss(self, t: float) -> float:
            return 5.6 + 1e-15 * (t == 0.5)

        def slopes(self, t: float) -> torch.Tensor:
            Alike.calls += 1
            return torch.tensor([2e-16, -1e-16], dtype=torch.float64)

    parts = integrate(Alike(), n_nodes=3, tolerance=1e-3, rounding=1e-14)
    assert Alike.calls == 3 and np.abs(parts).max() < 1e-15
    model = pair()[0]
    assert ledger([model, model], tokens(), n_nodes=3).n_passes == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_long(KINDS, ("mhsa", "rotary MSSA", "mlp")))
def test_parts_sum_to_the_change_and_slopes_are_finite_differences(kind: str) -> None:
    earlier, later = pair(**KINDS[kind])
    between = Between(earlier, later, tokens(), torch.float64, 2)
    for t, model in ((0.0, earlier), (1.0, later)):
        assert between.loss(t) == pytest.approx(float(model(tokens(), return_type="loss")), abs=1e-12)
    place, step = torch.full((len(between.entries),), 0.37, dtype=torch.float64), 1e-5
    slopes = between.slopes(0.37)
    for entry in range(len(between.entries)):
        shift = torch.zeros_like(place)
        shift[entry] = step
        up, down = (float(between._loss(place + sign * shift, tokens())) for sign in (1, -1))
        assert slopes[entry] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8), between.entries[entry]
    result = ledger([earlier, later], tokens())
    assert abs(result.residuals.sum()) <= 1e-3 * abs(result.change) and result.halved is None
    assert result.change == pytest.approx(between.loss(1.0) - between.loss(0.0), abs=1e-12)
    assert ("positions" in result.entries) == (earlier.cfg.positions == "learned")


@pytest.mark.parametrize(
    "traits",
    [
        {"d_mlp": 8, "gated_mlp": True, "act_fn": "silu"},
        {"d_mlp": 8, "parallel": True, "bias": True},
        {"d_mlp": 8, "norm_place": "output"},
        {"norm_place": "both"},
        {"norm_place": "after"},
        {"final_norm": False},
        {"qk_norm": "head", "norm": "rms"},
        {"qk_norm": "layer", "norm": "rms"},
        {"score_cap": 2.0},
        {"logit_cap": 2.0},
        {"clip_qkv": 0.5},
        {"positions": "rotary", "d_head": 4, "windows": (10, None), "rotary_local": {"base": 10.0}},
    ],
    ids=lambda traits: " ".join(f"{name}={value}" for name, value in traits.items()),
)  # fmt: skip
def test_a_model_that_the_ledger_does_not_describe_is_refused_by_its_configuration(traits: dict[str, Any]) -> None:
    """Where the part that is unknown writes so little that the two losses agree, too."""
    earlier, later = pair(**traits)
    with torch.no_grad():
        for block in (*earlier.blocks, *later.blocks):
            for weight in (block.attn.W_O, *([] if block.mlp is None else [block.mlp.W_out])):
                weight.mul_(1e-6)
    with refused("a ledger", "not defined for this model"):
        ledger([earlier, later], tokens())


def test_traits_that_the_ledger_describes_are_exact() -> None:
    """Every other trait of a configuration at once: the products have the model's own loss."""
    traits: dict[str, Any] = {"qkv_bias": True, "read_out_bias": True, "attn_scale": 0.7, "d_mlp": 8, "act_fn": "relu"}
    slopes = {"positions": "alibi", "windows": (10, None), "alibi_slopes": (0.2, 0.1)}
    for more in (slopes, {"attn_mask": torch.ones(1, 10, 10).tril().bool()}):
        for norm in ({"norm": "rms", "norm_gain_offset": 1.0}, {"norm": None}, {"norm_eps": 0.1}):
            earlier, later = pair(**traits, **more, **norm)
            assert Between(earlier, later, tokens(), torch.float64, 5).loss(1.0) == pytest.approx(
                float(later(tokens(), return_type="loss")), abs=1e-12
            )


def test_between_snapshots_runs_a_model_of_twice_the_width() -> None:
    """The model class itself, with heads of 2 · d_head and the old scale, at t = .37: the same loss."""
    earlier, later = pair(bias=True)
    t = 0.37
    cfg = ModelConfig(**(BASE | {"bias": True, "d_head": 6, "attn_scale": 3**-0.5}))
    wide = AttentionOnlyTransformer(cfg).double().requires_grad_(False)
    for number, block in enumerate(wide.blocks):
        ends = [model.blocks[number] for model in (earlier, later)]
        block.ln1.w.fill_(1)
        block.ln1.b.fill_(0)
        for name in "QKV":
            weights = [end.ln1.w[:, None] * getattr(end.attn, f"W_{name}") for end in ends]
            biases = [end.ln1.b @ getattr(end.attn, f"W_{name}") + getattr(end.attn, f"b_{name}") for end in ends]
            shares = (1, 1) if name == "K" else (1 - t, t)
            getattr(block.attn, f"W_{name}").copy_(torch.cat([s * w for s, w in zip(shares, weights, strict=True)], -1))
            getattr(block.attn, f"b_{name}").copy_(torch.cat([s * b for s, b in zip(shares, biases, strict=True)], -1))
        block.attn.W_O.copy_(torch.cat([end.attn.W_O for end in ends], 1))
        block.attn.b_O.copy_((1 - t) * ends[0].attn.b_O + t * ends[1].attn.b_O)
    wide.ln_final.w.fill_(1)
    wide.ln_final.b.fill_(0)
    for name in ("W_E", "W_pos"):
        getattr(wide, name).copy_((1 - t) * getattr(earlier, name) + t * getattr(later, name))
    for share, model in ((1 - t, earlier), (t, later)):
        if share == 1 - t:
            wide.unembed.W_U.zero_()
            wide.unembed.b_U.zero_()
        wide.unembed.W_U += share * model.ln_final.w[:, None] * model.W_U
        wide.unembed.b_U += share * (model.ln_final.b @ model.W_U + model.b_U)
    expected = float(wide(tokens(), return_type="loss"))
    assert Between(earlier, later, tokens(), torch.float64, 16).loss(t) == pytest.approx(expected, abs=1e-12)


def test_another_factorisation_of_a_snapshot_changes_nothing() -> None:
    """Heads rotated, values mixed, gains moved into the weights: the same model, and the same split to 1e-10."""
    earlier, later = pair(bias=True)
    other = copy.deepcopy(later)
    generator = torch.Generator().manual_seed(5)
    for block in other.blocks:
        attention = block.attn
        for head in range(2):
            R = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
            X = torch.randn(3, 3, generator=generator, dtype=torch.float64)
            for name, matrix in (("Q", R), ("K", R), ("V", X)):
                getattr(attention, f"W_{name}")[head] = getattr(attention, f"W_{name}")[head] @ matrix
                getattr(attention, f"b_{name}")[head] = getattr(attention, f"b_{name}")[head] @ matrix
            attention.W_O[head] = torch.linalg.inv(X) @ attention.W_O[head]
        for name in "QKV":
            attention_weight, scale = getattr(attention, f"W_{name}"), 1.7
            getattr(attention, f"b_{name}").add_(block.ln1.b @ attention_weight)
            attention_weight.copy_(block.ln1.w[:, None] * attention_weight / scale)
        block.ln1.w.fill_(1.7)
        block.ln1.b.fill_(0)
    assert float((other(tokens()) - later(tokens())).abs().max()) < 1e-10
    one, two = (ledger([earlier, end], tokens()) for end in (later, other))
    np.testing.assert_allclose(one.parts, two.parts, atol=1e-10)
    assert np.abs(one.parts).max() > 0.1


@pytest.mark.long
def test_turning_the_pairs_of_a_rotary_head_changes_nothing() -> None:
    earlier, later = pair(positions="rotary", norm="rms", d_head=4)
    other = copy.deepcopy(later)
    turn = rotation(other.cfg, torch.tensor(1.3, dtype=torch.float64))
    for block in other.blocks:
        for weight in (block.attn.W_Q, block.attn.W_K):
            weight.copy_(turn(weight))
    assert float((other(tokens()) - later(tokens())).abs().max()) < 1e-10
    one, two = (ledger([earlier, end], tokens()) for end in (later, other))
    np.testing.assert_allclose(one.parts, two.parts, atol=1e-10)
    assert one.parts.shape[1] == len(one.entries) and "positions" not in one.entries


@pytest.mark.long
def test_many_steps_sum_to_loss_change_allocation() -> None:
    """Every step a snapshot: Σ ∇L(θ) · Δθ at the middle of each step, by the parameters of each entry."""
    torch.manual_seed(0)
    model = AttentionOnlyTransformer(ModelConfig(**(BASE | {"norm": None}))).double()
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    text = tokens(8)
    models = [copy.deepcopy(model).requires_grad_(False)]
    for _ in range(12):
        optimiser.zero_grad()
        model(text, return_type="loss").backward()
        optimiser.step()
        models.append(copy.deepcopy(model).requires_grad_(False))
    expected: dict[str, float] = {}
    for before, after in itertools.pairwise(models):
        middle = copy.deepcopy(before).requires_grad_(True)
        with torch.no_grad():
            for own, end in zip(middle.parameters(), after.parameters(), strict=True):
                own.copy_((own + end) / 2)
        middle(text, return_type="loss").backward()
        moved = {name: after.get_parameter(name) - tensor for name, tensor in before.named_parameters()}
        for name, parameter in middle.named_parameters():
            by_head = parameter.grad * moved[name]
            last = name.rsplit(".", 1)[-1]
            if last in ("W_Q", "W_K", "W_V", "W_O"):
                layer, kind = name.split(".")[1], "QK" if last in ("W_Q", "W_K") else "OV"
                for head in range(2):
                    key = f"{layer}.{head} {kind}"
                    expected[key] = expected.get(key, 0) + float(by_head[head].sum())
            else:
                key = {"W_E": "embedding", "W_pos": "positions", "W_U": "read-out"}[last]
                expected[key] = expected.get(key, 0) + float(by_head.sum())
    result = ledger(models, text)
    assert result.change < -0.3
    for entry in result.entries:
        assert result[entry] == pytest.approx(expected[entry], abs=0.005 * abs(result.change)), entry
    assert result.halved is not None and 0 < result.halved < 0.05


@pytest.mark.slow
def test_a_ledger_of_a_run(run: Run, tokens: torch.Tensor, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    result = ledger(run, tokens, start=1, end=10, progress=lambda *at: seen.append(at))
    assert result.steps.tolist() == [1, 4, 10] and seen == [(1, 3), (2, 3), (3, 3)]
    losses = [float(run[step](tokens, return_type="loss")) for step in (1, 4, 10)]
    np.testing.assert_allclose(result.losses, losses, rtol=1e-5)
    one = ledger(run, tokens, start=1, end=4)
    assert one["1.0 OV"] == pytest.approx(result.parts[0][result.entries.index("1.0 OV")])
    assert "residual" in repr(result) and "every second step" in repr(result)
    frame = result.to_frame()
    assert frame.nats.sum() == pytest.approx(result.change) and "residual" in {*frame.entry}
    result.save(tmp_path / "ledger.safetensors")
    np.testing.assert_array_equal(aotlens.results.load(tmp_path / "ledger.safetensors", Ledger).parts, result.parts)
    figure = aotlens.plot(result)
    assert len(figure.data) >= len(result.entries)
    with refused("two snapshots", "got 1 of 4"):
        ledger(run, tokens, start=10)
    with refused("'2.0 QK'", "1.0 QK"):
        result["2.0 QK"]
    with refused("one model", "d_head"):
        ledger([pair()[0], AttentionOnlyTransformer(ModelConfig(**(BASE | {"d_head": 4}))).double()], tokens)
    with refused("next token", "fixed"):
        ledger([*pair(phi="fixed", fixed_pattern="random", positions="learned")], tokens)
