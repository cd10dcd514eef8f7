"""Opening a model that somebody else saved: which format it has, and the model of ours that computes the same."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import nn

from aotlens.data import SymbolTokenizer, Tokenizer
from aotlens.interop.bridge_out import read_hugging_face
from aotlens.interop.external import bert, decoders, gpt2, hub, torch_encoder, transformer_lens, vit, x_transformers
from aotlens.interop.external.archive import read_plain
from aotlens.interop.external.checking import UNCHECKED, Check, Opened, compare_with_source, compared_with, unchecked
from aotlens.interop.external.key_map import KeyMap, renamed
from aotlens.interop.external.material import Material, of_module, read_json, read_material, unwrapped
from aotlens.interop.external.outside import other_family, require_family, require_read_out, require_weights
from aotlens.interop.external.plans import (
    SIZES,
    Plan,
    Stated,
    build_config,
    own_code,
    require_known,
    require_layers,
    require_sizes,
    with_nearest,
)
from aotlens.models import ModelConfig, resolve_device
from aotlens.models.config_checks import REQUIRED_SIZES
from aotlens.models.count import build_on_meta


class _Format(NamedTuple):
    """A format: how it is recognised by its tensors' names, what it says of the model, and where its settings stand."""

    names: str
    matches: Callable[[Material], Material | None] | tuple[str, ...]
    plan: Callable[[Material, Stated, bool], Plan]
    configs: tuple[str, ...]


#: Every format that needs no `config=` in our words. Adding one is a module like `gpt2.py` and a line here.
_FORMATS = (
    _Format("embed.W_E, blocks.0.attn.W_Q (TransformerLens)", transformer_lens.NAMES, transformer_lens.plan,
            ("config.json", "cfg", "config")),
    _Format("those of its family, with its model_type in config.json "
            f"({', '.join(decoders.FAMILIES)})", decoders.matches, decoders.plan, ("config.json",)),
    _Format("wte.weight, h.0.attn.c_attn.weight (GPT-2, nanoGPT)", gpt2.NAMES, gpt2.plan,
            ("config.json", "model_args", "config")),
    _Format("layers.0.self_attn.in_proj_weight and nothing else (torch.nn.TransformerEncoder)", torch_encoder.matches,
            torch_encoder.plan, ("module", "config.json")),
    _Format("token_emb.emb.weight, attn_layers.layers.0.1.to_q (x-transformers)", x_transformers.NAMES,
            x_transformers.plan, ("config.json",)),
    _Format("embeddings.patch_embeddings, encoder.layer.0 (ViT)", vit.NAMES, vit.plan, ("config.json",)),
)  # fmt: skip


def open_external(
    source: str | PathLike[str] | nn.Module,
    *,
    weights: str | None = None,
    config: ModelConfig | Mapping[str, Any] | None = None,
    key_map: KeyMap | None = None,
    check: Check | None = None,
    device: str | torch.device = "auto",
) -> Opened:
    """Return the model that somebody else saved, as `aotlens.load` describes it, in float32, in evaluation mode and
    without gradients. Nothing in a file is executed.

    `config` says what the source does not, in the source's own words ({"n_head": 4}), or describes the model in ours (a
    `ModelConfig` or its fields), with which `key_map` may say what the tensors' names mean (`key_map.py`). `check`,
    inputs and the source's logits of them, replaces the comparison with the source's own code (`compare_with_source`).

    Raises `ValueError`: what was looked for, what was found, and what to do.
    """
    options: dict[str, Any] = {"config": config, "key_map": key_map, "check": check, "device": device}
    if isinstance(source, nn.Module):
        inner = _inner(source)
        material = of_module(source, torch_encoder.options(inner))
        if hasattr(type(inner), "save_pretrained"):
            return _as_saved(source, inner, **options)
        return _open(material, **options)
    if not isinstance(source, str | PathLike):
        raise ValueError(f"expected a name, a path or a model in memory, got {type(source).__name__} {source!r}.")
    name = str(source)
    is_fetched = name.startswith("hf:")
    folder = hub.fetch(name.removeprefix("hf:"), weights) if is_fetched else Path(source).expanduser()
    return _open_files(folder, weights, is_fetched=is_fetched, **options)


def _open_files(folder: Path, weights: str | None = None, memory: nn.Module | None = None, **options: Any) -> Opened:
    """Open a folder or a file, which was written from `memory`, or else is itself the source."""
    if not folder.exists():
        raise ValueError(f"{folder}: looked for a file or a folder, found nothing there.")
    described = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    if options["config"] is None is options["key_map"] and folder.is_dir() and bert.is_bridged(described):
        device = str(resolve_device(options["device"]))
        return _checked(bert.as_bridge(folder, described, device), options["check"], memory)
    return _open(read_material(folder, weights), memory=memory, **options)


def _open(
    material: Material, *, config: Any, key_map: KeyMap | None, check: Check | None, device: str | torch.device,
    memory: nn.Module | None = None, is_fetched: bool = False,
) -> Opened:  # fmt: skip
    target = resolve_device(device)
    plan, settings, material = _plan(material, config, key_map, check is not None)
    require_layers(material, plan.cfg.n_layers)
    tensors = _renamed(material, plan)
    model = build_on_meta(plan.cfg)
    model.load_state_dict(tensors.state, strict=True, assign=True)
    model.image_processor = plan.image_processor
    model.tokenizer = _tokenizer(material.folder, settings if is_fetched else {}, plan.cfg)
    opened = Opened(
        model=model.to(target).eval().requires_grad_(False),
        format=plan.format,
        path=material.path,
        config=settings,
        dropped=tuple(sorted(material.full_names.get(name, name) for name in tensors.dropped)),
        absent=tensors.absent,
    )
    return _checked(opened, check, memory, plan.doubt)


def _inner(module: nn.Module) -> nn.Module:
    """Return the module in wrappers: the only child of an only child, as far as it saves itself or is an encoder."""
    inner = module
    while not (hasattr(type(inner), "save_pretrained") or isinstance(inner, nn.TransformerEncoder)):
        children = list(inner.children())
        if len(children) != 1:
            return module
        (inner,) = children
    return inner


def _as_saved(source: nn.Module, inner: Any, **options: Any) -> Opened:
    """Open a model of `transformers` as the folder that a copy of it writes."""
    if isinstance(source, nn.parallel.DistributedDataParallel):
        source = source.module
    memory, config = None, dict(vars(inner.config))
    try:
        memory = copy.deepcopy(source)
    except Exception as error:  # of many kinds, as RuntimeError for an attribute with a gradient
        reason = f"it cannot be copied to be run ({error!s:.100}), and only its weights and its config were compared"
        warnings.warn(f"<{type(source).__name__}>: {UNCHECKED.format(reason)}", stacklevel=4)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            saved: Any = inner if memory is None else _inner(memory)
            saved.save_pretrained(folder)
            return _open_files(Path(folder), memory=memory, **options)
        except (ValueError, RuntimeError, NotImplementedError) as error:  # a model inside a bridge cannot be saved
            message = str(error)[:2000].replace(repr(folder), "FOLDER").replace(folder, f"<{type(inner).__name__}>")
            raise ValueError(message) from error
        finally:
            vars(inner.config).update(config)


def _checked(opened: Opened, check: Check | None, memory: nn.Module | None = None, doubt: str = "") -> Opened:
    """Add the comparison with the source's logits, or warn. Raises `ValueError` if they disagree."""
    where = opened.path if memory is None else f"<{type(memory).__name__}>"
    comparison = None
    if check is not None or memory is not None or opened.format.startswith("Hugging Face"):
        comparison = compare_with_source(opened, memory) if check is None else compared_with(opened.model, check)
        comparison.require_agreement(opened.path, memory if check is None else None)
    own = own_code(opened.config) if check is None and memory is None else ""
    if own:
        comparison = unchecked(f"{own}, which was not run", failed=True)
    is_compared = comparison is not None and comparison.difference is not None
    biases = [name for name in opened.absent if name.rsplit(".", 1)[-1].startswith(("b_", "_b_"))]
    if biases and not is_compared:
        listed = ", ".join(biases).replace("._b_", ".b_")
        warnings.warn(f"{where} comes without {listed}: read as zero.", stacklevel=5)
    if doubt and not is_compared:
        warnings.warn(f"{where}: {UNCHECKED.format(doubt)}", stacklevel=5)
    elif comparison is not None and comparison.failed:
        warnings.warn(f"{where}: {comparison.sentence}", stacklevel=5)
    return replace(opened, comparison=comparison)


def _plan(
    material: Material, config: ModelConfig | Mapping[str, Any] | None, key_map: KeyMap | None, is_checked: bool
) -> tuple[Plan, dict[str, Any], Material]:
    """Return the plan of the model, the settings that it was read from, and its tensors by the names of its format."""
    require_weights(material)
    ours = _in_our_words(config, material)
    if ours is not None:
        require_family(material, ours, is_checked)
        doubt = "" if key_map is None else "a key_map can fit another model"
        rules = {unwrapped(theirs): name for theirs, name in (key_map or {}).items()}
        bare = None if key_map else material.under("blocks.0.attn.W_O")
        return Plan(format="tensors by name", cfg=ours, key_map=rules, doubt=doubt), ours.to_dict(), bare or material
    if key_map is not None:
        fields = ModelConfig.__dataclass_fields__.keys()
        setting_names = set() if config is None or isinstance(config, ModelConfig) else set(config)
        if set(REQUIRED_SIZES) <= setting_names:
            unknown = with_nearest(sorted(setting_names - fields), fields)
            raise ValueError(f"config= beside key_map= takes fields of ModelConfig; it has no {unknown}.")
        raise ValueError(
            f"{material.path}: key_map= says what other names mean in ours, so it needs config=, a ModelConfig or its "
            f"fields (at least {', '.join(REQUIRED_SIZES)}); on the command line --config NAME=VALUE for each."
        )
    require_read_out(material)
    user_settings = dict(config) if isinstance(config, Mapping) else {}
    for kind in _FORMATS:
        matches = kind.matches
        matched = material.under(*matches) if isinstance(matches, tuple) else matches(material)
        if matched is not None:
            stored = next((material.configs[name] for name in kind.configs if name in material.configs), {})
            settings = Stated({**stored, **user_settings})
            require_sizes(material.path, settings)
            try:
                plan = kind.plan(matched, settings, bool(stored))
            except ValueError as error:
                where = f"{material.path}: "
                raise ValueError(where + str(error).removeprefix(where)) from error
            require_known(material.path, user_settings, settings, plan.cfg)
            unstated = [name for name in user_settings if name not in stored and name not in SIZES]
            doubts = [plan.doubt] if plan.doubt else []
            doubts += [f"the file does not state {', '.join(unstated)}, which config= gives"] if unstated else []
            return replace(plan, doubt="; ".join(doubts)), {**stored, **user_settings}, matched
    other = other_family(material)
    if other is not None:
        raise other
    names = ", ".join(list(material.tensors)[:6])
    raise ValueError(
        f"{material.path}: looked for tensors named {' or '.join(kind.names for kind in _FORMATS)}; found {names}, …. "
        "If the model is of our family (pre-norm or no norm), say so with config=ModelConfig(…), key_map={their "
        "name: our name} and check=(tokens, logits) of the source; on the command line with --config NAME=VALUE for "
        "each of its fields, --key-map FILE.json and --check FILE.npz."
    )


def _in_our_words(config: ModelConfig | Mapping[str, Any] | None, material: Material) -> ModelConfig | None:
    """The configuration, where it is one of ours: a `ModelConfig`, or fields of it with every size among them."""
    if isinstance(config, ModelConfig):
        return config
    if config is None or not set(REQUIRED_SIZES) <= config.keys():
        return None
    fields = ModelConfig.__dataclass_fields__.keys()
    return build_config("config", **config) if config.keys() <= fields else None


def _renamed(material: Material, plan: Plan) -> Any:
    try:
        return renamed(material.tensors, plan.key_map, plan.cfg, material.path, plan.may_lack)
    except (RuntimeError, OverflowError) as error:  # sizes whose product no machine has
        raise ValueError(f"{material.path}: its settings describe no model that could be: {error}") from error
    except ValueError as error:
        raise ValueError(f"{error} {plan.note}".strip()) if "missing tensors" in str(error) else error from None


def _tokenizer(folder: Path, settings: dict[str, Any], cfg: ModelConfig) -> Tokenizer | SymbolTokenizer | None:
    """The tokenizer or the characters next to the weights, or what a downloaded configuration names."""
    if cfg.d_vocab is None or cfg.read_in != "tokens":
        return None
    try:
        tokenizer = _read_tokenizer(folder, settings.get("tokenizer_name"), cfg.d_vocab)
        if tokenizer is None:
            return None
        if tokenizer.d_vocab > cfg.d_vocab:
            raise ValueError(f"{folder}: expected at most {cfg.d_vocab} tokens, found {tokenizer.d_vocab}")
        if isinstance(tokenizer, SymbolTokenizer):
            return tokenizer if tokenizer.d_vocab == cfg.d_vocab else None
        return tokenizer.padded(cfg.d_vocab)
    except ValueError as error:
        warnings.warn(f"the model comes without a tokenizer: {error}", stacklevel=4)
        return None


def _read_tokenizer(folder: Path, repository: Any, d_vocab: int) -> Tokenizer | SymbolTokenizer | None:
    if (folder / "tokenizer.json").is_file():
        return read_hugging_face(folder / "tokenizer.json", d_vocab)
    for vocabulary, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        if (folder / vocabulary).is_file() and (folder / merges).is_file():
            return Tokenizer.from_gpt2_files(folder / vocabulary, folder / merges)
    if (folder / "meta.pkl").is_file():
        return SymbolTokenizer(_characters(folder / "meta.pkl"))
    path = hub.fetch_tokenizer(repository) if hub.is_repository(repository) else None
    return None if path is None else read_hugging_face(path, d_vocab)


def _characters(path: Path) -> list[str]:
    """The characters by id that nanoGPT's prepare.py keeps beside its text. Raises `ValueError` for other contents."""
    meta = read_plain(path)
    itos = meta.get("itos") if isinstance(meta, dict) else None
    if not isinstance(itos, dict) or itos.keys() != set(map(str, range(len(itos)))):
        raise ValueError(f"{path}: expected nanoGPT's meta.pkl, with the characters by id under 'itos'.")
    return [itos[str(index)] for index in range(len(itos))]
