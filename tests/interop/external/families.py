"""The first decoder families that `transformers` maps to a causal language model, as folders of random weights whose
sizes break coincidences, each opened and compared with the source's own code."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

import aotlens
from aotlens.checkpoints import CheckpointError
from tests.interop.external.conftest import noisy

FIRST = sorted(NAMES)[:40]
D_VOCAB, N_TOKENS = 67, 19
#: Sizes by the names that families give them.
SIZES: dict[str, Any] = {
    "vocab_size": D_VOCAB, "hidden_size": 48, "d_model": 48, "n_embd": 48, "intermediate_size": 38, "n_inner": 38,
    "dff": 38, "dim_ff": 38, "encoder_ffn_dim": 38, "decoder_ffn_dim": 38, "moe_intermediate_size": 16,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "num_layers": 2,
    "num_attention_heads": 6, "n_head": 6, "n_heads": 6, "encoder_attention_heads": 3, "decoder_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "dim_head": 10, "rotary_dim": 4, "max_position_embeddings": 40,
    "n_positions": 40, "n_ctx": 40, "max_seq_len": 40, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
    "is_decoder": True, "sliding_window": 6, "local_attention_window_len": 6, "decoder_start_token_id": 0,
    "num_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_topk": 2, "n_shared_experts": 1, "num_shared_experts": 1, "moe_num_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "kv_lora_rank": 12, "q_lora_rank": 14, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6,
    "v_head_dim": 8, "first_k_dense_replace": 1, "num_dense_layers": 1, "index_n_heads": 2, "index_head_dim": 6,
    "index_topk": 5, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 4,
    "attn_layer_indices": [1], "sep_token_id": 2, "block_size": 4, "forced_eos_token_id": None,
    "shared_experts_intermediate_size": 16,
}  # fmt: skip
_BLT = {"vocab_size": D_VOCAB, "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 6,
        "intermediate_size": 38, "max_position_embeddings": 40}  # fmt: skip
#: Families whose attention has as many keys as heads, or whose sizes hang together otherwise.
CHANGES: dict[str, dict[str, Any]] = {
    "axk1": {"num_key_value_heads": 6}, "deepseek_v2": {"num_key_value_heads": 6, "head_dim": None},
    "deepseek_v3": {"num_key_value_heads": 6}, "deepseek_v32": {"num_key_value_heads": 6, "head_dim": 4},
    "axk2": {"num_key_value_heads": 6, "head_dim": 4}, 
    "bailing_hybrid": {"num_key_value_heads": 6, "layer_group_size": 2},
    "aria_text": {"intermediate_size": 40}, "cohere2_moe": {"intermediate_size": 40}, "codegen": {"n_head": 4},
    "dots3_note_text": {"num_key_value_heads": 6, "head_dim": 4},
    "deepseek_v4": {"num_key_value_heads": 1, "o_groups": 2, "o_lora_rank": 7, "hc_mult": 2},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 300.0, "clip_qkv": 8.0},
             "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 48}},
    "cohere_compass_text": {"rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 300.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 40.0}},
        "layer_types": ["sliding_attention", "full_attention"]},
    "blt": {
        "patcher_config": _BLT, "global_config": _BLT, "encoder_config": {**_BLT, "hidden_size_global": 48},
        "use_cache": False,
        "decoder_config": {**_BLT, "hidden_size_global": 48}, "encoder_hash_byte_group_size": [3, 4],
        "encoder_hash_byte_group_vocab": 31},
}  # fmt: skip


def config_of(kind: str, tied: bool) -> Any:
    """A configuration of the family with small sizes. Raises whatever the family raises for them."""
    cls = CONFIG_MAPPING[kind]
    fields = {field.name for field in dataclasses.fields(cls)}
    sizes = {name: value for name, value in SIZES.items() if name in fields} | CHANGES.get(kind, {})
    if kind == "dots3_note":
        tower = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 6, "adapter_out_dim": 48}
        vision = {**tower, "adapter_in_dim": 48, "mlp_layer_types": ["dense"], "intermediate_size": 38}
        audio = {**tower, "adapter_input_size": 48, "intermediate_size": 38}
        text = config_of("dots3_note_text", tied).to_dict()
        sizes |= {"text_config": text, "vision_config": vision, "audio_config": audio}
    return cls(**sizes, tie_word_embeddings=tied, attn_implementation="eager")


@torch.no_grad()
def model_of(kind: str, tied: bool, dtype: torch.dtype = torch.float32) -> Any:
    """A float32 model of random weights, no bias of which is zero and no gain 1, that are numbers of `dtype` (what is
    computed from the settings, such as frequencies, is not rounded)."""
    torch.manual_seed(0)
    model = noisy(transformers.AutoModelForCausalLM.from_config(config_of(kind, tied), dtype=torch.float32))
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.to(dtype))
    return model


@dataclasses.dataclass
class Outcome:
    """What became of one folder."""

    kind: str
    case: str
    error: float | None
    """The largest difference of logits as a share of the largest logit; None if it was refused."""
    message: str
    """The refusal, or the sentence that the model's card ends with."""
    form: str = ""

    @property
    def is_right(self) -> bool:
        named = self.kind in self.message and ("boot_transformers" in self.message or "Give" in self.message)
        return self.error <= 1e-5 if self.error is not None else named


@torch.no_grad()
def outcome(folder: Path, kind: str, tied: bool, dtype: torch.dtype, sharded: bool) -> Outcome:
    """Save the family's model, open the folder, and compare logits, computed in float32 on both sides."""
    case = f"{'tied' if tied else 'untied'}, {str(dtype)[6:]}, {'sharded' if sharded else 'one file'}"
    model = model_of(kind, tied, dtype)
    shutil.rmtree(folder, ignore_errors=True)
    saved = copy.deepcopy(model).to(dtype)
    saved.save_pretrained(folder, **({"max_shard_size": "20KB"} if sharded else {}))
    assert (folder / "model.safetensors.index.json").is_file() == sharded
    tokens = torch.randint(2, D_VOCAB, (2, N_TOKENS), generator=torch.Generator().manual_seed(1))
    expected = model(tokens).logits
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ours: Any = aotlens.load(folder, "cpu")
    except CheckpointError as error:
        return Outcome(kind, case, None, str(error))
    logits = ours(tokens)
    error = float((logits - expected).abs().max() / expected.abs().max())
    said = [str(each.message) for each in caught if "UNCHECKED" in str(each.message)]
    card = getattr(getattr(ours, "card", None), "description", "")
    return Outcome(kind, case, error, " ".join([*said, card]), type(ours).__name__)


if __name__ == "__main__":
    import sys
    from tempfile import TemporaryDirectory

    kinds = [kind for kind in sys.argv[1:] if kind[0] != "-"] or FIRST
    rows = []
    for each in kinds:
        for is_tied, numbers, in_shards in (
            [(True, torch.float32, False), (False, torch.float32, False)] if "-q" in sys.argv else
            [(t, d, s) for t in (True, False) for d in (torch.float32, torch.bfloat16) for s in (True, False)]
        ):  # fmt: skip
            if each == "dbrx" and is_tied:  # which its own code refuses
                continue
            with TemporaryDirectory() as home:
                try:
                    row = outcome(Path(home) / "model", each, is_tied, numbers, in_shards)
                except Exception as problem:  # the family's own code, or a reader's fault
                    if "-x" in sys.argv:
                        raise
                    row = Outcome(each, "", None, f"CRASH {type(problem).__name__}: {problem!s:.300}")
            rows.append(row)
            said = row.message if row.error is None or "UNCHECKED" in row.message else ""
            figure = "refused" if row.error is None else f"{row.error:.1e}"
            print(f"{each:22} {row.case:30} {figure:8} {row.form[:12]:12} {said[:400]}", flush=True)
    print(json.dumps({
        "open": len({row.kind for row in rows if row.error is not None}), "of": len(kinds),
        "worst": max((row.error for row in rows if row.error is not None), default=0.0),
        "wrong": [f"{row.kind} {row.case}" for row in rows if row.error is not None and row.error > 1e-5],
        "unchecked": len([row for row in rows if "UNCHECKED" in row.message]),
    }))  # fmt: skip
