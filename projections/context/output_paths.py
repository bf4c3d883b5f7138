"""Paths of full outputs in a request, which are included only if they can be read.

A shortened text contains its path since it was folded. A request of a product with neither a tool
that reads outputs nor a directory of them is sent without paths.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from eventstore.ids import call_id
from projections.context.plans import Group, Plan, Planned
from projections.context.rows import ContextRow, counted
from projections.tokens import Tokenizer, counts

__all__ = ["READ_OUTPUT", "in_part", "message_alias", "without_path"]


READ_OUTPUT = "read_output"
"""The name of the tool that reads full outputs; see `agent_eventstore.artifacts`."""

_PLACE = "@state/logs/tool-results/"
_MESSAGES = "@state/logs/messages/"


def message_alias(version: int) -> str:
    """Return the alias under which a user's message can be read in full."""
    return f"{_MESSAGES}{version}.txt"


def in_part(plan: Plan, recalled: Sequence[Group] = ()) -> Iterator[tuple[str, int, bool]]:
    """Yield call id and version of the tool results that a request includes only in part.

    The third value tells whether the digest describes it, by a path that ends in ``.txt``.

    Dropped results are excluded, unless they are in the digest or recalled.
    """
    again = {group.key for group in recalled}
    there = (each for each in plan.groups if each.group.key not in again)
    for planned in (*there, *map(Planned.whole, recalled)):
        for row in planned.group.rows if planned.level != "dropped" else ():
            if row.kind != "tool" or row.result_version is None:
                continue
            call = call_id(row.version, row.part - 1)
            # A result sent as stored may itself be a preview.
            if planned.level != "full" or f"{_PLACE}{call}." in str(row.message.get("content")):
                yield call, row.result_version, planned.level == "facts"


def without_path(row: ContextRow, tokenizer: Tokenizer) -> ContextRow:
    """Return a tool row without the path of its full output; other rows unchanged."""
    text = row.message.get("content") if row.kind == "tool" else None
    if not isinstance(text, str):
        return row
    name = f"{_PLACE}{call_id(row.version, row.part - 1)}"
    bare = text
    for path in filter(None, (row.full_alias, f"{name}.txt", f"{name}.json")):
        bare = bare.replace(f"\nFull output: {path}", "")
        bare = bare.replace(f'"full_output":{json.dumps(path, ensure_ascii=False)},', "")
    if bare == text:
        return row
    message = {**row.message, "content": bare}
    return row.with_(**counted(message, counts.count(message, tokenizer), tokenizer.name))
