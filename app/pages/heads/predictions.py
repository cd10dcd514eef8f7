"""The table of the likeliest next tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from aotlens.plots import describe, glyphs

if TYPE_CHECKING:
    from aotlens.evaluate import NextTokenPredictions


def predictions_table(predictions: NextTokenPredictions, token: str) -> list[html.P | html.Table]:
    """List rank, token, probability with a bar, logit; above it what did come next. `token` is that at the position."""
    rows = [
        _row(rank, text, token_id, probability, logit, _is_actual(predictions, token_id))
        for rank, (text, token_id, probability, logit) in enumerate(
            zip(
                predictions.str_tokens,
                predictions.token_ids.tolist(),
                predictions.probabilities.tolist(),
                predictions.logits.tolist(),
                strict=True,
            ),
            start=1,
        )
    ]
    header = html.Tr([html.Th(name, scope="col") for name in ("", "token", "probability", "logit")])
    return [
        html.P(_summary(predictions, token), className="next-summary"),
        html.Table([html.Thead(header), html.Tbody(rows)], className="next"),
    ]


def _row(rank: int, text: str, token_id: int, probability: float, logit: float, actual: bool) -> html.Tr:
    bar = html.Span(className="bar", style={"width": f"{100 * probability:.2f}%"})
    return html.Tr(
        [
            html.Td(str(rank), className="rank"),
            html.Td(html.Span(glyphs(text), className="token", title=f"{describe(text)} · id {token_id}")),
            html.Td([html.Span(_probability(probability), className="number"), html.Span(bar, className="track")]),
            html.Td(f"{logit:.2f}", className="number"),
        ],
        className="actual" if actual else "",
    )


def _summary(predictions: NextTokenPredictions, token: str) -> list[html.Span | str]:
    if predictions.at_position:
        return _summary_at(predictions, token)
    here = [
        "After ",
        html.Span(glyphs(token), className="token", title=describe(token)),
        f" at position {predictions.position}",
    ]
    actual = predictions.actual
    if actual is None:
        return [*here, f", the last one. Entropy {predictions.entropy:.2f} nats."]
    return [
        *here,
        " came ",
        html.Span(glyphs(actual.str_token), className="token", title=describe(actual.str_token)),
        f": probability {_probability(actual.probability)}, rank {actual.rank:,}, loss {actual.loss:.2f} nats. "
        f"Entropy {predictions.entropy:.2f} nats.",
    ]


def _summary_at(predictions: NextTokenPredictions, token: str) -> list[html.Span | str]:
    """A masked language model speaks of the position itself, and sees what stands there."""
    here = ["At ", html.Span(glyphs(token), className="token", title=describe(token))]
    actual = predictions.actual
    if actual is None:
        return [
            *here,
            f", position {predictions.position}, the model guesses from both sides what is hidden. "
            f"Entropy {predictions.entropy:.2f} nats.",
        ]
    return [
        *here,
        f", position {predictions.position}, this model sees both sides and the token itself: probability "
        f"{_probability(actual.probability)}, rank {actual.rank:,}. Write <|mask|> in its place to have it guessed.",
    ]


def _probability(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"


def _is_actual(predictions: NextTokenPredictions, token_id: int) -> bool:
    return predictions.actual is not None and predictions.actual.token_id == token_id
