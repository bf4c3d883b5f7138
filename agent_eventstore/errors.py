"""Every error that this project raises on purpose, in one tree.

::

    EventStoreError
    ├── WrongExpectedVersion      the stream is at another version than the writer thought
    │   └── ConversationExists    one is to begin that there is already
    ├── WriterFenced              another writer has opened the conversation
    ├── ConversationInUse         another session writes to it now
    ├── LogWentBack               what was acknowledged is no longer in the log
    ├── EventIdConflict           some of the event ids are already elsewhere in the stream
    ├── OwnerMismatch             the conversation belongs to another tenant or user
    ├── ForkRefused               a conversation cannot be forked there     (also ValueError)
    ├── ConversationForked        it is to be purged, and forks share its events (also ValueError)
    ├── EventsShared              a parent's events are erased in the parent (also ValueError)
    ├── InvalidEvent              what was handed in cannot be stored       (also ValueError)
    │   └── RedactionFailed       the redactor raised, so nobody knows what may be stored
    ├── InvalidCursor             a feed cursor that this log does not hold (also ValueError)
    ├── ConversationNotFound      (also LookupError)
    ├── BlobNotFound              (also LookupError)
    ├── BlobDamaged               the bytes of a blob cannot be unpacked
    ├── KeyUnavailable            what is sealed cannot be opened, or a key not made or destroyed
    ├── EventDamaged              a stored event's row cannot be read       (also ValueError)
    ├── ConversationDamaged       a conversation's own row cannot be read   (also ValueError)
    ├── RowDamaged                any other row, or its JSON, cannot be read (also ValueError)
    ├── CheckpointRefused         altered, not signed, or of another store  (also ValueError)
    ├── KeyRefused                a key for signatures cannot be used       (also ValueError)
    ├── BlockNotOpen              a turn or call is used outside its block  (also RuntimeError)
    ├── BranchRefused             nothing there to be edited, rewound or taken (also ValueError)
    ├── ConversationEnded         it was destroyed, and takes no more turns (also RuntimeError)
    ├── TurnRunning               a message was posted again while its turn runs (also RuntimeError)
    ├── TurnStopped               its own turn was stopped meanwhile        (also RuntimeError)
    ├── TurnStillOpen             a turn is entered within another one      (also RuntimeError)
    ├── NotCommitted              the transaction that a turn began in is not   (also RuntimeError)
    ├── UnknownAlias              no tool result has this alias             (also LookupError)
    ├── ToolDenied                the tool policy does not let a tool run
    ├── UnknownResponse           a model's answer in a shape that nobody knows (also ValueError)
    ├── InvalidProjection         a product's own cannot be made            (also ValueError)
    ├── UnknownProjection         no projection has this name               (also LookupError)
    ├── EncodingNotBundled        a tokenizer that is not carried along     (also LookupError)
    ├── UnknownStrategy           no compression strategy of this name      (also LookupError)
    ├── EmbeddingFailed           a product's embedding callable raised, or gave other vectors
    ├── RequestNotReproducible    the log no longer gives the messages that were sent
    ├── WrongThread               a chat of another thread was asked for    (also LookupError)
    ├── PromptTooLong             an agent's request would be over its limit (also ValueError)
    ├── BudgetInfeasible          the mandatory messages alone exceed the budget
    ├── InvalidSettings           unknown or contradictory settings         (also ValueError)
    ├── InvalidPrompt             a product's prompt text cannot be used    (also ValueError)
    ├── ForkedWriter              a parent's conversation, used by its child (also RuntimeError)
    ├── StoreClosed               what was an event loop's store            (also RuntimeError)
    ├── UnsafeTransaction         of one's own, which does not make events durable (RuntimeError)
    ├── FactsNotWritten           a conversation was closed, and what has happened is not written
    ├── CallAnswered              a tool call has its result already        (also RuntimeError)
    ├── CallNotRecorded           a recorded client was called with no turn (also RuntimeError)
    ├── ProjectionFailed          a fold raised, at a conversation and version
    ├── GenerationGone            a rebuild has replaced the tables in use
    ├── ImportFailed              a record of a foreign file cannot be read (also ValueError)
    ├── StatementRefused          the database refuses a statement, however often it is tried
    └── StoreUnavailable          the database cannot be opened or used
        ├── InvalidUrl            (also ValueError)
        ├── CannotConnect         no server, wrong password, no such database
        ├── NotWritable           the file or its directory cannot be written
        ├── NotADatabase          the file is something else, or damaged
        ├── DatabaseReplaced      the file was deleted or replaced while the store was open
        ├── ForkedStore           a child holds its parent's connections of SQLite
        ├── DatabaseBusy          another writer held the lock beyond the timeout
        ├── SchemaOutdated        the schema is older than the code, and upgrading was declined
        ├── SchemaTooNew          the schema is newer than the code
        └── TablesTaken           a product's own tables have the names of the store's

The driver's error, where there is one, is the ``__cause__``. Data stand in attributes; the message
says what to do next. Each error is defined on the floor that raises it: see `eventstore.errors`,
`projections.errors` and `agent_eventstore.recording_errors`. This module has all of them.
"""

from __future__ import annotations

import eventstore.errors
import projections.errors
from agent_eventstore import recording_errors
from agent_eventstore.recording_errors import *  # noqa: F403 - all that each of them has
from eventstore.errors import *  # noqa: F403
from projections.errors import *  # noqa: F403

__all__ = []
__all__ += recording_errors.__all__
__all__ += eventstore.errors.__all__
__all__ += projections.errors.__all__
