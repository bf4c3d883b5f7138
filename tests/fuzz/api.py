"""Operations of the Python API, each with values that a mutator draws.

Types are those that the signatures ask for: what is hostile is what the values say.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from agent_eventstore import Conversation, transcripts
from eventstore import ANY, NO_STREAM, Meta, NewEvent, new_id
from eventstore.events import Payload
from eventstore.events.codec import decode
from tests.fuzz.mutation import Mutator
from tests.fuzz.world import World, golden, streams

__all__ = ["OPERATIONS"]


def _cid(world: World, mutator: Mutator) -> UUID:
    return mutator.one_of(world.ids) if mutator.chance(0.9) else new_id()


def _optional(mutator: Mutator, value: Any) -> Any:
    return value if mutator.chance(0.4) else None


def _payload(mutator: Mutator) -> Any:
    """Return a payload of any type, changed wherever its class lets that through."""
    name, version, value = mutator.one_of(golden())
    text = json.dumps(mutator.changed(value) if mutator.chance(0.8) else value)
    try:
        return decode(name, version, text)
    except (ValidationError, ValueError, RecursionError):
        return decode(name, version, json.dumps(value))


def _meta(mutator: Mutator) -> Meta:
    values = {"turn": mutator.number(), "step": mutator.number(), "actor": mutator.text()}
    try:
        return Meta.model_validate(
            {name: _optional(mutator, each) for name, each in values.items()}
        )
    except ValidationError:
        return Meta()


def append(world: World, mutator: Mutator) -> None:
    """Append payloads of any kind, in any order, for anybody."""
    payloads = [_payload(mutator) for _ in range(mutator.random.randint(0, 4))]
    expected: Any = mutator.one_of((ANY, ANY, NO_STREAM, mutator.number()))
    world.store.append(
        _cid(world, mutator),
        [NewEvent(each, meta=_meta(mutator)) for each in payloads],
        expected_version=expected,
        tenant_id=_optional(mutator, mutator.text()),
        user_id=_optional(mutator, mutator.text()),
        parent=_optional(mutator, (_cid(world, mutator), mutator.number())),
        writer_epoch=_optional(mutator, mutator.number()),
    )


def read(world: World, mutator: Mutator) -> None:
    """Read a stretch of a stream, either way."""
    list(
        world.store.read(
            _cid(world, mutator),
            after=mutator.number(),
            before=_optional(mutator, mutator.number()),
            backward=mutator.chance(0.5),
            limit=_optional(mutator, mutator.number()),
        )
    )


def feed(world: World, mutator: Mutator) -> None:
    """Follow the feed from a cursor that was damaged."""
    cursor = world.store.read_all(limit=mutator.random.randint(1, 5)).cursor
    damaged = mutator.changed_bytes(cursor.encode()).decode("utf-8", "replace")
    world.store.read_all(after=mutator.one_of((cursor, damaged, mutator.text())), limit=5)


def look_up(world: World, mutator: Mutator) -> None:
    """Ask for conversations, owners and blobs."""
    store = world.store
    store.get(_cid(world, mutator) if mutator.chance(0.5) else mutator.text())
    store.list(tenant_id=mutator.text(), user_id=_optional(mutator, mutator.text()))
    store.blob(_cid(world, mutator), mutator.text())


def checkpoint(world: World, mutator: Mutator) -> None:
    """Verify against a checkpoint, most of them damaged."""
    world.store.checkpoint(file := io.BytesIO())
    content = file.getvalue()
    damaged = mutator.changed_bytes(content) if mutator.chance(0.8) else content
    path = world.write("checkpoint", damaged)
    cid = _cid(world, mutator)
    found = world.store.verify_against(path, conversation_id=cid).problems
    if any(each.kind != "blob_missing" for each in found):
        raise AssertionError(f"a checkpoint of now finds something: {found[:3]}")


def erase(world: World, mutator: Mutator) -> None:
    """Erase some versions, there or not."""
    versions = [mutator.number() for _ in range(mutator.random.randint(0, 3))]
    world.store.erase(
        _cid(world, mutator),
        reason=mutator.text(),
        versions=versions or None,
        requested_by=_optional(mutator, mutator.text()),
    )


def timeline(world: World, mutator: Mutator) -> None:
    """Read what a user interface shows."""
    world.views.timeline(
        _cid(world, mutator),
        after=mutator.number(),
        limit=_optional(mutator, mutator.number()),
        at=_optional(mutator, mutator.number()),
    )


def context(world: World, mutator: Mutator) -> None:
    """Build a request's messages."""
    world.views.context(
        _cid(world, mutator),
        model=mutator.one_of(("gpt-4o", "claude-3", mutator.text())),
        max_tokens=_optional(mutator, mutator.random.randint(-5, 9_000)),
        max_messages=_optional(mutator, mutator.number()),
        agent=_optional(mutator, mutator.text()),
        format=mutator.one_of(("openai_chat", "openai_chat", "anthropic", mutator.text())),
        at=_optional(mutator, mutator.number()),
    )


def rows(world: World, mutator: Mutator) -> None:
    """Ask every other view."""
    views, cid = world.views, _cid(world, mutator)
    by: Any = mutator.one_of(("model", "day", "session", mutator.text()))
    match mutator.random.randrange(6):
        case 0:
            views.usage(by=by, conversation_id=_optional(mutator, cid), user_id=mutator.text())
        case 1:
            views.tool_calls(tool=mutator.text(), status=mutator.text(), limit=mutator.number())
        case 2:
            views.run_state(cid, at=_optional(mutator, mutator.number()))
        case 3:
            views.open_work(cid)
        case 4:
            views.conversations(tenant_id=mutator.text(), limit=mutator.number())
        case _:
            views.calibration(mutator.text(), conversation_id=cid)


def export(world: World, mutator: Mutator) -> None:
    """Write a conversation in another format."""
    write: Callable[..., Any] = mutator.one_of(
        (
            transcripts.export_openai,
            transcripts.export_messages_json,
            lambda store, cid: list(transcripts.export_messages_jsonl(store, cid)),
            lambda store, cid: list(transcripts.export_session_jsonl(store, cid)),
        )
    )
    write(world.store, _cid(world, mutator))


def record(world: World, mutator: Mutator) -> None:
    """Hold a turn in which the model's stream is damaged."""
    with Conversation.start(world.store, title=mutator.text(), user_id=mutator.text()) as held:
        with held.turn(mutator.text()) as turn:
            with turn.llm_call(model=mutator.text()) as call:
                for chunk in mutator.one_of(streams()):
                    call.feed(mutator.changed(chunk) if mutator.chance(0.1) else chunk)
            for asked in call.tool_calls[:3]:
                with turn.tool(asked) as tool:
                    tool.result(mutator.value())


def reopen(world: World, mutator: Mutator) -> None:
    """Open a conversation again, which recovers what is left of it, and say something."""
    with Conversation.open(world.store, _cid(world, mutator), if_busy="take_over") as held:
        with held.turn(mutator.text()):
            pass
        held.append(*(each for each in [_payload(mutator)] if isinstance(each, Payload)))


OPERATIONS: tuple[Callable[[World, Mutator], None], ...] = (
    *(append, append, append, read, feed, look_up, checkpoint, erase),
    *(timeline, timeline, context, context, rows, rows, export, record, reopen),
)
