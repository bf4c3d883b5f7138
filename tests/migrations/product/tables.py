"""The product's tables, as its code declares them: one column is newer than its migrations."""

import sqlalchemy as sa

METADATA = sa.MetaData()
ORDERS = sa.Table(
    "orders",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("note", sa.Text),
)
