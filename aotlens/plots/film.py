"""A training run as a film: a figure that plays, and the maps of all heads as a GIF, or as an MP4 by ffmpeg."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont
from plotly.subplots import make_subplots

from aotlens.files import replacing_file
from aotlens.plots.attention import pool
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, Theme, base_layout, lookup
from aotlens.plots.primitives import LEGEND, names_of_heads, spaced
from aotlens.plots.training import step_places

if TYPE_CHECKING:
    from aotlens.dynamics import OverTraining


def film_figure(measures: OverTraining, *, theme: Theme = "light") -> go.Figure:
    """Draw a frame per step: each head's motifs, composition and copying, below the losses up to that step.

    Buttons play it and a slider goes to a step; `measures` are those of `aotlens.dynamics.film`.
    """
    first = measures.results[0]
    heads = names_of_heads(first.copying.shape)
    columns = [*first.motifs, "q composition", "k composition", "v composition", "copying", "OV distance to end"]
    steps, titles = step_places(measures.steps), list(map(spaced, columns))
    losses = {"loss": "loss", "repeated_gain": "gain on repeated tokens"}

    def frame(place: int) -> list[go.Heatmap | go.Scatter]:
        result = measures.results[place]
        scores = [*result.motif_scores, *result.composition, result.copying, result.ov_distance.clip(max=1)]
        cells = np.stack([np.asarray(score).reshape(-1) for score in scores], axis=1)
        measured = np.flatnonzero(~np.isnan(cells).all(0))
        return [
            go.Heatmap(
                z=cells[:, measured], x=[titles[column] for column in measured], y=heads, zmin=0, zmax=1,
                colorscale="Viridis", colorbar={"len": 0.55, "y": 0.27},
                hovertemplate="head %{y}, %{x}: %{z:.3f}<extra></extra>",
            ),
            *(
                go.Scatter(x=steps[: place + 1], y=measures[name][: place + 1], name=title, line={"color": colour})
                for (name, title), colour in zip(losses.items(), LINES[theme], strict=False)
            ),
        ]  # fmt: skip

    figure = make_subplots(rows=2, cols=1, row_heights=[0.35, 0.65], vertical_spacing=0.16)
    heatmap, *lines = frame(len(steps) - 1)
    figure.add_trace(heatmap, row=2, col=1).add_traces(lines, rows=1, cols=1)
    names = [f"{step:,}" for step in measures.steps]
    figure.frames = [go.Frame(data=frame(place), name=name) for place, name in enumerate(names)]
    still = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    playing = {"fromcurrent": True, "frame": {"duration": 150, "redraw": True}, "transition": {"duration": 0}}
    figure.update_layout(base_layout(theme), height=720)
    figure.update_layout(
        margin={"b": 120},
        legend=LEGEND,
        updatemenus=[{
            "type": "buttons", "direction": "left", "x": 0, "y": -0.2, "xanchor": "left",
            "buttons": [{"label": "Play", "method": "animate", "args": [None, playing]},
                        {"label": "Pause", "method": "animate", "args": [[None], still]}],
        }],
        sliders=[{
            "currentvalue": {"prefix": "step "}, "x": 0.18, "len": 0.82, "y": -0.12, "active": len(names) - 1,
            "steps": [{"label": name, "method": "animate", "args": [[name], still]} for name in names],
        }],
    )  # fmt: skip
    figure.update_xaxes(title_text="step", type="log", range=[np.log10(steps[0]), np.log10(steps[-1])], row=1, col=1)
    figure.update_yaxes(title_text="nats a token", row=1, col=1)
    figure.update_yaxes(autorange="reversed", type="category", title={"text": "head", "standoff": 24}, row=2, col=1)
    return figure


#: Pixels: of a head's map, between maps, of the margin, of the curve.
_MAP, _GAP, _MARGIN, _CURVE = 128, 18, 24, 96
_SMALL, _LARGE = 11, 15


def film_frames(
    patterns: Iterable[Float[np.ndarray, "layer head query key"]],
    steps: Sequence[int],
    losses: Sequence[float],
    *,
    theme: Theme = "light",
) -> list[Image.Image]:
    """Return a picture for each step: attention of every head from 0 to 1, layers down, heads across, above the loss by
    log step. Raises `ValueError` for other numbers of patterns, steps and losses."""
    if not np.isfinite(losses).all():
        raise ValueError(f"losses: expected finite numbers, got {list(losses)}.")
    maps = list(patterns)
    if not len(maps) == len(steps) == len(losses) or not maps:
        counts = f"{len(maps)}, {len(steps)} and {len(losses)}"
        raise ValueError(f"expected patterns, steps and losses of the same snapshots, got {counts}.")
    return [_frame(heads, place, steps, losses, theme) for place, heads in enumerate(maps)]


def save_film(frames: Sequence[Image.Image], path: str | Path, *, seconds: float = 0.15) -> None:
    """Write frames of so many seconds each to NAME.gif or NAME.mp4; the last one stays for two seconds.

    Raises `ValueError` for another ending, and for an MP4 without ffmpeg or where it fails; `OSError` with the path for
    a full disk.
    """
    path = Path(path)
    durations = [round(1000 * seconds)] * (len(frames) - 1) + [2000]
    if path.suffix == ".gif":
        with replacing_file(path) as temporary:
            first, *rest = frames
            first.save(temporary, format="GIF", save_all=True, append_images=rest, duration=durations, loop=0)
    elif path.suffix == ".mp4":
        _mp4(frames, durations, path)
    else:
        raise ValueError(f"{path}: expected a name that ends in .gif or .mp4.")


def _mp4(frames: Sequence[Image.Image], durations: Sequence[int], path: Path) -> None:
    program = shutil.which("ffmpeg")
    if program is None:
        raise ValueError(f"{path}: an MP4 needs ffmpeg, which is not on the PATH. Install it, or write a .gif.")
    width, height = (size - size % 2 for size in frames[0].size)  # as H.264 wants them
    rate = 1000 / durations[0]
    size = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate:g}", "-i", "-"]
    with replacing_file(path) as temporary:
        command = [program, "-y", "-loglevel", "error", *size, "-pix_fmt", "yuv420p", "-f", "mp4", str(temporary)]
        repeats = [max(1, round(duration / durations[0])) for duration in durations]
        data = b"".join(
            frame.convert("RGB").crop((0, 0, width, height)).tobytes() * n
            for frame, n in zip(frames, repeats, strict=True)
        )
        done = subprocess.run(command, input=data, capture_output=True, check=False)
        if done.returncode:
            raise ValueError(f"{path}: ffmpeg failed ({done.stderr.decode(errors='replace').strip()[:300]}).")


def _frame(
    maps: Float[np.ndarray, "layer head query key"],
    place: int,
    steps: Sequence[int],
    losses: Sequence[float],
    theme: Theme,
) -> Image.Image:
    layers, heads = maps.shape[:2]
    cell = _MAP + _GAP
    width, height = 2 * _MARGIN + heads * cell - _GAP, 2 * _MARGIN + layers * cell + _CURVE + 2 * _GAP
    frame = Image.new("RGB", (width, height), BACKGROUND[theme])
    draw = ImageDraw.Draw(frame)
    small, large = ImageFont.load_default(_SMALL), ImageFont.load_default(_LARGE)
    draw.text((_MARGIN, 4), f"step {steps[place]:,}", fill=INK[theme], font=large)
    colours = lookup("sequential", theme, 256)
    for layer, head in np.ndindex(layers, heads):
        left, top = _MARGIN + head * cell, _MARGIN + layer * cell + _GAP
        shades = colours[np.rint(np.clip(pool(maps[layer, head], _MAP), 0, 1) * 255).astype(np.uint8)]
        picture = Image.fromarray(shades).resize((_MAP, _MAP), Image.Resampling.NEAREST)
        frame.paste(picture, (left, top))
        draw.rectangle((left - 1, top - 1, left + _MAP, top + _MAP), outline=QUIET[theme])
        draw.text((left, top - _SMALL - 4), f"{layer}.{head}", fill=INK[theme], font=small)
    _loss_curve(
        draw, (_MARGIN, height - _MARGIN - _CURVE, width - _MARGIN, height - _MARGIN), place, steps, losses, theme
    )
    return frame


def _loss_curve(
    draw: ImageDraw.ImageDraw,
    box: tuple[int, int, int, int],
    place: int,
    steps: Sequence[int],
    losses: Sequence[float],
    theme: Theme,
) -> None:
    """The loss by log step, with a dot at the frame's own."""
    left, top, right, bottom = box
    across = np.log(np.maximum(steps, 0.5))
    x = left + (right - left) * (across - across[0]) / (float(np.ptp(across)) or 1.0)
    low, high = min(losses), max(losses)
    y = bottom - (bottom - top) * (np.array(losses) - low) / ((high - low) or 1.0)
    points = list(zip(x.tolist(), y.tolist(), strict=True))
    draw.line((left, bottom, right, bottom), fill=QUIET[theme])
    draw.line(points, fill=LINES[theme][0], width=2)
    here, radius = points[place], 4
    draw.ellipse([(here[0] - radius, here[1] - radius), (here[0] + radius, here[1] + radius)], fill=LINES[theme][1])
    text = f"loss {losses[place]:.2f} nats a token, by log step"
    draw.text((left, top - _SMALL - 6), text, fill=INK[theme], font=ImageFont.load_default(_SMALL))
