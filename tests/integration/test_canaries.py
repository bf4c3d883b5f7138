"""Canaries in every place that a conversation has: none is left in any byte after an erasure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import make_url

from agent_eventstore.conversation import Conversation
from eventstore import EventStore, Meta, NewEvent
from eventstore import events as e
from projections import Views
from projections.context.compression.search import Embedding
from projections.context_reading import bring_up
from projections.upkeep import rebuild
from tests.contract.plain import PlainClient
from tests.exhaustive import partly
from tests.integration.recording import ask_for_tool
from tests.projections.support import everything, read_all_views
from tests.projections.test_erasure_postgresql import FILES

SHORT = Embedding("short", lambda texts: [[float(len(text)), 1.0] for text in texts])
CANARIES = [f"canary{number:02}x{number * 7919 % 9973:04}" for number in range(50)]
TURN = Meta(turn=9, actor=CANARIES[0], correlation_id=CANARIES[1], causation_id=CANARIES[2])


def payloads() -> list[NewEvent]:
    """Return events with a canary in each place that has content."""
    left = iter(CANARIES[3:44])

    def word() -> str:
        return f"{next(left)} is here"

    node = e.RunNode(node_id="n1", title=word())
    artifact = e.Artifact(name="report", content={"a": word()})
    requested = e.ToolCallRequest(
        name="find", arguments_text=f'{{"a":"{(asked := word())}"}}', arguments={"a": asked}
    )
    found = [
        e.ConversationStart(
            title=word(),
            base_instructions=word(),
            user_instructions=word(),
            config={"a": word()},
            raw={word(): [word()]},
        ),
        e.SessionStart(config={"a": word()}, raw=word()),
        e.ModeSwitch(mode="agent", reason=word()),
        e.TurnStart(input=word(), raw=word()),
        e.UserMessage.text(word(), name=word(), raw=word()),
        e.UserMessage.text(f"{word()} " * 4_000),
        e.LlmRequest(
            llm_call_id="a",
            policy={"system": [["a", word()]]},
            tools=({"name": word()},),
            parameters={"a": word()},
        ),
        e.AssistantChunk(llm_call_id="a", index=0, text=word(), reasoning=word(), raw=(word(),)),
        e.AssistantMessage.of(word(), llm_call_id="a", tool_calls=(requested,), raw={"a": word()}),
        e.ToolCall(call_id="9.0", name="find", arguments={"a": asked}, provider_id=word()),
        e.ToolResult(call_id="9.0", content=f"{word()} " * 4_000, error=word(), raw=word()),
        e.LlmError(llm_call_id="b", kind="network", message=word(), partial_text=word()),
        e.Summary(text=word(), versions=(e.VersionRange(first=4, last=5),)),
        e.SystemInstruction(text=word()),
        e.Notebook(text=word()),
        e.Retraction(versions=(e.VersionRange(first=90, last=91),), reason=word()),
        e.RunStart(run_id="r1", workflow_id="w", directive=word(), nodes=(node,)),
        e.RunStepStart(run_id="r1", node_id="n1", brief=word()),
        e.RunStepEnd(run_id="r1", node_id="n1", status="completed", artifacts=(artifact,)),
        e.TurnEnd(status="error", error=word()),
    ]
    rest = list(left)
    found.append(e.UserMessage.text(" ".join(rest)))
    return [NewEvent(payload, meta=TURN) for payload in found]


def held(said: Iterable[bytes]) -> set[str]:
    """Return the canaries that stand in these bytes."""
    whole = b"\n".join(said).lower()
    return {canary for canary in CANARIES if canary.encode() in whole}


def bytes_of(store: EventStore, url: str, state: Path) -> list[bytes]:
    """Return every byte of the database, as it lies on disk and as SQL shows it, and of files."""
    files = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    rows = [row.encode() for rows in everything(store).values() for row in rows]
    address = make_url(url)
    if address.get_backend_name() == "sqlite":
        path = Path(str(address.database))
        return [*files, *rows, *(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))]
    with PlainClient(url) as client:
        client.execute("VACUUM ANALYZE")
        shown = client.execute("SELECT s::text FROM pg_stats AS s")
        client.execute("CHECKPOINT")
        pages = client.execute(FILES)
        return [*files, *rows, *(row[0].encode() for row in shown), *(row[1] for row in pages)]


def spread(store: EventStore, state: Path) -> UUID:
    """Record a conversation with all canaries, and have it read and searched in every way."""
    conversation = Conversation.start(store, title=CANARIES[44], state_directory=state)
    with conversation.turn(CANARIES[45]) as turn, turn.tool(ask_for_tool(turn)) as tool:
        tool.result(f"{CANARIES[46]} " * 5_000)
    conversation.close(CANARIES[47])
    store.append(conversation.id, payloads())
    store.append(conversation.id, [e.UserMessage.text(" ".join(CANARIES[48:]))])
    views = Views(store)
    read_all_views(views, conversation.id)
    bring_up(store, conversation.id, SHORT)
    rebuild(store)
    read_all_views(views, conversation.id)
    return conversation.id


def test_a_conversation(database_url: str, tmp_path: Path) -> None:
    """All fifty are in the log, its views, index and files; then none is, anywhere."""
    with EventStore.open(database_url) as store:
        cid = spread(store, state := tmp_path / "state")
        assert set(CANARIES) == held(bytes_of(store, database_url, state))

        store.erase(cid, reason="asked for", vacuum=True)

        assert set() == held(bytes_of(store, database_url, state))
        read_all_views(Views(store), cid)
        bring_up(store, cid, SHORT)
        rebuild(store)
        assert set() == held(bytes_of(store, database_url, state))
        assert store.verify().ok


@pytest.mark.parametrize("place", partly([45, 46]))
def test_one_message(database_url: str, tmp_path: Path, place: int) -> None:
    """What one message said is gone with its copies; what others said is not."""
    with EventStore.open(database_url) as store:
        cid = spread(store, state := tmp_path / "state")
        kind = "user_message" if place == 45 else "tool_result"
        first = next(event for event in store.read(cid) if event.type == kind)

        store.erase(cid, reason="asked for", versions=[first.version], vacuum=True)

        read_all_views(Views(store), cid)
        bring_up(store, cid, SHORT)
        left = held(bytes_of(store, database_url, state))
        assert CANARIES[place] not in left
        assert set(CANARIES[48:]) <= left
        assert store.verify().ok
