"""Reads back from an ``llm_request`` how its messages were chosen.

The system part of a request is composed from files and not stored as a message. Its texts are in
the request's policy, or in that of an earlier request with the same texts (``system_of``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from eventstore import EventStore
from eventstore.events import LlmRequest
from projections.context.prompts import Injection
from projections.context.settings import ContextSettings
from projections.context.view import ContextView
from projections.errors import InvalidSettings, RequestNotReproducible

__all__ = ["RecordedRequest", "recorded_request"]


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A recorded request, with everything needed to build its messages again.

    Attributes:
        conversation_id: The request's conversation.
        version: The version of the ``llm_request`` event.
        at: The version of the conversation at which the messages were read.
        digest: The digest of what was sent.
        options: Arguments of `projections.context.build`.
        system: The composed system part.
        run: The run that the system part described; False for none.
    """

    conversation_id: UUID
    version: int
    at: int
    digest: str | None
    options: dict[str, Any] = field(default_factory=dict)
    system: tuple[Injection, ...] = ()
    run: bool | str = False

    def checked(self, view: ContextView) -> ContextView:
        """Return the view, if its digest is the recorded one.

        Raises:
            RequestNotReproducible: The digests differ.
        """
        if view.digest == self.digest:
            return view
        reason = (
            "its events were erased, another version of the project built it, or its strategy had "
            "options that the log does not record (then pass the strategy)"
        )
        raise RequestNotReproducible(self.conversation_id, self.version, reason)


def recorded_request(store: EventStore, conversation_id: UUID, version: int) -> RecordedRequest:
    """Return the request that the log records at a version.

    Raises:
        ConversationNotFound: The conversation does not exist.
        ValueError: The event at this version is not an ``llm_request``, or does not exist.
        RequestNotReproducible: This project did not choose its messages, or this version does not
            accept its settings.
    """
    request = _request(store, conversation_id, version)
    policy = request.policy
    if "name" not in policy:
        reason = "they were not chosen by this project"
        raise RequestNotReproducible(conversation_id, version, reason)
    system = policy.get("system", ())
    if "system_of" in policy:
        system = _request(store, conversation_id, policy["system_of"]).policy.get("system", ())
    chosen = {**policy.get("settings", {}), "strategy": policy["name"]}
    try:
        settings = ContextSettings.from_mapping(chosen)
    except InvalidSettings as error:
        reason = f"another version of the project recorded it: {error}"
        raise RequestNotReproducible(conversation_id, version, reason) from error
    return RecordedRequest(
        conversation_id,
        version,
        policy.get("at", version - 1),
        request.digest,
        options={
            "model": policy.get("model", "gpt-4o"),
            "max_tokens": policy.get("max_tokens"),
            "max_messages": policy.get("max_messages"),
            "format": policy.get("format", "openai_chat"),
            "provider": policy.get("provider"),
            "paths": not policy.get("without_paths", False),
            "tools": request.tools,
            "settings": settings,
        },
        system=tuple(Injection(label, text) for label, text in system),
        run=policy.get("run", False),
    )


def _request(store: EventStore, conversation_id: UUID, version: int) -> LlmRequest:
    found = list(store.read(conversation_id, after=version - 1, limit=1))
    if not found or found[0].version != version or not isinstance(found[0].data, LlmRequest):
        store.get(conversation_id)  # raises if the conversation does not exist
        raise ValueError(f"conversation {conversation_id} has no llm_request at version {version}")
    return found[0].data
