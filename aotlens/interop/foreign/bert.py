"""BERT, whose norms follow its layers and whose texts come in segments: outside our family, and read by a bridge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformer_lens.model_bridge import TransformerBridge


def is_bert(config: dict[str, Any]) -> bool:
    """Whether Hugging Face's configuration is one of BERT."""
    return config.get("model_type") == "bert"


def as_bridge(folder: Path, device: str) -> TransformerBridge:
    """The model in a folder of Hugging Face's as a `TransformerBridge`, with its tokenizer where the folder has one.

    Weights are read by `transformers`, from safetensors or with `weights_only`; no code of the folder is run. Raises
    `ValueError` where the folder is not whole.
    """
    import transformers
    from safetensors import SafetensorError
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    try:
        config = transformers.BertConfig.from_pretrained(folder, local_files_only=True)
        model = transformers.BertForMaskedLM.from_pretrained(
            folder, config=config, local_files_only=True, attn_implementation="eager"
        )
        tokenizer = None
        if has_tokenizer:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{folder}: expected a whole BERT of Hugging Face's, found: {error}") from error
    model.eval().requires_grad_(False)
    return build_bridge_from_module(
        model, "BertForMaskedLM", hf_config=model.config, tokenizer=tokenizer, device=device
    )
