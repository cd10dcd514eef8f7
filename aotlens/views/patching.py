"""Activation patching as views: what of a clean prompt brings its answer back into a corrupted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aotlens.conventions import Head, head_name
from aotlens.statistics import interval_text
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family, is_causal
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import View, pass_cost

if TYPE_CHECKING:
    from aotlens.patching import Patched

#: Pairs of random tokens, and tokens before the last one.
N_PAIRS, LENGTH = 32, 24
#: Cells of an estimate that are patched, too.
CHECKED = 20

#: The cost of a cell in passes: later layers and positions alone run again; of an edge every head reads three streams.
_STREAMS_COST, _HEADS_COST, _EDGES_COST = 0.15, 0.5, 3.0

CLEAN, CORRUPTED = "Mr. Darcy met Elizabeth. Then Mr.", "Mr. Collins met Elizabeth. Then Mr."
PAIRS = {
    "prompts": "the two prompts",
    "induction": f"{N_PAIRS} pairs of random tokens: what came after (induction)",
    "key": f"{N_PAIRS} pairs of random tokens: whether it came before (induction)",
    "names": f"{N_PAIRS} pairs of sentences: a repeated name",
    "brackets": f"{N_PAIRS} pairs of lines of Python: matching brackets",
    "indentation": f"{N_PAIRS} pairs of lines of Python: indentation",
}
_SETS = {
    "names": "aotlens.data.repeated_names",
    "brackets": "aotlens.data.matching_brackets",
    "indentation": "aotlens.data.deeper_indentation",
}
METRICS = {
    "logit_difference": "logit difference",
    "probability": "probability of the answer",
    "loss": "loss of the answer",
    "kl": "KL divergence from the clean prompt",
}
DIRECTIONS = {"denoising": "clean into corrupted (denoising)", "noising": "corrupted into clean (noising)"}
STREAMS = {
    "resid_pre": "residual stream before the layer",
    "attn_out": "attention output",
    "mlp_out": "MLP output",
    "resid_post": "residual stream after the layer",
}
BY = {"exact": "patching every cell", "estimate": "a gradient (an estimate, at once)"}
HEADS = {"z": "outputs (z)", "v": "values", "q": "queries", "k": "keys", "pattern": "attention patterns"}
_SOURCE = (
    "Meng et al. (2022), causal tracing; Heimersheim and Nanda (2024), how to use and interpret activation patching"
)


@dataclass(frozen=True, kw_only=True)
class PatchingParameters(OfCheckpoint):
    """A model, two prompts or random ones, and which activations of one are put into the other."""

    pairs: str = declare.choice(PAIRS, label="Prompts")
    clean: str = declare.text(CLEAN, label="Clean prompt", lines=2)
    corrupted: str = declare.text(CORRUPTED, label="Corrupted prompt", lines=2)
    answer: str = declare.text(label="Answer", most=40, blank="what the model says after the clean prompt")
    wrong: str = declare.text(label="Wrong answer", most=40, blank="what it says after the corrupted prompt")
    metric: str = declare.choice(METRICS, label="Metric")
    direction: str = declare.choice(DIRECTIONS, label="Direction")
    stream: str = declare.choice(STREAMS, label="Layer by position")
    by: str = declare.choice(BY, label="Layer by position, by")
    heads: str = declare.choice(HEADS, label="Head by head")
    position: str = declare.text(label="Heads at position", most=5, blank="all positions together")
    head: Head | None = declare.head("Edges of head", blank="the largest of all")
    keep: float = declare.real(0.9, 0.1, 1, step=0.05, label="Faithfulness threshold")
    removed: str = declare.text(label="Edges taken out of the circuit", most=400, blank="none")
    seed: int = declare.whole(0, most=99, label="Random tokens (seed)")
    n_tokens: int | None = None
    """The number of tokens of the longer prompt, where somebody has counted them."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that are read."""
        return (self.clean, self.corrupted) if self.pairs == "prompts" else ()

    @property
    def made(self) -> tuple[Load, Call]:
        """The model and the pairs."""
        model = Load(self.checkpoint)
        if self.pairs in ("induction", "key"):
            differs = {"differs": "key"} if self.pairs == "key" else {}
            pairs = make(
                "aotlens.data.PromptPairs.induction", model, **differs, n=N_PAIRS, length=self.length, seed=self.seed
            )
        elif self.pairs in _SETS:
            pairs = make(_SETS[self.pairs], model, n=N_PAIRS, seed=self.seed)
        else:
            texts = self.clean, self.corrupted, self.answer, self.wrong
            pairs = call("aotlens.patching.pair_of", model, *texts)
        return model, pairs.named("pairs")

    @property
    def length(self) -> int:
        """Random tokens before the last one."""
        return min(LENGTH, int(self.model["n_ctx"]) - 2)

    @property
    def n_pos(self) -> int:
        """The approximate positions of a prompt; unless counted a guess, as tokens have some three characters."""
        guess = max(map(len, self.texts), default=0) // 3 + 2
        return min((self.n_tokens or guess) if self.texts else self.length + 2, int(self.model["n_ctx"]))

    def cost(self, n_passes: float) -> float:
        """Return the operations of so many passes over all pairs."""
        return n_passes * self.n_pairs * pass_cost(self.model, self.n_pos)

    @property
    def held(self) -> float:
        """Bytes of the activations of both runs: patterns and scores; queries, keys, values and outputs."""
        return self.n_pairs * self.n_heads * self.n_pos * (16.0 * self.n_pos + 32.0 * self.d_head)

    @property
    def held_by_edges(self) -> float:
        """Bytes of the activations of both runs, of what each head writes, and of numbers of all edges: from every head
        to three streams of every head."""
        written = 8.0 * self.n_pairs * self.n_heads * self.n_pos * int(self.model["d_model"])
        return self.held + written + 24.0 * self.n_heads**2

    @property
    def n_pairs(self) -> int:
        """The number of pairs of prompts."""
        return 1 if self.pairs == "prompts" else N_PAIRS

    @property
    def options(self) -> dict[str, str]:
        """The options that all views take."""
        return {"metric": self.metric, "direction": self.direction}


def _missing_stream(params: PatchingParameters) -> str | None:
    if params.stream == "mlp_out" and params.model.get("d_mlp") is None:
        return f"{params.checkpoint} has no MLPs. Choose the residual stream, or attention outputs."
    return None


def _missing_position(params: PatchingParameters) -> str | None:
    if params.position and not params.position.strip().isdecimal():
        return f"‹{params.position}› is no position. Write 0 for the first token, 1 for the second, or nothing."
    return _missing_heads(params)


def _missing_heads(params: PatchingParameters) -> str | None:
    if params.heads in ("q", "k") and params.model.get("phi") == "fixed":
        return (
            f"The patterns of {params.checkpoint} are fixed, so it has no queries or keys. Choose another activation."
        )
    return None


def _search(params: PatchingParameters) -> Call:
    held_out = {"held_out": 0} if params.pairs == "prompts" else {}
    return call(
        "aotlens.patching.find_circuit", *params.made, params.metric, keep=params.keep, seed=params.seed, **held_out
    )


def _circuit(params: PatchingParameters) -> Call:
    circuit = _search(params)
    if not params.removed:
        return circuit
    edges = [edge.strip() for edge in params.removed.split(",") if edge.strip()]
    less = "aotlens.patching.circuit_faithfulness"
    return call(less, *params.made, circuit.named("found"), params.metric, without=edges, keep=params.keep)


def _file(params: PatchingParameters, what: str) -> str:
    of = "prompts" if params.pairs == "prompts" else f"{params.pairs}-seed{params.seed}"
    return f"patching-{params.checkpoint}-{of}-{params.direction}-{what}"


def _of_patched(params: PatchingParameters, result: Patched) -> str:
    """Return the metric of both prompts, and which cell matters most."""
    from aotlens.patching.metrics import cell_words

    clean, corrupted = float(result.clean.mean()), float(result.corrupted.mean())
    base, verb = (1.0, "takes most away") if params.direction == "noising" else (0.0, "restores most")
    place = np.unravel_index(int(np.abs(result.restored - base).argmax()), result.restored.shape)
    asked = f"Answer ‹{result.outputs[0]}›, wrong answer ‹{result.outputs[1]}›. " if result.outputs else ""
    sentences = (
        f"{asked}{METRICS[params.metric].capitalize()}: {clean:.3f} {result.unit} clean, {corrupted:.3f} corrupted"
        f"{'' if len(result.clean) == 1 else f', means over {len(result.clean)} pairs'}. Of all cells "
        f"{cell_words(result.cell(place), result.str_tokens)} {verb}: with it patched {result.values[place]:.3f}, a "
        f"share of {result.restored[place]:.2f} of the way from corrupted to clean"
    )
    sentences += f"{interval_text(result.intervals()[place], '.2f', over=', over pairs')}."
    low, high = result.difference_interval
    if low <= 0 <= high:
        sentences += (
            f" Over pairs clean and corrupted prompts cannot be told apart (95% of their difference {low:.3f} to "
            f"{high:.3f}), so these are shares of next to nothing."
        )
    return sentences


TOKENS = View(
    name="tokens",
    title="The prompts",
    about="The tokens of both prompts (of the first pair, where there are several), each above what corresponds to it: "
    "the same position where both have equally many tokens, else the tokens of a longest common subsequence. Shaded "
    "where they differ. What has no partner stays as it is when the other prompt's activations are put in.",
    call=lambda params: params.made[1],
    file=lambda params: _file(params, "prompts"),
    cost=lambda params: params.cost(2),
    low=True,
)
STREAM = View(
    name="positions",
    title="Layer by position",
    about="The model runs on one prompt with one activation of the other in its place, at one layer and one position; "
    "what it says then is measured. Clean into corrupted shows what is enough to bring the answer back, corrupted into "
    "clean what the answer cannot do without. A cell is the share of the way from the corrupted to the clean prompt's "
    "number, a ratio of means over pairs: 1 as clean, 0 as corrupted. Positions correspond where both prompts have "
    "equally many tokens; otherwise tokens of a longest common subsequence do, and others stay as they are.",
    formula="(m(patched) − m(corrupted)) ÷ (m(clean) − m(corrupted))",
    source=_SOURCE,
    call=lambda params: (
        call("aotlens.patching.patch", *params.made, params.stream, **params.options)
        if params.by == "exact"
        else call("aotlens.patching.attribution", *params.made, params.stream, check=CHECKED, **params.options)
    ),
    caption=lambda params, result: _of_patched(params, result) if params.by == "exact" else result.sentences(),
    drawn=lambda params: {} if params.by == "exact" else {"shown": "cells"},
    file=lambda params: _file(params, params.stream if params.by == "exact" else f"{params.stream}-estimate"),
    missing=_missing_stream,
    picks="position = x",
    cost=lambda params: params.cost(_STREAMS_COST * int(params.model["n_layers"]) * params.n_pos),
    held=lambda params: params.held,
)
OF_HEADS = View(
    name="by-head",
    title="Head by head",
    about="The same of each head's own activation, at all positions together: its output z (before W_O), its values, "
    "queries or keys, or the rows of its attention pattern. Patched keys or queries change where the head looks, "
    "patched values what it moves. Click a cell of the map above for one position alone.",
    formula="(m(patched) − m(corrupted)) ÷ (m(clean) − m(corrupted))",
    source=_SOURCE,
    call=lambda params: call(
        "aotlens.patching.patch",
        *params.made,
        params.heads,
        **params.options,
        **({"positions": [int(params.position)]} if params.position else {}),
    ),
    caption=_of_patched,
    file=lambda params: _file(params, params.heads),
    missing=_missing_position,
    picks="head = y.x",
    cost=lambda params: params.cost(_HEADS_COST * params.n_heads),
    held=lambda params: params.held,
)
ESTIMATE = View(
    name="estimate",
    title="Attribution patching",
    about="Attribution patching estimates all cells of “Head by head” at once, from one gradient of the metric. It is "
    "the slope where the run is; its largest cells are patched too (exact), which shows where it is wrong.",
    formula="m(a′) − m(a) ≈ ⟨a′ − a, ∂m/∂a⟩",
    source="Nanda (2023), attribution patching",
    call=lambda params: call(
        "aotlens.patching.attribution", *params.made, params.heads, check=CHECKED, **params.options
    ),
    cost=lambda params: params.cost(4 + _HEADS_COST * CHECKED),
    held=lambda params: params.held,
    file=lambda params: _file(params, f"{params.heads}-estimate"),
    missing=_missing_heads,
    pictured=False,
    listed=True,
)

EDGES = View(
    name="edges",
    title="Edge by edge",
    about="A model as a graph: the embedding, every head and every MLP write into the residual stream; every head "
    "reads it for its queries, keys and values, MLPs and the logits read it too. Path patching puts what one edge "
    "carries on one prompt into the run on the other. The gradient estimates all edges at once, here integrated "
    f"over 5 inputs between the prompts; the {CHECKED} largest are patched too (exact). "
    "Click a head in “Head by head”, and all edges from and to it are patched.",
    formula="m(edge patched) − m ≈ ⟨a′ − a, ∂m/∂(what the receiver reads)⟩",
    source="Wang et al. (2022), path patching; Syed et al. (2023), edge attribution patching; Hanna et al. (2024)",
    call=lambda params: (
        call("aotlens.patching.path_patch", *params.made, head=head_name(params.head), **params.options)
        if params.head
        else call("aotlens.patching.attribute_edges", *params.made, check=CHECKED, **params.options)
    ),
    cost=lambda params: params.cost(_EDGES_COST * (3 * params.n_heads if params.head else CHECKED + 15)),
    held=lambda params: params.held_by_edges,
    file=lambda params: _file(params, "edges"),
    pictured=False,
    listed=True,
)
CIRCUIT = View(
    name="circuit",
    title="Circuit",
    about="A small set of edges that keeps the given share of the answer while all others carry the corrupted prompt, "
    "found by exact patching in the order of the gradient, from few edges and from all. Without any single edge it "
    "falls below that share on the pairs of the search; half of the pairs are kept out of it and check it. The wider "
    "an edge, the more is lost without it. Blue: into keys; orange: queries; green: values; grey: MLPs and logits. "
    "Click an edge to take it out, and see what the rest does on all pairs; click it again (dotted) to put it back.",
    formula="F(C) = (m(C) − m(∅)) ÷ (m(all) − m(∅)); the others keep F(all ∖ C)",
    source="Conmy et al. (2023), ACDC; Hanna et al. (2024), faithfulness",
    call=_circuit,
    file=lambda params: _file(params, "circuit"),
    held=lambda params: params.held_by_edges,
    picks="removed += customdata",
    slow="sets of edges",
    slow_part=_search,
)

FAMILY = Family(
    "patching",
    "Which activations of a clean prompt bring its answer back into a corrupted one?",
    (STREAM, TOKENS, OF_HEADS, ESTIMATE, EDGES, CIRCUIT),
    PatchingParameters,
    reads=is_causal,
)
