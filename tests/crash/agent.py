"""A scripted agent that uses the recorder as a product does, and can be killed anywhere.

`live` is its whole life: a turn with parallel tools, a run of two nodes, a turn whose stream breaks
and is repeated. `carry_on` is what the product does after a crash: it opens the conversation, says
"continue", does the offered calls again, and completes the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from agent_eventstore.conversation import Conversation
from agent_eventstore.llm_call import LlmCall
from agent_eventstore.machines import Executable
from agent_eventstore.requests import Request
from agent_eventstore.run_blocks import Run
from agent_eventstore.turn import Turn
from eventstore import EventStore
from eventstore.events import RunNode
from tests.checkers import check_openai_messages
from tests.crash.stand_in import Wanted, answer, pieces_of, text_of
from tests.crash.world import Chunk, Kill, KillableStore, World

__all__ = ["IDEMPOTENT", "carry_on", "live"]

IDEMPOTENT = frozenset({"save"})
_PROSE = "The quick brown fox jumps over the lazy dog, and thinks about it for a while. "
_NODES = (RunNode(node_id="collect"), RunNode(node_id="write", depends_on=("collect",)))


def live(url: str, conversation_id: str, folder: str, kill: Kill) -> None:
    """Begin the conversation and live until killed, or to the end of the script."""
    world = World(Path(folder), kill)
    with KillableStore.open(url, migrate=False, synchronous="NORMAL", pool_size=2) as store:
        store.world = world
        with Conversation.start(store, mode="agent", conversation_id=UUID(conversation_id)) as own:
            with own.turn("charge and save") as turn:
                _use(turn, world, _ask(turn, world, 9, [("charge", {"n": 1}), ("save", {"n": 1})]))
                _ask(turn, world, 2)
            run = own.start_run("report", directive="Write a report.", nodes=_NODES)
            _work(run, "collect", world, [("charge", {"n": 2})])
            _work(run, "write", world, [("save", {"n": 2})])
            run.complete("Answer questions about the report.")
            with own.turn("sum it up") as turn:
                _retry(turn, world)
    world.await_death()


def carry_on(store: EventStore, conversation_id: UUID, world: World) -> None:
    """Open the conversation after a crash, and complete it."""
    with Conversation.open(store, conversation_id) as own:
        offered = own.recovery.re_executable if own.recovery else ()
        with own.turn("continue") as turn:
            for call in offered:
                with turn.tool(call) as tool:
                    tool.result(world.effect(call.name, tool.idempotency_key))
            _ask(turn, world, 1)
        while (resumed := own.resume_run()) is not None:
            if resumed.node is None:
                resumed.run.complete()
            else:
                _work(resumed.run, resumed.node.node_id, world, ())


def _work(run: Run, node: str, world: World, calls: Sequence[Wanted]) -> None:
    with run.step(node, brief=f"do {node}") as step:
        with run.turn(f"now {node}") as turn:
            call = _ask(turn, world, 2, calls)
            _use(turn, world, call)
            if calls:
                _ask(turn, world, 1)
        step.artifact(node, content={"text": call.text})


def _ask(turn: Turn, world: World, length: int, calls: Sequence[Wanted] = ()) -> LlmCall:
    with turn.llm_call(_request(turn, world), model="gpt-4o") as call:
        for chunk in world.heard(call.id, _told(answer(pieces_of(_PROSE * length, 11), calls))):
            call.feed(chunk)
    return call


def _request(turn: Turn, world: World) -> Request | None:
    """Return what the model is sent; one that will be killed is spared the reading, for speed."""
    if world.killable:
        return None
    request = turn.context(max_tokens=20_000)
    assert [] == check_openai_messages(request.messages)
    return request


def _use(turn: Turn, world: World, asked: LlmCall) -> None:
    """Run the tools side by side: all are begun before the first has done its work."""
    _nested(turn, world, asked.tool_calls)


def _nested(turn: Turn, world: World, calls: Sequence[Executable]) -> None:
    if not calls:
        return
    call, *others = calls
    with turn.tool(call, idempotent=call.name in IDEMPOTENT) as tool:
        _nested(turn, world, others)
        tool.result(world.effect(call.name, tool.idempotency_key))


def _retry(turn: Turn, world: World) -> None:
    failed = turn.llm_call(model="gpt-4o")
    try:
        with failed:
            for chunk in world.heard(failed.id, _told(_broken())):
                failed.feed(chunk)
    except ConnectionError:
        with turn.llm_call(model="gpt-4o", retry_of=failed) as call:
            for chunk in world.heard(call.id, _told(answer(["Done", "."]))):
                call.feed(chunk)


def _broken() -> Iterator[Chunk]:
    yield from answer(["Do", "ne"], finish=False)
    raise ConnectionError("reset by peer")


def _told(chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, str]]:
    return ((chunk, text_of(chunk)) for chunk in chunks)
