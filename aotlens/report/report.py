"""A report: sections, and the one file that they make.

The file holds plotly.js, the figures and the maps as gzip in base64, which the browser unpacks; tables and sentences
are plain HTML, there without scripts, too. Its Content-Security-Policy names no server, and no script but its own by
hash, so that nothing is fetched, and nothing that a checkpoint's author wrote can run.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aotlens import __version__
from aotlens.conventions import HeadLike, Progress
from aotlens.data import Corpus
from aotlens.files import replacing_file
from aotlens.plots import Theme
from aotlens.plots.results import DISPLAY
from aotlens.report.parts import Figure, Maps, Part, Section, Text, parse_view, parts_of_view
from aotlens.report.sections import SECTIONS
from aotlens.report.subject import Subject
from aotlens.widget import compressed, module, packed

#: The maximum size of a report.
MAX_BYTES = 5_000_000
_HERE = Path(__file__).parent
_THEMES: tuple[Theme, ...] = ("light", "dark")


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """The report on a checkpoint, section by section."""

    name: str
    sections: tuple[Section, ...]

    def to_html(self) -> str:
        """Return the whole file as HTML. Raises `ValueError` for one of more than `MAX_BYTES`."""
        html = _render(self)
        size = len(html.encode())
        if size > MAX_BYTES:
            raise ValueError(
                f"the report of {self.name} takes {size / 1e6:.1f} MB, and may take at most {MAX_BYTES / 1e6:.0f} MB: "
                "leave out a section, or give a shorter text or fewer heads."
            )
        return html

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all; raises `OSError` for a full disk, and `ValueError` as `to_html`."""
        html = self.to_html()
        with replacing_file(Path(path)) as temporary:
            temporary.write_text(html, encoding="utf-8")


def make_report(
    checkpoint: str | Path | Any,
    *,
    corpus: Corpus | str | None = None,
    text: str | None = None,
    images: Iterable[str | Path] = (),
    heads: Iterable[HeadLike] | None = None,
    sections: Sequence[str] | None = None,
    views: Sequence[str] = (),
    n_tokens: int = 30_000,
    device: str = "auto",
    folders: Iterable[str | Path] = (),
    progress: Progress | None = None,
) -> Report:
    """Collect what one file shows of a checkpoint (by name or path) or a model: `sections` in their order (None: all,
    or with `views` none), and then `views`.

    maps           every head's attention on `text` (else on text that the atlas read, or random tokens that come
                   twice); for a model of images on each of `images`, which are files (else on a bundled one)
    atlas          the stored atlas of these weights, or one measured on `n_tokens` of `corpus`
    circuits       the largest QK and OV entries of `heads` (else of the 8 without which the model loses most)
    trigrams       their skip-trigrams, checked against `corpus` (else against the windows that the atlas has read)
    distillation   the bundled distillation of these weights, or one made here
    losses         the card's figures and the training curve
    card           the card

    A view is one of `aotlens.views` that takes a model, with parameters that differ from their defaults:
    `"circuits.map head=1.0 kind=ov"`, `'lens.stream text="the cat"'`; by default with `text` and the first of `heads`.

    A section that does not apply to the model has the reason in a sentence. Time: some seconds a head for circuits and
    skip-trigrams, and, without a stored atlas, what `aotlens.heads.atlas` takes. Raises `ValueError` for a unknown
    checkpoint, section, head or corpus, for images if the model reads none, and for a file that is not an image.
    """
    if sections is None:
        sections = () if views else tuple(SECTIONS)
    chosen = list(dict.fromkeys(sections))
    more = [parse_view(view) for view in views]
    if unknown := [name for name in chosen if name not in SECTIONS]:
        raise ValueError(f"sections: expected some of {', '.join(SECTIONS)}, got {unknown[0]!r}.")
    if not (chosen or more):
        raise ValueError(f"sections: expected some of {', '.join(SECTIONS)}, got none.")
    subject = Subject.of(
        checkpoint, corpus=corpus, text=text, images=images, heads=heads, n_tokens=n_tokens, device=device,
        folders=folders, progress=progress,
    )  # fmt: skip
    all_sections = [_section(name, *SECTIONS[name], subject) for name in chosen]
    for number, (of, view, given) in enumerate(more, start=1):
        parts = partial(parts_of_view, of=of, view=view, given=given)
        all_sections.append(_section(f"view-{number}-{of.name}.{view.name}", view.title, parts, subject))
    return Report(name=subject.info.name, sections=tuple(all_sections))


def _section(name: str, title: str, parts: Callable[[Subject], list[Part]], subject: Subject) -> Section:
    try:
        contents = tuple(parts(subject))
    except ValueError as error:  # what this model cannot show, in a sentence
        contents = (Text(text=str(error), note=True),)
    return Section(name=name, title=title, parts=tuple(_without_folder(part, subject) for part in contents))


def _without_folder(part: Part, subject: Subject) -> Part:
    """A sentence that names a damaged file names it without the folder, which is this machine's own."""
    if subject.info.path is None or not isinstance(part, Text):
        return part
    return dataclasses.replace(part, text=part.text.replace(f"{subject.info.path}{os.sep}", ""))


def _render(report: Report) -> str:
    import jinja2
    from markdown_it import MarkdownIt

    parts = [part for section in report.sections for part in section.parts]
    figures = [part for part in parts if isinstance(part, Figure)]
    maps = [part.maps for part in parts if isinstance(part, Maps)]
    drawn = [
        {theme: json.loads(figure.make(theme).to_json()) | {"height": figure.height} for theme in _THEMES}
        for figure in figures
    ]
    header = {"figures": drawn, "config": DISPLAY, "maps": [each.header for each in maps]}
    data = packed(header, [array for each in maps for array in each.arrays])
    code = module() + (_HERE / "page.js").read_text("utf-8")
    # Links, pictures and HTML of an untrusted card would be fetched, or run: they stay the text that they are.
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink"])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html").render(
        report=report,
        version=__version__,
        markdown=lambda text: markdown.render(text),
        css=(_HERE / "page.css").read_text("utf-8"),
        code=code,
        code_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        data=data,
        plotly=_plotly() if figures else "",
    )


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return compressed(get_plotlyjs().encode())
