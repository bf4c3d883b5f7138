"""Alembic migrations of the tables that cannot be rebuilt.

`REVISIONS` lists the revisions in order, oldest first, so that opening a database can tell an
older schema from a newer one without loading Alembic.
"""

REVISIONS = ("0001",)
HEAD = REVISIONS[-1]
