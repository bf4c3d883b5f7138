"""Recovery on both databases: one transaction, once, and fenced against who was thought dead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Unpack
from uuid import UUID

import pytest

from agent_eventstore.conversation import Conversation
from agent_eventstore.recovery import recover, recover_all
from eventstore import EventStore, NewEvent, new_id
from eventstore import events as e
from eventstore.errors import WriterFenced, WrongExpectedVersion
from eventstore.ids import StreamId
from eventstore.owners import Owned
from projections import Views
from projections.errors import ProjectionFailed
from projections.models.open_items import OpenWork
from projections.upkeep import rebuild
from tests.checkers import check_openai_messages
from tests.feed_wait import wait_for_feed
from tests.projections.support import statements
from tests.properties.test_context import transcripts
from tests.properties.test_recovery import as_recorded
from tests.raw_events import insert_raw_event

REQUESTS = tuple(
    e.ToolCallRequest(name=name, arguments_text="{}", arguments={}, provider_id="call_1")
    for name in ("search", "write", "write")
)
CRASHED: tuple[e.Payload, ...] = (
    e.SessionStart(),
    e.TurnStart(),
    e.UserMessage.text("write it down"),
    e.LlmRequest(llm_call_id="a"),
    e.AssistantMessage.of(None, llm_call_id="a", tool_calls=REQUESTS),
    e.ToolCall(call_id="5.0", name="search"),
    e.ToolResult(call_id="5.0", content="found"),
    e.ToolCall(call_id="5.1", name="write", idempotency_key="k", idempotent=True),
    e.LlmRequest(llm_call_id="b"),
    e.AssistantChunk(llm_call_id="b", index=0, text="I have wri"),
)
"""A turn that ends with a tool running, another not begun, and an answer cut off."""

ENDING: tuple[e.Payload, ...] = (
    e.ToolResult(call_id="5.1", content="written"),
    e.ToolResult(call_id="5.2", status="skipped"),
    e.AssistantMessage.of("I have written it.", llm_call_id="b"),
    e.TurnEnd(status="ok"),
    e.SessionEnd(),
)
"""How that turn would have ended."""


@pytest.fixture
def store(common: EventStore) -> EventStore:
    """Give a store that is shared, since most tests concern one conversation."""
    return common


@pytest.fixture
def views(store: EventStore) -> Views:
    """Give the views of the store."""
    return Views(store)


@pytest.fixture
def crashed(store: EventStore) -> UUID:
    """Give a conversation whose process has died."""
    return crash(store)


def crash(store: EventStore) -> UUID:
    """Return a conversation whose process has died."""
    cid = new_id()
    store.append(cid, CRASHED, meta=e.Meta(session_id="s", turn=1))
    return cid


def types(store: EventStore, cid: UUID, after: int = 0) -> list[str]:
    """Return the types of a conversation's events."""
    return [event.type for event in store.read(cid, after=after)]


NOTE = (e.Notebook(text="meanwhile"),)


class Interfering(Views):
    """Views whose readers are overtaken: something is appended right after each look."""

    def __init__(
        self, store: EventStore, meanwhile: Sequence[e.Payload] = NOTE, *, looks: int
    ) -> None:
        super().__init__(store)
        self.meanwhile = meanwhile
        self.looks = looks

    def open_work(self, conversation_id: StreamId, **owner: Unpack[Owned]) -> OpenWork:
        """Look, and lose the race."""
        found = super().open_work(conversation_id, **owner)
        if self.looks:
            self.looks -= 1
            self.store.append(conversation_id, self.meanwhile)
        return found


class Purging(Views):
    """Views whose first conversation with open work is purged right after they are listed."""

    def conversations_with_open_work(
        self, limit: int = 100, *, after: UUID | None = None, **owner: Unpack[Owned]
    ) -> list[UUID]:
        """List, and lose the first."""
        found = super().conversations_with_open_work(limit, after=after, **owner)
        if found:
            self.store.purge(found[0], reason="asked to")
        return found


class TestRecover:
    """What one recovery of one conversation does."""

    def test_everything_is_sealed(self, store: EventStore, views: Views, crashed: UUID) -> None:
        """In one append, from the innermost to the outermost, and nothing is left open."""
        done = recover(store, views, crashed)
        assert (10, 15) == (done.version_before, done.version_after)
        assert [
            "llm_error",
            "tool_result",
            "tool_result",
            "turn_end",
            "session_end",
        ] == types(store, crashed, after=10)
        assert list(done.sealed) == [
            NewEvent(event.data, event.event_id, event.meta)
            for event in store.read(crashed, after=10)
            if event.data is not None
        ]
        assert (False, True) == (views.open_work(crashed).any, store.verify(crashed).ok)

    def test_a_second_recovery_finds_nothing(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """Nothing is sealed twice, and nobody is fenced for nothing."""
        recover(store, views, crashed)
        epoch = store.get(crashed).writer_epoch
        again = recover(store, views, crashed)
        assert ((), ()) == (again.sealed, again.re_executable)
        assert (15, 15) == (again.version_before, again.version_after)
        assert (15, epoch) == (store.get(crashed).version, store.get(crashed).writer_epoch)

    def test_the_model_is_told_the_truth(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """The next request holds the partial text, the error block and the sealed results."""
        recover(store, views, crashed)
        messages = views.context(crashed).messages
        said = [str(message["content"]) for message in messages]
        assert [] == check_openai_messages(messages)
        assert "found" == said[2]
        assert "may or may not have taken effect" in said[3]
        assert "safe to make it again" in said[4]
        assert said[5].startswith("I have wri\n\nLLM_ERROR\n- kind: interrupted")

    def test_views_tell_how_it_ended(self, store: EventStore, views: Views, crashed: UUID) -> None:
        """In the audit of tools and in the timeline nothing is left running."""
        recover(store, views, crashed)
        calls = {each.call_id: each.status for each in views.tool_calls(conversation_id=crashed)}
        assert {"5.0": "success", "5.1": "outcome_unknown", "5.2": "not_started"} == calls
        open_statuses = {"streaming", "running", "pending"}
        assert not open_statuses & {str(item.status) for item in views.timeline(crashed)}

    def test_idempotent_calls_may_be_executed_again(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """Under the same key; a real result then takes the place of the sealed one."""
        [call] = recover(store, views, crashed).re_executable
        assert ("5.1", "write", "k") == (call.call_id, call.name, call.idempotency_key)
        store.append(
            crashed,
            [
                e.ToolCall(call_id="5.1", name="write", idempotency_key="k", idempotent=True),
                e.ToolResult(call_id="5.1", content="written"),
            ],
        )
        assert "written" == views.context(crashed).messages[3]["content"]
        assert not recover(store, views, crashed).sealed

    def test_a_crash_during_the_second_execution(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """It is found and offered again, like the first."""
        recover(store, views, crashed)
        again = e.ToolCall(call_id="5.1", name="write", idempotency_key="k", idempotent=True)
        store.append(crashed, [again])
        done = recover(store, views, crashed)
        assert (["tool_result"], ["5.1"]) == (
            types(store, crashed, after=16),
            [call.call_id for call in done.re_executable],
        )

    def test_a_dry_run_changes_nothing(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """It tells what would be appended, and fences nobody."""
        before = store.get(crashed)
        planned = recover(store, views, crashed, dry_run=True)
        assert (before, 10) == (store.get(crashed), planned.version_after)
        assert planned.sealed == recover(store, views, crashed).sealed


class TestRaces:
    """Against the process that was thought dead, other writers, and other recoveries."""

    def test_the_old_process_is_fenced(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """Nothing of it lands after the recovery."""
        epoch = store.get(crashed).writer_epoch
        done = recover(store, views, crashed)
        with pytest.raises(WriterFenced):
            store.append(crashed, [e.UserMessage.text("late")], writer_epoch=epoch)
        assert done.version_after == store.get(crashed).version

    def test_a_caller_that_has_fenced_already(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """Its own epoch stays good."""
        epoch = store.raise_writer_epoch(crashed)
        recover(store, views, crashed, writer_epoch=epoch)
        store.append(crashed, [e.UserMessage.text("continue")], writer_epoch=epoch)
        assert epoch == store.get(crashed).writer_epoch

    def test_a_caller_that_was_fenced_itself(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """A newer writer has the conversation; nothing is appended."""
        epoch = store.raise_writer_epoch(crashed)
        store.raise_writer_epoch(crashed)
        with pytest.raises(WriterFenced):
            recover(store, views, crashed, writer_epoch=epoch)
        assert 10 == store.get(crashed).version

    def test_what_came_between_is_taken_into_account(
        self, store: EventStore, crashed: UUID
    ) -> None:
        """After a conflict recovery looks again, and seals at the new version."""
        done = recover(store, Interfering(store, looks=3), crashed)
        assert (13, 18) == (done.version_before, done.version_after)
        assert 1 == types(store, crashed).count("turn_end")

    def test_endless_conflicts_are_told(self, store: EventStore, crashed: UUID) -> None:
        """Nothing is sealed on a guess."""
        with pytest.raises(WrongExpectedVersion):
            recover(store, Interfering(store, looks=99), crashed)
        assert "turn_end" not in types(store, crashed)

    def test_a_turn_that_ends_just_before_the_fence(self, store: EventStore, crashed: UUID) -> None:
        """What the living process closed itself is not sealed."""
        done = recover(store, Interfering(store, ENDING, looks=1), crashed)
        assert ((), len(CRASHED) + len(ENDING)) == (done.sealed, done.version_after)

    def test_two_recoveries_of_the_same_open_work(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """Having looked at the same version, both append the same events, once."""
        planned = recover(store, views, crashed, dry_run=True).sealed
        recover(store, views, crashed)
        assert 15 == store.append(crashed, planned, expected_version=10).version
        assert 15 == store.get(crashed).version


class TestRecoverAll:
    """Every conversation that was left open, and no other."""

    def test_only_those_with_open_work(self, alone: EventStore) -> None:
        """Whole conversations and idle sessions stay as they are."""
        crashed, ended, idle = crash(alone), new_id(), new_id()
        alone.append(ended, [*CRASHED, *ENDING])
        alone.append(idle, [e.SessionStart()])
        seen: list[tuple[int, int]] = []
        views = Views(wait_for_feed(alone))
        done = recover_all(alone, views, lambda *progress: seen.append(progress)).recovered
        assert [crashed] == [each.conversation_id for each in done]
        assert ([(1, 1)], 15, 1) == (seen, alone.get(ended).version, alone.get(idle).version)
        assert () == recover_all(wait_for_feed(alone), views).recovered

    def test_a_dry_run_of_all(self, alone: EventStore) -> None:
        """It names them, and changes nothing."""
        crashed = crash(alone)
        done = recover_all(wait_for_feed(alone), Views(alone), dry_run=True).recovered
        assert [crashed] == [each.conversation_id for each in done]
        assert 10 == alone.get(crashed).version

    @pytest.mark.parametrize("folded", [False, True])
    def test_a_damaged_conversation_does_not_keep_the_others_open(
        self, alone: EventStore, folded: bool
    ) -> None:
        """It is returned with its error, whether its open work was read before the damage or not.

        Before, its error left `recover_all`, and conversations of higher ids stayed open.
        """
        views = Views(wait_for_feed(alone))
        first, damaged, last = sorted(crash(alone) for _ in range(3))
        if folded:
            views.conversations_with_open_work()
        insert_raw_event(alone, damaged, "user_message", "{}", meta="[1]")

        done = recover_all(wait_for_feed(alone), views)

        assert [first, last] == [each.conversation_id for each in done.recovered]
        assert ([damaged], ()) == (list(done.failed), done.in_use)
        assert isinstance(done.failed[damaged], ProjectionFailed)
        again = recover_all(wait_for_feed(alone), views)
        assert ((), [damaged]) == (again.recovered, list(again.failed))

    def test_a_conversation_that_is_purged_meanwhile(self, alone: EventStore) -> None:
        """It has no open work any more; the others are recovered."""
        last = max(crash(alone) for _ in range(2))
        views = Purging(wait_for_feed(alone))

        done = recover_all(alone, views)

        assert ([last], (), {}) == (
            [each.conversation_id for each in done.recovered],
            done.in_use,
            done.failed,
        )
        assert [last] == [info.conversation_id for info in alone.list()]

    def test_conversations_with_open_work_come_in_pages(self, alone: EventStore) -> None:
        """In order of id, each once."""
        ids = sorted(new_id() for _ in range(5))
        for cid in ids:
            alone.append(cid, [e.TurnStart()])
        views = Views(wait_for_feed(alone))
        first = views.conversations_with_open_work(3)
        rest = views.conversations_with_open_work(3, after=first[-1])
        assert (ids[:3], ids[3:]) == (first, rest)


class TestWhatIsTooLarge:
    """A conversation can be opened again, whatever its dead process had received."""

    def test_a_partial_answer_larger_than_an_event(self, recorded_url: str) -> None:
        """Its start is kept, and says so; before, recovery and opening raised for ever."""
        with EventStore.open(recorded_url, max_event_bytes=65_536) as store:
            cid, text = new_id(), "y" * 20_000
            chunks = [e.AssistantChunk(llm_call_id="a", index=n, text=text) for n in range(6)]
            deltas = (e.ToolCallDelta(index=0, name="search", arguments=text),)
            last = e.AssistantChunk(llm_call_id="a", index=6, reasoning=text, tool_calls=deltas)
            store.append(cid, [e.TurnStart(), *chunks, last])

            with Conversation.open(store, cid) as conversation:
                assert conversation.recovery is not None
                sealed = conversation.recovery.sealed[0].data

            [error] = [event.data for event in store.read(cid) if event.type == "llm_error"]
        assert isinstance(error, e.LlmError)
        assert error == sealed
        assert error.partial_text.startswith("y" * 20_000)
        assert error.partial_text.endswith(" characters more, not kept")
        assert ("search", True) == (
            error.partial_tool_calls[0].name,
            text.startswith(error.partial_tool_calls[0].arguments_text),
        )

    def test_a_redactor_that_fails(self, recorded_url: str) -> None:
        """Its text is replaced, as when the recorder records a fact; before, recovery raised."""

        def fail(path: Sequence[str | int], value: str) -> str:
            raise RuntimeError("no rules")

        cid = new_id()
        with EventStore.open(recorded_url) as store:
            chunk = e.AssistantChunk(llm_call_id="a", index=0, text="hidden words")
            store.append(cid, [e.TurnStart(), chunk])
        with EventStore.open(recorded_url, redact=fail) as store:
            done = recover(store, Views(store), cid)
            [error] = [event.data for event in store.read(cid) if event.type == "llm_error"]
        assert ["llm_error", "turn_end"] == [event.data.type for event in done.sealed]
        assert isinstance(error, e.LlmError)
        assert "hidden words" not in error.partial_text != ""


class TestFold:
    """The stored row says what the events say."""

    def test_a_rebuild_finds_the_same(self, alone: EventStore) -> None:
        """Open work folded event by event equals what is folded at once."""
        views, cid = Views(alone), new_id()
        for payload in CRASHED:
            alone.append(cid, [payload])
            found = views.open_work(cid)
        rebuild(wait_for_feed(alone), ["open_work"])
        assert found == views.open_work(cid)

    def test_an_erased_conversation_is_recovered_without_words(
        self, store: EventStore, views: Views, crashed: UUID
    ) -> None:
        """Of its texts nothing comes back; its turn and its session are ended."""
        views.open_work(crashed)
        store.erase(crashed, reason="asked to")
        done = recover(store, views, crashed)
        assert ["turn_end", "session_end"] == [event.data.type for event in done.sealed]

    def test_a_read_only_store_tells_what_would_be_done(
        self, store: EventStore, views: Views, crashed: UUID, recorded_url: str
    ) -> None:
        """A dry run on a replica folds in memory."""
        with EventStore.open(recorded_url, read_only=True) as replica:
            planned = recover(replica, Views(replica), crashed, dry_run=True)
        assert planned.sealed == recover(store, views, crashed).sealed

    def test_text_that_databases_dislike(self, store: EventStore, views: Views) -> None:
        """NULs and half surrogate pairs in what had streamed come through."""
        cid, text = new_id(), "a\x00b \ud83d"
        store.append(cid, [e.AssistantChunk(llm_call_id="a", index=0, text=text)])
        recover(store, views, cid)
        [error] = [event.data for event in store.read(cid, after=1)]
        assert isinstance(error, e.LlmError)
        assert text == error.partial_text


def prefixes(messages: list[dict[str, Any]], count: int) -> Iterator[list[NewEvent]]:
    """Yield beginnings of a transcript, evenly spread, the last of them whole."""
    events = as_recorded(messages)
    for number in range(1, count + 1):
        yield events[: len(events) * number // count]


@pytest.mark.parametrize("number", [2, 50, 98])
def test_prefixes_of_real_transcripts(alone: EventStore, number: int) -> None:
    """Taken as crashes, all are recovered at once, valid, and nothing is sealed twice."""
    views, ids = Views(alone), {}
    for events in prefixes(transcripts()[number], 8):
        ids[cid := new_id()] = len(events)
        alone.append(cid, events)
    for done in recover_all(wait_for_feed(alone), views).recovered:
        assert ids[done.conversation_id] == done.version_before
        assert done.version_after == alone.get(done.conversation_id).version
    assert () == recover_all(wait_for_feed(alone), views).recovered
    for cid in ids:
        assert [] == check_openai_messages(views.context(cid).messages)
        assert not views.open_work(cid).any


def test_opening_reads_each_event_once(store: EventStore, crashed: UUID) -> None:
    """Each view that opening reads once folded the events by itself, in transactions of its own."""
    Conversation.open(store, crash(store)).close()  # makes the tables, if nobody has yet
    with statements(store) as seen:
        conversation = Conversation.open(store, crashed)
    conversation.close()
    reads = [each for each in seen if each.startswith("SELECT position, conversation_id")]
    assert 2 == len(reads), "those that were there, and those that recovery has appended"
