"""Checkpoints in TransformerLens's old format, which its current release no longer loads in full.

A folder with `config.json` and a state dict `*.pth` whose keys are `blocks.0.attn.W_Q` and so on, as in the
published attention-only models of one to four layers (`NeelNanda/Attn_Only_1L512W_C4_Code`, …), shortformer
models included: their positions are added to the normalised inputs of queries and keys, not to values or to
the stream, which is `positions="qk"` here.

Norms: `LN` has gains and biases; `LNPre` had them folded into its neighbours, so its gain is 1 and its bias
0; none at all is `norm=None`. Buffers (`*.mask`, `*.IGNORE`) hold no weights and are skipped by name.
"""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig, resolve_device
from aotlens.models.config import ACTIVATIONS
from aotlens.models.count import build_on_meta

_BUFFERS = (".mask", ".IGNORE")
_REPO = re.compile(r"[\w.-]+/[\w.-]+")
_SIZES = ("n_layers", "d_model", "d_head", "n_ctx", "d_vocab")
# Keys that change what a model computes in ways that ours does not: the values that leave it as it is.
_HARMLESS: dict[str, tuple[object, ...]] = {
    "architecture": (None, "neel"),
    "attn_scores_soft_cap": (None, -1, 0),
    "final_rms": (None, False),
    "gated_mlp": (None, False),
    "num_experts": (None,),
    "output_logits_soft_cap": (None, -1, 0),
    "parallel_attn_mlp": (None, False),
    "post_embedding_ln": (None, False),
    "scale_attn_by_inverse_layer_idx": (None, False),
    "use_local_attn": (None, False),
    "use_normalization_before_and_after": (None, False),
    "use_qk_norm": (None, False),
}


def load_legacy(
    folder_or_repo: str | PathLike[str], *, weights: str | None = None, device: str = "auto"
) -> AttentionOnlyTransformer:
    """Load an old TransformerLens checkpoint from a folder, or from a Hugging Face repository (`owner/name`).

    `weights` names the `*.pth` file where there are several; otherwise it is the one called `…final.pth`,
    or the only one. It is read with `torch.load(weights_only=True)`, so nothing in it is executed. A
    `tokenizer.json` beside it becomes `model.tokenizer`. The model comes in float32, in evaluation mode,
    without gradients.

    Biases that the file lacks are zero, with a warning that names them. Raises `ValueError` for what is
    missing otherwise, for unknown or misshapen tensors, and for configurations outside our family, naming
    the file, what was expected and what was found.
    """
    target = resolve_device(device)
    folder, is_repo = _locate(folder_or_repo, weights)
    config_path = folder / "config.json"
    legacy = _read_config(config_path)
    weights_path = _find_weights(folder, weights)
    state = _read_state(weights_path)
    cfg, is_folded = _translate(legacy, state, config_path)
    model = build_on_meta(cfg)
    model.load_state_dict(_complete(model.state_dict(), state, is_folded, weights_path), strict=True, assign=True)
    model.tokenizer = _read_tokenizer(folder, legacy if is_repo else {}, cfg)
    return model.to(target).eval().requires_grad_(False)


def _locate(folder_or_repo: str | PathLike[str], weights: str | None) -> tuple[Path, bool]:
    """The folder to read, and whether it was downloaded."""
    folder = Path(folder_or_repo)
    if folder.is_dir():
        return folder, False
    if not _REPO.fullmatch(str(folder_or_repo)):
        raise ValueError(
            f"{folder_or_repo}: expected a folder with config.json and a *.pth file, or a Hugging Face "
            "repository written owner/name; found neither."
        )
    return _download(str(folder_or_repo), ["config.json", weights or "*final.pth", "tokenizer.json"]), True


def _download(repo: str, patterns: list[str]) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(repo, allow_patterns=patterns))
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        raise ValueError(
            f"{repo}: there is no such folder here, and the repository could not be downloaded ({error}). "
            "Check the name and the network, or download it yourself and give the folder."
        ) from error


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: not found; expected TransformerLens's configuration beside the weights.")
    try:
        legacy = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON ({error}).") from error
    if not isinstance(legacy, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(legacy).__name__}.")
    return legacy


def _find_weights(folder: Path, weights: str | None) -> Path:
    if weights is not None:
        if not (folder / weights).is_file():
            raise ValueError(f"{folder / weights}: not found.")
        return folder / weights
    candidates = sorted(path for path in folder.rglob("*.pth") if path.is_file())
    final = [path for path in candidates if path.name.endswith("final.pth")]
    chosen = final if len(final) == 1 else candidates
    if len(chosen) != 1:
        names = ", ".join(str(path.relative_to(folder)) for path in candidates) or "none"
        raise ValueError(f"{folder}: expected one *.pth file, found {names}; choose one with weights=….")
    return chosen[0]


def _read_state(path: Path) -> dict[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a state dict that can be read without running code ({error}).") from error
    if not isinstance(state, Mapping) or not all(isinstance(t, Tensor) for t in state.values()):
        raise ValueError(f"{path}: expected a state dict of tensors, got {type(state).__name__}.")
    return {name: tensor.float() for name, tensor in state.items() if not name.endswith(_BUFFERS)}


def _translate(legacy: dict[str, Any], state: dict[str, Tensor], path: Path) -> tuple[ModelConfig, bool]:
    """Our configuration, and whether the norms were folded (`LNPre`)."""
    missing = [name for name in _SIZES if name not in legacy]
    if missing:
        raise ValueError(f"{path}: expected {', '.join(_SIZES)}; {', '.join(missing)} missing.")
    if "normalization" not in legacy and "normalization_type" not in legacy:
        raise ValueError(f"{path}: expected normalization or normalization_type ('LN', 'LNPre' or null).")
    norm = legacy.get("normalization", legacy.get("normalization_type"))
    positions = legacy.get("positional_embedding_type", "standard")
    if legacy.get("shortformer_pos"):
        positions = "shortformer"
    attn_only = legacy.get("attn_only", False)
    act_fn = legacy.get("act_fn")
    n_heads = legacy.get("n_heads", -1)
    if n_heads == -1:
        n_heads = legacy["d_model"] // legacy["d_head"]
    problems = [f"{name}={legacy[name]!r}" for name, harmless in _HARMLESS.items() if legacy.get(name) not in harmless]
    if norm not in ("LN", "LNPre", None):
        problems.append(f"normalization_type={norm!r}")
    if positions not in ("standard", "shortformer"):
        problems.append(f"positional_embedding_type={positions!r}")
    if not attn_only and act_fn not in ACTIVATIONS:
        problems.append(f"act_fn={act_fn!r}")
    if legacy.get("d_vocab_out", -1) not in (-1, legacy["d_vocab"]):
        problems.append(f"d_vocab_out={legacy['d_vocab_out']} for d_vocab={legacy['d_vocab']}")
    if legacy.get("n_key_value_heads") not in (None, n_heads):
        problems.append(f"n_key_value_heads={legacy['n_key_value_heads']} for {n_heads} heads")
    if problems:
        raise ValueError(f"{path}: outside the family of aotlens models: {'; '.join(problems)}.")
    try:
        cfg = ModelConfig(
            **{name: legacy[name] for name in _SIZES},
            n_heads=n_heads,
            d_mlp=None if attn_only else legacy.get("d_mlp"),
            act_fn="gelu" if attn_only else str(act_fn),
            attn_scale=_attn_scale(legacy),
            norm=None if norm is None else "layernorm",
            norm_eps=legacy.get("eps", legacy.get("ln_eps", 1e-5)),
            causal=legacy.get("attention_dir", "causal") == "causal",
            positions="qk" if positions == "shortformer" else "learned",
            bias=any(_is_bias(name) for name in state),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return cfg, norm == "LNPre"


def _attn_scale(legacy: dict[str, Any]) -> float | None:
    """Their `attn_scale` divides scores; `use_attn_scale=False` leaves them alone."""
    if not legacy.get("use_attn_scale", True):
        return 1.0
    divisor = legacy.get("attn_scale", -1.0)
    return 1 / divisor if divisor > 0 else None


def _is_bias(name: str) -> bool:
    return name.rsplit(".", 1)[-1].startswith("b_")


def _complete(expected: dict[str, Tensor], state: dict[str, Tensor], is_folded: bool, path: Path) -> dict[str, Tensor]:
    """The state dict with what may be absent filled in. `expected` gives names and shapes."""
    unknown = sorted(state.keys() - expected.keys())
    if unknown:
        raise ValueError(f"{path}: unknown tensors {', '.join(unknown)}. Does config.json describe this model?")
    absent = sorted(expected.keys() - state.keys())
    folded = [name for name in absent if is_folded and ".ln" in f".{name}"]
    biases = [name for name in absent if _is_bias(name)]
    missing = sorted(set(absent) - set(folded) - set(biases))
    if missing:
        hint = " Folded norms are normalization_type 'LNPre'." if any(".ln" in f".{n}" for n in missing) else ""
        raise ValueError(f"{path}: missing tensors {', '.join(missing)}.{hint}")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            mismatch = f"expected {list(expected[name].shape)}, found {list(tensor.shape)}"
            raise ValueError(f"{path}: {name}: {mismatch}.")
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds numbers that are not finite.")
    if biases or not any(map(_is_bias, state)):
        what = f"without {', '.join(biases)}" if biases else "without any biases"
        warnings.warn(f"{path} comes {what}: read as zero.", stacklevel=3)
    filled = {name: torch.zeros(expected[name].shape) for name in biases}
    filled |= {name: torch.full(expected[name].shape, float(name.endswith(".w"))) for name in folded}
    return state | filled


def _read_tokenizer(folder: Path, legacy: dict[str, Any], cfg: ModelConfig) -> Tokenizer | None:
    """`tokenizer.json` in the folder, or in the repository that a downloaded configuration names."""
    path = folder / "tokenizer.json"
    name = legacy.get("tokenizer_name")
    try:
        if not path.is_file():
            if not isinstance(name, str) or not _REPO.fullmatch(name):
                return None
            path = _download(name, ["tokenizer.json"]) / "tokenizer.json"
            if not path.is_file():
                return None
        tokenizer = Tokenizer.from_file(path)
        if cfg.d_vocab is not None and tokenizer.d_vocab > cfg.d_vocab:
            raise ValueError(f"{path}: expected at most {cfg.d_vocab} tokens, found {tokenizer.d_vocab}")
    except ValueError as error:
        warnings.warn(f"the model comes without a tokenizer: {error}", stacklevel=3)
        return None
    return tokenizer
