"""``eventstore keys``: the keys of a store that seals what it writes."""

from __future__ import annotations

import click

from agent_eventstore.cli.console import say
from agent_eventstore.cli.options import Target, common, with_target
from agent_eventstore.cli.program import Failed
from agent_eventstore.cli.text import plural

__all__ = ["keys"]


@click.group()
def keys() -> None:
    """Look after the keys of sealed conversations."""


@keys.command("rewrap")
@common
@with_target
def rewrap(target: Target) -> None:
    """Wrap every key with the first --key-file.

    Give the new file first and the old one after it. Processes that are given both go on
    meanwhile. It can be interrupted and repeated.
    """
    found = target.keys()
    if found is None:
        raise Failed("name the directory of the keys with --keys or EVENTSTORE_KEYS")
    if not target.key_files:
        raise Failed("name the new wrapping key with --key-file, then the old one if there was any")
    try:
        done = found.rewrap()
    except LookupError as error:
        raise Failed(f"{error}: give its file too, after the new one") from error
    say(f"{plural(done, 'key')} rewrapped")
