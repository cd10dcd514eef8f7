"""How Sphinx builds the site of these pages: `make docs`.

Nothing is fetched while it is built or read: formulas are drawn by a MathJax that is copied into the site, figures by a
plotly.js of the site, and the search is Sphinx's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import aotlens  # noqa: E402  (it is imported from this clone)

project = "aotlens"
author = "aotlens authors"
copyright = "aotlens authors, MIT licence"
version = release = aotlens.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx.ext.viewcode",
    "docstrings",
    "reference",
]
exclude_patterns = ["_build", "_ext", "requirements.txt"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# Pages are Markdown that is also read on GitHub: links to headings are its own.
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_dmath_allow_space = False
myst_dmath_allow_digits = False

# Sphinx 9 would load MathJax from a CDN.
mathjax_path = "mathjax/tex-chtml.js"

autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

html_theme = "pydata_sphinx_theme"
html_title = "aotlens"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_show_search_summary = False  # a page that is opened from disk may not fetch others to quote them
html_theme_options = {
    "icon_links": [],
    "show_prev_next": False,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}

if (HERE / "gallery").is_dir():  # it is executed by the build
    extensions += ["sphinx_gallery.gen_gallery", "plotly_scraper"]
    exclude_patterns.append("gallery")
    sphinx_gallery_conf = {
        "examples_dirs": ["gallery"],
        "gallery_dirs": ["auto_gallery"],
        "filename_pattern": r"/\d\d_",
        "run_stale_examples": True,  # each build is the examples' test: the library may have changed
        "within_subsection_order": "FileNameSortKey",
        "write_computation_times": False,
        "min_reported_time": 1e9,
        "show_memory": False,
        "remove_config_comments": True,
        "show_signature": False,
        "reset_modules": (),
        "image_scrapers": ("plotly_scraper.scrape",),
        "ignore_repr_types": r"plotly|NotebookFigure|NoneType",  # the scraper shows figures
        "reference_url": {"aotlens": None},  # names in code lead to the API reference
    }


def setup(app: Sphinx) -> None:
    """Leave a mark when a build has ended well: tests/docs compares its date with those of the sources."""
    app.connect("build-finished", lambda app, error: error is None and (Path(app.outdir) / ".finished").touch())
