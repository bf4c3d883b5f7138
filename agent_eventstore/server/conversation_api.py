"""The API's operations on conversations: lists, views, and what changes them without a model."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field
from starlette.responses import Response

from agent_eventstore import transcripts
from agent_eventstore.conversation import Conversation
from agent_eventstore.documents import event_document, json_bytes
from agent_eventstore.server.endpoints import ApiCall, Operation, RequestModel
from agent_eventstore.server.problems import RequestProblem
from projections import Views
from projections.models.directory import DIRECTORY, ConversationStatus
from projections.models.totals import UsageBy
from projections.providers.request_formats import FORMATS

__all__ = ["OPERATIONS", "Page", "Version"]

_WAIT_S = 10.0
"""How long a change waits for the session that has the conversation open."""

_FILES = tuple(name for name in transcripts.WRITTEN if name != transcripts.PROJECT)
_SCANNED = 20_000
"""The most events that a filter by type reads for one page."""

Version = Annotated[int, Field(ge=0, le=2**53, description="A version of the conversation.")]
Page = Annotated[int, Field(ge=1, le=500, description="The most entries to return.")]
Name = Annotated[str, Field(min_length=1, max_length=1_024)]
Text = Annotated[str, Field(max_length=1_000_000)]


class ListQuery(RequestModel):
    """Filters of the list of conversations."""

    status: ConversationStatus | None = None
    thread_slug: Annotated[Name | None, Field(description="Only sessions of this thread.")] = None
    user_id: Name | None = None
    tenant_id: Name | None = None
    after: Annotated[
        str | None, Field(max_length=200, description="The `next` of the page before.")
    ] = None
    limit: Page = 50


class SearchQuery(RequestModel):
    """A search in all conversations."""

    q: Annotated[str, Field(max_length=1_000, description='Words, "a phrase", or begin*.')]
    user_id: Name | None = None
    tenant_id: Name | None = None
    limit: Page = 20


class NewConversation(RequestModel):
    """A new conversation."""

    title: Annotated[str | None, Field(max_length=1_000)] = None
    mode: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    base_instructions: Text | None = None
    user_instructions: Text | None = None
    metadata: dict[str, Any] | None = None
    thread_slug: Annotated[str | None, Field(min_length=1, max_length=1_024)] = None
    project_id: Annotated[str | None, Field(min_length=1, max_length=1_024)] = None
    user_id: Annotated[Name | None, Field(description="If the request has no owner.")] = None
    tenant_id: Annotated[Name | None, Field(description="If the request has no owner.")] = None


class Changes(RequestModel):
    """What to change of a conversation; what is not named stays."""

    title: Annotated[str | None, Field(min_length=1, max_length=1_000)] = None
    archived: bool | None = None
    metadata: dict[str, Any] | None = None


class ErasureQuery(RequestModel):
    """Why a conversation is erased."""

    reason: Annotated[str, Field(min_length=1, max_length=1_000)] = "requested through the API"


class EndBody(RequestModel):
    """Why a conversation is ended."""

    message: Annotated[str | None, Field(max_length=10_000)] = None


class StopBody(RequestModel):
    """Why an answer is stopped."""

    reason: Annotated[str, Field(min_length=1, max_length=1_000)] = "stopped"


class ForkBody(RequestModel):
    """Where to fork a conversation."""

    before: Annotated[
        Version | None, Field(description="The first version that is not shared.")
    ] = None
    title: Annotated[str | None, Field(max_length=1_000)] = None


class SwitchBody(RequestModel):
    """The alternative to switch to."""

    version: Version


class TimelineQuery(RequestModel):
    """A part of the timeline."""

    after: Annotated[
        Version, Field(description="Only items that began or changed after this version.")
    ] = 0
    at: Annotated[Version | None, Field(description="As of this version.")] = None
    limit: Page = 200


class BranchesQuery(RequestModel):
    """The branches at a version."""

    at: Annotated[Version | None, Field(description="As of this version.")] = None


class ContextQuery(RequestModel):
    """How to build the next request, or which earlier request to show."""

    of: Annotated[
        Version | None, Field(description="As sent with the llm_request of this version.")
    ] = None
    max_tokens: Annotated[int | Literal["model"] | None, Field(description="The budget.")] = None
    reserve_for_response: Annotated[int | None, Field(ge=0, le=2**40)] = None
    max_messages: Annotated[int | None, Field(ge=1, le=2**40)] = None
    model: Annotated[str, Field(max_length=200)] = "gpt-4o"
    mode: Annotated[str, Field(max_length=64, description="`none`: no system part.")] = "active"
    agent: Annotated[str | None, Field(max_length=200)] = None
    strategy: Annotated[str | None, Field(max_length=200)] = None
    format: Annotated[str, Field(json_schema_extra={"enum": list(FORMATS)})] = "openai_chat"
    at: Annotated[Version | None, Field(description="As of this version.")] = None


class UsageQuery(RequestModel):
    """How to total usage, and of which calls."""

    by: UsageBy = "model"
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None


class AllUsageQuery(UsageQuery):
    """The same, across conversations."""

    user_id: Name | None = None
    tenant_id: Name | None = None


class ToolsQuery(RequestModel):
    """Filters of tool calls."""

    tool: Annotated[str | None, Field(max_length=1_000)] = None
    status: Annotated[str | None, Field(max_length=64)] = None
    call_id: Annotated[str | None, Field(max_length=1_000)] = None
    limit: Page = 100


class AllToolsQuery(ToolsQuery):
    """The same, across conversations."""

    user_id: Name | None = None
    tenant_id: Name | None = None


class EventsQuery(RequestModel):
    """A part of the log."""

    after: Annotated[Version, Field(description="Only later events.")] = 0
    type: Annotated[str | None, Field(max_length=200, description="Only this type.")] = None
    limit: Page = 100


class ExportQuery(RequestModel):
    """The format of an export."""

    format: Annotated[str, Field(json_schema_extra={"enum": list(_FILES)})] = "openai"


def _list(call: ApiCall) -> Any:
    query = call.query
    page = call.views.conversations(
        status=query.status,
        thread=query.thread_slug,
        user_id=query.user_id,
        tenant_id=query.tenant_id,
        after=query.after,
        limit=query.limit,
    )
    return {"conversations": page.entries, "next": page.cursor}


def _search(call: ApiCall) -> Any:
    query = call.query
    hits = call.views.search(
        query.q, user_id=query.user_id, tenant_id=query.tenant_id, limit=query.limit
    )
    return {"hits": hits}


def _create(call: ApiCall) -> Any:
    body = call.body
    config = {"thread_slug": body.thread_slug, "project_id": body.project_id}
    started = Conversation.start(
        call.store,
        title=body.title,
        mode=body.mode,
        base_instructions=body.base_instructions,
        user_instructions=body.user_instructions,
        metadata=body.metadata,
        config={name: value for name, value in config.items() if value is not None},
        **body.model_dump(include={"user_id", "tenant_id"}, exclude_none=True),
    )
    started.close()
    return _created(call, started.id)


def _created(call: ApiCall, stream: UUID) -> Response:
    where = f"{call.request.scope.get('root_path', '')}/api/conversations/{stream}"
    document = _shown(call.views, stream)
    return Response(json_bytes(document), 201, {"Location": where}, "application/json")


def _shown(views: Views, conversation: UUID | str) -> dict[str, Any]:
    """Return a conversation's entry, and who has it open.

    Raises:
        ConversationNotFound: It does not exist.
    """
    info = views.store.get(conversation)
    stream = info.conversation_id
    [entry] = views.rows(DIRECTORY.name, conversation_id=stream) or [{}]
    facts = ("version", "user_id", "tenant_id", "key", "created_at", "parent_conversation_id")
    return {
        **entry,
        **{name: getattr(info, name) for name in (*facts, "parent_version")},
        "conversation_id": stream,
        "writer": views.store.writer(stream),
    }


def _get(call: ApiCall) -> Any:
    return _shown(call.views, call.named)


def _opened(call: ApiCall) -> AbstractContextManager[Conversation]:
    call.store.get(call.named)
    return Conversation.open(call.store, call.named, if_busy="wait", wait_s=_WAIT_S)


def _change(call: ApiCall) -> Any:
    body = call.body
    if not body.model_fields_set:
        raise RequestProblem(400, "name what to change: title, archived or metadata")
    with _opened(call) as conversation:
        if body.title is not None:
            conversation.rename(body.title)
        if body.metadata is not None:
            conversation.set_metadata(body.metadata)
        if body.archived is not None:
            (conversation.archive if body.archived else conversation.unarchive)()
    return _shown(call.views, call.named)


def _erase(call: ApiCall) -> Any:
    call.store.get(call.named)
    receipt = call.store.erase(call.named, reason=call.query.reason)
    return {**asdict(receipt), "versions": len(receipt.versions)}


def _end(call: ApiCall) -> Any:
    with _opened(call) as conversation:
        conversation.destroy(call.body.message)
    return _shown(call.views, call.named)


def _stop(call: ApiCall) -> Any:
    store = call.store
    store.get(call.named)
    writer = store.writer(call.named)
    if writer is not None:
        # A new writer fences the one that answers, in whatever process that is.
        Conversation.open(store, call.named, if_busy="take_over").close(call.body.reason)
    return {"stopped": writer is not None, "writer": writer}


def _fork(call: ApiCall) -> Any:
    call.store.get(call.named)
    options: dict[str, Any] = {"before": call.body.before}
    if call.body.title is not None:
        options["title"] = call.body.title
    forked = Conversation.fork(call.store, call.named, **options)
    forked.close()
    return _created(call, forked.id)


def _switch(call: ApiCall) -> Any:
    with _opened(call) as conversation:
        conversation.switch_branch(call.body.version)
    return {"branches": call.views.branches(call.named)}


def _timeline(call: ApiCall) -> Any:
    query, version = call.query, call.store.get(call.named).version
    items = call.views.timeline(call.named, after=query.after, at=query.at, limit=query.limit)
    # A page may end before the last change: the next one begins there.
    last = max((item.end_version or 0 for item in items), default=query.after)
    whole = len(items) < query.limit
    at = version if query.at is None else query.at
    return {"items": items, "version": at, "next": None if whole else last}


def _branches(call: ApiCall) -> Any:
    call.store.get(call.named)
    return {"branches": call.views.branches(call.named, at=call.query.at)}


def _context(call: ApiCall) -> Any:
    call.store.get(call.named)
    query = call.query
    if query.of is not None:
        if others := query.model_fields_set - {"of"}:
            raise RequestProblem(
                400,
                "`of` shows a request as it was sent, so it cannot be combined with "
                f"{', '.join(sorted(others))}",
            )
        return call.views.context_of(call.named, query.of).document
    options = query.model_dump(exclude={"of", "mode"})
    mode = None if query.mode == "none" else query.mode
    return call.views.context(call.named, mode=mode, **options).document


def _usage(call: ApiCall) -> Any:
    call.store.get(call.named)
    options = call.query.model_dump()
    return {"totals": call.views.usage(conversation_id=call.named, **options)}


def _all_usage(call: ApiCall) -> Any:
    return {"totals": call.views.usage(**call.query.model_dump())}


def _tool_calls(call: ApiCall) -> Any:
    call.store.get(call.named)
    options = call.query.model_dump()
    return {"tool_calls": call.views.tool_calls(conversation_id=call.named, **options)}


def _all_tool_calls(call: ApiCall) -> Any:
    return {"tool_calls": call.views.tool_calls(**call.query.model_dump())}


def _runs(call: ApiCall) -> Any:
    call.store.get(call.named)
    return call.views.run_state(call.named)


def _events(call: ApiCall) -> Any:
    call.store.get(call.named)
    query, seen = call.query, call.query.after
    events: list[dict[str, Any]] = []
    scanned = islice(call.store.read(call.named, after=query.after), _SCANNED)
    count = 0
    for event in scanned:
        count += 1
        seen = event.version
        if query.type in (None, event.type):
            events.append(event_document(event))
            if len(events) == query.limit:
                break
    more = len(events) == query.limit or count == _SCANNED
    return {"events": events, "next": seen if more else None}


def _verify(call: ApiCall) -> Any:
    call.store.get(call.named)
    found = call.store.verify(call.named)
    return {"ok": found.ok, **asdict(found)}


def _export(call: ApiCall) -> Any:
    store, stream = call.store, call.store.get(call.named).conversation_id
    lines: Iterable[Any]
    match call.query.format:
        case "otlp-json":
            return transcripts.export_otlp(store, stream, content=True)
        case "session-jsonl":
            lines = transcripts.export_session_jsonl(store, stream)
        case "messages-jsonl":
            lines = transcripts.export_messages_jsonl(store, stream)
        case "ui-messages":
            return transcripts.export_ui_messages(store, stream)
        case "messages-json":
            return transcripts.export_messages_json(store, stream)
        case "openai":
            return transcripts.export_openai(store, stream)
        case other:
            raise RequestProblem(
                400, f"{other!r:.80} is not a format: choose {' or '.join(_FILES)}"
            )
    text = b"".join(json_bytes(line) + b"\n" for line in lines)
    return Response(text, media_type="application/x-ndjson")


_ONE = "/api/conversations/{conversation}"

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/conversations",
        name="list_conversations",
        summary="List conversations, most recently active first.",
        handler=_list,
        query=ListQuery,
    ),
    Operation(
        method="POST",
        path="/api/conversations",
        name="create_conversation",
        summary="Begin a conversation.",
        handler=_create,
        body=NewConversation,
        status=201,
    ),
    Operation(
        method="GET",
        path="/api/search",
        name="search",
        summary="Find messages in all conversations, best first.",
        handler=_search,
        query=SearchQuery,
    ),
    Operation(
        method="GET",
        path="/api/usage",
        name="usage",
        summary="Total tokens, cost, latency and errors of model calls.",
        handler=_all_usage,
        query=AllUsageQuery,
    ),
    Operation(
        method="GET",
        path="/api/tool-calls",
        name="tool_calls",
        summary="List tool calls, newest first.",
        handler=_all_tool_calls,
        query=AllToolsQuery,
    ),
    Operation(
        method="GET",
        path=_ONE,
        name="get_conversation",
        summary="Return a conversation's entry in the list, and who has it open.",
        handler=_get,
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        name="change_conversation",
        summary="Rename or archive a conversation, or replace its metadata.",
        handler=_change,
        body=Changes,
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        name="erase_conversation",
        summary="Erase a conversation's content for good; that it existed stays known.",
        handler=_erase,
        query=ErasureQuery,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/end",
        name="end_conversation",
        summary="End a conversation for good; it stays readable.",
        handler=_end,
        body=EndBody,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/stop",
        name="stop_answer",
        summary="Stop the answer that is being written, in whatever process.",
        handler=_stop,
        body=StopBody,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/fork",
        name="fork_conversation",
        summary="Begin a conversation that shares the turns before a version.",
        handler=_fork,
        body=ForkBody,
        status=201,
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/switch",
        name="switch_branch",
        summary="Switch to an alternative, as it was left.",
        handler=_switch,
        body=SwitchBody,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/branches",
        name="branches",
        summary="List where the active branch has alternatives.",
        handler=_branches,
        query=BranchesQuery,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/timeline",
        name="timeline",
        summary="Return what a screen shows of a conversation.",
        handler=_timeline,
        query=TimelineQuery,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/context",
        name="context",
        summary="Return the messages of the next request, or of an earlier one, with the ledger.",
        handler=_context,
        query=ContextQuery,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/usage",
        name="conversation_usage",
        summary="Total a conversation's tokens, cost, latency and errors.",
        handler=_usage,
        query=UsageQuery,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/tool-calls",
        name="conversation_tool_calls",
        summary="List a conversation's tool calls, newest first.",
        handler=_tool_calls,
        query=ToolsQuery,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/runs",
        name="runs",
        summary="Return a conversation's runs, with their nodes and artifacts.",
        handler=_runs,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/events",
        name="events",
        summary="List a conversation's events, as recorded.",
        handler=_events,
        query=EventsQuery,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/verify",
        name="verify",
        summary="Recompute a conversation's hash chain, and compare it.",
        handler=_verify,
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/export",
        name="export",
        summary="Return a conversation in another format.",
        handler=_export,
        query=ExportQuery,
    ),
)
"""The operations, in the order of the OpenAPI document."""
