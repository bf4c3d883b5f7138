"""An index for finding the forks of a conversation.

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
    """Create the index; conversations without a parent, the majority, take no space in it."""
    op.execute(
        "CREATE INDEX ix_conversations_parent ON conversations (parent_conversation_id) "
        "WHERE parent_conversation_id IS NOT NULL"
    )


def downgrade() -> None:
    """Drop the index."""
    op.execute("DROP INDEX ix_conversations_parent")
