"""docs/certification.md has every row, with the words of the code."""

import re

from keep_actors.testing.certification.rows import ABOUT
from keep_actors.testing.certification.subject import Certification
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "certification.md").read_text("utf-8")


def test_the_page_has_every_row_in_order_with_the_words_of_the_code() -> None:
    shown = re.findall(r"^\| `([a-z-]+)` \| (.*) \| (.*) \|$", PAGE.partition("## What is tried")[2], re.MULTILINE)
    assert shown == [(str(row), about.mishap, about.why) for row, about in ABOUT.items()]


def test_the_page_has_everything_that_a_certification_can_say_with_its_default() -> None:
    table = PAGE.partition("| of a certification |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)[^`]*` \| (.*?) \|", table, re.MULTILINE))
    known = {name: value for name, value in vars(Certification).items() if not name.startswith("_") and name != "spec"}
    assert set(shown) == set(known)
    settings = {name: value for name, value in known.items() if not callable(value)}
    assert {name: shown[name] for name in settings if name != "decisive"} == {
        name: f"{value:,}" if type(value) is int else str(value) for name, value in settings.items() if value != {}
    }
