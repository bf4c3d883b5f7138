"""One conversation, several tabs: who has it open, and what a writer that died has left."""

from __future__ import annotations

import gc
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from agent_eventstore import Conversation, recover, recover_all
from eventstore import EventStore, new_id
from eventstore.errors import ConversationInUse, WriterFenced
from eventstore.events import AssistantChunk, LlmRequest
from eventstore.leases import KEEPER
from projections import Views
from tests.integration.recording import Recorder, ask
from tests.warm import Programs

CHUNK = AssistantChunk(llm_call_id="a", index=0, text="Once")
WRITER = """
import signal, sys
from agent_eventstore import Conversation, EventStore
store = EventStore.open(sys.argv[1])
conversation = Conversation.open(store, sys.argv[2])
turn = conversation.turn("Tell me").__enter__()
call = turn.llm_call(provider="openai", prompt=[{"role": "user", "content": "Tell me"}]).__enter__()
call.delta("Once upon a time")
print("writing", flush=True)
signal.pause()
"""


def left(store: EventStore, cid: UUID) -> None:
    """Let a conversation's lease be of a process that gave no sign of life for long.

    Nor gives one from now on: the round of this process's thread may be due at any time.
    """
    found = store.writer(cid)
    assert found is not None
    with KEEPER._renewal, KEEPER._changed:
        KEEPER._sessions.pop(found.session_id)
    run_out(store, cid)


def run_out(store: EventStore, cid: UUID) -> None:
    """Let a conversation's lease be one that has run out."""
    with store.transaction() as connection:
        connection.execute(
            text("UPDATE writer_leases SET expires_at = since WHERE session_id = :session"),
            {"session": store.writer(cid).session_id},  # type: ignore[union-attr]
        )


def statuses(store: EventStore, cid: UUID, kind: str) -> list[str | None]:
    """Return the statuses of a conversation's items of a kind."""
    return [item.status for item in Views(store).timeline(cid) if item.kind == kind]


class TestTwoSessions:
    """One has a conversation open, and another one wants it."""

    def test_second_opening_is_refused(self, recording: Recorder) -> None:
        """It is told who has it, and since when; nothing of the first is touched."""
        with recording.start() as first:
            with first.turn("Hi") as turn:
                with pytest.raises(ConversationInUse, match="in use by this process") as caught:
                    recording.open(first.id)
                ask(turn)

        writer = caught.value
        assert first.id == writer.conversation_id
        # The lease may have been renewed, as each is when another session was dropped.
        assert timedelta(seconds=30) <= writer.until - writer.since < timedelta(seconds=60)
        assert ["ok"] == statuses(recording.store, first.id, "turn")

    def test_closing_lets_the_next_one_in(self, recording: Recorder) -> None:
        """At once, in this process as in any other."""
        with recording.start() as first:
            pass
        with recording.open(first.id) as second, pytest.raises(ConversationInUse):
            recording.open(first.id)

        assert recording.store.writer(second.id) is None

    def test_taking_over_fences_and_seals(self, recording: Recorder) -> None:
        """What was open is ended, and the first session writes no more."""
        first = recording.start()
        turn = first.turn("Hi")
        turn.__enter__()

        with recording.open(first.id, if_busy="take_over") as second:
            assert second.recovery is not None
            assert second.recovery.found.turn is not None
            with pytest.raises(WriterFenced):
                first.switch_mode("agent")

    def test_waiting_ends_with_the_other_session(self, recording: Recorder) -> None:
        """Whoever waits goes on as soon as it is closed."""
        first = Conversation.start(recording.store)
        closing = threading.Timer(0.0, first.close)
        closing.start()

        with recording.open(first.id, if_busy="wait") as second:
            assert second.recovery is not None
            assert not second.recovery.sealed
        closing.join()

    def test_waiting_has_an_end(self, recording: Recorder) -> None:
        """After which it is as if nobody had waited."""
        with recording.start() as first, pytest.raises(ConversationInUse):
            recording.open(first.id, if_busy="wait", wait_s=0.0)

    @pytest.mark.parametrize(
        "wrong", [{"if_busy": "steal"}, {"lease_s": 0.0}, {"lease_s": float("inf")}]
    )
    def test_unknown_wishes_are_refused(self, recording: Recorder, wrong: dict[str, Any]) -> None:
        """Before anything is fenced."""
        with recording.start() as first:
            pass
        with pytest.raises(ValueError, match=next(iter(wrong))):
            recording.open(first.id, **wrong)
        assert 0 == recording.store.get(first.id).writer_epoch


def test_two_that_begin_it_at_once(common: EventStore) -> None:
    """Whoever comes second waits for the first, and fences nobody that has just begun."""
    keys = [f"begun/{new_id()}" for _ in range(3)]
    together = threading.Barrier(3, timeout=30)

    def said(key: str) -> None:
        with Conversation.start(common, key=key, if_exists="open", if_busy="wait") as conversation:
            with conversation.turn("Hello"):
                pass

    def all_said(_: int) -> None:
        for key in keys:
            together.wait()
            said(key)

    with ThreadPoolExecutor(together.parties) as threads:
        assert [None] * together.parties == [*threads.map(all_said, range(together.parties))]
    for key in keys:
        assert together.parties == Views(common).run_state(key).last_turn


class TestOneThatIsGone:
    """A session whose process ended without closing it."""

    def test_an_expired_lease_lets_the_next_one_in(self, recording: Recorder) -> None:
        """Which seals what is open."""
        first = recording.start()
        first.turn("Hi").__enter__()
        left(recording.store, first.id)

        with recording.open(first.id) as second:
            assert second.recovery is not None
            assert second.recovery.sealed

    def test_it_is_shown_as_interrupted(self, common: EventStore) -> None:
        """By every look at it, before anybody opens it; the past is shown as it was."""
        first = Conversation.start(common)
        first.turn("Hi").__enter__()
        assert ["running"] == statuses(common, first.id, "turn")

        left(common, first.id)

        assert ["interrupted"] == statuses(common, first.id, "turn")
        assert ["interrupted"] == statuses(common, first.id, "session")
        past = Views(common).timeline(first.id, at=first.version)
        assert ["running"] == [item.status for item in past if item.kind == "turn"]

    def test_a_dropped_conversation_is_left(self, common: EventStore) -> None:
        """Its process lives, and nobody in it can go on with it."""
        first = Conversation.start(common)
        cid = first.id
        del first
        gc.collect()

        Conversation.open(common, cid).close()

    def test_a_process_that_has_ended_is_known(self, common: EventStore) -> None:
        """By the processes of its machine, before its lease runs out."""
        first = Conversation.start(common)
        with common.transaction() as connection:
            connection.execute(
                text("UPDATE writer_leases SET process = process || '0' WHERE session_id = :id"),
                {"id": first.session_id},
            )

        Conversation.open(common, first.id).close()

    def test_renewing_keeps_a_lease(self, common: EventStore) -> None:
        """What the thread does three times within a lease."""
        with Conversation.start(common) as first:
            run_out(common, first.id)
            KEEPER.renew()
            with pytest.raises(ConversationInUse):
                Conversation.open(common, first.id)

    def test_appends_without_a_session_have_no_lease(self, common: EventStore) -> None:
        """So nothing is known of their writer, and they are shown as they are."""
        cid = new_id()
        common.append(cid, [LlmRequest(llm_call_id="a"), CHUNK])

        assert common.writer(cid) is None
        assert ["streaming"] == statuses(common, cid, "assistant")


class TestRecovery:
    """At start-up, beside workers that live."""

    def test_living_sessions_are_left_alone(self, alone: EventStore) -> None:
        """And those that were left are sealed."""
        living, dead = Conversation.start(alone), Conversation.start(alone)
        for each in (living, dead):
            each.turn("Hi").__enter__()
        left(alone, dead.id)

        dry = recover_all(alone, Views(alone), dry_run=True).recovered
        done = recover_all(alone, Views(alone)).recovered

        assert [dead.id] == [each.conversation_id for each in dry]
        assert [dead.id] == [each.conversation_id for each in done]
        assert ["running"] == statuses(alone, living.id, "turn")
        assert ["aborted"] == statuses(alone, dead.id, "turn")
        living.close()

    def test_one_that_is_named_is_taken_over_if_that_is_said(self, common: EventStore) -> None:
        """Otherwise the living session is named."""
        first = Conversation.start(common)
        first.turn("Hi").__enter__()

        with pytest.raises(ConversationInUse):
            recover(common, Views(common), first.id)
        assert recover(common, Views(common), first.id, take_over=True).sealed


def test_killed_writer(alone: EventStore, programs: Programs) -> None:
    """While it lives it is left alone; once it is killed others see that, and go on."""
    with Conversation.start(alone) as conversation:
        cid = conversation.id
    url = alone.engine.url.render_as_string(hide_password=False)
    with programs.start("-c", WRITER, url, str(cid), stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert "writing\n" == writer.stdout.readline()
        with pytest.raises(ConversationInUse, match=str(writer.pid)):
            Conversation.open(alone, cid)
        assert ["running"] == statuses(alone, cid, "turn")
        assert () == recover_all(alone, Views(alone)).recovered

        writer.send_signal(signal.SIGKILL)
        writer.wait()

    assert ["interrupted"] == statuses(alone, cid, "turn")
    with Conversation.open(alone, cid) as again:
        assert again.recovery is not None
        assert again.recovery.found.turn is not None
    assert ["aborted"] == statuses(alone, cid, "turn")
