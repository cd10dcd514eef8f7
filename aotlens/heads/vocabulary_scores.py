"""Scores of heads from their OV circuits over the vocabulary: copy suppression and successors, from weights alone.

Of the circuit tokens × logits, M = W_E W_V W_O W_U with norms folded in (`aotlens.circuits.ov_circuit`), row t says
what attending to token t adds to each logit.

    copy suppression, OV   share of tokens t with M[t, t] among the `LOWEST` lowest logits of row t; by chance
                           `LOWEST` ÷ vocabulary (McDougall et al. 2310.04625)
    successor              share of members t of ordinal sequences whose successor is the largest logit of row t; by
                           chance 1 ÷ vocabulary (Gould et al. 2312.09230, Figure 2)

Both papers take the first MLP's output for the embedding, as befits GPT-2 and Pythia; here it is the embedding itself,
since an attention-only model has no MLP. The largest logit is that of all tokens; Tigges et al. (2024), who score
successors after Gould et al., take that of the sequence's own words, and so find a head that knows weekdays but does
not raise them over other words.

Chance is of logits in any other order, each as likely: tokens permuted. Successors are those of numbers, weekdays,
months and letters, as far as both words are one token for the tokenizer, in one spelling: with or without a space
before them, and letters large or small. In a model with MLPs before the head this is of the direct path alone.
"""

from __future__ import annotations

import calendar
import string
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from aotlens.circuits import diagonal_rank, ov_circuit
from aotlens.circuits.factored import FactoredMatrix
from aotlens.heads.inputs import Missing
from aotlens.heads.score_inputs import MeasuredScore, ScoreInputs

#: The number of lowest logits of a row, among which McDougall et al. (2023) look for its own token.
LOWEST = 10
#: The least number of words whose successor is one token, too.
LEAST_SUCCESSORS = 10
#: Ordinal sequences, and whether the first word follows the last one.
ORDINALS: dict[str, tuple[tuple[str, ...], bool]] = {
    "numbers": (tuple(map(str, range(101))), False),
    "weekdays": (tuple(calendar.day_name), True),
    "months": (tuple(calendar.month_name)[1:], True),
    "large letters": (tuple(string.ascii_uppercase), False),
    "small letters": (tuple(string.ascii_lowercase), False),
}


@torch.no_grad()
def suppressed_share(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of tokens whose own logit is among the lowest of their row of the OV circuit."""
    model = inputs.model_with_circuits()
    n_tokens = inputs.reader.d_vocab
    chance, hits = min(1.0, LOWEST / n_tokens), np.zeros((n_tokens, *inputs.shape))
    for head in np.ndindex(*inputs.shape):
        circuit = ov_circuit(model, head)
        hits[:, *head] = (diagonal_rank(FactoredMatrix(-circuit.A, circuit.B)) < LOWEST).double().cpu().numpy()
    return MeasuredScore(values=hits.mean(0), chance=np.full(inputs.shape, chance), n=n_tokens, excess=hits - chance)


@torch.no_grad()
def successor(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of ordinal words whose successor is the largest logit of their row of the OV circuit."""
    model = inputs.model_with_circuits()
    pairs = torch.tensor(successor_pairs(model), dtype=torch.long).reshape(-1, 2)
    if len(pairs) < LEAST_SUCCESSORS:
        raise Missing(
            f"it needs {LEAST_SUCCESSORS} words of ordinal sequences ({', '.join(ORDINALS)}) that are one token each, "
            f"as their successors are, and the tokenizer has {len(pairs)}"
        )
    chance, hits = 1 / inputs.reader.d_vocab, np.zeros((len(pairs), *inputs.shape))
    for head in np.ndindex(*inputs.shape):
        circuit = ov_circuit(model, head)
        largest = (circuit.A[pairs[:, 0].to(circuit.A.device)] @ circuit.B).argmax(1).cpu()
        hits[:, *head] = (largest == pairs[:, 1]).double().numpy()
    return MeasuredScore(
        values=hits.mean(0), chance=np.full(inputs.shape, chance), n=len(pairs), excess=hits - chance
    )  # fmt: skip


def successor_pairs(model: Any, names: Iterable[str] = ORDINALS) -> list[tuple[int, int]]:
    """List the ids of the words of some ordinal sequences that are one token, each with that of its successor."""
    if model.tokenizer is None:
        return []

    def id_of(text: str) -> int | None:
        try:
            return int(model.to_single_token(text))
        except ValueError:
            return None

    pairs = []
    for words, cyclic in (ORDINALS[name] for name in names):
        for space in ("", " "):
            ids = [id_of(space + word) for word in words]
            following = [*ids[1:], ids[0] if cyclic else None]
            pairs += [(a, b) for a, b in zip(ids, following, strict=True) if a is not None and b is not None]
    return pairs
