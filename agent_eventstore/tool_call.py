"""The recorded execution of a tool call within a turn, for threads and event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Generic, Self

from agent_eventstore.artifacts import ToolOutputs, checked_alias
from agent_eventstore.current import Block
from agent_eventstore.errors import ToolDenied
from agent_eventstore.inputs import Content, content_of
from agent_eventstore.journal import INTERRUPTIONS, Journal
from agent_eventstore.journal_aio import AsyncJournal
from agent_eventstore.machines import ToolScript
from agent_eventstore.session import JournalT
from eventstore import Appended
from eventstore.errors import ErrorType, Traceback
from eventstore.events import Sections, Ui
from eventstore.threads import finish, to_thread

__all__ = ["AsyncToolBlock", "ToolBlock"]


class _Execution(Block, Generic[JournalT]):
    """The common base of `ToolCall` and `AsyncToolCall`."""

    def __init__(
        self,
        journal: JournalT,
        script: ToolScript,
        outputs: ToolOutputs,
        inside: Callable[[str], None],
    ) -> None:
        self._journal: JournalT = journal
        self._script = script
        self._outputs = outputs
        self._inside = inside

    @property
    def call_id(self) -> str:
        """The store's own id of the call."""
        return self._script.call.call_id

    @property
    def idempotency_key(self) -> str:
        """The key by which the tool can recognise a second execution of this call."""
        return self._script.idempotency_key

    def _shown(
        self,
        preview: str | None,
        sections: Sections | None,
        ui: Ui | None,
        alias: str | None,
    ) -> dict[str, Any]:
        """Return the options of a result that say how it is shown."""
        self._within("tool.result")
        return {"preview": preview, "sections": sections, "ui": ui, "alias": checked_alias(alias)}


class ToolBlock(_Execution[Journal]):
    """The execution of a tool call.

    Entering makes the call durable; only then may the tool run. Leaving without a result records an
    empty success. An exception is recorded as the failure and propagates to the caller. A tool that
    the policy does not allow never runs: entering records the call as ``denied`` and raises.
    """

    _form = "with turn.tool(call) as tool:"

    def __enter__(self) -> Self:
        """Write the call.

        Raises:
            ToolDenied: The tool policy does not allow the tool.
        """
        self._enter_once()
        self._inside("turn.tool")
        if refusal := self._script.refusal:
            self._state = "over"
            self._journal.record(self._script.deny(refusal))
            raise ToolDenied(self.call_id, self._script.call.name, refusal)
        try:
            self._journal.write(self._script.begin())
            self._script.tell_again()
            # The duration excludes this write.
            self._script.started_at = time.monotonic()
            self._state = "open"
            return self
        except INTERRUPTIONS as error:
            self._state = "over"
            self._journal.abandon(self._script.begin(), self._script.abandoned(error))
            raise
        except Exception as error:
            self._script.tracing.fail(error)
            raise

    def result(
        self,
        content: Content,
        *,
        preview: str | None = None,
        sections: Sections | None = None,
        ui: Ui | None = None,
        alias: str | None = None,
    ) -> None:
        """Record the tool's result; large text goes to a blob.

        Args:
            content: Text, content parts, or any JSON value, which becomes text.
            preview: The text to show instead of a text that is too large; by default its start.
            sections: The result at several levels of detail.
            ui: How a user interface shows the result; the model does not see this.
            alias: Your product's own path, ``@project/artifacts/...``, by which the model may read
                the full result; by default a path under ``@state/``.

        Raises:
            BlockNotOpen: The block has not been entered, or has been left.
            InvalidEvent: JSON cannot represent the content.
            ValueError: The alias is not a valid path.
        """
        shown = self._shown(preview, sections, ui, alias)
        self._end(status="success", content=content_of(content), **shown)

    def fail(self, error: str, *, sections: Sections | None = None) -> None:
        """Record that the tool failed; the model reads ``error``."""
        self._within("tool.fail")
        self._end(status="failed", content=error, error=error, sections=sections)

    def __exit__(self, kind: ErrorType, error: BaseException | None, trace: Traceback) -> None:
        """Record the failure, or an empty success, unless a result is recorded already."""
        self._state = "over"
        self._journal.record(self._script.leave(time.monotonic(), error))

    def _end(self, **result: Any) -> None:
        recorded: list[Appended] = []
        self._journal.record(self._script.end(time.monotonic(), **result), recorded.append)
        for done in recorded:
            self._outputs.keep(done.events[-1], result.get("content"))


class AsyncToolBlock(_Execution[AsyncJournal]):
    """`ToolCall` for an event loop."""

    _form = "async with turn.tool(call) as tool:"

    async def __aenter__(self) -> Self:
        """Write the call; see `ToolCall`."""
        self._enter_once()
        self._inside("turn.tool")
        if refusal := self._script.refusal:
            self._state = "over"
            await self._journal.record(self._script.deny(refusal))
            raise ToolDenied(self.call_id, self._script.call.name, refusal)
        try:
            await self._journal.write(self._script.begin())
            self._script.tell_again()
        except asyncio.CancelledError as error:
            self._state = "over"
            await self._journal.abandon(self._script.begin(), self._script.abandoned(error))
            raise
        except Exception as error:
            self._script.tracing.fail(error)
            raise
        self._state = "open"
        # The duration excludes this write.
        self._script.started_at = time.monotonic()
        return self

    async def result(
        self,
        content: Content,
        *,
        preview: str | None = None,
        sections: Sections | None = None,
        ui: Ui | None = None,
        alias: str | None = None,
    ) -> None:
        """Record the tool's result; see `ToolCall.result`."""
        shown = self._shown(preview, sections, ui, alias)
        await self._end(status="success", content=content_of(content), **shown)

    async def fail(self, error: str, *, sections: Sections | None = None) -> None:
        """Record that the tool failed; the model reads ``error``."""
        self._within("tool.fail")
        await self._end(status="failed", content=error, error=error, sections=sections)

    async def __aexit__(
        self, kind: ErrorType, error: BaseException | None, trace: Traceback
    ) -> None:
        """Record the failure, or an empty success, unless a result is recorded already."""
        self._state = "over"
        await self._journal.record(self._script.leave(time.monotonic(), error))

    async def _end(self, **result: Any) -> None:
        await finish(self._record(result))

    async def _record(self, result: dict[str, Any]) -> None:
        recorded: list[Appended] = []
        await self._journal.record(self._script.end(time.monotonic(), **result), recorded.append)
        for done in recorded:
            event, content = done.events[-1], result.get("content")
            if self._outputs.wanted(event, content):
                await to_thread(self._outputs.keep, event, content)
