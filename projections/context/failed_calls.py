"""Which failed model calls a request contains, and as what.

A failed call is sent with its error only while a "continue" may need it: it is the newest failure,
newer than the second-latest user message, and nothing has answered the message that it failed to
answer. Of every other failure only the text that had streamed is sent, since the user saw it, with
a note that it broke off there. A failure without such text is not sent at all, nor is an answer
without any content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from projections.context.compression.search import Embedding
from projections.context.counting import ENCODING
from projections.context.payload_messages import is_blank
from projections.context.prompts import BROKEN_OFF
from projections.context.rows import ContextRow, Key, counted
from projections.context.source import ContextHead, RowSource
from projections.tokens import counts, tokenizer_for

__all__ = ["SettledSource"]

_PAGE = 64
_TOKENIZER = tokenizer_for(ENCODING)
_WITHOUT_CALLS = frozenset({"role", "content", "name"})
_ANSWERS = frozenset({"assistant", "tool", "error"})


class SettledSource:
    """A `RowSource` without the errors that no "continue" needs any more.

    Attributes:
        pending: The key of the failed call that is sent with its error, or None.
    """

    def __init__(self, source: RowSource, *, failed_turns: bool = True) -> None:
        """Wrap a source; without ``failed_turns``, leave out turns that ended with a failure.

        The latest user message and what followed it stay, except the failure itself.
        """
        self._source, self._failed_turns = source, failed_turns
        self._error = self._unanswered() if failed_turns else None
        self.pending: Key | None = None if self._error is None else self._error.key

    def head(self) -> ContextHead:
        """See `RowSource.head`."""
        return self._source.head()

    def latest_user(self) -> ContextRow | None:
        """See `RowSource.latest_user`."""
        return self._source.latest_user()

    def latest_error(self) -> ContextRow | None:
        """Return the failed call that is sent with its error, or None."""
        return self._error

    def newest(self, page: int) -> Iterator[ContextRow]:
        """See `RowSource.newest`."""
        rows = self._source.newest(page)
        return self._settled(rows if self._failed_turns else _without_failed_turns(rows))

    def rows_at(self, versions: Sequence[int]) -> Sequence[ContextRow]:
        """See `RowSource.rows_at`."""
        return [*self._settled(self._source.rows_at(versions))]

    def lasting(self, before: int, limit: int) -> Sequence[ContextRow]:
        """See `RowSource.lasting`."""
        return self._source.lasting(before, limit)

    def rows_around(self, versions: Sequence[int]) -> Sequence[ContextRow]:
        """See `RowSource.rows_around`."""
        return [*self._settled(self._source.rows_around(versions))]

    def search(
        self,
        intent: str,
        limit: int,
        *,
        until: Key | None = None,
        embedding: Embedding | None = None,
    ) -> Mapping[Key, float]:
        """See `RowSource.search`."""
        return self._source.search(intent, limit, until=until, embedding=embedding)

    def _unanswered(self) -> ContextRow | None:
        """Return the latest error, unless the message that it failed to answer has an answer."""
        error = self._source.latest_error()
        if error is None:
            return None
        answered = False
        for row in self._source.newest(_PAGE):
            if row.key <= error.key:
                break
            answered = row.kind == "assistant" or (answered and row.kind != "user")
        return None if answered else error

    def _settled(self, rows: Iterable[ContextRow]) -> Iterator[ContextRow]:
        for row in rows:
            if row.kind != "error" or row.key == self.pending:
                if not _is_nothing(row):
                    yield row
            elif self._failed_turns and (broken_off := _broken_off(row)) is not None:
                yield broken_off


def _is_nothing(row: ContextRow) -> bool:
    """Whether a row is an answer without content, which some servers refuse."""
    empty = row.kind == "assistant" and is_blank(row.message["content"])
    return empty and not row.native and row.message.keys() <= _WITHOUT_CALLS


def _broken_off(error: ContextRow) -> ContextRow | None:
    """Return a failed call as the text that had streamed; None if none had."""
    length = (error.given or {}).get("partial")
    if not length:
        return None
    text = f"{error.message['content'][:length]}\n\n{BROKEN_OFF}"
    message = {**error.message, "content": text}
    measured = counted(message, counts.count(message, _TOKENIZER), ENCODING)
    return error.with_(**measured, kind="assistant", given=None)


def _without_failed_turns(rows: Iterable[ContextRow]) -> Iterator[ContextRow]:
    """Yield rows, newest first, without the turns whose last message is a failed call."""
    latest, failed, decided = True, False, False
    for row in rows:
        if row.kind in _ANSWERS and not decided:
            failed, decided = row.kind == "error" and not latest, True
        if not (failed and (row.kind in _ANSWERS or row.kind == "user")):
            yield row
        if row.kind == "user":
            latest = failed = decided = False
