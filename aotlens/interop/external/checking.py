"""Whether an opened model is the one that its file held: its logits compared with those of the source, in float32.

Tensors that fit in shape can make another model: with norms on the other side of the layers, positions that begin at
another row, or without a norm before the read-out.
"""

from __future__ import annotations

import copy
import textwrap
import threading
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from aotlens.interop.bridge_out import TransformerBridge, bridge_config
from aotlens.interop.external.material import read_material
from aotlens.interop.external.plans import completed
from aotlens.models import AttentionOnlyTransformer

#: (tokens `[batch, pos]`, or images, or vectors; the source's logits of them, in the shape of ours).
Check: TypeAlias = tuple[Any, Any]
#: Largest difference that counts as rounding, as a share of the largest logit in size.
TOLERANCE = 1e-4
#: Tokens on which models are compared.
N_TOKENS = 32
_HALF = (torch.float16, torch.bfloat16)
_LOCK = threading.Lock()
#: Bytes of weights, in float32, up to which they are compared.
_MOST_BYTES = 1_000_000_000
#: The name for a model that nothing was compared with, and what to do.
UNCHECKED = "UNCHECKED: {}. Give a few of the source's logits, check=(tokens, logits) or --check FILE.npz."


def saved_model(module: nn.Module) -> Any:
    """Return the model of `transformers` in wrappers, one of which has its methods (torch.compile)."""
    return next(part for part in module.modules() if hasattr(type(part), "save_pretrained"))


@dataclass(frozen=True)
class Comparison:
    """The largest difference of two models' logits on the same inputs."""

    difference: float | None
    """None where there was nothing to compare with."""
    largest: float
    """The largest logit in size, which the difference is to be seen beside."""
    sentence: str
    """Says both, or begins with UNCHECKED and says why."""
    place: tuple[int, ...] = ()
    """The place of the difference: sequence, position, output."""
    failed: bool = False
    """Whether the source's own code does not run on its files, as where a tensor is missing: warned of."""

    def require_agreement(self, where: object, memory: nn.Module | None = None) -> None:
        """Raise `ValueError` for a difference of more than 1e-4 of the largest logit: how large, where, and why, which
        for a model in `memory` is another reason than for files."""
        if self.difference is None or self.difference <= TOLERANCE * self.largest:  # false for NaN
            return
        if memory is None:
            reason = (
                "Commonly wrong: norms that follow the layers (ours precede them), positions that begin at a later row "
                '("pos_embed.W_pos[2:]" in the map, as of OPT), the final norm (theirs left out, or ours that they '
                "lack), causal, act_fn, norm_eps, attn_scale, and which projection is which."
            )
        else:
            kind = type(saved_model(memory)).__name__
            reason = (
                "It computes something else than its weights and its config do: commonly a forward, a module or an "
                "attribute (self_attn.scaling, act_fn) that was changed, a hook, or a wrapper. A bridge runs it as it "
                "is, less wrappers: from transformer_lens.model_bridge.sources._bridge_builder import "
                f"build_bridge_from_module; bridge = build_bridge_from_module(model, {kind!r}, "
                "hf_config=model.config); aotlens.heads.motif_scores(bridge)."
            )
        raise ValueError(
            f"{where}: its tensors fit, and it is another model. {self.sentence} The difference is at "
            f"{list(self.place)} (sequence, position, output); rounding is at most {TOLERANCE:g} of the largest logit. "
            f"{reason}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A model of somebody else's, and what became of its file."""

    model: AttentionOnlyTransformer | TransformerBridge
    format: str
    path: Path
    """The file of the weights, or the folder that `transformers` read."""
    config: dict[str, Any]
    """The settings of the source, in its own words."""
    dropped: tuple[str, ...] = ()
    """Tensors of the source that the model does not have: masks, a read-out that is tied."""
    absent: tuple[str, ...] = ()
    """Tensors of the model that the source lacks: biases read as zero, gains as 1."""
    comparison: Comparison | None = None
    """Its logits compared with those of `check`, of the model in memory, or of `transformers` for a format of Hugging
    Face's; else None."""


def unchecked(reason: str, failed: bool = False) -> Comparison:
    """Return the comparison that says that nothing was compared, and why."""
    return Comparison(None, 0.0, UNCHECKED.format(reason.rstrip(".")), failed=failed)


@torch.no_grad()
def compared(model: Any, inputs: Tensor, logits: Tensor, code: str, what: str) -> Comparison:
    """Compare the logits of `model` with `logits`, which `code` computed on `what`. Raises `ValueError` for another
    shape."""
    device = next(model.parameters()).device
    with torch.autocast(device.type, enabled=False):
        ours, theirs = model(inputs.to(device)).float().cpu(), logits.float().cpu()
    if ours.shape != theirs.shape:
        raise ValueError(f"{code}: expected logits {list(ours.shape)} on {what}, got {list(theirs.shape)}.")
    differences = (ours - theirs).abs()
    place = tuple(int(index) for index in torch.unravel_index(differences.argmax(), differences.shape))
    difference, largest = float(differences.max()), float(theirs.abs().max())
    sentence = (
        f"The largest difference to the logits of {code} is {difference:.1e}, on {what}, where the largest logit is "
        f"{largest:.3g}."
    )
    return Comparison(difference, largest, sentence, place)


def compared_with(model: Any, check: Check) -> Comparison:
    """Compare the logits of `model` with those that were given.

    Raises `ValueError` for an invalid pair: other shapes, logits that are not finite or all alike, fewer than two
    positions (attention to a position's own token is the same with any weights), inputs that the model cannot read.
    """
    if not isinstance(check, tuple | list) or len(check) != 2:
        raise ValueError(f"check: expected (tokens, logits), got a {type(check).__name__}.")
    inputs, logits = (torch.as_tensor(part).detach() for part in check)
    n_dims = 2 if getattr(model.cfg, "read_in", "tokens") == "tokens" else 4 if model.cfg.read_in == "patches" else 3
    if inputs.ndim == n_dims - 1:
        inputs, logits = inputs[None], logits[None]
    if inputs.ndim != n_dims or not inputs.numel() or (n_dims < 4 and inputs.shape[1] < 2):
        raise ValueError(
            f"check: expected tokens [batch, pos] (of a model of images, images) of at least two positions, got "
            f"{list(inputs.shape)}."
        )
    if not logits.is_floating_point() or not logits.isfinite().all() or float(logits.max() - logits.min()) == 0:
        raise ValueError("check: expected logits, finite numbers that differ among each other.")
    inputs = inputs.float() if inputs.is_floating_point() else inputs.long()
    return compared(model, inputs, logits, "the source", f"the inputs {list(inputs.shape)} given")


@torch.no_grad()
def compare_with_source(opened: Opened, source: nn.Module | None = None) -> Comparison:
    """Compare logits of `opened.model` with those of the source's own code, on up to 32 random tokens or an image of
    noise, in float32.

    `source`, a model of `transformers` in memory, is run itself. Otherwise Hugging Face's families are run by
    `transformers`, with the settings and tensors of the file, of up to 1 GB; TransformerLens's old format by its native
    bridge. Of other formats, and of models that those do not express, the sentence says UNCHECKED, and why nothing was
    compared.
    """
    model: Any = opened.model
    ours = isinstance(model, AttentionOnlyTransformer)
    if not ours and source is None:
        return Comparison(None, 0.0, "Not compared: a bridge runs the source's own code.")
    generator = torch.Generator().manual_seed(0)
    if ours and model.cfg.read_in == "patches":
        side = int(model.cfg.image_size or 0)
        inputs, what = torch.randn(1, model.cfg.n_channels, side, side, generator=generator), "an image of noise"
    elif model.cfg.d_vocab is not None:
        n_tokens = min(N_TOKENS, model.cfg.n_ctx - 2 * (not ours))  # RoBERTa's positions begin at 2
        rotary = getattr(model.cfg, "rotary", None)
        if source is not None and rotary is not None and rotary.scaling == "dynamic":
            n_tokens = min(n_tokens, rotary.original_n_ctx - 1)  # longer ones leave their frequencies in the source
        inputs = torch.randint(model.cfg.d_vocab, (1, n_tokens), generator=generator)
        what = f"{n_tokens} random tokens"
    else:
        return unchecked(f"the model reads {model.cfg.read_in}")
    try:
        if source is not None:
            theirs, code = _in_memory(source, inputs), "the model in memory"
        elif opened.format.startswith("Hugging Face"):
            theirs, code = _transformers(opened, inputs), "transformers"
        elif opened.format == "TransformerLens's old format":
            theirs, code = _transformer_lens(opened, inputs), "TransformerLens"
        else:
            return unchecked(f"the code of {opened.format} is not installed")
    except ValueError as error:
        return unchecked(textwrap.shorten(str(error), 200, placeholder=" …"), failed=source is not None)
    except Exception as error:  # of many kinds, as AttributeError for settings that their layers contradict
        reason = textwrap.shorten(str(error), 200, placeholder=" …")
        where = "on these files" if source is None else "in memory"
        return unchecked(f"the source's own code did not run {where}: {reason}", failed=True)
    return compared(model, inputs, theirs, code, what)


def _in_memory(source: nn.Module, inputs: Tensor) -> Tensor:
    """The logits of a copy of a model in memory in float32, evaluated with its wrappers, hooks and changes."""
    for parameter in source.parameters():
        if parameter.dtype in _HALF:
            parameter.data = parameter.data.float()
    _unround_buffers(source)
    device = next(source.parameters()).device
    compiled = any(hasattr(module, "_orig_mod") for module in source.modules())
    with (
        _LOCK,  # what torch.compile does is set for the process
        torch.compiler.set_stance("force_eager") if compiled else nullcontext(),
        torch.autocast(device.type, enabled=False),
    ):
        module: Any = source.eval()
        while True:
            try:
                output = module(inputs.to(device))
                break
            except NotImplementedError:
                children = [] if hasattr(type(module), "save_pretrained") else [*module.children()]
                if len(children) != 1:
                    raise
                (module,) = children
    logits = getattr(output, "logits", output[0] if isinstance(output, tuple) else output)
    if not isinstance(logits, Tensor):
        raise ValueError(f"expected logits of {type(source).__name__}, got a {type(logits).__name__}")
    return logits


def _unround_buffers(source: nn.Module) -> None:
    """Give half-precision buffers that files lack, such as frequencies, a new model's numbers."""
    inner = saved_model(source)
    modules = dict(inner.named_modules())
    halves = {name: buffer for name, buffer in inner.named_buffers() if buffer.dtype in _HALF}
    usual: dict[str, Tensor] = {}
    with suppress(Exception), torch.random.fork_rng(devices=[]):  # of many kinds, for a model made in another way
        config = copy.deepcopy(inner.config)
        config.dtype = torch.float32  # as `from_pretrained` reads it
        usual = dict(type(inner)(config).named_buffers()) if halves else {}
    saved = inner.state_dict().keys()
    for name, half in halves.items():
        owner, _, key = name.rpartition(".")
        exact = half if name in saved else usual.get(name, half)
        is_rounded = exact.shape == half.shape and torch.equal(exact.to(half), half)
        modules[owner]._buffers[key] = (exact if is_rounded else half).float().to(half.device)


def _transformers(opened: Opened, inputs: Tensor) -> Tensor:
    """Their class by the settings' `model_type`, with the tensors of the file as it reads them."""
    kind = opened.config.get("model_type")
    if kind is None:
        raise ValueError("transformers needs a config.json beside the weights")
    if 4 * sum(parameter.numel() for parameter in opened.model.parameters()) > _MOST_BYTES:
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
        raise RuntimeError(f"transformers misses {', '.join(sorted(read['missing_keys'])[:4])} in these files")
    logits: Tensor = theirs.eval()(inputs.to(theirs.device)).logits
    return logits


def _transformer_lens(opened: Opened, tokens: Tensor) -> Tensor:
    """Their converter on their tensors; only the sizes are those that we read."""
    from transformer_lens.model_bridge.sources.native import boot
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    cfg: Any = opened.model.cfg
    if cfg.positions != "learned":
        raise ValueError("TransformerLens's native bridge has no shortformer positions, and none without positions.")
    if any(not name.endswith((".w", ".b")) for name in opened.absent):
        raise ValueError("TransformerLens's native bridge needs every bias.")
    folded = any(name.endswith(".w") for name in opened.absent)
    bridge_cfg = bridge_config(
        cfg,
        normalization_type="LNPre" if folded else cfg.normalization_type,
        **({} if cfg.attn_scale is None else {"attn_scale": 1 / cfg.attn_scale}),
    )
    tensors = {name: tensor.float() for name, tensor in read_material(opened.path).tensors.items()}
    with torch.random.fork_rng(devices=[]):
        bridge = boot(bridge_cfg, device="cpu")
    bridge.load_state_dict(convert_tl_checkpoint(tensors, bridge_cfg), strict=True)
    return bridge.eval()(tokens)
