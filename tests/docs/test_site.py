"""The site is built without a warning, its links lead somewhere, nothing comes from elsewhere, every name is there."""

import fcntl
import inspect
import os
import pkgutil
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

import keep_actors
from keep_actors import Keep
from tests.docs.pages import PAGES, ROOT


class Links(HTMLParser):
    """What a page refers to, what it loads, and where one can jump to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.refers: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.anchors |= {found["id"] or ""} if "id" in found else set()
        if tag == "a" and found.get("href"):
            self.refers.add(found["href"] or "")
        elif (address := found.get("src") or (tag == "link" and found.get("href"))) and tag != "a":
            self.loads.add(str(address))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, also when several processes share the tests: the others wait."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with (folder / "site-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site" / "objects.inv").exists():
            cache = str(folder / "site-cache")
            command = [sys.executable, "-m", "sphinx", "-W", "-q", "-d", cache, "docs", str(folder / "site")]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in [*site.glob("*.html"), *site.glob("connectors/*.html")]}


def test_every_page_is_there_and_in_the_navigation(site: Path, pages: dict[Path, Links]) -> None:
    docs = ROOT / "docs"
    wanted = {page.relative_to(docs).with_suffix(".html").as_posix() for page in PAGES if page.is_relative_to(docs)}
    assert wanted <= {page.relative_to(site).as_posix() for page in pages}
    listed = {address.partition("#")[0] for address in pages[site / "quickstart.html"].refers}
    assert wanted - listed == {"quickstart.html"}, "the page itself is `#` there"


def test_every_link_inside_the_site_leads_somewhere(pages: dict[Path, Links]) -> None:
    dead = []
    for page, links in pages.items():
        for address in links.refers | links.loads:
            parts = urlsplit(address)
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            is_there = target.exists() and (
                not parts.fragment or target not in pages or _anchor(pages[target], address)
            )
            if not parts.scheme and not is_there:
                dead.append(f"{page.name}: {address}")
    assert dead == []


def _anchor(links: Links, address: str) -> bool:
    return unquote(urlsplit(address).fragment) in links.anchors


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Links]) -> None:
    assert {address for links in pages.values() for address in links.loads if urlsplit(address).scheme} == set()
    styles = "".join(style.read_text("utf-8") for style in site.rglob("*.css"))
    assert re.findall(r"""(?:url\(|@import )["']?https?:[^)"']*""", styles) == []


def test_every_picture_is_shown_with_words_for_those_who_do_not_see_it(site: Path) -> None:
    in_pages: set[str] = set()
    described: dict[str, str] = {}
    for page in PAGES:
        found = re.findall(r"!\[(.*?)\]\((docs/)?pictures/(.*?)\)", page.read_text("utf-8"))
        described |= {name: words for words, _, name in found}
        in_pages |= {name for _, folder, name in found if not folder}
    folder = ROOT / "docs" / "pictures"
    assert {picture.relative_to(folder).as_posix() for picture in folder.rglob("*.svg")} == set(described)
    assert all(len(words) > 20 for words in described.values())
    assert all((site / "_images" / Path(name).name).is_file() for name in in_pages)


def test_the_reference_has_every_public_name_and_every_method_of_keep(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    known = {name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names}
    methods = [name for name, _ in inspect.getmembers(Keep, inspect.isfunction) if not name.startswith("_")]
    assert len(methods) > 30
    wanted = {f"keep_actors.{name}" for name in keep_actors.__all__} | {f"keep_actors.Keep.{name}" for name in methods}
    assert wanted - known == set()


def test_the_reference_has_every_public_name_of_every_package(site: Path) -> None:
    text = (site / "reference.html").read_text("utf-8")
    packages = [each.name for each in pkgutil.iter_modules(keep_actors.__path__, "keep_actors.") if each.ispkg]
    modules = [import_module(name) for name in ("keep_storage", "keep_sandbox", *packages)]
    public = {(each, name) for each in modules for name in getattr(each, "__all__", [])}
    assert len(public) > 100
    missing = {f"{each.__name__}.{name}" for each, name in public if f">{name}<" not in text}
    assert missing <= {"keep_storage.operations", "keep_storage.reads"}, "those two are modules"


def test_the_navigation_takes_pages_that_it_does_not_know_and_does_without_those_that_are_not_there() -> None:
    navigation = runpy.run_path(str(ROOT / "docs" / "_site" / "pages.py"))["navigation"]
    assert navigation({"index", "quickstart", "surprise", "reference"}) == {
        "Start": ["quickstart"],
        "Reference": ["reference"],
        "More": ["surprise"],
    }
