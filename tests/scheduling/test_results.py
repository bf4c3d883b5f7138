"""Whose result a task's caller gets, and what becomes of a task that nothing can run."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from uuid import UUID

import pytest

from agent_eventstore import Conversation, EventStore, ModelRequest, Scheduler, TaskPlan
from agent_eventstore.agents import AgentSession
from eventstore import new_id
from eventstore.events import TaskEnqueue
from tests.agents.scripted import Scripted
from tests.scheduling.test_tools import call, child_of, told

pytestmark = pytest.mark.exhaustive_when("postgresql")


class Counting(Scheduler):
    """A scheduler that tells when two tasks have been enqueued."""

    count = 0
    both = threading.Event()

    def enqueue(self, plans: Iterable[TaskPlan]) -> None:
        """Enqueue, and count."""
        super().enqueue(plans)
        self.count += 1
        if self.count == 2:
            self.both.set()


def test_threads_get_the_results_of_their_own_tasks(store: EventStore) -> None:
    """One thread runs both; before, it returned the other's answer, and the other raised."""
    asked = threading.Event()
    Counting.both.clear()

    def model(request: ModelRequest) -> str:
        said = [each["content"] for each in request.messages if each["role"] == "user"][-1]
        asked.set()
        assert Counting.both.wait(30)
        return f"answer to {said}"

    answers: dict[str, str | None] = {}
    with Counting.create(store, model=model) as scheduler:

        def run(said: str) -> None:
            answers[said] = scheduler.run_task(said).last_assistant_message

        first, second = (threading.Thread(target=run, args=(said,)) for said in ("one", "two"))
        first.start()
        assert asked.wait(30)
        second.start()
        first.join()
        second.join()

    assert {"one": "answer to one", "two": "answer to two"} == answers


def test_a_task_that_names_no_conversation_fails(store: EventStore) -> None:
    """The others run; before, each run raised, and no task ran any more."""
    root = Conversation.start(store)
    root.append(TaskEnqueue(task_id="odd", target_conversation_id="nobody"))
    with Scheduler(root, model=Scripted("Done.")) as scheduler:
        scheduler.enqueue([TaskPlan(conversation_id=root.id, input_items="Go")])
        found = scheduler.run()
        assert ["failed", "complete"] == [each.status for each in found]
        assert "the task names no conversation" == found[0].error
        assert [] == scheduler.run()


def test_a_conversation_purged_before_it_answers(store: EventStore) -> None:
    """Its task fails, and the caller's model is told; before, each run raised."""
    model = Scripted(call("create", user_instruction="Well?"), "Yes.", "Done.")
    with Scheduler.create(store, model=model) as scheduler:
        scheduler.run_task("Begin")
        child = child_of(scheduler)

    def purge(conversation_id: UUID, kind: str, text: str) -> None:
        if kind == "turn_aborted":
            store.purge(child, reason="asked to")

    model = Scripted(call("send", conversation_id=str(child), text="And?"), "A pity.")
    with Scheduler.open(store, scheduler.root, model=model, on_event=purge) as again:
        result = again.run_task("Ask it.")

    assert ("complete", "A pity.") == (result.status, result.last_assistant_message)
    assert False is told(model)["ok"]


def test_a_task_of_an_unknown_conversation_stops_nobody(store: EventStore) -> None:
    """It fails; before, each later list of the conversations raised."""
    with Scheduler.create(store, model=Scripted(call("list"), "None.")) as scheduler:
        scheduler.enqueue([TaskPlan(conversation_id=new_id(), input_items="Go")])
        [found] = scheduler.run()
        assert "failed" == found.status
        assert [str(scheduler.root)] == [each["id"] for each in scheduler.conversations()]
        assert "complete" == scheduler.run_task("List them.").status


@pytest.mark.parametrize(("depth", "refusal"), [(-1, ValueError), ("3", TypeError)])
def test_a_depth_that_is_none(store: EventStore, depth: int, refusal: type[Exception]) -> None:
    """It failed in the first call of a tool; now nothing is begun."""
    with pytest.raises(refusal, match="max_interrupt_chain_depth"):
        Scheduler.create(store, model=Scripted(), max_interrupt_chain_depth=depth)
    assert [] == store.list()


def test_a_closed_scheduler_says_so(store: EventStore) -> None:
    """It said that another writer had opened the conversation."""
    with Scheduler.create(store, model=Scripted("Hello.")) as scheduler:
        scheduler.run_task("Hi")
    plan = TaskPlan(conversation_id=scheduler.root, input_items="More")

    for write in (
        lambda: scheduler.enqueue([plan]),
        lambda: scheduler.abort_current_and_enqueue([plan]),
        lambda: scheduler.run_task("More"),
        lambda: scheduler.run(),
        lambda: scheduler.destroy(new_id()),
    ):
        with pytest.raises(RuntimeError, match="the scheduler is closed"):
            write()
    scheduler.close()
    assert 2 == len(scheduler.history(scheduler.root))


def test_the_id_of_a_task_is_text(store: EventStore) -> None:
    """An error of SQLAlchemy's left `enqueue`."""
    with Scheduler.create(store, model=Scripted()) as scheduler:
        plan = TaskPlan(conversation_id=scheduler.root, task_id=5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="task_id must be a string, not 5"):
            scheduler.enqueue([plan])
        assert [] == scheduler.run()


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_closing_ends_every_session(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Also if one of them raises: the others would stay in use."""
    scheduler = Scheduler.create(store, model=Scripted("Hello.", "Hello."))
    ids = [Conversation.start(store).id for _ in range(2)]
    for each in ids:
        Conversation.open(store, each, if_busy="take_over").close()
        scheduler._runs._session(each)
    follow = AgentSession.close
    failed: list[UUID] = []

    def close(session: AgentSession, reason: str | None = None) -> None:
        follow(session, reason)
        failed.append(session.id)
        raise error

    monkeypatch.setattr(AgentSession, "close", close)
    with pytest.raises(error):
        scheduler.close()

    assert {scheduler.root, *ids} == {*failed}
    assert [None] * 3 == [store.writer(each) for each in (scheduler.root, *ids)]
