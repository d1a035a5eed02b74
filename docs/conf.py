"""How the documentation is built: MyST, Furo, nothing from the network."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tau_live import __version__  # noqa: E402  # found by the line above

project = "tau-live"
author = "the tau-live authors"
project_copyright = author
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.strikethrough"]

html_theme = "furo"
html_title = f"tau-live {release}"
html_static_path = ["_static"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, sans-serif"},
    "dark_css_variables": {"font-stack": "system-ui, sans-serif"},
}
