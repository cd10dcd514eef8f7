"""Models of random weights as others save them, with the logits of their own code or of one written out here."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from aotlens.data import Tokenizer
from tests.small_models import small_tokenizer

TOKENS = torch.tensor([[3, 1, 4, 1, 5], [0, 8, 2, 6, 7]])


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


def noisy(model: nn.Module) -> nn.Module:
    """The model with noise on every parameter, so that no bias is zero and no gain 1."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@pytest.fixture
def gpt2() -> transformers.GPT2LMHeadModel:
    """Hugging Face's own class, tied as GPT-2 is."""
    config = transformers.GPT2Config(
        n_layer=2, n_head=3, n_embd=12, n_positions=8, vocab_size=11, attn_pdrop=0.0, layer_norm_epsilon=1e-4
    )
    return noisy(transformers.GPT2LMHeadModel(config))


class NanoGPT(nn.Module):
    """nanoGPT's model.py, less what is for training: its modules' names, Linear layers, exact GELU, tied read-out."""

    def __init__(self, n_layer: int, n_head: int, n_embd: int, block_size: int, vocab_size: int, bias: bool) -> None:
        super().__init__()
        self.n_head = n_head

        class Norm(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(n_embd))
                self.bias = nn.Parameter(torch.zeros(n_embd)) if bias else None

            def forward(self, x: Tensor) -> Tensor:
                return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)

        def block() -> nn.ModuleDict:
            attn = nn.ModuleDict(
                {"c_attn": nn.Linear(n_embd, 3 * n_embd, bias=bias), "c_proj": nn.Linear(n_embd, n_embd, bias=bias)}
            )
            mlp = nn.ModuleDict(
                {"c_fc": nn.Linear(n_embd, 4 * n_embd, bias=bias), "c_proj": nn.Linear(4 * n_embd, n_embd, bias=bias)}
            )
            return nn.ModuleDict({"ln_1": Norm(), "attn": attn, "ln_2": Norm(), "mlp": mlp})

        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList([block() for _ in range(n_layer)]),
                "ln_f": Norm(),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](torch.arange(tokens.shape[1]))
        for block in self.transformer["h"]:
            q, k, v = (
                part.unflatten(-1, (self.n_head, -1)).transpose(1, 2)
                for part in block["attn"]["c_attn"](block["ln_1"](x)).chunk(3, -1)
            )
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            visible = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
            z = scores.masked_fill(~visible, -math.inf).softmax(-1) @ v
            x = x + block["attn"]["c_proj"](z.transpose(1, 2).flatten(2))
            x = x + block["mlp"]["c_proj"](F.gelu(block["mlp"]["c_fc"](block["ln_2"](x))))
        return self.lm_head(self.transformer["ln_f"](x))


def write_nanogpt(path: Path, model: NanoGPT, prefix: str = "", **model_args: Any) -> None:
    """ckpt.pt as nanoGPT's train.py writes it, the optimiser's state included."""
    optimiser = torch.optim.AdamW(model.parameters())
    model(TOKENS).sum().backward()
    optimiser.step()
    checkpoint = {
        "model": {f"{prefix}{name}": tensor for name, tensor in model.state_dict().items()},
        "optimizer": optimiser.state_dict(),
        "model_args": {**model_args, "dropout": 0.0},
        "iter_num": 250,
        "best_val_loss": torch.tensor(1.5),
        "config": {"out_dir": "out", "dataset": "shakespeare_char", "learning_rate": 1e-3},
    }
    torch.save(checkpoint, path)


@dataclasses.dataclass
class HookedTransformerConfig:
    """The fields of TransformerLens 2's configuration that matter here, and two that do not."""

    n_layers: int
    d_model: int
    n_ctx: int
    d_head: int
    d_vocab: int
    d_vocab_out: int
    n_heads: int
    attn_only: bool
    d_mlp: int | None = None
    act_fn: str | None = None
    normalization_type: str | None = "LN"
    positional_embedding_type: str = "standard"
    attention_dir: str = "causal"
    use_attn_scale: bool = True
    attn_scale: float = -1.0
    eps: float = 1e-5
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int | None = 5


class HookPoint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fwd_hooks: list[Any] = []
        self.ctx: dict[str, Any] = {}


class Part(nn.Module):
    """A component of a `HookedTransformer`: parameters under its names, and a hook point."""

    def __init__(self, cfg: HookedTransformerConfig, **parameters: Tensor) -> None:
        super().__init__()
        self.cfg = cfg
        self.hook = HookPoint()
        for name, tensor in parameters.items():
            self.register_parameter(name, nn.Parameter(tensor))


class HookedTransformer(nn.Module):
    """The module tree of TransformerLens 2's class."""

    def __init__(self, cfg: HookedTransformerConfig, state: dict[str, Tensor]) -> None:
        super().__init__()
        self.cfg = cfg

        def part(prefix: str) -> Part:
            own = {name.rsplit(".", 1)[-1]: t for name, t in state.items() if name.rsplit(".", 1)[0] == prefix}
            made = Part(cfg, **{name: t for name, t in own.items() if name not in ("mask", "IGNORE")})
            for name in ("mask", "IGNORE"):
                if name in own:
                    made.register_buffer(name, own[name])
            made.act = F.gelu
            made.device = torch.device("cpu")
            made.seen = {1, 2}
            return made

        self.embed, self.unembed = part("embed"), part("unembed")
        if "pos_embed.W_pos" in state:
            self.pos_embed = part("pos_embed")
        names = {name.split(".")[2] for name in state if name.startswith("blocks.0.")}
        self.blocks = nn.ModuleList(
            [nn.ModuleDict({name: part(f"blocks.{layer}.{name}") for name in names}) for layer in range(cfg.n_layers)]
        )
        if "ln_final.w" in state:
            self.ln_final = part("ln_final")


@pytest.fixture
def save_module(monkeypatch):
    """`save_module(module, path)` as TransformerLens 2 would have: under its modules' names, gone when it is read."""

    def save(module: nn.Module, path: Path) -> None:
        homes = {
            HookedTransformer: "transformer_lens.HookedTransformer",
            HookedTransformerConfig: "transformer_lens.HookedTransformerConfig",
            HookPoint: "transformer_lens.hook_points_2",
            Part: "transformer_lens.components",
        }
        with monkeypatch.context() as patch:
            for kind, home in homes.items():
                fake = types.ModuleType(home)
                setattr(fake, kind.__name__, kind)
                patch.setitem(sys.modules, home, fake)
                patch.setattr(kind, "__module__", home)
            torch.save(module, path)

    return save


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
