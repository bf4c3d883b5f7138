"""``docs/rooms.md`` tells of the modules that there are."""

from __future__ import annotations

import runpy

from tests.docs.document import ROOT


def test_the_page_is_up_to_date() -> None:
    """Whoever adds a module runs ``python scripts/rooms.py``."""
    made = runpy.run_path(str(ROOT / "scripts" / "rooms.py"))
    assert made["page"]() == (ROOT / "docs" / "rooms.md").read_text("utf-8")
