"""A scheduler that is killed after any of its appends: every task ends once, whoever goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from eventstore import EventStore
from eventstore.events import TaskEnd, TaskEnqueue, TaskStart, ToolCall, ToolResult
from projections import Views
from projections.payload_text import SEALS
from tests.crash.world import KillableStore, World
from tests.exhaustive import partly
from tests.killable_processes import KILLED, killable_processes
from tests.scheduling.killable_scheduler import FIRST, live

PARTS = 8
"""Tests of the matrix, so that several processes may share it; `make test` runs one."""

Life = Callable[..., int]


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    """Give what lets a scheduler live in a process that dies after so many appends."""
    with killable_processes("tests.scheduling.killable_scheduler") as run:
        yield run


@pytest.mark.parametrize("part", partly(range(PARTS)))
def test_every_task_ends_once_wherever_the_process_is_killed(
    life: Life, database_url: str, tmp_path: Path, part: int
) -> None:
    """A create and a nested send, killed after each append, and gone on with by another process."""
    after, status = part + 1, KILLED
    with KillableStore.open(database_url, synchronous="NORMAL", pool_size=3) as store:
        assert isinstance(store, KillableStore)
        while status == KILLED:
            root, folder = uuid4(), tmp_path / str(after)
            folder.mkdir()
            status = life(database_url, str(root), str(folder), after)
            check_completes(store, root, folder)
            after += PARTS
    assert 0 == status
    assert after > 50


@pytest.mark.parametrize("every", partly([14, 23]))
def test_every_task_ends_once_though_each_process_dies(
    life: Life, database_url: str, tmp_path: Path, every: int
) -> None:
    """Those that go on are killed as well, until one comes to the end."""
    EventStore.open(database_url).close()
    root, lives = uuid4(), 1
    while life(database_url, str(root), str(tmp_path), every) == KILLED:
        lives += 1
    with KillableStore.open(database_url, synchronous="NORMAL", pool_size=3) as store:
        assert isinstance(store, KillableStore)
        check_completes(store, root, tmp_path)
    assert 2 < lives < 20


def check_completes(store: KillableStore, root: UUID, folder: Path) -> None:
    """Open what a killed process left, see it through, and look at what became of it."""
    store.world = World(folder)
    live(store, str(root))
    views, events = Views(store), [event.data for event in store.read(root)]
    tasks = views.tasks(root)
    members = {root, *(UUID(str(task.target_conversation_id)) for task in tasks)}

    expected = ["aborted", "complete", "aborted", "aborted", "complete", "complete", "complete"]
    assert sorted(expected) == sorted(str(task.status) for task in tasks)
    ids = sorted(task.task_id for task in tasks)
    assert ids == sorted(e.task_id for e in events if isinstance(e, TaskEnqueue))
    assert ids == sorted(e.task_id for e in events if isinstance(e, TaskStart))
    assert ids == sorted(e.task_id for e in events if isinstance(e, TaskEnd))
    assert FIRST in ids
    last = [e.last_assistant_message for e in events if isinstance(e, TaskEnd)][-1]
    assert "done: reviewed, explained" == last
    assert 3 == len(members)
    for each in members:
        check_calls(store, views, each)


def check_calls(store: EventStore, views: Views, conversation_id: UUID) -> None:
    """Nothing is open, and what was begun was closed once."""
    work = views.open_work(conversation_id)
    assert (0, (), None) == (work.open_count, work.tool_calls, work.session)
    events = [event.data for event in store.read(conversation_id)]
    begun = Counter(e.call_id for e in events if isinstance(e, ToolCall))
    closed = Counter(
        e.call_id for e in events if isinstance(e, ToolResult) and e.status not in SEALS
    )
    assert begun == closed
    assert {*begun.values()} <= {1}
