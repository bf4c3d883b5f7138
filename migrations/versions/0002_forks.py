"""An index by which the forks of a conversation are found.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create it; most conversations have no parent, and take no place in it."""
    op.execute(
        "CREATE INDEX ix_conversations_parent ON conversations (parent_conversation_id) "
        "WHERE parent_conversation_id IS NOT NULL"
    )


def downgrade() -> None:
    """Drop it."""
    op.execute("DROP INDEX ix_conversations_parent")
