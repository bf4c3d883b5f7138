"""Events that are immutable in partitions too.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# A row's trigger sees the name of the partition. The function belongs to events and purges alone.
POSTGRESQL_FUNCTION = """
CREATE OR REPLACE FUNCTION events_refuse_change() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept record;
    is_erased boolean;
    is_purged boolean;
BEGIN
    IF TG_OP = 'DELETE' AND TG_TABLE_NAME <> 'purges' THEN
        EXECUTE format(
            'SELECT EXISTS (SELECT FROM %I.purges WHERE conversation_id = $1
                AND $2 BETWEEN first_position AND last_position)', TG_TABLE_SCHEMA)
            INTO is_purged USING OLD.conversation_id, OLD.position;
        IF is_purged THEN
            RETURN OLD;
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME <> 'purges' THEN
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
    RAISE EXCEPTION '% are immutable: % refused',
        CASE TG_TABLE_NAME WHEN 'purges' THEN 'purges' ELSE 'events' END, TG_OP
        USING ERRCODE = 'integrity_constraint_violation';
END
$$
"""


def upgrade() -> None:
    """Replace the triggers' function."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRESQL_FUNCTION)


def downgrade() -> None:
    """Leave the function, which does the same for whole tables."""
