"""The state that sessions of Google's ADK share: a conversation for each app, and for each user."""

from __future__ import annotations

from typing import Any

from agent_eventstore.integrations.conversation_pages import events_before
from agent_eventstore.integrations.google_adk_events import GoogleADKShared
from eventstore import NO_STREAM, EventStore
from eventstore.events.codec import loads_json

__all__ = ["share", "shared_by"]


def shared_by(store: EventStore, key: str) -> dict[str, Any]:
    """Return the state that is shared under a key, without prefixes."""
    return _shared_at(store, key)[1]


def share(
    store: EventStore, key: str, delta: dict[str, Any], user_id: str | None, connection: Any
) -> None:
    """Change what is shared under a key, in the caller's transaction."""
    if delta:
        version, state = _shared_at(store, key)
        store.append(
            key,
            GoogleADKShared(state=state | delta),
            expected_version=version or NO_STREAM,
            user_id=user_id,
            connection=connection,
        )


def _shared_at(store: EventStore, key: str) -> tuple[int, dict[str, Any]]:
    """Return the state that sessions share, and the version that its conversation is at."""
    newest = 0
    for event in events_before(store, store.stream(key), first=1):
        newest = newest or event.version
        if event.type == GoogleADKShared.type and event.text is not None:
            return newest, loads_json(event.text)["state"]
    return newest, {}
