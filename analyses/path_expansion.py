"""*structures* §3 to §6 on trained models: heads as Kronecker products, logits as a sum over paths, at any depth.

    python -m analyses.path_expansion [--quick] [--docs docs/paths.md]

Uses the bundled checkpoints novels-1l-mhsa, novels-2l-mhsa and novels-12l-mssa on a paragraph of the prompt below, in
float64 (patterns and norm scales frozen on it, which is what makes the paper's linear algebra exact with norms). Prints
each statement as claim, expected, measured, tolerance, then what each order of paths adds to a logit and to the loss;
--docs writes the same into its section of that page. Expected: every claim holds, to rounding. About twenty seconds;
`--quick` takes a shorter text.
"""

from __future__ import annotations

import sys
from pathlib import Path as FilePath

import torch
from torch import Tensor

import aotlens
from analyses._claims import Claim, markdown, parser, report
from analyses._outcomes import publish_run
from aotlens.circuits import ov_circuit, qk_circuit
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.paths import Kronecker, Path, PathExpansion, expand, term_importance, virtual_weight

PROMPT = (
    "Mrs. Dashwood was surprised only for a moment at seeing him; for his coming to Barton was, in her opinion, of all "
    "things the most natural. Her joy and expressions of regard long outlived her wonder. He received the kindest "
    "welcome from her; and shyness, coldness, reserve could not stand against such a reception."
)
SEED = 0


def algebra() -> list[Claim]:
    """Check §3: definitions and lemmas that hold for any matrices, on small random ones."""
    generator = torch.Generator().manual_seed(SEED)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    first, second = Kronecker(random(4, 4), random(3, 3)), Kronecker(random(4, 4), random(3, 3))
    x, W = random(4, 3), random(3, 3)
    dense = torch.kron(first.pattern, first.weight.T.contiguous())
    product, lifted = second @ first, virtual_weight(W, 4)
    return [
        _zero("Remark 14: (P ⊗ Q) X = Q X Pᵀ", first.weight.T @ x.T @ first.pattern.T - first(x).T, SEED),
        _zero("Remark 14, as a matrix on the flattened stream", (dense @ x.reshape(-1)).reshape(4, 3) - first(x), SEED),
        _zero("Lemma 16: mixed product", product.dense() - second.dense() @ first.dense(), SEED),
        _zero("Lemma 17: M X N = (I ⊗ M)(Nᵀ ⊗ I) X", _lemma_17(random(3, 3), random(4, 4), x), SEED),
        _zero("Definition 19: I ⊗ W is block-diagonal", lifted.dense() - torch.block_diag(*[W.T] * 4), SEED),
        _zero("Remark 20: move after process", (first.move() @ first.process()).dense() - first.dense(), SEED),
    ]


def _lemma_17(M: Tensor, N: Tensor, x: Tensor) -> Tensor:
    """Return Lemma 17's difference in rows, X = xᵀ: (I ⊗ M) is `Kronecker(I, Mᵀ)`, (Nᵀ ⊗ I) is `Kronecker(Nᵀ, I)`."""
    left = virtual_weight(M.T, len(x))
    right = Kronecker(N.T, torch.eye(x.shape[1], dtype=x.dtype))
    return (left @ right)(x) - (M @ x.T @ N).T


@torch.no_grad()
def one_layer(model: AttentionOnlyTransformer, tokens: Tensor) -> list[Claim]:
    """Check §4 and §5: the bigram path, and an ensemble of skip-trigram paths. The model has no norm and no biases."""
    expansion = expand(model, tokens)
    wanted = (hook_names.PATTERN, hook_names.RESULT)
    logits, cache = model.run_with_cache(tokens[None], names_filter=lambda name: name.endswith(wanted))
    patterns, written = cache["pattern", 0][0], cache["result", 0][0]
    embedded = model.W_E[tokens]
    heads = [
        Kronecker(patterns[head], model.W_V[0, head] @ model.W_O[0, head])(embedded) - written[:, head]
        for head in range(model.cfg.n_heads)
    ]
    silenced = model.run_with_hooks(tokens[None], fwd_hooks=[(hook_names.attn(0, hook_names.Z), lambda z, hook: 0 * z)])
    bigrams = embedded @ model.W_U
    direct = expansion.logits(Path("token"))
    through = [expansion.logits(Path("token", ((0, head),))) for head in range(model.cfg.n_heads)]
    # The tables know nothing of the prompt; only the pattern does.
    skip_trigrams = [patterns[head] @ ov_circuit(model, (0, head))[tokens].AB for head in range(model.cfg.n_heads)]
    attention = [_from_the_circuit(model, head, tokens) - patterns[head] for head in range(model.cfg.n_heads)]
    return [
        _zero("Claim 18: a head is A ⊗ W_O W_V", torch.stack(heads)),
        _zero("Remark 21: without heads the model is the bigram table W_U W_E", silenced[0] - bigrams),
        _zero("… and so is the direct path of the full model", direct - bigrams),
        _zero("Proposition 22: direct path + Σ paths of one head = logits", direct + sum(through) - logits[0]),
        _zero("Definition 23: A is the softmax of entries of the QK circuit", torch.stack(attention)),
        _zero("Theorem 25: logits = Bigram(xᵢ) + Σ_h Σ_j A_ij OV_h[xⱼ]", bigrams + sum(skip_trigrams) - logits[0]),
    ]


def _from_the_circuit(model: AttentionOnlyTransformer, head: int, tokens: Tensor) -> Tensor:
    """The pattern from entries of QK circuits alone: of tokens, and of the positions that queries and keys get."""
    rows = {"tokens": tokens, "positions": torch.arange(len(tokens))}
    scores = sum(qk_circuit(model, (0, head), a, b)[rows[a]][:, rows[b]].AB for a in rows for b in rows)  # type: ignore[arg-type]
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


@torch.no_grad()
def deeper(model: AttentionOnlyTransformer, tokens: Tensor) -> tuple[PathExpansion, list[Claim]]:
    """Check §6, where the paper stops: chains of heads are Kronecker products, and all paths add up."""
    expansion = expand(model, tokens)
    frozen, n_heads = expansion.frozen, expansion.n_heads
    chain = expansion.operator(Path("token", ((0, 0), (1, 1))))
    A = [frozen.patterns[layer, head] * frozen.inverse_scale[layer] for layer, head in ((0, 0), (1, 1))]
    position = len(tokens) - 1
    token = int(frozen.logits[position].argmax())
    every = expansion.all_paths(position, token)
    logit, top = frozen.logits[position, token], expansion.top(20, position, token)
    largest = every.values.flatten().abs().sort(descending=True).values[:20]
    values = torch.tensor(top.values, dtype=torch.float64).abs()
    sequences = len({path.heads for path in expansion.paths()})
    return expansion, [
        _zero("§6: head after head is the mixed product, A₂ A₁", chain.terms[0].pattern - frozen.read @ A[1] @ A[0]),
        Claim("§6: (H + 1)^L sequences of heads from each source", (n_heads + 1) ** 2, sequences, 0),
        _zero("2 layers: all paths, each by itself, add up to the logit", every.values.sum() - logit),
        _zero("2 layers: all orders add up to every logit", expansion.by_order().sum(0) - model(tokens[None])[0]),
        _zero("2 layers: the 20 largest paths, by search and by enumeration", values - largest),
        Claim("… of which the search proves", 20, top.n_proven, 0),
    ]


@torch.no_grad()
def explosion(model: AttentionOnlyTransformer, tokens: Tensor) -> list[Claim]:
    """Check, in twelve layers, paths that nobody could list, summed exactly and searched with proof."""
    expansion = expand(model, tokens)
    top = expansion.top(20)
    logits, by_head = expansion.frozen.logits, expansion.by_head(top.target).total()
    return [
        _zero("12 layers: all orders add up to every logit", expansion.by_order().sum(0) - model(tokens[None])[0]),
        _zero("12 layers: so do all last heads and the direct paths", by_head - logits[:, top.target]),
        Claim(f"12 layers: of the 20 largest of {top.n_paths:,} paths the search proves", 20, top.n_proven, 0),
    ]


def _zero(claim: str, difference: Tensor, seed: int | None = None) -> Claim:
    return Claim(claim, 0, float(difference.abs().max()), 1e-9, seed=seed)


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--docs", type=FilePath, metavar="PAGE", help="write the tables into this page's section")
    arguments = options.parse_args(argv)
    n_tokens = 12 if arguments.quick else 64
    claims = algebra()
    shallow = aotlens.load("novels-1l-mhsa", device="cpu").double()
    claims += one_layer(shallow, shallow.to_tokens(PROMPT)[0, :n_tokens])
    model = aotlens.load("novels-2l-mhsa", device="cpu").double()
    tokens = model.to_tokens(PROMPT)[0, :n_tokens]
    expansion, more = deeper(model, tokens)
    deep = aotlens.load("novels-12l-mssa", device="cpu").double()
    importance = term_importance(model, tokens, heads=False)
    claims += [
        *more,
        *explosion(deep, deep.to_tokens(PROMPT)[0, :n_tokens]),
        Claim(
            "2 layers: paths of every order give the model's loss, nats (Elhage et al.)",
            importance.loss,
            float(importance.loss_up_to[-1]),
            1e-9,
        ),
    ]
    status = report(claims)
    token = int(expansion.frozen.logits[-1].argmax())
    by_order = zip(expansion.by_order(token)[:, -1].tolist(), importance.loss_up_to, strict=True)
    rows = [[order, f"{value:+.4f}", f"{loss:.4f}"] for order, (value, loss) in enumerate(by_order)]
    orders = (
        f"novels-2l-mhsa: the logit {expansion.token_name(token)} after the last of {n_tokens} tokens, and the loss on "
        f"all of them, by order:\n\n{markdown(['heads', 'logits', 'loss with paths up to here, nats a token'], rows)}"
    )
    print(f"\n{orders}")
    publish_run(arguments, "path_expansion", "docs/paths.md", [claims, orders])
    return status


if __name__ == "__main__":
    sys.exit(main())
