"""What a product wishes for its user interface: bounded, and erased with its message."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from eventstore.events import Ui, UserMessage
from eventstore.events.codec import decode, encode
from eventstore.events.values import WIDGET_BYTES


def test_a_widget_has_a_limit() -> None:
    """A widget that is too large is refused with the limit and what to do."""
    room = WIDGET_BYTES - len('{"a": ""}')
    Ui(widget={"a": "x" * room})
    with pytest.raises(ValidationError, match=r"32,769 bytes is too large: the limit is 32,768"):
        Ui(widget={"a": "x" * (room + 1)})


def test_what_was_written_before_has_none() -> None:
    """A message of version 1 is read as today's."""
    old = decode("user_message", 1, '{"parts":[{"kind":"text","text":"hi"}],"mentions":[]}')
    assert UserMessage.text("hi") == old


def test_it_stands_in_the_payload() -> None:
    """What a widget shows is content, and goes when the payload is erased."""
    message = UserMessage.text("hi", ui=Ui(widget={"a": "\ud800"}))
    assert message == decode("user_message", 2, encode(message))
