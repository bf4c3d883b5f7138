"""The first revision: what was ordered, as yet without a note.

Revision ID: a1
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "a1"
down_revision = None


def upgrade() -> None:
    """Make the table."""
    op.create_table("orders", sa.Column("number", sa.Integer, primary_key=True))
