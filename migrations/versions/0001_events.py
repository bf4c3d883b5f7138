"""Events, conversations, blobs, erasures, projection heads, and triggers for immutable events.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE conversations (
    conversation_id {id} NOT NULL,
    version BIGINT NOT NULL,
    chain {bytes} NOT NULL,
    writer_epoch BIGINT NOT NULL,
    tenant_id TEXT,
    user_id TEXT,
    created_at {time} NOT NULL,
    last_active_at {time} NOT NULL,
    parent_conversation_id {id},
    parent_version BIGINT,
    key_id TEXT,
    key TEXT,
    PRIMARY KEY (conversation_id)
);
CREATE TABLE blobs (
    conversation_id {id} NOT NULL,
    digest TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    compression TEXT NOT NULL,
    content {bytes} NOT NULL,
    PRIMARY KEY (conversation_id, digest)
);
CREATE TABLE erasures (
    conversation_id {id} NOT NULL,
    erasure_id {id} NOT NULL,
    erased_at {time} NOT NULL,
    reason TEXT NOT NULL,
    requested_by TEXT,
    PRIMARY KEY (conversation_id, erasure_id)
);
CREATE TABLE erased_versions (
    conversation_id {id} NOT NULL,
    erasure_id {id} NOT NULL,
    first_version BIGINT NOT NULL,
    last_version BIGINT NOT NULL,
    PRIMARY KEY (conversation_id, first_version, erasure_id)
);
CREATE TABLE purges (
    conversation_id {id} NOT NULL,
    purge_id {id} NOT NULL,
    purged_at {time} NOT NULL,
    reason TEXT NOT NULL,
    requested_by TEXT,
    event_count BIGINT NOT NULL,
    blob_count BIGINT NOT NULL,
    blob_bytes BIGINT NOT NULL,
    first_position BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    PRIMARY KEY (conversation_id, purge_id)
);
CREATE TABLE retired_keys (
    conversation_id {id} NOT NULL,
    key_id TEXT NOT NULL,
    retired_at {time} NOT NULL,
    PRIMARY KEY (conversation_id, key_id)
);
CREATE TABLE import_sources (
    conversation_id {id} NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (conversation_id)
);
CREATE TABLE writer_leases (
    conversation_id {id} NOT NULL,
    session_id TEXT NOT NULL,
    process TEXT NOT NULL,
    who TEXT NOT NULL,
    since {time} NOT NULL,
    expires_at {time} NOT NULL,
    PRIMARY KEY (conversation_id)
);
CREATE TABLE projections (
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    tables {json} NOT NULL,
    cursor TEXT,
    created_at {time} NOT NULL,
    PRIMARY KEY (name, generation)
);
CREATE TABLE projection_heads (
    conversation_id {id} NOT NULL,
    projection TEXT NOT NULL,
    generation INTEGER NOT NULL,
    version BIGINT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (conversation_id, projection, generation)
);
CREATE TABLE shared_tables (
    name TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE store_identity (
    store_id {id} NOT NULL,
    PRIMARY KEY (store_id)
)
"""

SQLITE_TYPES = {"id": "TEXT", "bytes": "BLOB", "time": "TEXT", "json": "TEXT"}
POSTGRESQL_TYPES = {
    "id": "UUID",
    "bytes": "BYTEA",
    "time": "TIMESTAMP WITH TIME ZONE",
    "json": "JSON",
}

SQLITE = """
CREATE TABLE events (
    position INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    conversation_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    recorded_at TEXT NOT NULL,
    data TEXT,
    meta TEXT NOT NULL,
    salt BLOB,
    data_digest BLOB NOT NULL,
    chain BLOB NOT NULL,
    CONSTRAINT uq_events_version UNIQUE (conversation_id, version),
    CONSTRAINT uq_events_event_id UNIQUE (event_id, conversation_id)
);
INSERT INTO store_identity SELECT lower(
    hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-' || hex(randomblob(2)) || '-'
    || hex(randomblob(2)) || '-' || hex(randomblob(6)))
"""

POSTGRESQL = """
CREATE TABLE events (
    conversation_id UUID NOT NULL,
    version BIGINT NOT NULL,
    event_id UUID NOT NULL,
    type TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    data JSON,
    meta JSON NOT NULL,
    salt BYTEA,
    data_digest BYTEA NOT NULL,
    chain BYTEA NOT NULL,
    position BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY,
    epoch INTEGER NOT NULL,
    tx_id XID8 NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (conversation_id, version),
    CONSTRAINT uq_events_event_id UNIQUE (event_id, conversation_id)
);
CREATE INDEX ix_events_feed ON events (epoch, tx_id, position);
INSERT INTO store_identity SELECT gen_random_uuid();
CREATE TABLE store_epochs (
    epoch INTEGER NOT NULL,
    system_identifier TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (epoch)
);
INSERT INTO store_epochs SELECT 1, system_identifier::text, now() FROM pg_control_system()
"""

INDEXES = """
CREATE INDEX ix_import_sources_source ON import_sources (source);
CREATE INDEX ix_conversations_owner ON conversations (tenant_id, user_id, conversation_id);
CREATE INDEX ix_conversations_user ON conversations (user_id, conversation_id)
"""

# For readers with plain SQL. The views of projections show the newest live generation; a store that
# has none yet has no views, and each of its conversations is behind.
LAG = """
CREATE VIEW view_lag AS
SELECT stream.conversation_id, live.name AS projection,
    stream.version - coalesce(head.version, 0) AS events_behind,
    coalesce(head.version, 0) AS folded_version, stream.version, stream.last_active_at
FROM conversations AS stream
LEFT JOIN projections AS live ON live.status = 'live' AND live.generation = (
    SELECT max(newest.generation) FROM projections AS newest
    WHERE newest.name = live.name AND newest.status = 'live')
LEFT JOIN projection_heads AS head ON head.conversation_id = stream.conversation_id
    AND head.projection = live.name AND head.generation = live.generation
WHERE coalesce(head.version, 0) < stream.version
"""

# An update is allowed only if it sets data and salt to NULL, alters nothing else, and
# `erased_versions` names the event's version. A delete is allowed only with a receipt in `purges`;
# nothing can change a receipt. REPLACE would delete rows without firing a delete trigger, so a
# separate trigger refuses to insert over existing rows; with FAIL, which saves copies of pages
# that ABORT needs.
SQLITE_TRIGGERS = (
    """
CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events
WHEN NOT (
    NEW.data IS NULL AND NEW.salt IS NULL
    AND NEW.position IS OLD.position AND NEW.conversation_id IS OLD.conversation_id
    AND NEW.version IS OLD.version AND NEW.event_id IS OLD.event_id
    AND NEW.type IS OLD.type AND NEW.schema_version IS OLD.schema_version
    AND NEW.recorded_at IS OLD.recorded_at AND NEW.meta IS OLD.meta
    AND NEW.data_digest IS OLD.data_digest AND NEW.chain IS OLD.chain
    AND EXISTS (
        SELECT 1 FROM erased_versions WHERE conversation_id = OLD.conversation_id
        AND OLD.version BETWEEN first_version AND last_version)
)
BEGIN SELECT RAISE(ABORT, 'events are immutable: UPDATE refused'); END
""",
    """
CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events
WHEN NOT EXISTS (
    SELECT 1 FROM purges WHERE conversation_id = OLD.conversation_id
    AND OLD.position BETWEEN first_position AND last_position)
BEGIN SELECT RAISE(ABORT, 'events are immutable: DELETE refused'); END
""",
    """
CREATE TRIGGER events_refuse_replace BEFORE INSERT ON events
WHEN EXISTS (
        SELECT 1 FROM events WHERE conversation_id = NEW.conversation_id AND version = NEW.version)
    OR EXISTS (
        SELECT 1 FROM events
        WHERE conversation_id = NEW.conversation_id AND event_id = NEW.event_id)
    OR NEW.position > 0 AND EXISTS (SELECT 1 FROM events WHERE position = NEW.position)
BEGIN SELECT RAISE(FAIL, 'events are immutable: REPLACE refused'); END
""",
    """
CREATE TRIGGER purges_refuse_update BEFORE UPDATE ON purges
BEGIN SELECT RAISE(ABORT, 'receipts are immutable: UPDATE refused'); END
""",
    """
CREATE TRIGGER purges_refuse_delete BEFORE DELETE ON purges
BEGIN SELECT RAISE(ABORT, 'receipts are immutable: DELETE refused'); END
""",
    """
CREATE TRIGGER purges_refuse_replace BEFORE INSERT ON purges
WHEN EXISTS (
    SELECT 1 FROM purges
    WHERE conversation_id = NEW.conversation_id AND purge_id = NEW.purge_id)
BEGIN SELECT RAISE(ABORT, 'receipts are immutable: REPLACE refused'); END
""",
)

# Whatever the session's search_path is, the function uses the schema of its own table.
POSTGRESQL_TRIGGERS = (
    """
CREATE FUNCTION events_refuse_change() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept record;
    is_erased boolean;
    is_purged boolean;
BEGIN
    IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'events' THEN
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM %I.purges WHERE conversation_id = $1
                AND $2 BETWEEN first_position AND last_position)', TG_TABLE_SCHEMA)
            INTO is_purged USING OLD.conversation_id, OLD.position;
        IF is_purged THEN
            RETURN OLD;
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'events' THEN
        kept := OLD;
        kept.data := NULL;
        kept.salt := NULL;
        IF NEW.data IS NULL AND NEW.salt IS NULL AND NEW::text = kept::text THEN
            EXECUTE format(
                'SELECT EXISTS (SELECT FROM %I.erased_versions WHERE conversation_id = $1
                    AND $2 BETWEEN first_version AND last_version)', TG_TABLE_SCHEMA)
                INTO is_erased USING OLD.conversation_id, OLD.version;
            IF is_erased THEN
                RETURN NEW;
            END IF;
        END IF;
    END IF;
    RAISE EXCEPTION '% are immutable: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'integrity_constraint_violation';
END
$$
""",
    """
CREATE TRIGGER events_refuse_change BEFORE UPDATE OR DELETE ON events
FOR EACH ROW EXECUTE FUNCTION events_refuse_change()
""",
    """
CREATE TRIGGER events_refuse_truncate BEFORE TRUNCATE ON events
FOR EACH STATEMENT EXECUTE FUNCTION events_refuse_change()
""",
    """
CREATE TRIGGER purges_refuse_change BEFORE UPDATE OR DELETE ON purges
FOR EACH ROW EXECUTE FUNCTION events_refuse_change()
""",
    """
CREATE TRIGGER purges_refuse_truncate BEFORE TRUNCATE ON purges
FOR EACH STATEMENT EXECUTE FUNCTION events_refuse_change()
""",
)
# Otherwise a session with session_replication_role=replica would fire none of them.
POSTGRESQL_ALWAYS = (
    "ALTER TABLE events ENABLE ALWAYS TRIGGER events_refuse_change",
    "ALTER TABLE events ENABLE ALWAYS TRIGGER events_refuse_truncate",
    "ALTER TABLE purges ENABLE ALWAYS TRIGGER purges_refuse_change",
    "ALTER TABLE purges ENABLE ALWAYS TRIGGER purges_refuse_truncate",
)

# ANALYZE would copy these columns' values to a place that erasure does not reach.
POSTGRESQL_STATISTICS = (
    "ALTER TABLE events ALTER data SET STATISTICS 0, ALTER meta SET STATISTICS 0",
    "ALTER TABLE blobs ALTER digest SET STATISTICS 0, ALTER content SET STATISTICS 0",
    "ALTER TABLE import_sources ALTER source SET STATISTICS 0",
    "ALTER TABLE projection_heads ALTER state SET STATISTICS 0",
)


def upgrade() -> None:
    """Create everything."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    tables = TABLES.format_map(SQLITE_TYPES if sqlite else POSTGRESQL_TYPES)
    for statements in (tables, SQLITE if sqlite else POSTGRESQL, INDEXES):
        for statement in statements.split(";\n"):
            op.execute(statement)
    op.execute(LAG)
    for statement in SQLITE_TRIGGERS if sqlite else POSTGRESQL_TRIGGERS:
        op.execute(statement)
    for statement in () if sqlite else POSTGRESQL_ALWAYS + POSTGRESQL_STATISTICS:
        op.execute(statement)


def downgrade() -> None:
    """Refuse: events are never removed."""
    raise NotImplementedError("events are never removed: restore a backup instead")
