"""*structures* §3 to §6 on trained models: heads as Kronecker products, logits as a sum over paths, at any depth.

    python -m analyses.path_expansion [--quick]

Uses the bundled checkpoints novels-1l-mhsa and novels-2l-mhsa on a paragraph of the prompt below, in float64 (patterns
and norm scales frozen on it, which is what makes the paper's linear algebra exact with norms). Prints each statement as
claim, expected, measured, tolerance, then what each order of paths adds to a logit and to the loss. Expected: every
claim holds, to rounding. About twenty seconds; `--quick` takes a shorter text.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import aotlens
from analyses._claims import Claim, parser, report
from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import Kronecker, Path, PathExpansion, expand, term_importance, virtual_weight

PROMPT = (
    "Mrs. Dashwood was surprised only for a moment at seeing him; for his coming to Barton was, in her opinion, of all "
    "things the most natural. Her joy and expressions of regard long outlived her wonder. He received the kindest "
    "welcome from her; and shyness, coldness, reserve could not stand against such a reception."
)


def algebra() -> list[Claim]:
    """Definitions and lemmas that hold for any matrices, on small random ones."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    first, second = Kronecker(random(4, 4), random(3, 3)), Kronecker(random(4, 4), random(3, 3))
    x, W = random(4, 3), random(3, 3)
    dense = torch.kron(first.pattern, first.weight.T.contiguous())
    product = second @ first
    return [
        _zero("Remark 14: (P ⊗ Q) X = Q X Pᵀ", first.weight.T @ x.T @ first.pattern.T - first(x).T),
        _zero("Remark 14, as a matrix on the flattened stream", (dense @ x.reshape(-1)).reshape(4, 3) - first(x)),
        _zero("Lemma 16: mixed product", product.dense() - second.dense() @ first.dense()),
        _zero("Lemma 17: M X N = (I ⊗ M)(Nᵀ ⊗ I) X", _lemma_17(random(3, 3), random(4, 4), x)),
        _zero("Definition 19: I ⊗ W is block-diagonal", virtual_weight(W, 4).dense() - torch.block_diag(*[W.T] * 4)),
        _zero("Remark 20: move after process", (first.move() @ first.process()).dense() - first.dense()),
    ]


def _lemma_17(M: Tensor, N: Tensor, x: Tensor) -> Tensor:
    """In rows, X = xᵀ: (I ⊗ M) is `Kronecker(I, Mᵀ)`, (Nᵀ ⊗ I) is `Kronecker(Nᵀ, I)`."""
    left = virtual_weight(M.T, len(x))
    right = Kronecker(N.T, torch.eye(x.shape[1], dtype=x.dtype))
    return (left @ right)(x) - (M @ x.T @ N).T


@torch.no_grad()
def one_layer(model: AttentionOnlyTransformer, tokens: Tensor) -> list[Claim]:
    """§4 and §5: the bigram path, and an ensemble of skip-trigram paths."""
    expansion = expand(model, tokens)
    frozen = expansion.frozen
    _, cache = model.run_with_cache(tokens[None], names_filter=lambda name: name.endswith("hook_result"))
    written = cache["result", 0][0]  # [pos, head, d_model]
    stream = torch.stack([*frozen.sources.values()]).sum(0)
    heads = []
    for head in range(model.cfg.n_heads):
        A = frozen.patterns[0, head] * frozen.inverse_scale[0]
        own_bias = Kronecker(frozen.patterns[0, head], (frozen.v_bias[0, head] @ frozen.W_O[0, head])[None])
        both = Kronecker(A, frozen.W_V[0, head] @ frozen.W_O[0, head])(stream) + own_bias(expansion.source("bias"))
        heads.append(both - written[:, head])
    direct = sum(expansion.logits(Path(name)) for name in expansion.source_names)
    through = sum(
        expansion.logits(Path(name, ((0, head),)))
        for name in expansion.source_names
        for head in range(model.cfg.n_heads)
    )
    # The direct path of a token sees only that token: equal tokens differ by the final norm's scale alone.
    bigram = expansion.logits(Path("token")) / frozen.read.diagonal()[:, None]
    return [
        _zero("Claim 18: a head is A ⊗ W_O W_V", torch.stack(heads)),
        _zero("Remark 21: the direct path is a bigram table", bigram - model.W_E[tokens] @ frozen.R),
        _zero("Proposition 22: direct + Σ heads = logits", direct + through - model(tokens[None])[0]),
        _zero("Theorem 25: there are no other paths", expansion.by_order().sum(0) - direct - through),
    ]


@torch.no_grad()
def deeper(model: AttentionOnlyTransformer, tokens: Tensor) -> tuple[PathExpansion, list[Claim]]:
    """§6, where the paper stops: chains of heads are Kronecker products, and all paths add up."""
    expansion = expand(model, tokens)
    frozen, n_heads = expansion.frozen, model.cfg.n_heads
    chain = expansion.operator(Path("token", ((0, 0), (1, 1))))
    A = [frozen.patterns[layer, head] * frozen.inverse_scale[layer] for layer, head in ((0, 0), (1, 1))]
    position = len(tokens) - 1
    token = int(frozen.logits[position].argmax())
    every = expansion.all_paths(position, token)
    top = expansion.top(20, position, token)
    largest = every.values.flatten().abs().sort(descending=True).values[:20]
    found = torch.tensor(top.values, dtype=torch.float64).abs()
    return expansion, [
        _zero("§6: head after head is the mixed product, A₂ A₁", chain.terms[0].pattern - frozen.read @ A[1] @ A[0]),
        Claim(
            claim="§6: (H + 1)^L sequences of heads from each source",
            expected=(n_heads + 1) ** model.cfg.n_layers,
            measured=every.values.shape[1],
            tolerance=0,
        ),
        _zero("All paths add up to the logit", every.values.sum() - frozen.logits[position, token]),
        _zero("All orders add up to every logit", expansion.by_order().sum(0) - model(tokens[None])[0]),
        _zero("The 20 largest paths, by search and by enumeration", found - largest),
        Claim(claim="… of which the search proves", expected=20, measured=top.n_proven, tolerance=0),
    ]


def _zero(claim: str, difference: Tensor) -> Claim:
    return Claim(claim=claim, expected=0, measured=float(difference.abs().max()), tolerance=1e-9)


def main(argv: list[str] | None = None) -> int:
    chosen = parser(__doc__).parse_args(argv)
    n_tokens = 12 if chosen.quick else 64
    claims = algebra()
    shallow = aotlens.load("novels-1l-mhsa", device="cpu").double()
    tokens = shallow.to_tokens(PROMPT)[0, :n_tokens]
    claims += one_layer(shallow, tokens)
    model = aotlens.load("novels-2l-mhsa", device="cpu").double()
    tokens = model.to_tokens(PROMPT)[0, :n_tokens]
    expansion, more = deeper(model, tokens)
    importance = term_importance(model, tokens[None], heads=False)
    claims += [
        *more,
        Claim(
            claim="Elhage et al.: paths of every order give the model's loss, nats",
            expected=importance.loss,
            measured=float(importance.loss_up_to[-1]),
            tolerance=1e-9,
        ),
    ]
    status = report(claims)
    token = int(expansion.frozen.logits[-1].argmax())
    print(f"\nLogit {expansion.token_name(token)} after the last token, and the loss on the text, by order:\n")
    print("heads | logits | loss with paths up to here, nats")
    print("--- | --- | ---")
    for order, (value, loss) in enumerate(zip(expansion.by_order(token)[:, -1], importance.loss_up_to, strict=True)):
        print(f"{order} | {float(value):+.4f} | {loss:.4f}")
    return status


if __name__ == "__main__":
    sys.exit(main())
