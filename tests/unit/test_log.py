"""Fields of a log event reach the standard logger as fields, and as text for people."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from eventstore.telemetry.log import get_logger


def test_fields_arrive_as_attributes_of_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """A formatter that writes JSON finds the fields of an event; the text has them too."""
    own = UUID(int=7)
    with caplog.at_level(logging.INFO, "logged"):
        get_logger("logged").info("appended", conversation_id=own, events=3, name="n")
    [record] = caplog.records
    fields = vars(record)
    assert ("appended", str(own), 3) == tuple(
        fields[name] for name in ("event", "conversation_id", "events")
    )
    assert ("logged", "n") == (record.name, fields["name_"])
    assert "event='appended'" in record.getMessage()
    assert "events=3" in record.getMessage()


def test_an_exception_arrives_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The traceback is the record's own, not a field."""
    with caplog.at_level(logging.INFO, "logged"):
        try:
            raise ValueError("broken")
        except ValueError:
            get_logger("logged").exception("failed", count=1)
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
