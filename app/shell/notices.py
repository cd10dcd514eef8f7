"""Notices of a panel that has nothing to show: an error, or what to do first."""

from __future__ import annotations

from collections.abc import Sequence

import dash_mantine_components as dmc
from dash import html


def problem(message: str, title: str = "Cannot run") -> dmc.Alert:
    """Show something that the person at the browser can put right."""
    live = {"aria-live": "polite"}
    return dmc.Alert(message, title=title, color="orange", variant="light", className="notice", **live)


def taken_instead(sentences: Sequence[str]) -> dmc.Alert:
    """Show values of the address that cannot be, and what was taken instead: what `Address.read` says of each."""
    return dmc.Alert(
        [html.Div(sentence) for sentence in sentences],
        title="Not everything that the address says can be shown",
        color="orange",
        variant="light",
        withCloseButton=True,
        className="notice taken-instead",
    )


def no_memory(id: str) -> dmc.Alert:
    """Say that what was asked for did not fit in memory; `id` is the log's."""
    return problem(
        f"There is not enough memory on the machine that serves this (error {id}). Ask for less: a shorter text, a "
        "smaller model, fewer tokens.",
    )


def defect(error: BaseException, id: str) -> dmc.Alert:
    """Show something that only we can put right; the traceback is on the server's terminal under the id."""
    return dmc.Alert(
        f"{type(error).__name__}: {error}. This is a defect of aotlens, not of what you asked for (error {id}); the "
        "terminal in which the app runs has the details under that number.",
        title="Something went wrong",
        color="red",
        variant="light",
        className="notice",
    )


def empty(message: str) -> html.Div:
    """Say that there is nothing yet, and what brings it."""
    return html.Div(message, className="empty")


def exact(text: str) -> dmc.Text:
    """Say that numbers are the model's own, and why."""
    return dmc.Text(text, className="exact", size="sm")


def relative(why: Sequence[str], what: str) -> html.Details:
    """Say that numbers are not the model's own: they are to be compared with each other; why, for who asks."""
    summary = f"Relative: the scale of the norm is left out; compare {what} with each other"
    return html.Details([html.Summary(summary), *(dmc.Text(reason, size="sm") for reason in why)], className="relative")
