"""``docs/events/`` has a page for each type of the catalogue, as the catalogue is."""

from __future__ import annotations

import runpy

from eventstore.events import EVENT_TYPES
from tests.docs.document import ROOT

FOLDER = ROOT / "docs" / "events"


def test_the_pages_are_up_to_date() -> None:
    """Whoever changes a payload runs ``python scripts/event_pages.py``."""
    made = runpy.run_path(str(ROOT / "scripts" / "event_pages.py"))["pages"]()

    assert made == {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert {f"{cls.type}.md" for cls in EVENT_TYPES} == made.keys() - {"index.md", "values.md"}
