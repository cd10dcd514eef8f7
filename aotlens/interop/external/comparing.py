"""An imported model beside the code that its weights were made for, where that code is installed."""

from __future__ import annotations

import textwrap
from typing import Any

import torch
from torch import Tensor

from aotlens.interop.external.checking import Comparison, Opened, compared, unchecked
from aotlens.interop.external.material import read_material
from aotlens.interop.external.settings import completed
from aotlens.models import AttentionOnlyTransformer

_N_TOKENS = 32
#: Bytes of weights, in float32, up to which they are compared.
_MOST_BYTES = 1_000_000_000


@torch.no_grad()
def compare_with_source(opened: Opened) -> Comparison:
    """Compare logits of `opened.model` with those of the source's own code, on up to 32 random tokens or an image of
    noise, in float32.

    Hugging Face's families are run by `transformers`, with the settings and tensors of the file, of up to 1 GB;
    TransformerLens's old format by its native bridge. Of other formats, and of models that those do not express, the
    sentence says UNCHECKED, and why nothing was compared.
    """
    model = opened.model
    if not isinstance(model, AttentionOnlyTransformer):
        return Comparison(None, 0.0, "Not compared: a bridge runs the source's own code.")
    generator = torch.Generator().manual_seed(0)
    if model.cfg.read_in == "patches":
        side = int(model.cfg.image_size or 0)
        inputs, what = torch.randn(1, model.cfg.n_channels, side, side, generator=generator), "an image of noise"
    elif model.cfg.d_vocab is not None:
        n_tokens = min(_N_TOKENS, model.cfg.n_ctx)
        inputs = torch.randint(model.cfg.d_vocab, (1, n_tokens), generator=generator)
        what = f"{n_tokens} random tokens"
    else:
        return unchecked(f"the model reads {model.cfg.read_in}")
    try:
        if opened.format.startswith("Hugging Face"):
            theirs, code = _transformers(opened, inputs), "transformers"
        elif opened.format == "TransformerLens's old format":
            theirs, code = _transformer_lens(opened, inputs), "TransformerLens"
        else:
            return unchecked(f"the code of {opened.format} is not installed")
    except ValueError as error:
        return unchecked(textwrap.shorten(str(error), 200, placeholder=" …"))
    except (OSError, RuntimeError) as error:
        reason = textwrap.shorten(str(error), 200, placeholder=" …")
        return unchecked(f"the source's own code did not run on these files, which says nothing of the model: {reason}")
    return compared(model, inputs, theirs, code, what)


def _transformers(opened: Opened, inputs: Tensor) -> Tensor:
    """Their class by the settings' `model_type`, with the tensors of the file as it reads them."""
    kind, numbers = opened.config.get("model_type"), sum(each.numel() for each in opened.model.parameters())
    if kind is None:
        raise ValueError("transformers needs a config.json beside the weights")
    if 4 * numbers > _MOST_BYTES:
        raise ValueError(f"its weights take more than {_MOST_BYTES / 1e9:g} GB, up to which models are compared")
    config = completed(kind, opened.config)
    if config is None:
        raise ValueError(f"the code of Hugging Face's {kind} is not installed")
    from transformers.models.auto import modeling_auto

    images = getattr(opened.model.cfg, "read_in", "tokens") == "patches"
    mapping = (
        modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING if images else modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    )
    their_class: Any = mapping[type(config)]
    their_class = their_class[0] if isinstance(their_class, tuple) else their_class
    tensors = read_material(opened.path).tensors
    theirs, read = their_class.from_pretrained(
        None, config=config, state_dict=tensors, dtype=torch.float32, attn_implementation="eager",
        output_loading_info=True,
    )  # fmt: skip
    if read["missing_keys"]:
        raise ValueError(f"transformers misses {', '.join(sorted(read['missing_keys'])[:4])} in these files")
    logits: Tensor = theirs.eval()(inputs.to(theirs.device)).logits
    return logits


def _transformer_lens(opened: Opened, tokens: Tensor) -> Tensor:
    """Their converter on their tensors; only the sizes are those that we read."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge.sources.native import boot
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    cfg: Any = opened.model.cfg
    if cfg.positions != "learned":
        raise ValueError("TransformerLens's native bridge has no shortformer positions, and none without positions.")
    if any(not name.endswith((".w", ".b")) for name in opened.absent):
        raise ValueError("TransformerLens's native bridge needs every bias.")
    folded = any(name.endswith(".w") for name in opened.absent)
    bridge_cfg = TransformerBridgeConfig(
        n_layers=cfg.n_layers, d_model=cfg.d_model, n_heads=cfg.n_heads, d_head=cfg.d_head, n_ctx=cfg.n_ctx,
        d_vocab=cfg.d_vocab, d_vocab_out=cfg.d_out or cfg.d_vocab, d_mlp=cfg.d_mlp, act_fn=cfg.act_fn,
        attn_only=cfg.attn_only, normalization_type="LNPre" if folded else cfg.normalization_type, eps=cfg.norm_eps,
        attention_dir="causal" if cfg.causal else "bidirectional", positional_embedding_type="standard",
        init_weights=False,
        **({} if cfg.attn_scale is None else {"attn_scale": 1 / cfg.attn_scale}),
    )  # fmt: skip
    tensors = {name: tensor.float() for name, tensor in read_material(opened.path).tensors.items()}
    with torch.random.fork_rng(devices=[]):
        bridge = boot(bridge_cfg, device="cpu")
    bridge.load_state_dict(convert_tl_checkpoint(tensors, bridge_cfg), strict=True)
    return bridge.eval()(tokens)
