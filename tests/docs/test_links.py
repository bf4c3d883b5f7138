"""The documents point to what exists: pages, headings, and files of this repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.document import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES]
)

_LINK = re.compile(r"\[[^\]]+\]\((?!https?://)([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"\|[\s:|-]+\|")
_FILE = re.compile(
    r"`((?:agent_eventstore|eventstore|projections|migrations|tests|docs|scripts|examples|benchmarks)"
    r"/[\w./-]+)`"
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_there(page: Path, link: str) -> bool:
    """Whether a link of a page leads somewhere."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file, and a heading in it."""
    links = _LINK.findall(_CODE.sub("", page.read_text("utf-8")))

    assert [] == [link for link in links if not is_there(page, link)]


@each_page
def test_files_that_are_named_exist(page: Path) -> None:
    """Every path of this repository that a page names is there."""
    names = _FILE.findall(page.read_text("utf-8"))

    assert [] == [name for name in names if not (ROOT / name).exists()]


@each_page
def test_tables_are_whole(page: Path) -> None:
    """A table begins with its header: rows after a blank line are shown as text."""
    lines = ["", *_CODE.sub("", page.read_text("utf-8")).splitlines(), ""]
    begun = [n for n in range(1, len(lines)) if lines[n][:1] == "|" and lines[n - 1][:1] != "|"]

    assert [] == [lines[n] for n in begun if not _RULE.fullmatch(lines[n + 1])]
