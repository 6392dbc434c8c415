"""Settings of the documentation site (`make docs`): Sphinx, with Furo as its theme and MyST for Markdown and notebooks.

The sources are all Markdown pages of the repository where they lie, so links between them lead to the same places on
the site and in a checkout. The pages of this folder tie them together. Nothing is executed: the notebooks appear as
they are committed, and tests run them (`tests/notebooks`).
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("taso_ext", "environment", "worldmodel", "controller", "experiments")
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

project = "RLFlow"
author = "The RLFlow authors"
root_doc = "docs/index"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "api_docstrings"]

include_patterns = [
    "docs/**",
    "*.md",
    *(f"{package}/{pages}" for package in PACKAGES for pages in ("*.md", "**/*.md")),
    "tests/**/*.md",
    "notebooks/*.ipynb",
]
exclude_patterns = [
    *("docs/_build", "docs/site_root", "**/.*", "build", "dist", "runs", "tests/fuzz/corpus", "**/units"),
    "experiments/results/*/about.md",  # README.md beside it shows it
]
html_extra_path = ["site_root"]
"""Lies beside the pages: an index.html, because the first page is docs/index.html."""

nb_execution_mode = "off"
myst_heading_anchors = 4
"""Headings down to this level get the anchors that Git hosts give them."""
nitpicky = False
"""Types in signatures, such as those of NumPy and TensorFlow, need not be documented here; links in pages must lead
somewhere all the same."""

autodoc_default_options = {"members": True, "member-order": "bysource", "no-value": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
viewcode_follow_imported_members = False  # else sources link back to names that are documented elsewhere
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]  # else their names become links, to any attribute so called

html_theme = "furo"
html_title = "RLFlow"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
linkcheck_timeout = 20
linkcheck_retries = 2
