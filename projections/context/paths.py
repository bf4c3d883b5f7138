"""Paths of whole outputs in a request, which tells them only where somebody can read them.

What was shortened has its path in its text since it was folded; a request whose product has neither
a tool that reads outputs nor a directory of them is sent without.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from eventstore.ids import call_id
from eventstore.tokens import Tokenizer
from projections import token_counts
from projections.context.plans import Plan
from projections.context.rows import ContextRow

__all__ = ["READ_OUTPUT", "in_part", "without_path"]

READ_OUTPUT = "read_output"
"""The name of the tool that reads whole outputs; see `agent_eventstore.read_output`."""

_PLACE = "@state/logs/tool-results/"


def in_part(plan: Plan) -> Iterator[tuple[str, int, bool]]:
    """Yield call id and version of the tool results that a request holds, but does not hold whole.

    The third value says whether the digest tells of it, by a path that ends in ``.txt``.

    What was dropped is not told of, unless it stands in the digest.
    """
    for planned in plan.groups:
        for row in planned.group.rows if planned.level != "dropped" else ():
            if row.kind != "tool" or row.result_version is None:
                continue
            call = call_id(row.version, row.part - 1)
            # Also what is sent as it stands may stand there as a preview.
            if planned.level != "live" or f"{_PLACE}{call}." in str(row.message.get("content")):
                yield call, row.result_version, planned.level == "gist"


def without_path(row: ContextRow, tokenizer: Tokenizer) -> ContextRow:
    """Return a row that does not tell the path of its own whole output; others as they are."""
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
    count = token_counts.count(message, tokenizer)
    return row.with_(
        message=message,
        tokens=count.tokens,
        tokens_exact=count.exact,
        tokens_margin=count.margin,
        encoding=tokenizer.name,
    )
