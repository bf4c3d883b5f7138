"""The product's tables, as its code declares them.

On PostgreSQL they have the names of the store's, which is in a schema of its own there. A file of
SQLite has one name for one table.
"""

import os

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

PREFIX = os.environ["PRODUCT_PREFIX"]


class Base(DeclarativeBase):
    """What the product declares."""


class Topic(Base):
    """What the product calls a conversation."""

    __tablename__ = f"{PREFIX}conversations"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]


class Appointment(Base):
    """What the product calls an event."""

    __tablename__ = f"{PREFIX}events"
    id: Mapped[int] = mapped_column(primary_key=True)
    topic_id: Mapped[int] = mapped_column(ForeignKey(Topic.id))
    place: Mapped[str]


METADATA = Base.metadata
