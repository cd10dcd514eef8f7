"""Lenses as views: what the stream says at each layer, what each head promotes, what a step in the stream does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call
from aotlens.views.family import Family, reads_text
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import FRAMEWORK, View, pass_cost

TEXT = "Mr. Darcy met Elizabeth. Then Mr. D"


@dataclass(frozen=True, kw_only=True)
class LensParameters(OfCheckpoint):
    """A model, a text, a position of it, and the answer whose logit is read."""

    text: str = declare.text(TEXT, label="Text", lines=3)
    position: str = declare.text(label="Position, 0 first", most=5, blank="the last")
    answer: str = declare.text(label="Answer", most=40, blank="the model’s first choice")
    wrong: str = declare.text(label="Wrong answer", most=40, blank="none: the logit itself")
    layer: int = declare.whole(0, most=48, label="Stream before layer")
    n_tokens: int | None = None
    """The number of tokens of the text, where somebody has counted them."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that are read."""
        return (self.text,)

    @property
    def n_pos(self) -> int:
        """The number of positions of the text; unless counted a guess, as tokens have some three characters."""
        return min(self.n_tokens or len(self.text) // 3 + 2, int(self.model["n_ctx"]))

    def held(self, per_pair: float, per_width: float) -> float:
        """Return bytes of so many for each head and pair of positions, and for each head, position and width of the
        stream."""
        return self.n_heads * self.n_pos * (per_pair * self.n_pos + per_width * int(self.model["d_model"]))

    def cost(self, n_passes: float, read_outs: float = 0.0) -> float:
        """Return the operations of so many passes over the text, and of reading it out so often."""
        n_pos, model = self.n_pos, self.model
        return n_passes * pass_cost(model, n_pos) + 2.0 * read_outs * n_pos * model["d_model"] * model["d_vocab"]

    @property
    def at(self) -> int:
        """The position, −1 for the last."""
        return int(self.position or -1)

    @property
    def target(self) -> Any:
        """The output whose logit is meant, or the two whose difference; None for the model's first choice."""
        model = Load(self.checkpoint)
        texts = [text for text in (self.answer, self.wrong) if text]
        tokens = [Call(Part(model, "to_single_token"), [text], kept=False) for text in texts]
        return tuple(tokens) if len(tokens) > 1 else next(iter(tokens), None)


def _missing_position(params: LensParameters) -> str | None:
    if params.position and not params.position.strip().isdecimal():
        return (
            f"‹{params.position}› is no position. Write a whole number, 0 for the first token, or nothing for the last."
        )
    return None


def _missing_jacobian(params: LensParameters) -> str | None:
    if _missing_position(params) is not None:
        return _missing_position(params)
    if params.layer > int(params.model["n_layers"]):
        return f"{params.checkpoint} has {params.model['n_layers']} layers. Choose an earlier one."
    if params.wrong and not params.answer:
        return "Of two answers the first is missing: write it, or leave both out."
    return None


LENS = View(
    name="stream",
    title="Logit lens",
    about="The stream before each layer, read out as if no layer came after it: the likeliest token and its "
    "probability; the last row is the model’s prediction. Hover for the divergence from that, and for the rank of the "
    "model’s first choice. A token that a stream says need not be one that later layers read.",
    formula="softmax(ln_final(x_l) W_U + b_U)",
    source="nostalgebraist (2020), interpreting GPT: the logit lens",
    call=lambda params: call("aotlens.paths.logit_lens", Load(params.checkpoint), params.text),
    cost=lambda params: params.cost(1, params.model["n_layers"] + 1),
    file=lambda params: f"lens-{params.checkpoint}-stream",
)
HEADS = View(
    name="heads",
    title="Direct logit attribution of heads",
    about="The logits that each head adds at one position by itself, above their mean over outputs, which softmax "
    "ignores: the outputs that it promotes most, and those that it suppresses most. Exact: all heads, the embeddings, "
    "MLPs and biases add up to the logits.",
    formula="out_h / s_final · C w_final W_U",
    source=f"{FRAMEWORK}, direct logit attribution",
    call=lambda params: call("aotlens.paths.head_lens", Load(params.checkpoint), params.text, params.at),
    cost=lambda params: params.cost(2, params.model["n_layers"] * params.model["n_heads"]),
    held=lambda params: params.held(10, 4),
    file=lambda params: f"lens-{params.checkpoint}-heads",
    missing=_missing_position,
)
JACOBIAN = View(
    name="jacobian",
    title="Gradient of a logit in the stream",
    about="The gradient of one logit (by default the model’s first choice; with a wrong answer the difference of two) "
    "with respect to the stream before a layer, at every position, with patterns and norm scales as they are on the "
    "text, and MLPs held: then it is exact for a step of any length, and the sum over all paths. It is split by what "
    "reads the step first, the read-out or a head. The table also has the model’s own gradient, in which patterns "
    "move.",
    formula="∂ logit ÷ ∂ x = Σ over paths of P V W_O ⋯ P V W_O / s · R",
    source=f"{FRAMEWORK}, path expansion",
    call=lambda params: call(
        "aotlens.paths.logit_jacobian", Load(params.checkpoint), params.text, params.target, layer=params.layer,
        at=params.at,
    ),
    cost=lambda params: params.cost(4 + params.model["n_layers"], 1),
    held=lambda params: params.held(10, 20),
    file=lambda params: f"lens-{params.checkpoint}-jacobian",
    missing=_missing_jacobian,
)  # fmt: skip

FAMILY = Family(
    "lens",
    "Predictions of the residual stream at each layer, and the effect of a step in it.",
    (LENS, HEADS, JACOBIAN),
    LensParameters,
    reads=reads_text,
)
