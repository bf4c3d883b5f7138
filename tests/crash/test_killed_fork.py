"""A process that is killed while it makes a fork leaves a whole one or none."""

from __future__ import annotations

import signal
from uuid import UUID

import pytest

from agent_eventstore import Conversation
from eventstore import EventStore, new_id
from projections import Views
from tests.contract.facade import say
from tests.warm import Programs

PROGRAM = """
import os, signal, sys
from uuid import UUID
from agent_eventstore import Conversation, EventStore
from eventstore.sql import conversation_fork

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

url, source, fork, place = sys.argv[1:]
store = EventStore.open(url)
if place == "within":
    conversation_fork.append = die
Conversation.fork(store, UUID(source), conversation_id=UUID(fork))
die()
"""


@pytest.mark.parametrize("place", ["within", "after"])
def test_a_fork_is_whole_or_not_there(programs: Programs, database_url: str, place: str) -> None:
    """Killed before the commit there is none; after it there is one, with its first events."""
    fork: UUID = new_id()
    with EventStore.open(database_url) as store:
        source = store.append(new_id(), say("1", "2")).conversation_id
        done = programs.run("-c", PROGRAM, database_url, str(source), str(fork), place)
        assert -signal.SIGKILL == done.returncode
        found = [event.type for event in store.read(fork)]
        own = ["user_message", "user_message", "conversation_fork", "session_start"]
        assert found == (own if place == "after" else [])
        assert store.verify().ok
        if place == "within":
            fork = store.fork(source, conversation_id=fork).conversation_id
        with Conversation.open(store, fork) as opened:
            assert ["1", "2"] == [
                item.text for item in Views(store).timeline(opened.id) if item.kind == "user"
            ]
