"""MkDocs hooks for `make docs`: add pages from outside docs/, and check the result.

The README becomes the first page. Other files of the repository that pages link to are added, and
links are rewritten to their places on the site. A page that would make the reader's browser load
anything from another server is refused.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
BROUGHT = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE.md",
    "benchmarks/results.md": "benchmarks/results.md",
    "examples/agent.py": "examples/agent.py",
    "examples/answer_times.py": "examples/answer_times.py",
}
"""Files from outside docs/, and their paths on the site."""

_FROM = {there: here for here, there in BROUGHT.items()}
_LINK = re.compile(r"^```.*?^```|(?<=\]\()(?!\w+:|#)([^)\s#]+)", re.MULTILINE | re.DOTALL)
"""A link within the repository; or a code block, which contains no links."""
_LOAD = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>"""
    r"""|(?:@import|url\()\s*["']?(?:https?:)?//[^"')]+"""
)
_log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files from outside docs/."""
    for here, there in BROUGHT.items():
        text = (ROOT / here).read_text("utf-8")
        if there == "LICENSE.md":
            text = f"# Licence\n\n{text}"
        files.append(File.generated(config, there, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to files of the repository to their paths on the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(_FROM.get(here, f"docs/{here}"))

    def moved(link: re.Match[str]) -> str:
        if link[1] is None:
            return link[0]
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        there = BROUGHT.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(there, posixpath.dirname(here) or ".")

    return _LINK.sub(moved, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a page or a style that loads from another server."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in {".html", ".css"}:
            for load in _LOAD.finditer(path.read_text("utf-8")):
                _log.warning("%s loads from another server: %s", path.name, load[0][:200])
