"""Write the reference page ``docs/cli.md`` from the commands' help.

``python scripts/cli_page.py [FILE]`` writes it; a test checks that it is current.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from agent_eventstore.cli import cli
from agent_eventstore.cli.program import NAME

__all__ = ["main", "reference"]

_PAGE = Path("docs", "cli.md")
_WIDTH = 80
_EVERYWHERE = re.compile(r"^  (?:--db|-v, --verbose|-h, --help) .*\n?", re.MULTILINE)
"""The options of every command, which are shown once."""
_INTRODUCTION = """\
# Command line

Look up a command and its options here; `eventstore COMMAND --help` shows the same, from which
`python scripts/cli_page.py` generates this page.

Name the database with `--db URL`, before or after the command, or in the variable
`EVENTSTORE_URL`. The default is the file `eventstore.db` in the current directory. Only `import`,
`chat`, `demo` and `db upgrade` create a database or change its schema. `--read-only` may also
come before or after the command. Every command takes `--verbose` and `--help`, too; these options
are shown once, at the top.

To open a store that encrypts its payloads, pass `--keys DIR` before the command, or set
`EVENTSTORE_KEYS`; see [security](security.md#crypto-shredding).

Name a conversation (`CID`) by its id, by any unique prefix of the id, or by its key
(`TENANT/KEY` if it belongs to a tenant). Tables shorten ids as long as they stay unique; `list`
and `--json` show them in full.

With `--json` a command writes one JSON document to stdout and nothing else. Progress, logs
(`--verbose`) and errors go to stderr. Control characters in text from people and models are shown
as escapes such as `\\x1b`. JSON and exports use JSON's escapes for them on a terminal, and the
characters themselves in a file or a pipe: the value is the same.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | the check found a problem: `verify`, `doctor`, `rebuild`, a bad record in `import`, `demo` |
| 2 | wrong usage, or something does not exist: one line on stderr |
| 130 | interrupted from the keyboard |
| 141 | the reader of the output closed it, as `head` does |

A good first look, after `eventstore demo`:

```sh
export EVENTSTORE_URL=sqlite:///eventstore-demo.db
eventstore list
eventstore timeline 01                        # a prefix of the id is enough
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
    command, text = context.command, context.command.get_help(context)
    if context.parent:
        text = _EVERYWHERE.sub("", text).replace("Options:\n\n", "").removesuffix("Options:\n")
    yield f"## `{context.command_path}`\n\n```text\n{text.strip()}\n```\n"
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
    """Write the page to the given file, or to ``docs/cli.md``."""
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else _PAGE
    page.write_text(reference(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
