"""The navigation, links between pages, and charts.

A page that is in no part of the navigation is in its last one; a page that the navigation names and that is not there
is left out.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

NAVIGATION = {
    "Start": ["quickstart", "concepts", "guarantees"],
    "Write": ["scripts", "authoring", "testing"],
    "Connectors": [
        "services",
        *(f"connectors/{kind}" for kind in ("sql", "mail", "http", "openapi", "mcp", "files", "sheet", "chat")),
        "connectors",
        "conformance",
        "certification",
    ],
    "Embed": ["embedding", "runtime", "permissions", "maintenance", "notices", "failures"],
    "Operate": ["operating", "cli", "assistant", "observability", "security", "platforms", "benchmarks"],
    "Inside": ["architecture", "storage", "sandbox", "kernel", "decisions"],
}
"""The parts and their pages, in the order in which one would read them."""

LAST = "More"
MARK = "<!-- navigation -->"


def navigation(pages: set[str]) -> dict[str, list[str]]:
    """The parts that have pages. Every page but the first is in one of them; the reference closes the list."""
    parts = {part: [page for page in named if page in pages] for part, named in NAVIGATION.items()}
    named = {page for listed in parts.values() for page in listed}
    parts["Reference"] = ["reference"] if "reference" in pages else []
    parts[LAST] = sorted(pages - named - {"index", "reference"})
    return {part: listed for part, listed in parts.items() if listed}


def pages_in(docs: Path) -> set[str]:
    """All pages, by their path without `.md`."""
    pages = [*docs.glob("*.md"), *docs.glob("connectors/*.md")]
    return {path.relative_to(docs).with_suffix("").as_posix() for path in pages}


def _write_navigation(app: Sphinx, page: str, text: list[str]) -> None:
    if page == "index":
        parts = navigation(pages_in(Path(app.srcdir)))
        trees = [
            "\n".join(["```{toctree}", ":hidden:", f":caption: {part}", "", *listed, "```"])
            for part, listed in parts.items()
        ]
        text[0] = text[0].replace(MARK, "\n\n".join(trees))


def _link_pages(app: Sphinx, tree: nodes.document) -> None:
    """`docs/storage.md`, as the pages say it for readers of the files, is a link here."""
    for literal in list(tree.findall(nodes.literal)):
        found = re.fullmatch(r"docs/([\w/]+)\.md", literal.astext())
        inside = isinstance(literal.parent, nodes.reference | addnodes.pending_xref)
        if found and not inside and found[1] in pages_in(Path(app.srcdir)):
            link = addnodes.pending_xref(
                "", refdomain="std", reftype="doc", reftarget=f"/{found[1]}", refexplicit=True, refwarn=True
            )
            link["refdoc"] = app.env.docname
            literal.replace_self(link)
            link += nodes.inline("", f"{found[1]}.md", classes=["xref", "doc"])


def _show_charts(_: Sphinx, tree: nodes.document) -> None:
    """A chart in mermaid's words is shown in these words: to draw it takes a script from elsewhere, or a browser."""
    for block in tree.findall(nodes.literal_block):
        if block.get("language") == "mermaid":
            block["language"] = "text"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _write_navigation)
    app.connect("doctree-read", _link_pages)
    app.connect("doctree-read", _show_charts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
