"""What recovery promises: whatever the history and wherever it breaks off, all is well afterwards.

Histories come in any order, and from real transcripts, told as a recorder would have told them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.machines.seals import seal
from eventstore.events import (
    AssistantChunk,
    AssistantMessage,
    LlmRequest,
    Meta,
    NewEvent,
    Payload,
    RecordedEvent,
    SystemInstruction,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from projections.context import ContextView
from projections.models.open_items import OpenWork
from projections.models.open_work import OPEN_WORK
from tests.checkers import check_openai_messages
from tests.exhaustive import partly
from tests.properties.histories import histories
from tests.properties.test_context import as_events, told_by_prefixes
from tests.unit.context.log import Log
from tests.unit.projections.history import CONVERSATION, fold, record

_BLANK = {column.name: None for column in OPEN_WORK.tables[0].columns}


class Conversation:
    """Events, with the open work and the messages[] view that follow them."""

    def __init__(self, entries: Iterable[NewEvent] = ()) -> None:
        self.log = Log()
        self.state = OPEN_WORK.initial()
        self.row: dict[str, Any] = dict(_BLANK)
        for entry in entries:
            self.add(entry)

    def add(self, entry: NewEvent) -> None:
        """Append an event and fold it."""
        self.fold(record(self.log.version + 1, (entry.data, entry.meta)))

    def fold(self, event: RecordedEvent) -> None:
        """Fold an event that was recorded."""
        self.log.add(None if event.data is None else NewEvent(event.data, meta=event.meta))
        self.state, changes = OPEN_WORK.fold(self.state, event)
        for change in changes:
            self.row.update(change.values)

    def ends(self) -> OpenWork:
        """Return what is open."""
        return OpenWork.from_row({**self.row, "conversation_id": CONVERSATION})

    def crashed(self) -> Conversation:
        """Return a copy, to be recovered while this one goes on."""
        other = Conversation()
        other.log.state, other.log.version = self.log.state, self.log.version
        other.log.table = {key: dict(row) for key, row in self.log.table.items()}
        other.state, other.row = self.state, dict(self.row)
        return other

    def recover(self) -> tuple[NewEvent, ...]:
        """Append what seals the open work; check that none is left, and nothing is sealed twice.

        Between any two of the sealing events the messages[] view is valid.
        """
        sealed = seal(self.ends())
        for entry in sealed:
            self.add(entry)
            self.view()
        assert not self.ends().any
        assert () == seal(self.ends())
        return sealed

    def view(self) -> ContextView:
        """Return the messages[] view, which a provider would accept."""
        view = self.log.view()
        assert [] == check_openai_messages(view.messages)
        return view


@given(events=histories())
def test_recovery_leaves_no_open_work(events: list[RecordedEvent]) -> None:
    """In a history of any order, broken off at any event, all is sealed, once, and valid."""
    conversation = Conversation()
    for event in events:
        conversation.fold(event)
        conversation.crashed().recover()


@given(events=histories(), data=st.data())
def test_what_goes_on_after_a_recovery_can_crash_again(
    events: list[RecordedEvent], data: st.DataObject
) -> None:
    """Late facts of the dead process, calls made again, another crash: still all is sealed."""
    conversation = Conversation()
    for event in events[: data.draw(st.integers(0, len(events)))]:
        conversation.fold(event)
    if conversation.log.version:
        conversation.recover()
    for event in events:
        if event.data is not None:
            conversation.add(NewEvent(event.data, meta=event.meta))
    if conversation.log.version:
        conversation.recover()


@given(events=histories())
def test_sealed_events_can_be_stored(events: list[RecordedEvent]) -> None:
    """Whatever had been streamed, the open work is JSON, and each piece is sealed by itself."""
    state, _ = fold(OPEN_WORK, events)
    conversation = Conversation()
    for event in events:
        conversation.fold(event)
    row = json.loads(json.dumps({**conversation.row, "last_event_at": None}))
    if events:
        again = OpenWork.from_row(
            {
                **row,
                "last_event_at": conversation.row["last_event_at"],
                "conversation_id": CONVERSATION,
            }
        )
        assert seal(conversation.ends()) == seal(again)
    assert json.loads(json.dumps(state)) == state


@given(events=histories(), data=st.data())
def test_folding_in_two_pieces_gives_the_same(
    events: list[RecordedEvent], data: st.DataObject
) -> None:
    """Where a catch-up stops, with its state stored as JSON, makes no difference."""
    cut = data.draw(st.integers(0, len(events)))
    state, whole = fold(OPEN_WORK, events)
    middle, first = fold(OPEN_WORK, events[:cut])
    before = copy.deepcopy(middle)
    end, second = fold(OPEN_WORK, events[cut:], middle)
    assert before == middle
    end_of_stored, _ = fold(OPEN_WORK, events[cut:], json.loads(json.dumps(middle)))
    assert (state, whole) == (end, first + second)
    assert state == end_of_stored


def as_recorded(messages: list[dict[str, Any]]) -> list[NewEvent]:
    """Return a transcript as a recorder writes it: turns, streamed model calls, executed tools."""
    events: list[NewEvent] = []
    versions: dict[str, str] = {}
    turn, step, open_turn = 0, 0, False

    def write(payload: Payload) -> None:
        meta = Meta(turn=turn, step=step) if turn else Meta()
        events.append(NewEvent(payload, meta=meta))

    told = as_events(messages)
    for place, payload in enumerate(told, start=1):
        if isinstance(payload, SystemInstruction):
            write(payload)
            continue
        if isinstance(payload, AssistantMessage):
            _stream(payload.model_copy(update={"llm_call_id": f"call-{place}"}), write)
            own = len(events)
            versions |= {
                f"{place}.{index}": f"{own}.{index}" for index in range(len(payload.tool_calls))
            }
            step += 1
            continue
        if isinstance(payload, ToolResult):
            own_id = versions[payload.call_id]
            write(ToolCall(call_id=own_id, name="tool", idempotency_key=own_id))
            write(payload.model_copy(update={"call_id": own_id}))
            continue
        if open_turn:
            write(TurnEnd(status="ok"))
        turn, step, open_turn = turn + 1, 0, True
        write(TurnStart())
        write(payload)
    return events


def _stream(message: AssistantMessage, write: Any) -> None:
    call = str(message.llm_call_id)
    write(LlmRequest(llm_call_id=call))
    text = "".join(part.text for part in message.parts if part.kind == "text" and part.text)
    for index, start in enumerate(range(0, len(text), 200)):
        write(AssistantChunk(llm_call_id=call, index=index, text=text[start : start + 200]))
    write(message)


@pytest.mark.parametrize("share", partly(range(5)))
def test_every_prefix_of_real_transcripts_taken_as_a_crash(share: int) -> None:
    """As they were imported: only calls can be open, and each is sealed as never started."""
    for messages in told_by_prefixes()[share::5]:
        conversation = Conversation()
        waiting = 0
        for payload in as_events(messages):
            conversation.add(NewEvent(payload))
            waiting += len(payload.tool_calls) if isinstance(payload, AssistantMessage) else 0
            waiting -= isinstance(payload, ToolResult)
            sealed = conversation.crashed().recover() if waiting else seal(conversation.ends())
            results = [each.data for each in sealed if isinstance(each.data, ToolResult)]
            assert ["not_started"] * waiting == [each.status for each in results]
            assert len(sealed) == len(results)


@pytest.mark.parametrize("share", partly(range(5)))
def test_every_prefix_of_real_transcripts_as_they_were_recorded(share: int) -> None:
    """Streamed and executed: the text that had arrived comes back, and each call has a result."""
    for messages in told_by_prefixes()[share::5]:
        conversation = Conversation()
        streamed = ""
        for entry in as_recorded(messages):
            conversation.add(entry)
            if isinstance(entry.data, LlmRequest):
                streamed = ""
            if isinstance(entry.data, AssistantChunk):
                streamed += entry.data.text
            open_call = isinstance(entry.data, LlmRequest | AssistantChunk)
            crashed = conversation.crashed()
            sealed = crashed.recover()
            assert open_call == any(each.data.type == "llm_error" for each in sealed)
            if open_call:
                last = str(crashed.view().messages[-1]["content"])
                assert last.startswith(f"{streamed}\n\nLLM_ERROR" if streamed else "LLM_ERROR")
