"""Families of Hugging Face's that no reader knows, BERT and RoBERTa among them: outside our family, and run by
`transformers` inside a bridge.

TransformerLens's adapter of the family makes the bridge if it has one. Else ours does: it finds the embedding, the
layers, their attention and the read-out by their kind, and shows heads only where pattern · values gives z, and Σ z W_O
what attention writes, on random tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.interop.bridge_out import TransformerBridge
from aotlens.interop.external import decoders
from aotlens.interop.external.archive import check_zip
from aotlens.interop.external.checking import N_TOKENS, Opened, compared
from aotlens.interop.external.material import read_material, require_small
from aotlens.interop.external.outside import require_attention, require_weights
from aotlens.interop.external.plans import config_class, require_sizes

#: Families whose masked language model is read, with their names.
_MASKED = {"bert": "BERT", "roberta": "RoBERTa"}
#: Families that readers know by their tensors' names.
_READ = ("gpt2", "gpt_bigcode")
_TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json")
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "max_position_embeddings")
#: Names that families give to a layer's projections.
_PROJECTIONS = {
    "q": ("q_proj", "Wq"), "k": ("k_proj", "Wk"), "v": ("v_proj", "Wv"), "o": ("o_proj", "out_proj", "dense")
}  # fmt: skip


def is_bridged(config: dict[str, Any]) -> bool:
    """Return whether `transformers` runs the causal language model of a config.json that no reader knows, or the masked
    one of a BERT or RoBERTa."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind in (*_READ, *decoders.KINDS):
        return False
    if kind in _MASKED:
        return True
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


@torch.no_grad()
def as_bridge(folder: Path, described: dict[str, Any], device: str) -> Opened:
    """Return the model in a folder of Hugging Face's, whose config.json is `described`, as a `TransformerBridge`, with
    its tokenizer where the folder has one.

    Weights are read by `transformers`, from safetensors or with `weights_only`; no code of the folder is run. Raises
    `ValueError` where the folder is not whole, for a model without attention, and for a bridge that computes something
    else; before anything is read, for weights that unpack to more than they hold and settings of a model that is larger
    than its files.
    """
    import transformers

    kind = described["model_type"]
    name = _MASKED.get(kind, kind)
    _require_room(folder, described)
    require_small(folder)
    if kind not in _MASKED:
        require_weights(material := read_material(folder))
        require_attention(material)
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        auto: Any = transformers.AutoModelForMaskedLM if kind in _MASKED else transformers.AutoModelForCausalLM
        model, read = auto.from_pretrained(
            folder, config=config, local_files_only=True, attn_implementation="eager", trust_remote_code=False,
            dtype=torch.float32, output_loading_info=True,
        )  # fmt: skip
        tokenizer = None
        if any((folder / name).is_file() for name in _TOKENIZER):
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # of many kinds, such as KeyError for a tokenizer without its added tokens
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{folder}: expected a whole {name} of Hugging Face's, found: {reason}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of the library of tokenizers, which is no Exception
            raise
        raise ValueError(f"{folder}: expected the tokenizer of a {name}, found: {error}") from error
    if missing := sorted(read["missing_keys"]):
        raise ValueError(
            f"{folder}: a {name} without {', '.join(missing[:6])}, which {type(model).__name__} would make at random. "
            "Save the model with its read-out."
        )
    model.eval().requires_grad_(False)
    bridge = _bridge(folder, name, model, tokenizer, device)
    return Opened(model=bridge, format=f"{name}, as a TransformerBridge", path=folder, config=described)


def _bridge(folder: Path, name: str, model: Any, tokenizer: Any, device: str) -> TransformerBridge:
    """The bridge around a model, whose logits are those of the model by itself."""
    from transformer_lens.factories.architecture_adapter_factory import ArchitectureAdapterFactory
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    table = model.get_input_embeddings().weight
    n_tokens = min(N_TOKENS, int(getattr(model.config, "max_position_embeddings", None) or N_TOKENS) - 2)
    tokens = torch.randint(len(table), (1, n_tokens), generator=torch.Generator().manual_seed(0))
    architecture = type(model).__name__
    try:
        if not any("ttention" in type(module).__name__ for module in model.modules()):
            raise ValueError("it has no layers of attention")
        expected = model(tokens, use_cache=False).logits
        if architecture not in ArchitectureAdapterFactory._adapters:
            architecture = f"Aotlens{architecture}"
            ArchitectureAdapterFactory.register_adapter(architecture, _adapter(model, tokens))
        bridge = build_bridge_from_module(
            model, architecture, hf_config=model.config, tokenizer=tokenizer, device=device
        )
        comparison = compared(bridge, tokens, expected, "transformers", f"{n_tokens} random tokens")
    except Exception as error:  # of many kinds, of two libraries that were not made for each other's models
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise ValueError(
            f"{folder}: no reader knows a {name!r}, and no bridge runs it ({reason}). "
            "Give config=ModelConfig(…) and key_map= if its layers are those of our family."
        ) from error
    comparison.require_agreement(folder)
    return bridge


def _adapter(model: Any, tokens: Tensor) -> Any:
    """TransformerLens's adapter of a family that it has none for. Raises `ValueError` for a model without attention."""
    from transformer_lens.model_bridge import generalized_components as parts
    from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter

    names = {module: name for name, module in model.named_modules()}
    stacks = [module for module in names if isinstance(module, nn.ModuleList) and len(module) and _attention(module[0])]
    if not stacks:
        raise ValueError("its layers of attention are not found")
    layers, attention = stacks[0], _attention(stacks[0][0])
    heads = _heads(layers, attention, model, tokens)
    embedding, read_out = names[model.get_input_embeddings()], names[model.get_output_embeddings()]

    class Adapter(ArchitectureAdapter):
        def __init__(self, cfg: Any) -> None:
            super().__init__(cfg)
            linear: dict[str, Any] = {}
            if heads is not None:
                self.cfg.n_heads, self.cfg.d_head, self.cfg.n_key_value_heads, projections = heads
                linear = {part: parts.LinearBridge(name=name) for part, name in projections.items()}
            attn = parts.AttentionBridge(attention, self.cfg, linear, maintain_native_attention=True)
            self.component_mapping = {
                "embed": parts.EmbeddingBridge(name=embedding),
                "blocks": parts.BlockBridge(name=names[layers], submodules={"attn": attn}),
                "unembed": parts.UnembeddingBridge(name=read_out, config=self.cfg),
            }

    return Adapter


def _attention(layer: nn.Module) -> str:
    """The name of a layer's first module of attention with matrices of its own; empty without one."""
    for name, module in layer.named_modules():
        if (
            name
            and "ttention" in type(module).__name__
            and any(isinstance(part, nn.Linear) for part in module.children())
        ):
            return name
    return ""


def _heads(layers: Any, attention: str, model: Any, tokens: Tensor) -> tuple[int, int, int, dict[str, str]] | None:
    """Heads, width, groups, projections; None unless pattern · values is what each layer's last one reads."""
    seen: list[dict[str, Any]] = []
    hooks, projections = [], {}
    for layer in layers:
        children = dict(layer.get_submodule(attention).named_children()) if _attention(layer) == attention else {}
        own = {part: next((name for name in names if name in children), "") for part, names in _PROJECTIONS.items()}
        if not all(own.values()):
            return None
        projections = own
        record: dict[str, Any] = {}
        seen.append(record)

        def keep(part: str, record: dict[str, Any] = record) -> Any:
            return lambda module, inputs, output: record.update({part: (inputs, output)})

        hooks += [children[own[part]].register_forward_hook(keep(part)) for part in "vo"]
        hooks.append(layer.get_submodule(attention).register_forward_hook(keep("all")))
    try:
        model(tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    for record in seen:
        written, pattern = record["all"][1][:2] if isinstance(record["all"][1], tuple) else (None, None)
        if not isinstance(pattern, Tensor) or pattern.ndim != 4:
            return None
        n_heads, (z,), values = pattern.shape[1], record["o"][0], record["v"][1]
        d_head = z.shape[-1] // n_heads
        if z.shape[-1] % n_heads or values.shape[-1] % d_head or n_heads % (n_groups := values.shape[-1] // d_head):
            return None
        repeated = values.unflatten(-1, (n_groups, d_head)).transpose(1, 2).repeat_interleave(n_heads // n_groups, 1)
        weighted = (pattern @ repeated).transpose(1, 2).flatten(2)
        if not torch.allclose(weighted, z, rtol=1e-4, atol=1e-5) or not torch.allclose(record["o"][1], written):
            return None
    return n_heads, d_head, n_groups, projections


def _require_room(folder: Path, config: dict[str, Any]) -> None:
    """Raise `ValueError` where config.json asks for more numbers than the weights' files have bytes."""
    files = [path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern) if path.is_file()]
    for path in files:
        check_zip(path)
    require_sizes(folder / "config.json", config, _SIZES)
    if config["model_type"] in _MASKED:
        usual = config_class(config["model_type"])()  # what `transformers` builds where a size is missing
        rows, width, n_layers, inner, n_pos = (config.get(name) or getattr(usual, name) for name in _SIZES)
        numbers = width * (rows + n_pos + n_layers * (4 * width + 2 * inner))
    else:
        names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
        require_sizes(folder / "config.json", config, names)
        numbers = sum(config.get(name) or 0 for name in names)  # a number of each layer at least
    n_bytes = sum(path.stat().st_size for path in files)
    if numbers > n_bytes:
        raise ValueError(
            f"{folder}: config.json describes a model of at least {numbers:,} numbers, and the weights have "
            f"{n_bytes:,} bytes. Fetch the folder again."
        )
