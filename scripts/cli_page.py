"""The reference page ``docs/cli.md``, made from the commands' own help.

``python scripts/cli_page.py [FILE]`` writes it; a test checks that it is current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from agent_eventstore.cli import cli
from agent_eventstore.cli.program import NAME

__all__ = ["main", "reference"]

_PAGE = Path("docs", "cli.md")
_WIDTH = 80
_INTRODUCTION = """\
# Command line

This page is generated from the commands' help, by `python scripts/cli_page.py`.

The database is named by `--db URL`, before or after the command, or by the variable
`EVENTSTORE_URL`; otherwise it is the file `eventstore.db` of the current directory. Only `import`,
`chat`, `demo` and `db upgrade` create a database or change its schema. `--read-only`, too, may
stand before or after the command.

A store that seals what it writes is opened with `--keys DIR` before the command, or by the variable
`EVENTSTORE_KEYS`; see [security](security.md#crypto-shredding).

A conversation (`CID`) is named by its id, by any beginning of it that is unique, or by its key:
`TENANT/KEY` where it is a tenant's. Tables show ids shortened where that tells them apart; `list`
and `--json` show them whole.

With `--json` a command writes one JSON document to stdout and nothing else. Progress, logs
(`--verbose`) and errors go to stderr. Control characters in what people and models wrote are shown
as escapes such as `\\x1b`. JSON and exports have JSON's escapes for them on a terminal, and the
characters themselves in a file or a pipe: the value is the same.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | the check found something: `verify`, `doctor`, `rebuild`, a bad record in `import`, `demo` |
| 2 | wrong use or a missing thing, in one line on stderr |
| 130 | interrupted from the keyboard |
| 141 | whoever read the output closed it, as `head` does |

A good first look, after `eventstore demo`:

```sh
export EVENTSTORE_URL=sqlite:///eventstore-demo.db
eventstore list
eventstore timeline 01                        # a beginning of the id is enough
eventstore context 01 --max-tokens 800 --explain
eventstore events 01 --json | python -m json.tool | less
eventstore usage --by day
eventstore tools --status failed
```
"""


def reference() -> str:
    """Return the page."""
    root = _context(cli, NAME, None)
    return "\n".join((_INTRODUCTION, *_sections(root)))


def _sections(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f"## `{context.command_path}`\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _sections(_context(found, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {} if parent else command.context_settings
    return click.Context(
        command,
        parent=parent,
        info_name=name,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        **settings,
    )


def main() -> None:
    """Write the page to the file that is named, or to ``docs/cli.md``."""
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else _PAGE
    page.write_text(reference(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
