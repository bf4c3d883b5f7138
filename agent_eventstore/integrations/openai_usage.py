"""What the model calls of a run have used, as the SDK's runner tells it to a session: pure."""

from __future__ import annotations

from typing import Any

from agent_eventstore.providers.base import plain
from agent_eventstore.providers.usage import responses_usage
from eventstore.events import TokenUsage

__all__ = ["RunUsage", "counts_of"]

_DETAILS = {"input_tokens_details": "cached_tokens", "output_tokens_details": "reasoning_tokens"}


class RunUsage:
    """Tells what a run has used since it was last asked; the SDK adds up over the whole run."""

    def __init__(self) -> None:
        self._of: Any = None
        self._told = 0

    def since(self, wrapper: Any) -> TokenUsage | None:
        """Return the tokens of the calls since the last time; None where none is known.

        Args:
            wrapper: The SDK's `RunContextWrapper`, or None.
        """
        usage = getattr(wrapper, "usage", None)
        entries = getattr(usage, "request_usage_entries", None) or []
        if usage is not self._of:
            # One that was restored with its run counts what others have recorded.
            self._of, self._told = usage, max(0, len(entries) - 1)
        new, self._told = entries[self._told :], len(entries)
        if not new:
            return None
        added: dict[str, Any] = {}
        for entry in map(counts_of, new):
            for name, value in entry.items():
                if isinstance(value, dict):
                    inner = added.setdefault(name, {})
                    for detail, count in value.items():
                        inner[detail] = inner.get(detail, 0) + count
                else:
                    added[name] = added.get(name, 0) + value
        return responses_usage(added)


def counts_of(usage: Any) -> dict[str, Any]:
    """Return the counts of the SDK's `Usage`, or of one request of it, as a response has them."""
    found: dict[str, Any] = {
        name: getattr(usage, name, 0) or 0
        for name in ("input_tokens", "output_tokens", "total_tokens")
    }
    for name, detail in _DETAILS.items():
        told = plain(getattr(usage, name, None))
        if isinstance(told, dict) and isinstance(count := told.get(detail), int):
            found[name] = {detail: count}
    return found
