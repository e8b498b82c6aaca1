"""Settings of the documentation; ``tox -e docs`` builds it."""

from importlib.metadata import version as installed_version
from importlib.resources import files

project = "pyod-quadric"
author = "The pyod-quadric developers"
version = release = installed_version("pyod-quadric")
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it
add_module_names = False

html_theme = "furo"
html_title = "pyod-quadric"
# MathJax in one file, with its fonts, so that formulas need no network
html_static_path = ["_static", str(files("sphinx-mathjax-offline") / "static" / "mathjax" / "tex-svg.js")]
mathjax_path = "tex-svg.js"
html_css_files = ["site.css"]
html_theme_options = {
    # Code of 98 characters fits the column.
    "light_css_variables": {"color-brand-primary": "#0b5c8f", "color-brand-content": "#0b5c8f", "code-font-size": "75%"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}
