"""All errors that this project raises itself, in one tree.

::

    EventStoreError
    ├── WrongExpectedVersion      the stream is not at the version that the writer expected
    │   └── ConversationExists    the conversation to start already exists
    ├── WriterFenced              another writer has opened the conversation
    ├── ConversationInUse         another session is writing to the conversation
    ├── LogWentBack               acknowledged events are no longer in the log
    ├── EventIdConflict           some of the event ids already exist elsewhere in the stream
    ├── OwnerMismatch             the conversation belongs to another tenant or user
    ├── ForkRefused               the conversation cannot be forked there   (also ValueError)
    ├── ConversationForked        forks share events of a conversation to purge (also ValueError)
    ├── DeletionIncomplete        the database erased or deleted fewer rows than there are
    ├── EventsShared              a parent's events must be erased in the parent (also ValueError)
    ├── InvalidEvent              the data cannot be stored                 (also ValueError)
    │   └── RedactionFailed       the redactor raised, so the event cannot be stored safely
    ├── InvalidCursor             a feed cursor from another log            (also ValueError)
    ├── ConversationNotFound      (also LookupError)
    ├── BlobNotFound              (also LookupError)
    ├── BlobDamaged               a blob's bytes cannot be unpacked, or are not the stored ones
    ├── KeyUnavailable            a key cannot be used, created or destroyed
    ├── EventDamaged              an event's row cannot be read             (also ValueError)
    ├── ConversationDamaged       a conversation's row cannot be read       (also ValueError)
    ├── RowDamaged                another row, or its JSON, cannot be read  (also ValueError)
    ├── OutputFileError           files of tool outputs cannot be written or deleted (also OSError)
    ├── CheckpointRefused         altered, unsigned, or of another store    (also ValueError)
    ├── KeyRefused                a signature key cannot be used            (also ValueError)
    ├── BlockNotOpen              a turn or call is used outside its block  (also RuntimeError)
    ├── BranchRefused             nothing there to edit, rewind or switch to (also ValueError)
    ├── ConversationEnded         the conversation was destroyed            (also RuntimeError)
    ├── TurnRunning               a message was posted again while its turn runs (also RuntimeError)
    ├── TurnStopped               the turn was stopped                      (also RuntimeError)
    ├── TurnStillOpen             a turn is entered while another is open   (also RuntimeError)
    ├── NotCommitted              a turn's transaction was not committed    (also RuntimeError)
    ├── UnknownAlias              no tool result has this alias             (also LookupError)
    ├── ToolDenied                the tool policy does not allow a tool
    ├── UnknownResponse           a model's answer has an unknown format    (also ValueError)
    ├── InvalidProjection         a product's projection is not valid       (also ValueError)
    ├── UnknownProjection         no projection has this name               (also LookupError)
    ├── EncodingNotBundled        the tokenizer is not bundled              (also LookupError)
    ├── UnknownStrategy           no compression strategy has this name     (also LookupError)
    ├── EmbeddingFailed           a product's embedding callable raised, or returned wrong vectors
    ├── RequestNotReproducible    the log no longer renders the messages that were sent
    ├── WrongThread               a chat was opened from another thread     (also LookupError)
    ├── PromptTooLong             an agent's request would exceed its limit (also ValueError)
    ├── BudgetInfeasible          the mandatory messages alone exceed the budget
    ├── InvalidSettings           unknown or contradictory settings         (also ValueError)
    ├── InvalidPrompt             a product's prompt text cannot be used    (also ValueError)
    ├── ForkedWriter              a child process uses its parent's conversation (also RuntimeError)
    ├── StoreClosed               the asynchronous store was closed         (also RuntimeError)
    ├── UnsafeTransaction         the caller's transaction is not durable   (also RuntimeError)
    ├── FactsNotWritten           a conversation was closed with unwritten events
    ├── CallAnswered              the tool call already has a result        (also RuntimeError)
    ├── CallNotRecorded           a recorded client was called with no turn (also RuntimeError)
    ├── ProjectionFailed          a fold raised, at a conversation and version
    ├── GenerationGone            a rebuild has replaced the tables in use
    ├── ImportFailed              a record of a foreign file cannot be read (also ValueError)
    ├── StatementRefused          the database refuses a statement; retrying does not help
    └── StoreUnavailable          the database cannot be opened or used
        ├── InvalidUrl            (also ValueError)
        ├── CannotConnect         no server, wrong password, no such database
        │   └── ServerSilent      the server stopped answering within a statement
        ├── NotWritable           the file or its directory cannot be written
        ├── NotADatabase          the file is not a database, or is damaged
        ├── DatabaseReplaced      the file was deleted or replaced while the store was open
        ├── ForkedStore           a child process uses its parent's SQLite connections
        ├── DatabaseBusy          another writer held the lock beyond the timeout
        ├── SchemaOutdated        the schema is older than the code, and upgrading was declined
        ├── SchemaTooNew          the schema is newer than the code
        └── TablesTaken           a product's own tables use names of the store's tables

The driver's error, if any, is the ``__cause__``. Attributes hold the data; the message says what to
do next. Each layer defines the errors that it raises: see `eventstore.errors`, `projections.errors`
and `agent_eventstore.recording_errors`. This module exports all of them.
"""

from __future__ import annotations

import eventstore.errors
import projections.errors
from agent_eventstore import recording_errors
from agent_eventstore.recording_errors import *  # noqa: F403 - all errors of each layer
from eventstore.errors import *  # noqa: F403
from projections.errors import *  # noqa: F403

__all__ = []
__all__ += recording_errors.__all__
__all__ += eventstore.errors.__all__
__all__ += projections.errors.__all__
