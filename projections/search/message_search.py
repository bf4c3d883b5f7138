"""Search: the words of every message, in an index that the database maintains next to the rows.

A row is a message, or a piece of a long one. The fold produces its words; a trigger on the table
passes them to the index: FTS5 on SQLite, a ``tsvector`` with a GIN index on PostgreSQL. The index
also has the conversation's owner, so that a search of one user's messages touches no one else's.
Withdrawn messages and former titles have no words. An erasure deletes the rows and, on SQLite,
rewrites the index, so that none of the words remain in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from eventstore.events import (
    AssistantMessage,
    BranchSwitch,
    ConversationFork,
    ConversationStart,
    ConversationUpdate,
    LlmError,
    RecordedEvent,
    Retraction,
    UserMessage,
)
from projections import payload_text, version_ranges
from projections.engine import folding
from projections.engine.folding import Row, RowDraft
from projections.engine.projection import Change, Filling, Marked, Patch, ReadTable, State
from projections.search.words import pieces_of, words_of

__all__ = ["SEARCH", "SearchProjection", "SearchRow", "searched_text"]

_TABLE = "message_words"
_Titled = ConversationStart | ConversationFork | ConversationUpdate
_OWNER = (
    "(SELECT coalesce('u' || hex(user_id), '') || ' t' || hex(coalesce(tenant_id, '')) "
    "FROM conversations WHERE conversation_id = {row}.conversation_id)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow(Row):
    """The searchable form of a message, or of a piece of one.

    Attributes:
        version: The message's version.
        piece: 0-based index of the piece of a long message.
        role: ``user``, ``assistant`` or, for a conversation's title, ``title``.
        occurred_at: Time of the message.
        words: Its words as the index has them; NULL once the message is withdrawn or the title
            replaced.
        inactive: Whether it is on an inactive branch; if so, it is not found.
    """

    version: int
    piece: int
    role: str | None = None
    occurred_at: datetime | None = None
    words: str | None = None
    inactive: bool | None = None


@dataclass(frozen=True, slots=True)
class WordIndex:
    """The index of the words and their owner, maintained by triggers."""

    def made(self, table: str, dialect: str) -> Sequence[str]:
        """Return the SQL that creates the index and the triggers."""
        return _INDEXES[dialect].made(table)

    def marked(self, table: str, dialect: str) -> Marked | None:
        """Return how SQLite indexes many new rows in one statement.

        FTS5 flushes its memory before each statement that fires a trigger: row by row, indexing
        takes eight times as long.
        """
        return _INDEXES[dialect].marked(table)

    def filling(self, table: str, dialect: str) -> Filling | None:
        """Return how PostgreSQL indexes the rows of a rebuild: all at once, after all are inserted.

        Word by word took thirteen times as long. With pending lists it took a third longer, and
        rows and index took up half as much space again.
        """
        return _INDEXES[dialect].filling(table)


def _sqlite(table: str) -> Sequence[str]:
    index = f"{table}_beside"
    # Rows have their own number, because VACUUM may change SQLite's rowids.
    number = f"UPDATE {table} SET doc = (SELECT coalesce(max(doc), 0) + 1 FROM {table})"  # noqa: S608 - names of tables
    add = (
        f"INSERT INTO {index} (rowid, words, owner) SELECT doc, words, {_OWNER.format(row='new')} "  # noqa: S608 - likewise
        f"FROM {table} WHERE rowid = new.rowid AND words IS NOT NULL"
    )
    delete = (
        f"INSERT INTO {index} ({index}, rowid, words, owner) "
        f"SELECT 'delete', old.doc, old.words, {_OWNER.format(row='old')} "
        "WHERE old.words IS NOT NULL"
    )
    last = f"NOT EXISTS (SELECT 1 FROM {table} WHERE conversation_id = old.conversation_id)"  # noqa: S608 - likewise
    clear = f"INSERT INTO {index} ({index}) SELECT 'optimize' WHERE {last}"
    return (
        f"ALTER TABLE {table} ADD COLUMN doc INTEGER",
        f"CREATE INDEX ix_{table}_doc ON {table} (doc)",
        f"CREATE VIRTUAL TABLE {index} USING fts5 (words, owner, content='', tokenize='ascii')",
        (
            f"CREATE TRIGGER {table}_added AFTER INSERT ON {table} WHEN new.doc IS NULL BEGIN "
            f"{number} WHERE rowid = new.rowid; {add}; END"
        ),
        (
            f"CREATE TRIGGER {table}_changed AFTER UPDATE OF words ON {table} BEGIN "
            f"{delete}; {add}; END"
        ),
        f"CREATE TRIGGER {table}_deleted AFTER DELETE ON {table} BEGIN {delete}; {clear}; END",
    )


@cache
def _together(table: str) -> Marked:
    new = f"FROM {table} WHERE doc = 0"
    # SQLite gives consecutive rowids to the rows of one statement; here they are only read.
    number = (
        f"UPDATE {table} SET doc = rowid + (SELECT max(doc) FROM {table}) "  # noqa: S608 - names of tables
        f"- (SELECT min(rowid) {new}) + 1 WHERE doc = 0"
    )
    add = (
        f"INSERT INTO {table}_beside (rowid, words, owner) "  # noqa: S608 - likewise
        f"SELECT rowid + (SELECT max(doc) FROM {table}) - (SELECT min(rowid) {new}) + 1, "
        f"words, {_OWNER.format(row=table)} {new} AND words IS NOT NULL"
    )
    return Marked("doc", (add, number))


def _postgresql(table: str) -> Sequence[str]:
    # PostgreSQL's parser cannot split scripts without spaces, and depends on the locale.
    tokens = (
        "coalesce((SELECT string_agg('''' || word || ''':' || least(place, 16383), ' ') "
        "FROM unnest(string_to_array(new.words, ' ')) WITH ORDINALITY AS said (word, place) "
        "WHERE word <> ''), '')::tsvector"
    )
    owner = (
        "SELECT array_to_tsvector(array_remove(ARRAY['u=' || md5(user_id), "
        "'t=' || md5(coalesce(tenant_id, ''))], NULL)) "
        "FROM conversations WHERE conversation_id = new.conversation_id"
    )
    body = (
        f"new.tokens := {tokens} || coalesce(({owner}), ''::tsvector); "
        "IF new.words IS NULL THEN new.tokens := NULL; END IF; RETURN new;"
    )
    return (
        f"ALTER TABLE {table} ADD COLUMN tokens tsvector",
        _gin(table),
        (
            f"CREATE FUNCTION {table}_beside() RETURNS trigger LANGUAGE plpgsql "
            f"AS $$ BEGIN {body} END $$"
        ),
        (
            f"CREATE TRIGGER {table}_changed BEFORE INSERT OR UPDATE OF words ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {table}_beside()"
        ),
    )


def _gin(table: str) -> str:
    # Without a pending list (fastupdate), which every search would have to scan.
    return (
        f"CREATE INDEX IF NOT EXISTS ix_{table}_tokens ON {table} "
        "USING gin (tokens) WITH (fastupdate = off)"
    )


def _indexed_last(table: str) -> Filling:
    return Filling((f"DROP INDEX IF EXISTS ix_{table}_tokens",), (_gin(table),))


def _nothing(_: str) -> None:
    """Return nothing: the database needs no such step."""


@dataclass(frozen=True, slots=True)
class _Index:
    """How a database creates the index, writes many new rows, and fills it in a rebuild."""

    made: Callable[[str], Sequence[str]]
    marked: Callable[[str], Marked | None] = _nothing
    filling: Callable[[str], Filling | None] = _nothing


_INDEXES = {
    "sqlite": _Index(_sqlite, marked=_together),
    "postgresql": _Index(_postgresql, filling=_indexed_last),
}


def searched_text(event: RecordedEvent) -> tuple[str, str] | None:
    """Return an event's role and its searchable text; None if the event is not searched."""
    match event.data:
        case UserMessage() as message:
            text = payload_text.text_of(message.parts) or payload_text.sections_text(
                message.sections
            )
            return "user", text
        case AssistantMessage() as answer:
            return "assistant", payload_text.answer_text(answer.parts)
        case LlmError() as error:
            return "assistant", error.partial_text
        case ConversationStart() | ConversationFork() | ConversationUpdate() as titled:
            return "title", titled.title or ""
    return None


@dataclass(frozen=True, slots=True)
class SearchProjection:
    """Folds a conversation's events into ``message_words``."""

    name: str = "search"
    version: int = 4
    tables: Sequence[ReadTable] = (
        ReadTable(
            _TABLE,
            ("version", "piece"),
            folding.columns_of(SearchRow),
            attachments=WordIndex(),
        ),
    )

    def initial(self) -> State:
        """Return the state of an empty conversation: no title, and nothing is withdrawn."""
        return {"titled": 0, "withdrawn": []}

    def fold(self, state: State, event: RecordedEvent) -> tuple[State, Sequence[Change]]:
        """Return the state after the event, and the rows of its text."""
        return folding.run(_HANDLERS, state, event)


def _say(draft: RowDraft, _: Any) -> None:
    event = draft.event
    role, text = searched_text(event) or ("", "")
    for piece, part in enumerate(pieces_of(text)):
        if words := words_of(part):
            values = {"role": role, "occurred_at": event.occurred_at, "words": words}
            draft.put(_TABLE, (event.version, piece), values)


def _entitle(draft: RowDraft, titled: _Titled) -> None:
    """Replace the title; a start or a fork without a title leaves it as it is."""
    if not titled.title and (titled.title is None or type(titled) is not ConversationUpdate):
        return
    if before := draft.state["titled"]:
        draft.changes.append(Patch(_TABLE, "version", before, before, {"words": None}))
    draft.set(titled=draft.event.version)
    _say(draft, titled)


def _retract(draft: RowDraft, retraction: Retraction) -> None:
    """Remove the words of withdrawn messages; the title stays, as it does in lists."""
    ranges, known = version_ranges.retracted(retraction, draft.event), draft.state["withdrawn"]
    new, known = folding.not_yet_within(ranges, known)
    draft.set(withdrawn=known)
    titled = draft.state["titled"]
    for first, last in version_ranges.without(new, [(titled, titled)]):
        draft.changes.append(Patch(_TABLE, "version", first, last, {"words": None}))


def _switch(draft: RowDraft, switched: BranchSwitch) -> None:
    folding.switch(draft, switched, _TABLE, "version")
    titled = draft.state["titled"]
    if version_ranges.within(version_ranges.before(switched.withdrawn, draft.event), titled):
        draft.changes.append(Patch(_TABLE, "version", titled, titled, {"inactive": None}))


_HANDLERS: dict[type, folding.Handler] = {
    UserMessage: _say,
    AssistantMessage: _say,
    LlmError: _say,
    ConversationStart: _entitle,
    ConversationFork: _entitle,
    ConversationUpdate: _entitle,
    Retraction: _retract,
    BranchSwitch: _switch,
}

SEARCH = SearchProjection()
