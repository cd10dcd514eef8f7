"""QK and OV circuits against the model's own forward pass, and against dense products written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch

from aotlens.circuits import Circuit, FactoredMatrix, copying_rate, ov_circuit, qk_circuit, sum_of_circuits
from aotlens.models import AttentionOnlyTransformer
from tests.messages import refused
from tests.small_models import MakeModel

TOKENS = torch.randint(11, (1, 7), generator=torch.Generator().manual_seed(1))
FAMILY = [
    {"attention": attention, "norm": norm, "positions": positions, "bias": bias}
    for attention, norm, positions, bias in product(
        ("mhsa", "mssa"), ("layernorm", None), ("learned", "qk", None), (True, False)
    )
]


def names(fields: dict[str, object]) -> str:
    return "-".join(str(value) for value in fields.values())


@pytest.mark.parametrize("fields", FAMILY, ids=names)
def test_the_sides_of_qk_add_up_to_the_models_scores(make: MakeModel, fields: dict[str, object]) -> None:
    model = make(**fields, causal=False)
    _, cache = model.run_with_cache(TOKENS, return_cache_object=fields["bias"])
    scores = [cache[f"blocks.{layer}.attn.hook_attn_scores"] for layer in range(2)]
    sides = ["prompt", "bias"] + ["positions"] * (fields["positions"] == "qk")
    for layer, head in product(range(2), range(3)):
        total = torch.zeros(7, 7, dtype=torch.float64)
        for left, right in product(sides, sides):
            circuit = qk_circuit(model, (layer, head), left, right, frozen=cache)
            assert circuit.exact
            part = circuit.AB
            rows = part[:7] if left == "positions" else part
            total = total + (rows[:, :7] if right == "positions" else rows)  # a bias is one row: it broadcasts
        torch.testing.assert_close(total, scores[layer][0, head])


@pytest.mark.parametrize("fields", FAMILY, ids=names)
def test_ov_of_the_prompt_and_the_bias_is_what_the_head_writes(make: MakeModel, fields: dict[str, object]) -> None:
    model = make(**fields)
    _, cache = model.run_with_cache(TOKENS, names_filter=lambda name: True)
    for layer, head in product(range(2), range(3)):
        pattern, result = cache["pattern", layer][0, head], cache["result", layer][0, :, head]
        written = ov_circuit(model, (layer, head), "prompt", "residual", frozen=cache)
        constant = ov_circuit(model, (layer, head), "bias", "residual").AB
        torch.testing.assert_close(pattern @ (written.AB + constant), result)
        # Through the final norm with its scale frozen, the same in logits.
        logits = pattern @ ov_circuit(model, (layer, head), "prompt", frozen=cache).AB
        logits = logits + pattern.sum(-1, keepdim=True) * ov_circuit(model, (layer, head), "bias").AB
        if fields["norm"]:
            centred = result - result.mean(-1, keepdim=True)
            expected = centred * model.ln_final.w @ model.W_U
        else:
            expected = result @ model.W_U
        torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("norm", ["layernorm", None])
@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_layer_0_tokens_are_exact_where_a_token_is_alone_in_the_stream(
    make: MakeModel, norm: str, attention: str
) -> None:
    model = make(norm=norm, positions="qk", attention=attention, bias=True, causal=False)
    _, cache = model.run_with_cache(TOKENS)
    ids = TOKENS[0]
    tokens = qk_circuit(model, (0, 1), biases=True)
    places = [qk_circuit(model, (0, 1), *sides) for sides in (("positions", "positions"),)]
    mixed = qk_circuit(model, (0, 1), "positions", "tokens", biases=True).AB[:7][:, ids]
    mixed = mixed + qk_circuit(model, (0, 1), "tokens", "positions", biases=True).AB[ids][:, :7]
    # Each of the three with biases holds bias×bias once, and the mixed ones the biases' cross terms again.
    q_b, k_b = (qk_circuit(model, (0, 1), *s).AB for s in (("bias", "tokens"), ("tokens", "bias")))
    both = qk_circuit(model, (0, 1), "bias", "bias").AB
    scores = tokens.AB[ids][:, ids] + places[0].AB[:7, :7] + mixed - q_b[:, ids] - k_b[ids] - 2 * both
    torch.testing.assert_close(scores, cache["attn_scores", 0][0, 1])
    assert tokens.exact and tokens.unit == "nats" and isinstance(tokens, FactoredMatrix)


@pytest.mark.parametrize(
    ("fields", "layer", "sides", "exact"),
    [
        ({"positions": "qk"}, 0, ("tokens", "tokens"), True),
        ({"positions": None}, 0, ("tokens", "tokens"), True),
        ({"positions": "learned"}, 0, ("tokens", "tokens"), False),
        ({"positions": "qk"}, 1, ("tokens", "tokens"), False),
        ({"positions": "qk"}, 1, ("positions", "bias"), True),
        ({"positions": "learned"}, 0, ("positions", "positions"), False),
        ({"positions": "qk"}, 0, ("residual", "tokens"), False),
        ({"positions": "qk"}, 1, ((0, 1), "positions"), False),
        ({"positions": "learned", "norm": None}, 1, ("tokens", (0, 2)), True),
        ({"positions": "learned", "norm": None}, 1, ("residual", "positions"), True),
    ],
)
def test_a_circuit_says_whether_it_is_exact(
    make: MakeModel, fields: dict[str, object], layer: int, sides: tuple[object, object], exact: bool
) -> None:
    circuit = qk_circuit(make(**fields), (layer, 0), *sides)
    assert circuit.exact == exact == (circuit.relative == "")
    assert ("exact" in repr(circuit)) == exact


def dense_reader(model: AttentionOnlyTransformer, w: torch.Tensor | None) -> torch.Tensor:
    """Centring and gain, as a d_model × d_model matrix."""
    eye = torch.eye(12, dtype=torch.float64)
    return eye if w is None else (eye - 1 / 12) @ torch.diag(w)


@pytest.mark.parametrize("norm", ["layernorm", None])
def test_another_heads_output_or_input_is_a_side(make: MakeModel, norm: str | None) -> None:
    model = make(norm=norm, bias=True)
    first, second, last = (
        dense_reader(model, w) for w in ([b.ln1.w for b in model.blocks] + [model.ln_final.w] if norm else [None] * 3)
    )
    tokens = model.W_E
    if norm:
        tokens = (tokens - tokens.mean(1, keepdim=True)) / (tokens.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        tokens = tokens @ torch.diag(model.blocks[0].ln1.w)
        assert not torch.allclose(first, second)
    moved = tokens @ model.W_V[0, 2] @ model.W_O[0, 2]
    # What 1.1 looks for in what 0.2 and 0.0 write.
    other = tokens @ model.W_V[0, 0] @ model.W_O[0, 0]
    expected = moved @ second @ model.W_Q[1, 1] @ model.W_K[1, 1].T @ (other @ second).T / 5**0.5
    torch.testing.assert_close(qk_circuit(model, (1, 1), (0, 2), (0, 0)).AB, expected)
    # The virtual head 0.2 then 1.1, from either end.
    virtual = moved @ second @ model.W_V[1, 1] @ model.W_O[1, 1] @ last @ model.W_U
    torch.testing.assert_close(ov_circuit(model, (0, 2), right=(1, 1)).AB, virtual)
    torch.testing.assert_close(ov_circuit(model, (1, 1), left=(0, 2)).AB, virtual)


def test_the_scale_of_scores_is_the_models(make: MakeModel) -> None:
    plain, scaled = make(norm=None, positions=None), make(norm=None, positions=None, attn_scale=1.0)
    torch.testing.assert_close(qk_circuit(plain, (1, 2)).AB * 5**0.5, qk_circuit(scaled, (1, 2)).AB)


def test_a_heads_circuits_copy_no_other_heads_weights(make: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """All heads in turn would otherwise copy all weights each time: (L·H)² of them."""
    model = make()
    expected = ov_circuit(model, (1, 2), (0, 1)).AB, qk_circuit(model, (1, 2)).AB

    def stack(*arguments: object) -> None:
        raise AssertionError(f"weights of all heads were copied: {arguments}")

    monkeypatch.setattr(type(model), "_stack", stack)
    assert torch.equal(ov_circuit(model, (1, 2), (0, 1)).AB, expected[0])
    assert torch.equal(qk_circuit(model, (1, 2)).AB, expected[1])


def test_rows_are_destinations_and_sources(make: MakeModel) -> None:
    """An asymmetric model, so that a transpose cannot hide: only token 3 looks for token 7, which writes token 9."""
    model = make(norm=None, positions=None, d_vocab=12, n_layers=1, d_model=12, n_heads=1, d_head=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(torch.eye(12))
        model.unembed.W_U.copy_(torch.eye(12))
        attn = model.blocks[0].attn
        attn.W_Q[0, 3], attn.W_K[0, 7], attn.W_V[0, 7], attn.W_O[0, 0, 9] = 2.0, 3.0, 5.0, 7.0
    qk, ov = qk_circuit(model, (0, 0)), ov_circuit(model, (0, 0))
    assert qk.AB.nonzero().tolist() == [[3, 7]] and qk.AB[3, 7] == 6.0
    assert ov.AB.nonzero().tolist() == [[7, 9]] and ov.AB[7, 9] == 35.0
    assert qk.T.AB[7, 3] == 6.0 and qk.T.left == qk.right
    written = ov_circuit(model, (0, 0), right="residual")
    assert (written.unit, written.T.unit, ov.T.unit) == ("residual stream", "residual stream", "logits")
    assert ov_circuit(model, (0, 0), left="residual").T.unit == "logits"
    assert qk.entries(torch.tensor([3, 7]), torch.tensor([7, 3])).tolist() == [6.0, 0.0]


def test_a_sum_of_heads_is_one_circuit(make: MakeModel) -> None:
    model = make()
    parts = [ov_circuit(model, (1, head)) for head in range(3)]
    total = sum_of_circuits(parts)
    torch.testing.assert_close(total.AB, sum(part.AB for part in parts))
    assert total.heads == ((1, 0), (1, 1), (1, 2)) and total.A.shape[1] == 15
    with pytest.raises(ValueError, match="same kind and sides"):
        sum_of_circuits([parts[0], qk_circuit(model, (0, 0))])
    with pytest.raises(ValueError, match="at least one"):
        sum_of_circuits([])


def test_the_mlp_baseline_and_classifiers_have_circuits_too(make: MakeModel) -> None:
    model = make(d_mlp=7)
    assert tuple(qk_circuit(model, (1, 0)).shape) == (11, 11)
    patches = make(
        read_in="patches", read_out="classes", d_vocab=None, image_size=4, patch_size=2, d_out=6, causal=False, n_ctx=4
    )
    out = ov_circuit(patches, (1, 0), "residual")
    assert tuple(out.shape) == (12, 6) and out.right.index == "class" and out.unit == "logits"
    with pytest.raises(ValueError, match="W_E: this model reads patches"):
        qk_circuit(patches, (0, 0))


def test_a_mean_over_positions_is_not_exact(make: MakeModel) -> None:
    fields = {"read_in": "patches", "read_out": "classes", "d_vocab": None, "image_size": 4, "patch_size": 2}
    for pooling, exact in (("first", True), ("mean", False)):
        model = make(**fields, d_out=6, causal=False, n_ctx=4, norm=None, pooling=pooling)
        assert ov_circuit(model, (0, 0), "residual").exact == exact


def test_a_model_that_writes_vectors_has_no_logits(make: MakeModel) -> None:
    model = make(read_out="vectors", d_out=11)
    with pytest.raises(ValueError, match="writes vectors, not logits"):
        ov_circuit(model, (0, 0))
    assert tuple(ov_circuit(model, (0, 0), right="residual").shape) == (11, 12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: qk_circuit(m, (2, 0)), "head 2.0: this model has layers 0 to 1"),
        (lambda m: qk_circuit(m, (0, -1)), "head 0.-1"),
        (lambda m: qk_circuit(m, (0, 0), "words"), "side 'words': expected one of tokens"),
        (lambda m: qk_circuit(m, (0, 0), "prompt"), "give frozen=cache"),
        (lambda m: qk_circuit(m, (1, 0), (1, 1)), "a layer before 1"),
        (lambda m: ov_circuit(m, (1, 0), right=(0, 1)), "a layer after 1"),
        (lambda m: ov_circuit(m, (1, 0), right="words"), "side 'words': expected one of logits, residual"),
        (lambda m: ov_circuit(m, (1, 0), left="positions"), "queries and keys only"),
        (lambda m: qk_circuit(m, (1, 0), (5, 1)), "head 5.1"),
    ],
)
def test_what_a_model_does_not_have_is_named(
    make: MakeModel, call: Callable[[AttentionOnlyTransformer], Circuit], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(make(positions="qk"))


def test_a_fixed_pattern_has_no_qk_circuit(make: MakeModel) -> None:
    model = make(phi="fixed", fixed_pattern="random")
    with pytest.raises(ValueError, match="no queries or keys"):
        qk_circuit(model, (0, 0))
    assert tuple(ov_circuit(model, (0, 0)).shape) == (11, 11)


def test_a_cache_must_be_of_one_prompt_and_hold_the_stream(make: MakeModel) -> None:
    model = make()
    _, batch = model.run_with_cache(TOKENS.expand(2, -1))
    with pytest.raises(ValueError, match="a batch of 2"):
        qk_circuit(model, (0, 0), "prompt", frozen=batch)
    _, patterns = model.run_with_cache(TOKENS, names_filter=lambda name: name.endswith("pattern"))
    with pytest.raises(ValueError, match=r"a cache with blocks\.0\.hook_resid_pre"):
        qk_circuit(model, (0, 0), "prompt", frozen=patterns)


def test_what_an_mlp_could_have_changed_is_said_of_every_side(make: MakeModel) -> None:
    model = make(d_mlp=7, norm=None, positions="learned")
    for sides, who in (
        (("tokens", (0, 0)), ["tokens: an MLP", "through 0.0: an MLP stands between"]),
        (("positions", "bias"), ["positions: an MLP"]),
        (("residual", "bias"), []),
    ):
        circuit = qk_circuit(model, (1, 0), *sides)
        assert len(circuit.reasons) == len(who) and circuit.exact == (not who)
        assert all(reason.startswith(start) for reason, start in zip(circuit.reasons, who, strict=True))
        assert circuit.T.reasons == circuit.reasons and all(start in circuit.relative for start in who)
    assert qk_circuit(model, (0, 0), "tokens", "positions").exact
    assert "the MLPs from layer 0 on" in ov_circuit(model, (0, 0)).relative
    assert ov_circuit(model, (0, 0), right="residual").exact
    assert ov_circuit(make(norm=None), (0, 0)).exact
    total = sum_of_circuits([ov_circuit(model, (1, head)) for head in range(2)])
    assert "tokens: an MLP" in total.relative and "logits: the MLPs" in total.relative
    assert copying_rate(model, "1.0").relative == ov_circuit(model, (1, 0)).relative


@pytest.mark.parametrize("norm", ["layernorm", None])
def test_an_mlp_between_is_in_the_prompts_side_and_missing_elsewhere(make: MakeModel, norm: str | None) -> None:
    """The stream before layer 1 less what head 0.0 wrote differs from the tokens by what the MLP made of them."""
    model = make(d_mlp=7, norm=norm, positions=None, bias=True, causal=False)
    _, cache = model.run_with_cache(TOKENS)
    sides = ("prompt", "bias")
    parts = [qk_circuit(model, (1, 0), *pair, frozen=cache) for pair in product(sides, sides)]
    assert all(part.exact for part in parts)
    scores = parts[0].AB + parts[1].AB + parts[2].AB + parts[3].AB
    torch.testing.assert_close(scores, cache["attn_scores", 1][0, 0])
    ids = TOKENS[0]
    assert (qk_circuit(model, (1, 0), biases=True).AB[ids][:, ids] - scores).abs().max() > 0.1


def test_positions_take_the_scale_of_a_prompt(make: MakeModel) -> None:
    """Token and position make up the stream of layer 0, so with the prompt's scale their rows add up to its own."""
    model = make(positions="learned", causal=False)
    _, cache = model.run_with_cache(TOKENS)
    for layer in range(2):
        positions = qk_circuit(model, (layer, 1), "positions", "prompt", frozen=cache)
        assert positions.exact and str(positions.left) == "positions" and tuple(positions.shape) == (7, 7)
        scale = cache[f"blocks.{layer}.ln1.hook_scale"][0]
        bare = qk_circuit(model, (layer, 1), "positions", "bias")
        assert not bare.exact and "cannot be compared with" in bare.relative and "undivided" in str(bare.left)
        divided = qk_circuit(model, (layer, 1), "positions", "bias", frozen=cache)
        torch.testing.assert_close(divided.AB, bare.AB[:7] / scale)
    w = model.blocks[0].ln1.w
    embedded = model.W_E[TOKENS[0]]
    tokens = (embedded - embedded.mean(-1, keepdim=True)) / cache["blocks.0.ln1.hook_scale"][0] * w
    rest = tokens @ model.W_Q[0, 1] @ model.W_K[0, 1].T * model.cfg.score_scale
    stream = cache["resid_pre", 0][0]
    keys = (stream - stream.mean(-1, keepdim=True)) / cache["blocks.0.ln1.hook_scale"][0] * w
    whole = qk_circuit(model, (0, 1), "prompt", "prompt", frozen=cache)
    positions = qk_circuit(model, (0, 1), "positions", "prompt", frozen=cache)
    torch.testing.assert_close(positions.AB + rest @ keys.T, whole.AB)


@pytest.mark.parametrize("norm", ["layernorm", None])
@pytest.mark.parametrize("given", [True, False])
def test_positions_as_an_earlier_head_moves_them(make: MakeModel, norm: str | None, given: bool) -> None:
    model = make(positions="learned", norm=norm, bias=True)
    _, cache = model.run_with_cache(TOKENS)
    side = ("positions", "0.2")
    circuit = qk_circuit(model, (1, 1), "bias", side, frozen=cache if given else None)
    ov = ov_circuit(model, (1, 1), side, "residual", frozen=cache if given else None)
    n = 7 if given and norm else model.cfg.n_ctx
    moved = model.W_pos[:n]
    if norm:
        moved = (moved - moved.mean(-1, keepdim=True)) * model.blocks[0].ln1.w
        moved = moved / cache["blocks.0.ln1.hook_scale"][0] if given else moved
    moved = moved @ model.W_V[0, 2] @ model.W_O[0, 2]
    if norm:
        moved = (moved - moved.mean(-1, keepdim=True)) * model.blocks[1].ln1.w
    own = model.b_Q[1, 1] + (model.blocks[1].ln1.b @ model.W_Q[1, 1] if norm else 0)
    expected = model.cfg.score_scale * (moved @ model.W_K[1, 1]) @ own
    torch.testing.assert_close(circuit.AB[0], expected)
    torch.testing.assert_close(ov.AB, moved @ model.W_V[1, 1] @ model.W_O[1, 1])
    assert str(circuit.right) == "positions through 0.2" + (", undivided" if norm and not given else "")
    assert circuit.exact == (norm is None) and ("divides by the stream's scale" in circuit.relative) == bool(norm)
    assert circuit.labels("right")[3] == "position 3" and circuit.right.through == (0, 2)


def test_positions_that_no_head_moves_are_refused_by_name(make: MakeModel) -> None:
    for positions, why in (("qk", r"positions='qk'"), (None, "has positions=None")):
        with pytest.raises(ValueError, match=rf"side \('positions', \(0, 1\)\): expected a model .* this one .*{why}"):
            qk_circuit(make(positions=positions), (1, 0), ("positions", (0, 1)))
    model = make()
    with pytest.raises(ValueError, match="a layer before 1"):
        qk_circuit(model, (1, 0), ("positions", "1.1"))
    with refused("side ('tokens', '0.1')", "tokens", '("positions", "1.0")'):
        qk_circuit(model, (1, 0), ("tokens", "0.1"))
    with refused("side ('positions', '1.0')", "logits", "residual"):
        ov_circuit(model, (0, 0), right=("positions", "1.0"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fields", [{}, {"norm": None, "attention": "mssa", "positions": "qk"}], ids=names)
def test_half_precision_is_widened_before_it_is_multiplied(
    make: MakeModel, dtype: torch.dtype, fields: dict[str, object]
) -> None:
    half = make(dtype=dtype, bias=True, **fields)
    wide = make(dtype=torch.float64, bias=True, **fields)
    wide.load_state_dict(half.state_dict())
    _, cache = half.run_with_cache(TOKENS, return_cache_object=False)
    frozen = {"frozen": cache}
    for layer, left, right in ((0, "tokens", "positions"), (1, (0, 1), "tokens"), (1, "prompt", "bias")):
        circuits = [qk_circuit(model, (layer, 0), left, right, biases=True, **frozen) for model in (half, wide)]
        assert circuits[0].AB.dtype == torch.float32
        torch.testing.assert_close(circuits[0].AB.double(), circuits[1].AB, rtol=1e-5, atol=1e-5)
    for left, right in (("tokens", "logits"), ("residual", (1, 2)), ("bias", "residual")):
        circuits = [ov_circuit(model, (0, 0), left, right) for model in (half, wide)]
        torch.testing.assert_close(circuits[0].AB.double(), circuits[1].AB, rtol=1e-5, atol=1e-5)
