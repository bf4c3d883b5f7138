"""Metadata hook of the build: the README as a package index shows it, where no file lies beside it.

Links to files of the repository get the address of ``Source`` in ``[project.urls]``. While there is
none, they become plain words, so that no link of the index leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(
    r"\[(?P<words>[^\]]+)\]\((?!\w+:|#)(?P<target>[^)\s]+)\)|^```.*?^```", re.M | re.S
)


class Readme(MetadataHookInterface):
    """Sets ``readme``, which pyproject.toml therefore calls dynamic."""

    def update(self, metadata: dict[str, object]) -> None:
        """Put the text in place."""
        urls = metadata.get("urls")
        source = urls.get("Source") if isinstance(urls, dict) else None
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, source)}


def absolute(text: str, source: str | None) -> str:
    """Return a text whose links to files lead to the repository, or are none if nobody knows it."""

    def link(found: re.Match[str]) -> str:
        if found["words"] is None:
            return found[0]
        if source is None:
            return found["words"]
        return f"[{found['words']}]({source.rstrip('/')}/blob/HEAD/{found['target']})"

    return _LINK.sub(link, text)
