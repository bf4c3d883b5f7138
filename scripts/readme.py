"""Build hook: adapt the README for a package index, where relative links do not work.

Links to files of the repository get the address of ``Source`` in ``[project.urls]``. Without that
address they become plain text, so that the index shows no broken link.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(
    r"(?P<image>!?)\[(?P<words>[^\]]+)\]\((?!\w+:|#)(?P<target>[^)\s]+)\)|^```.*?^```", re.M | re.S
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
    """Return the text with links to files made absolute, or made plain text without a source."""

    def link(found: re.Match[str]) -> str:
        if found["words"] is None:
            return found[0]
        if source is None:
            return "" if found["image"] else found["words"]
        way = "raw" if found["image"] else "blob"
        place = f"{source.rstrip('/')}/{way}/HEAD/{found['target']}"
        return f"{found['image']}[{found['words']}]({place})"

    return _LINK.sub(link, text)
