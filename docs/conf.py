"""Sphinx configuration: numpydoc, a gallery, the pydata theme; `make docs` fails on warnings."""

import os
import sys
from pathlib import Path

# The example of a reproduced table imports a package of the checkout.
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import volmar

project = "volmar"
author = "The volmar developers"
copyright = "2026, the volmar developers"
version = release = volmar.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without a network
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_templates", "auto_examples/*.ipynb", "reproduction/*"]
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "plot_gallery": True,
    "download_all_examples": False,
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
}
suppress_warnings = ["config.cache"]

html_theme = "pydata_sphinx_theme"
html_title = "volmar"
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
}
# Every other page is in one of the sections that `index` lists, which the sidebar shows.
# Sections of a single page have none.
SINGLE = ("index", "quick_start", "contributing", "design", "genindex", "search")
html_sidebars = {page: [] for page in SINGLE}
html_static_path = ["_static"]
html_css_files = ["wide.css"]
