"""The site of `make docs` has a place for each page, and a page for each name and event type."""

from __future__ import annotations

import re

import agent_eventstore
from tests.docs.document import ROOT

DOCS = ROOT / "docs"
_NAV = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
LISTED = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", _NAV, re.MULTILINE)
BROUGHT = {"index.md", "CHANGELOG.md", "LICENSE.md", "benchmarks/results.md"}
"""Files from outside of docs/, which scripts/site.py brings along."""


def test_each_page_has_its_place() -> None:
    """Every page of docs/ is in the list of the site once, and nothing that is not there."""
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}

    assert sorted(pages | BROUGHT) == sorted(LISTED)


def test_each_public_name_is_described() -> None:
    """Every name of the public face stands on one page of the reference, and one module."""
    text = "".join(path.read_text("utf-8") for path in (DOCS / "api").glob("*.md"))
    described = re.findall(r"^::: agent_eventstore\.(\w+)$", text, re.MULTILINE)

    assert sorted({*agent_eventstore.__all__, "participants"} - {"events"}) == sorted(described)
