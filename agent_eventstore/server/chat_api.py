"""``POST /api/chat`` (document 002), and the other operations for which a model answers.

A conversation answers one message at a time: others wait, in this process in the event loop, and
behind another process for its session to close. An answer is recorded whether or not its client is
still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
from pydantic import ConfigDict, Field
from starlette.responses import Response

from agent_eventstore.agents import ChatResult, ChatSession
from agent_eventstore.participants import WORKFLOW, Participant
from agent_eventstore.server.endpoints import ApiCall, Operation, RequestModel
from agent_eventstore.server.event_stream import EventStream, server_sent
from agent_eventstore.server.problems import RequestProblem, document_of
from agent_eventstore.server.shared import Service
from eventstore import EventStore
from eventstore.errors import ConversationNotFound, OwnerMismatch
from eventstore.events import ConversationStart
from eventstore.ids import uuid_in

__all__ = ["OPERATIONS"]

Slug = Annotated[str, Field(min_length=1, max_length=1_024)]
Message = Annotated[str, Field(min_length=1, max_length=1_000_000)]
MessageId = Annotated[
    str, Field(min_length=1, max_length=512, description="Posted again, it is not answered again.")
]


class ChatBody(RequestModel):
    """A message to the participants of a session."""

    message: Message
    thread_id: Annotated[
        Slug | None, Field(description="The session; without one, a new session is created.")
    ] = None
    mode: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    role_config: Annotated[
        dict[str, str] | None,
        Field(max_length=64, description="For workflow mode: the participant of each role."),
    ] = None
    thread_slug: Annotated[
        Slug | None, Field(description="The thread to which the session belongs.")
    ] = None
    project_id: Slug | None = None
    message_id: MessageId | None = None
    name: Annotated[Slug | None, Field(description="The user's name, if several write.")] = None


class EditBody(RequestModel):
    """A new text of an earlier message."""

    version: Annotated[int, Field(ge=1, le=2**53, description="The version of the message.")]
    message: Message
    thread_slug: Slug | None = None
    message_id: MessageId | None = None


class RegenerateBody(RequestModel):
    """Which session's last message is answered again."""

    thread_slug: Slug | None = None


class UiPart(RequestModel):
    """A part of a message of Vercel's AI SDK; only texts are read."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: Annotated[str, Field(max_length=200)]
    text: Annotated[str, Field(max_length=1_000_000)] = ""


class UiMessage(RequestModel):
    """A message of Vercel's AI SDK."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(max_length=512)] = ""
    role: Annotated[str, Field(max_length=64)]
    parts: Annotated[list[UiPart], Field(max_length=10_000, default_factory=list)]


class UiChatBody(RequestModel):
    """What the AI SDK's default transport sends; of the messages only the last is read."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[Slug, Field(description="The chat: its own name for it, or a thread_id.")]
    messages: Annotated[list[UiMessage], Field(min_length=1, max_length=100_000)]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"


@dataclass(slots=True, frozen=True)
class _Exchange:
    """A message on its way through a session: what to send, and how."""

    service: Service
    store: EventStore
    thread_slug: str | None
    project_id: str | None
    send: Callable[[ChatSession], ChatResult]
    mode: str | None = None
    roles: dict[str, str] | None = None
    key: str | None = None

    def answer(
        self, stream: UUID | None, listener: Callable[[str, str, str], None] | None
    ) -> dict[str, Any]:
        """Send the message, and return the response's document; blocks until it is answered."""
        session = self._created(listener) if stream is None else self._opened(stream, listener)
        with session:
            result = self.send(session)
            return _document(session, result, self.project_id)

    def _options(
        self,
        participants: tuple[Participant, ...],
        listener: Callable[[str, str, str], None] | None,
    ) -> dict[str, Any]:
        models = self.service.models
        known = {each.id for each in participants}
        options: dict[str, Any] = {
            "participants": participants,
            "model": next(iter(models.values())),
            "models": {name: model for name, model in models.items() if name in known},
        }
        if self.service.model_name is not None:
            options["model_name"] = self.service.model_name
        if listener is not None:
            options["listener"] = listener
        return options

    def _created(self, listener: Callable[[str, str, str], None] | None) -> ChatSession:
        start: dict[str, Any] = {} if self.key is None else {"key": self.key}
        if self.project_id is not None:
            start["config"] = {"project_id": self.project_id}
        return ChatSession.create(
            self.store,
            mode=self.mode or "free_chat",
            role_map=self.roles,
            thread_slug=self.thread_slug,
            conversation=start,
            **self._options(tuple(self.service.participants), listener),
        )

    def _opened(
        self, stream: UUID, listener: Callable[[str, str, str], None] | None
    ) -> ChatSession:
        start = _start_of(self.store, stream)
        stored = tuple(Participant.of(each) for each in start.participants)
        if self.project_id is not None and start.config.get("project_id") != self.project_id:
            raise RequestProblem(
                409,
                f"conversation {stream} does not belong to the project {self.project_id!r}: name "
                "the project_id that it was created with",
                error="WrongThread",
            )
        session = ChatSession.open(
            self.store,
            stream,
            thread_slug=self.thread_slug,
            conversation={"if_busy": "wait", "wait_s": self.service.limits.chat_wait_s},
            **self._options(stored or tuple(self.service.participants), listener),
        )
        try:
            self._switch(session, start)
        except BaseException:
            session.close()
            raise
        return session

    def _switch(self, session: ChatSession, start: ConversationStart) -> None:
        """Switch mode and roles, if the request names others than those of the session."""
        mode = self.mode or session.mode
        roles = session.mode_state.get("role_map") or start.config.get("role_map")
        if mode != session.mode or (mode == WORKFLOW and self.roles not in (None, roles)):
            session.switch_mode(mode, self.roles)


def _start_of(store: EventStore, stream: UUID) -> ConversationStart:
    """Return a conversation's start; an empty one if it is an import without one."""
    store.get(stream)
    first = next(iter(store.read(stream, limit=1)), None)
    found = None if first is None else first.data
    return found if isinstance(found, ConversationStart) else ConversationStart()


def _document(session: ChatSession, result: ChatResult, project_id: str | None) -> dict[str, Any]:
    names = {each.id: each.name for each in session.participants}
    responses = [
        {
            "participant": each.participant,
            "name": names.get(each.participant, each.participant),
            "role": "assistant",
            "content": each.text,
            "error": each.error,
            "tokens": each.tokens,
        }
        for each in result.responses
    ]
    return {
        "thread_id": session.id,
        "thread_slug": session.thread_slug,
        "project_id": project_id,
        "mode": session.mode,
        "mode_state": result.mode_state,
        "status": result.status,
        "error": result.error,
        "turn": result.turn,
        "version": session.conversation.version,
        "user_message": {"role": "user", "content": result.user_message},
        "responses": responses,
    }


async def _chat(call: ApiCall) -> Any:
    body = call.body
    return await _exchanged(
        call,
        body.thread_id,
        lambda chat: chat.send(body.message, name=body.name, message_id=body.message_id),
        project_id=body.project_id,
        mode=body.mode,
        roles=body.role_config,
    )


async def _edit(call: ApiCall) -> Any:
    body = call.body
    return await _exchanged(
        call,
        call.named,
        lambda chat: chat.edit(body.version, body.message, message_id=body.message_id),
    )


async def _regenerate(call: ApiCall) -> Any:
    return await _exchanged(call, call.named, lambda chat: chat.regenerate())


async def _ui_chat(call: ApiCall) -> Any:
    """Answer as the AI SDK's UI message stream, version 1."""
    service, body = call.service, call.body
    last = next((each for each in reversed(body.messages) if each.role == "user"), None)
    text = "" if last is None else "".join(each.text for each in last.parts)
    if last is None or not text:
        raise RequestProblem(400, "the messages have no text of a user")
    _require_models(service)
    # Ids that browsers choose are names within one owner: nobody learns which others have.
    key = f"ui:{service.identity_of(call.request).user_id or ''}:{body.id}"

    def found() -> UUID | None:
        known = call.store.find(key=key)
        if known is None and uuid_in(body.id) is not None:
            with suppress(ConversationNotFound, OwnerMismatch):  # then it is the chat's own name
                known = call.store.get(body.id)
        return None if known is None else known.conversation_id

    stream = await service.run(found)
    again = body.trigger == "regenerate-message" and stream is not None

    def send(chat: ChatSession) -> ChatResult:
        return chat.regenerate() if again else chat.send(text, message_id=last.id or None)

    store = await service.run(lambda: call.store)
    exchange = _Exchange(service, store, None, None, send, key=key)
    return _streamed(service, exchange, stream, _ui_format())


def _ui_format() -> _StreamFormat:
    """Return how an answer's pieces become the parts of one UI message."""
    open_parts: dict[str, None] = {}

    def part(**fields: Any) -> bytes:
        return server_sent(fields)

    def listen(participant: str, kind: str, text: str) -> bytes:
        name = "reasoning" if kind == "thought" else "text"
        own_id, begin = f"{participant}-{name}", b""
        if own_id not in open_parts:
            open_parts[own_id] = None
            begin = part(type=f"{name}-start", id=own_id)
        return begin + part(type=f"{name}-delta", id=own_id, delta=text)

    def end(document: dict[str, Any]) -> bytes:
        ends = [part(type=f"{each.rpartition('-')[2]}-end", id=each) for each in open_parts]
        errors = [part(type="error", errorText=document["error"])] if document["error"] else []
        known = {"threadId": document["thread_id"], "turn": document["turn"]}
        finish = part(type="finish", messageMetadata=known)
        return b"".join([*ends, *errors, finish, _DONE])

    def fail(error: Exception) -> bytes:
        return part(type="error", errorText=document_of(error)["detail"]) + _DONE

    headers = {"x-vercel-ai-ui-message-stream": "v1"}
    return _StreamFormat(part(type="start"), listen, end, fail, headers)


async def _exchanged(
    call: ApiCall,
    named: str | None,
    send: Callable[[ChatSession], ChatResult],
    *,
    project_id: str | None = None,
    mode: str | None = None,
    roles: dict[str, str] | None = None,
) -> Any:
    """Answer a message, as one document or, on request, as server-sent events."""
    service = call.service
    store = await service.run(lambda: call.store)
    exchange = _Exchange(service, store, call.body.thread_slug, project_id, send, mode, roles)
    _require_models(service)
    stream: UUID | None = None
    if named is not None:
        found = named
        stream = (await service.run(lambda: store.get(found))).conversation_id
    if "text/event-stream" not in call.request.headers.get("accept", ""):
        async with _alone(service, stream):
            return await service.answer(exchange.answer, stream, None)
    return _streamed(service, exchange, stream, _PLAIN)


def _require_models(service: Service) -> None:
    if not service.models:
        raise RequestProblem(
            501,
            "no model answers here: pass models= to create_app, or --model or --demo to "
            "eventstore serve",
        )


@dataclass(frozen=True, slots=True)
class _StreamFormat:
    """How the pieces of an answer are written as server-sent events."""

    begin: bytes
    listen: Callable[[str, str, str], bytes]
    end: Callable[[dict[str, Any]], bytes]
    fail: Callable[[Exception], bytes]
    headers: dict[str, str]


_DONE = b"data: [DONE]\n\n"
_PLAIN = _StreamFormat(
    b"",
    lambda participant, kind, text: server_sent(
        {"participant": participant, "text": text}, event=kind
    ),
    lambda document: server_sent(document, event="result"),
    lambda error: server_sent(document_of(error), event="problem"),
    {},
)
"""``text`` or ``thought`` for each piece, and last ``result`` or ``problem``."""


def _streamed(
    service: Service, exchange: _Exchange, stream: UUID | None, written: _StreamFormat
) -> Response:
    """Return the answer in pieces; it goes on, and is recorded, if the client leaves."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    def add(piece: bytes | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

    def listen(participant: str, kind: str, text: str) -> None:
        if kind in ("text", "thought"):
            add(written.listen(participant, kind, text))

    async def answer() -> None:
        try:
            async with _alone(service, stream):
                document = await service.answer(exchange.answer, stream, listen)
            add(written.end(document))
        except Exception as error:
            add(written.fail(error))
        finally:
            add(None)

    task = asyncio.create_task(answer())
    _running.add(task)
    task.add_done_callback(_running.discard)

    async def sent() -> AsyncIterator[bytes]:
        if written.begin:
            yield written.begin
        while True:
            try:
                piece = await asyncio.wait_for(pieces.get(), service.limits.heartbeat_s)
            except TimeoutError:
                yield b": alive\n\n"
                continue
            if piece is None:
                return
            yield piece

    return EventStream(sent(), headers=written.headers)


_running: set[asyncio.Task[None]] = set()
_locks: WeakKeyDictionary[Service, WeakValueDictionary[UUID, asyncio.Lock]] = WeakKeyDictionary()


@asynccontextmanager
async def _alone(service: Service, stream: UUID | None) -> AsyncIterator[None]:
    """Wait until no other message of the conversation is being answered by this process.

    Raises:
        RequestProblem: The wait is longer than the limit.
    """
    if stream is None:
        yield
        return
    lock = _locks.setdefault(service, WeakValueDictionary()).setdefault(stream, asyncio.Lock())
    try:
        with anyio.fail_after(service.limits.chat_wait_s):
            await lock.acquire()
    except TimeoutError as error:
        raise RequestProblem(
            409,
            f"conversation {stream} is still answering another message after "
            f"{service.limits.chat_wait_s:g} seconds: stop it, or try again",
            headers={"Retry-After": "5"},
        ) from error
    try:
        yield
    finally:
        lock.release()


_ONE = "/api/conversations/{conversation}"
_ACCEPT = {"Accept": "`text/event-stream` for the answer in pieces, as server-sent events"}

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/chat",
        name="chat",
        summary="Send a message to a session, or to a new one, and return the answers.",
        handler=_chat,
        body=ChatBody,
        headers=_ACCEPT,
    ),
    Operation(
        method="POST",
        path="/api/ui-chat",
        name="ui_chat",
        summary="Answer a message of Vercel's AI SDK, as its UI message stream.",
        handler=_ui_chat,
        body=UiChatBody,
        media_type="text/event-stream",
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/edit",
        name="edit_message",
        summary="Replace a message and answer it; the old one stays an alternative.",
        handler=_edit,
        body=EditBody,
        headers=_ACCEPT,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/regenerate",
        name="regenerate",
        summary="Answer the last message again; the old answer stays an alternative.",
        handler=_regenerate,
        body=RegenerateBody,
        headers=_ACCEPT,
    ),
)
"""The operations, in the order of the OpenAPI document."""
