"""Which call a result in a request belongs to, where ids are used again and again."""

from __future__ import annotations

import gc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_eventstore.machines import Answers, RequestedCall, ToolScript
from agent_eventstore.requests import sent_in
from eventstore import new_id
from eventstore.events import Meta
from tests.integration.frameworks import WIRES, Call

WIRE = st.sampled_from(sorted(WIRES))
STEPS = st.lists(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3), max_size=6)


def requested(version: int, index: int, provider_id: str) -> RequestedCall:
    """Return a call as the recorder knows it."""
    return RequestedCall(f"{version}.{index}", "search", {}, "{}", None, provider_id, Meta())


def test_an_execution_that_nobody_leaves_ends_with_its_block() -> None:
    """Before, it stayed for the whole session, and each later one was reported as a second."""
    answers, call = Answers(), requested(1, 0, "a")

    def script() -> ToolScript:
        return ToolScript(call, Meta(), new_id(), 0.0, answers=answers)

    left, second = script(), script()
    assert [False, True] == [answers.begins(call.call_id, each) for each in (left, second)]
    del left
    gc.collect()
    assert not answers.begins(call.call_id, second)


@given(wire=WIRE, steps=STEPS, kept=st.integers(1, 6), seen=st.integers(0, 5))
def test_each_call_gets_its_own_result(
    wire: str, steps: list[list[str]], kept: int, seen: int
) -> None:
    """However often ids return, and however much of the history a framework still sends.

    A process that came later, and has seen only the last steps, takes nothing for something else.
    """
    messages, answers = WIRES[wire], Answers()
    history: list[list[dict[str, Any]]] = []
    found: dict[str, Any] = {}
    for version, ids in enumerate(steps, 1):
        calls = [Call(each) for each in ids]
        if version > seen:
            calls_requested = [requested(version, index, each) for index, each in enumerate(ids)]
            answers.requested(calls_requested, elsewhere=True)
        results = [messages.result(call, f"{version}.{at}") for at, call in enumerate(calls)]
        history.append([*messages.repeated(*calls), *results])
        prompt = [message for step in history[-kept:] for message in step]
        for call, result in answers.news(sent_in(prompt)):
            assert call.call_id not in found
            found[call.call_id] = result.content

    wanted = [f"{v}.{at}" for v, ids in enumerate(steps, 1) for at in range(len(ids)) if v > seen]
    assert {each: each for each in wanted} == found


def test_arguments_tell_calls_of_one_id_apart() -> None:
    """An answer that the framework has forgotten is not taken for the one that it repeats."""
    wire, answers = WIRES["openai_chat"], Answers()
    first, lost = Call("a", arguments='{"n": 1}'), Call("a", arguments='{"n": 2}')
    for version, call in enumerate((first, lost), 1):
        one = RequestedCall(f"{version}.0", "search", {"n": version}, "", None, call.id, Meta())
        answers.requested([one], elsewhere=True)
    [(call_found, result)] = answers.news(
        sent_in([*wire.repeated(first), wire.result(first, "one")])
    )

    assert ("1.0", "one") == (call_found.call_id, result.content)
