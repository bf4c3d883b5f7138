"""``eventstore follow``: all events of a store as they are committed, as lines."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import click

from agent_eventstore.cli import render
from agent_eventstore.cli.console import note, plural, say, write_json
from agent_eventstore.cli.options import common
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.target import Target
from agent_eventstore.documents import event_document, json_bytes
from eventstore.errors import InvalidCursor

__all__ = ["follow"]

_SHORTEST_S, _LONGEST_S = 0.02, 0.5  # between two looks, while the store is busy, and at rest


@click.command()
@click.option("--from", "after", metavar="CURSOR", help="Only events after this place.")
@click.option("--once", is_flag=True, help="Exit at the end of the log.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
@common
def follow(target: Target, after: str | None, once: bool, as_json: bool) -> None:
    """Print all events as they are committed.

    It goes on until it is stopped. With --json, each line is an event with its whole payload. The
    last line of each page has a cursor: whoever has processed it goes on with --from CURSOR, and
    misses nothing, also after a crash. Events that cannot be read are named on stderr, and passed.
    """
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    with target.open() as store:
        before = [(each, signal.signal(each, end)) for each in (signal.SIGINT, signal.SIGTERM)]
        pause = _SHORTEST_S
        try:
            while True:
                page = store.read_all(after=after)
                for passed in page.passed:
                    events = plural(passed.count, "event")
                    note(f"passed {events} of {passed.conversation_id}: {passed.reason}", "yellow")
                for number, event in enumerate(page, 1):
                    if as_json:
                        place = {"cursor": page.cursor} if number == len(page) else {}
                        line = json_bytes({**event_document(event), **place})
                        write_json(f"{line.decode()}\n")
                    else:
                        say(f"{event.conversation_id} {event.version} {render.brief(event)}")
                is_idle = page.cursor == after
                after = page.cursor
                if (once and is_idle) or stop.wait(0 if page.events else pause):
                    break
                pause = min(pause * 1.3, _LONGEST_S) if is_idle else _SHORTEST_S
        except InvalidCursor as error:
            raise Failed(str(error)) from error
        finally:
            for each, handler in before:
                signal.signal(each, handler)
    if not as_json and after is not None:
        note(f"go on with --from {after}")
