"""Runs recorded, interrupted at every event, resumed and told to the model, on both databases."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from agent_eventstore.aio import AsyncConversation
from agent_eventstore.conversation import Conversation
from agent_eventstore.errors import BlockNotOpen
from agent_eventstore.run_blocks import AsyncStep, Step
from eventstore import AsyncEventStore, EventStore, new_id
from eventstore import events as e
from tests.exhaustive import partly
from tests.projections.support import statements
from tests.run_story import STORY, story, truth

pytestmark = pytest.mark.exhaustive_when("postgresql")

NODES = (e.RunNode(node_id="plan", brief="Plan it."), e.RunNode(node_id="write"))


@pytest.fixture
def conversation(common: EventStore) -> Conversation:
    """Give a conversation in Run mode."""
    return Conversation.start(common, mode="run", base_instructions="Be brief.")


def written(conversation: Conversation, kind: type[Any]) -> list[Any]:
    """Return the payloads of a class that the log holds."""
    found = conversation.views.store.read(conversation.id)
    return [event.data for event in found if isinstance(event.data, kind)]


def said(messages: Any) -> list[str]:
    """Return the first lines of messages, from the conversation's own instructions on."""
    lines = [str(message["content"]).splitlines()[0] for message in messages]
    return lines[lines.index("Be brief.") :]


def crashed(store: EventStore, length: int) -> Conversation:
    """Return the conversation of a process that died after so many events, opened again."""
    cid = new_id()
    store.append(cid, story(length))
    return Conversation.open(store, cid)


class TestRecording:
    """What is in the log when a block is left."""

    def test_a_run_begins_with_its_start(self, conversation: Conversation) -> None:
        """It is durable before anything of the run happens."""
        run = conversation.start_run("report", directive="Write.", nodes=NODES, config={"n": 1})
        (start,) = written(conversation, e.RunStart)
        assert start == e.RunStart(
            run_id=run.run_id,
            workflow_id="report",
            directive="Write.",
            nodes=NODES,
            config={"n": 1},
        )

    def test_a_step_ends_with_its_artifacts(self, conversation: Conversation) -> None:
        """The newest of a name is kept."""
        run = conversation.start_run("report", nodes=NODES)
        with run.step("plan") as step:
            step.artifact("outline", path="old.md")
            step.artifact("outline", path="new.md")
            step.artifact("figures", content={"sum": 3})
        made = conversation.views.run_state(conversation.id).artifacts
        assert [("figures", None, {"sum": 3}), ("outline", "new.md", None)] == [
            (each.name, each.path, each.content) for each in made
        ]

    @pytest.mark.parametrize(
        ("error", "status"), [(ValueError, "failed"), (KeyboardInterrupt, "cancelled")]
    )
    def test_an_exception_ends_the_step_and_goes_on(
        self, conversation: Conversation, error: type[BaseException], status: str
    ) -> None:
        """The caller sees it, the log tells of it."""
        run = conversation.start_run("report", nodes=NODES)
        with pytest.raises(error), run.step("plan"):
            raise error
        assert [status] == [end.status for end in written(conversation, e.RunStepEnd)]

    def test_a_step_is_used_within_its_block(self, conversation: Conversation) -> None:
        """Before, what it was given outside was lost, and a second visit was not written."""
        step = conversation.start_run("report", nodes=NODES).step("plan")
        self._refuses(step, "has not been entered")
        with step:
            step.artifact("outline")
        self._refuses(step, "has been left")
        with pytest.raises(BlockNotOpen, match="over"):
            step.__enter__()

    def test_a_step_of_an_event_loop_is_used_within_its_block(self, recorded_url: str) -> None:
        """The same."""

        async def visit() -> None:
            async with (
                await AsyncEventStore.open(recorded_url) as store,
                await AsyncConversation.start(store, mode="run") as conversation,
            ):
                step = (await conversation.start_run("report", nodes=NODES)).step("plan")
                self._refuses(step, "has not been entered")
                async with step:
                    step.artifact("outline")
                self._refuses(step, "has been left")
                with pytest.raises(BlockNotOpen, match="over"):
                    await step.__aenter__()

        asyncio.run(visit())

    @staticmethod
    def _refuses(step: Step | AsyncStep, why: str) -> None:
        for use in (lambda: step.artifact("outline"), lambda: step.fail("no")):
            with pytest.raises(BlockNotOpen, match=why):
                use()

    def test_a_turn_of_a_run_says_so(self, conversation: Conversation, common: EventStore) -> None:
        """Its events carry run and workflow, and are of Run mode in any mode."""
        conversation.switch_mode("chat")
        run = conversation.start_run("report")
        with run.turn("go"):
            pass
        marks = {
            (event.meta.run_id, event.meta.workflow_id, event.meta.mode)
            for event in common.read(conversation.id)
            if event.meta.turn == 1
        }
        assert {(run.run_id, "report", "run")} == marks

    def test_two_runs_are_told_apart(self, conversation: Conversation) -> None:
        """Each has its own nodes, steps and end."""
        first = conversation.start_run("report", nodes=NODES)
        second = conversation.start_run("report", nodes=NODES)
        with first.step("plan"):
            second.skip("plan")
        first.complete()
        state = conversation.views.run_state(conversation.id)
        assert ["completed", "active"] == [run.status for run in state.runs]
        assert {
            (first.run_id, "plan", "completed"),
            (first.run_id, "write", "pending"),
            (second.run_id, "plan", "skipped"),
            (second.run_id, "write", "pending"),
        } == {(node.run_id, node.node_id, node.status) for node in state.nodes}

    def test_an_event_loop_records_the_same(self, recorded_url: str) -> None:
        """The asynchronous run writes what the synchronous one writes."""

        async def converse() -> list[str]:
            async with (
                await AsyncEventStore.open(recorded_url) as store,
                await AsyncConversation.start(store, mode="run") as conversation,
            ):
                async with await conversation.start_run("report", nodes=NODES) as run:
                    with suppress(ValueError):
                        async with run.step("plan") as step, run.turn("go"):
                            step.artifact("outline")
                            raise ValueError
                    await run.skip("write")
                    resumed = await conversation.resume_run(run.run_id)
                    assert resumed is not None
                    assert "decide" == resumed.todo
                return [event.type async for event in store.read(conversation.id)]

        expected = [
            *("conversation_start", "session_start", "run_start", "run_step_start"),
            *("turn_start", "user_message", "turn_end", "run_step_end", "run_step_end", "run_end"),
        ]
        assert expected == asyncio.run(converse())


class TestInjections:
    """What the model is told in Run mode, and in no other."""

    def test_an_active_step_is_told(self, conversation: Conversation) -> None:
        """Directive and brief stand between the system part and the conversation."""
        run = conversation.start_run("report", nodes=NODES)
        with run.step("plan"), run.turn("go") as turn:
            request = turn.context()
        assert ["Be brief.", "RUN_DIRECTIVE", "NODE_BRIEF", "go"] == said(request.messages)

    def test_a_completed_run_tells_its_protocol(self, conversation: Conversation) -> None:
        """The protocol that it was completed with takes the place of the planned one."""
        run = conversation.start_run("report", nodes=NODES, post_run_protocol="planned")
        run.complete(post_run_protocol="Answer questions.")
        with conversation.turn("go") as turn:
            request = turn.context()
        assert ["Be brief.", "RUN_DIRECTIVE", "go"] == said(request.messages)
        assert request.messages[-2]["content"].endswith("POST_RUN_PROTOCOL\nAnswer questions.")

    def test_another_mode_keeps_the_history_and_drops_the_run(
        self, conversation: Conversation
    ) -> None:
        """A switch changes what stands before the history, and nothing of it."""
        run = conversation.start_run("report", nodes=NODES)
        with run.turn("go"):
            pass
        conversation.switch_mode("chat")
        with conversation.turn("and now?") as turn:
            chat, again = turn.context(), turn.context(mode="run")
        assert ["Be brief.", "go", "and now?"] == said(chat.messages)
        assert ["Be brief.", "RUN_DIRECTIVE", "go", "and now?"] == said(again.messages)

    def test_a_turn_is_told_of_its_own_run(self, conversation: Conversation) -> None:
        """Not of the one that was begun later."""
        run = conversation.start_run("report", directive="mine")
        conversation.start_run("other", directive="other")
        with run.turn("go") as turn:
            assert f"- run: {run.run_id}\n" in turn.context().messages[-2]["content"]

    def test_nothing_is_told_when_nothing_is_asked_for(self, conversation: Conversation) -> None:
        """``run=False`` leaves it to the product."""
        run = conversation.start_run("report", nodes=NODES)
        with run.turn("go") as turn:
            assert ["Be brief.", "go"] == said(turn.context(run=False).messages)

    def test_no_row_is_stored(self, conversation: Conversation) -> None:
        """What is told once is not part of the next request."""
        run = conversation.start_run("report", nodes=NODES)
        with run.step("plan"), run.turn("go") as turn:
            turn.context()
        later = conversation.views.context(conversation.id, mode=None)
        assert ["Be brief.", "go"] == said(later.messages)


class TestResuming:
    """What a process is told that opens a conversation after a crash."""

    @pytest.mark.parametrize("share", partly(range(3)))
    def test_at_every_event(self, common: EventStore, share: int) -> None:
        """The run, its node and its calls are those that a plain look at the events finds."""
        for length in range(1 + share, len(STORY) + 1, 3):
            open_now = truth(data for data, _ in STORY[:length])
            resumed = crashed(common, length).resume_run()
            if not open_now.runs:
                assert resumed is None, length
                continue
            assert resumed is not None, length
            run_id = open_now.runs[-1]
            assert run_id == resumed.run.run_id, length
            node_id = resumed.node and resumed.node.node_id
            active, done = open_now.active[run_id], open_now.done[run_id]
            order = [node.node_id for node in resumed.nodes if node.node_id not in done]
            if active:
                assert ("continue", active) == (resumed.todo, node_id), length
            elif failed := [node for node in resumed.nodes if node.status == "failed"]:
                assert ("decide", ["ask"]) == (resumed.todo, [n.node_id for n in failed]), length
            elif order:
                assert ("begin", order[0]) == (resumed.todo, node_id), length
            else:
                assert "complete" == resumed.todo, length
            assert open_now.calls == {left.call.call_id: left.advice for left in resumed.calls}, (
                length
            )

    @pytest.mark.parametrize("first", partly([4, 7]))
    def test_every_crash_can_be_gone_on_from(self, common: EventStore, first: int) -> None:
        """Doing what is said next, again and again, completes each run whose nodes can be done."""
        for length in range(first, len(STORY) + 1, 6):
            conversation = crashed(common, length)
            while (resumed := conversation.resume_run()) and resumed.todo != "decide":
                if resumed.node:
                    with resumed.run.step(resumed.node.node_id):
                        pass
                else:
                    resumed.run.complete()
            runs = {run.run_id: run for run in conversation.views.run_state(conversation.id).runs}
            if resumed is None:
                assert "active" not in [run.status for run in runs.values()], length
            else:
                assert "second" == resumed.row.run_id, length

    def test_artifacts_of_ended_steps_are_there(self, common: EventStore) -> None:
        """A later node finds what an earlier one produced."""
        resumed = crashed(common, 36).resume_run()
        assert resumed is not None
        assert [("plan", "outline.md")] == [(each.node_id, each.path) for each in resumed.artifacts]

    def test_an_idempotent_call_runs_again_under_its_key(self, common: EventStore) -> None:
        """Its result takes the place of the seal, and the call is no longer named."""
        conversation = crashed(common, 12)
        conversation.resume_run()  # which catches up
        with statements(common) as asked:
            resumed = conversation.resume_run()
        assert 1 == sum("FROM events" in each for each in asked)
        assert resumed is not None
        (left, other) = resumed.calls
        assert ("repeat", "check") == (left.advice, other.advice)

        with resumed.run.turn("again") as turn, turn.tool(left.call, idempotent=True) as tool:
            key = tool.idempotency_key
            tool.result("found")

        calls = conversation.views.tool_calls(conversation_id=conversation.id)
        assert {("10.0", "success"), ("10.1", "outcome_unknown")} == {
            (call.call_id, call.status) for call in calls
        }
        assert key == next(call.idempotency_key for call in calls if call.call_id == "10.0")
        again = conversation.resume_run()
        assert again is not None
        assert (other.call.call_id,) == tuple(each.call.call_id for each in again.calls)

    def test_a_completed_node_settles_what_it_left_behind(self, common: EventStore) -> None:
        """Who completes the node has looked; the call is not named for ever."""
        conversation = crashed(common, 12)
        resumed = conversation.resume_run()
        assert resumed is not None
        with resumed.run.step("plan"):
            pass
        again = conversation.resume_run()
        assert again is not None
        assert ("begin", ()) == (again.todo, again.calls)

    def test_a_second_crash_forgets_nothing(self, common: EventStore) -> None:
        """Calls that an earlier recovery has sealed are named again."""
        first = crashed(common, 12)
        resumed = Conversation.open(common, first.id, if_busy="take_over").resume_run()
        assert resumed is not None
        assert ["10.0", "10.1"] == [left.call.call_id for left in resumed.calls]

    def test_no_call_is_forgotten_beside_those_of_another_run(self, common: EventStore) -> None:
        """However many another run has left; before, the newest 1,000 hid all others."""
        conversation = Conversation.start(common)
        runs = [conversation.start_run("report", run_id=each) for each in ("first", "second")]
        asked = e.ToolCallRequest(name="search", arguments_text="{}", arguments={})
        for run, count in zip(runs, (2, 1_100), strict=True):
            answer = e.AssistantMessage.of(None, tool_calls=(asked,) * count)
            common.append(conversation.id, [answer], meta=e.Meta(run_id=run.run_id))

        for run, count in zip(runs, (2, 1_100), strict=True):
            resumed = conversation.resume_run(run.run_id)
            assert resumed is not None
            assert count == len({left.call.call_id for left in resumed.calls})

    def test_a_run_can_be_named(self, common: EventStore) -> None:
        """Another open run than the active one."""
        resumed = crashed(common, 28).resume_run("first")
        assert resumed is not None
        assert ("begin", "write") == (resumed.todo, resumed.node and resumed.node.node_id)

    def test_a_run_that_has_ended_is_not_resumed(self, common: EventStore) -> None:
        """Not even by its name."""
        assert crashed(common, len(STORY)).resume_run("first") is None

    def test_an_unknown_run_is_an_error(self, conversation: Conversation) -> None:
        """A typing error is not taken for a run that has ended."""
        with pytest.raises(ValueError, match="has no run 'nobody'"):
            conversation.resume_run("nobody")

    @pytest.mark.parametrize("mode", ["active", "chat", "run", None])
    def test_a_request_names_an_unknown_run(self, conversation: Conversation, mode: str) -> None:
        """Outside of the mode that describes runs the name was not looked at."""
        with pytest.raises(ValueError, match="has no run 'nobody'"):
            conversation.views.context(conversation.id, mode=mode, run="nobody")

    def test_a_visit_after_the_crash_is_a_second_one(self, common: EventStore) -> None:
        """The log tells that the node was begun again, under the brief that it had."""
        conversation = crashed(common, 12)
        resumed = conversation.resume_run()
        assert resumed is not None
        with resumed.run.step("plan"):
            state = conversation.views.run_state(conversation.id)
        node = next(node for node in state.nodes if node.node_id == "plan")
        assert (2, "Plan the report.", "Monday") == (node.visits, node.brief, node.context)
