"""The report on a checkpoint in one file that opens from disk, with no server and no network.

    aotlens.report.make_report("novels-2l-mhsa").save("report.html")

report.py    a report: sections, and the file that they make (page.html, page.css, page.js)
sections.py  the sections, which `SECTIONS` lists (maps.py: every head's attention on a prompt)
parts.py     what sections are made of: sentences, tables, figures, maps of all heads; and the parts of any view
subject.py   what is reported on: a model, its card, its atlas, an example text, the heads that are looked at closely
"""

from __future__ import annotations

from aotlens.report.parts import Figure, Maps, Markdown, Section, Table, Text
from aotlens.report.report import MAX_BYTES, Report, make_report
from aotlens.report.sections import SECTIONS
