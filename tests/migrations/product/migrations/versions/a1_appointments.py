"""The first revision: topics and appointments.

Revision ID: a1
Revises:
"""

import sqlalchemy as sa
from alembic import op
from tables import PREFIX

revision = "a1"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    topics, appointments = f"{PREFIX}conversations", f"{PREFIX}events"
    op.create_table(
        topics,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("title", sa.String, nullable=False),
    )
    op.create_table(
        appointments,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("topic_id", sa.Integer, sa.ForeignKey(f"{topics}.id"), nullable=False),
        sa.Column("place", sa.String, nullable=False),
    )
