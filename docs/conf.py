"""How the pages of this folder become a site: `sphinx-build -W docs site`.

Nothing is fetched, neither when it is built nor when it is read.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "keep-actors"
author = "The authors of keep-actors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "_site.pages", "_site.reference"]

html_theme = "furo"
html_title = "keep-actors"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False

exclude_patterns = ["_site"]
nitpicky = (
    False  # types of the standard library and of msgspec have no pages here; links between pages are always checked
)
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # a page may begin a part with a smaller heading

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
smartquotes = False  # the words as they were written
toc_object_entries = False  # a thousand names in every menu
python_maximum_signature_line_length = 100
