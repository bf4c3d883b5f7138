"""What recovery makes of open work: which events, in which order, and in which words."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from agent_eventstore.machines.seals import ACTOR, seal
from eventstore import events as e
from projections.models.open_items import (
    OpenModelCall,
    OpenRunStep,
    OpenSession,
    OpenToolCall,
    OpenWork,
    UnfinishedTurn,
)
from tests.unit.context.log import Log
from tests.unit.projections.history import CONVERSATION, START

META = e.Meta(session_id="s", turn=2, step=1, run_id="r", mode="run")
USAGE = e.TokenUsage(prompt_tokens=10, completion_tokens=2)
PARTIAL = e.PartialToolCall(index=0, provider_id="x", name="search", arguments_text='{"q"')


def loose(**values: object) -> OpenWork:
    """Return open work of a conversation whose last event came nine seconds after its start."""
    at = START + timedelta(seconds=9)
    given = {"conversation_id": CONVERSATION, "last_version": 9, "last_event_at": at}
    return OpenWork(**{**given, **values})  # type: ignore[arg-type]


def model_call(
    text: str = "",
    *,
    reasoning: str = "",
    refusal: str = "",
    tool_calls: tuple[e.PartialToolCall, ...] = (),
    meta: e.Meta = META,
) -> OpenModelCall:
    """Return an open model call that began five seconds after the start."""
    return OpenModelCall(
        version=5,
        began_at=START + timedelta(seconds=5),
        meta=meta,
        llm_call_id="a",
        attempt=3,
        invocation=e.Invocation(model="gpt-4o"),
        text=text,
        reasoning=reasoning,
        refusal=refusal,
        tool_calls=tool_calls,
    )


def tool_call(call_id: str, started_after: int | None = None) -> OpenToolCall:
    """Return an open tool call, started so many seconds after the start or not at all."""
    started = None if started_after is None else START + timedelta(seconds=started_after)
    return OpenToolCall(
        version=4,
        began_at=START + timedelta(seconds=4),
        meta=META,
        call_id=call_id,
        name="search",
        arguments={"q": 1},
        provider_id="call_1",
        started_at=started,
        idempotency_key=None,
        idempotent=False,
    )


def turn() -> UnfinishedTurn:
    """Return an open turn that began a second after the start."""
    meta = e.Meta(session_id="s", turn=2)
    began = START + timedelta(seconds=1)
    return UnfinishedTurn(version=1, began_at=began, meta=meta, turn=2, steps=2, tokens=USAGE)


def session() -> OpenSession:
    """Return an open session that began at the start."""
    meta = e.Meta(session_id="s")
    values = {"version": 1, "began_at": START, "meta": meta}
    return OpenSession(**values, session_id="s", turns=2, tokens=USAGE)  # type: ignore[arg-type]


EVERYTHING = loose(
    model_calls=(model_call("Hel"),),
    tool_calls=(tool_call("4.0"), tool_call("4.1", started_after=6)),
    turn=turn(),
    session=session(),
)


def only(ends: OpenWork) -> e.Payload:
    """Return the one payload that seals the open work."""
    [event] = seal(ends)
    assert isinstance(event.data, e.Payload)
    return event.data


class TestOrder:
    """One event for each piece of open work, from the innermost to the outermost."""

    def test_everything_at_once(self) -> None:
        """Model calls, tool calls, the turn, the session."""
        types = [event.data.type for event in seal(EVERYTHING)]
        assert ["llm_error", "tool_result", "tool_result", "turn_end", "session_end"] == types

    def test_nothing_open_seals_nothing(self) -> None:
        """Nor does the open step of a run, which goes on."""
        step = OpenRunStep(version=1, began_at=START, meta=META, run_id="r", node_id="n")
        assert () == seal(loose(run_step=step))

    def test_every_event_belongs_where_its_open_work_did(self) -> None:
        """Turn, step, session and run are kept; who wrote it is recovery."""
        sealed = seal(EVERYTHING)
        assert [
            *(META.model_copy(update={"actor": ACTOR}),) * 3,
            e.Meta(session_id="s", turn=2, actor=ACTOR),
            e.Meta(session_id="s", actor=ACTOR),
        ] == [event.meta for event in sealed]

    def test_what_was_kept_from_the_context_stays_out(self) -> None:
        """A model call that wrote a title must not turn up in the conversation."""
        [event] = seal(loose(model_calls=(model_call("Hel", meta=e.Meta(in_context=False)),)))
        assert not event.meta.in_context


class TestIdentity:
    """The same open work gives the same events, other work others."""

    def test_sealing_again_gives_the_same_events(self) -> None:
        """So that a repeated append writes nothing."""
        assert seal(EVERYTHING) == seal(EVERYTHING)

    def test_ids_differ_by_place_version_and_conversation(self) -> None:
        """No two events of any recoveries share an id."""
        others = (
            loose(turn=turn(), session=session()),
            loose(turn=turn(), session=session(), last_version=10),
            loose(turn=turn(), session=session(), conversation_id=UUID(int=7)),
        )
        ids = [event.event_id for ends in others for event in seal(ends)]
        assert 6 == len(set(ids))


class TestModelCalls:
    """The error holds all that had arrived."""

    def test_partial_answer(self) -> None:
        """Text, reasoning and unfinished calls are kept, and the call may be retried."""
        call = model_call("Hel", reasoning="hm", tool_calls=(PARTIAL,))
        error = only(loose(model_calls=(call,)))
        assert isinstance(error, e.LlmError)
        assert ("a", "interrupted", True, 3) == (
            error.llm_call_id,
            error.kind,
            error.retryable,
            error.attempt,
        )
        assert ("Hel", "hm", (PARTIAL,)) == (
            error.partial_text,
            error.partial_reasoning,
            error.partial_tool_calls,
        )
        assert e.Invocation(model="gpt-4o") == error.invocation

    def test_duration_runs_to_the_last_event(self) -> None:
        """Not to the recovery, which may come days later."""
        error = only(loose(model_calls=(model_call(),)))
        assert isinstance(error, e.LlmError)
        assert 4_000 == error.duration_ms

    def test_a_refusal_is_part_of_the_text(self) -> None:
        """What the user saw of the answer is kept, whatever it was."""
        error = only(loose(model_calls=(model_call("Well. ", refusal="I will not"),)))
        assert isinstance(error, e.LlmError)
        assert "Well. I will not" == error.partial_text

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (model_call(), "before anything of the answer had arrived"),
            (model_call("Hel"), "while the model was answering"),
            (model_call(reasoning="hm"), "while the model was answering"),
            (model_call(tool_calls=(PARTIAL,)), "while the model was answering"),
        ],
    )
    def test_message_tells_whether_anything_had_arrived(
        self, call: OpenModelCall, words: str
    ) -> None:
        """In plain words, for people and models."""
        error = only(loose(model_calls=(call,)))
        assert isinstance(error, e.LlmError)
        assert words in error.message


class TestToolCalls:
    """The result tells the model the truth, in words."""

    def test_a_call_that_was_never_started(self) -> None:
        """It is safe to make it again."""
        result = only(loose(tool_calls=(tool_call("4.0"),)))
        assert isinstance(result, e.ToolResult)
        assert ("4.0", "not_started", "search", "call_1", None) == (
            result.call_id,
            result.status,
            result.name,
            result.provider_id,
            result.duration_ms,
        )
        assert "never started" in str(result.content)
        assert "safe to make it again" in str(result.content)

    def test_a_call_that_was_running(self) -> None:
        """It may have taken effect; it ran at least until the last event."""
        result = only(loose(tool_calls=(tool_call("4.1", started_after=6),)))
        assert isinstance(result, e.ToolResult)
        assert ("outcome_unknown", 3_000) == (result.status, result.duration_ms)
        assert "may or may not have taken effect" in str(result.content)

    @pytest.mark.parametrize("started_after", [None, 6])
    def test_the_words_reach_the_model_as_they_are(self, started_after: int | None) -> None:
        """The messages[] view adds nothing of its own to them."""
        request = e.ToolCallRequest(name="search", arguments_text="{}")
        log = Log([e.AssistantMessage.of(None, tool_calls=(request,))])
        result = only(loose(tool_calls=(tool_call("1.0", started_after),)))
        assert isinstance(result, e.ToolResult)
        log.add(result)
        assert ("tool", result.content) == log.said()[-1]


class TestFrames:
    """Turn and session end with what they had added up."""

    def test_turn(self) -> None:
        """It was aborted, because it was interrupted."""
        assert e.TurnEnd(
            status="aborted",
            reason="interrupted",
            step_count=2,
            duration_ms=8_000,
            tokens=USAGE,
        ) == only(loose(turn=turn()))

    def test_session(self) -> None:
        """It is closed, with its turns and tokens."""
        assert e.SessionEnd(
            reason="interrupted", turn_count=2, duration_ms=9_000, tokens=USAGE
        ) == only(loose(session=session()))

    def test_clocks_that_disagree(self) -> None:
        """A turn that seems to end before it began lasted no time."""
        end = only(loose(turn=turn(), last_event_at=START - timedelta(seconds=1)))
        assert isinstance(end, e.TurnEnd)
        assert 0 == end.duration_ms
