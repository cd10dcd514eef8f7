"""Old checkpoints, written here as the old library wrote them, against its forward pass written out."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.interop import open_external
from tests.messages import refused


def load_legacy(source: Any, **options: Any) -> Any:
    """The model alone."""
    return open_external(source, **options).model


SIZES = {"n_layers": 2, "d_model": 6, "d_head": 4, "n_heads": 2, "n_ctx": 7, "d_vocab": 9}
TOKENS = torch.tensor([[3, 1, 4, 1, 5], [0, 8, 2, 6, 7]])


def unsaid(**more: Any) -> dict[str, Any]:
    """What a state dict of `legacy_state` does not tell of itself, in TransformerLens's words, and `more`."""
    return {"positional_embedding_type": "standard", "attention_dir": "causal", **more}


def legacy_state(norm: str | None, d_mlp: int | None = None) -> dict[str, Tensor]:
    """A state dict with every tensor that an old attention-only model had, buffers included."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return 0.5 * torch.randn(*shape, generator=generator)

    state = {"embed.W_E": draw(9, 6), "pos_embed.W_pos": draw(7, 6), "unembed.W_U": draw(6, 9)}
    state["unembed.b_U"] = draw(9)
    if norm == "LN":
        state |= {"ln_final.w": 1 + draw(6), "ln_final.b": draw(6)}
    for layer in range(2):
        block = f"blocks.{layer}"
        state |= {f"{block}.attn.W_{name}": draw(2, 6, 4) for name in "QKV"}
        state |= {f"{block}.attn.b_{name}": draw(2, 4) for name in "QKV"}
        state |= {f"{block}.attn.W_O": draw(2, 4, 6), f"{block}.attn.b_O": draw(6)}
        state[f"{block}.attn.mask"] = torch.ones(7, 7, dtype=torch.bool).tril()
        state[f"{block}.attn.IGNORE"] = torch.tensor(-1e5)
        if norm == "LN":
            state |= {f"{block}.ln1.w": 1 + draw(6), f"{block}.ln1.b": draw(6)}
        if d_mlp is not None:
            state |= {f"{block}.mlp.W_in": draw(6, d_mlp), f"{block}.mlp.b_in": draw(d_mlp)}
            state |= {f"{block}.mlp.W_out": draw(d_mlp, 6), f"{block}.mlp.b_out": draw(6)}
            if norm == "LN":
                state |= {f"{block}.ln2.w": 1 + draw(6), f"{block}.ln2.b": draw(6)}
    return state


def legacy_logits(
    state: dict[str, Tensor], tokens: Tensor, *, norm: str | None, shortformer: bool, divisor: float = 2.0
) -> Tensor:
    """The old forward pass: shortformer positions join queries and keys after the norm, not values."""

    def normalise(x: Tensor, name: str) -> Tensor:
        if norm is None:
            return x
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        return x * state[f"{name}.w"] + state[f"{name}.b"] if norm == "LN" else x

    positions = state["pos_embed.W_pos"][: tokens.shape[1]]
    residual = state["embed.W_E"][tokens] + (0 if shortformer else positions)
    for layer in range(2):
        x = normalise(residual, f"blocks.{layer}.ln1")
        query_input = key_input = x + positions if shortformer else x
        part = {name.rsplit(".", 1)[-1]: t for name, t in state.items() if name.startswith(f"blocks.{layer}.attn.")}
        q = torch.einsum("bpm,hmd->bphd", query_input, part["W_Q"]) + part["b_Q"]
        k = torch.einsum("bpm,hmd->bphd", key_input, part["W_K"]) + part["b_K"]
        v = torch.einsum("bpm,hmd->bphd", x, part["W_V"]) + part["b_V"]
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / divisor
        n = tokens.shape[1]
        scores = torch.where(part["mask"][:n, :n], scores, part["IGNORE"])
        z = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        residual = residual + torch.einsum("bqhd,hdm->bqm", z, part["W_O"]) + part["b_O"]
        if f"blocks.{layer}.mlp.W_in" in state:
            mlp = {name: state[f"blocks.{layer}.mlp.{name}"] for name in ("W_in", "b_in", "W_out", "b_out")}
            pre = normalise(residual, f"blocks.{layer}.ln2") @ mlp["W_in"] + mlp["b_in"]
            residual = residual + torch.relu(pre) @ mlp["W_out"] + mlp["b_out"]
    return normalise(residual, "ln_final") @ state["unembed.W_U"] + state["unembed.b_U"]


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(state, **config)`: a folder as it was published."""

    def write(state: Any, name: str = "model_final.pth", **config: Any) -> Path:
        norm = {} if "normalization_type" in config else {"normalization": "LN"}
        published = {**SIZES, "attn_only": True, "act_fn": "solu_ln", "lr": 1e-3, **norm, **config}
        (tmp_path / "config.json").write_text(json.dumps(published))
        torch.save(state, tmp_path / name)
        return tmp_path

    return write


@torch.no_grad()
@pytest.mark.parametrize("shortformer", [True, False])
@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
def test_logits_are_the_old_librarys(write, norm, shortformer):
    state = legacy_state(norm)
    model = load_legacy(write(state, normalization=norm, shortformer_pos=shortformer), device="cpu")
    expected = legacy_logits(state, TOKENS, norm=norm, shortformer=shortformer)
    torch.testing.assert_close(model(TOKENS), expected, rtol=1e-5, atol=1e-5)
    assert model.cfg.positions == ("qk" if shortformer else "learned") and model.cfg.attn_only
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    assert model.tokenizer is None


@torch.no_grad()
def test_the_later_spelling_of_the_configuration(write):
    """As `HookedTransformerConfig.to_dict` wrote it: a divisor for scores, -1 for what is not set."""
    state = legacy_state("LN")
    folder = write(
        state, normalization_type="LN", positional_embedding_type="shortformer", attn_scale=1.5, d_mlp=-1,
        d_vocab_out=9, n_heads=2, use_attn_scale=True, final_rms=False, eps=1e-5, n_params=17, seed=None,
        attention_dir="causal", gated_mlp=False, parallel_attn_mlp=False, attn_scores_soft_cap=-1.0,
    )  # fmt: skip
    model = load_legacy(folder, device="cpu")
    expected = legacy_logits(state, TOKENS, norm="LN", shortformer=True, divisor=1.5)
    torch.testing.assert_close(model(TOKENS), expected, rtol=1e-5, atol=1e-5)
    unscaled = load_legacy(write(state, use_attn_scale=False), device="cpu")
    expected = legacy_logits(state, TOKENS, norm="LN", shortformer=False, divisor=1.0)
    torch.testing.assert_close(unscaled(TOKENS), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_models_with_mlps(write):
    state = legacy_state("LN", d_mlp=5)
    model = load_legacy(write(state, attn_only=False, act_fn="relu", d_mlp=5), device="cpu")
    expected = legacy_logits(state, TOKENS, norm="LN", shortformer=False)
    torch.testing.assert_close(model(TOKENS), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_missing_biases_are_zero_and_named(write):
    state = legacy_state("LN")
    gone = [name for name in state if name == "unembed.b_U" or "b_Q" in name]
    complete = {name: torch.zeros_like(t) if name in gone else t for name, t in state.items()}
    partial = {name: t for name, t in state.items() if name not in gone}
    missing = "without blocks.0.attn.b_Q, blocks.1.attn.b_Q, unembed.b_U: read as zero"
    with pytest.warns(UserWarning, match=missing):
        model = load_legacy(write(partial), device="cpu")
    expected = legacy_logits(complete, TOKENS, norm="LN", shortformer=False)
    torch.testing.assert_close(model(TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_no_biases_at_all(write):
    state = {name: t for name, t in legacy_state("LN").items() if not name.rsplit(".", 1)[-1].startswith("b_")}
    model = load_legacy(write(state), device="cpu")
    assert not model.cfg.bias and not model.b_Q.any()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"final_rms": True}, "final_rms=True"),
        ({"normalization": "RMS"}, "normalization_type='RMS'"),
        ({"positional_embedding_type": "rotary"}, "positional_embedding_type='rotary'"),
        ({"gated_mlp": True, "use_local_attn": True}, "gated_mlp=True; use_local_attn=True"),
        ({"attention_dir": "sideways"}, "attention_dir='sideways'"),
        ({"n_key_value_heads": 1}, "n_key_value_heads=1 for 2 heads"),
        ({"architecture": "mingpt"}, "architecture='mingpt'"),
    ],
)
def test_configurations_outside_the_family(write, config, message):
    with pytest.raises(ValueError, match=rf"model_final.pth: outside the family of aotlens models: {message}\."):
        load_legacy(write(legacy_state("LN"), **config))


def test_configurations_that_cannot_be_read(write, tmp_path):
    folder = write(legacy_state("LN"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_layers": 0}))
    with refused("model_final.pth", "n_layers=0", "whole number"):
        load_legacy(folder)
    (folder / "config.json").write_text(json.dumps({**config, "d_vocab_out": 4}))
    with pytest.raises(ValueError, match=r"unembed.W_U: expected \[6, 4\], found \[6, 9\]"):
        load_legacy(folder)
    unsaid = {k: v for k, v in config.items() if k not in ("normalization", "d_head")}  # their shapes tell
    (folder / "config.json").write_text(json.dumps(unsaid))
    assert load_legacy(folder).cfg.norm == "layernorm"
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json: expected JSON"):
        load_legacy(folder)
    (folder / "config.json").write_text("[]")
    with refused("config.json", "JSON object", "list"):
        load_legacy(folder)


def change(name: str, tensor: Tensor | None) -> dict[str, Tensor]:
    state = {**legacy_state("LN"), name: tensor}
    return {key: value for key, value in state.items() if value is not None}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            change("blocks.0.attn.W_rot", torch.ones(2)),
            "unknown tensors blocks.0.attn.W_rot. Does the config",
        ),
        (change("blocks.2.attn.W_Q", torch.ones(2, 6, 4)), "unknown tensors blocks.2.attn.W_Q"),
        (change("blocks.1.attn.W_K", None), r"missing tensors blocks.1.attn.W_K; found blocks.0.attn.IGNORE, "),
        (
            change("ln_final.w", None),
            "missing tensors ln_final.w; found .* Folded norms are normalization_type 'LNPre'",
        ),
        (change("embed.W_E", torch.ones(9, 5)), r"embed.W_E: expected \[9, 6\], found \[9, 5\]"),
        (change("unembed.b_U", torch.full((9,), math.nan)), "unembed.b_U holds numbers that are not finite"),
        ([torch.ones(1)], r"looked for named tensors, found a list\. Load it where it comes from"),
    ],
)
def test_weights_that_do_not_fit(write, state, message):
    with pytest.raises(ValueError, match=f"model_final.pth: {message}"):
        load_legacy(write(state))


class Payload:
    """What `torch.load` without weights_only would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("executed",))


def test_code_in_a_pickle_is_not_executed(write, capsys):
    folder = write(legacy_state("LN"))
    torch.save({"embed.W_E": Payload()}, folder / "model_final.pth")
    with refused("pickled program", "builtins.print", "nothing"):
        load_legacy(folder)
    (folder / "model_final.pth").write_bytes(b"PK\x03\x04 cut off")
    with refused("model_final.pth", "damaged", "zip"):
        load_legacy(folder)
    assert "executed" not in capsys.readouterr().out


def test_which_file_holds_the_weights(write):
    write(legacy_state("LN"), name="checkpoint_1.pth")
    assert load_legacy(write(legacy_state("LN"), name="only_final.pth")).cfg.n_layers == 2
    folder = write(legacy_state("LN"), name="another_final.pth")
    with refused("another_final.pth, only_final.pth", "weights="):
        load_legacy(folder)
    assert load_legacy(folder, weights="checkpoint_1.pth").cfg.n_layers == 2
    with pytest.raises(ValueError, match=r"checkpoint_2.pth: not found"):
        load_legacy(folder, weights="checkpoint_2.pth")
    for path in folder.glob("*.pth"):
        path.unlink()
    with refused("aotlens checkpoint", "config.json"):
        load_legacy(folder)


def test_a_tokenizer_beside_the_weights(write, tokenizer: Tokenizer):
    state = {**legacy_state("LN"), "embed.W_E": torch.ones(270, 6), "unembed.W_U": torch.ones(6, 270)}
    folder = write({**state, "unembed.b_U": torch.ones(270)}, d_vocab=270)
    tokenizer.save(folder / "tokenizer.json")
    model = load_legacy(folder, device="cpu")
    assert model("the cat").shape == (1, 1 + len(tokenizer.encode("the cat")), 270)
    with pytest.warns(UserWarning, match=r"without a tokenizer: .*expected at most 9 tokens, found 270"):
        assert load_legacy(write(legacy_state("LN"))).tokenizer is None
    (folder / "tokenizer.json").write_text("{}")
    with pytest.warns(UserWarning, match="without a tokenizer"):
        assert load_legacy(folder).tokenizer is None


def test_repositories_are_downloaded(write, tokenizer: Tokenizer, monkeypatch, tmp_path_factory):
    """Only what is needed, and the tokenizer from the repository that the configuration names."""
    state = {**legacy_state("LN"), "embed.W_E": torch.ones(270, 6), "unembed.W_U": torch.ones(6, 270)}
    folder = write({**state, "unembed.b_U": torch.ones(270)}, d_vocab=270, tokenizer_name="someone/digits")
    tokenizer_folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(tokenizer_folder / "tokenizer.json")
    asked = []

    def snapshot_download(repo: str, *, allow_patterns: list[str], revision: str | None) -> str:
        asked.append((repo, allow_patterns))
        return str(tokenizer_folder if repo == "someone/digits" else folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    model = load_legacy("hf:someone/Attn_Only_2L")
    assert model.tokenizer.to_json() == tokenizer.to_json()
    assert [repo for repo, _ in asked] == ["someone/Attn_Only_2L"] * 3 + ["someone/digits"]
    kinds = [{pattern for pattern in patterns if "tok" not in pattern} for _, patterns in asked]
    assert kinds[0] - kinds[1] == {"model.safetensors", "model.safetensors.index.json", "model-*.safetensors"}
    assert kinds[2] - kinds[1] == {"*final.pth", "ckpt.pt"} and asked[3][1] == ["tokenizer.json"]
    load_legacy("hf:someone/Attn_Only_2L", weights="model_final.pth")
    assert asked[4][1][-1] == "model_final.pth"


def test_what_cannot_be_found(monkeypatch, tmp_path):
    def offline(repo: str, *, allow_patterns: list[str], revision: str | None) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with refused("hf:someone/model", "no route to host"):
        load_legacy("hf:someone/model")
    with refused("nowhere", "nothing"):
        load_legacy(tmp_path / "nowhere")


@pytest.mark.filterwarnings("ignore:.*the file does not state")
def test_what_a_script_keeps_beside_the_weights_does_not_matter(tmp_path: Path) -> None:
    log = defaultdict(list, loss=[2.5, 2.25])
    torch.save({"model": legacy_state("LN"), "log": log}, tmp_path / "kept.pth")
    said = {"positional_embedding_type": "standard", "attention_dir": "causal"}
    assert load_legacy(tmp_path / "kept.pth", device="cpu", config=said).cfg.norm == "layernorm"
