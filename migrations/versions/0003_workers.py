"""The workers that are alive, and share the conversations among them.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

from eventstore.sql.rights import share_rights

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; times are seconds since 1970 by the database's clock."""
    op.execute(
        """
        CREATE TABLE projection_workers (
            worker_id TEXT NOT NULL,
            task TEXT NOT NULL,
            host TEXT NOT NULL,
            process_id INTEGER NOT NULL,
            started_at BIGINT NOT NULL,
            seen_at BIGINT NOT NULL,
            PRIMARY KEY (worker_id)
        )
        """
    )
    # Logins that were granted the other tables need this one too.
    share_rights(op.get_bind(), ["projection_workers"])


def downgrade() -> None:
    """Drop the table."""
    op.execute("DROP TABLE projection_workers")
