# SPDX-License-Identifier: GPL-2.0
"""How `make docs` renders these pages."""

project = "qpair"
author = "the qpair developers"
extensions = []
exclude_patterns = []
html_theme = "alabaster"
html_theme_options = {
    "description": "The queues that hardware and software share",
    "page_width": "70em",
    "sidebar_width": "16em",
}
highlight_language = "none"
nitpicky = True
