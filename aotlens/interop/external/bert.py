"""BERT and RoBERTa, whose embeddings have a norm and whose read-out has a layer: outside our family, and read by a
bridge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.interop.external.archive import check_zip
from aotlens.interop.external.material import read_json, require_small
from aotlens.interop.external.plan import require_sizes

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
else:  # who makes or reads a bridge imports it: that takes as long as PyTorch
    TransformerBridge = Any


def is_bert(config: dict[str, Any]) -> bool:
    """Return whether Hugging Face's configuration is one of BERT or RoBERTa."""
    kind = config.get("model_type")
    return isinstance(kind, str) and kind in _KINDS


#: The beginning of a kind's classes in `transformers`.
_KINDS = {"bert": "Bert", "roberta": "Roberta"}
#: The name of each kind.
NAMES = {"bert": "BERT", "roberta": "RoBERTa"}
_TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json")


def as_bridge(folder: Path, device: str) -> TransformerBridge:
    """Return the model in a folder of Hugging Face's as a `TransformerBridge`, with its tokenizer where the folder has
    one.

    Weights are read by `transformers`, from safetensors or with `weights_only`; no code of the folder is run. Raises
    `ValueError` where the folder is not whole, and before anything is read for weights that unpack to more than they
    hold and settings of a model that is larger than its files.
    """
    import transformers
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    model_type = read_json(folder / "config.json")["model_type"]
    kind, name = _KINDS[model_type], NAMES[model_type]
    _require_room(folder)
    require_small(folder)
    has_tokenizer = any((folder / name).is_file() for name in _TOKENIZER)
    try:
        config = getattr(transformers, f"{kind}Config").from_pretrained(folder, local_files_only=True)
        model = getattr(transformers, f"{kind}ForMaskedLM").from_pretrained(
            folder, config=config, local_files_only=True, attn_implementation="eager"
        )
        tokenizer = None
        if has_tokenizer:
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
    model.eval().requires_grad_(False)
    return build_bridge_from_module(
        model, f"{kind}ForMaskedLM", hf_config=model.config, tokenizer=tokenizer, device=device
    )


def _require_room(folder: Path) -> None:
    """Raise `ValueError` where config.json asks for more numbers than the weights' files have bytes."""
    files = [path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern) if path.is_file()]
    for path in files:
        check_zip(path)
    config, defaults = read_json(folder / "config.json"), {"hidden_size": 768, "num_hidden_layers": 12}
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "max_position_embeddings")
    require_sizes(folder / "config.json", config, names)
    rows, width, n_layers, inner, n_pos = (config.get(name) or defaults.get(name, 1) for name in names)
    numbers = width * (rows + n_pos + n_layers * (4 * width + 2 * inner))
    n_bytes = sum(path.stat().st_size for path in files)
    if numbers > n_bytes:
        raise ValueError(
            f"{folder}: config.json describes a model of at least {numbers:,} numbers, and the weights have "
            f"{n_bytes:,} bytes. Fetch the folder again."
        )
