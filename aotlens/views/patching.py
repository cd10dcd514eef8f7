"""Activation patching as views: what of a clean prompt brings its answer back into a corrupted one."""

from __future__ import annotations

from dataclasses import dataclass

from aotlens.conventions import Head, head_name
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family, is_causal
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.patching_captions import METRICS, says_circuit, says_estimate, says_patched
from aotlens.views.view import About, View, pass_cost

#: Pairs of random tokens, and tokens before the last one.
N_PAIRS, LENGTH = 32, 24
#: Cells that are patched beside the estimate.
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
        width = int(self.model.get("d_head") or int(self.model["d_model"]) // int(self.model["n_heads"]))
        return self.n_pairs * self.n_heads * self.n_pos * (16.0 * self.n_pos + 32.0 * width)

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
    def n_heads(self) -> int:
        """The number of heads of all layers."""
        return int(self.model["n_layers"]) * int(self.model["n_heads"])

    @property
    def options(self) -> dict[str, str]:
        """The options that all views take."""
        return {"metric": self.metric, "direction": self.direction}


def _missing_stream(chosen: PatchingParameters) -> str | None:
    if chosen.stream == "mlp_out" and chosen.model.get("d_mlp") is None:
        return f"{chosen.checkpoint} has no MLPs. Choose the residual stream, or attention outputs."
    return None


def _missing_position(chosen: PatchingParameters) -> str | None:
    if chosen.position and not chosen.position.strip().isdecimal():
        return f"‹{chosen.position}› is no position. Write 0 for the first token, 1 for the second, or nothing."
    return _missing_heads(chosen)


def _missing_heads(chosen: PatchingParameters) -> str | None:
    if chosen.heads in ("q", "k") and chosen.model.get("phi") == "fixed":
        return (
            f"The patterns of {chosen.checkpoint} are fixed, so it has no queries or keys. Choose another activation."
        )
    return None


def _search(chosen: PatchingParameters) -> Call:
    held_out = {"held_out": 0} if chosen.pairs == "prompts" else {}
    return call(
        "aotlens.patching.find_circuit", *chosen.made, chosen.metric, keep=chosen.keep, seed=chosen.seed, **held_out
    )


def _circuit(chosen: PatchingParameters) -> Call:
    circuit = _search(chosen)
    if not chosen.removed:
        return circuit
    edges = [edge.strip() for edge in chosen.removed.split(",") if edge.strip()]
    less = "aotlens.patching.circuit_faithfulness"
    return call(less, *chosen.made, circuit.named("found"), chosen.metric, without=edges, keep=chosen.keep)


def _file(chosen: PatchingParameters, what: str) -> str:
    of = "prompts" if chosen.pairs == "prompts" else f"{chosen.pairs}-seed{chosen.seed}"
    return f"patching-{chosen.checkpoint}-{of}-{chosen.direction}-{what}"


TOKENS = View(
    name="tokens",
    title="The prompts",
    about=About(
        text="The tokens of both prompts (of the first pair, where there are several), each above what corresponds to "
        "it: the same position where both have equally many tokens, else the tokens of a longest common subsequence. "
        "Shaded where they differ. What has no partner stays as it is when the other prompt's activations are put in.",
    ),
    call=lambda chosen: chosen.made[1],
    caption=lambda chosen, result: f"{result.headline}.",
    file=lambda chosen: _file(chosen, "prompts"),
    cost=lambda chosen: chosen.cost(2),
    low=True,
)
STREAM = View(
    name="positions",
    title="Layer by position",
    about=About(
        text="The model runs on one prompt with one activation of the other in its place, at one layer and one "
        "position; what it says then is measured. Clean into corrupted shows what is enough to bring the answer back, "
        "corrupted into clean what the answer cannot do without. A cell is the share of the way from the corrupted to "
        "the clean prompt's number, a ratio of means over pairs: 1 as clean, 0 as corrupted. Positions correspond "
        "where both prompts have equally many tokens; otherwise tokens of a longest common subsequence do, and others "
        "stay as they are.",
        formula="(m(patched) − m(corrupted)) ÷ (m(clean) − m(corrupted))",
        source=_SOURCE,
    ),
    call=lambda chosen: (
        call("aotlens.patching.patch", *chosen.made, chosen.stream, **chosen.options)
        if chosen.by == "exact"
        else call("aotlens.patching.attribution", *chosen.made, chosen.stream, check=CHECKED, **chosen.options)
    ),
    caption=lambda chosen, result: (says_patched if chosen.by == "exact" else says_estimate)(chosen, result),
    drawn=lambda chosen: {} if chosen.by == "exact" else {"shown": "cells"},
    file=lambda chosen: _file(chosen, chosen.stream if chosen.by == "exact" else f"{chosen.stream}-estimate"),
    missing=_missing_stream,
    picks="position = x",
    cost=lambda chosen: chosen.cost(_STREAMS_COST * int(chosen.model["n_layers"]) * chosen.n_pos),
    held=lambda chosen: chosen.held,
)
OF_HEADS = View(
    name="by-head",
    title="Head by head",
    about=About(
        text="The same of each head's own activation, at all positions together: its output z (before W_O), its "
        "values, queries or keys, or the rows of its attention pattern. Patched keys or queries change where the "
        "head looks, patched values what it moves. Click a cell of the map above for one position alone.",
        formula="(m(patched) − m(corrupted)) ÷ (m(clean) − m(corrupted))",
        source=_SOURCE,
    ),
    call=lambda chosen: call(
        "aotlens.patching.patch",
        *chosen.made,
        chosen.heads,
        **chosen.options,
        **({"positions": [int(chosen.position)]} if chosen.position else {}),
    ),
    caption=says_patched,
    file=lambda chosen: _file(chosen, chosen.heads),
    missing=_missing_position,
    picks="head = y.x",
    cost=lambda chosen: chosen.cost(_HEADS_COST * chosen.n_heads),
    held=lambda chosen: chosen.held,
)
ESTIMATE = View(
    name="estimate",
    title="Attribution patching",
    about=About(
        text="Attribution patching estimates all cells of “Head by head” at once, from one gradient of the metric. "
        "It is the slope where the run is; its largest cells are patched too (exact), which shows where it is wrong.",
        formula="m(a′) − m(a) ≈ ⟨a′ − a, ∂m/∂a⟩",
        source="Nanda (2023), attribution patching",
    ),
    call=lambda chosen: call(
        "aotlens.patching.attribution", *chosen.made, chosen.heads, check=CHECKED, **chosen.options
    ),
    caption=says_estimate,
    cost=lambda chosen: chosen.cost(4 + _HEADS_COST * CHECKED),
    held=lambda chosen: chosen.held,
    file=lambda chosen: _file(chosen, f"{chosen.heads}-estimate"),
    missing=_missing_heads,
    pictured=False,
    listed=True,
)

EDGES = View(
    name="edges",
    title="Edge by edge",
    about=About(
        text="A model as a graph: the embedding, every head and every MLP write into the residual stream; every head "
        "reads it for its queries, keys and values, MLPs and the logits read it too. Path patching puts what one edge "
        "carries on one prompt into the run on the other. The gradient estimates all edges at once, here integrated "
        f"over 5 inputs between the prompts; the {CHECKED} largest are patched too (exact). "
        "Click a head in “Head by head”, and all edges from and to it are patched.",
        formula="m(edge patched) − m ≈ ⟨a′ − a, ∂m/∂(what the receiver reads)⟩",
        source="Wang et al. (2022), path patching; Syed et al. (2023), edge attribution patching; Hanna et al. (2024)",
    ),
    call=lambda chosen: (
        call("aotlens.patching.path_patch", *chosen.made, head=head_name(chosen.head), **chosen.options)
        if chosen.head
        else call("aotlens.patching.attribute_edges", *chosen.made, check=CHECKED, **chosen.options)
    ),
    caption=lambda chosen, result: result.finding,
    cost=lambda chosen: chosen.cost(_EDGES_COST * (3 * chosen.n_heads if chosen.head else CHECKED + 15)),
    held=lambda chosen: chosen.held_by_edges,
    file=lambda chosen: _file(chosen, "edges"),
    pictured=False,
    listed=True,
)
CIRCUIT = View(
    name="circuit",
    title="Circuit",
    about=About(
        text="A small set of edges that keeps the given share of the answer while all others carry the corrupted "
        "prompt, found by exact patching in the order of the gradient, from few edges and from all. Without any single "
        "edge it falls below that share on the pairs of the search; half of the pairs are kept out of it and check it. "
        "The wider an edge, the more is lost without it. Blue: into keys; orange: queries; green: values; grey: MLPs "
        "and logits. Click an edge to take it out, and see what the rest does on all pairs; click it again (dotted) to "
        "put it back.",
        formula="F(C) = (m(C) − m(∅)) ÷ (m(all) − m(∅)); the others keep F(all ∖ C)",
        source="Conmy et al. (2023), ACDC; Hanna et al. (2024), faithfulness",
    ),
    call=_circuit,
    caption=says_circuit,
    file=lambda chosen: _file(chosen, "circuit"),
    held=lambda chosen: chosen.held_by_edges,
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
