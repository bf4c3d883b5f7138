"""The message that holds the gists: what earlier messages named, a line for each."""

from __future__ import annotations

from eventstore.tokens import Tokenizer
from projections.compression.reduction import digest_line
from projections.context import counts
from projections.context.planning import Plan
from projections.context.prompts import DIGEST_HEADER, DIGEST_TITLE
from projections.context.rows import ContextRow

__all__ = ["digest_row"]


def digest_row(plan: Plan, tokenizer: Tokenizer, *, paths: bool = True) -> ContextRow | None:
    """Return the row of the digest, at the place of its oldest line; None if nothing is in it.

    With ``paths`` it tells where the whole of an output is.
    """
    told = [each for each in plan.groups if each.level == "gist"]
    if not told:
        return None
    lines = (digest_line(each.item, each.facts) for each in told if each.item is not None)
    text = "\n".join((DIGEST_HEADER if paths else DIGEST_TITLE, *lines))
    count = counts.composed(text, tokenizer)
    version, part = told[0].group.key
    return ContextRow(
        version=version,
        part=part,
        role="system",
        kind="summary",
        message={"role": "system", "content": text},
        tokens=count.tokens,
        tokens_exact=count.exact,
        tokens_margin=count.margin,
        encoding=tokenizer.name,
        source_versions=sorted({v for each in told for v in each.group.source_versions}),
    )
