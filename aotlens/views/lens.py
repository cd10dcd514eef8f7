"""Lenses as views: what the stream says at each layer, what each head promotes, what a step in the stream does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Part, call
from aotlens.views.family import Family, reads_text
from aotlens.views.parameters import OfCheckpoint
from aotlens.views.view import About, View, pass_cost

if TYPE_CHECKING:
    from aotlens.paths import HeadLens, LogitJacobian, LogitLens

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
        n_heads = int(self.model["n_layers"]) * int(self.model["n_heads"])
        return n_heads * self.n_pos * (per_pair * self.n_pos + per_width * int(self.model["d_model"]))

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
        given = [Call(Part(model, "to_single_token"), [text], kept=False) for text in (self.answer, self.wrong) if text]
        return None if not given else given[0] if len(given) == 1 else tuple(given)


def _missing_position(chosen: LensParameters) -> str | None:
    if chosen.position and not chosen.position.strip().isdecimal():
        return (
            f"‹{chosen.position}› is no position. Write a whole number, 0 for the first token, or nothing for the last."
        )
    return None


def _missing_jacobian(chosen: LensParameters) -> str | None:
    if _missing_position(chosen) is not None:
        return _missing_position(chosen)
    if chosen.layer > int(chosen.model["n_layers"]):
        return f"{chosen.checkpoint} has {chosen.model['n_layers']} layers. Choose an earlier one."
    if chosen.wrong and not chosen.answer:
        return "Of two answers the first is missing: write it, or leave both out."
    return None


def _says(chosen: LensParameters, result: LogitLens) -> str:
    kl, n_layers = result.kl.mean(1), len(result.kl) - 1
    values = ", ".join(f"{value:.2f}" for value in kl)
    loss = "" if np.isnan(result.loss).all() else (
        f" Loss on the text’s next tokens: {', '.join(f'{value:.2f}' for value in np.nanmean(result.loss, 1))} nats."
    )  # fmt: skip
    return (
        f"KL divergence from the model’s prediction, mean over {result.kl.shape[1]} positions, before layers 0 to "
        f"{n_layers - 1} and after the last: {values} nats.{loss} After the text the model says "
        f"‹{result.says(-1, -1)}›; the stream says so from {_row(int(result.settled[-1]), n_layers)} on."
    )


def _row(layer: int, n_layers: int) -> str:
    return f"before layer {layer}" if layer < n_layers else "after the last layer"


def _says_heads(chosen: LensParameters, result: HeadLens) -> str:
    return f"{result.headline[0].upper()}{result.headline[1:]}, above its mean over outputs."


def _says_jacobian(chosen: LensParameters, result: LogitJacobian) -> str:
    share = [float(np.linalg.norm(each)) for each in result.by_order]
    orders = ", ".join(f"{value:.3g}" for value in share)
    return f"{result.finding} By the number of heads on the way, 0 first, the gradients have lengths {orders}."


LENS = View(
    name="stream",
    title="Logit lens",
    about=About(
        text="The stream before each layer, read out as if no layer came after it: the likeliest token and its "
        "probability; the last row is the model’s prediction. Hover for the divergence from that, and for the rank of "
        "the model’s first choice. A token that a stream says need not be one that later layers read.",
        formula="softmax(ln_final(x_l) W_U + b_U)",
        source="nostalgebraist (2020), interpreting GPT: the logit lens",
    ),
    call=lambda chosen: call("aotlens.paths.logit_lens", Load(chosen.checkpoint), chosen.text),
    caption=_says,
    cost=lambda chosen: chosen.cost(1, chosen.model["n_layers"] + 1),
    file=lambda chosen: f"lens-{chosen.checkpoint}-stream",
)
HEADS = View(
    name="heads",
    title="Direct logit attribution of heads",
    about=About(
        text="The logits that each head adds at one position by itself, above their mean over outputs, which softmax "
        "ignores: the outputs that it promotes most, and those that it suppresses most. Exact: all heads, the "
        "embeddings, MLPs and biases add up to the logits.",
        formula="out_h / s_final · C w_final W_U",
        source="A Mathematical Framework for Transformer Circuits (Elhage et al. 2021), direct logit attribution",
    ),
    call=lambda chosen: call("aotlens.paths.head_lens", Load(chosen.checkpoint), chosen.text, chosen.at),
    caption=_says_heads,
    cost=lambda chosen: chosen.cost(2, chosen.model["n_layers"] * chosen.model["n_heads"]),
    held=lambda chosen: chosen.held(10, 4),
    file=lambda chosen: f"lens-{chosen.checkpoint}-heads",
    missing=_missing_position,
)
JACOBIAN = View(
    name="jacobian",
    title="Gradient of a logit in the stream",
    about=About(
        text="The gradient of one logit (the model’s first choice unless told; with a wrong answer the difference of "
        "two) with respect to the stream before a layer, at every position, with patterns and norm scales as they are "
        "on the text, and MLPs held: then it is exact for a step of any length, and the sum over all paths. It is "
        "split by what reads the step first, the read-out or a head. Beside it the table has the model’s own gradient, "
        "in which patterns move.",
        formula="∂ logit ÷ ∂ x = Σ over paths of P V W_O ⋯ P V W_O / s · R",
        source="A Mathematical Framework for Transformer Circuits (Elhage et al. 2021), path expansion",
    ),
    call=lambda chosen: call(
        "aotlens.paths.logit_jacobian", Load(chosen.checkpoint), chosen.text, chosen.target, layer=chosen.layer,
        at=chosen.at,
    ),
    caption=_says_jacobian,
    cost=lambda chosen: chosen.cost(4 + chosen.model["n_layers"], 1),
    held=lambda chosen: chosen.held(10, 20),
    file=lambda chosen: f"lens-{chosen.checkpoint}-jacobian",
    missing=_missing_jacobian,
)  # fmt: skip

FAMILY = Family(
    "lens",
    "Predictions of the residual stream at each layer, and the effect of a step in it.",
    (LENS, HEADS, JACOBIAN),
    LensParameters,
    reads=reads_text,
)
