"""Run mode without a store: what runs and steps write, what is next, what a request is told."""

from __future__ import annotations

from typing import Any

import pytest

from agent_eventstore.machines.run_script import RunScript
from agent_eventstore.resuming import LeftCall, next_node
from eventstore import Meta, NewEvent
from eventstore import events as e
from eventstore.events import RunEnd, RunStepEnd, SystemInstruction, UserMessage
from projections.context import Injection
from projections.errors import BudgetInfeasible
from projections.models.open_items import OpenToolCall
from projections.models.runs import RUNS, NodeRow, RunState
from projections.run_mode import injections
from projections.tokens import count_messages, tokenizer_for
from tests.unit.context.log import Log
from tests.unit.projections.history import CONVERSATION, START, apply, fold, history

RUN = e.RunStart(
    run_id="r",
    workflow_id="report",
    directive="Write a report.",
    nodes=(e.RunNode(node_id="plan", title="Plan", brief="Plan it."), e.RunNode(node_id="write")),
    post_run_protocol="Answer questions.",
)
PLAN = e.RunStepStart(run_id="r", node_id="plan", context="It is Monday.")
DIRECTIVE = "RUN_DIRECTIVE\n- run: r\n- workflow: report\n- status: active\n\nWrite a report."
BRIEF = "NODE_BRIEF\n- node: plan\n- title: Plan\n\nPlan it.\n\nSTEP_CONTEXT\nIt is Monday."


def script() -> RunScript:
    """Return the script of a run within a session that is in another mode."""
    return RunScript.of(Meta(session_id="s", mode="chat"), "r", "report")


def only(events: list[NewEvent]) -> Any:
    """Return the payload of the one event."""
    (event,) = events
    return event.data


def state(*payloads: e.Payload) -> RunState:
    """Return the state after events."""
    tables = apply(fold(RUNS, history(*payloads))[1], RUNS)

    def rows(name: str) -> list[dict[str, Any]]:
        return [{"conversation_id": CONVERSATION, **row} for row in tables.get(name, {}).values()]

    return RunState.from_rows(
        CONVERSATION,
        next(iter(rows("conversation_state")), None),
        rows("runs"),
        rows("run_nodes"),
        rows("run_artifacts"),
    )


def told(*payloads: e.Payload, run_id: str | None = None) -> list[str]:
    """Return the texts that a request is told after events."""
    return [each.text for each in injections(state(*payloads), run_id)]


class TestSteps:
    """What is left behind by a block, however it is left."""

    def test_an_event_says_to_which_run_it_belongs(self) -> None:
        """Events of a run are of Run mode, whatever mode the session is in."""
        (event,) = script().step("plan", None, None).begin()
        where = (event.meta.session_id, event.meta.mode, event.meta.run_id, event.meta.workflow_id)
        assert ("s", "run", "r", "report") == where

    @pytest.mark.parametrize(
        ("error", "status", "words"),
        [
            (None, "completed", None),
            (ValueError("no"), "failed", "ValueError: no"),
            (KeyboardInterrupt(), "cancelled", "stopped by the user"),
        ],
    )
    def test_the_status_tells_how_the_block_was_left(
        self, error: BaseException | None, status: str, words: str | None
    ) -> None:
        """An exception is a failure; being told to stop is not."""
        end = only(script().step("plan", None, None).end(error))
        assert (status, words) == (end.status, end.error)

    def test_a_step_may_fail_without_an_exception(self) -> None:
        """The product's own words for it are kept."""
        step = script().step("plan", None, None)
        step.error = "no sources"
        end = only(step.end())
        assert ("failed", "no sources") == (end.status, end.error)

    def test_a_step_ends_once(self) -> None:
        """Ending again writes nothing."""
        step = script().step("plan", None, None)
        step.end()
        assert [] == step.end(ValueError("late"))


class TestRuns:
    """How a run ends."""

    def test_a_run_ends_once(self) -> None:
        """What was completed cannot fail afterwards."""
        run = script()
        run.end("completed")
        assert [] == run.end("failed", error="late")

    def test_leaving_the_block_completes_the_run(self) -> None:
        """As long as nothing else has ended it."""
        assert RunEnd(run_id="r", status="completed") == only(script().leave(None))

    def test_an_exception_fails_the_run(self) -> None:
        """The error is told in words."""
        failed = RunEnd(run_id="r", status="failed", error="ValueError: no")
        assert failed == only(script().leave(ValueError("no")))

    def test_an_interrupted_run_stays_open(self) -> None:
        """Ctrl-C leaves it as a kill does, so that it can be resumed."""
        assert [] == script().leave(KeyboardInterrupt())

    def test_a_skipped_node_has_a_reason(self) -> None:
        """It ends without having begun."""
        skipped = RunStepEnd(run_id="r", node_id="plan", status="skipped", error="not needed")
        assert skipped == only(script().skip("plan", "not needed"))


def nodes(**statuses: str) -> list[NodeRow]:
    """Return nodes of these statuses, each but the first depending on the one before."""
    names = list(statuses)
    return [
        NodeRow(
            conversation_id=CONVERSATION,
            run_id="r",
            node_id=name,
            status=status,
            depends_on=names[max(0, place - 1) : place],
        )
        for place, (name, status) in enumerate(statuses.items())
    ]


class TestNext:
    """What is to be done when a run is resumed."""

    @pytest.mark.parametrize(
        ("statuses", "active", "expected"),
        [
            ({"a": "active", "b": "pending"}, "a", ("continue", "a")),
            ({"a": "pending", "b": "pending"}, None, ("begin", "a")),
            ({"a": "completed", "b": "pending"}, None, ("begin", "b")),
            ({"a": "skipped", "b": "pending"}, None, ("begin", "b")),
            ({"a": "cancelled", "b": "pending"}, None, ("begin", "a")),
            ({"a": "failed", "b": "pending"}, None, ("decide", None)),
            ({"a": "completed", "b": "skipped"}, None, ("complete", None)),
            ({"a": "completed", "b": "failed"}, None, ("decide", None)),
            ({}, None, ("decide", None)),
        ],
    )
    def test_next(
        self, statuses: dict[str, str], active: str | None, expected: tuple[str, str | None]
    ) -> None:
        """The active node goes on; else the first one begins whose dependencies are done."""
        todo, node = next_node(active, nodes(**statuses))
        assert expected == (todo, node and node.node_id)

    @pytest.mark.parametrize(
        ("status", "idempotent", "advice"),
        [
            ("requested", False, "make"),
            ("not_started", False, "make"),
            ("running", False, "check"),
            ("outcome_unknown", False, "check"),
            ("outcome_unknown", True, "repeat"),
        ],
    )
    def test_a_call_runs_again_only_where_it_is_safe(
        self, status: str, idempotent: bool, advice: str
    ) -> None:
        """A call that may have run is repeated only if it was declared idempotent."""
        call = OpenToolCall(
            version=1,
            began_at=START,
            meta=Meta(),
            call_id="1.0",
            name="pay",
            arguments=None,
            provider_id=None,
            started_at=None,
            idempotency_key=None,
            idempotent=idempotent,
        )
        assert advice == LeftCall(status=status, call=call).advice


class TestInjections:
    """What a request in Run mode is told (document 000, "Run-only injection")."""

    def test_without_a_run_nothing_is_told(self) -> None:
        """Run mode alone injects nothing."""
        assert [] == told(UserMessage.text("hello"))

    def test_between_steps_only_the_directive_is_told(self) -> None:
        """No node is active."""
        assert [DIRECTIVE] == told(RUN)

    def test_an_active_node_is_told_with_its_step_context(self) -> None:
        """The directive comes first."""
        assert [DIRECTIVE, BRIEF] == told(RUN, PLAN)

    def test_a_completed_run_tells_its_protocol_and_no_node(self) -> None:
        """Even of a node that was active to the end."""
        expected = DIRECTIVE.replace("active", "completed")
        expected += "\n\nPOST_RUN_PROTOCOL\nAnswer questions."
        assert [expected] == told(RUN, PLAN, RunEnd(run_id="r", status="completed"))

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_a_run_that_did_not_end_well_is_not_told(self, status: str) -> None:
        """Nobody goes on under its directive."""
        end = RunEnd.model_validate({"run_id": "r", "status": status})
        assert [] == told(RUN, end, run_id="r")

    def test_another_run_than_the_active_one_can_be_told(self) -> None:
        """Turns that name their run are told of that one."""
        other = e.RunStart(run_id="other", workflow_id="w", directive="Else.")
        assert ["RUN_DIRECTIVE\n- run: other\n- workflow: w\n- status: active\n\nElse."] == told(
            other, RUN, PLAN, run_id="other"
        )

    def test_a_run_without_a_recorded_start_is_told_all_the_same(self) -> None:
        """A step is a fact even where the start of its run was erased."""
        assert [
            "RUN_DIRECTIVE\n- run: r\n- status: active",
            "NODE_BRIEF\n- node: plan\n\nSTEP_CONTEXT\nIt is Monday.",
        ] == told(PLAN)


class TestBuilding:
    """Injections within a request."""

    LOG = (SystemInstruction(text="rules"), UserMessage.text("task"))
    TOLD = (Injection("run directive", "do", (3, 9)), Injection("node brief", "now", (4,)))

    def test_injections_follow_the_system_part(self) -> None:
        """In the order given, before the conversation."""
        view = Log(self.LOG).view(injections=self.TOLD)
        assert [("system", "rules"), ("system", "do"), ("system", "now"), ("user", "task")] == [
            (message["role"], message["content"]) for message in view.messages
        ]

    def test_injections_are_counted(self) -> None:
        """The tokens are those of a fresh count of what is sent."""
        view = Log(self.LOG).view(injections=self.TOLD)
        assert view.tokens == count_messages(view.messages, tokenizer_for("gpt-4o"))

    def test_their_events_are_named(self) -> None:
        """The provenance of a request holds the events of its run."""
        assert (1, 2, 3, 4, 9) == Log(self.LOG).view(injections=self.TOLD).versions

    def test_a_budget_that_cannot_hold_them_names_them(self) -> None:
        """They are mandatory, and the error says how large each is."""
        with pytest.raises(BudgetInfeasible, match=r"run directive .*: 5, node brief .*: 5"):
            Log(self.LOG).view(injections=self.TOLD, max_tokens=10)
