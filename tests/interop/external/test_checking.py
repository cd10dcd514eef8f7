"""A map that fits in shape can open another model: logits of the source tell, and so do signs of norms after layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

import aotlens
from aotlens.checkpoints import CheckpointError, import_external, read_check
from aotlens.interop import Comparison
from tests.interop.external.conftest import TOKENS, noisy, write_json
from tests.interop.test_legacy import legacy_logits, legacy_state, unsaid
from tests.messages import refused, says


class Encoder(nn.Module):
    """PyTorch's own encoder, with norms after the layers (its default) or before them, and a final norm."""

    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(6, 2, 5, 0.0, norm_first=norm_first, batch_first=True)
        self.tokens, self.places, self.head = nn.Embedding(9, 6), nn.Embedding(7, 6), nn.Linear(6, 9)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(6), enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.tokens(tokens) + self.places.weight[: tokens.shape[1]]))


SIZES: dict[str, Any] = {
    "n_layers": 2, "d_model": 6, "n_heads": 2, "d_head": 3, "n_ctx": 7, "d_vocab": 9, "d_mlp": 5, "act_fn": "relu",
    "causal": False, "bias": True,
}  # fmt: skip
LAYER = {
    "self_attn.in_proj_weight": "attn.W_QKV.T", "self_attn.in_proj_bias": "attn.b_QKV",
    "self_attn.out_proj.weight": "attn.W_O.T", "self_attn.out_proj.bias": "attn.b_O",
    "norm1.weight": "ln1.w", "norm1.bias": "ln1.b", "norm2.weight": "ln2.w", "norm2.bias": "ln2.b",
    "linear1.weight": "mlp.W_in.T", "linear1.bias": "mlp.b_in", "linear2.weight": "mlp.W_out.T",
    "linear2.bias": "mlp.b_out",
}  # fmt: skip
KEY_MAP = {
    "tokens.weight": "embed.W_E", "places.weight": "pos_embed.W_pos", "head.weight": "unembed.W_U.T",
    "head.bias": "unembed.b_U", "encoder.norm.weight": "ln_final.w", "encoder.norm.bias": "ln_final.b",
    **{f"encoder.layers.*.{theirs}": f"blocks.*.{ours}" for theirs, ours in LAYER.items()},
}  # fmt: skip


@torch.no_grad()
def test_norms_after_the_layers_are_refused_by_their_logits_and_by_their_names(tmp_path: Path) -> None:
    theirs = noisy(Encoder(norm_first=False))
    path, check = tmp_path / "m.pt", (TOKENS, theirs(TOKENS))
    torch.save(theirs.state_dict(), path)
    with refused("encoder.layers.0.norm1.weight", "torch.nn.TransformerEncoder", "norm_first", "check="):
        aotlens.load(path, config=SIZES, key_map=KEY_MAP)
    with refused("largest difference", "sequence, position, output", "norms that follow", "final norm"):
        aotlens.load(path, config=SIZES, key_map=KEY_MAP, check=check)
    before = noisy(Encoder(norm_first=True))
    torch.save(before.state_dict(), path)
    model = aotlens.load(path, "cpu", config=SIZES, key_map=KEY_MAP, check=(TOKENS, before(TOKENS)))
    torch.testing.assert_close(model(TOKENS), before(TOKENS), rtol=1e-5, atol=1e-5)
    says(model.card.description, "largest difference", "the source")


@pytest.mark.parametrize("setting", ["norm_first", "do_layer_norm_before", "layer_norm_first", "normalize_before"])
def test_settings_tell_where_norms_are(tmp_path: Path, setting: str) -> None:
    torch.save(Encoder(norm_first=True).state_dict(), tmp_path / "m.pt")
    write_json(tmp_path / "config.json", {"model": {setting: False}})
    with refused(f"norms after the layers ({setting}=False)"):
        aotlens.load(tmp_path, config=SIZES, key_map=KEY_MAP)
    write_json(tmp_path / "config.json", {"model": {setting: True}})
    with pytest.warns(UserWarning, match="UNCHECKED"):
        aotlens.load(tmp_path, config=SIZES, key_map=KEY_MAP)


OPT_LAYER = {
    **{f"self_attn.{name}_proj": f"attn.?_{name.upper()}" for name in "qkv"}, "self_attn.out_proj": "attn.?_O",
    "fc1": "mlp.?_in", "fc2": "mlp.?_out", "self_attn_layer_norm": "ln1.?", "final_layer_norm": "ln2.?",
}  # fmt: skip


@torch.no_grad()
def test_positions_of_opt_begin_at_row_two(tmp_path: Path) -> None:
    config = transformers.OPTConfig(
        vocab_size=11, hidden_size=12, num_hidden_layers=2, ffn_dim=10, num_attention_heads=3, word_embed_proj_dim=12,
        max_position_embeddings=8, dropout=0.0, pad_token_id=1, bos_token_id=2, eos_token_id=2,
    )  # fmt: skip
    theirs = noisy(transformers.OPTForCausalLM(config))
    theirs.save_pretrained(tmp_path)
    key_map: dict[str, str | None] = {
        "model.decoder.embed_tokens.weight": "embed.W_E", "model.decoder.embed_positions.weight": "pos_embed.W_pos",
        "model.decoder.final_layer_norm.weight": "ln_final.w", "model.decoder.final_layer_norm.bias": "ln_final.b",
        "lm_head.weight": None,
    }  # fmt: skip
    for part, ours in OPT_LAYER.items():
        is_norm = ours.startswith("ln")
        for theirs_end, ours_end in (("weight", "w" if is_norm else "W"), ("bias", "b")):
            transposed = ".T" if ours_end == "W" else ""
            key_map[f"model.decoder.layers.*.{part}.{theirs_end}"] = (
                f"blocks.*.{ours.replace('?', ours_end)}{transposed}"
            )
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 8, "d_vocab": 11, "d_mlp": 10}
    said: dict[str, Any] = {**sizes, "act_fn": "relu", "bias": True, "read_out_bias": False, "tied_embeddings": True}
    tokens = torch.randint(11, (2, 8), generator=torch.Generator().manual_seed(0))
    check = (tokens, theirs(tokens).logits)
    with refused("expected [8, 12], found [10, 12]", '"pos_embed.W_pos[2:]"'):
        aotlens.load(tmp_path, config=said, key_map=key_map)
    with refused("largest difference", "pos_embed.W_pos[2:]"):  # as many positions as there are rows
        aotlens.load(tmp_path, config=said | {"n_ctx": 10}, key_map=key_map, check=check)
    key_map["model.decoder.embed_positions.weight"] = "pos_embed.W_pos[2:]"
    model = aotlens.load(tmp_path, "cpu", config=said, key_map=key_map, check=check)
    torch.testing.assert_close(model(tokens), check[1], rtol=1e-5, atol=1e-5)
    for rows, problem in (("[2:12]", "10 rows"), ("[-2:]", "[2:66]"), ("[4:4]", "10 rows")):
        key_map["model.decoder.embed_positions.weight"] = f"pos_embed.W_pos{rows}"
        with refused(f"pos_embed.W_pos{rows}", problem):
            aotlens.load(tmp_path, config=said, key_map=key_map)


@torch.no_grad()
def test_what_is_no_check_is_refused(tmp_path: Path) -> None:
    state, path = legacy_state("LN"), tmp_path / "toy.pth"
    torch.save(state, path)
    logits = legacy_logits(state, TOKENS, norm="LN", shortformer=False)
    wrong: tuple[tuple[Any, str], ...] = (
        ((TOKENS[:, :1], logits[:, :1]), "two positions"),
        ((TOKENS, logits[:, :4]), "expected logits [2, 5, 9]"),
        ((TOKENS, torch.zeros_like(logits)), "differ among each other"),
        ((TOKENS, logits * torch.nan), "finite"),
        ((TOKENS + 5, logits), "0 to 8"),
    )
    for check, problem in wrong:
        with refused(problem):
            aotlens.load(path, config=unsaid(), check=check)
    assert aotlens.load(path, config=unsaid(), check=(TOKENS[0].tolist(), logits[0].numpy())).cfg.causal
    with refused("largest difference", "causal"):
        aotlens.load(path, config=unsaid(attention_dir="bidirectional"), check=(TOKENS, logits))


@pytest.mark.unchecked
def test_tokens_alone_are_no_check(tmp_path: Path) -> None:
    torch.save(legacy_state("LN"), tmp_path / "toy.pth")
    wrong: Any = TOKENS
    with refused("expected (tokens, logits)"):
        aotlens.load(tmp_path / "toy.pth", config=unsaid(), check=wrong)


@torch.no_grad()
def test_an_import_is_refused_where_it_disagrees_and_says_what_it_agreed_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, path = legacy_state("LN"), tmp_path / "toy.pth"
    torch.save(state, path)
    logits = legacy_logits(state, TOKENS, norm="LN", shortformer=True)
    np.savez(tmp_path / "check.npz", tokens=TOKENS.numpy(), logits=logits.numpy())
    check = read_check(tmp_path / "check.npz")
    with refused("largest difference", error=CheckpointError):
        import_external(path, into=tmp_path, name="a", config=unsaid(), check=check)
    assert not (tmp_path / "a").exists()
    said = unsaid(positional_embedding_type="shortformer")
    checked = import_external(path, into=tmp_path, name="b", config=said, check=check)
    says(checked.info.card, "largest difference to the logits of the source")
    says(import_external(path, into=tmp_path, name="c", config=said).info.card, "UNCHECKED", "--check FILE.npz")
    with monkeypatch.context() as patch:
        patch.setattr(aotlens.interop, "compare_with_source", lambda _: Comparison(0.5, 2.0, "Theirs.", (0, 1, 2)))
        with refused("Theirs.", "[0, 1, 2]", "norms", error=CheckpointError):
            import_external(path, into=tmp_path, name="d", config=unsaid())
    assert not (tmp_path / "d").exists()
    np.savez(tmp_path / "large.npz", tokens=np.arange(256), logits=np.random.default_rng(0).random((200, 50257)))
    assert read_check(tmp_path / "large.npz")[1].shape == (200, 50257)  # 80 MB, as GPT-2's are
    np.savez(tmp_path / "other.npz", ids=TOKENS.numpy())
    with refused("tokens", "logits", "numpy.savez", error=CheckpointError):
        read_check(tmp_path / "other.npz")


def test_a_setting_beside_a_key_map_that_is_none_of_ours_is_named(tmp_path: Path) -> None:
    torch.save({"x": torch.zeros(1)}, tmp_path / "toy.pth")
    with refused("it has no act_fun (did you mean act_fn?), zzz.", error=CheckpointError):
        aotlens.load(tmp_path / "toy.pth", config={**SIZES, "act_fun": "relu", "zzz": 1}, key_map=KEY_MAP)
    with refused("at least n_layers", error=CheckpointError):
        aotlens.load(tmp_path / "toy.pth", config={"zzz": 1}, key_map=KEY_MAP)
