"""``doctor`` where one cause keeps many checks from being made."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url

from agent_eventstore.cli.program import FOUND
from tests.cli.program import run


def test_one_cause_is_told_once(own: str) -> None:
    """A damaged file was told six times, with the same advice; for programs each check has it."""
    file = Path(make_url(own).database or "")
    file.write_bytes(file.read_bytes()[:5000])

    done = run("doctor", url=own)
    found = run("doctor", "--json", url=own).document["checks"]

    words = " ".join(done.out.split())
    assert (FOUND, 1, 1) == (
        done.status,
        words.count("is damaged"),
        words.count("restore a backup if"),
    )
    unmade = [each for each in found if "is damaged" in each["found"]]
    assert len(unmade) > 3
    assert len(unmade) - 1 == words.count("as schema: the same cause")
