"""Where the conversations in the archive are.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

from eventstore.sql.rights import share_rights

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a row stays until its file is deleted."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    id_type, time_type = ("TEXT", "TEXT") if sqlite else ("UUID", "TIMESTAMP WITH TIME ZONE")
    op.execute(
        f"""
        CREATE TABLE archives (
            conversation_id {id_type} NOT NULL,
            state TEXT NOT NULL,
            url TEXT NOT NULL,
            digest TEXT NOT NULL,
            size_bytes BIGINT NOT NULL,
            event_count BIGINT NOT NULL,
            erasure_count BIGINT NOT NULL,
            tenant_id TEXT,
            user_id TEXT,
            last_active_at {time_type} NOT NULL,
            archived_at {time_type} NOT NULL,
            PRIMARY KEY (conversation_id)
        )
        """
    )
    share_rights(op.get_bind(), ["archives"])


def downgrade() -> None:
    """Drop the table, unless it says where conversations are."""
    if op.get_bind().exec_driver_sql("SELECT count(*) FROM archives").scalar_one():
        raise RuntimeError("conversations are in the archive: restore them first")
    op.execute("DROP TABLE archives")
