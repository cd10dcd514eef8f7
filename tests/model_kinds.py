"""Which analysis takes which kind of model: every cell is called, and what a refusal says is written down.

    python -m tests.model_kinds          writes docs/model-kinds.md, in some two minutes on one core

The page is held to by `tests/test_model_kinds.py`, which calls each cell and compares.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotlens import circuits, denoise, distill, evaluate, heads, patching, paths, trigrams
from aotlens.data import PromptPairs, Tokenizer
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.distill.heads.conftest import FAST, random_windows
from tests.small_models import randomise

Model = AttentionOnlyTransformer
PAGE = Path(__file__).parents[1] / "docs" / "model-kinds.md"
TEXT = "the cat sat on the mat. the dog sat on the cat. a cat and a dog sat on the mat again. " * 8
SIZES = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_head": 6, "n_ctx": 24, "d_vocab": 279}
ROTARY = {"positions": "rotary", "norm": "rms", "rotary": {"base": 30.0, "dim": 4}}
GATED = {"d_mlp": 20, "gated_mlp": True, "act_fn": "silu"}
KINDS: dict[str, dict[str, Any]] = {
    "learned": {"bias": True},
    "qk": {"positions": "qk", "norm": None},
    "MHSA": {**ROTARY, "n_kv_heads": 2, "qkv_bias": True},
    "MSSA": {**ROTARY, "attention": "mssa"},
    "ALiBi": {"positions": "alibi", "n_kv_heads": 2, "bias": True},
    "GPT-2": {"bias": True, "d_mlp": 20},
    "Llama": {**ROTARY, **GATED, "n_kv_heads": 2},
    "NeoX": {"positions": "rotary", "rotary": {"dim": 2}, "bias": True, "d_mlp": 20, "parallel": True},
    "Qwen3": {**ROTARY, "n_kv_heads": 2, "qk_norm": "head"},
    "OLMo 2": {**ROTARY, "n_kv_heads": 2, "qk_norm": "layer", "norm_place": "output"},
    "Gemma 2": {
        **ROTARY, **GATED, "n_kv_heads": 2, "norm_place": "both", "norm_gain_offset": 1.0, "score_cap": 1.5,
        "logit_cap": 2.5, "windows": (9, None),
    },
    "OLMo 1": {**ROTARY, "norm": "layernorm", "clip_qkv": 0.3},
    "after": {"bias": True, "d_mlp": 20, "norm_place": "after"},
}  # fmt: skip
#: The columns of the page, and what stands behind each.
MEANINGS = {
    "learned": "positions added to the stream, layer norms",
    "qk": "shortformer positions, no norm",
    "MHSA": "rotary positions, RMS norms, grouped keys",
    "MSSA": "the same with one matrix for queries, keys and values",
    "ALiBi": "scores biased by distance",
    "GPT-2": "learned positions and MLPs",
    "Llama": "rotary, grouped keys, gated MLPs (Mistral, Qwen2, Phi-3, Gemma 1)",
    "NeoX": "rotary, MLPs beside attention (Pythia, GPT-J, Phi, Falcon)",
    "Qwen3": "rotary, norms of queries and keys",
    "OLMo 2": "norms on what layers write, and of queries and keys",
    "Gemma 2": "norms on both sides, soft caps, windows (of 9 here)",
    "OLMo 1": "clipped queries, keys and values",
    "after": "norms after the addition (torch.nn.TransformerEncoder)",
}


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT], SIZES["d_vocab"])


def build(kind: str, **changes: Any) -> Model:
    """A small model of a kind, with noise on every parameter, in float64."""
    cfg = ModelConfig(**{**SIZES, **KINDS[kind], **changes})
    model = randomise(AttentionOnlyTransformer(cfg, tokenizer()).double(), scale=0.2).eval().requires_grad_(False)
    counts = torch.tensor(tokenizer().encode(TEXT))
    model.unigram_counts = torch.bincount(counts, minlength=SIZES["d_vocab"])
    return model


def prompt(model: Model) -> Tensor:
    """A prompt of 14 tokens: longer than a window."""
    return model.to_tokens("the cat sat on the mat, the dog sat on the cat again")[:, :14]


def _atlas(m: Model, ids: Tensor) -> Any:
    return heads.atlas(m, ids[:, :9].expand(4, -1), hows=("zero",), cache=None)


def _pairs(m: Model) -> PromptPairs:
    return PromptPairs.induction(m, n=2, length=4)


def _best_path(m: Model, ids: Tensor) -> Any:
    expansion = paths.expand(m, ids)
    return paths.without_path(expansion, expansion.top(1, -1, 7).paths[0])


#: A call of each analysis. Those of patterns' windows have prompts that fit in one.
CALLS: dict[str, Callable[[Model, Tensor], Any]] = {
    "model.generate": lambda m, ids: m.generate(ids, 3, seed=0),
    "evaluate.next_token_predictions": lambda m, ids: evaluate.next_token_predictions(m, ids, 2),
    "evaluate.score_continuations": lambda m, ids: evaluate.score_continuations(m, ["the cat"], [" sat"]),
    "heads.attention_patterns": lambda m, ids: heads.attention_patterns(m, ids),
    "heads.motif_scores": lambda m, ids: heads.motif_scores(m, n_sequences=2, half_length=4),
    "heads.head_scores": lambda m, ids: heads.head_scores(m, ids[:, :9].expand(2, -1), pairs=_pairs(m)),
    "heads.ablate": lambda m, ids: heads.ablate(m, ids, [(1, 0)], "zero"),
    "heads.ablate_each": lambda m, ids: heads.ablate_each(m, ids),
    "heads.atlas": _atlas,
    "heads.pattern_consistency": lambda m, ids: heads.pattern_consistency(m, ids[:, :9].expand(2, -1)),
    "heads.sufficient_heads": lambda m, ids: heads.sufficient_heads(
        m, ids.expand(6, -1), m(ids.expand(6, -1)).argmax(-1), how="zero"
    ),
    "heads.shapley_heads": lambda m, ids: heads.shapley_heads(m, ids.expand(2, -1), how="zero", n_permutations=32),
    "heads.universality": lambda m, ids: heads.universality({"a": m, "b": m}, ids[:, :9], n_permutations=19),
    "heads.match_heads": lambda m, ids: heads.match_heads(m, m, ids[:, :9]),
    "heads.subspaces": lambda m, ids: heads.subspaces(m, n_random=20),
    "heads.sharpest_circuits": lambda m, ids: heads.sharpest_circuits(m, _atlas(m, ids), "1.0"),
    "circuits.qk_circuit": lambda m, ids: circuits.qk_circuit(m, "0.1"),
    "circuits.qk_circuit(distance=3)": lambda m, ids: circuits.qk_circuit(m, "0.1", biases=True, distance=3),
    "circuits.qk_circuit(distance=range(9))": lambda m, ids: circuits.qk_circuit(m, "0.1", distance=range(9)).top(3),
    "circuits.qk_circuit(…, 'positions')": lambda m, ids: circuits.qk_circuit(m, "0.0", "positions"),
    "circuits.ov_circuit": lambda m, ids: circuits.ov_circuit(m, "1.1"),
    "circuits.distance_profile": lambda m, ids: circuits.distance_profile(m, "0.1", 5, 7),
    "circuits.reach": lambda m, ids: circuits.reach(m, "0.1"),
    "circuits.copying_rate": lambda m, ids: circuits.copying_rate(m, "0.1"),
    "circuits.all_compositions": lambda m, ids: circuits.all_compositions(m, folded=True),
    "circuits.all_compositions(data=…)": lambda m, ids: circuits.all_compositions(m, folded=True, data=ids),
    "trigrams.skip_trigrams": lambda m, ids: trigrams.skip_trigrams(m, "0.1", k=5),
    "trigrams.skip_trigrams(distance=2)": lambda m, ids: trigrams.skip_trigrams(m, "0.1", k=5, distance=2),
    "trigrams.distance_shares": lambda m, ids: trigrams.distance_shares(m, "0.1"),
    "trigrams.bigrams": lambda m, ids: trigrams.bigrams(m, 5),
    "paths.expand": lambda m, ids: paths.expand(m, ids).top(5, -1, 7),
    "paths.direct_logit_attribution": lambda m, ids: paths.direct_logit_attribution(m, ids, 7),
    "paths.without_head": lambda m, ids: paths.without_head(paths.expand(m, ids), (1, 2)),
    "paths.without_path": _best_path,
    "paths.effect_without": lambda m, ids: paths.effect_without(paths.expand(m, ids), (1, 0), -2, 7),
    "paths.term_importance": lambda m, ids: paths.term_importance(m, ids),
    "paths.logit_jacobian": lambda m, ids: paths.logit_jacobian(m, ids[0], 7, layer=1),
    "paths.logit_lens": lambda m, ids: paths.logit_lens(m, ids[0]),
    "paths.head_lens": lambda m, ids: paths.head_lens(m, ids[0], k=3),
    "paths.expand(…).score": lambda m, ids: paths.expand(m, ids).score((1, 0), 4, 2),
    "paths.explained_variance": lambda m, ids: paths.explained_variance(paths.expand(m, ids), (1, 0)),
    "paths.patch_edge": lambda m, ids: paths.patch_edge(m, ids[0], (0, 0), (1, 0), "k"),
    "patching.patch": lambda m, ids: patching.patch(m, _pairs(m), "k", by_position=False),
    "denoise.audit": lambda m, ids: denoise.audit(m, ids[:, :9].expand(2, -1), n_draws=2),
    "denoise.head_asymmetry": lambda m, ids: denoise.head_asymmetry(m, ids, every=2, n_draws=2),
    "distill.distill_heads": lambda m, ids: distill.distill_heads(
        m, tuple(random_windows(n, length=9, seed=n) for n in (40, 8, 8)), [4], **{**FAST, "seeds": 1}
    ),
    "interop.to_transformer_lens": lambda m, ids: to_transformer_lens(m),
}


def outcome(name: str, model: Model) -> str:
    """What a call says of a model: nothing, or why it is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert CALLS[name](model, prompt(model)) is not None
    except ValueError as error:
        return _reason(" ".join(str(error).split()))
    return ""


def _reason(message: str) -> str:
    """The reason in a message, without the name of the analysis and the advice that all of them end with."""
    _, trait, reason = message.partition("not defined for this model: ")
    if not trait:
        return message
    reason = reason.partition(". Patterns, motifs")[0]
    return f"Not defined for this model: {reason}."


def page(outcomes: dict[str, dict[str, str]]) -> str:
    """The page of outcomes, by call and kind."""
    notes: dict[str, int] = {}
    rows = []
    for name, of_kinds in outcomes.items():
        cells = [f"[{notes.setdefault(text, len(notes) + 1)}](#why-not)" if text else "●" for text in of_kinds.values()]
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    kinds = "\n".join(f"- **{kind}**: {meaning}." for kind, meaning in MEANINGS.items())
    reasons = "\n".join(f"{number}. {text}" for text, number in notes.items())
    return f"""# Analyses and models

Every cell was called on a small random model: ● gives numbers, a number is the reason why there are none. What is
relative about a result (a scale that depends on the input, an average over distances), the result itself says. Of 28
analyses the numbers of each cell are compared with a forward pass in plain PyTorch (`tests/test_model_values.py`).

{kinds}

| analysis | {" | ".join(KINDS)} |
|---|{"---|" * len(KINDS)}
{chr(10).join(rows)}

## Why not

{reasons}
"""


def main() -> None:
    """Write the page."""
    models = {kind: build(kind) for kind in KINDS}
    outcomes = {name: {kind: outcome(name, model) for kind, model in models.items()} for name in CALLS}
    PAGE.write_text(page(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
